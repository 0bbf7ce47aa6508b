import numpy as np
import pytest
from scipy.stats import spearmanr

from fbo_flower.numerics.aggregation.portfolio import next_point, rank_agreement, standardise_columns


def matrix(seed, size=40, num=5):
    return standardise_columns(np.random.default_rng(seed).standard_normal((size, num)))


def gain(z, chosen):
    """Mean over messages of the best value among the chosen points."""
    return z[list(chosen)].max(axis=0).mean()


def test_columns_get_mean_0_and_stddev_1_and_constants_become_0():
    values = np.random.default_rng(0).uniform(-10, 10, (7, 3))
    values[:, 1] = 0.1
    z = standardise_columns(values)
    for column, plain in zip(z.T, values.T, strict=True):
        expected = 0.0 * plain if plain.std() < 1e-12 else (plain - plain.mean()) / plain.std()
        np.testing.assert_allclose(column, expected)


@pytest.mark.parametrize("num", [1, 5])
def test_greedy_choice_is_the_one_of_brute_force(num):
    z = matrix(num, num=num)
    taken = []
    for _ in range(4 if num > 1 else 1):
        totals = [gain(z, [*taken, s]) for s in range(len(z))]
        assert totals[next_point(z, z[taken])] == pytest.approx(max(totals))
        taken.append(int(np.argmax(totals)))


@pytest.mark.parametrize("ties", [False, True])
def test_agreement_is_spearmans_correlation_and_0_for_constants(ties):
    rng = np.random.default_rng(ties)
    z, target = rng.standard_normal((12, 4)), rng.standard_normal(12)
    if ties:
        z, target = np.round(z), np.round(target)
    expected = [spearmanr(column, target).statistic for column in z.T]
    np.testing.assert_allclose(rank_agreement(z, target), expected, atol=1e-12)
    np.testing.assert_array_equal(rank_agreement(np.ones((12, 1)), target), [0.0])
    np.testing.assert_array_equal(rank_agreement(z, np.ones(12)), np.zeros(4))
    assert rank_agreement(z[:, :0], target).shape == (0,)


def test_no_point_is_advised_that_improves_nothing():
    z = matrix(0)
    assert next_point(z, z.max(axis=0)[None, :]) is None, "the points taken are the best for every message"
    assert next_point(np.zeros((6, 2)), np.empty((0, 2))) is None, "constant messages prefer no point"
    better = z.max(axis=0).copy()
    better[1] -= 0.1
    assert next_point(z, better[None, :]) == z[:, 1].argmax()
