"""Functions of the standard normal that are precise in the tails, and draws whose mean is exactly 0.

`h(z) = E max(Z + z, 0) = phi(z) + z Phi(z)` is part of the knowledge gradient and of expected improvement.
For `z << 0` its two terms cancel, so it is computed as `phi(z) r(z)` with `r(z) = 1 + z Phi(z) / phi(z)` from
the scaled complementary error function, and from the asymptotic series of `r` below -40 [Ament2023, section
4].

[Ament2023] Ament, Daulton, Eriksson, Balandat, Bakshy. Unexpected improvements to expected improvement for
Bayesian optimization. NeurIPS 2023.
"""

from __future__ import annotations

import functools
import math
from types import ModuleType

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.sobol import BITS, sobol

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
FAR = -40.0  # below it the fifth term of the series is below 1e-12 of the first
HIGH = 36.0  # above it h(z) = z to the last bit, and Mills' ratio overflows soon


@functools.cache
def _special() -> ModuleType:
    """Return `scipy.special`, imported at the first call, because the import is slow."""
    from scipy import special

    return special


def excess(z: Array) -> Array:
    """Return `h(z) = E max(Z + z, 0)`, to full relative precision until it underflows at `z = -38`."""
    left = np.maximum(-np.abs(z), FAR)  # h(z) = z + h(-z)
    tail = np.exp(-0.5 * left * left - LOG_SQRT_2PI) * (1 + left * mills(left))
    return np.asarray(np.maximum(z, 0.0) + tail, dtype=np.float64)


def log_excess(z: Array) -> Array:
    """Return `log h(z)`, finite for every finite `z` above -1e154; `-inf` at `-inf`."""
    z = np.asarray(z, dtype=np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / np.square(np.minimum(z, FAR))
        series = inverse * (1 - inverse * (3 - inverse * (15 - inverse * (105 - inverse * 945))))
        near = np.clip(z, FAR, 0.0)
        left = np.log(np.where(z < FAR, series, 1 + near * mills(near))) - 0.5 * z * z - LOG_SQRT_2PI
        return np.asarray(np.where(z > 0, np.log(excess(np.maximum(z, 0.0))), left), dtype=np.float64)


def excess_ratios(z: Array) -> tuple[Array, Array, Array]:
    """Return `log h(z)`, and `phi(z) / h(z)` and `Phi(z) / h(z)`, the factors of its gradient.

    The relative error is 1e-12. The ratios stay finite and positive where `phi`, `Phi` and `h` underflow.
    There they grow like `z^2` and `|z|`. One ratio `r = Phi / phi` serves all three: `h / phi = 1 + z r`,
    also for `z > 0`.
    """
    near = np.minimum(np.maximum(z, FAR), HIGH)
    ratio = mills(near)
    lift = 1.0 + near * ratio  # h / phi
    log_h = np.log(lift) - 0.5 * near * near - LOG_SQRT_2PI
    density, probability = 1.0 / lift, ratio / lift
    beyond = near != z
    if beyond.any():
        low, high = z < FAR, z > HIGH
        inverse = 1.0 / np.square(z[low])
        series = inverse * (1 - inverse * (3 - inverse * (15 - inverse * (105 - inverse * 945))))
        log_h[low] = np.log(series) - 0.5 * np.square(z[low]) - LOG_SQRT_2PI
        density[low], probability[low] = 1.0 / series, (series - 1.0) / (z[low] * series)
        log_h[high], density[high], probability[high] = np.log(z[high]), 0.0, 1.0 / z[high]
    return log_h, density, probability


def mills(z: Array) -> Array:
    """Return `Phi(z) / phi(z)` for `z <= 36`, Mills' ratio of `-z`: 0 at `-inf`."""
    return np.asarray(math.sqrt(math.pi / 2) * _special().erfcx(z * -math.sqrt(0.5)), dtype=np.float64)


def log_cdf(z: Array) -> Array:
    """Return `log Phi(z)`, precise in both tails."""
    return np.asarray(_special().log_ndtr(z), dtype=np.float64)


def centred_draws(num_draws: int, dimension: int, rng: np.random.Generator) -> Array:
    """Return standard normal draws `(M, N)` from shifted Sobol points, minus their column means.

    The mean of `max_z (a_z + b_z^T xi)` over draws of mean 0 is at least `max_z a_z` (Jensen), and exact
    where one `z` is best for every draw. So even gains that are far smaller than the sampling error of
    independent draws are ranked correctly.

    Parameters
    ----------
    num_draws : `M`, at least 2; a power of two is balanced
    dimension : `N`; above 32 the uniform points are independent draws
    """
    if num_draws < 2 or dimension < 1:
        raise ConfigError(
            f"draws: expected at least 2 of 1 dimension or more, got {num_draws} of {dimension}"
        )
    half_step = 0.5 ** (BITS + 1)  # keeps away from 0 and 1, whose quantiles are infinite
    uniform = np.clip(sobol(num_draws, dimension, rng), half_step, 1 - half_step)
    normal = np.asarray(_special().ndtri(uniform), dtype=np.float64)
    return np.asarray(normal - normal.mean(axis=0))
