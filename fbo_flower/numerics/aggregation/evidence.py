"""Decide whether agents share one objective: the Bayes factor of each agent for sharing the others' function.

Notation as in `surrogates.pooling`: `v ~ N(0, I)` are the whitened coordinates of a function drawn from the
prior, and `(Lambda_n, eta_n)` the increment of agent `n`. Up to a factor that no function changes, the
likelihood of its observations, integrated over `v`, is `Z`,

    log Z(Lambda, eta) = -1/2 log|I + Lambda| + 1/2 eta^T (I + Lambda)^-1 eta.

If agents observe one function, their increments add; if one observes another function, likelihoods multiply.
So, with sums over all agents and over all but `n`, the Bayes factor for agent `n` to share the function of
the others is

    log B_n = log Z(sum Lambda, sum eta) - log Z(sum_-n Lambda, sum_-n eta) - log Z(Lambda_n, eta_n),

exact for the given hyperparameters, and 0 without overlap of data. The least `B_n` speaks for all agents: one
that differs lowers its own, and it is not hidden by many that agree. `aggregation.agreement` needs no noise
variance for its p-values, but if all agents differ it has no two to calibrate its scale on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.surrogates.pooling import Increment


def log_bayes_factors(increments: Sequence[Increment]) -> Array:
    """Return `log B_n` of every agent, `(N,)`; positive values speak for one objective.

    Parameters
    ----------
    increments : one per agent, at least 2
    """
    if len(increments) < 2:
        raise ConfigError(f"increments: expected those of at least 2 agents, got {len(increments)}")
    whole = log_evidence(increments)
    return np.array(
        [
            whole - log_evidence([*increments[:n], *increments[n + 1 :]]) - log_evidence([increment])
            for n, increment in enumerate(increments)
        ]
    )


def log_evidence(increments: Sequence[Increment]) -> float:
    """Return `log Z` of the observations of one function that all these increments summarise."""
    precision = np.sum([increment.precision for increment in increments], axis=0)
    precision.flat[:: len(precision) + 1] += 1.0
    factor = cholesky(precision)
    half = factor.solve_lower(np.sum([increment.shift for increment in increments], axis=0))
    return 0.5 * (float(np.dot(half, half)) - factor.log_determinant())
