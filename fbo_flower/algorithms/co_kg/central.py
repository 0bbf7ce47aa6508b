"""Co-KG on the server: the central model, the agents' own acquisition values, the recommendation.

Notation as in `state.py`. The server uses coordinates `u = scale v (k,)`, in which the distance of two
functions equals their distance on the point set (`numerics.surrogates.pivots.principal`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from fbo_flower.algorithms.co_kg.acquisition import own_gain
from fbo_flower.algorithms.co_kg.agent import extend
from fbo_flower.algorithms.co_kg.options import CoKGOptions
from fbo_flower.algorithms.co_kg.state import Recommendation, SharedPrior, WhitenedPosterior
from fbo_flower.algorithms.records import Array, History, natural_key
from fbo_flower.numerics.aggregation import bures
from fbo_flower.numerics.aggregation.agreement import agreement
from fbo_flower.numerics.aggregation.evidence import log_bayes_factors
from fbo_flower.numerics.aggregation.reliability import reliability
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.pivots import choose_pivots, principal, principal_of
from fbo_flower.numerics.surrogates.pooling import Increment, observe, pool
from fbo_flower.space.space import SearchSpace

State = TypeVar("State")


@dataclass(frozen=True)
class Frame:
    """The point set in the coordinates of a shared prior, with the points that were added to it.

    Attributes
    ----------
    points : `(S, D)`
    basis : `(S, r)`; the function's values at the points are `basis v`
    lift : `(S, k)`; they are also `lift u`
    scale : `(k, r)`, `u = scale v`
    """

    points: Array
    basis: Array
    lift: Array
    scale: Array


@lru_cache(maxsize=8)
def _base(options: CoKGOptions[State], space: SearchSpace, theta: bytes) -> Frame:
    hyperparameters = gp.Hyperparameters.from_array(options.kernel, np.frombuffer(theta))
    points = options.points(space)
    pivots = choose_pivots(space.features(points), hyperparameters, options.rank_cut)
    inner = principal(pivots, options.rank_cut)
    return Frame(points, pivots.basis, inner.directions, inner.scale)


def frame(
    options: CoKGOptions[State], space: SearchSpace, setting: SharedPrior, added: Array | None
) -> Frame:
    """Return the point set in the coordinates of a shared prior, with `added (K, D)` appended."""
    theta = setting.hyperparameters.to_array().tobytes()
    if options.central != "barycenter" and added is not None:
        return _whole(options, space, theta, setting.pivots.tobytes(), added.tobytes())
    base = _base(options, space, theta)
    if added is None:
        return base
    pivots = space.features(setting.pivots)
    rows = extend(space.features(added), pivots, setting.hyperparameters)
    back = np.linalg.pinv(base.scale)  # (r, k)
    points = np.concatenate([base.points, added])
    return Frame(points, np.vstack([base.basis, rows]), np.vstack([base.lift, rows @ back]), base.scale)


@lru_cache(maxsize=4)
def _whole(
    options: CoKGOptions[State], space: SearchSpace, theta: bytes, pivots: bytes, added: bytes
) -> Frame:
    """Return the frame of the point set with the added points, for pivots that may be among these."""
    hyperparameters = gp.Hyperparameters.from_array(options.kernel, np.frombuffer(theta))
    picked, more = (np.frombuffer(b).reshape(-1, space.dimension) for b in (pivots, added))
    points = np.concatenate([options.points(space), more])
    basis = extend(space.features(points), space.features(picked), hyperparameters)
    inner = principal_of(basis, options.rank_cut)
    return Frame(points, basis, inner.directions, inner.scale)


# -- the central model -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Central:
    """The model of all agents on the point set.

    Attributes
    ----------
    mean : `(S,)`
    factor : `(S, k)`, the covariance is `factor factor^T`
    inner : `(k, k)`, the barycenter's covariance in the coordinates `u`; None for a product
    """

    mean: Array
    factor: Array
    inner: Array | None = None


def central_barycenter(
    options: CoKGOptions[State],
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
    covariances = np.array(
        [frame.scale @ posterior.covariance @ frame.scale.T for posterior in posteriors]
    )  # of u
    if start is not None and start.shape != covariances.shape[1:]:
        start = None
    found = bures.barycenter(
        covariances, weights, options.tolerance, start=start, rank_cut=options.rank_cut
    ).covariance  # Eq. 8
    mean = weights @ np.array([posterior.mean for posterior in posteriors])
    return Central(frame.basis @ mean, frame.lift @ square_root(found), found)


def agent_weights(
    options: CoKGOptions[State], frame: Frame, posteriors: Sequence[WhitenedPosterior]
) -> Array:
    """Return the weight of each agent in the central model, `(N,)`, summing to 1."""
    if options.weights == "uniform":
        return np.full(len(posteriors), 1.0 / len(posteriors))
    means = np.array([frame.scale @ posterior.mean for posterior in posteriors])
    return reliability(
        means, np.array([frame.scale @ posterior.covariance @ frame.scale.T for posterior in posteriors])
    )


def agreement_of(posteriors: Mapping[str, WhitenedPosterior]) -> dict[str, float]:
    """Return a p-value per agent for the hypothesis that it shares the other agents' objective.

    Only agents that report increments are tested; with fewer than two of them the result is empty.
    """
    agents = sorted((a for a, b in posteriors.items() if b.increment is not None), key=natural_key)
    if len(agents) < 2:
        return {}
    increments = [i for a in agents if (i := posteriors[a].increment) is not None]
    return dict(zip(agents, agreement(increments).p_value.tolist(), strict=True))


def evidence_of(posteriors: Mapping[str, WhitenedPosterior]) -> float | None:
    """Return the least log Bayes factor of an agent for sharing the others' objective; None for one agent."""
    agents = sorted(posteriors, key=natural_key)
    increments = [i for a in agents if (i := posteriors[a].increment) is not None]
    return float(log_bayes_factors(increments).min()) if len(increments) > 1 else None


def central_product(frame: Frame, increments: Sequence[Increment]) -> Central:
    """Return the posterior given all observations that the increments summarise."""
    mean, covariance = pool(increments)
    return Central(frame.basis @ mean, frame.basis @ cholesky(covariance).lower)


def square_root(covariance: Array) -> Array:
    """Return `B (k, j)` with `B B^T` equal to the covariance, without directions of zero variance."""
    eigenvalues, vectors = np.linalg.eigh(covariance)
    keep = eigenvalues > 1e-12 * max(float(eigenvalues[-1]), 0.0)
    root: Array = vectors[:, keep] * np.sqrt(eigenvalues[keep])
    return root


def weighted(increments: Sequence[Increment], weights: Array) -> list[Increment]:
    """Return the increments multiplied by `N w_n`, which leaves them unchanged for uniform weights."""
    shares = len(weights) * weights
    return [
        Increment(share * i.precision, share * i.shift) for share, i in zip(shares, increments, strict=True)
    ]


def increment_of(
    options: CoKGOptions[State], space: SearchSpace, setting: SharedPrior, histories: Sequence[History]
) -> Increment:
    """Return the precision and shift that disclosed trials add to the prior."""
    pivots = space.features(setting.pivots)
    total = observe(np.empty((0, pivots.shape[1])), np.empty(0), pivots, setting.hyperparameters)
    for history in histories:
        points, values = history.observed()
        y = (options.transformed(values) - setting.shift) / setting.scale
        total += observe(space.features(points), y, pivots, setting.hyperparameters)
    return total


# -- decisions ---------------------------------------------------------------------------------------


def own_gains(
    options: CoKGOptions[State],
    frame: Frame,
    posteriors: Sequence[WhitenedPosterior],
    noise_variance: float,
    rng: np.random.Generator,
) -> Array:
    """Return each agent's own acquisition value at every point, `(N, S)` [Zhan2025, Eq. 4]."""
    return np.array(
        [
            own_gain(
                options,
                frame.basis @ posterior.mean,
                frame.basis @ cholesky(posterior.covariance).lower,
                noise_variance,
                rng,
            )
            for posterior in posteriors
        ]
    )


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


def best_of_central(frame: Frame, mean: Array, server_round: int) -> Recommendation:
    """Return the maximum of the central model's mean `(S,)`."""
    best = int(np.argmax(mean))
    return Recommendation(server_round, "", frame.points[best], float(mean[best]))
