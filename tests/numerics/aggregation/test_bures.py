import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fbo_flower.errors import ConfigError, NumericalError
from fbo_flower.numerics.aggregation import bures
from fbo_flower.numerics.surrogates import gp

SEEDS = st.integers(0, 2**32)


def spd(num, size, seed=0, rank=None):
    factors = np.random.default_rng(seed).standard_normal((num, size, rank or size + 1))
    return factors @ factors.transpose(0, 2, 1)


def rotation(size, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]


def root(covariance):
    eigenvalues, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(np.maximum(eigenvalues, 0.0))) @ vectors.T


def mean_root(covariances, weights, k):
    r = root(k)
    return sum(w * root(r @ covariance @ r) for w, covariance in zip(weights, covariances, strict=True))


def residual(covariances, weights, k):
    return np.linalg.norm(mean_root(covariances, weights, k) - k) / np.linalg.norm(k)


def spread(covariances, weights, k):
    trace = np.einsum("n,nii->", weights, covariances)
    return trace + k.trace() - 2.0 * mean_root(covariances, weights, k).trace()


def plain_iteration(covariances, weights, steps):
    """The fixed point as printed, from the arithmetic mean."""
    k = np.tensordot(weights, covariances, axes=1)
    for _ in range(steps):
        inverse = np.linalg.inv(root(k))
        total = mean_root(covariances, weights, k)
        k = inverse @ total @ total @ inverse
    return k


def least_spread(covariances, weights, starts=5):
    """An independent optimiser: L-BFGS over factors `F`, `K = F F^T`; the spread is convex in `K`."""
    size = covariances.shape[1]
    roots = [root(covariance) for covariance in covariances]
    trace = np.einsum("n,nii->", weights, covariances)

    def loss(flat):
        f = flat.reshape(size, size)
        value, gradient = trace + (f * f).sum(), 2.0 * f
        for w, b in zip(weights, roots, strict=True):
            u, s, vt = np.linalg.svd(b @ f)
            value, gradient = value - 2.0 * w * s.sum(), gradient - 2.0 * w * b @ u @ vt
        return value, gradient.ravel()

    rng = np.random.default_rng(0)
    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
    runs = (
        minimize(loss, rng.standard_normal(size * size), jac=True, method="L-BFGS-B", options=options)
        for _ in range(starts)
    )
    return min(run.fun for run in runs)


def posteriors(num=3, side=8, observations=10, lengthscale=0.3):
    axis = np.linspace(0.0, 1.0, side)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    h = gp.Hyperparameters("rbf", np.full(2, lengthscale), 1.0, 0.02)
    rng = np.random.default_rng(0)
    x = points[rng.integers(0, len(points), (num, observations))]
    return np.array([gp.posterior(rows, np.zeros(observations), h).covariance(points) for rows in x])


# -- distance ----------------------------------------------------------------------------------------------


def test_distance_in_one_dimension_is_that_of_means_and_deviations():
    found = bures.distance(np.array([1.0]), np.array([[4.0]]), np.array([-2.0]), np.array([[36.0]]))
    assert found == pytest.approx(5.0)  # 3 and |2 - 6|


def test_distance_of_commuting_covariances_is_that_of_their_deviations():
    q, a, b = rotation(5), np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([3.0, 1.0, 0.0, 5.0, 4.0])
    found = bures.distance(np.zeros(5), q * a**2 @ q.T, np.zeros(5), q * b**2 @ q.T)
    assert found == pytest.approx(np.linalg.norm(a - b))


def test_distance_agrees_with_the_formula_as_printed():
    a, b = spd(2, 6)
    m = np.arange(6.0)
    expected = m @ m + np.trace(a + b - 2.0 * scipy.linalg.sqrtm(root(a) @ b @ root(a)).real)
    assert bures.distance(m, a, np.zeros(6), b) ** 2 == pytest.approx(expected)


def test_distance_of_equal_gaussians_is_zero_to_the_last_digits():
    a = spd(1, 30)[0]
    assert bures.distance(np.ones(30), a, np.ones(30), a) < 1e-12 * np.sqrt(a.trace())


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), SEEDS)
def test_distance_is_a_metric_that_rotations_keep(size, rank, seed):
    k = spd(3, size, seed, rank)
    m = np.random.default_rng(seed + 1).standard_normal((3, size))
    q = rotation(size, seed)

    def d(i, j):
        return bures.distance(m[i], k[i], m[j], k[j])

    assert d(0, 1) == pytest.approx(d(1, 0), abs=1e-7)
    assert d(0, 2) <= d(0, 1) + d(1, 2) + 1e-7
    turned = bures.distance(q @ m[0], q @ k[0] @ q.T, q @ m[1], q @ k[1] @ q.T)
    assert turned == pytest.approx(d(0, 1), abs=1e-7)


def test_distance_refuses_shapes_that_do_not_fit():
    with pytest.raises(ConfigError, match=r"Gaussian b: expected mean \(2,\)"):
        bures.distance(np.zeros(2), np.eye(2), np.zeros(3), np.eye(3))


# -- barycenter: closed forms ------------------------------------------------------------------------------


def test_barycenter_of_equal_gaussians_is_that_gaussian():
    k = spd(1, 6)[0]
    found = bures.barycenter(np.stack([k, k, k]), np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(found.covariance, k, rtol=1e-7, atol=1e-7)
    assert found.converged
    assert found.iterations == 0
    assert found.spread == pytest.approx(0.0, abs=1e-6 * k.trace())


def test_barycenter_in_one_dimension_averages_deviations():
    found = bures.barycenter(np.array([[[1.0]], [[9.0]]]), np.array([0.25, 0.75]))
    assert found.covariance[0, 0] == pytest.approx(2.5**2)
    assert found.spread == pytest.approx(0.25 * 1.5**2 + 0.75 * 0.5**2)


@pytest.mark.parametrize("tolerance", [1e-6, 1e-12])
def test_barycenter_of_commuting_covariances_averages_their_roots(tolerance):
    q, deviations = rotation(5), np.random.default_rng(0).random((3, 5)) * [1.0, 1.0, 1.0, 0.1, 0.01]
    weights = np.array([0.2, 0.3, 0.5])
    found = bures.barycenter(q * deviations[:, None] ** 2 @ q.T, weights, tolerance)
    np.testing.assert_allclose(found.covariance, q * (weights @ deviations) ** 2 @ q.T, atol=2.0 * tolerance)


def test_barycenter_of_two_is_the_midpoint_of_their_geodesic():
    a, b = spd(2, 5)
    t = np.linalg.inv(root(a)) @ root(root(a) @ b @ root(a)) @ np.linalg.inv(root(a))
    half = 0.5 * (np.eye(5) + t)  # the transport map from a to b, half the way
    found = bures.barycenter(np.stack([a, b]), tolerance=1e-12).covariance
    np.testing.assert_allclose(found, half @ a @ half, rtol=1e-9, atol=1e-9)


# -- barycenter: oracles -----------------------------------------------------------------------------------


def test_barycenter_is_the_fixed_point_of_the_plain_iteration():
    k, weights = spd(4, 7), np.array([0.1, 0.2, 0.3, 0.4])
    expected = plain_iteration(k, weights, 300)
    np.testing.assert_allclose(bures.barycenter(k, weights, 1e-12).covariance, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-10])
def test_reported_residual_and_spread_are_those_of_the_formulas_as_printed(tolerance):
    k, weights = posteriors(), np.full(3, 1.0 / 3.0)
    found = bures.barycenter(k, tolerance=tolerance, rank_cut=1e-8)
    assert found.converged
    assert found.residual <= tolerance
    assert residual(k, weights, found.covariance) == pytest.approx(found.residual, abs=2e-8)
    assert spread(k, weights, found.covariance) == pytest.approx(found.spread, rel=1e-6)


def test_no_other_covariance_has_a_smaller_spread():
    k, weights = spd(4, 5), np.full(4, 0.25)
    assert bures.barycenter(k, tolerance=1e-9).spread == pytest.approx(least_spread(k, weights), rel=1e-9)


@pytest.mark.parametrize(("size", "rank"), [(2, 1), (6, 2), (6, 3), (10, 1)])
def test_spread_is_least_also_where_every_covariance_is_singular(size, rank):
    k, weights = spd(4, size, rank=rank), np.full(4, 0.25)
    found = bures.barycenter(k, tolerance=1e-6, max_iterations=300)
    assert found.spread == pytest.approx(least_spread(k, weights), rel=1e-5)
    assert found.spread == pytest.approx(spread(k, weights, found.covariance), rel=1e-5)


def test_barycenter_agrees_with_pot():
    ot = pytest.importorskip("ot")
    k, weights = spd(4, 12), np.array([0.1, 0.2, 0.3, 0.4])
    means = np.random.default_rng(1).standard_normal((4, 12))
    theirs = ot.gaussian.bures_wasserstein_barycenter(means, k, weights, eps=1e-11, num_iter=2000)[1]
    np.testing.assert_allclose(bures.barycenter(k, weights, 1e-12).covariance, theirs, rtol=1e-8, atol=1e-8)
    expected = ot.gaussian.bures_wasserstein_distance(means[0], means[1], k[0], k[1])
    assert bures.distance(means[0], k[0], means[1], k[1]) == pytest.approx(expected)


# -- barycenter: start, rank, stopping ---------------------------------------------------------------------


def test_a_singular_start_does_not_settle_at_the_wrong_point(monkeypatch):
    k = posteriors()
    eigenvalues, vectors = np.linalg.eigh(k[0])
    singular = (vectors[:, -3:] * eigenvalues[-3:]) @ vectors[:, -3:].T
    best = bures.barycenter(k, tolerance=1e-10).spread
    found = bures.barycenter(k, start=singular)
    assert found.converged
    assert found.spread - best < 1e-5 * best
    # the same residual, another point, without the share of the mean
    monkeypatch.setattr(bures, "SHARE_OF_MEAN", 0.0)
    stuck = bures.barycenter(k, start=singular)
    assert stuck.residual < 1e-6
    assert stuck.spread - best > 1e-4 * best


def test_a_warm_start_ends_where_a_cold_one_does():
    k = posteriors()
    cold = bures.barycenter(k, tolerance=1e-10)
    warm = bures.barycenter(k, tolerance=1e-10, start=cold.covariance)
    np.testing.assert_allclose(warm.covariance, cold.covariance, atol=1e-9)
    assert bures.barycenter(k, start=cold.covariance).iterations < bures.barycenter(k).iterations


def test_few_directions_are_as_good_as_all():
    k = posteriors()
    full, cut = (bures.barycenter(k, tolerance=1e-10, rank_cut=c) for c in (1e-14, 1e-8))
    assert cut.rank < full.rank
    np.testing.assert_allclose(cut.covariance, full.covariance, atol=1e-6)
    assert full.converged  # rounding does not come back through small eigenvalues
    assert cut.spread == pytest.approx(full.spread, rel=1e-5)


def test_what_did_not_converge_says_so():
    found = bures.barycenter(spd(4, 7), tolerance=1e-12, max_iterations=2)
    assert not found.converged
    assert found.iterations == 2
    assert found.residual > 1e-12


def test_mixing_saves_steps(monkeypatch):
    k = posteriors(num=4)
    mixed = bures.barycenter(k)
    monkeypatch.setattr(bures, "_mix", lambda history: history[-1][1])
    plain = bures.barycenter(k)
    assert mixed.iterations < plain.iterations
    np.testing.assert_allclose(mixed.covariance, plain.covariance, atol=2e-5)


# -- barycenter: properties --------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(1, 6), SEEDS)
def test_barycenter_turns_scales_and_permutes_with_its_covariances(num, size, seed):
    k, weights = spd(num, size, seed), np.random.default_rng(seed).random(num) + 0.1
    q, order = rotation(size, seed), np.random.default_rng(seed).permutation(num)
    found = bures.barycenter(k, weights, 1e-10).covariance
    scale = np.abs(found).max()
    turned = bures.barycenter(q @ k @ q.T, weights, 1e-10).covariance
    np.testing.assert_allclose(turned, q @ found @ q.T, atol=1e-7 * scale)
    np.testing.assert_allclose(
        bures.barycenter(k[order], weights[order], 1e-10).covariance, found, atol=1e-7 * scale
    )
    np.testing.assert_allclose(
        bures.barycenter(7.0 * k, 3.0 * weights, 1e-10).covariance, 7.0 * found, atol=1e-6 * scale
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(1, 6), st.integers(1, 6), SEEDS)
def test_barycenter_is_a_covariance_of_no_more_trace_than_the_mean(num, size, rank, seed):
    k = spd(num, size, seed, rank)
    found = bures.barycenter(k, max_iterations=30).covariance
    scale = np.einsum("nii->", k) / num
    assert np.linalg.eigvalsh(found)[0] >= -1e-9 * scale
    assert found.trace() <= scale * (1.0 + 1e-9)
    np.testing.assert_allclose(found, found.T, atol=1e-12 * scale)


def test_a_weight_of_zero_is_as_good_as_absence():
    k = spd(3, 5)
    expected = bures.barycenter(k[:2], tolerance=1e-10).covariance
    found = bures.barycenter(k, np.array([1.0, 1.0, 0.0]), 1e-10).covariance
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_the_barycenter_of_certainties_is_certain():
    found = bures.barycenter(np.zeros((2, 3, 3)))
    np.testing.assert_array_equal(found.covariance, np.zeros((3, 3)))
    assert found.converged


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"covariances": np.eye(3)}, r"expected \(N, S, S\)"),
        ({"covariances": np.full((2, 3, 3), np.nan)}, "finite"),
        ({"weights": np.ones(3)}, "weights"),
        ({"weights": np.array([-1.0, 2.0])}, "weights"),
        ({"weights": np.zeros(2)}, "weights"),
        ({"start": np.eye(2)}, "start"),
    ],
)
def test_what_is_no_set_of_covariances_is_refused(changes, message):
    arguments = {"covariances": spd(2, 3), "weights": None} | changes
    with pytest.raises(ConfigError, match=message):
        bures.barycenter(**arguments)


@pytest.mark.parametrize("tolerance", [1e-6, 1e-9])
def test_a_matrix_that_is_no_covariance_is_named(tolerance):
    k = spd(3, 3)
    k[1] = np.diag([1.0, 1.0, -0.5])
    for weights in (None, np.array([0.0, 1.0, 1.0])):
        with pytest.raises(NumericalError, match="covariance 1: expected positive semi-definite"):
            bures.barycenter(k, weights, tolerance)
