import numpy as np
import pytest
from acquisition_cases import mesh
from amounts import examples, slow
from scipy import stats

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.aggregation.agreement import agreement, log_bayes_factors
from fbo_flower.numerics.surrogates import gp, pivots, pooling

POINTS = mesh(8)
H = gp.Hyperparameters("rbf", np.full(2, 0.4), 1.0, 0.02)
CHOSEN = pivots.choose_pivots(POINTS, H, 1e-6)
AT = POINTS[CHOSEN.index]
RUNS = examples(100, 60)


def increments(seed, *, odd=None, num_agents=4, observations=10, scale=1.0):
    """Agents who observe one draw of the prior; agent `odd` another draw. `scale` is what nobody knows of."""
    rng = np.random.default_rng(seed)
    functions = CHOSEN.basis @ rng.standard_normal((CHOSEN.basis.shape[1], 2))
    found = []
    for n in range(num_agents):
        rows = rng.integers(0, len(POINTS), observations)
        noise = rng.normal(0.0, np.sqrt(H.noise_variance), observations)
        y = functions[rows, int(n == odd)] + noise
        found.append(pooling.observe(POINTS[rows], scale * y, AT, H))
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


def test_p_values_are_not_uniform_when_the_scale_is_not_what_is_claimed():
    """A negative control: noise of 1.5 times the believed deviation."""
    assert stats.kstest(p_values(True, scale=1.5)[:, 0], "uniform").pvalue < 1e-6


@pytest.mark.parametrize("known_scale", [True, False])
def test_an_agent_with_another_objective_is_found(known_scale):
    found = p_values(known_scale, odd=1)
    assert (found[:, 1] < 0.01).mean() > 0.95
    assert (found.argmin(axis=1) == 1).mean() > 0.9


def test_the_statistic_is_the_predictive_distance_of_the_observations():
    """With one observation far from doubt: its squared deviation over its predictive variance."""
    x, y = POINTS[[0, 1, 9, 27]], np.array([1.0, 0.7, 0.3, -0.2])
    others = pooling.observe(x, y, AT, H)
    z, value = POINTS[[8]], np.array([0.4])
    found = agreement([pooling.observe(z, value, AT, H), others], known_scale=True)
    mean, variance = gp.posterior(x, y, H).predict(z)
    expected = (value[0] - mean[0]) ** 2 / (variance[0] + H.noise_variance)
    assert found.directions[0] == 1
    assert found.statistic[0] == pytest.approx(expected, rel=1e-4)
    assert found.p_value[0] == pytest.approx(stats.chi2.sf(expected, 1), rel=1e-4)


def test_agents_who_looked_elsewhere_are_not_compared():
    h = gp.Hyperparameters("rbf", np.full(2, 0.1), 1.0, 0.02)
    chosen = pivots.choose_pivots(POINTS, h, 1e-6)
    corners = POINTS[[0, 7, 56, 63]]
    at = POINTS[chosen.index]
    found = agreement([pooling.observe(corners[[i]], np.array([9.0 * i]), at, h) for i in range(4)])
    np.testing.assert_array_equal(found.directions, 0)
    np.testing.assert_array_equal(found.p_value, 1.0)


def test_agents_without_observations_agree_with_everybody():
    nothing = pooling.observe(np.empty((0, 2)), np.empty(0), AT, H)
    found = agreement([nothing, *increments(0, num_agents=2), nothing])
    np.testing.assert_array_equal(found.directions[[0, 3]], 0)
    np.testing.assert_array_equal(found.p_value[[0, 3]], 1.0)


def test_one_agent_has_nobody_to_agree_with():
    with pytest.raises(ConfigError, match="at least 2 agents"):
        agreement(increments(0)[:1])


# -- Bayes factors -----------------------------------------------------------------------------------


NOISY = gp.Hyperparameters("rbf", np.full(2, 0.4), 1.0, 0.1)
SEEN_CHOSEN = pivots.choose_pivots(POINTS, NOISY, 1e-9)
SEEN_AT = POINTS[SEEN_CHOSEN.index]
FEDERATIONS = examples(200, 60)
ENOUGH, AGAINST = 1.0, -3.0  # of `algorithms.co_kg`


def observed(seed, *, correlation, odd=False, num_agents=4, observations=10):
    """Agents who observe functions with this correlation; with `odd` only the last one is another's."""
    rng = np.random.default_rng(seed)
    common, *own = rng.standard_normal((num_agents + 1, SEEN_CHOSEN.basis.shape[1]))
    found = []
    for n, other in enumerate(own):
        rho = 1.0 if odd and n + 1 < num_agents else correlation
        function = SEEN_CHOSEN.basis @ (np.sqrt(rho) * common + np.sqrt(1.0 - rho) * other)
        rows = rng.integers(0, len(POINTS), observations)
        noise = np.sqrt(NOISY.noise_variance) * rng.standard_normal(len(rows))
        found.append((POINTS[rows], function[rows] + noise))
    return found


def factors(data, h=NOISY):
    return log_bayes_factors([pooling.observe(x, y, SEEN_AT, h) for x, y in data])


def test_it_is_the_difference_of_the_marginal_likelihoods_of_the_observations():
    data = observed(0, correlation=0.5, num_agents=3)

    def likelihood(parts):
        x, y = (np.concatenate(column) for column in zip(*parts, strict=True))
        return gp.log_marginal_likelihood(x, y, NOISY)[0]

    exact = [
        likelihood(data) - likelihood(data[:n] + data[n + 1 :]) - likelihood([data[n]]) for n in range(3)
    ]
    np.testing.assert_allclose(factors(data), exact, rtol=1e-5)


def test_agents_who_looked_elsewhere_say_nothing():
    h = gp.Hyperparameters("rbf", np.full(2, 0.05), 1.0, 0.1)
    at = POINTS[[0, 7, 56, 63]]
    corners = [pooling.observe(at[[i]], np.array([9.0 * i]), at, h) for i in range(4)]
    np.testing.assert_allclose(log_bayes_factors(corners), 0.0, atol=1e-12)
    nothing = pooling.observe(np.empty((0, 2)), np.empty(0), at, h)
    np.testing.assert_array_equal(log_bayes_factors([nothing, corners[3]]), 0.0)


def test_a_bayes_factor_has_mean_1_if_the_agent_has_an_objective_of_its_own():
    """Few observations keep it from heavy tails."""
    runs = [observed(seed, correlation=0.0, num_agents=2, observations=1) for seed in range(1000)]
    found = np.exp([factors(data)[0] for data in runs])
    assert found.mean() == pytest.approx(1.0, abs=4.0 * found.std() / np.sqrt(len(found)))


@pytest.mark.parametrize(("observations", "power"), [(5, 0.6), pytest.param(10, 0.9, marks=slow), (20, 0.98)])
def test_agents_with_one_objective_are_pooled_and_others_are_not(observations, power):
    """The error rates that `docs/papers/co_kg.md` states, for known hyperparameters."""

    def least(**options):
        return np.array(
            [factors(observed(s, observations=observations, **options)).min() for s in range(FEDERATIONS)]
        )

    one, many = least(correlation=1.0), least(correlation=0.0)
    assert np.mean(one > ENOUGH) > power
    assert np.mean(one < AGAINST) < 0.02
    assert np.mean(many > ENOUGH) < 0.02
    assert np.mean(many < AGAINST) > 0.9
    assert np.mean(least(correlation=0.0, odd=True) > ENOUGH) < 0.1


def test_one_agent_has_no_bayes_factor():
    with pytest.raises(ConfigError, match="at least 2 agents"):
        log_bayes_factors([pooling.observe(POINTS[:1], np.zeros(1), SEEN_AT, NOISY)])
