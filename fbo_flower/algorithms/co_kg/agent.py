"""Co-KG on the agent: its warm-up, its posterior at the pivots, its own knowledge gradient.

Notation as in `state.py`; `x (n, F)`, `y (n,)` are an agent's observations as features and standardised
values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from fbo_flower.algorithms.co_kg.acquisition import own_gain
from fbo_flower.algorithms.co_kg.hyperparameters import own_likelihoods
from fbo_flower.algorithms.co_kg.options import CoKGOptions
from fbo_flower.algorithms.co_kg.state import SharedPrior, pack_lower
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Query, Task
from fbo_flower.errors import NumericalError
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.pivots import pivot_factor, prior_covariance
from fbo_flower.numerics.surrogates.pooling import observe, pool
from fbo_flower.space.space import SearchSpace

State = TypeVar("State")


# -- observations --------------------------------------------------------------------------------


def observations(
    options: CoKGOptions[State], agent_state: AgentState, setting: SharedPrior
) -> tuple[Array, Array]:
    """Return features `(n, F)` and values `(n,)` in the shared units; a failed trial counts as the worst."""
    points, values = agent_state.history.observed()
    transformed = options.transformed(values)
    return agent_state.space.features(points), (transformed - setting.shift) / setting.scale


def moments(values: Array) -> Array:
    """Return number, mean and standard deviation `(3,)`, without overflow or underflow on the way."""
    largest = float(np.max(np.abs(values), initial=0.0))
    exponent = int(np.frexp(largest)[1])
    small = np.ldexp(values, -exponent)
    spread = float(small.std())
    if spread <= 1e-12 * float(np.max(np.abs(small), initial=0.0)):
        spread = 0.0
    return np.array([len(values), np.ldexp(small.mean(), exponent), np.ldexp(spread, exponent)])


# -- proposals -------------------------------------------------------------------------------------


def propose(
    options: CoKGOptions[State], task: Task, agent_state: AgentState, rng: np.random.Generator
) -> Query | None:
    """Return the warm-up as one batch; later the server's point, or without one the agent's own choice."""
    trial = agent_state.next_trial
    if trial >= task.end:
        return None
    space = agent_state.space
    setting = SharedPrior.read(task.arrays, options.kernel)
    if "point" in task.arrays and trial == task.trial:
        return Query(space.snap(np.asarray(task.arrays["point"], dtype=np.float64)[np.newaxis]))
    if setting is None or trial < options.num_initial:
        return Query(space.snap(first_points(options, task.end - trial, space.dimension, rng)))
    return Query(own_choice(options, agent_state, setting, rng)[np.newaxis])


def first_points(
    options: CoKGOptions[State], num_points: int, dimension: int, rng: np.random.Generator
) -> Array:
    """Return the points of the warm-up, `(n, D)`: Sobol points, the first of which are repeated at the end.

    At least three points differ: two values could be computed from their mean and standard deviation.
    """
    num_repeated = max(min(options.num_repeated, num_points - 3, num_points // 2), 0)
    points = sobol(num_points - num_repeated, dimension, rng)
    return np.concatenate([points, points[:num_repeated]])


def own_choice(
    options: CoKGOptions[State], agent_state: AgentState, setting: SharedPrior, rng: np.random.Generator
) -> Array:
    """Return the point `(D,)` with the largest acquisition value under the agent's own posterior [Eq. 4]."""
    points, basis, pivots = _frame(options, agent_state.space, _key(setting))
    x, y = observations(options, agent_state, setting)
    mean, covariance = pool([observe(x, y, pivots, setting.hyperparameters)])
    factor = basis @ cholesky(covariance).lower
    gain = own_gain(options, basis @ mean, factor, setting.hyperparameters.noise_variance, rng)
    best: Array = points[int(np.argmax(gain))]
    return best


def best_of_set(
    options: CoKGOptions[State], agent_state: AgentState, setting: SharedPrior, added: Array | None = None
) -> tuple[int, Array, float]:
    """Return index, point `(D,)` and value of the maximum of the agent's posterior mean on the point set.

    Parameters
    ----------
    added : `(K, D)`, points that the server appended to the point set
    """
    points = options.points(agent_state.space)
    if added is not None:
        points = np.concatenate([points, added])
    x, y = observations(options, agent_state, setting)
    mean = gp.posterior(x, y, setting.hyperparameters).mean(agent_state.space.features(points))
    best = int(np.argmax(mean))
    return best, points[best], float(mean[best])


# -- reports ---------------------------------------------------------------------------------------


def warm_up(
    options: CoKGOptions[State],
    agent_state: AgentState,
    setting: SharedPrior | None,
    rng: np.random.Generator,
) -> dict[str, AnyArray]:
    """Return moments of the agent's values and log likelihoods of the grid.

    Return nothing before successes at three points: from mean and standard deviation of two values the server
    could compute both values. The likelihoods are those of values in the shared units, or before these are
    known in units of the agent's own.
    """
    history = agent_state.history
    if len(np.unique(history.points[np.isfinite(history.values)], axis=0)) < 3:
        return {}
    points, values = agent_state.history.observed()
    own = moments(options.transformed(values))
    if not np.isfinite(own).all() or own[2] <= 0.0:
        return {"moments": own} if np.isfinite(own).all() else {}
    shift, scale = own[1:] if setting is None else (setting.shift, setting.scale)
    y = (options.transformed(values) - shift) / scale
    x = agent_state.space.features(points)
    return {"moments": own, **own_likelihoods(options, x, y, scale, rng)}


def posterior(
    options: CoKGOptions[State], agent_state: AgentState, setting: SharedPrior, rng: np.random.Generator
) -> dict[str, AnyArray]:
    """Return mean `(r,)` and packed covariance at the pivots [Zhan2025, Eq. 3].

    With `central = "product"` or "auto" return instead the precision and shift that the observations add to
    the prior.
    `mean_noise_stddev` adds noise: a scaled draw from the prior, `L e`, to the mean, or `(I + Lambda) e` to
    the shift.
    """
    pivots = agent_state.space.features(setting.pivots)
    x, y = observations(options, agent_state, setting)
    noise = np.zeros(len(pivots))
    if options.mean_noise_stddev > 0.0:
        noise = options.mean_noise_stddev * rng.standard_normal(len(pivots))
    if options.central != "barycenter":
        increment = observe(x, y, pivots, setting.hyperparameters)
        shift = increment.shift + noise + increment.precision @ noise
        return {"precision": pack_lower(increment.precision), "shift": shift}
    process = gp.posterior(x, y, setting.hyperparameters)
    mean = process.mean(pivots)
    if options.mean_noise_stddev > 0.0:
        mean = mean + pivot_factor(pivots, setting.hyperparameters).lower @ noise
    return {"mean": mean, "covariance": pack_lower(process.covariance(pivots))}


def disclosed_trials(task: Task, agent_state: AgentState) -> dict[str, AnyArray]:
    """Return points and values of this task, NaN for a failed trial.

    The first task's trials include those from before the study.
    """
    history = agent_state.history
    rows = (history.trials < task.end) & ((history.trials >= task.trial) | (task.trial == 0))
    return {"points": history.points[rows], "values": history.values[rows]}


# -- the point set in the coordinates of a shared prior --------------------------------------------


@dataclass(frozen=True)
class _Key:
    """Hyperparameters and pivots as bytes: the key under which `_frame` is cached."""

    theta: bytes
    pivots: bytes


def _key(setting: SharedPrior) -> _Key:
    return _Key(setting.hyperparameters.to_array().tobytes(), setting.pivots.tobytes())


@lru_cache(maxsize=4)
def _frame(options: CoKGOptions[State], space: SearchSpace, key: _Key) -> tuple[Array, Array, Array]:
    """Return the point set `(S, D)`, its basis `(S, r)` and the pivots' features `(r, F)`."""
    hyperparameters = gp.Hyperparameters.from_array(options.kernel, np.frombuffer(key.theta))
    pivots = space.features(np.frombuffer(key.pivots).reshape(-1, space.dimension))
    points = options.points(space)
    return points, extend(space.features(points), pivots, hyperparameters), pivots


def extend(features: Array, pivots: Array, hyperparameters: gp.Hyperparameters) -> Array:
    """Return `basis (S, r)` of any points `(S, F)`, `k(X, P) L^-T`."""
    factor = pivot_factor(pivots, hyperparameters)
    if factor.jitter > 0.0:
        raise NumericalError(
            f"pivots: expected {len(pivots)} points with a positive definite prior covariance, got equal or "
            "nearly equal points; try a larger rank_cut"
        )
    return np.ascontiguousarray(factor.solve_lower(prior_covariance(pivots, features, hyperparameters)).T)
