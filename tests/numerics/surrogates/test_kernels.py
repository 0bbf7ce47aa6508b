import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

from fbo_flower.numerics.surrogates import kernels

LENGTHSCALES = np.array([0.2, 0.7, 1.5])


def points(n, seed=0):
    return np.random.default_rng(seed).random((n, 3))


@pytest.mark.parametrize(
    ("name", "oracle"), [("rbf", RBF(LENGTHSCALES)), ("matern52", Matern(LENGTHSCALES, nu=2.5))]
)
def test_kernels_and_slopes_are_those_of_scikit_learn(name, oracle):
    x1, x2 = points(7), points(5, seed=1)
    np.testing.assert_allclose(kernels.kernel(name, x1, x2, LENGTHSCALES), oracle(x1, x2), atol=1e-13)
    assert kernels.kernel(name, x1[:0], x2, LENGTHSCALES).shape == (0, 5)
    _, gradient = oracle(x1, eval_gradient=True)
    _, slope = kernels.profile_and_slope(name, kernels.squared_distances(x1, x1, LENGTHSCALES))
    scaled = (x1 / LENGTHSCALES).T
    ours = slope * (scaled[:, :, None] - scaled[:, None, :]) ** 2  # dk / d log l
    np.testing.assert_allclose(ours, np.moveaxis(gradient, -1, 0), atol=1e-13)
