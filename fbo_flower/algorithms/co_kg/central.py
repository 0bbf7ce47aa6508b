"""Co-KG on the server: the shared prior, the central model, the next points, the recommendation.

Notation as in `state.py`. The server uses coordinates `u = scale v (k,)`, in which the distance of two
functions equals their distance on the point set (`numerics.surrogates.pivots.principal`).

With `central = "auto"` the central model depends on the least Bayes factor of an agent for sharing the
objective of the others (`numerics.aggregation.agreement`): if it is large, the central model is the product;
if it is small, agents choose for themselves; between, as at the beginning, it is the barycenter.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms.co_kg.state import (
    CoKGOptions,
    CoKGState,
    Recommendation,
    SharedPrior,
    WarmUp,
    WhitenedPosterior,
)
from fbo_flower.algorithms.records import Array, IntArray, floats, natural_key
from fbo_flower.numerics.acquisition.joint_design import joint_design, own_gain
from fbo_flower.numerics.aggregation import agreement, bures
from fbo_flower.numerics.finite import standardised
from fbo_flower.numerics.linalg import cholesky, square_root
from fbo_flower.numerics.surrogates import gp, shared_hyperparameters
from fbo_flower.numerics.surrogates.pivots import Frame, Increment, choose_pivots, observe, pool, weighted
from fbo_flower.space.space import SearchSpace

Row = TypeVar("Row")
ENOUGH = 1.0  # log Bayes factor from which observations are pooled
SMALL = 1e-6  # beta_t with the pooled posterior: decides between designs that it values alike
AGAINST = -3.0  # log Bayes factor below which agents do not collaborate: 1 to 20


# -- the shared prior --------------------------------------------------------------------------------


def settle(
    options: CoKGOptions,
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
        moments = agreement.bounded_moments(moments) if robust else moments
        shift, scale, version = *agreement.pooled_units(moments), 1
    else:
        shift, scale, version = before.shift, before.scale, before.version + 1
    hyperparameters = fitted(options, [warm_ups[a] for a in agents], scale, space.dimension)
    return with_pivots(options, space, SharedPrior(version, hyperparameters, shift, scale), added)


def fitted(
    options: CoKGOptions, warm_ups: Sequence[WarmUp], scale: float, num_features: int
) -> gp.Hyperparameters:
    """Return the shared hyperparameters; `warm_ups` are one per agent, or one with the sums over all."""
    return shared_hyperparameters.shared(
        [w.theta for w in warm_ups if w.theta is not None],
        [w.log_likelihoods for w in warm_ups if w.log_likelihoods is not None],
        options.kernel,
        num_features,
        scale,
        noise_variance=options.noise_variance,
        noise_floor=options.noise_floor,
        robust=options.weights == "reliability",
    )


def with_pivots(
    options: CoKGOptions, space: SearchSpace, setting: SharedPrior, added: Array | None
) -> SharedPrior:
    """Return the shared prior with pivots picked from the point set and the added points `(K, D)`."""
    points = options.points(space, added)
    pivots = choose_pivots(space.features(points), setting.hyperparameters, options.rank_cut)
    return replace(setting, pivots=points[pivots.index])


# -- the point set in the coordinates of a shared prior --------------------------------------------


def frame(options: CoKGOptions, space: SearchSpace, setting: SharedPrior, added: Array | None) -> Frame:
    """Return the point set in the coordinates of a shared prior, with `added (K, D)` appended."""
    if options.central != "barycenter" and added is not None:  # which may be pivots, too
        return setting.frame(options, space, added)
    base = setting.frame(options, space, chosen=True)
    if added is None:
        return base
    features = space.features(added), space.features(setting.pivots)
    return base.extended(added, *features, setting.hyperparameters)


# -- the central model -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Central:
    """The model of all agents on the point set."""

    mean: Array  # `(S,)`
    factor: Array  # `(S, k)`, the covariance is `factor factor^T`
    # `(k, k)`, the barycenter's covariance in the coordinates `u`; None for a product
    inner: Array | None = None


def central_barycenter(
    options: CoKGOptions,
    frame: Frame,
    posteriors: Sequence[WhitenedPosterior],
    weights: Array,
    start: Array | None,
) -> Central:
    """Return the 2-Wasserstein barycenter of the agents' posteriors [Zhan2025, Eqs. 5 and 8].

    Parameters
    ----------
    weights : `(N,)`, summing to 1
    start : the barycenter of the last round, from which the fixed-point iteration starts
    """
    covariances = np.array([frame.scale @ p.covariance @ frame.scale.T for p in posteriors])  # of u
    if start is not None and start.shape != covariances.shape[1:]:
        start = None
    found = bures.barycenter(
        covariances, weights, options.tolerance, start=start, rank_cut=options.rank_cut
    ).covariance  # Eq. 8
    mean = weights @ np.array([posterior.mean for posterior in posteriors])
    return Central(frame.basis @ mean, frame.lift @ square_root(found), found)


def agent_weights(options: CoKGOptions, frame: Frame, posteriors: Sequence[WhitenedPosterior]) -> Array:
    """Return the weight of each agent in the central model, `(N,)`, summing to 1."""
    if options.weights == "uniform":
        return np.full(len(posteriors), 1.0 / len(posteriors))
    means = np.array([frame.scale @ p.mean for p in posteriors])
    return bures.reliability(
        means, np.array([frame.scale @ p.covariance @ frame.scale.T for p in posteriors])
    )


def central_product(frame: Frame, increments: Sequence[Increment]) -> Central:
    """Return the posterior given all observations that the increments summarise."""
    mean, covariance = pool(increments)
    return Central(frame.basis @ mean, frame.basis @ cholesky(covariance).lower)


def pools(options: CoKGOptions, state: CoKGState) -> bool:
    """Return whether the central model pools the observations of all agents."""
    if options.framework == "data-communication" or options.central == "product":
        return True
    return options.central == "auto" and bool(state.evidence) and state.evidence[-1][1] > ENOUGH


def disagree(options: CoKGOptions, state: CoKGState) -> bool:
    """Return whether agents have different objectives, so that each chooses for itself."""
    return options.central == "auto" and bool(state.evidence) and state.evidence[-1][1] < AGAINST


def central_model(options: CoKGOptions, state: CoKGState, frame: Frame) -> Central:
    """Return the central model: barycenter [Zhan2025, Eqs. 5 and 8], product, or one of all trials."""
    assert state.setting is not None
    if options.framework == "data-communication":  # what the disclosed trials add to the prior
        pivots, theta = state.space.features(state.setting.pivots), state.setting.hyperparameters
        total = observe(np.empty((0, pivots.shape[1])), np.empty(0), pivots, theta)
        for agent in sorted(state.histories, key=natural_key):
            points, values = state.histories[agent].observed()
            y = standardised(options.transformed(values), state.setting.shift, state.setting.scale)
            total += observe(state.space.features(points), y, pivots, theta)
        return central_product(frame, [total])
    known = state.known(options.stale)
    posteriors = [known[agent] for agent in sorted(known, key=natural_key)]
    weights = agent_weights(options, frame, posteriors)
    if pools(options, state):
        increments = [posterior.increment for posterior in posteriors if posterior.increment is not None]
        return central_product(frame, weighted(increments, weights))
    return central_barycenter(options, frame, posteriors, weights, state.start)


# -- the next points ---------------------------------------------------------------------------------


def next_points(
    options: CoKGOptions, state: CoKGState, server_round: int, present: Sequence[str], rng: Generator
) -> tuple[CoKGState, dict[str, Array]]:
    """Choose a point for every agent whose posterior is known [Zhan2025, Alg. 1, lines 4-6]."""
    setting = state.setting
    if setting is None or options.framework == "no-collaboration":
        return state, {}
    known = state.known(options.stale)
    agents = [a for a in present if a in known]
    if options.framework == "data-communication":
        agents = [a for a in present if state.progress.of(a) > 0] if state.histories else []
    if not agents or disagree(options, state):
        return state, {}
    due = (server_round - state.settled) // options.refine_every
    if options.refinement and due > state.renewals and state.recommended:
        around = options.around(state.space, state.recommended[-1].point, due - 1)
        state = replace(state, refined=around, renewals=due)
    points, pending = _with_pending(options, state, setting)
    central = central_model(options, state, points)  # Alg. 1, line 5
    noise = setting.hyperparameters.noise_variance
    beta = options.weight(server_round - state.settled + 1)  # beta_t of Eq. 6
    if options.central == "auto" and pools(options, state):
        beta = min(beta, SMALL)  # the pooled posterior knows all that the agents know
    kind, draws, starts = options.acquisition, options.num_draws, options.num_starts
    own = np.zeros((len(agents), len(points.points)))
    for row, agent in enumerate(agents):
        if beta > 0.0:  # the agent's own acquisition, Eq. 4
            factor = points.basis @ cholesky(known[agent].covariance).lower
            own[row] = own_gain(kind, points.basis @ known[agent].mean, factor, noise, draws, rng)
    mean, factor = central.mean, central.factor  # Alg. 1, line 6: argmax of Eq. 6
    index = joint_design(
        kind, mean, factor, own, beta, noise, rng, pending, num_draws=draws, num_starts=starts
    )
    design = {agent: points.points[i] for agent, i in zip(agents, index, strict=True)}
    return replace(state, start=central.inner), design


def _with_pending(options: CoKGOptions, state: CoKGState, setting: SharedPrior) -> tuple[Frame, IntArray]:
    """Return the point set, and the indices in it of the points that agents are evaluating, `(P,)`.

    A point that has left the set, because the added points were renewed, is added to it.
    """
    found = frame(options, state.space, setting, state.refined)
    tasks = sorted((state.under_way or {}).items())
    points = [floats(task.arrays["point"]) for _, task in tasks if "point" in task.arrays]
    missing = [p for p in points if not (found.points == p).all(axis=1).any()]
    if missing:
        kept = [] if state.refined is None else [state.refined]
        added = np.concatenate([*kept, np.unique(missing, axis=0)])
        found = frame(options, state.space, setting, added)
    index = [int((found.points == p).all(axis=1).argmax()) for p in points]
    return found, np.array(index, dtype=np.int64)


# -- after a round -----------------------------------------------------------------------------------


def compare(options: CoKGOptions, state: CoKGState) -> CoKGState:
    """Test whether agents share one objective; only those that report increments are compared.

    The least Bayes factor, which "auto" needs, is computed in every round, the test that names the agent that
    differs whenever the number of rounds has doubled.
    """
    known = state.known(options.stale)
    found = {a: i for a in sorted(known, key=natural_key) if (i := known[a].increment) is not None}
    if options.central == "barycenter" or len(found) < 2:
        return state
    number, increments = state.round, list(found.values())
    if options.central == "auto":
        least = float(agreement.log_bayes_factors(increments).min())
        state = replace(state, evidence=(*_before(state, state.evidence), (number, least)))
    if number & (number - 1):
        return state
    p_values = dict(zip(found, agreement.agreement(increments).p_value.tolist(), strict=True))
    return replace(state, agreement=(*_before(state, state.agreement), (number, p_values)))


def recommend(options: CoKGOptions, state: CoKGState) -> CoKGState:
    """Append the point that the server would return after this round [Zhan2025, Alg. 1, line 11]."""
    best: Recommendation | None = None
    known = state.known(options.stale)
    if state.setting is None:
        return state
    if options.framework == "no-collaboration":
        if state.finished:
            agent = max(sorted(state.finished, key=natural_key), key=lambda a: state.finished[a][1])
            best = Recommendation(state.round, agent, *state.finished[agent])
    elif known or state.histories:
        grid = frame(options, state.space, state.setting, state.refined)
        if pools(options, state):
            mean = central_model(options, state, grid).mean
            place = int(np.argmax(mean))
            best = Recommendation(state.round, "", grid.points[place], float(mean[place]))
        else:
            posteriors = [known[agent] for agent in sorted(known, key=natural_key)]
            weights = agent_weights(options, grid, posteriors)
            best = best_of_agents(grid, known, state.round, weights)
    if best is None:
        return state
    before = (r for r in state.recommended if r.round != state.round)
    return replace(state, recommended=(*before, best))


def recommend_without_asking(
    options: CoKGOptions, state: CoKGState, asked: Container[str]
) -> dict[str, tuple[Array, float]]:
    """Return point and value to recommend to the agents that still work when a study without a barrier ends.

    Nobody waits for them: the server uses what it last heard of each.
    """
    assert state.setting is not None
    found = dict(state.finished)
    if state.recommended and not state.recommended[-1].agent:
        last = state.recommended[-1]
        found |= dict.fromkeys(state.progress.next_trial, (last.point, last.value))
    else:
        grid = frame(options, state.space, state.setting, state.refined)
        for agent, posterior in state.known("keep").items():
            best = best_of_agents(grid, {agent: posterior}, state.round)
            found[agent] = best.point, best.value
    return {agent: best for agent, best in found.items() if agent not in asked}


def _before(state: CoKGState, rows: tuple[tuple[int, Row], ...]) -> tuple[tuple[int, Row], ...]:
    """Return the rows of earlier rounds: without a barrier, later answers of a round replace its row."""
    return tuple(row for row in rows if row[0] != state.round)


def best_of_agents(
    frame: Frame, posteriors: Mapping[str, WhitenedPosterior], server_round: int, weights: Array | None = None
) -> Recommendation:
    """Return the largest maximum of the agents' posterior means [Zhan2025, Alg. 1, lines 10-11].

    Parameters
    ----------
    weights : `(N,)`, weights of the agents in natural order; agents with less than half of an equal share
        are left out. None: no agent is left out
    """
    agents = sorted(posteriors, key=natural_key)
    if weights is not None:
        agents = [a for a, w in zip(agents, weights, strict=True) if w >= 0.5 / len(weights)]
    means = np.array([frame.basis @ posteriors[agent].mean for agent in agents])
    row, column = np.unravel_index(int(np.argmax(means)), means.shape)
    return Recommendation(server_round, agents[row], frame.points[column], float(means[row, column]))
