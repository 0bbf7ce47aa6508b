"""The stacked acquisition of `ei` and `fed-ei` is the sum of its parts, which have tests of their own."""

from __future__ import annotations

import numpy as np
import pytest

from fbo_flower.numerics.acquisition.guided import GuidedImprovement
from fbo_flower.numerics.acquisition.log_ei import LogExpectedImprovement
from fbo_flower.numerics.acquisition.tilt import Tilt
from fbo_flower.numerics.optim.functions import LinearFunction, Sum
from fbo_flower.numerics.optim.stacks import shape_of, stack_of
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.condition_many import condition
from fbo_flower.numerics.surrogates.rff import draw_features

HYPERPARAMETERS = gp.Hyperparameters("matern52", np.array([0.3, 0.5, 0.8]), 1.4, 1e-3)


def parts(seed: int, n: int = 9):
    """Return the function, and the same from its plain parts."""
    rng = np.random.default_rng(seed)
    x, y = rng.random((n, 3)), rng.standard_normal(n)
    trend = LinearFunction(draw_features(40, 0.6, 3, rng), rng.standard_normal(40), 0.3)
    tilt = Tilt(rng.random((5, 3)), 0.2, 1.7)
    process = condition(x[None], y[None], [HYPERPARAMETERS])[0]
    plain = Sum(LogExpectedImprovement(gp.posterior(x, y, HYPERPARAMETERS), 0.4, trend), tilt)
    return GuidedImprovement(process, 0.4, trend, tilt), plain


def test_values_are_those_of_the_parts() -> None:
    z = np.random.default_rng(9).random((50, 3))
    for n in (0, 1, 9):
        function, plain = parts(1, n)
        np.testing.assert_allclose(function(z), plain(z), rtol=1e-8)


def test_scores_and_gradients_are_those_of_the_parts_within_single_precision() -> None:
    z = np.random.default_rng(9).random((50, 3))
    for n in (0, 1, 9):
        function, plain = parts(2, n)
        expected, slopes = plain.value_and_gradient(z)
        np.testing.assert_allclose(stack_of([function]).scores(z[None])[0], expected, rtol=1e-4)
        values, gradients = function.value_and_gradient(z)
        np.testing.assert_allclose(values, expected, rtol=1e-4)
        np.testing.assert_allclose(gradients, slopes, rtol=1e-3, atol=1e-3)


def test_without_a_trend_and_a_tilt_it_is_log_expected_improvement() -> None:
    function, _ = parts(3)
    bare = GuidedImprovement(function.process, 0.4)
    plain = LogExpectedImprovement(gp.posterior(bare.process.x, parts_values(3), HYPERPARAMETERS), 0.4)
    z = np.random.default_rng(9).random((50, 3))
    np.testing.assert_allclose(bare(z), plain(z), rtol=1e-8)
    np.testing.assert_allclose(
        bare.value_and_gradient(z)[1], plain.value_and_gradient(z)[1], rtol=1e-6, atol=1e-8
    )


def parts_values(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rng.random((9, 3))
    return rng.standard_normal(9)


def test_there_is_no_gradient_of_the_variance_where_it_is_cut_off() -> None:
    exact = gp.Hyperparameters("matern52", np.full(3, 30.0), 1.0, 1e-6)
    x, y = np.random.default_rng(4).random((1, 12, 3)), np.zeros((1, 12))
    function = GuidedImprovement(condition(x, y, [exact])[0], 0.5)
    values, gradients = function.value_and_gradient(x[0])
    assert np.isfinite(values).all()
    assert np.isfinite(gradients).all()


@pytest.mark.parametrize("kind", ["trend", "tilt", "points"])
def test_functions_of_another_form_are_not_stacked(kind: str) -> None:
    function, _ = parts(5)
    others = {
        "trend": GuidedImprovement(function.process, 0.4, None, function.tilt),
        "tilt": GuidedImprovement(function.process, 0.4, function.trend),
        "points": parts(5, 8)[0],
    }
    assert shape_of(function) == shape_of(parts(6)[0])
    assert shape_of(function) != shape_of(others[kind])
