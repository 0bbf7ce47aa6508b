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


@given(LOSSES.filter(len))
def test_the_front_and_the_hypervolume_are_those_of_moocore(losses):
    expected = moocore.is_nondominated(losses, keep_weakly=False)
    assert pareto.non_dominated(losses).tolist() == expected.tolist()
    area = moocore.hypervolume(losses, ref=REFERENCE)
    more = np.concatenate([losses, losses, losses + 0.1])  # duplicates and dominated points change nothing
    for found in (losses, more):
        assert fronts.hypervolume(found, REFERENCE) == pytest.approx(area, abs=1e-14)


# -- expected improvement -----------------------------------------------------------------------------


def added_area(point, losses):
    """The plain definition, by moocore."""
    if not (point < REFERENCE).all():
        return 0.0
    inside = losses[(losses < REFERENCE).all(axis=1)]
    before = moocore.hypervolume(inside, ref=REFERENCE) if len(inside) else 0.0
    return moocore.hypervolume(np.vstack([inside, point]), ref=REFERENCE) - before


@pytest.mark.parametrize("num_observed", [0, 7])
def test_the_expected_improvement_is_the_mean_over_draws(num_observed):
    losses, z = rng(1).random((num_observed, 2)), rng(2).standard_normal((1500, 2))
    means = np.array([[0.1, 0.2], [0.5, 0.5], [0.9, 0.05]])
    stddevs = np.array([[0.1, 0.1], [0.3, 0.05], [0.02, 0.4]])
    for factor, fits in ((1.0, True), (1.5, False)):  # wrong deviations are a negative control
        values = pareto.expected_improvement(means, factor * stddevs, losses, REFERENCE)[0]
        found = []
        for mean, stddev, value in zip(means, stddevs, values, strict=True):
            draws = np.array([added_area(point, losses) for point in mean + stddev * z])
            found.append(abs(value - draws.mean()) < 4.5 * draws.std() / np.sqrt(len(z)))
        if num_observed or fits:
            assert all(found) == fits


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
    means, stddevs = rng(8).random((6, 2)), 0.05 + 0.3 * rng(9).random((6, 2))
    values, _, _ = pareto.expected_improvement(means, stddevs, losses, REFERENCE)
    expected = [integrated_improvement(*pair, losses) for pair in zip(means, stddevs, strict=True)]
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-11)


def test_without_uncertainty_the_expected_improvement_is_the_improvement():
    losses, means = rng(3).random((9, 2)), rng(4).random((50, 2))
    values, _, _ = pareto.expected_improvement(means, np.full((50, 2), 1e-9), losses, REFERENCE)
    np.testing.assert_allclose(values, [added_area(point, losses) for point in means], atol=1e-8)


def test_the_gradients_are_those_of_finite_differences():
    losses, both = rng(5).random((6, 2)), (rng(6).random((20, 2)), 0.05 + 0.3 * rng(7).random((20, 2)))
    gradients = pareto.expected_improvement(*both, losses, REFERENCE)[1:]
    for which, gradient in enumerate(gradients):
        for j, step in enumerate(1e-6 * np.eye(2)):
            up, down = (
                pareto.expected_improvement(
                    *(part + s * (which == i) for i, part in enumerate(both)), losses, REFERENCE
                )[0]
                for s in (step, -step)
            )
            np.testing.assert_allclose(gradient[:, j], (up - down) / 2e-6, atol=1e-8)


@given(LOSSES, st.floats(0, 1.2), st.floats(0, 1.2), st.floats(1e-9, 10))
def test_the_expected_improvement_is_symmetric_in_the_losses(losses, first, second, stddev):
    means, stddevs = np.array([[first, second]]), np.array([[stddev, 2 * stddev]])
    one = pareto.expected_improvement(means, stddevs, losses, REFERENCE)[0]
    other = pareto.expected_improvement(means[:, ::-1], stddevs[:, ::-1], losses[:, ::-1], REFERENCE)[0]
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-13)


# -- more than two losses, in reports -----------------------------------------------------------------


@given(
    st.integers(1, 5).flatmap(lambda k: arrays(np.float64, (8, k), elements=st.sampled_from([0.1, 0.4, 0.9])))
)
def test_fronts_of_any_dimension_drop_duplicates(losses):
    front = losses[fronts.non_dominated(losses)]
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


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (pareto.non_dominated, [np.zeros((3, 3))], "losses"),
        (pareto.non_dominated, [np.array([[np.nan, 0.0]])], "finite"),
        (
            pareto.expected_improvement,
            [np.zeros((1, 2)), np.ones((1, 2)), np.zeros((1, 2)), np.ones(3)],
            "reference",
        ),
        (pareto.expected_improvement, [*np.zeros((3, 1, 2)), REFERENCE], "stddevs"),
        (fronts.hypervolume, [np.zeros((1, 3)), REFERENCE], "reference"),
        (fronts.non_dominated, [np.full((1, 3), np.inf)], "losses"),
    ],
)
def test_malformed_losses_are_refused(function, arguments, message):
    with pytest.raises(ConfigError, match=message):
        function(*arguments)
