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


def test_pivots_are_the_largest_remainders_in_turn_and_the_first_of_equal_ones():
    points = mesh(8)  # symmetric points have equal remainders, but for rounding
    k, chosen = prior(points), pivots.choose_pivots(points, H, 1e-6)
    for j in (0, 1, 2, 5, 20):
        picked = chosen.index[:j]
        known = k[:, picked] @ np.linalg.solve(k[np.ix_(picked, picked)], k[picked]) if j else 0.0
        left = (k - known).diagonal()
        assert chosen.index[j] == np.argmax(left >= (1.0 - pivots.TIE) * left.max())
    assert len(pivots.choose_pivots(np.repeat(mesh(3), 2, axis=0), H, 1e-8).index) == 9


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


def test_pooling_equals_the_posterior_of_the_pooled_data():
    x, y = data(40)
    parts = [pivots.observe(x[i::4], y[i::4], AT, SMOOTH) for i in range(4)]
    kernel = ConstantKernel(SMOOTH.outputscale) * RBF(SMOOTH.lengthscales)
    theirs = GaussianProcessRegressor(kernel, optimizer=None, alpha=SMOOTH.noise_variance).fit(x, y)
    expected, expected_covariance = theirs.predict(POINTS, return_cov=True)
    for found in (parts, [sum(parts[1:], parts[0])]):  # one by one, or summed before
        mean, covariance = pivots.pool(found)
        np.testing.assert_allclose(CHOSEN.basis @ mean, expected, atol=1e-6)
        np.testing.assert_allclose(CHOSEN.basis @ covariance @ CHOSEN.basis.T, expected_covariance, atol=1e-6)


def test_what_a_coarse_set_leaves_open_counts_as_noise():
    """Few pivots: without the open variance as noise the belief is far too sure."""
    coarse = POINTS[::29]
    x, y = data(60, on_points=False)
    factor, exact = pivots.pivot_factor(coarse, SMOOTH), gp.posterior(x, y, SMOOTH)
    m, c = pivots.pool([pivots.observe(x, y, coarse, SMOOTH)])
    off = factor.lower @ m - exact.predict(coarse)[0]
    claimed = (factor.lower @ c @ factor.lower.T + exact.covariance(coarse)).diagonal()
    assert float(np.mean(off * off / claimed)) < 2.0
