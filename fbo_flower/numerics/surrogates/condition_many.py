"""Condition many Gaussian processes on their observations, as `gp.posterior` does for one.

Each process is computed by itself, see `gp_many`. Notation: as in `gp`; `B` processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.linalg import lapack
from fbo_flower.numerics.surrogates import gp, gp_many
from fbo_flower.numerics.surrogates.path_many import covariances


@dataclass(frozen=True)
class Conditioned:
    """A Gaussian process conditioned on observations, with the inverse of their covariance.

    Attributes
    ----------
    x : `(n, F)`
    hyperparameters : as given
    alpha : `(K + s2 I)^-1 y`, `(n,)`
    inverse : `(K + s2 I)^-1`, `(n, n)`
    means : posterior means at the observed points, `(n,)`
    """

    x: Array
    hyperparameters: gp.Hyperparameters
    alpha: Array
    inverse: Array
    means: Array


def condition(x: Array, y: Array, hyperparameters: Sequence[gp.Hyperparameters]) -> list[Conditioned]:
    """Condition each process on its observations.

    Parameters
    ----------
    x, y : `(B, n, F)` and `(B, n)`; `n` may be 0
    hyperparameters : one per process, all of one kernel
    """
    n = x.shape[1]
    scales = np.array([h.lengthscales for h in hyperparameters])
    outputscale = np.array([h.outputscale for h in hyperparameters])
    noise_variance = np.array([h.noise_variance for h in hyperparameters])
    if n == 0:
        return [Conditioned(x[b], h, y[b], np.empty((0, 0)), y[b]) for b, h in enumerate(hyperparameters)]
    matrices = covariances(hyperparameters[0].kernel, x, scales, outputscale, noise_variance)
    lower = gp_many.factors(matrices)
    alpha = np.empty_like(y)
    for b in range(len(y)):  # LAPACK's upper factor is the transpose of ours: no copies
        alpha[b] = lapack().dpotrs(lower[b].T, y[b], lower=0)[0]
        lapack().dpotri(lower[b].T, lower=0, overwrite_c=1)
    below = np.tril(lower, -1)  # potri leaves the zeros above the diagonal
    inverses = lower + below.transpose(0, 2, 1)
    # K alpha = y - s2 alpha, because (K + s2 I) alpha = y
    means = y - noise_variance[:, None] * alpha
    return [Conditioned(*parts) for parts in zip(x, hyperparameters, alpha, inverses, means, strict=True)]
