import numpy as np
import pytest
from acquisition_cases import fantasies, frazier, gaussian_process, mesh, random_belief

from fbo_flower.numerics.acquisition import knowledge_gradient as kg
from fbo_flower.numerics.acquisition.batch import maximise_batch, replaced
from fbo_flower.numerics.acquisition.expected_improvement import centred_draws
from fbo_flower.numerics.acquisition.knowledge_gradient import BatchKnowledgeGradient


@pytest.mark.parametrize("noisy", [True, False])
@pytest.mark.parametrize("seed", range(9))
def test_every_point_has_the_value_of_the_scalar_algorithm(seed, noisy):
    mean, factor, noise_variance = random_belief(seed, 3 + 5 * seed)
    covariance, noise_variance = factor @ factor.T, noise_variance * noisy
    total = covariance.diagonal() + noise_variance
    slopes = np.divide(covariance, np.sqrt(total), out=np.zeros_like(covariance), where=total > 0)
    exact = [frazier(mean, slopes[:, x]) for x in range(len(mean))]
    found = kg.knowledge_gradient_from_factor(mean, factor, noise_variance)
    np.testing.assert_allclose(found, exact, rtol=1e-8, atol=1e-14)


def test_blocks_of_points_give_what_all_points_give_at_once(monkeypatch):
    mean, factor = gaussian_process(mesh(12), 0.2, 10, 0.02, np.random.default_rng(0))
    whole = kg.knowledge_gradient_from_factor(mean, factor, 0.02)
    monkeypatch.setattr(kg, "BLOCK", 1000)
    np.testing.assert_allclose(kg.knowledge_gradient_from_factor(mean, factor, 0.02), whole, rtol=1e-12)


def test_nothing_is_learnt_from_one_point_from_certainty_or_from_a_common_shift():
    for factor in (np.full((1, 1), 2.0), np.zeros((3, 3)), np.ones((3, 1)), np.zeros((3, 0))):
        gains = kg.knowledge_gradient_from_factor(np.arange(float(len(factor))), factor, 0.1)
        assert gains.tolist() == [0.0] * len(factor)


def test_hopeless_gains_keep_their_order():
    # far below the best mean: gains of 1e-80 and less, which differences of expectations would lose
    mean = np.array([0.0, -20.0, -20.5, -21.0])
    gains = kg.knowledge_gradient_from_factor(mean, np.diag([0.0, 1.0, 1.0, 1.0]), 0.0)
    assert gains[1] > gains[2] > gains[3] > 0
    assert gains[1] < 1e-80


@pytest.mark.parametrize(("unit", "origin"), [(0.01, 0.0), (100.0, -10.0), (1.0, 1e9)])
def test_gains_scale_with_the_unit_and_ignore_the_origin(unit, origin):
    mean, factor, noise_variance = random_belief(3, 8)
    gains = kg.knowledge_gradient_from_factor(mean, factor, noise_variance)
    other = kg.knowledge_gradient_from_factor(unit * mean + origin, unit * factor, unit**2 * noise_variance)
    np.testing.assert_allclose(other, unit * gains, rtol=1e-6, atol=1e-10 * unit + 1e-15 * abs(origin))


# -- of a batch --------------------------------------------------------------------------------------


LONG = kg.LATER + 4


def draws_of(number, dimension, seed=0):
    return centred_draws(number, dimension, np.random.default_rng(seed))


def check(belief, draws, design, agent, candidates):
    """Values are those of the formula, one batch at a time."""
    mean, factor, noise_variance = belief
    values = BatchKnowledgeGradient(*belief, draws).values(design, agent, candidates)
    for value, batch in zip(values, replaced(design, agent, candidates), strict=True):
        means = fantasies(mean, factor @ factor.T, noise_variance, batch, draws[:, : len(design)])
        assert value == pytest.approx(means.max(axis=1).mean() - mean.max(), rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("length", "agent"), [(1, 0), (2, 1), (4, 0), (4, 2), (LONG, 0), (LONG, LONG - 1)])
def test_values_are_those_of_the_formula_for_one_batch_at_a_time(seed, length, agent, monkeypatch):
    if length - agent > kg.LATER:  # by one factor per candidate, not by columns
        monkeypatch.setattr(BatchKnowledgeGradient, "_stacked", None)
    design = np.random.default_rng(seed).integers(25, size=length)
    check(random_belief(seed, 25), draws_of(32, length), design, agent, np.array([0, 24, design[0]]))


@pytest.mark.parametrize("seed", range(3))
def test_points_left_out_of_the_maximum_never_were_maximisers(seed):
    """Late beliefs, where many are left out: the formula has no such shortcut."""
    rng = np.random.default_rng(seed)
    belief, draws = (*gaussian_process(mesh(8), 0.3, 40, 0.01, rng), 0.01), draws_of(64, 3)
    assert BatchKnowledgeGradient(*belief, draws)._num_tops < 64
    for design in rng.integers(64, size=(10, 3)):
        check(belief, draws, design, 1, design[1:2])


def test_guesses_are_bounds_of_the_value_with_the_agent_last():
    mean, factor = gaussian_process(mesh(8), 0.25, 10, 0.02, np.random.default_rng(0))
    acquisition, design = BatchKnowledgeGradient(mean, factor, 0.02, draws_of(64, 3)), np.array([5, 40, 0])
    guess, values = acquisition.guess(design, 2), acquisition.values(design, 2, np.arange(64))
    assert (guess <= values + 1e-12).all()
    assert np.median(guess / values) > 0.9


def test_neither_huge_means_nor_blocks_change_more_than_rounding(monkeypatch):
    (mean, *rest), draws, design, points = random_belief(3, 30), draws_of(64, 2), np.arange(2), np.arange(30)
    acquisition = BatchKnowledgeGradient(mean, *rest, draws)
    plain = acquisition.values(design, 1, points)
    shifted = BatchKnowledgeGradient(mean + 1e9, *rest, draws).values(design, 1, points)
    np.testing.assert_allclose(shifted, plain, atol=1e-6)
    monkeypatch.setattr(kg, "FANTASIES", 1)
    np.testing.assert_allclose(acquisition.values(design, 1, points), plain, rtol=1e-12)


@pytest.mark.parametrize("noise_variance", [0.0, 0.1])
def test_nothing_is_gained_where_nothing_is_unknown(noise_variance):
    for factor in (np.zeros((5, 2)), np.ones((5, 1))):
        acquisition = BatchKnowledgeGradient(np.arange(5.0), factor, noise_variance, draws_of(16, 3))
        best = maximise_batch(acquisition, np.zeros((3, 5)), 0.0, 1, np.random.default_rng(0))
        assert best.value == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("length", [2, LONG])
def test_a_second_noiseless_look_at_one_point_tells_nothing(length):
    mean, factor, _ = random_belief(1, 10)
    acquisition = BatchKnowledgeGradient(mean, factor, 0.0, draws_of(64, length))
    once = acquisition.values(np.array([4]), 0, np.array([4]))
    np.testing.assert_allclose(acquisition.values(np.full(length, 4), 0, np.array([4])), once, rtol=1e-6)
