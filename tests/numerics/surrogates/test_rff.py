import numpy as np
import pytest
from acquisition_cases import slopes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fbo_flower.numerics.surrogates import gp, rff

NOISE = 0.05


def rng(seed=0):
    return np.random.default_rng(seed)


def problem(n):
    features = rff.draw_features(6, 0.4, 2, rng())
    x = rng(1).random((n, 2))
    return features, x, np.sin(5.0 * x[:, 0]) + 0.1 * rng(2).standard_normal(n)


@given(st.floats(-1e4, 1e4), st.integers(1, 40))
def test_cosines_agree_with_numpys(offset, n):
    features = rff.RandomFeatures(rng().standard_normal((500, 2)) * 10, offset + rng().random(500))
    x = rng(n).random((n, 2))
    np.testing.assert_allclose(features.cosines(x), np.cos(features.angles(x)), atol=1e-11)
    small = rff.RandomFeatures(features.frequencies, rng().uniform(0, 2 * np.pi, 500))
    np.testing.assert_allclose(small.cosines(x), np.cos(small.angles(x)), atol=2e-14)


@pytest.mark.parametrize("name", gp.KERNELS)
def test_features_approximate_their_own_kernel_and_no_other(name):
    x, lengthscales = rng(5).random((15, 2)), np.array([0.3, 0.6])

    def error(drawn):
        phi = rff.draw_features(6400, lengthscales, 2, rng(0), drawn).cosines(x)
        return np.sqrt(np.mean((phi @ phi.T * (2 / 6400) - gp.kernel(name, x, x, lengthscales)) ** 2))

    (other,) = set(gp.KERNELS) - {name}
    assert error(name) < 0.015
    assert error(other) > 0.03


def test_the_gradient_goes_through_the_normalisation():
    features = rff.draw_features(7, 0.3, 3, rng())
    weights, x = rng(1).standard_normal(7), rng(2).random((4, 3))
    np.testing.assert_allclose(np.linalg.norm(features(x), axis=1), 1.0)
    values, gradients = features.value_and_gradient(x, weights)
    np.testing.assert_allclose(values, features(x) @ weights)
    np.testing.assert_allclose(gradients, slopes(lambda z: features(z) @ weights, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [0, 30])
def test_drawn_weights_have_the_law_of_bayesian_linear_regression_and_other_laws_are_told_apart(n):
    features, x, y = problem(n)
    phi = features(x)
    nu, inverse = rff.weight_posterior(phi, y, NOISE)
    precision = np.eye(6) + phi.T @ phi / NOISE  # of omega ~ N(0, I) given y
    np.testing.assert_allclose(NOISE * inverse, np.linalg.inv(precision), atol=1e-12)
    np.testing.assert_allclose(nu, np.linalg.solve(precision, phi.T @ y / NOISE), atol=1e-10)
    root, generator = np.linalg.cholesky(NOISE * inverse), rng(3)

    def p_value(values):
        many = np.broadcast_to(x, (2000, *x.shape)), np.broadcast_to(values, (2000, n))
        draws = rff.sample_weights([features] * 2000, *many, NOISE, [generator] * 2000)
        white = np.linalg.solve(root, (draws - nu).T).T
        return stats.kstest((white**2).sum(axis=1), stats.chi2(6).cdf).pvalue

    assert p_value(y) > 0.001
    assert n == 0 or p_value(np.roll(y, 1)) < 1e-6, "negative control: wrong pairs"


@pytest.mark.parametrize("n", [1, 5])
def test_weights_of_few_points_are_drawn_by_the_formula(n):
    x, y = rng(0).random((6, n, 2)), rng(1).standard_normal((6, n))
    features = rff.draw_features(20, 0.4, 2, rng(2))
    drawn = rff.sample_weights([features] * 6, x, y, 0.02, [rng(3 + b) for b in range(6)])
    for b, weights in enumerate(drawn):
        phi, generator = features(x[b]), rng(3 + b)
        w0, e = generator.standard_normal(20), np.sqrt(0.02) * generator.standard_normal(n)
        solved = np.linalg.solve(phi @ phi.T + 0.02 * np.eye(n), y[b] - phi @ w0 - e)
        np.testing.assert_allclose(weights, w0 + phi.T @ solved, rtol=0, atol=1e-9)
