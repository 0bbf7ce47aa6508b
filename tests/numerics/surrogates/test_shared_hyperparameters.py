import numpy as np
import pytest

from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates import shared_hyperparameters as grid


def draw(n, lengthscale, noise_variance, rng):
    """Observations of a draw from the prior with outputscale 1; the last point repeats the first."""
    x = rng.random((n, 2))
    x[-1] = x[0]
    k = gp.kernel("rbf", x, x, np.full(2, lengthscale))
    f = np.linalg.cholesky(k + 1e-10 * np.eye(n)) @ rng.standard_normal(n)
    return x, f + np.sqrt(noise_variance) * rng.standard_normal(n)


@pytest.mark.parametrize("kernel", gp.KERNELS)
def test_log_likelihoods_are_those_of_the_process_with_each_hyperparameters(kernel):
    rng = np.random.default_rng(0)
    x, y = rng.random((7, 3)), rng.standard_normal(7)
    shape = np.array([0.5, 1.0, 2.0])
    found = grid.log_likelihoods(x, y, kernel, shape).reshape(grid.SHAPE)
    for i, j, k in ((0, 0, 11), (4, 2, 6), (8, 4, 3), (2, 3, 9)):
        lengthscales = grid.SCALES[i] * grid.reference(3) * shape
        h = gp.Hyperparameters(kernel, lengthscales, grid.OUTPUTSCALES[j], grid.NOISE_VARIANCES[k])
        assert found[i, j, k] == pytest.approx(gp.log_marginal_likelihood(x, y, h)[0], rel=1e-6)


def test_without_observations_the_estimate_is_the_mean_of_the_prior():
    scale, outputscale, noise = grid.estimate(np.zeros(grid.SIZE))
    assert (scale, outputscale) == pytest.approx((0.0, 0.0), abs=1e-9)
    assert noise == pytest.approx(np.log(grid.NOISE_CENTRE), abs=0.7)  # the grid ends at 1e-6 and 1


def test_huge_drops_of_the_likelihood_leave_the_estimate_where_the_likelihood_is_large():
    """As where the noise is too small: a spline would overshoot there by more than the peak's height."""
    total = np.full(grid.SHAPE, -1e9)
    total[4:6, 2:4, 8:10] = 0.0
    axes = (grid.SCALES[4:6], grid.OUTPUTSCALES[2:4], grid.NOISE_VARIANCES[8:10])
    for found, (low, high) in zip(grid.estimate(total.ravel()), axes, strict=True):
        assert np.log(low) <= found <= np.log(high)


def test_many_observations_find_all_three_and_a_known_noise_decides_the_other_two():
    data = [draw(25, 0.25, 0.05, np.random.default_rng(agent)) for agent in range(16)]
    total = sum(grid.log_likelihoods(x, y, "rbf", np.ones(2)) for x, y in data)
    scale, outputscale, noise = grid.estimate(total)
    assert scale + np.log(grid.reference(2)) == pytest.approx(np.log(0.25), abs=0.15)
    assert outputscale == pytest.approx(0.0, abs=0.4)
    assert noise == pytest.approx(np.log(0.05), abs=0.4)
    rough, smooth = grid.estimate(total, 1e-6), grid.estimate(total, 0.05)
    assert rough[2] == pytest.approx(np.log(1e-6))
    assert smooth[2] == pytest.approx(np.log(0.05), abs=0.2)
    assert rough[0] < smooth[0]  # noise that must be structure is short
    assert grid.estimate(total, 0.0)[2] == pytest.approx(np.log(1e-6))
