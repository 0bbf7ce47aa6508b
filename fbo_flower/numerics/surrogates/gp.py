"""The exact Gaussian process of an agent: fit and predict; likelihoods and drawn functions for `B` at once.

Sources: [RW2006] Rasmussen and Williams, Gaussian processes for machine learning; [Wilson2020] Efficiently
sampling functions from Gaussian process posteriors; [Dai2020] Federated Bayesian optimization via Thompson
sampling. Notation: `X (n, F)`, `y (n,)` standardised, `C` the kernel matrix with unit outputscale,
`K = outputscale C`, `s2` the noise variance, `theta (F + 2,)` the logarithms of the lengthscales, the
outputscale and the noise variance; `B` processes; `P = n (n - 1) / 2` pairs of observations, those below the
diagonal. The mean of the prior is 0.

Hyperparameters are estimated by the mode of their posterior over `theta`, with independent normal priors
(mean, s.d.):

- `log lengthscale ~ N(log(0.3 sqrt F), 0.75)`: distances in the unit cube grow like `sqrt F`; two
  s.d. cover .07 to 1.3 `sqrt F`, which is narrow enough to regularise fits of three points
- `log outputscale ~ N(0, 0.5)`: `y` is standardised
- `log noise_variance ~ N(log 3e-3, 1.5)`: 1.5e-4 to .06 within two s.d., with a floor of 1e-6
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.linalg import Factor, cholesky, factors, solve, solve_and_invert
from fbo_flower.numerics.surrogates import kernels
from fbo_flower.numerics.surrogates.rff import RandomFeatures, cosine_in_place, draw_features
from fbo_flower.numerics.threads import limit_new_libraries

LENGTHSCALE_CENTRE, LENGTHSCALE_STDDEV = 0.3, 0.75
OUTPUTSCALE_CENTRE, OUTPUTSCALE_STDDEV = 1.0, 0.5
NOISE_CENTRE, NOISE_STDDEV = 3e-3, 1.5
LENGTHSCALE_BOUNDS = (0.01, 30.0)
OUTPUTSCALE_BOUNDS = (0.05, 20.0)
NOISE_BOUNDS = (1e-6, 2.0)


@dataclass(frozen=True)
class Priors:
    """Centres of the priors, and standard deviations of their logarithms; the head of the module has reasons.

    Parameters
    ----------
    lengthscale_centre : in units of `sqrt F`
    """

    lengthscale_centre: float = LENGTHSCALE_CENTRE
    lengthscale_stddev: float = LENGTHSCALE_STDDEV
    noise_centre: float = NOISE_CENTRE
    noise_stddev: float = NOISE_STDDEV


DEFAULT_PRIORS = Priors()


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters of the kernel and of the noise.

    Attributes
    ----------
    kernel : one of `kernels.KERNELS`
    lengthscales : `(F,)`, positive
    outputscale : positive, the prior variance of the function
    noise_variance : positive, in squared units of `y`
    """

    kernel: str
    lengthscales: Array
    outputscale: float
    noise_variance: float

    def __post_init__(self) -> None:
        kernels.check_kernel(self.kernel)
        if self.lengthscales.ndim != 1 or len(self.lengthscales) == 0:
            raise ConfigError(f"lengthscales: expected shape (F,) with F > 0, got {self.lengthscales.shape}")
        values = [*self.lengthscales.tolist(), self.outputscale, self.noise_variance]
        if not all(0.0 < value < math.inf for value in values):
            raise ConfigError(f"hyperparameters: expected positive finite numbers, got {values}")

    def to_array(self) -> Array:
        """Return `theta (F + 2,)`: logarithms of the lengthscales, the outputscale and the noise variance."""
        return np.log([*self.lengthscales, self.outputscale, self.noise_variance])

    @staticmethod
    def from_array(kernel: str, a: Array) -> Hyperparameters:
        """Return the hyperparameters of `theta (F + 2,)`: the inverse of `to_array`."""
        values = np.exp(a)
        return Hyperparameters(kernel, values[:-2], float(values[-2]), float(values[-1]))


@dataclass(frozen=True)
class Fit:
    """Fitted hyperparameters and diagnostics of the optimisation.

    Attributes
    ----------
    hyperparameters : the best over all starts
    value : log marginal likelihood plus log prior at them
    converged : whether the best run met its tolerance
    iterations : number of iterations of the best run
    """

    hyperparameters: Hyperparameters
    value: float
    converged: bool
    iterations: int


def log_marginal_likelihoods(
    differences: Array, y: Array, kernel: str, theta: Array, added: Array | None = None
) -> tuple[Array, Array]:
    """Return `log N(y; 0, K + s2 I)` of every process and its gradient in `theta` [RW2006, Eqs. 5.8-5.9].

    Parameters
    ----------
    differences : `(B, F, P)`, squared differences of the features
    y : `(B, n)`
    theta : `(B, F + 2)`
    added : `(B, n, n)`, covariances that are added to `K`; None: 0

    Returns
    -------
    Values `(B,)` and gradients `(B, F + 2)`.
    """
    num_processes, n = y.shape
    rows, columns, below = _below_diagonal(n)
    squared_scales = np.exp(-2.0 * theta[:, :-2])  # l^-2
    outputscale, noise_variance = np.exp(theta[:, -2]), np.exp(theta[:, -1])
    r2 = (squared_scales[:, None, :] @ differences)[:, 0]
    c, slope = kernels.profile_and_slope(kernel, r2)  # (B, P)
    matrices = np.zeros((num_processes, n * n))
    matrices[:, below] = outputscale[:, None] * c
    matrices[:, :: n + 1] = (outputscale + noise_variance)[:, None]
    matrices = matrices.reshape(num_processes, n, n)
    if added is not None:
        matrices += added
    lower = factors(matrices)
    log_determinant = 2.0 * np.log(np.einsum("bii->bi", lower)).sum(axis=1)
    alpha = solve_and_invert(lower, y)
    inverses = lower.reshape(num_processes, -1)  # by now; valid on and below the diagonal only
    fit_part = (y * alpha).sum(axis=1)
    # -1/2 y^T alpha - 1/2 log|K + s2 I| - n/2 log 2 pi  (Eq. 5.8)
    values = -0.5 * (fit_part + log_determinant + n * math.log(2.0 * math.pi))

    # Eq. 5.9 with A = alpha alpha^T - (K + s2 I)^-1: each derivative is tr(A dK / dtheta) / 2
    a = alpha[:, rows] * alpha[:, columns] - inverses[:, below]
    trace = np.square(alpha).sum(axis=1) - inverses[:, :: n + 1].sum(axis=1)
    gradients = np.empty_like(theta)
    weighted = (differences @ (a * slope)[:, :, None])[:, :, 0]
    gradients[:, :-2] = outputscale[:, None] * squared_scales * weighted
    noise_part = noise_variance * trace
    gradients[:, -2] = 0.5 * (fit_part - n - noise_part)  # tr(A (K + s2 I)) = y^T alpha - n
    gradients[:, -1] = 0.5 * noise_part
    if added is not None:  # tr(A added) is in the fit, and not in the outputscale's derivative
        flat = added.reshape(num_processes, -1)
        diagonal = np.square(alpha) - inverses[:, :: n + 1]
        # contiguous, so that the order of each sum does not depend on the number of processes
        on, off = (np.ascontiguousarray(p) for p in (diagonal * flat[:, :: n + 1], a * flat[:, below]))
        gradients[:, -2] -= 0.5 * on.sum(axis=1) + off.sum(axis=1)
    return values, gradients


def log_marginal_likelihood(x: Array, y: Array, hyperparameters: Hyperparameters) -> tuple[float, Array]:
    """Return `log N(y; 0, K + s2 I)` and its gradient `(F + 2,)` in `theta` [RW2006, Eqs. 5.8-5.9]."""
    _check_data(x, y, len(hyperparameters.lengthscales))
    values, gradients = log_marginal_likelihoods(
        pair_differences(x[None]), y[None], hyperparameters.kernel, hyperparameters.to_array()[None]
    )
    return float(values[0]), gradients[0]


def lengthscale_likelihoods(x: Array, y: Array, lengthscales: Array, noise_variance: float) -> Array:
    """Return the log marginal likelihood of each of `lengthscales (L,)`, for "rbf" with outputscale 1."""
    shapes = [np.full(x.shape[1], scale) for scale in lengthscales]
    grid = [Hyperparameters("rbf", shape, 1.0, noise_variance) for shape in shapes]
    return np.array([log_marginal_likelihood(x, y, point)[0] for point in grid])


def log_prior(theta: Array) -> tuple[float, Array]:
    """Return the log density of the priors at `theta (F + 2,)`, up to a constant, and its gradient."""
    return _log_normal(theta, *prior(len(theta) - 2))


def fit(
    x: Array,
    y: Array,
    kernel: str,
    rng: np.random.Generator,
    start: Hyperparameters | None = None,
    num_restarts: int = 1,
    *,
    isotropic: bool = False,
    priors: Priors = DEFAULT_PRIORS,
) -> Fit:
    """Return the hyperparameters at the mode of their posterior, found by L-BFGS-B.

    Parameters
    ----------
    x : `(n, F)`, features of the query points; `n` may be 0
    y : `(n,)`, standardised observations
    kernel : one of `kernels.KERNELS`
    start : start of the first run, e.g. the last fit; the mode of the prior if None
    num_restarts : total number of runs; those after the first start at draws from the prior
    isotropic : True for a single lengthscale shared by all features, with the prior of one feature
    priors : of the hyperparameters
    """
    kernels.check_kernel(kernel)
    num_dims = x.shape[-1]
    _check_data(x, y, num_dims)
    if num_restarts < 1:
        raise ConfigError(f"num_restarts: expected at least 1, got {num_restarts}")
    differences = pair_differences(x[None])  # (1, F, P)
    if isotropic:  # r^2 is then the sum of the squared differences over l^2
        differences = differences.sum(axis=1, keepdims=True)
    num_scales = differences.shape[1]
    limits = bounds(num_scales)
    mean, precision = (a[-num_scales - 2 :] for a in prior(num_dims, priors))

    def loss(theta: Array) -> tuple[float, Array]:
        values, gradients = log_marginal_likelihoods(differences, y[None], kernel, theta[None])
        prior_value, prior_gradient = _log_normal(theta, mean, precision)
        return -float(values[0]) - prior_value, -gradients[0] - prior_gradient

    best: Fit | None = None
    for run in range(num_restarts):
        if run == 0:
            theta = mean if start is None else _isotropic(start.to_array(), num_scales)
        else:
            theta = mean + rng.standard_normal(len(mean)) / np.sqrt(precision)
        theta = np.clip(theta, limits[:, 0], limits[:, 1])
        mode, value, details = _fmin_l_bfgs_b()(
            loss, theta, bounds=limits, factr=1e9, pgtol=1e-3, maxiter=100
        )
        if best is None or -value > best.value:
            theta = np.concatenate([np.broadcast_to(mode[:-2], (num_dims,)), mode[-2:]])
            found = Hyperparameters.from_array(kernel, theta)
            best = Fit(found, -float(value), details["warnflag"] == 0, int(details["nit"]))
    assert best is not None
    return best


@dataclass(frozen=True)
class SamplePath:
    """A function drawn from a posterior: `prior(z) + k(z, X) coefficients`.

    Attributes
    ----------
    features : random features of the prior draw
    weights : `(M,)`, weights of the cosines, including the factor `sqrt(2 outputscale / M)`
    x : `(n, F)`, the observed points
    coefficients : `(n,)`, including the factor outputscale
    hyperparameters : hyperparameters of the posterior
    """

    features: RandomFeatures
    weights: Array
    x: Array
    coefficients: Array
    hyperparameters: Hyperparameters

    def __call__(self, z: Array) -> Array:
        """Return values `(m,)` at `z (m, F)`."""
        values: Array = self.features.cosines(z) @ self.weights
        if len(self.x):
            scales = self.hyperparameters.lengthscales
            values += kernels.weighted_sum(self.hyperparameters.kernel, z, self.x, scales, self.coefficients)
        return values

    def value_and_gradient(self, z: Array) -> tuple[Array, Array]:
        """Return values `(m,)` and gradients `(m, F)` at `z (m, F)`."""
        angles = self.features.angles(z)
        values = np.cos(angles) @ self.weights
        gradients = (np.sin(angles, out=angles) * -self.weights) @ self.features.frequencies
        if len(self.x):
            scales = self.hyperparameters.lengthscales
            update, update_gradients = kernels.input_gradient(
                self.hyperparameters.kernel, z, self.x, scales, self.coefficients
            )
            values += update
            gradients += update_gradients
        return values, gradients


def sample_paths(
    x: Array,
    y: Array,
    hyperparameters: Sequence[Hyperparameters],
    num_features: int,
    rngs: Sequence[np.random.Generator],
    deviation_scale: float = 1.0,
) -> list[SamplePath]:
    """Draw one function from each posterior by pathwise conditioning [Wilson2020].

    `f(z) = f_0(z) + k(z, X) (K + s2 I)^-1 (y - f_0(X) - e)` with `f_0` a draw of the prior by random features
    and `e ~ N(0, s2 I)`. Mean and covariance are those of the posterior for any number of features, because
    they are drawn anew. The law is normal only in the limit: if the posterior variance is small, its tails
    are heavier (at 8 observations in 2-D, excess kurtosis up to .3 for "rbf" and .5 for "matern52" at 256
    features, .8 and 1.9 at 64, below .2 at 1024).

    Parameters
    ----------
    x : `(B, n, F)`
    y : `(B, n)`, standardised observations
    hyperparameters : one per process, all of one kernel
    num_features : `M`, of the prior draws
    rngs : one generator per process
    deviation_scale : `beta`; a path has the law of `mean + beta (f - mean)` [Dai2020, Alg. 1]
    """
    drawn = [
        draw_features(num_features, h.lengthscales, len(h.lengthscales), rng, h.kernel)
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
    cosine_in_place(angles.reshape(-1))
    prior = (angles @ weights[:, :, None])[:, :, 0]
    scales = np.array([h.lengthscales for h in hyperparameters])
    coefficients = outputscale[:, None] * solve(
        covariances(hyperparameters[0].kernel, x, scales, outputscale, noise_variance), y - prior - noise
    )
    return [
        SamplePath(*parts) for parts in zip(drawn, weights, x, coefficients, hyperparameters, strict=True)
    ]


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


@dataclass(frozen=True)
class Posterior:
    """The Gaussian process conditioned on observations; created by `posterior`.

    Attributes
    ----------
    x : `(n, F)`
    y : `(n,)`
    hyperparameters : as given
    factor : of `K + s2 I`, `(n, n)`
    alpha : `(K + s2 I)^-1 y`, `(n,)`
    """

    x: Array
    y: Array
    hyperparameters: Hyperparameters
    factor: Factor
    alpha: Array

    def predict(self, z: Array) -> tuple[Array, Array]:
        """Return mean and variance `(m,)` without noise at `z (m, F)` [RW2006, Alg. 2.1]."""
        cross = self._cross(z)
        v = self.factor.solve_lower(cross.T)  # (n, m); Alg. 2.1, line 5
        variance = self.hyperparameters.outputscale - np.einsum("ij,ij->j", v, v)
        return cross @ self.alpha, np.maximum(variance, 0.0)

    def mean(self, z: Array) -> Array:
        """Return the mean `(m,)` at `z (m, F)`, as `predict` does, without the cost of the variance."""
        return self._cross(z) @ self.alpha

    def covariance(self, z: Array) -> Array:
        """Return the covariance `(m, m)` of the function (without noise) at `z (m, F)`."""
        h = self.hyperparameters
        v = self.factor.solve_lower(self._cross(z).T)  # (n, m)
        return h.outputscale * kernels.kernel(h.kernel, z, z, h.lengthscales) - v.T @ v

    def sample_path(
        self, num_features: int, rng: np.random.Generator, *, deviation_scale: float = 1.0
    ) -> SamplePath:
        """Draw a function: `sample_paths` of one process."""
        data, h = (self.x[None], self.y[None]), [self.hyperparameters]
        return sample_paths(*data, h, num_features, [rng], deviation_scale)[0]

    def _cross(self, z: Array) -> Array:
        h = self.hyperparameters
        return h.outputscale * kernels.kernel(h.kernel, z, self.x, h.lengthscales)


def posterior(x: Array, y: Array, hyperparameters: Hyperparameters) -> Posterior:
    """Condition the process on `y (n,)` observed at `x (n, F)`; `n` may be 0."""
    _check_data(x, y, len(hyperparameters.lengthscales))
    covariance = hyperparameters.outputscale * kernels.kernel(
        hyperparameters.kernel, x, x, hyperparameters.lengthscales
    )
    covariance.flat[:: len(y) + 1] = hyperparameters.outputscale + hyperparameters.noise_variance
    factor = cholesky(covariance)  # Alg. 2.1, line 2
    return Posterior(x, y, hyperparameters, factor, factor.solve(y))


@functools.lru_cache(maxsize=2)  # n grows with every round; one fit asks a hundred times
def _below_diagonal(n: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return rows, columns and flat positions of the entries below the diagonal of an `(n, n)` matrix."""
    rows, columns = np.tril_indices(n, -1)
    return rows, columns, rows * n + columns


def pair_differences(x: Array) -> Array:
    """Return the squared differences of features, `(B, F, P)`, of all pairs of the points `x (B, n, F)`."""
    rows, columns, _ = _below_diagonal(x.shape[1])
    return np.square(x[:, rows] - x[:, columns]).transpose(0, 2, 1).copy()


def _log_normal(theta: Array, mean: Array, precision: Array) -> tuple[float, Array]:
    """Return the log density of independent normals, up to a constant, and its gradient."""
    gradient = (mean - theta) * precision
    return 0.5 * float(gradient @ (theta - mean)), gradient


def _isotropic(theta: Array, num_scales: int) -> Array:
    """Return `theta` with its log lengthscales replaced by their mean if only one is fitted."""
    if len(theta) == num_scales + 2:
        return theta
    return np.concatenate([[theta[:-2].mean()], theta[-2:]])


def bounds(num_scales: int) -> Array:
    """Return lower and upper bounds of `theta`, `(num_scales + 2, 2)`."""
    return np.log([LENGTHSCALE_BOUNDS] * num_scales + [OUTPUTSCALE_BOUNDS, NOISE_BOUNDS])


@functools.cache
def prior(num_dims: int, priors: Priors = DEFAULT_PRIORS) -> tuple[Array, Array]:
    """Return means and precisions `(F + 2,)` of the priors over `theta`."""
    centre = priors.lengthscale_centre * math.sqrt(num_dims)
    mean = np.log([*[centre] * num_dims, OUTPUTSCALE_CENTRE, priors.noise_centre])
    stddev = np.array([*[priors.lengthscale_stddev] * num_dims, OUTPUTSCALE_STDDEV, priors.noise_stddev])
    mean.setflags(write=False)
    return mean, stddev**-2


def _check_data(x: Array, y: Array, num_dims: int) -> None:
    if x.ndim != 2 or x.shape[1] != num_dims or y.shape != (len(x),):
        raise ConfigError(f"data: expected x (n, {num_dims}) and y (n,), got {x.shape} and {y.shape}")


@functools.cache
def _fmin_l_bfgs_b() -> Callable[..., Any]:  # the stub's type does not survive the cache
    from scipy.optimize import fmin_l_bfgs_b

    limit_new_libraries()
    return fmin_l_bfgs_b
