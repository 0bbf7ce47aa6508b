import numpy as np
import pytest
from scipy import stats

from fbo_flower.numerics.aggregation.rank_weights import (
    bootstrap_losses,
    differences,
    ensemble_weights,
    kernel_weights,
    leave_one_out_gaps,
    prediction_losses,
    ranking_losses,
)
from fbo_flower.numerics.surrogates import gp

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


@pytest.mark.parametrize("n", [1, 2, 9, 260])
def test_ranking_losses_are_those_of_plain_loops(n):
    rng = np.random.default_rng(n)
    y, f = rng.integers(0, 4, n).astype(float), rng.integers(0, 5, (3, n)).astype(float)  # with ties
    for values in (y, np.ones(n)):  # equal values are no pairs
        expected = [loss_by_loops(row, values) for row in f]
        np.testing.assert_allclose(ranking_losses(differences(f), values), expected)
        np.testing.assert_allclose(prediction_losses(f, values), expected)


def test_bootstrap_loss_is_that_of_the_resampled_history():
    rng = np.random.default_rng(1)
    y, f = rng.integers(0, 4, 8).astype(float), rng.standard_normal(8)
    rows = rng.integers(0, 8, (20, 8))
    counts = np.array([np.bincount(r, minlength=8) for r in rows], dtype=float)
    expected = [loss_by_loops(f[r], y[r]) for r in rows]
    np.testing.assert_allclose(bootstrap_losses(differences(f[None])[0], y, counts), expected)


def test_left_out_means_and_draws_have_the_law_of_a_process_fitted_without_the_observation():
    # every gap f_(-j)(x_j) - f_(-j)(x_k) against its normal law, Kolmogorov-Smirnov at level 1e-3 over 30
    # pairs; the control keeps the observation in
    p = posterior()
    means = leave_one_out_gaps(p, 0, np.random.default_rng(0))[0]
    draws = leave_one_out_gaps(p, 1500, np.random.default_rng(3))
    smallest, control = 1.0, 1.0
    for j in range(6):
        rest = np.delete(np.arange(6), j)
        without = gp.posterior(p.x[rest], p.y[rest], HYPER)
        mean = without.predict(p.x)[0]
        np.testing.assert_allclose(means[j], mean[j] - mean, atol=1e-9)
        for k in rest:
            found = []
            for q in (without, p):
                mean, cov = q.predict(p.x)[0], q.covariance(p.x)
                law = mean[j] - mean[k], np.sqrt(cov[j, j] + cov[k, k] - 2 * cov[j, k])
                found.append(stats.kstest(draws[:, j, k], "norm", law).pvalue)
            smallest, control = min(smallest, found[0]), min(control, found[1])
    assert smallest > 1e-3 / 30
    assert control < 1e-10


def test_ensemble_weights_by_hand():
    # draws:              1    2    3    4
    losses = np.array([[0.0, 0.4, 0.2, 0.1], [0.1, 0.4, 0.3, 0.1], [0.9, 0.9, 0.9, 0.0]])
    target = np.array([0.3, 0.5, 0.2, 0.3])
    # 95th percentile of the target's is .47: agent 2 (median .9) is out, though best in draw 4. Draw 1: agent
    # 0; draw 2: agents 0 and 1 share; draw 3: a tie with the target, which takes it; draw 4: shared
    np.testing.assert_allclose(ensemble_weights(losses, target), [0.5, 0.25, 0.0, 0.25])
    assert ensemble_weights(np.empty((0, 10)), np.ones(10)).tolist() == [1.0]
    np.testing.assert_allclose(kernel_weights(np.array([0.0, 0.25, 0.5, 0.9]), 0.5), [0.75, 0.5625, 0.0, 0.0])
