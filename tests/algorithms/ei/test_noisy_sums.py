"""fed-ei with noise on its sums: how much, on what, and what is left of the trend."""

from __future__ import annotations

import numpy as np
import pytest
from contract import SQUARE, AlgorithmContract, Run

from fbo_flower.algorithms import FedEI, make_algorithm
from fbo_flower.algorithms.ei import noisy_sums
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.algorithms.secure_aggregation import SecureAggregation
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.privacy_account import Account
from fbo_flower.numerics.surrogates.rff import draw_features
from fbo_flower.numerics.surrogates.trend import (
    federation_weight,
    filtered_weights,
    noisy_federation_weight,
    ridge_weights,
    statistics,
)
from fbo_flower.simulation import simulate

SMALL = {"num_candidates": 64, "num_features": 20, "tilt": 0.0}
RNG = np.random.default_rng(0)


class TestContractWithNoise(AlgorithmContract):
    def make(self):
        return FedEI(secure_sums=0, noise_multiplier=0.5, **SMALL)


def test_no_part_is_longer_than_the_bound_however_large_the_values():
    for scale in (1e-3, 1.0, 1e6):
        part = noisy_sums.contribution(scale * RNG.standard_normal(20), scale * RNG.standard_normal(2), 5)
        assert np.linalg.norm(part) <= noisy_sums.BOUND * (1 + 1e-12)
    np.testing.assert_allclose(noisy_sums.contribution(np.full(2, 0.5), np.zeros(2), 5), [0.1, 0.1, 0, 0])


@pytest.mark.parametrize(("least", "multiplier"), [(0, 0.5), (4, 2.0), (9, 1.0)])
def test_noise_of_the_smallest_sum_is_the_multiplier_times_the_largest_change(least, multiplier):
    uniform = uniform_from(np.random.default_rng(1))
    parts = [noisy_sums.with_noise(np.zeros(2000), multiplier, least, uniform) for _ in range(max(least, 1))]
    expected = 2.0 * multiplier
    assert np.std(np.sum(parts, axis=0)) == pytest.approx(expected, rel=0.06)


def test_without_noise_the_filter_is_the_ridge_regression_with_the_mean_gram_matrix():
    features = draw_features(15, 0.5, 2, RNG)
    phi = features(RNG.random((400, 2)))
    centred = phi - phi.mean(axis=0)
    n, t, ridge = 7, 5, 0.1
    mean = RNG.standard_normal(15)
    gram = n * t * (centred.T @ centred / len(phi))
    upper = gram[np.triu_indices(15)]
    expected = ridge_weights(upper, t * mean, ridge)
    np.testing.assert_allclose(filtered_weights(mean, phi, n, n * t, 0.0, ridge), expected, rtol=1e-6)
    less = filtered_weights(mean, phi, n, n * t, 100.0, ridge)
    assert np.linalg.norm(less) < 0.5 * np.linalg.norm(expected)


def test_with_exact_points_the_filter_finds_the_function_that_made_the_values():
    features = draw_features(15, 0.8, 2, RNG)
    x = RNG.random((4000, 2))
    phi, w = features(x), RNG.standard_normal(15)
    y = phi @ w - (phi @ w).mean()
    found = filtered_weights(statistics(phi, y)[1] / len(y), phi, 1, len(y), 0.0, 1e-6)
    assert np.corrcoef(phi @ found, y)[0, 1] > 0.999


def test_noise_counts_as_chance_in_the_weight_of_the_federation():
    sums = np.array([20.0, 25.0])
    assert noisy_federation_weight(sums, 0.0) == pytest.approx(federation_weight(sums))
    weights = [noisy_federation_weight(sums, stddev) for stddev in (0.0, 3.0, 6.0, 100.0)]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] == 0.0
    assert noisy_federation_weight(np.array([1.0, -5.0]), 9.0) == 0.0


def test_only_the_noisy_sums_leave_an_agent_and_one_without_a_success_sends_noise_too():
    made = FedEI(secure_sums=0, noise_multiplier=1.0, **SMALL)
    assert set(made.report_schema(SQUARE).arrays) == {"moment", "agreement"}
    run = Run.begin(made, num_agents=3, objective=lambda config, context: None).steps(2)
    for exchange in run.exchanges:
        assert set(exchange.report.arrays) == {"moment", "agreement"}
        assert np.std(exchange.report.arrays["moment"]) > 0.5


def test_the_accounts_of_agents_and_server_follow_from_the_multiplier():
    clear = FedEI(secure_sums=0, noise_multiplier=2.0, **SMALL)
    secure = FedEI(secure_sums=4, noise_multiplier=2.0, **SMALL)
    assert clear.message_noise() == 2.0
    assert secure.message_noise() == 1.0
    assert FedEI().message_noise() == 0.0
    asked = Task(Phase.TRAIN, 1, 0, 1, {}, {"share": True})
    assert SecureAggregation(wrapped=secure, least=4).uses_observations(asked, SQUARE)
    assert not secure.uses_observations(Task(Phase.TRAIN, 1, 0, 1), SQUARE)
    run = Run.begin(clear, num_agents=3).steps(5)
    found = clear.results(run.state).privacy
    assert found["messages"] == 5
    assert found["epsilon"] == pytest.approx(Account().add(2.0, count=5).epsilon(1e-5))
    assert FedEI().results(run.state) is None


def test_a_study_with_secure_noisy_sums_ends_and_reports_its_epsilon():
    study = simulate(
        "himmelblau",
        agents=4,
        algorithm=make_algorithm("fed-ei", {**SMALL, "noise_multiplier": 2.0}),
        num_rounds=5,
        seed=1,
        engine="inline",
    )
    assert study.settings is not None
    privacy = study.settings["runs"][-1]["privacy"]
    assert privacy["noise"] == "in sums of all agents"
    assert 0 < privacy["epsilon"] < 20


def test_agents_still_find_the_trend_of_a_large_federation():
    run = Run.begin(FedEI(secure_sums=0, noise_multiplier=0.02, **SMALL), num_agents=30).steps(5)
    task = run.exchanges[-1].task
    assert task.values["summed"] == 30
    assert noisy_sums.federation_weight_of(task, 0.02, 0) >= 0.0


@pytest.mark.parametrize("options", [{"noise_multiplier": 1.0}, {"noise_multiplier": -1.0}, {"delta": 0.0}])
def test_options_are_checked(options):
    with pytest.raises(ConfigError):
        FedEI(**options)
