"""What Co-KG's server makes of posteriors: barycenters, weights, and whether the objectives agree."""

import numpy as np
import pytest
from acquisition_cases import mesh
from amounts import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fbo_flower.errors import NumericalError
from fbo_flower.numerics.aggregation import agreement, bures
from fbo_flower.numerics.aggregation.bures import reliability
from fbo_flower.numerics.surrogates import gp, pivots


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


def posteriors(num=3, side=8, observations=10, lengthscale=0.3):
    points = mesh(side)
    h = gp.Hyperparameters("rbf", np.full(2, lengthscale), 1.0, 0.02)
    rng = np.random.default_rng(0)
    x = points[rng.integers(0, len(points), (num, observations))]
    return np.array([gp.posterior(rows, np.zeros(observations), h).covariance(points) for rows in x])


# -- barycenter: closed forms ------------------------------------------------------------------------------


def test_barycenter_of_equal_gaussians_is_that_gaussian_and_of_certainties_certain():
    for k in (spd(1, 6)[0], np.zeros((3, 3))):
        found = bures.barycenter(np.stack([k, k, k]), np.array([1.0, 2.0, 3.0]))
        np.testing.assert_allclose(found.covariance, k, rtol=1e-7, atol=1e-7)
        assert found.converged
        assert found.iterations == 0
        assert found.spread == pytest.approx(0.0, abs=1e-6 * k.trace())


@pytest.mark.parametrize("tolerance", [1e-6, 1e-12])
def test_barycenter_of_commuting_covariances_averages_their_roots(tolerance):
    q, deviations = rotation(5), np.random.default_rng(0).random((3, 5)) * [1.0, 1.0, 1.0, 0.1, 0.01]
    weights = np.array([0.2, 0.3, 0.5])
    found = bures.barycenter(q * deviations[:, None] ** 2 @ q.T, weights, tolerance)
    np.testing.assert_allclose(found.covariance, q * (weights @ deviations) ** 2 @ q.T, atol=2.0 * tolerance)


# -- barycenter: oracles -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [1e-3, 1e-10])
def test_reported_residual_and_spread_are_those_of_the_formulas_as_printed(tolerance):
    k, weights = posteriors(), np.full(3, 1.0 / 3.0)
    found = bures.barycenter(k, tolerance=tolerance, rank_cut=1e-8)
    assert found.converged
    assert found.residual <= tolerance
    assert residual(k, weights, found.covariance) == pytest.approx(found.residual, abs=2e-8)
    assert spread(k, weights, found.covariance) == pytest.approx(found.spread, rel=1e-6)


# -- barycenter: start, rank, stopping ---------------------------------------------------------------------


def test_a_singular_start_does_not_settle_at_the_wrong_point():
    k = posteriors()
    eigenvalues, vectors = np.linalg.eigh(k[0])
    singular = (vectors[:, -3:] * eigenvalues[-3:]) @ vectors[:, -3:].T
    best = bures.barycenter(k, tolerance=1e-10).spread
    found = bures.barycenter(k, start=singular)
    assert found.converged
    assert found.spread - best < 1e-5 * best


def test_what_did_not_converge_says_so():
    short = bures.barycenter(posteriors(num=4), tolerance=1e-12, max_iterations=2)
    assert (short.converged, short.iterations) == (False, 2)
    assert short.residual > 1e-12


def test_a_matrix_that_is_no_covariance_is_named():
    k = spd(3, 3)
    k[1] = np.diag([1.0, 1.0, -0.5])
    with pytest.raises(NumericalError, match="covariance 1: expected positive semi-definite"):
        bures.barycenter(k, np.array([0.0, 1.0, 1.0]))


# -- weights by reliability --------------------------------------------------------------------------


def test_weights_by_hand():
    means = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 8.0]])  # squared distances 4, 64, 68
    covariances = np.array([np.eye(2), 0.5 * np.eye(2), 2.0 * np.eye(2)])  # traces 2, 1, 4
    shares = np.array([1.0, 1.0, 2.0 * 2.0 / 32.0])  # errors 2, 2, 32: the lower medians of distances, halved
    for unit in (1.0, 10.0):
        found = reliability(unit * means, unit**2 * covariances)
        np.testing.assert_allclose(found, shares**2 / (shares**2).sum())
    np.testing.assert_allclose(reliability(np.zeros((2, 3)), np.zeros((2, 3, 3))), 0.5)
    np.testing.assert_array_equal(reliability(means[:1], covariances[:1]), 1.0)


@pytest.mark.parametrize("size", [0.0, 1e9])
def test_an_absurd_mean_loses_its_weight_and_a_claim_of_certainty_gains_nothing(size):
    means, covariances = 0.1 * np.random.default_rng(0).standard_normal((4, 9)), np.array([np.eye(9)] * 4)
    means[0] += size
    covariances[0] *= 1e-6  # by its claim alone it would have all the weight
    weights = reliability(means, covariances)
    np.testing.assert_allclose(weights[1:], weights[1])
    assert weights[0] <= (1.0 if size == 0.0 else 1e-4) * weights[1]


POINTS = mesh(8)
H = gp.Hyperparameters("rbf", np.full(2, 0.4), 1.0, 0.02)
CHOSEN = pivots.choose_pivots(POINTS, H, 1e-9)
AT = POINTS[CHOSEN.index]
RUNS = examples(100, 60)


def increments(seed, *, odd=None, num_agents=4, scale=1.0):
    """Agents who observe one draw of the prior; agent `odd` another draw. `scale` is what nobody knows of."""
    rng = np.random.default_rng(seed)
    functions = CHOSEN.basis @ rng.standard_normal((CHOSEN.basis.shape[1], 2))
    found = []
    for n in range(num_agents):
        rows = rng.integers(0, len(POINTS), 10)
        noise = rng.normal(0.0, np.sqrt(H.noise_variance), 10)
        y = functions[rows, int(n == odd)] + noise
        found.append(pivots.observe(POINTS[rows], scale * y, AT, H))
    return found


def p_values(known_scale, **options):
    runs = (increments(seed, **options) for seed in range(RUNS))
    return np.array([agreement.agreement(agents, known_scale=known_scale).p_value for agents in runs])


@pytest.mark.parametrize(("known_scale", "scale", "num_agents"), [(True, 1.0, 4), (False, 3.0, 3)])
def test_p_values_are_uniform_when_agents_share_one_objective(known_scale, scale, num_agents):
    found = p_values(known_scale, scale=scale, num_agents=num_agents)[:, 0]
    assert stats.kstest(found, "uniform").pvalue > 0.01
    if known_scale:  # a negative control: noise of 1.5 times the believed deviation
        assert stats.kstest(p_values(True, scale=1.5)[:, 0], "uniform").pvalue < 1e-6


def test_an_agent_with_another_objective_is_found():
    found = p_values(False, odd=1)
    assert (found[:, 1] < 0.01).mean() > 0.95
    assert (found.argmin(axis=1) == 1).mean() > 0.9


def test_the_statistic_is_the_predictive_distance_of_the_observations():
    """With one observation far from doubt: its squared deviation over its predictive variance."""
    x, y = POINTS[[0, 1, 9, 27]], np.array([1.0, 0.7, 0.3, -0.2])
    others = pivots.observe(x, y, AT, H)
    z, value = POINTS[[8]], np.array([0.4])
    found = agreement.agreement([pivots.observe(z, value, AT, H), others], known_scale=True)
    mean, variance = gp.posterior(x, y, H).predict(z)
    expected = (value[0] - mean[0]) ** 2 / (variance[0] + H.noise_variance)
    assert found.directions[0] == 1
    assert found.statistic[0] == pytest.approx(expected, rel=1e-4)
    assert found.p_value[0] == pytest.approx(stats.chi2.sf(expected, 1), rel=1e-4)


def test_agents_without_observations_or_who_looked_elsewhere_are_not_compared():
    h = gp.Hyperparameters("rbf", np.full(2, 0.05), 1.0, 0.02)
    at = POINTS[[0, 7, 56, 63]]
    nothing = pivots.observe(np.empty((0, 2)), np.empty(0), at, h)
    corners = [pivots.observe(at[[i]], np.array([9.0 * i]), at, h) for i in range(4)]
    for agents in (corners, [nothing, *corners[:2], nothing]):
        found = agreement.agreement(agents)
        np.testing.assert_array_equal(found.directions, 0)
        np.testing.assert_array_equal(found.p_value, 1.0)
        np.testing.assert_allclose(agreement.log_bayes_factors(agents), 0.0, atol=1e-12)


# -- Bayes factors -----------------------------------------------------------------------------------


def test_it_is_the_difference_of_the_marginal_likelihoods_of_the_observations():
    rng = np.random.default_rng(0)
    common, *own = rng.standard_normal((4, CHOSEN.basis.shape[1]))
    data = []
    for other in own:
        rows = rng.integers(0, len(POINTS), 10)
        noise = np.sqrt(H.noise_variance) * rng.standard_normal(10)
        data.append((POINTS[rows], (CHOSEN.basis @ (common + other))[rows] + noise))

    def likelihood(parts):
        x, y = (np.concatenate(column) for column in zip(*parts, strict=True))
        return gp.log_marginal_likelihood(x, y, H)[0]

    others = [data[:n] + data[n + 1 :] for n in range(3)]
    exact = [likelihood(data) - likelihood(others[n]) - likelihood([data[n]]) for n in range(3)]
    found = agreement.log_bayes_factors([pivots.observe(x, y, AT, H) for x, y in data])
    np.testing.assert_allclose(found, exact, rtol=1e-5)


# -- units of the values of all agents ----------------------------------------------------------------


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=30), st.integers(1, 29))
def test_pooled_units_are_those_of_all_values_together(values, cut):
    y = np.array(values)
    parts = [part for part in (y[:cut], y[cut:]) if len(part)]
    shift, scale = agreement.pooled_units([agreement.moments(part) for part in parts])
    assert shift == pytest.approx(y.mean(), abs=1e-9)
    if y.std() > 1e-6:
        assert scale == pytest.approx(y.std(), rel=1e-6)


@pytest.mark.parametrize(
    ("lie", "bounded"), [((1e6, -50.0, 100.0), (5.0, -8.0, 8.0)), ((5.0, 50.0, 0.0), (5.0, 5.0, 0.25))]
)
def test_moments_are_bounded_by_the_median_agents_and_others_left_as_they_are(lie, bounded):
    honest = [(5.0, 0.0, 1.0), (5.0, 1.0, 2.0), (5.0, 2.0, 3.0)]
    np.testing.assert_array_equal(agreement.bounded_moments(np.array([*honest, lie])), [*honest, bounded])


def test_units_of_any_size_neither_overflow_nor_vanish():
    for scale in (1e-300, 1e307):
        y = scale * np.array([1.0, 2.0, 4.0])
        found = agreement.pooled_units([agreement.moments(y), agreement.moments(y)])
        np.testing.assert_allclose(np.array(found) / scale, [7 / 3, np.std([1.0, 2.0, 4.0])])
    huge = np.finfo(np.float64).max
    told = [np.array([2.0**40, sign * huge, huge]) for sign in (1.0, -1.0)]
    assert np.isfinite(agreement.pooled_units(told)).all()
    assert agreement.pooled_units([agreement.moments(np.full(4, 7.0))]) == (7.0, 1.0), "of equal values"
