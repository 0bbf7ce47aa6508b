"""Draw functions from the posteriors of many Gaussian processes, as `gp.Posterior.sample_path` does for one.

Each process is computed by itself, see `gp_many`. `sample_path` is the reference version; it factorises with
LAPACK's `potrf` directly and so differs in the last bits. Notation: as in `gp`; `B` processes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.linalg import lapack
from fbo_flower.numerics.surrogates import gp, gp_many, kernels, rff


def sample_paths(
    x: Array,
    y: Array,
    hyperparameters: Sequence[gp.Hyperparameters],
    num_features: int,
    rngs: Sequence[np.random.Generator],
    deviation_scale: float = 1.0,
) -> list[gp.SamplePath]:
    """Draw one function from each posterior by pathwise conditioning.

    Parameters
    ----------
    x : `(B, n, F)`
    y : `(B, n)`, standardised observations
    hyperparameters : one per process, all of one kernel
    num_features : `M`, of the prior draws
    rngs : one generator per process
    deviation_scale : `beta`; a path has the law of `mean + beta (f - mean)`
    """
    drawn = [
        rff.draw_features(num_features, h.lengthscales, len(h.lengthscales), rng, h.kernel)
        for h, rng in zip(hyperparameters, rngs, strict=True)
    ]
    outputscale = np.array([h.outputscale for h in hyperparameters])
    noise_variance = np.array([h.noise_variance for h in hyperparameters])
    normals = np.array([rng.standard_normal(num_features + y.shape[1]) for rng in rngs])
    weights = (deviation_scale * np.sqrt(2.0 * outputscale / num_features))[:, None] * normals[
        :, :num_features
    ]
    noise = (deviation_scale * np.sqrt(noise_variance))[:, None] * normals[:, num_features:]

    # f_0(X), then (K + s2 I)^-1 (y - f_0(X) - e)
    angles = x @ np.array([features.frequencies for features in drawn]).transpose(0, 2, 1)
    angles += np.array([features.phases for features in drawn])[:, None, :]
    rff.cosine_in_place(angles.reshape(-1))
    prior = (angles @ weights[:, :, None])[:, :, 0]
    scales = np.array([h.lengthscales for h in hyperparameters])
    coefficients = outputscale[:, None] * solve(
        covariances(hyperparameters[0].kernel, x, scales, outputscale, noise_variance), y - prior - noise
    )
    return [
        gp.SamplePath(*parts) for parts in zip(drawn, weights, x, coefficients, hyperparameters, strict=True)
    ]


def sample_weights_many(
    features: Sequence[rff.RandomFeatures],
    x: Array,
    y: Array,
    noise_variance: float,
    rngs: Sequence[np.random.Generator],
) -> Array:
    """Draw `omega (B, M)` of every agent, as `rff.sample_weights_dual` does for one.

    Parameters
    ----------
    features : one per agent, all with `M` features
    x, y : `(B, n, F)` and `(B, n)`
    """
    phi = x @ np.array([f.frequencies for f in features]).transpose(0, 2, 1)
    phi += np.array([f.phases for f in features])[:, None, :]
    rff.cosine_in_place(phi.reshape(-1))
    phi /= np.maximum(np.sqrt(np.square(phi).sum(axis=2)), np.finfo(np.float64).tiny)[:, :, None]
    num_features = phi.shape[2]
    normals = np.array([rng.standard_normal(num_features + y.shape[1]) for rng in rngs])
    w0, e = normals[:, :num_features], math.sqrt(noise_variance) * normals[:, num_features:]
    gram = phi @ phi.transpose(0, 2, 1)
    gram.reshape(len(gram), -1)[:, :: y.shape[1] + 1] += noise_variance
    # omega = w_0 + Phi^T (Phi Phi^T + sigma^2 I)^-1 (y - Phi w_0 - e)
    residual = solve(gram, y - (phi @ w0[:, :, None])[:, :, 0] - e)
    update: Array = (phi.transpose(0, 2, 1) @ residual[:, :, None])[:, :, 0]
    return w0 + update


def covariances(kernel: str, x: Array, scales: Array, outputscale: Array, noise_variance: Array) -> Array:
    """Return `K + s2 I`, `(B, n, n)`, for `x (B, n, F)` and `scales (B, F)`."""
    n = x.shape[1]
    scaled = x / scales[:, None, :]
    r2 = np.zeros((len(x), n, n))
    for column in range(x.shape[2]):
        difference = scaled[:, :, None, column] - scaled[:, None, :, column]
        difference *= difference
        r2 += difference
    matrices: Array = outputscale[:, None, None] * kernels.profile(kernel, r2)
    matrices.reshape(len(x), -1)[:, :: n + 1] = (outputscale + noise_variance)[:, None]
    return matrices


def solve(matrices: Array, b: Array) -> Array:
    """Return `A^-1 b`, `(B, n)`, for positive definite `matrices (B, n, n)`; with jitter where needed."""
    lower = gp_many.factors(matrices)
    found = np.empty_like(b)
    for row in range(len(b)):  # LAPACK's upper factor is the transpose of ours: no copies
        found[row] = lapack().dpotrs(lower[row].T, b[row], lower=0)[0]
    return found
