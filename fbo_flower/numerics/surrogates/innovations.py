"""Do an agent's values grow with something, beyond what its own earlier values predict?

Values at points that lie close together are alike, and an agent chooses its points by earlier values. So a
plain regression of values on a function `m` of the points overstates the evidence. Here each value is
compared with the prediction from the agent's earlier points only. Let `L L^T` be the covariance of the values
under a Matern-5/2 process, `o = L^-1 1`, `u = L^-1 y`, and `b_t = sum_(i<t) o_i u_i / sum_(i<t) o_i^2` the
estimate of the unknown mean. The errors of prediction in standard deviations are the recursive residuals

    e_t = (u_t - o_t b_t) / sqrt(1 + o_t^2 / sum_(i<t) o_i^2),    t = 1, 2, ...

of generalised least squares [Brown1975]. With `d_t`, the same of `m`, the sums `S = sum d_t e_t` and
`V = sum d_t^2` are those of a regression. If `y` has nothing to do with `m`, each summand of `S` has mean 0
given all that was known when its point was chosen, however it was chosen, provided that `m` was known then
too. So `S / sqrt(V)` is about standard normal, also after many rounds with a different `m` in each.

[Brown1975] Brown, Durbin, Evans: Techniques for testing the constancy of regression relationships over time,
Journal of the Royal Statistical Society B 37, 1975.
"""

from __future__ import annotations

import math

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.surrogates.kernels import kernel

LENGTHSCALE = 0.3  # divided by sqrt(F): the centre of the prior of `ei`
NOISE_VARIANCE = 1e-2  # of the process's variance; keeps close points from weighing too much


def innovations(x: Array, columns: Array) -> Array:
    """Return the recursive residuals of columns `(n, k)` at points `x (n, F)`, `(n - 1, k)`; `n > 0`."""
    covariance = kernel("matern52", x, x, np.full(x.shape[1], LENGTHSCALE * math.sqrt(x.shape[1])))
    covariance.flat[:: len(x) + 1] += NOISE_VARIANCE
    white = cholesky(covariance).solve_lower(np.column_stack([np.ones(len(x)), columns]))
    ones, rest = white[:, :1], white[:, 1:]
    squares = np.cumsum(ones**2, axis=0)[:-1]
    means = np.cumsum(ones * rest, axis=0)[:-1] / squares
    errors = (rest[1:] - ones[1:] * means) / np.sqrt(1.0 + ones[1:] ** 2 / squares)
    return np.asarray(errors, dtype=np.float64)


def foresight(x: Array, y: Array, m: Array, first: int = 0) -> Array:
    """Return `[sum d_t e_t, sum d_t^2]` over `t >= first`; these sums add over agents and rounds.

    The errors `e_t` are divided by their root mean square, so the scale of `y` does not matter.

    Parameters
    ----------
    x : `(n, F)`, an agent's points in the order of evaluation; `n` may be 0
    y, m : `(n,)`
    """
    if len(y) < 2:
        return np.zeros(2)
    errors, directions = innovations(x, np.column_stack([y, m])).T
    scale = math.sqrt(float(errors @ errors) / len(errors))
    if scale <= 1e-12 * float(np.abs(y).max()):  # all values are equal
        return np.zeros(2)
    new = slice(max(first - 1, 0), None)
    return np.array([directions[new] @ errors[new] / scale, directions[new] @ directions[new]])
