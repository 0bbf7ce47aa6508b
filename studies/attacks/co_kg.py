"""Attack Co-KG: recover values from successive posteriors, and points from one covariance.

A posterior at pivots determines the observations behind it. In whitened coordinates
(`numerics.surrogates.pivots`) an observation of `y` at `x`, whose row of the basis is `w`, turns mean and
covariance into

    m' = m + g (y - w^T m),  g = C w / (w^T C w + s2),

and the server chose `x` itself: one linear equation in `y`. Noise `e_t ~ N(0, s^2 I)` on the mean of report
`t` does not change the covariances `C_t`, and therefore no gain. All reports of a run together,

    m_t = C_t (U c + sum_(i <= t) w_i y_i / s2) + e_t,

are one linear regression for all `y_i`; `U` spans the warm-up's observations and follows from `C_1`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbo_flower.algorithms import CoKG
from fbo_flower.algorithms.co_kg.state import SharedPrior
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.surrogates.pivots import extend
from studies.attacks.harness import SQUARE, AttackResult, compared, lowest, mesh, overhear

NUM_ROUNDS = 23
FIRST = 6  # points that the agent chose: the warm-up and its first own choice
NOISES = (0.0, 1.0)
SIDE = 201  # points per axis of the grid that is searched
VISIBLE = 1e-6  # smallest share of the largest eigenvalue that counts as an observation


@dataclass(frozen=True)
class CuriousView:
    """What the server received from one agent, and the secrets that the agent observed, in shared units.

    Parameters
    ----------
    means, covariances : the posteriors in its reports, in order
    rows, values : rows of the basis `(T - 1, r)` at the points that the server chose; secret: values there
    noise_variance, setting : the noise and the prior that all agents share
    points, first_values : secret: the points and values behind the first report, `(6, 2)`, `(6,)`
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
        """Return the values `(T - 1,)`, estimated from all `T` reports together by least squares."""
        added = cholesky(self.covariances[0]).inverse() - np.eye(len(self.means[0]))
        eigenvalues, vectors = np.linalg.eigh(added)
        warm_up = vectors[:, eigenvalues > VISIBLE * eigenvalues[-1]]  # U
        blocks = []
        for t, covariance in enumerate(self.covariances):
            known = self.rows.T / self.noise_variance * (np.arange(len(self.rows)) < t)
            blocks.append(covariance @ np.hstack([warm_up * eigenvalues[-1], known]))
        solution = np.linalg.lstsq(np.vstack(blocks), np.concatenate(self.means), rcond=1e-12)[0]
        return np.asarray(solution[warm_up.shape[1] :])

    def warm_up_points(self) -> Array:
        """Return the points `(6, 2)` recovered from the covariance of the first report."""
        grid = mesh(SIDE)
        rows = extend(grid.reshape(-1, 2), self.setting.pivots, self.setting.hyperparameters)
        far = outside(self.covariances[0], rows, FIRST).reshape(SIDE, SIDE)
        is_lowest = lowest(far)
        return np.asarray(grid[is_lowest][np.argsort(far[is_lowest])[:FIRST]])

    def warm_up_values(self, points: Array) -> Array:
        """Return the values `(6,)` recovered from the first report, given their points."""
        rows = extend(points, self.setting.pivots, self.setting.hyperparameters)
        return values_at(self.means[0], self.covariances[0], rows, self.noise_variance)


def watch(num_rounds: int = NUM_ROUNDS, seed: int = 0, **options: Any) -> CuriousView:
    """Run Co-KG on the function f1; return what the server received from the first agent.

    No point is repeated in the warm-up: of two values at one point only the mean can be recovered.
    """
    exact: dict[str, Any] = {"num_draws": 16, "num_starts": 1, "num_repeated": 0}
    exact |= {"rank_cut": 1e-8, "tolerance": 1e-6}
    heard = overhear("f1", CoKG, num_rounds, seed, **exact, **options)
    # after the last reply of each round
    states = {one.round: one.after for one in heard.kept if 1 < one.round <= num_rounds}
    setting: SharedPrior = states[num_rounds].setting
    posteriors = [state.posteriors["0"] for state in states.values()]
    points, values, _ = heard.evaluated("0")
    values = (values - setting.shift) / setting.scale
    return CuriousView(
        [b.mean for b in posteriors], [b.covariance for b in posteriors],
        extend(points[FIRST:], setting.pivots, setting.hyperparameters),
        setting.hyperparameters.noise_variance, values[FIRST:], setting, points[:FIRST], values[:FIRST],
    )  # fmt: skip


def attack(seed: int) -> Iterator[AttackResult]:
    """Attack one of four agents on the function f1, without noise and with two levels of noise."""
    unit, how = "s.d. of the prior", "the mean of the values"
    for noise in NOISES:
        seen = watch(seed=seed, mean_noise_stddev=noise)
        with_noise = f", noise {noise:g} on means" if noise else ""
        for text, found in (
            ("values at points that the server chose, two reports", seen.each_round()),
            ("the same, all reports of the run", seen.whole_run()),
        ):
            yield compared(text + with_noise, found - seen.values, seen.values.std(), unit, how)
        places, uniform = seen.warm_up_points(), np.random.default_rng(seed).random((FIRST, 2))
        near, far = (_distances(seen.points, found) for found in (places, uniform))
        yield compared(f"points of the warm-up{with_noise}", near, far, SQUARE, "as many uniform points")
        if not noise:
            errors = seen.warm_up_values(seen.points) - seen.first_values
            text = "values of the warm-up, once its points are found"
            yield compared(text, errors, seen.first_values.std(), unit, how)


def _distances(points: Array, found: Array) -> Array:
    """Return each point's distance `(n,)`, in the maximum norm, to the nearest recovered point."""
    return np.asarray(np.abs(points[:, np.newaxis] - found[np.newaxis]).max(axis=2).min(axis=1))


# -- linear algebra ------------------------------------------------------------------------------------


def value_of_one_round(
    mean_before: Array, covariance_before: Array, mean_after: Array, row: Array, noise_variance: float
) -> float:
    """Recover `y` from the reports before and after it was observed; `row (r,)` is that of its point."""
    gain = covariance_before @ row
    gain /= row @ gain + noise_variance
    change = mean_after - mean_before
    return float(row @ mean_before + (gain @ change) / (gain @ gain))


def outside(covariance: Array, rows: Array, num_observations: int) -> Array:
    """Return for each candidate point `(Q,)` how far it is from the observed points; 0 at each of them.

    `n` observations add `C^-1 - I` to the prior's precision, a matrix whose span is that of their rows of the
    basis. The result is the share of a candidate's row outside this span. So the covariance alone reveals the
    agent's points. `rows (Q, r)` are those of the basis at the candidates.
    """
    added = cholesky(covariance).inverse() - np.eye(len(covariance))
    span = np.linalg.eigh(added)[1][:, -num_observations:]
    return np.asarray(1.0 - np.square(rows @ span).sum(axis=1) / np.square(rows).sum(axis=1))


def values_at(mean: Array, covariance: Array, rows: Array, noise_variance: float) -> Array:
    """Recover the observed values `(n,)` from one report, given the rows `(n, r)` of their points."""
    shift = cholesky(covariance).solve(mean)  # W^T y / s2
    return np.asarray(np.linalg.lstsq(rows.T / noise_variance, shift)[0])
