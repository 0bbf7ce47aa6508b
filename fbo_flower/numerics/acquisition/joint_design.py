"""Acquisition values of one agent, and of all agents jointly: KG, EI or ES [Zhan2025, Eqs. 4, 6 and 7].

[Zhan2025] Zhan et al. Collaborative Bayesian optimization via Wasserstein barycenters, 2025.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.numerics.acquisition.batch import FEW, NONE_PENDING, BatchAcquisition, maximise_batch
from fbo_flower.numerics.acquisition.entropy_search import (
    BatchMaxValueEntropy,
    max_value_entropy,
    sample_maxima,
)
from fbo_flower.numerics.acquisition.expected_improvement import (
    BatchExpectedImprovement,
    centred_draws,
    expected_improvement,
)
from fbo_flower.numerics.acquisition.knowledge_gradient import (
    BatchKnowledgeGradient,
    knowledge_gradient_from_factor,
)
from fbo_flower.numerics.arrays import Array, IntArray


def own_gain(
    kind: str, mean: Array, factor: Array, noise_variance: float, num_draws: int, rng: np.random.Generator
) -> Array:
    """Return the acquisition value of every point under one posterior, `(S,)` [Zhan2025, Eq. 4 for KG].

    Parameters
    ----------
    kind : "kg", "ei" or "es"
    mean : `(S,)`
    factor : `(S, r)`, the covariance is `factor factor^T`
    num_draws, rng : for "es", which draws maxima
    """
    if kind == "kg":
        return knowledge_gradient_from_factor(mean, factor, noise_variance)
    variance = np.einsum("sr,sr->s", factor, factor)
    if kind == "ei":
        return expected_improvement(mean, variance, float(mean.max()))
    maxima = sample_maxima(mean, factor, num_draws, rng)
    return max_value_entropy(mean, variance, noise_variance, maxima)


def joint_design(
    kind: str,
    mean: Array,
    factor: Array,
    own: Array,
    beta: float,
    noise_variance: float,
    rng: np.random.Generator,
    pending: IntArray = NONE_PENDING,
    *,
    num_draws: int = 64,
    num_starts: int | None = None,
) -> IntArray:
    """Return the joint design that maximises Eq. 6: for each agent an index into the point set, `(N,)`.

    Without a barrier some agents are at work. Their entries of the batch in Eq. 6 are given, and the others
    are chosen.

    Parameters
    ----------
    mean, factor : of the central model, `(S,)` and `(S, k)`
    own : `(N, S)`, each agent's own acquisition value at every point
    beta : `beta_t`, weight of `own`
    pending : `(P,)`, indices of the points under way
    num_draws : `M` of Eq. 9, normal draws per evaluation
    num_starts : starts of the maximisation; None: 1 if `beta >= 1` or with more than 8 agents, else 3
    """
    acquisition: BatchAcquisition
    num_points = len(pending) + len(own)
    if kind == "es":
        maxima = sample_maxima(mean, factor, num_draws, rng)
        acquisition = BatchMaxValueEntropy(mean, factor, noise_variance, maxima, num_points)
    else:
        draws = centred_draws(num_draws, num_points, rng)
        if kind == "ei":
            acquisition = BatchExpectedImprovement(mean, factor, float(mean.max()), draws)
        else:
            acquisition = BatchKnowledgeGradient(mean, factor, noise_variance, draws)  # Eqs. 7 and 9
    num_starts = num_starts or (1 if beta >= 1.0 or len(own) > FEW else 3)
    return maximise_batch(acquisition, own, beta, num_starts, rng, pending)[0]
