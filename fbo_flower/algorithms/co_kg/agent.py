"""Co-KG on an agent: its warm-up, its posterior at the pivots, its own knowledge gradient.

Notation as in `state.py`; `x (n, F)`, `y (n,)` are an agent's observations as features and standardised
values.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.algorithms.co_kg.state import CoKGOptions, Found, SharedPrior, WarmUp
from fbo_flower.algorithms.records import AgentState, Array, Task, Trials
from fbo_flower.numerics.acquisition.feature_models import pack_symmetric
from fbo_flower.numerics.acquisition.joint_design import own_gain
from fbo_flower.numerics.aggregation.agreement import moments
from fbo_flower.numerics.finite import standardised
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.surrogates import gp, shared_hyperparameters
from fbo_flower.numerics.surrogates.pivots import observe, pivot_factor, pool

# -- observations --------------------------------------------------------------------------------


def observations(options: CoKGOptions, agent_state: AgentState, setting: SharedPrior) -> tuple[Array, Array]:
    """Return features `(n, F)` and values `(n,)` in the shared units; a failed trial counts as the worst."""
    points, values = agent_state.history.observed()
    transformed = options.transformed(values)
    return agent_state.space.features(points), standardised(transformed, setting.shift, setting.scale)


# -- proposals -------------------------------------------------------------------------------------


def propose(
    options: CoKGOptions, task: Task, agent_state: AgentState, rng: np.random.Generator
) -> Trials | None:
    """Return the warm-up as one batch; later the server's point, or without one the agent's own choice."""
    trial = agent_state.next_trial
    if trial >= task.end:
        return None
    space = agent_state.space
    setting = SharedPrior.read(task.arrays, options.kernel)
    if "point" in task.arrays and trial == task.trial:
        return Trials(space.snap(np.asarray(task.arrays["point"], dtype=np.float64)[np.newaxis]))
    if setting is None or trial < options.num_initial:
        return Trials(space.snap(first_points(options, task.end - trial, space.dimension, rng)))
    return Trials(own_choice(options, agent_state, setting, rng)[np.newaxis])


def first_points(options: CoKGOptions, num_points: int, dimension: int, rng: np.random.Generator) -> Array:
    """Return the points of the warm-up, `(n, D)`: Sobol points, the first of which are repeated at the end.

    At least three points differ: two values could be computed from their mean and standard deviation.
    """
    num_repeated = max(min(options.num_repeated, num_points - 3, num_points // 2), 0)
    points = sobol(num_points - num_repeated, dimension, rng)
    return np.concatenate([points, points[:num_repeated]])


def own_choice(
    options: CoKGOptions, agent_state: AgentState, setting: SharedPrior, rng: np.random.Generator
) -> Array:
    """Return the point `(D,)` with the largest acquisition value under the agent's own posterior [Eq. 4]."""
    frame, pivots = setting.frame(options, agent_state.space), agent_state.space.features(setting.pivots)
    x, y = observations(options, agent_state, setting)
    mean, covariance = pool([observe(x, y, pivots, setting.hyperparameters)])
    factor = frame.basis @ cholesky(covariance).lower
    noise = setting.hyperparameters.noise_variance
    gain = own_gain(options.acquisition, frame.basis @ mean, factor, noise, options.num_draws, rng)
    best: Array = frame.points[int(np.argmax(gain))]
    return best


def best_of_set(
    options: CoKGOptions, agent_state: AgentState, setting: SharedPrior, added: Array | None = None
) -> tuple[int, Array, float]:
    """Return index, point `(D,)` and value of the maximum of the agent's posterior mean on the point set.

    Parameters
    ----------
    added : `(K, D)`, points that the server appended to the point set
    """
    points = options.points(agent_state.space, added)
    mean = means_at(options, agent_state, setting, points)
    best = int(np.argmax(mean))
    return best, points[best], float(mean[best])


def means_at(options: CoKGOptions, agent_state: AgentState, setting: SharedPrior, points: Array) -> Array:
    """Return the agent's posterior mean `(n,)` at points `(n, D)`."""
    x, y = observations(options, agent_state, setting)
    return gp.posterior(x, y, setting.hyperparameters).mean(agent_state.space.features(points))


# -- reports ---------------------------------------------------------------------------------------


def warm_up(options: CoKGOptions, agent_state: AgentState, setting: SharedPrior | None) -> WarmUp | None:
    """Return moments of the agent's values and log likelihoods of the grid.

    Return None before successes at three points: from mean and standard deviation of two values the server
    could compute both values. The likelihoods are those of values in the shared units, or before these are
    known in units of the agent's own.
    """
    history = agent_state.history
    if len(np.unique(history.points[np.isfinite(history.values)], axis=0)) < 3:
        return None
    points, values = history.observed()
    own = moments(options.transformed(values))
    if not np.isfinite(own).all():
        return None
    if own[2] <= 0.0:
        return WarmUp(own)
    shift, scale = own[1:] if setting is None else (setting.shift, setting.scale)
    y = standardised(options.transformed(values), shift, scale)
    x = agent_state.space.features(points)
    log_likelihoods, theta = shared_hyperparameters.own(
        x, y, options.kernel, scale, isotropic=options.isotropic
    )
    return WarmUp(own, theta, log_likelihoods)


def posterior(
    options: CoKGOptions, agent_state: AgentState, setting: SharedPrior, rng: np.random.Generator
) -> Found:
    """Return mean `(r,)` and packed covariance at the pivots [Zhan2025, Eq. 3].

    With `central = "product"` or "auto" return instead the precision and shift that the observations add to
    the prior. `mean_noise_stddev` adds noise: a scaled draw from the prior, `L e`, to the mean, or
    `(I + Lambda) e` to the shift.
    """
    pivots = agent_state.space.features(setting.pivots)
    x, y = observations(options, agent_state, setting)
    noise = np.zeros(len(pivots))
    if options.mean_noise_stddev > 0.0:
        noise = options.mean_noise_stddev * rng.standard_normal(len(pivots))
    if options.central != "barycenter":
        increment = observe(x, y, pivots, setting.hyperparameters)
        shift = increment.shift + noise + increment.precision @ noise
        return Found(precision=pack_symmetric(increment.precision), shift=shift)
    process = gp.posterior(x, y, setting.hyperparameters)
    mean = process.mean(pivots)
    if options.mean_noise_stddev > 0.0:
        mean = mean + pivot_factor(pivots, setting.hyperparameters).lower @ noise
    return Found(mean=mean, covariance=pack_symmetric(process.covariance(pivots)))


def disclosed_trials(task: Task, agent_state: AgentState) -> tuple[Array, Array]:
    """Return points and values of this task, NaN for a failed trial.

    The first task's trials include those from before the study.
    """
    history = agent_state.history
    rows = (history.trials < task.end) & ((history.trials >= task.trial) | (task.trial == 0))
    return history.points[rows], history.values[rows]
