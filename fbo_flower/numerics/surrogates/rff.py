"""Random Fourier features: a finite approximation of a Gaussian process that can be sent as one vector.

Sources: [Rahimi2008] Random features for large-scale kernel machines; [Dai2020] Federated Bayesian
optimization via Thompson sampling, Eqs. 2-3 and App. A; [Wilson2020] Efficiently sampling functions from
Gaussian process posteriors (Matheron's rule); [Steele2014] Fast splittable pseudorandom number generators.
Notation: `n` query points, `M` features, `F` columns,

- `phi(x) = sqrt(2/M) cos(S x + b)`, scaled to `||phi(x)|| = 1`, stacked to `Phi (n, M)`
  A category `c` adds to the angle what is drawn from `N(0, s^2)` for it and this feature, with `s` of its
  column (`add_categories`); so angles of different categories differ by `N(0, l^-2)`
- `Sigma = Phi^T Phi + sigma^2 I`, `nu = Sigma^-1 Phi^T y`, `omega ~ N(nu, sigma^2 Sigma^-1)`; `sigma^2` is
  `noise_variance`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.categories import category_columns, without
from fbo_flower.numerics.linalg import cholesky, solve
from fbo_flower.numerics.surrogates.gp import check_kernel

# -sin(2 pi u) = u P(u^2) on |u| <= 1/4: Chebyshev interpolation with 8 nodes, error 2e-16; constant term
# first.
_SINE = (
    -6.283185307179585,
    41.341702240398284,
    -81.60524927557977,
    76.70585968962867,
    -42.05868995395094,
    15.09450614073429,
    -3.817365633469135,
    0.6925067010720717,
)
NO_COLUMNS: IntArray = np.empty(0, dtype=np.int64)
_BLOCK = 16384  # angles processed at a time; three arrays of this size fit into the second-level cache


@dataclass(frozen=True)
class RandomFeatures:
    """The features `phi`; all agents of a study use the same ones.

    Attributes
    ----------
    frequencies : `(M, F)`, the rows `s_i`; of a category the standard deviation
    phases : `(M,)`, the `b_i`, in `[0, 2 pi)` when drawn
    """

    frequencies: Array
    phases: Array

    def __post_init__(self) -> None:
        if self.frequencies.ndim != 2 or min(self.frequencies.shape) == 0:
            raise ConfigError(f"frequencies: expected shape (M, F), M, F > 0, got {self.frequencies.shape}")
        if self.phases.shape != (len(self.frequencies),):
            raise ConfigError(f"phases: expected shape ({len(self.frequencies)},), got {self.phases.shape}")
        for name, array in (("frequencies", self.frequencies), ("phases", self.phases)):
            if array.dtype != np.float64 or not np.isfinite(array).all():
                raise ConfigError(
                    f"{name}: expected finite float64, got {array.dtype} or entries that are not finite"
                )

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of a message that `shared_features` reads."""
        return {"frequencies": self.frequencies, "phases": self.phases}

    @property
    def num_features(self) -> int:
        """`M`."""
        return len(self.phases)

    def angles(self, x: Array) -> Array:
        """Return `S x + b`, `(n, M)`, for `x (n, F)`."""
        if x.ndim != 2 or x.shape[1] != self.frequencies.shape[1]:
            raise ConfigError(f"points: expected shape (n, {self.frequencies.shape[1]}), got {x.shape}")
        angles = without(x, category_columns(x)) @ self.frequencies.T
        angles += self.phases
        add_categories(angles[None], self.frequencies[None], self.phases[None], x[None])
        return angles

    def cosines(self, x: Array) -> Array:
        """Return `cos(S x + b)`, `(n, M)`, for `x (n, F)`."""
        cosines = self.angles(x)
        cosine_in_place(cosines.reshape(-1))
        return cosines

    def __call__(self, x: Array) -> Array:
        """Return `phi(x) (n, M)` with rows of norm 1 [Dai2020, App. A], for `x (n, F)`."""
        phi = self.cosines(x)
        phi /= _norms(phi)
        return phi

    def value_and_gradient(self, x: Array, weights: Array) -> tuple[Array, Array]:
        """Return `phi(x)^T weights`, `(n,)`, and its gradient in `x`, `(n, F)`.

        The weights are `(M,)`, or `(n, M)`, those of each point.

        With `u = cos(S x + b)`, `q = ||u||` and `v = u^T w / q`: `dv = (w - (v / q) u)^T du / q`.
        """
        angles = self.angles(x)
        u = np.cos(angles)
        q = _norms(u)
        v = (u @ weights if weights.ndim == 1 else np.einsum("ij,ij->i", u, weights)) / q[:, 0]
        np.sin(angles, out=angles)
        angles *= (v[:, None] / q) * u - weights  # du = -sin(S x + b) S dx
        gradient = angles @ self.frequencies
        gradient /= q
        return v, gradient


def draw_features(
    num_features: int,
    lengthscales: Array | float,
    num_dims: int,
    rng: np.random.Generator,
    kernel: str = "rbf",
    categories: IntArray = NO_COLUMNS,
) -> RandomFeatures:
    """Draw the features of a kernel: `b_i ~ U[0, 2 pi]` and `s_i` from the kernel's spectral density.

    "rbf": `s_i ~ N(0, diag(l)^-2)`. "matern52": that, times `sqrt(5 / c_i)` with `c_i ~ chi^2_5` (the
    multivariate t distribution with 5 = 2 nu degrees of freedom [Rasmussen & Williams 2006, Eq. 4.15]).

    Parameters
    ----------
    num_features : `M > 0`
    lengthscales : `(F,)`, or one for all columns; positive
    num_dims : `F > 0`
    categories : columns of categories
    """
    check_kernel(kernel)
    scales = np.asarray(lengthscales, dtype=np.float64)
    if num_features < 1 or num_dims < 1:
        raise ConfigError(f"features: expected positive numbers, got M = {num_features}, F = {num_dims}")
    if scales.shape not in {(), (num_dims,)} or not (np.isfinite(scales).all() and (scales > 0.0).all()):
        raise ConfigError(f"lengthscales: expected one or {num_dims} positive numbers, got {lengthscales}")
    frequencies = rng.standard_normal((num_features, num_dims))
    frequencies[:, categories] = math.sqrt(0.5)
    frequencies /= scales
    phases = rng.uniform(0.0, 2.0 * math.pi, num_features)
    if kernel == "matern52":
        frequencies *= np.sqrt(5.0 / rng.chisquare(5.0, num_features))[:, None]
    return RandomFeatures(frequencies, phases)


_last_shared: dict[str, RandomFeatures] = {}  # of the arrays before, if nobody can change them


def shared_features(arrays: Mapping[str, npt.NDArray[Any]]) -> RandomFeatures | None:
    """Return the features in a message or in an agent's state, None without them.

    Messages that are read together share the arrays, and their features too.
    """
    if "frequencies" not in arrays or "phases" not in arrays:
        return None
    frequencies, phases = arrays["frequencies"], arrays["phases"]
    last = _last_shared.get("")
    if last is not None and last.frequencies is frequencies and last.phases is phases:
        return last
    features = RandomFeatures(np.asarray(frequencies, np.float64), np.asarray(phases, np.float64))
    if not features.frequencies.flags.writeable and not features.phases.flags.writeable:
        _last_shared[""] = features
    return features


def kept_features(
    kept: Mapping[str, npt.NDArray[np.generic]], num_features: int, num_dims: int
) -> tuple[RandomFeatures, Array]:
    """Return `M` random features and weights `(N, M)` from the exported messages of an earlier study.

    ConfigError if an array is missing, not finite, or of another shape.
    """
    shapes = {
        "frequencies": (num_features, num_dims),
        "phases": (num_features,),
        "weights": (-1, num_features),
    }
    found = {name: np.asarray(kept.get(name, np.empty(0)), dtype=np.float64) for name in shapes}
    for name, shape in shapes.items():
        array = found[name]
        fits = array.ndim == len(shape) and all(s in (-1, n) for s, n in zip(shape, array.shape, strict=True))
        if not fits or array.size == 0 or not np.isfinite(array).all():
            raise ConfigError(f"{name}: expected finite numbers of shape {shape}, got {array.shape}")
    return RandomFeatures(found["frequencies"], found["phases"]), found["weights"]


def weight_posterior(phi: Array, y: Array, noise_variance: float) -> tuple[Array, Array]:
    """Return `nu (M,)` and `Sigma^-1 (M, M)` [Dai2020, Eq. 2]; `Cov omega` is `noise_variance * Sigma^-1`.

    Parameters
    ----------
    phi : `(n, M)`, features of the query points; `n` may be 0
    y : `(n,)`, standardised observations
    noise_variance : positive, in squared units of `y`
    """
    _check_regression(phi, y, noise_variance)
    inverse = cholesky(_precision(phi, noise_variance)).inverse()
    return inverse @ (phi.T @ y), inverse


def sample_weights(
    features: Sequence[RandomFeatures],
    x: Array,
    y: Array,
    noise_variance: float,
    rngs: Sequence[np.random.Generator],
) -> Array:
    """Draw `omega (B, M)` of agents, each `~ N(nu, noise_variance * Sigma^-1)` [Dai2020, Eqs. 2-3].

    With fewer points than features by Matheron's rule [Wilson2020], in `O(n^2 M + n^3)`: `omega = w_0 +
    Phi^T (Phi Phi^T + sigma^2 I)^-1 (y - Phi w_0 - e)` with `w_0 ~ N(0, I)`, `e ~ N(0, sigma^2 I)`. Else with
    the Cholesky factor of `Sigma`, in `O(n M^2 + M^3)`. Every agent's draw is computed by itself.

    Parameters
    ----------
    features : one per agent, all with `M` features
    x, y : `(B, n, F)` and `(B, n)`, points and standardised observations; `n` may be 0
    noise_variance : positive, in squared units of `y`
    rngs : one per agent

    Raises
    ------
    NumericalError
        If a matrix to factorise is not positive definite after the largest jitter.
    """
    _check_regression(x, y, noise_variance)
    stddev, num_features = math.sqrt(noise_variance), features[0].num_features
    if y.shape[1] >= num_features:
        drawn = []
        for phi_of, points, values, rng in zip(features, x, y, rngs, strict=True):
            phi = phi_of(points)
            factor = cholesky(_precision(phi, noise_variance))  # Sigma = L L^T
            nu = factor.solve(phi.T @ values)
            drawn.append(nu + stddev * factor.solve_lower(rng.standard_normal(num_features), transposed=True))
        return np.array(drawn)
    phi = cosines_of(*stack_features(features), x)
    phi /= np.maximum(np.sqrt(np.square(phi).sum(axis=2)), np.finfo(np.float64).tiny)[:, :, None]
    normals = np.array([rng.standard_normal(num_features + y.shape[1]) for rng in rngs])
    w0, e = normals[:, :num_features], stddev * normals[:, num_features:]
    gram = phi @ phi.transpose(0, 2, 1)
    gram.reshape(len(gram), -1)[:, :: y.shape[1] + 1] += noise_variance
    residual = solve(gram, y - (phi @ w0[:, :, None])[:, :, 0] - e)
    update: Array = (phi.transpose(0, 2, 1) @ residual[:, :, None])[:, :, 0]
    return w0 + update


def _precision(phi: Array, noise_variance: float) -> Array:
    """Return `Sigma = Phi^T Phi + sigma^2 I`, `(M, M)`."""
    return phi.T @ phi + noise_variance * np.eye(phi.shape[1])


def stack_features(features: Sequence[RandomFeatures]) -> tuple[Array, Array]:
    """Return the frequencies `(B, M, F)` and phases `(B, M)` of `B` sets of features."""
    return np.array([f.frequencies for f in features]), np.array([f.phases for f in features])


def cosines_of(frequencies: Array, phases: Array, x: Array) -> Array:
    """Return `cos(S x + b)`, `(B, n, M)`, of stacked features at `x (B, n, F)`."""
    angles: Array = without(x, category_columns(x)) @ frequencies.transpose(0, 2, 1)
    angles += phases[:, None, :]
    add_categories(angles, frequencies, phases, x)
    cosine_in_place(angles.reshape(-1))
    return angles


def add_categories(angles: npt.NDArray[Any], frequencies: Array, phases: Array, x: Array) -> None:
    """Add what the categories in `x (B, n, F)` contribute to the angles `(B, n, M)` of `B` sets of features.

    The draws are functions of the phase, which is one of 2^52 numbers, the column and the category:
    SplitMix64 [Steele2014] makes 64 random bits of them. So features need not list all choices.
    """
    columns = category_columns(x)
    if len(columns):
        from scipy.special import ndtri
    for column in columns:
        for row, points in enumerate(x[:, :, column]):
            categories, places = np.unique(points, return_inverse=True)
            keys = (categories.astype(np.uint64) << np.uint64(32)) + np.uint64(column)
            bits = _mixed(_mixed(keys)[:, None] + phases[row].view(np.uint64))  # (K, M)
            normals = ndtri(((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)
            angles[row] += (normals * frequencies[row, :, column])[places.ravel()]


def _mixed(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the next outputs of SplitMix64 in these states."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def cosine_in_place(angles: Array) -> None:
    """Replace a flat array of angles by their cosines, with errors of 1e-15 plus the rounding of the angles.

    Half the time of a Thompson step goes into cosines, which NumPy does not vectorise in float64. Products
    and sums are vectorised and give the same bits on every machine. With `t = angle / 2 pi` and `u = |t -
    round(t)| - 1/4`, `cos(angle) = -sin(2 pi u)`.
    """
    square_buffer, sine_buffer = np.empty(_BLOCK), np.empty(_BLOCK)
    for begin in range(0, len(angles), _BLOCK):
        u = angles[begin : begin + _BLOCK]
        square, sine = square_buffer[: len(u)], sine_buffer[: len(u)]
        u *= 1.0 / (2.0 * math.pi)
        u -= np.rint(u, out=square)
        np.abs(u, out=u)
        u -= 0.25
        np.multiply(u, u, out=square)
        np.multiply(square, _SINE[-1], out=sine)
        for coefficient in _SINE[-2:0:-1]:
            sine += coefficient
            sine *= square
        sine += _SINE[0]
        u *= sine


def _norms(phi: Array) -> Array:
    """Return the norms of the rows as a column, at least the smallest float, so that zero rows stay zero."""
    norms: Array = np.sqrt(np.einsum("ij,ij->i", phi, phi))[:, None]
    return np.maximum(norms, np.finfo(np.float64).tiny)


def _check_regression(x: Array, y: Array, noise_variance: float) -> None:
    if x.ndim < 2 or y.shape != x.shape[:-1]:
        raise ConfigError(f"regression: expected a row of x for each of y, got {x.shape} and {y.shape}")
    if not (math.isfinite(noise_variance) and noise_variance > 0.0):
        raise ConfigError(f"noise_variance: expected a positive number, got {noise_variance}")
