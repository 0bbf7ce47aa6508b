"""Attack Co-KG: recover values from successive posteriors, and points from one covariance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbo_flower.algorithms import CoKG
from fbo_flower.algorithms.co_kg.state import CoKGState, SharedPrior
from fbo_flower.algorithms.records import Phase
from fbo_flower.clients import client_app
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates.pivots import extend
from fbo_flower.simulation import InProcessGrid
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import TuningStrategy
from studies.attacks.reconstruction import outside, value_of_one_round, values_at, values_of_a_run
from studies.attacks.records import AttackResult, rms

NUM_ROUNDS = 23
FIRST = 6  # points that the agent chose: the warm-up and its first own choice
NOISES = (0.0, 0.3, 1.0)
SIDE = 201  # points per axis of the grid that is searched


@dataclass(frozen=True)
class CuriousView:
    """What the server received from one agent, and the secrets that the agent observed, in shared units.

    Parameters
    ----------
    means, covariances : the posteriors in its reports, in order
    rows : `(T - 1, r)`, rows of the basis at the points that the server chose
    noise_variance, setting : the noise and the prior that all agents share
    values : `(T - 1,)`, secret: the values at those points
    points, first_values : `(6, 2)`, `(6,)`, secret: the points and values behind the first report
    """

    means: list[Array]
    covariances: list[Array]
    rows: Array
    noise_variance: float
    values: Array
    setting: SharedPrior
    points: Array
    first_values: Array

    def each_round(self) -> Array:
        """Return the values, each recovered from two successive reports."""
        steps = zip(self.means, self.covariances, self.means[1:], self.rows, strict=False)
        return np.array([value_of_one_round(*step, self.noise_variance) for step in steps])

    def whole_run(self) -> Array:
        """Return the values, recovered from all reports together."""
        return values_of_a_run(self.means, self.covariances, self.rows, self.noise_variance)

    def warm_up_points(self) -> Array:
        """Return the points `(6, 2)` recovered from the covariance of the first report."""
        axis = np.linspace(0.0, 1.0, SIDE)
        grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
        rows = extend(grid.reshape(-1, 2), self.setting.pivots, self.setting.hyperparameters)
        far = np.pad(outside(self.covariances[0], rows, FIRST).reshape(SIDE, SIDE), 1, constant_values=np.inf)
        around = np.stack([np.roll(far, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)])
        is_lowest = (far == around.min(axis=0))[1:-1, 1:-1]
        return np.asarray(grid[is_lowest][np.argsort(far[1:-1, 1:-1][is_lowest])[:FIRST]])

    def warm_up_values(self, points: Array) -> Array:
        """Return the values `(6,)` recovered from the first report, given their points."""
        rows = extend(points, self.setting.pivots, self.setting.hyperparameters)
        return values_at(self.means[0], self.covariances[0], rows, self.noise_variance)


class _Watching(TuningStrategy):
    """A Co-KG server that records all reports."""

    algorithm_class = CoKG

    def _tell(self, phase: Phase, server_round: int) -> None:
        super()._tell(phase, server_round)
        self.seen: list[CoKGState] = [*getattr(self, "seen", []), self._current().state]


def watch(num_rounds: int = NUM_ROUNDS, agent: str = "0", seed: int = 0, **options: Any) -> CuriousView:
    """Run Co-KG on a test function and return what the server received from one of four agents.

    No point is repeated in the warm-up: of two values at one point only the mean can be recovered.
    """
    problem = make_problem("f1", 4, seed, {})
    app = client_app(problem, problem.space, seed=seed, disclose="trials")
    server = _Watching(
        num_agents=4, seed=seed, num_draws=16, num_starts=1, rank_cut=1e-8, tolerance=1e-6, num_repeated=0,
        **options,
    )  # fmt: skip
    study = server.start(InProcessGrid(app, 4), num_rounds=num_rounds).study
    states = server.seen[1:num_rounds]
    setting = states[-1].setting
    assert setting is not None
    posteriors = [state.posteriors[agent] for state in states]
    rows = study.trials.where(agent=agent)
    points = np.array([[c["x1"], c["x2"]] for c in rows["config"]])
    values = (np.asarray(rows["value"], dtype=np.float64) - setting.shift) / setting.scale
    basis = extend(points[FIRST:], setting.pivots, setting.hyperparameters)
    return CuriousView(
        [b.mean for b in posteriors], [b.covariance for b in posteriors], basis,
        setting.hyperparameters.noise_variance, values[FIRST:], setting, points[:FIRST], values[:FIRST],
    )  # fmt: skip


def attack(seed: int) -> Iterator[AttackResult]:
    """Attack one of four agents on the function f1, without noise and with two levels of noise."""
    unit, how = "s.d. of the prior", "the mean of the values"
    for noise in NOISES:
        seen = watch(seed=seed, mean_noise_stddev=noise)
        with_noise = f", noise {noise:g} on means" if noise else ""
        guess, count = float(seen.values.std()), len(seen.values)
        yield AttackResult(
            f"values at points that the server chose, two reports{with_noise}",
            rms(seen.each_round() - seen.values), guess, unit, count, how,
        )  # fmt: skip
        yield AttackResult(
            f"the same, all reports of the run{with_noise}",
            rms(seen.whole_run() - seen.values), guess, unit, count, how,
        )  # fmt: skip
        found = seen.warm_up_points()
        yield AttackResult(
            f"points of the warm-up{with_noise}", rms(_distances(seen.points, found)),
            rms(_distances(seen.points, np.random.default_rng(seed).random((FIRST, 2)))),
            "side of the square", FIRST, "as many uniform points",
        )  # fmt: skip
        if not noise:
            recovered = seen.warm_up_values(seen.points)
            yield AttackResult(
                "values of the warm-up, once its points are found",
                rms(recovered - seen.first_values), float(seen.first_values.std()), unit, FIRST, how,
            )  # fmt: skip


def _distances(points: Array, found: Array) -> Array:
    """Return each point's distance `(n,)`, in the maximum norm, to the nearest recovered point."""
    return np.asarray(np.abs(points[:, np.newaxis] - found[np.newaxis]).max(axis=2).min(axis=1))
