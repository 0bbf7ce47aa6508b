import math

import numpy as np
import pytest
from acquisition_cases import gaussian_process, mesh
from scipy.integrate import quad
from scipy.stats import norm, truncnorm

from fbo_flower.numerics.acquisition.entropy_search import (
    BatchMaxValueEntropy,
    max_value_entropy,
    sample_maxima,
    variance_below,
)


def test_variance_of_a_cut_normal_is_that_of_scipy_and_has_its_limits():
    gamma = np.array([-30.0, -8.0, -1.0, 0.0, 0.3, 2.0, 9.0])
    np.testing.assert_allclose(variance_below(gamma), [truncnorm.var(-math.inf, g) for g in gamma], rtol=1e-6)
    far = np.array([-math.inf, -1e5, -500.0, 60.0, math.inf])
    np.testing.assert_allclose(variance_below(far), [1e-6, 1e-6, 4e-6, 1, 1], rtol=1e-3)


def information(gamma, learnt):
    """`H(y) - H(y | f < gamma)` by quadrature, `y = rho f + sqrt(1 - rho^2) e`, `rho^2 = learnt`."""
    rho, rest = math.sqrt(learnt), math.sqrt(1 - learnt)

    def term(y):  # of the density of y given f < gamma: f | y ~ N(rho y, 1 - rho^2)
        value = norm.pdf(y) * norm.cdf((gamma - rho * y) / rest) / norm.cdf(gamma)
        return -value * math.log(value) if value > 0 else 0.0

    return 0.5 * math.log(2 * math.pi * math.e) - quad(term, -12, 12, limit=500)[0]


@pytest.mark.parametrize("gamma", [-1.0, 0.0, 2.5])
@pytest.mark.parametrize("learnt", [0.2, 0.97])
def test_one_observation_is_worth_no_more_than_its_information_and_nearly_as_much(gamma, learnt):
    bound = max_value_entropy(np.zeros(1), np.ones(1), 1 / learnt - 1, np.array([gamma]))[0]
    exact = information(gamma, learnt)
    assert 0.75 * exact <= bound <= exact + 1e-9


def test_maxima_are_those_of_draws_of_the_posterior():
    maxima = sample_maxima(np.zeros(2), np.eye(2), 50_000, np.random.default_rng(0))
    assert maxima.mean() == pytest.approx(1 / math.sqrt(math.pi), abs=4 * maxima.std() / math.sqrt(50_000))
    certain = sample_maxima(np.array([1.0, 3.0]), np.zeros((2, 0)), 2, np.random.default_rng(0))
    assert certain.tolist() == [3, 3]


def test_a_batch_is_worth_its_points_less_what_they_share():
    mean, factor = gaussian_process(mesh(6), 0.3, 4, 0.05, np.random.default_rng(0))
    maxima = sample_maxima(mean, factor, 64, np.random.default_rng(1))
    acquisition = BatchMaxValueEntropy(mean, factor, 0.05, maxima, 3)
    single = max_value_entropy(mean, np.square(factor).sum(axis=1), 0.05, maxima)
    alone = acquisition.values(np.array([0]), 0, np.arange(36))
    np.testing.assert_allclose(alone, single, rtol=1e-9, atol=1e-14)
    values = acquisition.values(np.array([3, 0, 30]), 1, np.arange(36))
    for candidate in (0, 17, 35):
        batch = [3, candidate, 30]
        joint = factor[batch] @ factor[batch].T + 0.05 * np.eye(3)
        scale = np.sqrt(np.diag(joint))
        shared = 0.5 * np.linalg.slogdet(joint / np.outer(scale, scale))[1]
        assert values[candidate] == pytest.approx(single[batch].sum() + shared, rel=1e-9)
    assert (values <= single[[3, 30]].sum() + single + 1e-12).all()


def test_certain_points_tell_nothing_and_noiseless_duplicates_are_avoided():
    assert max_value_entropy(np.zeros(2), np.zeros(2), 0.0, np.array([-1.0, 0.0])).tolist() == [0.0, 0.0]
    acquisition = BatchMaxValueEntropy(np.zeros(3), np.diag([1.0, 0.9, 0.0]), 0.0, np.array([1.0]), 2)
    values = acquisition.values(np.array([0, 0]), 1, np.arange(3))
    assert np.isfinite(values).all()
    assert values.argmax() == 1
    assert values.argmin() == 0
