import numpy as np
import pytest
from acquisition_cases import mesh
from amounts import examples
from scipy import stats

from fbo_flower.numerics.aggregation.agreement import agreement, log_bayes_factors
from fbo_flower.numerics.surrogates import gp, pivots

POINTS = mesh(8)
H = gp.Hyperparameters("rbf", np.full(2, 0.4), 1.0, 0.02)
CHOSEN = pivots.choose_pivots(POINTS, H, 1e-6)
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
    return np.array(
        [agreement(increments(s, **options), known_scale=known_scale).p_value for s in range(RUNS)]
    )


@pytest.mark.parametrize(
    ("known_scale", "scale", "num_agents"), [(True, 1.0, 4), (False, 3.0, 4), (False, 3.0, 2)]
)
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
    found = agreement([pivots.observe(z, value, AT, H), others], known_scale=True)
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
        found = agreement(agents)
        np.testing.assert_array_equal(found.directions, 0)
        np.testing.assert_array_equal(found.p_value, 1.0)
        np.testing.assert_allclose(log_bayes_factors(agents), 0.0, atol=1e-12)


# -- Bayes factors -----------------------------------------------------------------------------------


NOISY = gp.Hyperparameters("rbf", np.full(2, 0.4), 1.0, 0.1)
SEEN_CHOSEN = pivots.choose_pivots(POINTS, NOISY, 1e-9)
SEEN_AT = POINTS[SEEN_CHOSEN.index]


def test_it_is_the_difference_of_the_marginal_likelihoods_of_the_observations():
    rng = np.random.default_rng(0)
    common, *own = rng.standard_normal((4, SEEN_CHOSEN.basis.shape[1]))
    data = []
    for other in own:
        rows = rng.integers(0, len(POINTS), 10)
        noise = np.sqrt(NOISY.noise_variance) * rng.standard_normal(10)
        data.append((POINTS[rows], (SEEN_CHOSEN.basis @ (common + other))[rows] + noise))

    def likelihood(parts):
        x, y = (np.concatenate(column) for column in zip(*parts, strict=True))
        return gp.log_marginal_likelihood(x, y, NOISY)[0]

    exact = [
        likelihood(data) - likelihood(data[:n] + data[n + 1 :]) - likelihood([data[n]]) for n in range(3)
    ]
    found = log_bayes_factors([pivots.observe(x, y, SEEN_AT, NOISY) for x, y in data])
    np.testing.assert_allclose(found, exact, rtol=1e-5)
