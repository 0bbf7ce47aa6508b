"""The shared prior, computed from the agents' warm-ups, and the posteriors that agents report under it.

Notation as in `state.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from fbo_flower.algorithms.co_kg.hyperparameters import shared_hyperparameters
from fbo_flower.algorithms.co_kg.options import CoKGOptions
from fbo_flower.algorithms.co_kg.state import SharedPrior, WarmUp, WhitenedPosterior, unpack_lower
from fbo_flower.algorithms.records import AnyArray, Array, Report, natural_key
from fbo_flower.algorithms.summand import Summand
from fbo_flower.errors import WireError
from fbo_flower.numerics.linalg import Factor
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.likelihood_grid import LOWEST, SIZE
from fbo_flower.numerics.surrogates.pivots import choose_pivots, pivot_factor
from fbo_flower.numerics.surrogates.pooling import Increment, pool
from fbo_flower.space.space import SearchSpace

State = TypeVar("State")

LARGEST = float(np.finfo(np.float64).max)
UNITS = 2.0 ** np.array([-60.0, -30.0, 0.0, 30.0, 60.0])  # factors of values in secure sums
LARGEST_SUMMAND = 1e15
MOST_VALUES = 2**40  # largest number of values in an agent's moments
FARTHEST = 4.0  # under "reliability", moments are clipped to this many deviations of the median agent
NOT_DEFINITE = 1e-8  # an eigenvalue below minus this share of the largest variance is no rounding error


# -- the shared prior --------------------------------------------------------------------------------


def settle(
    options: CoKGOptions[State],
    space: SearchSpace,
    warm_ups: Mapping[str, WarmUp],
    before: SharedPrior | None,
    added: Array | None = None,
) -> SharedPrior:
    """Return the shared prior: pool the agents' units, estimate the hyperparameters, and pick the pivots.

    Under `weights = "reliability"` a single agent of three or more cannot spoil it: moments are clipped
    (`bounded_moments`), and medians over agents replace sums and means.

    Parameters
    ----------
    warm_ups : agent -> statistics of its warm-up, at least one
    before : the shared prior until now, whose units are kept; None for the first one
    added : `(K, D)`, points that may be pivots besides those of the point set
    """
    agents = sorted(warm_ups, key=natural_key)
    robust = options.weights == "reliability"
    if before is None:
        moments = [warm_ups[a].moments for a in agents]
        shift, scale, version = *pooled_units(bounded_moments(moments) if robust else moments), 1
    else:
        shift, scale, version = before.shift, before.scale, before.version + 1
    told = [warm_ups[a] for a in agents]
    hyperparameters = shared_hyperparameters(options, told, scale, space.num_features)
    points = with_added(options.points(space), added)
    pivots = choose_pivots(space.features(points), hyperparameters, options.rank_cut)
    return SharedPrior(version, hyperparameters, shift, scale, points[pivots.index])


def with_pivots(
    options: CoKGOptions[State], space: SearchSpace, setting: SharedPrior, added: Array | None
) -> SharedPrior:
    """Return the shared prior with pivots picked again, from the point set and the added points `(K, D)`."""
    points = with_added(options.points(space), added)
    pivots = choose_pivots(space.features(points), setting.hyperparameters, options.rank_cut)
    return replace(setting, version=setting.version + 1, pivots=points[pivots.index])


def with_added(points: Array, added: Array | None) -> Array:
    """Return the point set `(S, D)` with the added points `(K, D)` behind it."""
    return points if added is None else np.concatenate([points, added])


def pooled_units(moments: Sequence[Array]) -> tuple[float, float]:
    """Return mean and standard deviation of all values, from each agent's number, mean and deviation."""
    number, mean, stddev = np.array(moments).T
    exponent = int(np.frexp(float(np.max(np.abs(np.concatenate([mean, stddev])))))[1])
    mean, stddev = (
        np.ldexp(mean, -exponent),
        np.ldexp(stddev, -exponent),
    )  # so that squares neither overflow nor underflow
    weights = number / number.sum()
    shift = float(weights @ mean)
    variance = float(weights @ (stddev**2 + (mean - shift) ** 2))
    with np.errstate(over="ignore"):
        scale = min(float(np.ldexp(np.sqrt(variance), exponent)), LARGEST)
    return float(np.ldexp(shift, exponent)), scale if scale > 0.0 else 1.0


def summands(space: SearchSpace) -> dict[str, Summand]:
    """Return the arrays of a secure sum of warm-ups."""
    return {
        "values": Summand((len(UNITS), 3), LARGEST_SUMMAND),
        "thetas": Summand((1,), 1.0),
        "theta": Summand((space.num_features + 2,), 2e3),
        "log_likelihoods": Summand((SIZE,), -LOWEST),
    }


def to_sums(warm_up: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return an agent's summands: number, sum and sum of squares of its values, and log likelihoods.

    Sums have fixed points, and nobody knows the unit of the values yet. So the sums of values are there once
    for each of `UNITS`, with zeros where they are too large.
    """
    if "moments" not in warm_up:
        return {}
    number, mean, stddev = np.asarray(warm_up["moments"], dtype=np.float64)
    with np.errstate(over="ignore"):
        scaled = np.outer(UNITS, [mean, stddev])
        values = number * np.stack([np.ones(len(UNITS)), scaled[:, 0], (scaled**2).sum(axis=1)], axis=1)
    values[~(np.abs(values) <= LARGEST_SUMMAND).all(axis=1)] = 0.0
    found: dict[str, AnyArray] = {"values": values}
    if "theta" in warm_up:
        found |= {"thetas": np.ones(1), "theta": warm_up["theta"]}
    if "log_likelihoods" in warm_up:
        found["log_likelihoods"] = warm_up["log_likelihoods"]
    return found


def from_sums(sums: Mapping[str, Array]) -> WarmUp | None:
    """Return the summed warm-ups of all agents as a single warm-up; None without values."""
    counts = sums["values"][:, 0]
    if counts.max() < 1.0:
        return None
    finest = int(np.flatnonzero(counts > counts.max() - 0.5)[-1])  # of the units that suit all agents
    number, total, squares = sums["values"][finest]
    mean = total / number
    stddev = float(np.sqrt(max(0.0, squares / number - mean**2))) / UNITS[finest]
    mean /= UNITS[finest]
    thetas = float(sums["thetas"][0])
    theta = sums["theta"] / thetas if thetas >= 1.0 else np.empty(0)
    return WarmUp(np.array([number, mean, stddev]), theta, sums["log_likelihoods"])


def bounded_moments(moments: Sequence[Array]) -> list[Array]:
    """Return each agent's number, mean and deviation clipped to a range around the medians over agents.

    The number is at most the median number, the deviation within a factor of `FARTHEST` of the median
    deviation, the mean within `FARTHEST` median deviations of the median mean. For an even number of agents
    the lower median is used, because averaging two huge values could overflow.
    """
    number, mean, stddev = np.array(moments).T
    middle = [float(np.sort(column)[(len(column) - 1) // 2]) for column in (number, mean, stddev)]
    with np.errstate(over="ignore"):
        reach = min(FARTHEST * middle[2], LARGEST)
        low, high = max(middle[1] - reach, -LARGEST), min(middle[1] + reach, LARGEST)
    number = np.minimum(number, middle[0])
    mean, stddev = np.clip(mean, low, high), np.clip(stddev, middle[2] / FARTHEST, reach)
    return list(np.stack([number, mean, stddev], axis=1))


# -- reports -----------------------------------------------------------------------------------------


def check_warm_up(report: Report) -> None:
    """Raise WireError if moments have no valid count or a negative deviation, or if they are missing."""
    if "moments" in report.arrays:
        number, _, stddev = np.asarray(report.arrays["moments"], dtype=np.float64)
        if not 1 <= number <= MOST_VALUES or number != np.floor(number) or stddev < 0:
            raise WireError(f"moments: expected a count and a deviation >= 0, got {number:g} and {stddev:g}")
    for name in {"theta", "log_likelihoods"} & set(report.arrays):
        if "moments" not in report.arrays:
            raise WireError(f"{name}: expected with moments, got it alone")


def check_posterior(report: Report, setting: SharedPrior) -> None:
    """Raise WireError if a reported covariance or precision has a wrong size or a negative eigenvalue."""
    size = len(setting.pivots)
    if "precision" in report.arrays or "shift" in report.arrays:
        precision = unpack_lower(_sized(report, "precision", size * (size + 1) // 2), size)
        _check_definite("precision", precision)
        _sized(report, "shift", size)
    if "covariance" in report.arrays or "mean" in report.arrays:
        covariance = unpack_lower(_sized(report, "covariance", size * (size + 1) // 2), size)
        _check_definite("covariance", covariance)
        largest = float(covariance.diagonal().max())
        if largest > setting.hyperparameters.outputscale * (1.0 + NOT_DEFINITE):
            prior = setting.hyperparameters.outputscale
            raise WireError(
                f"covariance: expected variances up to the prior's {prior:g}, got {largest:g}", "covariance"
            )
        _sized(report, "mean", size)


def read_posterior(
    report: Report, setting: SharedPrior, space: SearchSpace, server_round: int
) -> WhitenedPosterior | None:
    """Return the posterior in a report, in whitened coordinates; None if the report has none."""
    size = len(setting.pivots)
    if "precision" in report.arrays:
        precision = unpack_lower(_sized(report, "precision", size * (size + 1) // 2), size)
        increment = Increment(precision, _sized(report, "shift", size))
        return WhitenedPosterior(setting.version, server_round, *pool([increment]), increment)
    if "covariance" not in report.arrays:
        return None
    covariance = unpack_lower(_sized(report, "covariance", size * (size + 1) // 2), size)
    factor = pivots_factor(setting, space)
    half = factor.solve_lower(covariance)
    whitened = factor.solve_lower(half.T)
    mean = factor.solve_lower(_sized(report, "mean", size))
    return WhitenedPosterior(setting.version, server_round, mean, 0.5 * (whitened + whitened.T))


def _sized(report: Report, name: str, size: int) -> Array:
    array = report.arrays.get(name)
    if array is None or array.shape != (size,):
        got = "none" if array is None else array.shape
        raise WireError(f"{name}: expected ({size},), got {got}", "shape")
    return np.asarray(array, dtype=np.float64)


def _check_definite(name: str, matrix: Array) -> None:
    """Raise WireError if a symmetric matrix has an eigenvalue clearly below 0 (tested by one Cholesky)."""
    largest = float(np.abs(matrix.diagonal()).max())
    try:
        np.linalg.cholesky(matrix + max(NOT_DEFINITE * largest, 1e-300) * np.eye(len(matrix)))
    except np.linalg.LinAlgError as error:
        lowest = float(np.linalg.eigvalsh(matrix)[0])
        raise WireError(
            f"{name}: expected positive semi-definite, got an eigenvalue of {lowest:.3g} "
            f"with entries up to {largest:.3g} on the diagonal",
            "covariance",
        ) from error


def pivots_factor(setting: SharedPrior, space: SearchSpace) -> Factor:
    """Return the Cholesky factor `L` of the prior covariance at the pivots."""
    h = setting.hyperparameters
    features = space.features(setting.pivots)
    return _factor(h.kernel, h.to_array().tobytes(), features.tobytes(), features.shape[1])


@lru_cache(maxsize=8)
def _factor(kernel: str, theta: bytes, pivots: bytes, num_features: int) -> Factor:
    points = np.frombuffer(pivots).reshape(-1, num_features)
    return pivot_factor(points, gp.Hyperparameters.from_array(kernel, np.frombuffer(theta)))
