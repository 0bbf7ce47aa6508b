import numpy as np
import pytest
from acquisition_cases import mesh
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from fbo_flower.numerics.surrogates import gp, pivots, pooling

POINTS = mesh(12)
H = gp.Hyperparameters("rbf", np.full(2, 0.25), 1.3, 0.02)
CHOSEN = pivots.choose_pivots(POINTS, H, 1e-10)
AT = POINTS[CHOSEN.index]


def data(n, seed=0, *, on_points=True):
    rng = np.random.default_rng(seed)
    x = POINTS[rng.integers(0, len(POINTS), n)] if on_points else rng.random((n, 2))
    return x, np.sin(5.0 * x[:, 0]) + np.cos(7.0 * x[:, 1]) + 0.14 * rng.standard_normal(n)


@pytest.mark.parametrize("num_agents", [1, 4])
def test_pooling_equals_the_posterior_of_the_pooled_data(num_agents):
    x, y = data(40)
    parts = [pooling.observe(x[i::num_agents], y[i::num_agents], AT, H) for i in range(num_agents)]
    kernel = ConstantKernel(H.outputscale) * RBF(H.lengthscales)
    theirs = GaussianProcessRegressor(kernel, optimizer=None, alpha=H.noise_variance).fit(x, y)
    expected, expected_covariance = theirs.predict(POINTS, return_cov=True)
    for found in (parts, [sum(parts[1:], parts[0])]):  # one by one, or summed before
        mean, covariance = pooling.pool(found)
        np.testing.assert_allclose(CHOSEN.basis @ mean, expected, atol=1e-6)
        np.testing.assert_allclose(CHOSEN.basis @ covariance @ CHOSEN.basis.T, expected_covariance, atol=1e-6)
    # a negative control: the mean of the posteriors is not the posterior
    means = [gp.posterior(x[i::4], y[i::4], H).predict(POINTS)[0] for i in range(4)]
    assert np.abs(np.mean(means, axis=0) - expected).max() > 0.1


def test_what_a_coarse_set_leaves_open_counts_as_noise():
    """Few pivots: without the open variance as noise the belief is far too sure."""
    coarse = POINTS[::29]
    x, y = data(60, on_points=False)
    factor = pivots.pivot_factor(coarse, H)
    exact = gp.posterior(x, y, H)
    truth, covariance = exact.predict(coarse)[0], exact.covariance(coarse)

    def error(increment):
        m, c = pooling.pool([increment])
        off = factor.lower @ m - truth
        claimed = (factor.lower @ c @ factor.lower.T + covariance).diagonal()
        return float(np.mean(off * off / claimed))

    careful = pooling.observe(x, y, coarse, H)
    w = factor.solve_lower(pivots.prior_covariance(coarse, x, H)).T
    careless = pooling.Increment(w.T @ w / H.noise_variance, w.T @ y / H.noise_variance)
    assert error(careful) < 2.0
    assert error(careless) > 5.0 * error(careful)
