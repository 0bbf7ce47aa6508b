import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr

from fbo_flower.numerics.aggregation.portfolio import next_point, rank_agreement, standardise_columns


def matrix(seed, size=40, num=5):
    return standardise_columns(np.random.default_rng(seed).standard_normal((size, num)))


def greedy(z, count):
    taken = []
    for _ in range(count):
        taken.append(next_point(z, z[taken]))
    return taken


def gain(z, chosen):
    """Mean over messages of the best value among the chosen points."""
    return z[list(chosen)].max(axis=0).mean()


@given(arrays(np.float64, (7, 3), elements=st.floats(-10, 10)))
def test_columns_get_mean_0_and_stddev_1(values):
    z = standardise_columns(values)
    for column, plain in zip(z.T, values.T, strict=True):
        if plain.std() > 1e-12:
            np.testing.assert_allclose(column, (plain - plain.mean()) / plain.std())
        else:
            np.testing.assert_array_equal(column, np.zeros(7))


@pytest.mark.parametrize("seed", range(5))
def test_greedy_choice_is_the_one_of_brute_force(seed):
    z = matrix(seed)
    taken = []
    for _ in range(4):
        totals = [gain(z, [*taken, s]) for s in range(len(z))]
        assert totals[next_point(z, z[taken])] == pytest.approx(max(totals))
        taken.append(int(np.argmax(totals)))


@pytest.mark.parametrize("seed", range(5))
def test_greedy_portfolio_is_within_its_guarantee_of_the_best(seed):
    z = matrix(seed, size=14)
    z = z - z.min(axis=0)  # non-negative, so that the bound applies
    best = max(gain(z, chosen) for chosen in itertools.combinations(range(14), 3))
    assert gain(z, greedy(z, 3)) >= (1 - 1 / np.e) * best
    assert gain(z, greedy(z, 3)) <= best


def test_second_point_serves_those_that_the_first_left_behind():
    # messages 0 and 1 like candidate 0, message 2 likes candidate 2 only
    z = np.array([[2.0, 2.0, -1.0], [1.9, 1.9, 0.0], [-1.0, -1.0, 2.0]])
    assert greedy(z, 2) == [1, 2]


def test_one_message_is_simply_maximised():
    z = matrix(3, num=1)
    assert next_point(z, np.empty((0, 1))) == int(np.argmax(z[:, 0]))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ties", [False, True])
def test_agreement_is_spearmans_correlation(seed, ties):
    rng = np.random.default_rng(seed)
    z, target = rng.standard_normal((12, 4)), rng.standard_normal(12)
    if ties:
        z, target = np.round(z), np.round(target)
    expected = [spearmanr(column, target).statistic for column in z.T]
    np.testing.assert_allclose(rank_agreement(z, target), expected, atol=1e-12)


def test_agreement_is_1_for_any_growing_function_and_0_for_constants():
    target = np.random.default_rng(0).standard_normal(9)
    z = np.column_stack([np.exp(target), -(target**3), np.ones(9)])
    np.testing.assert_allclose(rank_agreement(z, target), [1.0, -1.0, 0.0], atol=1e-12)
    np.testing.assert_array_equal(rank_agreement(z, np.ones(9)), np.zeros(3))


def test_no_messages_and_one_point_work():
    assert rank_agreement(np.empty((5, 0)), np.arange(5.0)).shape == (0,)
    np.testing.assert_array_equal(rank_agreement(np.ones((1, 2)), np.ones(1)), np.zeros(2))


def test_no_point_is_advised_that_improves_nothing():
    z = matrix(0)
    assert next_point(z, z.max(axis=0)[None, :]) is None, "the points taken are the best for every message"
    assert next_point(np.zeros((6, 2)), np.empty((0, 2))) is None, "constant messages prefer no point"
    better = z.max(axis=0).copy()
    better[1] -= 0.1
    assert next_point(z, better[None, :]) == z[:, 1].argmax()
