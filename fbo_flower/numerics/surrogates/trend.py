"""What agents have in common: a Gaussian process on rows of observations whose owners are unknown.

An agent's function is `g + h_i`: `g ~ GP(0, rho k_F)` is common to all, `h_i` is its own. Nobody knows whose
a row is, so what differs between agents is white over the rows:

    z_o = g(X_o) + e,   e ~ N(0, (1 - rho + s2) I),   A = rho k_F(X_o, X_o) + (1 - rho + s2) I,
    mean(x) = rho k_F(x, X_o) A^-1 z_o,   cov(x, x') = rho k_F(x, x') - rho^2 k_F(x, X_o) A^-1 k_F(X_o, x').

With `k_F(X_o, X_o) = Q diag(l) Q^T`, `A^-1 = Q diag(1 / (rho l + 1 - rho + s2)) Q^T` for every `rho` at once.
`Q` is computed once for the rows of all; each agent takes its own out of `A^-1`.

**Units.** Values of different agents can be compared once each is centred and scaled. Two values tell an
agent little about its scale, so agents sum up moments of their first values, each with noise of its own. From
the sums over `N` agents come a level `mu` with variance `tau W` between agents, and a scale `W` that counts
as `NU` observations.

Notation: `M` rows of others, `n` own observations, `F` features, `rho` the share of common variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fbo_flower.errors import NumericalError
from fbo_flower.numerics import finite
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.categories import breadth, category_columns
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.surrogates import fitting, gp

KERNEL = "matern52"
SHARES = np.array([0.0, 0.15, 0.4, 0.65, 0.85, 0.95])  # rho
LOG_PRIOR = np.log([0.15, *[0.17] * 5])
LEAST_NOISE = 1e-3  # s2, in units of the values' variance
LARGEST = 3.5  # absolute value of a standardised one
OWN_LEVEL = 100.0  # tau of an agent whose level nobody knows
WHITE = 0.03  # of values, when their scale is estimated
NU = 2.0  # observations of an agent's own that the common scale counts for
NUM_SUMS = 5
NUM_BITS = 40  # of the level that an agent tells
MOST_SPREAD = 40.0  # variance of log v between agents from which on each has a scale of its own: one may lie
# deviations of the noise on what an agent tells of its first values: of their mean, in deviations of these
# values, and of the logarithm of their variance; both are smaller than the errors of two values
MEAN_NOISE, LOG_NOISE = 0.5, 1.0
LARGEST_MEAN = 1e8  # an agent with larger values has units of its own
SUM_BOUND = 2 * LARGEST_MEAN**2


@dataclass(frozen=True)
class SharedRows:
    """Rows of others with the eigenvectors of their kernel matrix.

    Parameters
    ----------
    x, z : `(M, F)` and `(M,)`, features and standardised values
    lengthscales : `(F,)`, of `k_F`
    whole : the rows of all, of which those that are not in `hidden` are these; None: these
    hidden : rows of `whole`, those of the agent itself
    """

    x: Array
    z: Array
    lengthscales: Array
    whole: SharedRows | None = None
    hidden: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def others(self, others: IntArray) -> SharedRows:
        """Return some of these rows; they share the eigenvectors of all."""
        hidden = np.setdiff1d(np.arange(len(self.z)), others)
        if not len(hidden):
            return self
        return SharedRows(self.x[others], self.z[others], self.lengthscales, self, hidden)

    @cached_property
    def spectrum(self) -> tuple[Array, Array, Array]:
        """Eigenvalues `l (W,)` for all `W` rows, eigenvectors `Q (M, W)` at these, and at hidden ones."""
        if self.whole is not None:
            values, vectors, _ = self.whole.spectrum
            return values, np.delete(vectors, self.hidden, axis=0), vectors[self.hidden]
        values, vectors = np.linalg.eigh(gp.kernel(KERNEL, self.x, self.x, self.lengthscales))
        return np.maximum(values, 0.0), vectors, vectors[:0]

    @cached_property
    def projected(self) -> Array:
        """`z^T Q`, `(1, W)`."""
        return self.z[None] @ self.spectrum[1]

    def cross(self, x: Array) -> Array:
        """Return `k_F(x, X_o) Q`, `(m, W)`."""
        return gp.kernel(KERNEL, x, self.x, self.lengthscales) @ self.spectrum[1]

    def between(self, a: Array, b: Array, share: Array | float) -> Array:
        """Return `u A^-1 v^T (..., m, k)` for `a = u Q`, `b = v Q` and shares `(...)`.

        With `B` the inverse for all rows, hidden ones `h` among them, `A^-1 = B_oo - B_oh B_hh^-1 B_ho`.
        """
        values, _, hidden = self.spectrum
        share = np.asarray(share)[..., None, None]
        precision = 1.0 / (share * values + 1.0 - share + LEAST_NOISE)
        a = a * precision
        found = a @ b.T
        if len(hidden):
            weighted = hidden * precision
            found -= (a @ hidden.T) @ np.linalg.solve(weighted @ hidden.T, weighted @ b.T)
        return np.asarray(found, dtype=np.float64)

    def mean(self, cross: Array, share: float) -> Array:
        """Return the mean of the trend `(m,)`, given `cross (m, W)`."""
        return share * self.between(cross, self.projected, share)[:, 0]

    def moments(self, cross: Array, share: Array | float) -> tuple[Array, Array]:
        """Return the mean of the trend `(..., m)`, and `rho^2 k_F A^-1 k_F`, `(..., m, m)`.

        The second is what the rows take off the trend's prior covariance.
        """
        found = self.between(cross, np.concatenate([cross, self.projected]), share)
        share = np.asarray(share)[..., None]
        return share * found[..., -1], share[..., None] ** 2 * found[..., :-1]

    def solve(self, share: float) -> tuple[Array, Array]:
        """Return `A^-1 z_o (M,)` and `A^-1 (M, M)`."""
        vectors = self.spectrum[1]
        found = self.between(vectors, np.concatenate([vectors, self.projected]), share)
        return found[:, -1], found[:, :-1]


def share_of(rows: SharedRows, x: Array, y: Array, tau: float, noise_variance: float) -> float:
    """Return the posterior mean of `rho`, from the agent's own values, given the rows.

    How well rows agree with each other says nothing: a server can make them up.

    Parameters
    ----------
    x, y : `(n, F)` and `(n,)`, own observations in the units of the rows; `n` may be 0
    tau : prior variance of the agent's level
    """
    logs = LOG_PRIOR
    if len(y):
        cross, own = rows.cross(x), gp.kernel(KERNEL, x, x, rows.lengthscales) + tau
        own.flat[:: len(y) + 1] += noise_variance
        means, reductions = rows.moments(cross, SHARES)
        matrices, rest = own - reductions, y - means
        try:
            lower = np.linalg.cholesky(matrices)
        except np.linalg.LinAlgError:
            lower = np.array([cholesky(matrix).lower for matrix in matrices])
        u = np.linalg.solve(lower, rest[:, :, None])[:, :, 0]
        logs = logs - 0.5 * (u * u).sum(axis=1) - np.log(np.einsum("sii->si", lower)).sum(axis=1)
    weights = np.exp(logs - logs.max())
    share = float(weights @ SHARES) / float(weights.sum())
    return share if share >= 0.02 else 0.0


# -- units --------------------------------------------------------------------------------------------


def level_sums(values: Array, rng: np.random.Generator) -> Array:
    """Return an agent's part `(5,)` of the sums, from which units follow: `1, m, m^2, log v, (log v)^2`.

    `m` is the mean of `n` values plus noise, and `log v` the logarithm of their variance without its bias for
    normal values, `psi(k / 2) - log(k / 2)` with `k = n - 1`, plus noise. Without noise the sums and the
    first rows would show which rows are of one agent. All are 0 if there are fewer than two values, if all
    are equal, or if they are too large.

    Parameters
    ----------
    rng : draws the noise, secretly on a device
    """
    part, noise = np.zeros(NUM_SUMS), rng.standard_normal(2)
    if len(values) < 2 or not np.abs(values).max() <= LARGEST_MEAN:
        return part
    variance = float(values.var(ddof=1))
    mean = float(values.mean()) + MEAN_NOISE * math.sqrt(variance) * noise[0]
    if variance > 1e-280 and abs(mean) <= LARGEST_MEAN:
        log_variance = math.log(variance) - log_bias(len(values) - 1) + LOG_NOISE * float(noise[1])
        # few digits, so that sums in fixed and in floating point have the same bits
        shares, exponents = np.frexp([mean, mean**2])
        part[:3] = 1.0, *np.ldexp(np.rint(np.ldexp(shares, NUM_BITS)), exponents - NUM_BITS)
        part[3:] = np.ldexp(np.rint(np.ldexp([log_variance, log_variance**2], 20)), -20)
    return part


def log_bias(freedom: int) -> float:
    """Return the mean of `log(chi^2_k / k)`: `psi(k / 2) - log(k / 2)`."""
    from scipy.special import digamma

    return float(digamma(freedom / 2.0)) - math.log(freedom / 2.0)


@dataclass(frozen=True)
class Level:
    """What agents know of each other's units.

    Parameters
    ----------
    mean : `mu`, mean of the agents' levels
    tau : variance between the agents' levels, in units of `W`
    variance : `W`, the variance of an agent's values
    nu : how many own observations `W` counts for
    """

    mean: float = 0.0
    tau: float = OWN_LEVEL
    variance: float = 1.0
    nu: float = 0.0

    @staticmethod
    def of(sums: Array, num_values: int) -> Level:
        """Return the units that follow from the sums `(5,)` of `level_sums` over agents.

        Parameters
        ----------
        num_values : `n`, values of an agent that the sums tell of
        """
        count, first, second, logs, squares = (float(s) for s in sums)
        if not np.isfinite(sums).all() or count < 2.0 or abs(logs) > 600.0 * count:
            return Level()
        levels, scales = second - first**2 / count, squares - logs**2 / count
        # no honest agents have such sums: the squares of numbers are at least that of their mean
        impossible = levels < -1e-9 * (1.0 + second) or scales < -1e-9 * (1.0 + squares)
        if impossible or scales > MOST_SPREAD * (count - 1.0):
            return Level()
        variance = math.exp(logs / count)
        between = levels / (count - 1.0) / variance - 1.0 / num_values - MEAN_NOISE**2
        tau = min(max(between, 0.0) + 0.5 / count, OWN_LEVEL)
        if variance < 1e-11 * second / count + 1e-17:  # the sums are not exact enough
            tau = OWN_LEVEL
        return Level(first / count, tau, variance, NU)

    def standardise(self, x: Array, y: Array, lengthscales: Array | None) -> tuple[Array, float]:
        """Return own values `(n,)` in common units, and the prior variance of the agent's level in them."""
        units = self.units(x, y, lengthscales)
        return units.clipped(y), units.tau

    @property
    def own_tau(self) -> float:
        """The prior variance of an agent's level, in units of `W`: large if nobody knows it."""
        return self.tau if self.tau < OWN_LEVEL / 2 else OWN_LEVEL

    def units(self, x: Array, y: Array, lengthscales: Array | None) -> Units:
        """Return the common units of an agent's output.

        With `S = k_F(x, x) + WHITE I + tau` and `r = y - mu` the scale is
        `s^2 = (nu W + r^T S^-1 r) / (nu + n)`, and the agent's own level is `mu + tau 1^T S^-1 r`, its
        posterior mean. Without a known level, `mu` is the own mean, and one observation says nothing about
        the scale.

        Parameters
        ----------
        lengthscales : `(F,)`, of `k_F`; None: not known yet
        """
        if lengthscales is None:
            broad = breadth(x.shape[1], len(category_columns(x)))
            lengthscales = np.full(x.shape[1], fitting.LENGTHSCALE_CENTRE * math.sqrt(broad))
        tau = self.own_tau
        known = tau < OWN_LEVEL
        if not len(y):
            return Units(tau, self.mean, math.sqrt(self.variance)) if known else Units(tau, largest=np.inf)
        mean = self.mean if known else finite.mean(y)
        centred = finite.difference(y, mean)
        largest = float(np.abs(centred).max())
        if not 0.0 < largest < np.inf:  # all are equal, or nothing is known of them
            return Units(tau, mean, 1.0 if largest == 0.0 else np.inf)
        centred = centred / largest
        covariance = gp.kernel(KERNEL, x, x, lengthscales) + tau
        covariance.flat[:: len(y) + 1] += WHITE
        solved = cholesky(covariance).solve(centred)
        total, freedom = float(centred @ solved), float(len(y) - (not known))
        if self.nu:
            total += self.nu * self.variance / largest / largest
            freedom += self.nu
        scale = math.sqrt(total / freedom) if freedom and total else 1.0
        return Units(tau, mean, largest, tau * float(solved.sum()), scale)


@dataclass(frozen=True)
class Units:
    """What turns an agent's values of an output into common units: a line.

    Parameters
    ----------
    tau : prior variance of the agent's level, in common units
    mean, largest, level, scale : `y` becomes `((y - mean) / largest - level) / scale`
    """

    tau: float
    mean: float = 0.0
    largest: float = 1.0
    level: float = 0.0
    scale: float = 1.0

    def __call__(self, values: Array) -> Array:
        """Return values, or a limit, in common units; they may be larger than `LARGEST`."""
        if self.largest == np.inf:
            return np.zeros_like(values)
        return np.asarray(
            (finite.difference(values, self.mean) / self.largest - self.level) / self.scale, dtype=np.float64
        )

    def clipped(self, values: Array) -> Array:
        """Return values in common units, within `LARGEST`."""
        return np.asarray(np.clip(self(values), -LARGEST, LARGEST), dtype=np.float64)

    def limited(self, values: Array, least: float) -> tuple[Array, float]:
        """Return values `(n,)` within `LARGEST`, and the limit `least`, which the same of them hold."""
        bound = float(np.clip(self(np.array(least)), -LARGEST - 0.5, LARGEST + 0.5))
        y, holds = self.clipped(values), values >= least
        y = np.where(holds & (y < bound), LARGEST + 1.0, y)
        return np.where(~holds & (y >= bound), -LARGEST - 1.0, y), bound


def most_useful(z: Array, most: int) -> IntArray:
    """Return which rows a model uses, in their order: the best half of `most`, and the newest others.

    Rows that are left out once are never used again, so they need not be kept. Of rows with several values
    `z (m, S)` the best are those with the best places in any of them.
    """
    places = np.argsort(np.argsort(-z.reshape(len(z), -1), axis=0, kind="stable"), axis=0).min(axis=1)
    best = np.argsort(places, kind="stable")[: most // 2]
    newest = np.setdiff1d(np.arange(len(z)), best)[-(most - len(best)) :]
    return np.sort(np.concatenate([best, newest]))


def fitted_lengthscales(x: Array, z: Array, start: Array | None) -> Array:
    """Return `log l_F` and the other hyperparameters `(F + 2,)` that fit the rows best."""
    priors = fitting.Priors(lengthscale_stddev=0.6, noise_centre=math.exp(-1.0), noise_stddev=1.5)
    begin = None if start is None else start[None]
    found: Array = fitting.fit(x[None], z[None], KERNEL, begin, priors).theta[0]
    if not np.isfinite(found).all():
        raise NumericalError("trend: expected finite lengthscales, got others")
    return found
