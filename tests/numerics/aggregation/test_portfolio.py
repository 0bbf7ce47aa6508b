"""Other agents' functions: portfolios, boxes, and weights by how well they rank."""

import numpy as np
import pytest
from acquisition_cases import slopes
from scipy import stats
from scipy.stats import spearmanr

from fbo_flower.numerics.aggregation import portfolio
from fbo_flower.numerics.aggregation import rank_weights as ranks
from fbo_flower.numerics.aggregation.portfolio import Boxes, next_point, rank_agreement, standardise_columns
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.rff import draw_features


def matrix(seed, size=40, num=5):
    return standardise_columns(np.random.default_rng(seed).standard_normal((size, num)))


@pytest.mark.parametrize("num", [1, 5])
def test_greedy_choice_is_the_one_of_brute_force(num):
    z = matrix(num, num=num)
    taken = []
    for _ in range(4 if num > 1 else 1):
        totals = [z[[*taken, s]].max(axis=0).mean() for s in range(len(z))]
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


def test_four_boxes_of_a_square_are_its_quarters_in_order():
    boxes = Boxes.halve(4, 2)
    assert boxes.low.tolist() == [[0, 0], [0, 0.5], [0.5, 0], [0.5, 0.5]]
    assert boxes.high.tolist() == [[0.5, 0.5], [0.5, 1], [1, 0.5], [1, 1]]


@pytest.mark.parametrize(("count", "dim"), [(1, 1), (7, 2), (12, 3)])
def test_every_point_is_in_exactly_one_box_and_stretched_points_in_theirs(count, dim):
    boxes = Boxes.halve(count, dim)
    assert np.prod(boxes.high - boxes.low, axis=1).sum() == pytest.approx(1.0)
    rng = np.random.default_rng(count)
    x = np.concatenate([rng.random((20, dim)), rng.integers(0, 3, (10, dim)) / 2])
    owners = ((x[:, None] >= boxes.low) & ((x[:, None] < boxes.high) | (boxes.high == 1))).all(axis=2)
    assert (owners.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(boxes.index(x), owners.argmax(axis=1))
    for box in range(count):
        assert (boxes.index(boxes.stretch(rng.random((5, dim)), box)) == box).all()


def test_a_piecewise_function_is_in_every_box_that_of_its_weights():
    rng = np.random.default_rng(0)
    features = draw_features(12, 0.5, 3, rng)
    boxes, weights = Boxes.halve(4, 2), rng.standard_normal((4, 12))
    columns = np.array([0, 2])
    f = portfolio.BoxwiseLinearFunction(features, weights, boxes, columns)
    z = rng.random((30, 3))
    phi = features(z)
    expected = [phi[i] @ weights[boxes.index(z[[i]][:, columns])[0]] for i in range(30)]
    np.testing.assert_allclose(f(z), expected, rtol=1e-12)
    values, gradients = f.value_and_gradient(z)
    np.testing.assert_allclose(values, expected, rtol=1e-9)
    inner = np.abs(z[:, columns] - 0.5).min(axis=1) > 1e-3
    np.testing.assert_allclose(gradients[inner], slopes(f, z)[inner], atol=1e-6)


HYPER = gp.Hyperparameters("rbf", np.array([0.4, 0.7]), 1.3, 0.02)


def posterior(n=6, seed=0):
    rng = np.random.default_rng(seed)
    return gp.posterior(rng.random((n, 2)), rng.standard_normal(n), HYPER)


def loss_by_loops(f, y):
    """[Feurer2018, section 4.1], pair by pair; a tie of the function is half right."""
    wrong, pairs = 0.0, 0
    for j in range(len(y)):
        for k in range(len(y)):
            if y[j] == y[k]:
                continue
            pairs += 1
            wrong += 0.5 if f[j] == f[k] else float((f[j] < f[k]) != (y[j] < y[k]))
    return wrong / pairs if pairs else 0.0


@pytest.mark.parametrize("n", [1, 9, 60])
def test_ranking_losses_are_those_of_plain_loops(n):
    rng = np.random.default_rng(n)
    y, f = rng.integers(0, 4, n).astype(float), rng.integers(0, 5, (3, n)).astype(float)  # with ties
    for values in (y, np.ones(n)):  # equal values are no pairs
        expected = [loss_by_loops(row, values) for row in f]
        np.testing.assert_allclose(ranks.ranking_losses(ranks.differences(f), values), expected)
        np.testing.assert_allclose(ranks.prediction_losses(f, values), expected)
    rows = rng.integers(0, n, (20, n))
    counts = np.array([np.bincount(r, minlength=n) for r in rows], dtype=float)
    expected = [loss_by_loops(f[0, r], y[r]) for r in rows]
    np.testing.assert_allclose(ranks.bootstrap_losses(ranks.differences(f)[0], y, counts), expected)


def test_left_out_means_and_draws_have_the_law_of_a_process_fitted_without_the_observation():
    # every gap f_(-j)(x_j) - f_(-j)(x_k) against its normal law, at level 1e-3 over 30 pairs
    p = posterior()
    means = ranks.leave_one_out_gaps(p, 0, np.random.default_rng(0))[0]
    draws = ranks.leave_one_out_gaps(p, 1500, np.random.default_rng(3))
    for j in range(6):
        rest = np.delete(np.arange(6), j)
        without = gp.posterior(p.x[rest], p.y[rest], HYPER)
        mean, cov = without.predict(p.x)[0], without.covariance(p.x)
        np.testing.assert_allclose(means[j], mean[j] - mean, atol=1e-9)
        for k in rest:
            law = mean[j] - mean[k], np.sqrt(cov[j, j] + cov[k, k] - 2 * cov[j, k])
            assert stats.kstest(draws[:, j, k], "norm", law).pvalue > 1e-3 / 30


def test_ensemble_weights_by_hand():
    # draws:              1    2    3    4
    losses = np.array([[0.0, 0.4, 0.2, 0.1], [0.1, 0.4, 0.3, 0.1], [0.9, 0.9, 0.9, 0.0]])
    target = np.array([0.3, 0.5, 0.2, 0.3])
    # 95th percentile of the target's is .47: agent 2 (median .9) is out, though best in draw 4. Draw 1: agent
    # 0; draw 2: agents 0 and 1 share; draw 3: a tie with the target, which takes it; draw 4: shared
    np.testing.assert_allclose(ranks.ensemble_weights(losses, target), [0.5, 0.25, 0.0, 0.25])
    assert ranks.ensemble_weights(np.empty((0, 10)), np.ones(10)).tolist() == [1.0]
    np.testing.assert_allclose(
        ranks.kernel_weights(np.array([0.0, 0.25, 0.5, 0.9]), 0.5), [0.75, 0.5625, 0.0, 0.0]
    )
