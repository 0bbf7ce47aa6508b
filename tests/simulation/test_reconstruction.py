"""A posterior tells its observations: the attack of an honest-but-curious server on Co-KG."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from fbo_flower.algorithms import CoKG
from fbo_flower.algorithms.co_kg_agent import extend
from fbo_flower.algorithms.co_kg_state import Setting
from fbo_flower.clients import client_app
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import make_problem
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.simulation.reconstruction import outside, value_of_one_round, values_at, values_of_a_run
from fbo_flower.strategies import CoKG as Strategy

NUM_ROUNDS = 23


class Seen(NamedTuple):
    """What the server saw of one agent, and what the agent observed, in the shared units."""

    means: list[Array]
    covariances: list[Array]
    rows: Array
    noise_variance: float
    values: Array
    setting: Setting
    points: Array  # of the first report, which the server did not choose
    first_values: Array


class Watching(Strategy):
    """A server that keeps what it is told."""

    algorithm_class = CoKG

    def _tell(self, phase, server_round):
        super()._tell(phase, server_round)
        self.seen = [*getattr(self, "seen", []), self._run.state]


def watch(num_rounds: int = NUM_ROUNDS, agent: str = "0", **options: object) -> Seen:
    problem = make_problem("f1", 4, 0, {})
    app = client_app(problem, problem.space, seed=0, disclose="trials")
    server = Watching(
        num_agents=4, seed=0, num_draws=16, num_starts=1, rank_cut=1e-8, tolerance=1e-6, **options
    )
    study = server.start(InProcessGrid(app, 4), num_rounds)
    states = server.seen[1:num_rounds]
    setting = states[-1].setting
    beliefs = [state.beliefs[agent] for state in states]
    rows = study.trials.where(agent=agent)
    points = np.array([[c["x1"], c["x2"]] for c in rows["config"]])
    values = (rows["value"] - setting.shift) / setting.scale
    first = 6  # the warm-up and the agent's own choice
    basis = extend(points[first:], setting.pivots, setting.hyperparameters)
    means, covariances = [b.mean for b in beliefs], [b.covariance for b in beliefs]
    noise = setting.hyperparameters.noise_variance
    return Seen(means, covariances, basis, noise, values[first:], setting, points[:first], values[:first])


def each_round(seen: Seen) -> Array:
    steps = zip(seen.means, seen.covariances, seen.means[1:], seen.rows, strict=False)
    return np.array([value_of_one_round(*step, seen.noise_variance) for step in steps])


def rms(error: Array) -> float:
    return float(np.sqrt(np.mean(error**2)))


@pytest.mark.parametrize("central", ["barycenter", "product"])
def test_the_server_recovers_every_value_at_a_point_that_it_chose(central):
    seen = watch(central=central)
    recovered = each_round(seen)
    assert len(recovered) >= 20
    assert np.abs(recovered - seen.values).max() < 1e-6
    assert np.abs(values_of_a_run(*seen[:4]) - seen.values).max() < 1e-5


def test_noise_on_the_mean_defeats_one_round_and_averages_out_over_a_run():
    seen = watch(mean_noise_stddev=1.0)
    spread = float(seen.values.std())
    one = rms(each_round(seen) - seen.values)
    run = rms(values_of_a_run(*seen[:4]) - seen.values)
    assert one > 0.7 * spread  # no better than the mean of the values
    assert run < 0.4 * spread
    assert run < 0.4 * one


def test_less_noise_is_undone_more_exactly():
    errors = [rms(values_of_a_run(*(s := watch(mean_noise_stddev=sd))[:4]) - s.values) for sd in (0.01, 0.1)]
    assert errors[0] < errors[1]
    assert errors[0] < 0.01


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_covariance_betrays_the_points_of_the_warm_up_whatever_noise_is_on_the_mean(noise):
    seen = watch(num_rounds=3, mean_noise_stddev=noise)
    axis = np.linspace(0.0, 1.0, 201)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    rows = extend(grid.reshape(-1, 2), seen.setting.pivots, seen.setting.hyperparameters)
    far = np.pad(outside(seen.covariances[0], rows, 6).reshape(201, 201), 1, constant_values=np.inf)
    around = np.stack([np.roll(far, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)])
    is_lowest = (far == around.min(axis=0))[1:-1, 1:-1]
    candidates = grid[is_lowest]
    found = candidates[np.argsort(far[1:-1, 1:-1][is_lowest])[:6]]
    distance = np.abs(seen.points[:, np.newaxis] - found[np.newaxis]).max(axis=2).min(axis=1)
    assert distance.max() < 0.005  # the spacing of the grid


def test_one_report_tells_the_values_of_the_warm_up_once_its_points_are_known():
    seen = watch(num_rounds=3)
    rows = extend(seen.points, seen.setting.pivots, seen.setting.hyperparameters)
    recovered = values_at(seen.means[0], seen.covariances[0], rows, seen.noise_variance)
    assert np.abs(recovered - seen.first_values).max() < 1e-3
