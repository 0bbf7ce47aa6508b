import numpy as np
import pytest
from acquisition_cases import mesh
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from fbo_flower.numerics.aggregation import bures
from fbo_flower.numerics.surrogates import gp, pivots

H = gp.Hyperparameters("rbf", np.full(2, 0.2), 1.3, 0.02)


def prior(points, h=H):
    return h.outputscale * gp.kernel(h.kernel, points, points, h.lengthscales)


def posterior(points, observations=12, seed=0):
    rng = np.random.default_rng(seed)
    x = points[rng.integers(0, len(points), observations)]
    y = np.sin(6.0 * x[:, 0]) + np.cos(5.0 * x[:, 1]) + 0.1 * rng.standard_normal(observations)
    return gp.posterior(x, y, H)


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
@pytest.mark.parametrize("cut", [1e-10, 1e-2])
def test_the_basis_gives_the_prior_up_to_the_cut_and_is_the_cholesky_factor_at_the_pivots(kernel, cut):
    points, h = mesh(10), gp.Hyperparameters(kernel, H.lengthscales, 1.3, 0.02)
    chosen = pivots.choose_pivots(points, h, cut)
    left = prior(points, h) - chosen.basis @ chosen.basis.T
    assert np.abs(left).max() <= cut * H.outputscale + 1e-13
    factor = chosen.basis[chosen.index]
    np.testing.assert_array_equal(np.triu(factor, 1), 0.0)
    np.testing.assert_allclose(factor @ factor.T, prior(points[chosen.index], h), atol=1e-10)
    agents = pivots.pivot_factor(points[chosen.index], h).lower
    np.testing.assert_allclose(agents @ agents.T, factor @ factor.T, atol=1e-10)


@pytest.mark.parametrize(("cut", "count", "dimensions"), [(1e-8, 165, 131), (1e-5, 106, 77)])
def test_counts_on_the_mesh_of_the_paper(cut, count, dimensions):
    chosen = pivots.choose_pivots(mesh(20), H, cut)
    assert len(chosen.index) == count
    assert len(pivots.principal(chosen.basis, cut)[1]) == dimensions
    eigenvalues = np.linalg.eigvalsh(prior(mesh(20)))
    assert (eigenvalues > cut * eigenvalues[-1]).sum() == dimensions


def test_pivots_are_the_largest_remainders_in_turn_and_the_first_of_equal_ones():
    points = mesh(8)  # symmetric points have equal remainders, but for rounding
    k, chosen = prior(points), pivots.choose_pivots(points, H, 1e-6)
    for j in (0, 1, 2, 5, 20):
        picked = chosen.index[:j]
        known = k[:, picked] @ np.linalg.solve(k[np.ix_(picked, picked)], k[picked]) if j else 0.0
        left = (k - known).diagonal()
        assert chosen.index[j] == np.argmax(left >= (1.0 - pivots.TIE) * left.max())
    twice = pivots.choose_pivots(np.repeat(mesh(3), 2, axis=0), H, 1e-8)
    assert len(twice.index) == 9, "equal points are picked once"


@pytest.mark.parametrize(("cut", "tolerance"), [(1e-10, 1e-8), (1e-5, 1e-3)])
def test_a_posterior_at_the_pivots_determines_it_on_all_points(cut, tolerance):
    points = mesh(15)
    chosen, belief = pivots.choose_pivots(points, H, cut), posterior(points)
    at = points[chosen.index]
    mean, covariance = pivots.whiten(belief.predict(at)[0], belief.covariance(at), pivots.pivot_factor(at, H))
    error = np.abs(chosen.basis @ mean - belief.predict(points)[0]).max()
    assert error <= np.abs(belief.alpha).sum() * cut * H.outputscale + 1e-12, "the bound of the docstring"
    found = chosen.basis @ covariance @ chosen.basis.T
    np.testing.assert_allclose(found, belief.covariance(points), atol=tolerance)


def test_the_barycenter_in_principal_coordinates_is_the_dense_one():
    points = mesh(6)
    chosen = pivots.choose_pivots(points, H, 1e-10)
    (directions, scale), at = pivots.principal(chosen.basis, 1e-10), points[chosen.index]
    beliefs = [posterior(points, seed=seed) for seed in range(4)]
    np.testing.assert_allclose(directions.T @ directions, np.eye(len(scale)), atol=1e-12)
    np.testing.assert_allclose(directions @ scale, chosen.basis, atol=1e-5)
    dense = bures.barycenter(np.array([belief.covariance(points) for belief in beliefs]), tolerance=1e-9)
    zero, factor = np.zeros(len(at)), pivots.pivot_factor(at, H)
    whitened = np.array([pivots.whiten(zero, belief.covariance(at), factor)[1] for belief in beliefs])
    found = bures.barycenter(scale @ whitened @ scale.T, tolerance=1e-9)
    lifted = directions @ found.covariance @ directions.T
    np.testing.assert_allclose(lifted, dense.covariance, atol=1e-6)
    assert found.spread == pytest.approx(dense.spread, rel=1e-6)


POINTS = mesh(12)
SMOOTH = gp.Hyperparameters("rbf", np.full(2, 0.25), 1.3, 0.02)
CHOSEN = pivots.choose_pivots(POINTS, SMOOTH, 1e-10)
AT = POINTS[CHOSEN.index]


def data(n, seed=0, *, on_points=True):
    rng = np.random.default_rng(seed)
    x = POINTS[rng.integers(0, len(POINTS), n)] if on_points else rng.random((n, 2))
    return x, np.sin(5.0 * x[:, 0]) + np.cos(7.0 * x[:, 1]) + 0.14 * rng.standard_normal(n)


@pytest.mark.parametrize("num_agents", [1, 4])
def test_pooling_equals_the_posterior_of_the_pooled_data(num_agents):
    x, y = data(40)
    parts = [pivots.observe(x[i::num_agents], y[i::num_agents], AT, SMOOTH) for i in range(num_agents)]
    kernel = ConstantKernel(SMOOTH.outputscale) * RBF(SMOOTH.lengthscales)
    theirs = GaussianProcessRegressor(kernel, optimizer=None, alpha=SMOOTH.noise_variance).fit(x, y)
    expected, expected_covariance = theirs.predict(POINTS, return_cov=True)
    for found in (parts, [sum(parts[1:], parts[0])]):  # one by one, or summed before
        mean, covariance = pivots.pool(found)
        np.testing.assert_allclose(CHOSEN.basis @ mean, expected, atol=1e-6)
        np.testing.assert_allclose(CHOSEN.basis @ covariance @ CHOSEN.basis.T, expected_covariance, atol=1e-6)
    # a negative control: the mean of the posteriors is not the posterior
    means = [gp.posterior(x[i::4], y[i::4], SMOOTH).predict(POINTS)[0] for i in range(4)]
    assert np.abs(np.mean(means, axis=0) - expected).max() > 0.1


def test_what_a_coarse_set_leaves_open_counts_as_noise():
    """Few pivots: without the open variance as noise the belief is far too sure."""
    coarse = POINTS[::29]
    x, y = data(60, on_points=False)
    factor = pivots.pivot_factor(coarse, SMOOTH)
    exact = gp.posterior(x, y, SMOOTH)
    truth, covariance = exact.predict(coarse)[0], exact.covariance(coarse)

    def error(increment):
        m, c = pivots.pool([increment])
        off = factor.lower @ m - truth
        claimed = (factor.lower @ c @ factor.lower.T + covariance).diagonal()
        return float(np.mean(off * off / claimed))

    careful = pivots.observe(x, y, coarse, SMOOTH)
    w = factor.solve_lower(pivots.prior_covariance(coarse, x, SMOOTH)).T
    careless = pivots.Increment(w.T @ w / SMOOTH.noise_variance, w.T @ y / SMOOTH.noise_variance)
    assert error(careful) < 2.0
    assert error(careless) > 5.0 * error(careful)
