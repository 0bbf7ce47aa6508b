"""Differential privacy of noisy sums (Gaussian mechanism): privacy cost of one release and of many.

A release adds `N(0, (z D)^2 I)` to a sum to which one participant contributes a vector of norm at most `D`
(the sensitivity). With Poisson subsampling, each participant is in the sum with probability `q`. Neighbouring
data sets differ by one participant. Costs are Renyi divergences of several orders; they add up over adaptive
releases and are converted to `(epsilon, delta)` at the end.

[Mironov2019] Mironov, Talwar, Zhang: Renyi differential privacy of the sampled Gaussian mechanism.
[Canonne2020] Canonne, Kamath, Steinke: The discrete Gaussian for differential privacy, Prop. 12.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, logsumexp

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array

_INTEGERS = np.concatenate([np.arange(2.0, 129.0), 2.0 ** np.arange(7.5, 12.1, 0.5).round(1)]).round()
# orders `a`; log-moments of fractional orders are interpolated, see `log_moments`
ORDERS: Array = np.unique(np.concatenate([1 + np.arange(1, 100) / 10, _INTEGERS]))


def log_moments(sampling_rate: float, noise_multiplier: float) -> Array:
    """Return `(a - 1)` times the Renyi divergence of one release, for every order `a` in `ORDERS`.

    For whole `a`: `log sum_k binom(a, k) (1-q)^(a-k) q^k exp((k^2 - k) / 2z^2)` [Mironov2019, Eq. 30]. As a
    function of `a` this is convex and 0 at `a = 1`, so between whole numbers a chord bounds it from above.
    Without sampling (`q = 1`) it is `a (a - 1) / 2z^2` for every `a`.

    Parameters
    ----------
    sampling_rate : `q` in `[0, 1]`
    noise_multiplier : `z > 0`, s.d. of the noise over the sensitivity

    Raises
    ------
    ConfigError
        If a parameter is out of bounds.
    """
    q, z = sampling_rate, noise_multiplier
    if not (0.0 <= q <= 1.0 and z > 0.0 and math.isfinite(z)):
        raise ConfigError(f"privacy: expected 0 <= q <= 1 and z > 0, got q = {q} and z = {z}")
    if q == 0.0:
        return np.zeros_like(ORDERS)
    if q == 1.0:
        return np.asarray(ORDERS * (ORDERS - 1) / (2 * z**2))  # a (a - 1) / 2z^2
    whole = np.unique(np.concatenate([np.floor(ORDERS), np.ceil(ORDERS)]))
    moments = [0.0 if a == 1 else _log_moment(int(a), q, z) for a in whole]
    return np.asarray(np.interp(ORDERS, whole, moments))


def epsilon_of(total: Array, delta: float) -> float:
    """Return the smallest `epsilon` at which releases with these log-moments are `(epsilon, delta)`-DP.

    `min_a R_a + log(1 - 1/a) - (log delta + log a) / (a - 1)` [Canonne2020], at least 0.

    Parameters
    ----------
    total : shape of `ORDERS`, sum of `log_moments` over the releases
    delta : in `(0, 1)`
    """
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta: expected a number between 0 and 1, got {delta}")
    if not np.any(total):
        return 0.0
    renyi = total / (ORDERS - 1)  # R_a
    # R_a + log(1 - 1/a) - (log delta + log a) / (a - 1) [Canonne2020, Prop. 12]
    bounds = renyi + np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return max(0.0, float(np.min(bounds)))


def epsilon_of_releases(
    num_releases: int, sampling_rate: float, noise_multiplier: float, delta: float
) -> float:
    """Return `epsilon` after `num_releases` equal releases; infinite if they have no noise.

    >>> round(epsilon_of_releases(10, 1.0, 1.0, 1e-5), 2)
    19.05
    """
    if num_releases == 0 or sampling_rate == 0.0:
        return 0.0
    if noise_multiplier == 0.0:
        return math.inf
    return epsilon_of(num_releases * log_moments(sampling_rate, noise_multiplier), delta)


def clip_norm(vector: Array, bound: float) -> Array:
    """Return the vector, scaled to norm `bound` if its norm is larger."""
    norm = float(np.linalg.norm(vector))
    return vector if norm <= bound else vector * (bound / norm)


def _log_moment(order: int, q: float, z: float) -> float:
    # log sum_k binom(a, k) (1-q)^(a-k) q^k exp((k^2 - k) / 2z^2) [Mironov2019, Eq. 30]
    k = np.arange(order + 1.0)
    binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    terms = binomial + (order - k) * math.log1p(-q) + k * math.log(q) + (k * k - k) / (2 * z**2)
    return max(0.0, float(logsumexp(terms)))
