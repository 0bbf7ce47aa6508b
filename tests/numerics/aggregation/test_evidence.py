import numpy as np
import pytest
from acquisition_cases import mesh
from amounts import examples, slow

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.aggregation.evidence import log_bayes_factors
from fbo_flower.numerics.surrogates import gp, pivots, pooling

POINTS = mesh(8)
H = gp.Hyperparameters("rbf", np.full(2, 0.4), 1.0, 0.1)
CHOSEN = pivots.choose_pivots(POINTS, H, 1e-9)
AT = POINTS[CHOSEN.index]
RUNS = examples(200, 60)
ENOUGH, AGAINST = 1.0, -3.0  # of `algorithms.co_kg`


def observed(seed, *, correlation, odd=False, num_agents=4, observations=10):
    """Agents who observe functions with this correlation; with `odd` only the last one is another's."""
    rng = np.random.default_rng(seed)
    common, *own = rng.standard_normal((num_agents + 1, CHOSEN.basis.shape[1]))
    found = []
    for n, other in enumerate(own):
        rho = 1.0 if odd and n + 1 < num_agents else correlation
        function = CHOSEN.basis @ (np.sqrt(rho) * common + np.sqrt(1.0 - rho) * other)
        rows = rng.integers(0, len(POINTS), observations)
        noise = np.sqrt(H.noise_variance) * rng.standard_normal(len(rows))
        found.append((POINTS[rows], function[rows] + noise))
    return found


def factors(data, h=H):
    return log_bayes_factors([pooling.observe(x, y, AT, h) for x, y in data])


def test_it_is_the_difference_of_the_marginal_likelihoods_of_the_observations():
    data = observed(0, correlation=0.5, num_agents=3)

    def likelihood(parts):
        x, y = (np.concatenate(column) for column in zip(*parts, strict=True))
        return gp.log_marginal_likelihood(x, y, H)[0]

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
            [factors(observed(s, observations=observations, **options)).min() for s in range(RUNS)]
        )

    one, many = least(correlation=1.0), least(correlation=0.0)
    assert np.mean(one > ENOUGH) > power
    assert np.mean(one < AGAINST) < 0.02
    assert np.mean(many > ENOUGH) < 0.02
    assert np.mean(many < AGAINST) > 0.9
    assert np.mean(least(correlation=0.0, odd=True) > ENOUGH) < 0.1


def test_one_agent_has_nobody_to_agree_with():
    with pytest.raises(ConfigError, match="at least 2 agents"):
        log_bayes_factors([pooling.observe(POINTS[:1], np.zeros(1), AT, H)])
