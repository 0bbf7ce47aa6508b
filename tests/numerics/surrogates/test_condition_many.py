"""Processes that are conditioned together are those of `gp.posterior`."""

from __future__ import annotations

import numpy as np
import pytest

from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.condition_many import condition


@pytest.mark.parametrize("n", [0, 1, 7])
def test_each_process_is_its_posterior(n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.random((5, n, 2)), rng.standard_normal((5, n))
    drawn = [gp.Hyperparameters("matern52", 0.2 + rng.random(2), 0.5 + rng.random(), 1e-3) for _ in x]
    for b, found in enumerate(condition(x, y, drawn)):
        expected = gp.posterior(x[b], y[b], drawn[b])
        np.testing.assert_allclose(found.alpha, expected.alpha, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.inverse, expected.factor.inverse(), rtol=1e-7, atol=1e-7)
        np.testing.assert_array_equal(found.inverse, found.inverse.T)
        np.testing.assert_allclose(found.means, expected.predict(x[b])[0], rtol=1e-7, atol=1e-9)


def test_repeated_points_with_the_least_noise_can_be_conditioned() -> None:
    least = gp.Hyperparameters("rbf", np.array([1.0]), 1.0, gp.NOISE_BOUNDS[0])
    found = condition(np.full((2, 6, 1), 0.5), np.ones((2, 6)), [least, least])
    np.testing.assert_allclose(found[1].means, 1.0, rtol=1e-5)
