"""log EI of a mixture: moments of the mixture, EI by quadrature, gradients, and a single process."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import check_grad
from scipy.stats import norm

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition.log_ei import LogImprovement
from fbo_flower.numerics.surrogates import gp
from studies.peers.fmtbo import LogMixtureImprovement

RNG = np.random.default_rng(0)
X, Y = RNG.random((8, 3)), RNG.standard_normal(8)
Z = RNG.random((5, 3))


def posterior(scale: float) -> gp.Posterior:
    return gp.posterior(X, Y, gp.Hyperparameters("matern52", np.array([scale, 2 * scale, 0.5]), 1.3, 0.01))


BOTH = [posterior(0.3), posterior(0.9)]


def test_mean_and_variance_are_those_of_draws_from_the_mixture():
    draws = np.random.default_rng(1)
    mean, variance = LogMixtureImprovement(BOTH, [0.3, 0.7], 0.0).predict(Z)
    for place, z in enumerate(Z):
        which = draws.random(400_000) < 0.3
        (m1,), (v1,) = BOTH[0].predict(z[None, :])
        (m2,), (v2,) = BOTH[1].predict(z[None, :])
        noise = draws.standard_normal(400_000)
        drawn = np.where(which, m1 + np.sqrt(v1) * noise, m2 + np.sqrt(v2) * noise)
        assert mean[place] == pytest.approx(drawn.mean(), abs=0.01)
        assert variance[place] == pytest.approx(drawn.var(), rel=0.02)


def test_it_is_the_logarithm_of_the_expected_improvement_under_these_moments():
    found = LogMixtureImprovement(BOTH, [0.5, 0.5], 0.4)
    for z, value in zip(Z, found(Z), strict=True):
        (m,), (v,) = found.predict(z[None, :])
        law = norm(m, np.sqrt(v))
        expected = quad(lambda f, law=law: (f - 0.4) * law.pdf(f), 0.4, m + 12 * np.sqrt(v))[0]
        assert value == pytest.approx(np.log(expected), abs=1e-6)


def test_the_gradient_is_that_of_the_value():
    found = LogMixtureImprovement(BOTH, [0.25, 0.75], 0.4)
    values, _ = found.value_and_gradient(Z)
    np.testing.assert_allclose(values, found(Z), rtol=1e-9)
    for z in Z:
        error = check_grad(
            lambda p: float(found(p[None, :])[0]), lambda p: found.value_and_gradient(p[None, :])[1][0], z
        )
        assert error < 1e-4


def test_a_mixture_of_equal_processes_is_that_process():
    one = LogImprovement(BOTH[0], 0.2)
    np.testing.assert_allclose(LogMixtureImprovement([BOTH[0]] * 2, [0.5, 0.5], 0.2)(Z), one(Z), rtol=1e-7)


def test_weights_are_checked():
    with pytest.raises(ConfigError, match="sum 1"):
        LogMixtureImprovement(BOTH, [0.5, 0.6], 0.0)
