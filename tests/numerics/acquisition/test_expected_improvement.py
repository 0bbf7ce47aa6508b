import numpy as np
import pytest
from acquisition_cases import gaussian_process, mesh
from scipy.stats import norm

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition.expected_improvement import (
    BatchExpectedImprovement,
    expected_improvement,
)
from fbo_flower.numerics.acquisition.normal import centred_draws


def draws_of(number, dimension):
    return centred_draws(number, dimension, np.random.default_rng(0))


def test_values_are_those_of_the_textbook_formula_and_certain_ones_improve_by_their_difference():
    rng = np.random.default_rng(0)
    mean, stddev, best = rng.standard_normal(50), rng.random(50) + 0.1, 0.5
    z = (mean - best) / stddev
    exact = (mean - best) * norm.cdf(z) + stddev * norm.pdf(z)
    np.testing.assert_allclose(expected_improvement(mean, stddev**2, best), exact, rtol=1e-10)
    certain = expected_improvement(np.array([0.0, 1.0, 3.0]), np.array([0.0, -1e-18, 0.0]), 1.0)
    assert certain.tolist() == [0.0, 0.0, 2.0]


def test_batches_lie_within_the_error_of_many_draws():
    rng = np.random.default_rng(0)
    mean, factor = gaussian_process(mesh(5), 0.3, 4, 0.05, rng)
    best, draws = float(mean.max()), rng.standard_normal((200_000, factor.shape[1]))
    acquisition = BatchExpectedImprovement(mean, factor, best, draws_of(2**13, 3))
    for design in (np.array([1, 12, 20]), np.array([7, 7, 3])):
        sample = np.maximum((mean[design] + draws @ factor[design].T).max(axis=1) - best, 0.0)
        value = acquisition.values(design, 1, design[1:2])[0]
        assert abs(value - sample.mean()) < 6 * sample.std() / np.sqrt(len(draws))


def test_a_batch_of_one_is_the_closed_form():
    mean, factor = gaussian_process(mesh(6), 0.3, 4, 0.05, np.random.default_rng(0))
    acquisition = BatchExpectedImprovement(mean, factor, 0.7, draws_of(4, 1))
    exact = expected_improvement(mean, np.square(factor).sum(axis=1), 0.7)
    np.testing.assert_allclose(acquisition.values(np.array([0]), 0, np.arange(36)), exact, rtol=1e-6)


def test_a_duplicate_adds_nothing_and_another_point_adds_something():
    mean, factor = gaussian_process(mesh(6), 0.2, 4, 0.05, np.random.default_rng(0))
    acquisition = BatchExpectedImprovement(mean, factor, 1.0, draws_of(256, 2))
    values = acquisition.values(np.array([5, 0]), 1, np.arange(36))
    single = acquisition.values(np.array([5]), 0, np.array([5]))[0]
    assert values[5] == pytest.approx(single, rel=1e-9)
    assert (values >= single - 1e-12).all()
    assert values.max() > 1.2 * single


def test_hopeless_batches_are_still_ranked():
    acquisition = BatchExpectedImprovement(np.array([-9.0, -10.0, -11.0]), np.eye(3), 0.0, draws_of(16, 2))
    values = acquisition.values(np.array([0, 0]), 1, np.arange(3))
    assert values[1] > values[2] > 0


def test_a_factor_of_other_points_is_refused():
    with pytest.raises(ConfigError, match="factor"):
        BatchExpectedImprovement(np.zeros(3), np.eye(2), 0.0, np.zeros((2, 1)))
