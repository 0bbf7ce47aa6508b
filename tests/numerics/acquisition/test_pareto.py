from itertools import pairwise

import moocore
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.stats import norm

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition import pareto
from fbo_flower.reports import selection as fronts

# a coarse grid, where equal values and equal points are common
LOSSES = st.integers(0, 12).flatmap(
    lambda n: arrays(np.float64, (n, 2), elements=st.integers(0, 6).map(lambda i: i / 6))
)
REFERENCE = np.array([1.0, 1.0])


def rng(seed=0):
    return np.random.default_rng(seed)


@given(LOSSES)
def test_the_front_is_what_nobody_dominates(losses):
    def dominated(i):
        better = (losses <= losses[i]).all(axis=1) & (losses < losses[i]).any(axis=1)
        return better.any() or (losses[:i] == losses[i]).all(axis=1).any()

    assert pareto.non_dominated(losses).tolist() == [not dominated(i) for i in range(len(losses))]


@given(LOSSES.filter(len))
def test_the_front_and_the_hypervolume_are_those_of_moocore(losses):
    expected = moocore.is_nondominated(losses, keep_weakly=False)
    assert pareto.non_dominated(losses).tolist() == expected.tolist()
    area = moocore.hypervolume(losses, ref=REFERENCE)
    assert pareto.hypervolume(losses, REFERENCE) == pytest.approx(area, abs=1e-14)
    assert fronts.hypervolume(losses, REFERENCE) == pytest.approx(area, abs=1e-14)


@given(LOSSES)
def test_duplicates_and_dominated_points_change_no_area(losses):
    area = pareto.hypervolume(losses, REFERENCE)
    more = np.concatenate([losses, losses, losses + 0.1])
    assert pareto.hypervolume(more, REFERENCE) == pytest.approx(area, abs=1e-14)


def test_a_random_front_of_continuous_losses_has_moocores_area():
    losses = rng().random((200, 2)) * 1.4
    losses = np.concatenate([losses, losses[:20]])
    assert pareto.hypervolume(losses, REFERENCE) == pytest.approx(
        moocore.hypervolume(losses[(losses < 1).all(axis=1)], ref=REFERENCE), abs=1e-14
    )
    assert pareto.non_dominated(losses).sum() < 20


def added_area(point, losses):
    """The plain definition, by moocore."""
    inside = losses[(losses < REFERENCE).all(axis=1)]
    before = moocore.hypervolume(inside, ref=REFERENCE) if len(inside) else 0.0
    if not (point < REFERENCE).all():
        return 0.0
    return moocore.hypervolume(np.vstack([inside, point]), ref=REFERENCE) - before


@pytest.mark.parametrize("num_observed", [0, 1, 7])
def test_the_expected_improvement_is_the_mean_over_draws(num_observed):
    losses = rng(1).random((num_observed, 2))
    means = np.array([[0.1, 0.2], [0.5, 0.5], [0.9, 0.05], [1.2, 1.1]])
    stddevs = np.array([[0.1, 0.1], [0.3, 0.05], [0.02, 0.4], [0.2, 0.2]])
    values, _, _ = pareto.expected_improvement(means, stddevs, losses, REFERENCE)
    z = rng(2).standard_normal((4000, 2))
    for mean, stddev, value in zip(means, stddevs, values, strict=True):
        draws = np.array([added_area(point, losses) for point in mean + stddev * z])
        assert value == pytest.approx(draws.mean(), abs=4.5 * draws.std() / np.sqrt(len(z)) + 1e-7)


def integrated_improvement(mean, stddev, losses):
    """EHVI as an integral over the first loss: P(Y_1 < u) times the expected gain below the front at u."""

    def gain(u):
        covered = losses[losses[:, 0] <= u, 1]
        t = min(1.0, covered.min(initial=1.0))  # height of the free strip at u
        z = (t - mean[1]) / stddev[1]
        return norm.cdf((u - mean[0]) / stddev[0]) * stddev[1] * (z * norm.cdf(z) + norm.pdf(z))

    edges = sorted({mean[0] - 12 * stddev[0], *losses[losses[:, 0] < 1.0, 0].tolist(), 1.0})
    return sum(quad(gain, a, b, epsabs=1e-13, epsrel=1e-11, limit=200)[0] for a, b in pairwise(edges))


@pytest.mark.parametrize("num_observed", [0, 1, 7])
def test_the_expected_improvement_is_the_integral_over_the_first_loss(num_observed):
    losses = 1.2 * rng(1).random((num_observed, 2))  # some lie beyond the reference point
    means, stddevs = rng(8).random((12, 2)), 0.05 + 0.3 * rng(9).random((12, 2))
    values, _, _ = pareto.expected_improvement(means, stddevs, losses, REFERENCE)
    expected = [integrated_improvement(*pair, losses) for pair in zip(means, stddevs, strict=True)]
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-11)


def test_the_same_draws_refuse_a_wrong_deviation():
    losses, mean, stddev = rng(1).random((7, 2)), np.array([[0.5, 0.5]]), np.array([[0.3, 0.05]])
    draws = np.array([added_area(p, losses) for p in mean + stddev * rng(2).standard_normal((4000, 2))])
    wrong = pareto.expected_improvement(mean, 1.3 * stddev, losses, REFERENCE)[0][0]
    assert abs(wrong - draws.mean()) > 4.5 * draws.std() / np.sqrt(len(draws))


def test_without_uncertainty_the_expected_improvement_is_the_improvement():
    losses, means = rng(3).random((9, 2)), rng(4).random((50, 2))
    values, _, _ = pareto.expected_improvement(means, np.full((50, 2), 1e-9), losses, REFERENCE)
    np.testing.assert_allclose(values, [added_area(point, losses) for point in means], atol=1e-8)


def test_the_gradients_are_those_of_finite_differences():
    losses, means = rng(5).random((6, 2)), rng(6).random((20, 2))
    stddevs = 0.05 + 0.3 * rng(7).random((20, 2))
    _, in_means, in_stddevs = pareto.expected_improvement(means, stddevs, losses, REFERENCE)
    for j in range(2):
        step = 1e-6 * np.eye(2)[j]
        up, down = (
            pareto.expected_improvement(means + s, stddevs, losses, REFERENCE)[0] for s in (step, -step)
        )
        np.testing.assert_allclose(in_means[:, j], (up - down) / 2e-6, atol=1e-8)
        up, down = (
            pareto.expected_improvement(means, stddevs + s, losses, REFERENCE)[0] for s in (step, -step)
        )
        np.testing.assert_allclose(in_stddevs[:, j], (up - down) / 2e-6, atol=1e-8)


@given(LOSSES, st.floats(0, 1.2), st.floats(0, 1.2), st.floats(1e-9, 10))
def test_the_expected_improvement_is_symmetric_in_the_losses(losses, first, second, stddev):
    means, stddevs = np.array([[first, second]]), np.array([[stddev, 2 * stddev]])
    one = pareto.expected_improvement(means, stddevs, losses, REFERENCE)[0]
    other = pareto.expected_improvement(means[:, ::-1], stddevs[:, ::-1], losses[:, ::-1], REFERENCE)[0]
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-13)


@given(
    st.integers(1, 5).flatmap(lambda k: arrays(np.float64, (8, k), elements=st.sampled_from([0.1, 0.4, 0.9])))
)
def test_fronts_of_any_dimension_drop_duplicates(losses):
    mask = fronts.non_dominated(losses)
    front = losses[mask]
    assert len(np.unique(front, axis=0)) == len(front) > 0
    for row in losses:
        assert any((kept <= row).all() for kept in front)


def test_three_losses_dominate_the_volume_of_a_hand_worked_case():
    losses = np.array([[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.5], [2.0, 0.0, 0.0]])
    # two boxes of 1 x .5 x .5 share .5 x .5 x .5; the third row is dominated, the last is outside
    assert fronts.hypervolume(losses, np.ones(3)) == pytest.approx(2 * 0.25 - 0.125)
    assert fronts.hypervolume(losses[3:], np.ones(3)) == 0.0
    assert fronts.non_dominated(losses).tolist() == [True, True, False, True]
    assert fronts.non_dominated(np.zeros((0, 3))).tolist() == []


def test_malformed_losses_are_refused():
    with pytest.raises(ConfigError, match="losses"):
        pareto.non_dominated(np.zeros((3, 3)))
    with pytest.raises(ConfigError, match="finite"):
        pareto.hypervolume(np.array([[np.nan, 0.0]]), REFERENCE)
    with pytest.raises(ConfigError, match="reference"):
        pareto.hypervolume(np.zeros((1, 2)), np.ones(3))
    with pytest.raises(ConfigError, match="stddevs"):
        pareto.expected_improvement(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 2)), REFERENCE)
    with pytest.raises(ConfigError, match="reference"):
        fronts.hypervolume(np.zeros((1, 3)), REFERENCE)
    with pytest.raises(ConfigError, match="losses"):
        fronts.non_dominated(np.full((1, 3), np.inf))
