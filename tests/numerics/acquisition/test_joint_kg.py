import numpy as np
import pytest
from acquisition_cases import every_batch, fantasies, gaussian_process, mesh, random_belief

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition import joint_kg
from fbo_flower.numerics.acquisition.batch import maximise_batch
from fbo_flower.numerics.acquisition.joint_kg import BatchKnowledgeGradient
from fbo_flower.numerics.acquisition.knowledge_gradient import knowledge_gradient_from_factor
from fbo_flower.numerics.acquisition.normal import centred_draws


@pytest.mark.parametrize("seed", range(12))
def test_values_are_those_of_the_formula_for_one_batch_at_a_time(seed):
    rng = np.random.default_rng(seed)
    mean, factor, noise_variance = random_belief(seed, 25)
    draws = centred_draws(32, 4, rng)
    acquisition = BatchKnowledgeGradient(mean, factor, noise_variance, draws)
    for length in (1, 2, 4):
        design = rng.integers(25, size=length)
        for agent in range(length):
            values = acquisition.values(design, agent, np.arange(25))
            for candidate in (0, 24, int(design[0])):
                batch = design.copy()
                batch[agent] = candidate
                means = fantasies(mean, factor @ factor.T, noise_variance, batch, draws[:, :length])
                exact = means.max(axis=1).mean() - mean.max()
                assert values[candidate] == pytest.approx(exact, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_values_of_long_batches_are_those_of_the_formula(seed):
    rng = np.random.default_rng(seed)
    mean, factor, noise_variance = random_belief(seed, 30)
    num_agents = joint_kg.LATER + 4
    draws = centred_draws(32, num_agents, rng)
    acquisition = BatchKnowledgeGradient(mean, factor, noise_variance, draws)
    design = rng.integers(30, size=num_agents)
    for agent in (0, 2, num_agents - 1):
        values = acquisition.values(design, agent, np.arange(30))
        for candidate in (0, 29, int(design[1])):
            batch = design.copy()
            batch[agent] = candidate
            means = fantasies(mean, factor @ factor.T, noise_variance, batch, draws)
            exact = means.max(axis=1).mean() - mean.max()
            assert values[candidate] == pytest.approx(exact, rel=1e-7, abs=1e-12)


def test_a_long_batch_without_noise_may_repeat_a_point():
    mean, factor, _ = random_belief(1, 10)
    num_agents = joint_kg.LATER + 2
    acquisition = BatchKnowledgeGradient(
        mean, factor, 0.0, centred_draws(64, num_agents, np.random.default_rng(0))
    )
    values = acquisition.values(np.full(num_agents, 4), 0, np.array([4]))
    np.testing.assert_allclose(values, acquisition.values(np.array([4]), 0, np.array([4])), rtol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_points_left_out_of_the_maximum_never_were_maximisers(seed):
    """Late beliefs, where many are left out: the formula has no such shortcut."""
    rng = np.random.default_rng(seed)
    mean, factor = gaussian_process(mesh(8), 0.3, 40, 0.01, rng)
    draws = centred_draws(64, 3, rng)
    acquisition = BatchKnowledgeGradient(mean, factor, 0.01, draws)
    assert acquisition._num_tops < 64
    for design in rng.integers(64, size=(20, 3)):
        means = fantasies(mean, factor @ factor.T, 0.01, design, draws)
        value = acquisition.values(design, 1, design[1:2])[0]
        assert value == pytest.approx(means.max(axis=1).mean() - mean.max(), rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_of_four_lies_within_the_error_of_a_million_draws(seed):
    rng = np.random.default_rng(seed)
    mean, factor = gaussian_process(mesh(5), 0.3, 4, 0.05, rng)
    design = rng.integers(25, size=4)
    acquisition = BatchKnowledgeGradient(mean, factor, 0.05, centred_draws(2**14, 4, rng))
    sample = fantasies(mean, factor @ factor.T, 0.05, design, rng.standard_normal((1_000_000, 4))).max(axis=1)
    error = sample.std() / 1000
    # the Sobol mean has an error of its own, far below that of 2^14 independent draws
    assert abs(acquisition.values(design, 0, design[:1])[0] - (sample.mean() - mean.max())) < 6 * error


def test_a_batch_of_one_converges_to_the_exact_knowledge_gradient():
    mean, factor = gaussian_process(mesh(8), 0.25, 10, 0.02, np.random.default_rng(0))
    exact = knowledge_gradient_from_factor(mean, factor, 0.02)
    errors = []
    for num_draws in (16, 256, 4096):
        draws = centred_draws(num_draws, 1, np.random.default_rng(1))
        values = BatchKnowledgeGradient(mean, factor, 0.02, draws).values(np.array([0]), 0, np.arange(64))
        errors.append(np.abs(values - exact).max())
    assert errors[2] < errors[1] / 4 < errors[0] / 16
    assert errors[2] < 3e-3 * exact.max()


def test_the_maximiser_by_draws_converges_to_the_maximiser():
    """Theorem 3: the true value of the chosen batch tends to the largest, and so does the estimate."""
    num_points, lost, wrong = 16, {}, {}
    for num_draws in (4, 32, 256, 1024):
        lost[num_draws], wrong[num_draws] = [], []
        for seed in range(5):
            mean, factor = gaussian_process(mesh(4), 0.3, 4, 0.1, np.random.default_rng(seed))
            truth = BatchKnowledgeGradient(
                mean, factor, 0.1, centred_draws(2**13, 2, np.random.default_rng(100))
            )
            best = every_batch(truth, 2)[1].max()
            draws = centred_draws(num_draws, 2, np.random.default_rng([seed, num_draws]))
            estimate = BatchKnowledgeGradient(mean, factor, 0.1, draws)
            alone = np.zeros((2, num_points))
            chosen = maximise_batch(estimate, alone, 0.0, 2, np.random.default_rng(seed))
            value = truth.values(chosen.index, 0, chosen.index[:1])[0]
            lost[num_draws].append(1 - value / best)
            wrong[num_draws].append(abs(chosen.value / best - 1))
    assert np.mean(lost[1024]) < 1e-3
    assert np.mean(lost[1024]) < np.mean(lost[32]) + 1e-4 < np.mean(lost[4]) / 2
    assert np.mean(wrong[1024]) < np.mean(wrong[256]) < np.mean(wrong[32]) < np.mean(wrong[4])


def test_centred_draws_keep_the_order_of_late_gains_that_independent_draws_drown():
    rng = np.random.default_rng(2)
    mean, factor = gaussian_process(mesh(8), 0.3, 60, 0.02, rng)
    exact = knowledge_gradient_from_factor(mean, factor, 0.02)
    kept = {"centred": [], "independent": []}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        for name, draws in (
            ("centred", centred_draws(64, 1, rng)),
            ("independent", rng.standard_normal((64, 1))),
        ):
            values = BatchKnowledgeGradient(mean, factor, 0.02, draws).values(np.array([0]), 0, np.arange(64))
            kept[name].append(exact[values.argmax()] / exact.max())
    assert np.mean(kept["centred"]) > 0.95
    assert np.mean(kept["independent"]) < 0.8


def test_guesses_are_bounds_of_the_value_with_the_agent_last():
    rng = np.random.default_rng(0)
    mean, factor = gaussian_process(mesh(8), 0.25, 10, 0.02, rng)
    acquisition = BatchKnowledgeGradient(mean, factor, 0.02, centred_draws(64, 3, rng))
    design = np.array([5, 40, 0])
    guess, values = acquisition.guess(design, 2), acquisition.values(design, 2, np.arange(64))
    assert (guess <= values + 1e-12).all()
    assert np.median(guess / values) > 0.9


def test_rows_of_the_covariance_are_computed_once():
    mean, factor, noise_variance = random_belief(0, 30)
    acquisition = BatchKnowledgeGradient(mean, factor, noise_variance, np.zeros((2, 2)))
    acquisition.values(np.array([1, 2]), 0, np.array([3, 3, 4]))
    acquisition.values(np.array([3, 2]), 1, np.array([4, 2]))
    assert acquisition._num_rows <= 4


def test_huge_means_change_nothing_but_rounding():
    mean, factor, noise_variance = random_belief(3, 30)
    draws = centred_draws(64, 2, np.random.default_rng(0))
    design, points = np.array([0, 1]), np.arange(30)
    plain = BatchKnowledgeGradient(mean, factor, noise_variance, draws).values(design, 1, points)
    shifted = BatchKnowledgeGradient(mean + 1e9, factor, noise_variance, draws).values(design, 1, points)
    np.testing.assert_allclose(shifted, plain, atol=1e-6)


@pytest.mark.parametrize("noise_variance", [0.0, 0.1])
def test_nothing_is_gained_where_nothing_is_unknown(noise_variance):
    draws = centred_draws(16, 3, np.random.default_rng(0))
    for factor in (np.zeros((5, 2)), np.ones((5, 1))):
        acquisition = BatchKnowledgeGradient(np.arange(5.0), factor, noise_variance, draws)
        best = maximise_batch(acquisition, np.zeros((3, 5)), 0.0, 1, np.random.default_rng(0))
        assert best.value == pytest.approx(0, abs=1e-15)


def test_a_second_noiseless_look_at_one_point_tells_nothing():
    mean, factor, _ = random_belief(1, 10)
    acquisition = BatchKnowledgeGradient(mean, factor, 0.0, centred_draws(64, 2, np.random.default_rng(0)))
    once = acquisition.values(np.array([4]), 0, np.array([4]))
    twice = acquisition.values(np.array([4, 0]), 1, np.array([4]))
    np.testing.assert_allclose(twice, once, rtol=1e-6)


def test_blocks_of_candidates_give_what_all_give_at_once(monkeypatch):
    mean, factor, noise_variance = random_belief(0, 30)
    acquisition = BatchKnowledgeGradient(
        mean, factor, noise_variance, centred_draws(64, 2, np.random.default_rng(0))
    )
    whole = acquisition.values(np.array([0, 1]), 0, np.arange(30))
    monkeypatch.setattr(joint_kg, "BLOCK", 1)
    np.testing.assert_allclose(acquisition.values(np.array([0, 1]), 0, np.arange(30)), whole, rtol=1e-12)


def test_a_factor_of_other_points_and_negative_noise_are_refused():
    with pytest.raises(ConfigError, match=r"factor \(3, r\)"):
        BatchKnowledgeGradient(np.zeros(3), np.eye(2), 0.1, np.zeros((2, 1)))
    with pytest.raises(ConfigError, match="noise variance"):
        BatchKnowledgeGradient(np.zeros(3), np.eye(3), -0.1, np.zeros((2, 1)))
