"""A Gaussian process whose observations have known variances of their own besides the common one.

`y_i = f(x_i) + e_i` with `e_i ~ N(0, s2 + v_i)`: `v_i` is known and `s2` is fitted, as everything else is, by
the mode of the posterior of the hyperparameters with the priors of `gp`. With `v = 0` this is `gp_many.fit`.
Notation: as in `gp`; `K_v = K + s2 I + diag(v)` takes the place of `K + s2 I` in [RW2006, Eqs. 5.8-5.9].
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates import gp, gp_many, kernels
from fbo_flower.numerics.surrogates.gp_many import Conditioned


def fit(
    x: Array, y: Array, variances: Array, kernel: str, priors: gp.Priors = gp.DEFAULT_PRIORS
) -> gp.Hyperparameters:
    """Return the mode of the hyperparameters' posterior, found from the mode of the prior.

    Parameters
    ----------
    x, y : `(n, F)` and `(n,)`, observations; `n` may be 0
    variances : `(n,)`, the known `v`
    """
    _check(x, y, variances)
    centres = np.exp(gp.prior(x.shape[1], priors)[0])
    known = gp_many.Known(np.diag(variances), centres[:-2], priors.lengthscale_stddev, float(centres[-2]))
    modes = gp_many.fit(x[None], y[None], kernel, priors=priors, known=[known])
    return gp.Hyperparameters.from_array(kernel, modes.theta[0])


def condition(x: Array, y: Array, variances: Array, hyperparameters: gp.Hyperparameters) -> Conditioned:
    """Condition the process on its observations; `Conditioned.inverse` is then `K_v^-1`."""
    _check(x, y, variances)
    found = gp_many.condition(x[None], y[None], [hyperparameters], np.diag(variances)[None])[0]
    return replace(found, means=found.means - variances * found.alpha)  # v is noise, not of the function


def cross_covariance(z: Array, process: Conditioned) -> Array:
    """Return `k(z, X)` `(m, n)`; times `alpha` it is the posterior mean at `z (m, F)`."""
    h = process.hyperparameters
    return np.asarray(h.outputscale * kernels.kernel(h.kernel, z, process.x, h.lengthscales))


def _check(x: Array, y: Array, variances: Array) -> None:
    if x.ndim != 2 or y.shape != (len(x),) or variances.shape != (len(x),):
        raise ConfigError(
            f"data: expected x (n, F), y (n,) and variances (n,), got {x.shape}, {y.shape} and "
            f"{variances.shape}"
        )
    if not (variances >= 0.0).all():
        raise ConfigError(f"variances: expected numbers >= 0, got {variances.tolist()}")
