"""A Gaussian process whose mean function several agents learn together, from sums over the agents.

Agent `m` observes `y_m = g(X_m) + r_m(X_m) + e`, with a shared function `g ~ GP(0, a k)`, a residual of its
own `r_m ~ GP(0, d k)`, and noise `e ~ N(0, s2 I)`. With `P` inducing points `Z`, the features are
`phi(x) = L^-1 k(Z, x)` where `L L^T = k(Z, Z)`, and `g = phi^T theta` up to a remainder that every agent
counts to its residual:

    y_m = Phi_m theta + u_m,   theta ~ N(0, a I),   u_m ~ N(0, C_m),
    C_m = (a + d) K_m - a Phi_m Phi_m^T + s2 I.

So every agent's function has the prior covariance `(a + d) k` exactly, whatever `P` is. Given `theta` the
agents are independent, and their data enter through

    Lambda_m = Phi_m^T C_m^-1 Phi_m,   eta_m = Phi_m^T C_m^-1 y_m,
    q_m = y_m^T C_m^-1 y_m + log |2 pi C_m|,

of which only sums over agents are needed: `theta | y ~ N(S eta, S)` with `S = (I / a + Lambda)^-1`, and the
log marginal likelihood of all data together is `-(q + log |I + a Lambda| - eta^T S eta) / 2`
[RW2006, App. A.3]. Here `a = 1 - d`, because observations are standardised; `d = 1` means that nothing is
shared. A point that was observed `n` times enters once, with the mean of its observations and the noise
variance `s2 / n`.

**GP-UCB** for few evaluations uses this model. An agent evaluates the point with the largest upper bound
`mean + 2 sd` [Srinivas2010]. All agents' first points are one Sobol sequence, so that together they cover the
cube.

[RW2006] Rasmussen and Williams, Gaussian processes for machine learning.
[Srinivas2010] Srinivas et al. Gaussian process optimization in the bandit setting. ICML 2010.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.linalg import Factor, cholesky
from fbo_flower.numerics.optim.sobol import sobol, unshifted
from fbo_flower.numerics.surrogates import gp

KERNEL = "matern52"
JITTER = 1e-8  # on k(Z, Z)
LENGTHSCALES = (0.05, 0.1, 0.2, 0.4, 0.8)  # times sqrt(D)
NOISES = (1e-4, 1e-3, 1e-2, 1e-1)  # relative to the variance of the observations
RESIDUALS = (0.02, 0.1, 0.4, 1.0)  # d


@dataclass(frozen=True)
class SharedMeanModel:
    """The hyperparameters and the inducing points.

    Parameters
    ----------
    dim : `D`
    lengthscale : of the kernel, the same on all axes
    noise_variance : `s2`, for standardised observations
    residual : `d`, share of the prior variance that belongs to the agent alone
    """

    dim: int
    lengthscale: float
    noise_variance: float
    residual: float

    def covariance(self, one: Array, other: Array) -> Array:
        """Return `k(one, other)`, `(n, m)`."""
        return gp.kernel(KERNEL, one, other, np.full(self.dim, self.lengthscale))

    def features(self, x: Array) -> Array:
        """Return `Phi`, `(n, P)`."""
        z = inducing_points(self.dim)
        factor = _inducing_factor(self.dim, self.lengthscale)
        return np.asarray(factor.solve_lower(self.covariance(z, x)).T, dtype=np.float64)


@dataclass(frozen=True)
class Evidence:
    """What one agent's data say about the shared function, or the sum of that over agents.

    Attributes
    ----------
    precision : `Lambda (P, P)`
    response : `eta (P,)`
    misfit : `q`
    """

    precision: Array
    response: Array
    misfit: float

    def __add__(self, other: Evidence) -> Evidence:
        return Evidence(
            self.precision + other.precision, self.response + other.response, self.misfit + other.misfit
        )

    def __sub__(self, other: Evidence) -> Evidence:
        return self + Evidence(-other.precision, -other.response, -other.misfit)


def num_inducing(dim: int) -> int:
    """Return `P`: 32 on a line, else 64."""
    return 32 if dim == 1 else 64


def inducing_points(dim: int) -> Array:
    """Return `Z (P, D)`, Sobol points, the same for all agents."""
    points = unshifted(num_inducing(dim), dim) * 2.0**-30 if dim <= 32 else None
    if points is None:
        return np.random.default_rng(0).random((num_inducing(dim), dim))
    return np.asarray(points + 0.5 / num_inducing(dim), dtype=np.float64) % 1.0


@lru_cache(maxsize=64)
def _inducing_factor(dim: int, lengthscale: float) -> Factor:
    z, model = inducing_points(dim), SharedMeanModel(dim, lengthscale, 0.0, 1.0)
    return cholesky(model.covariance(z, z) + JITTER * np.eye(len(z)))


def nothing(dim: int) -> Evidence:
    """Return the evidence of no data."""
    size = num_inducing(dim)
    return Evidence(np.zeros((size, size)), np.zeros(size), 0.0)


def evidence(model: SharedMeanModel, x: Array, y: Array, counts: Array) -> Evidence:
    """Return what an agent's data say about the shared function.

    Parameters
    ----------
    x : `(n, D)`, points
    y, counts : `(n,)`, means of the standardised observations at the points, and their numbers
    """
    phi = model.features(x)
    factor = cholesky(_own_covariance(model, x, phi, counts))
    white, white_y = factor.solve_lower(phi), factor.solve_lower(y)
    misfit = float(white_y @ white_y) + factor.log_determinant() + len(y) * math.log(2.0 * math.pi)
    return Evidence(white.T @ white, white.T @ white_y, misfit)


def log_likelihood(model: SharedMeanModel, total: Evidence) -> float:
    """Return the log marginal likelihood of all data in a sum of evidence."""
    shared = 1.0 - model.residual  # a
    if shared == 0.0:
        return -0.5 * total.misfit
    size = len(total.response)
    factor = cholesky(np.eye(size) + shared * total.precision)  # S = a (I + a Lambda)^-1
    fit = shared * float(total.response @ factor.solve(total.response))
    return -0.5 * (total.misfit + factor.log_determinant() - fit)


def log_likelihoods(dim: int, x: Array, y: Array, counts: Array, within: float) -> Array:
    """Return the log likelihood of one agent's data for each of `LENGTHSCALES` and `NOISES`, `(5, 4)`.

    It does not depend on `d`. The sum over agents ignores what they share.

    Parameters
    ----------
    within : sum of the squared deviations of all observations from the mean at their point
    """
    table = np.zeros((len(LENGTHSCALES), len(NOISES)))
    repeats = float(counts.sum()) - len(y)
    for row, scale in enumerate(LENGTHSCALES):
        model = SharedMeanModel(dim, scale * math.sqrt(dim), 0.0, 1.0)
        covariance = model.covariance(x, x)
        for column, noise in enumerate(NOISES):
            factor = cholesky(covariance + np.diag(noise / counts))
            white = factor.solve_lower(y)
            apart = repeats * math.log(2.0 * math.pi * noise) + within / noise + float(np.log(counts).sum())
            total = float(white @ white) + factor.log_determinant() + len(y) * math.log(2.0 * math.pi)
            table[row, column] = -0.5 * (total + apart)
    return table


@dataclass(frozen=True)
class Belief:
    """One agent's posterior of its own function; created by `belief`.

    Attributes
    ----------
    model, x : as given
    centre, spread : mean `(P,)` and covariance `(P, P)` of `theta` given the other agents' data
    factor, alpha : Cholesky factor of the covariance of `y`, and `(cov y)^-1 (y - mean)`
    """

    model: SharedMeanModel
    x: Array
    centre: Array
    spread: Array
    factor: Factor
    alpha: Array

    def predict(self, z: Array) -> tuple[Array, Array]:
        """Return mean and variance `(m,)` of the agent's function, without noise, at `z (m, D)`."""
        phi, shared = self.model.features(z), 1.0 - self.model.residual
        excess = self.spread - shared * np.eye(len(self.centre))
        cross = self.model.covariance(z, self.x) + phi @ excess @ self.model.features(self.x).T
        v = self.factor.solve_lower(cross.T)
        variance = 1.0 + np.einsum("ij,ij->i", phi @ excess, phi) - np.einsum("ij,ij->j", v, v)
        return phi @ self.centre + cross @ self.alpha, np.maximum(variance, 0.0)


def belief(model: SharedMeanModel, x: Array, y: Array, counts: Array, others: Evidence) -> Belief:
    """Condition an agent's function on its own data (as in `evidence`) and on the sum of others' evidence."""
    shared, size = 1.0 - model.residual, len(others.response)
    inner = cholesky(np.eye(size) + shared * others.precision)
    spread = shared * inner.inverse()
    centre = shared * inner.solve(others.response)
    phi = model.features(x)
    covariance = _own_covariance(model, x, phi, counts) + phi @ spread @ phi.T
    factor = cholesky(covariance)
    return Belief(model, x, centre, spread, factor, factor.solve(y - phi @ centre))


def _own_covariance(model: SharedMeanModel, x: Array, phi: Array, counts: Array) -> Array:
    """Return `C = (a + d) K - a Phi Phi^T + s2 diag(1 / counts)`, `(n, n)`."""
    own = model.covariance(x, x) - (1.0 - model.residual) * (phi @ phi.T)
    return np.asarray(own + np.diag(model.noise_variance / counts), dtype=np.float64)


DEVIATIONS = 2.0  # sqrt(beta)
MAX_POINTS = 256  # different points of one agent; after that it repeats the best of them
NUM_CANDIDATES, NUM_STARTS, NUM_NEAR = 512, 4, 24
STEPS = (0.4, 0.1, 0.03)  # of the points near a start, relative to the lengthscale


def design_size(dim: int, num_agents: int) -> int:
    """Return the number of an agent's first points: all agents together have at least `4 (D + 1)`."""
    return max(2, math.ceil(4 * (dim + 1) / num_agents))


def next_exchange(num_pulls: int) -> int:
    """Return the number of pulls per agent at the exchange after the one at `num_pulls`: a quarter more."""
    return num_pulls + max(1, num_pulls // 4)


def design(dim: int, num_agents: int, place: int, first: int, count: int, seed: int) -> Array:
    """Return points `first .. first + count - 1` of the agent at `place`, `(count, D)`."""
    points = sobol((first + count) * num_agents, dim, np.random.default_rng(seed))
    return np.asarray(points[first * num_agents :][place::num_agents], dtype=np.float64)


def choose(belief: Belief, rng: np.random.Generator) -> Array:
    """Return the point `(D,)` with the largest upper bound found: Sobol points, then points near the best."""
    dim, x = belief.model.dim, belief.x
    if len(x) >= MAX_POINTS:
        return np.asarray(x[int(np.argmax(_bound(belief, x)))], dtype=np.float64)
    candidates = sobol(NUM_CANDIDATES, dim, rng)
    if len(x):
        best = x[np.argsort(-belief.predict(x)[0], kind="stable")[:NUM_STARTS]]
        candidates = np.concatenate([candidates, best, _near(best, STEPS[0] * belief.model.lengthscale, rng)])
    bound = _bound(belief, candidates)
    for step in STEPS:
        starts = candidates[np.argsort(-bound, kind="stable")[:NUM_STARTS]]
        near = _near(starts, step * belief.model.lengthscale, rng)
        candidates = np.concatenate([candidates, near])
        bound = np.concatenate([bound, _bound(belief, near)])
    return np.asarray(candidates[int(np.argmax(bound))], dtype=np.float64)


def _near(points: Array, stddev: float, rng: np.random.Generator) -> Array:
    """Return `NUM_NEAR` normal draws around each point, within the cube."""
    steps = stddev * rng.standard_normal((NUM_NEAR, *points.shape))
    return np.asarray(np.clip(points + steps, 0.0, 1.0).reshape(-1, points.shape[1]), dtype=np.float64)


def _bound(belief: Belief, z: Array) -> Array:
    mean, variance = belief.predict(z)
    return np.asarray(mean + DEVIATIONS * np.sqrt(variance), dtype=np.float64)
