"""Improvement under limits against draws, closed forms, BoTorch and differences."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from fbo_flower.numerics.acquisition.feasible import (
    FeasibleImprovement,
    Goal,
    confidence,
    in_units,
    left_to_gain,
)
from fbo_flower.numerics.acquisition.guided import GuidedImprovement
from fbo_flower.numerics.acquisition.hypervolume import free_boxes, log_improvement, reference_point
from fbo_flower.numerics.optim.functions import shape_of, stack_of
from fbo_flower.numerics.surrogates import gp

NONE = -np.inf  # no limit
RNG = np.random.default_rng(0)
MEAN, STDDEV = np.abs(RNG.normal(size=(3, 12))), 0.4 + RNG.random((3, 12))  # three outputs, twelve candidates
OWN = RNG.normal(size=(3, 8))  # their means at own points
LEAST = np.array([NONE, -0.2, 0.3])
HOLDS = (OWN[1] >= -0.2) & (OWN[2] >= 0.3)  # three points


def function_of(seed, objectives=(0, 1), least=(NONE, NONE, 0.0)):
    """Return a function of three outputs on the square, of which the second has another kernel."""
    rng, processes = np.random.default_rng(seed), []
    for kernel in ("matern52", "rbf", "matern52"):
        h = gp.Hyperparameters(kernel, np.array([0.4, 0.6]), 1.2, 1e-3)
        process = gp.posterior(rng.random((6, 2)), rng.normal(size=6), h)
        processes.append(GuidedImprovement(process, 0.0))
    means = np.random.default_rng([seed, 0]).normal(size=(3, 10))
    return FeasibleImprovement(tuple(processes), Goal.of(means, objectives, np.array(least)))


# -- the goal -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("objectives", [(0,), (2, 0)])
def test_it_is_the_improvement_of_the_feasible_points_times_the_probability_of_every_limit(objectives):
    which, own = list(objectives), OWN[list(objectives)].T[HOLDS]
    logs = norm.logcdf((MEAN[1:] - LEAST[1:, None]) / STDDEV[1:]).sum(axis=0)
    z = (MEAN[0] - own[:, 0].max()) / STDDEV[0]
    expected = np.log(STDDEV[0] * (norm.pdf(z) + z * norm.cdf(z)))
    if len(objectives) > 1:
        boxes = free_boxes(own, reference_point(own[[not (own > row).all(axis=1).any() for row in own]]))
        expected = log_improvement(MEAN[which], STDDEV[which], *boxes)[0]
    np.testing.assert_allclose(Goal.of(OWN, objectives, LEAST)(MEAN, STDDEV)[0], expected + logs, rtol=1e-9)


@pytest.mark.parametrize("objectives", [(0,), (0, 1)])
def test_without_a_feasible_point_only_the_probabilities_count(objectives):
    least = np.array([NONE, NONE, OWN[2].max() + 0.1])
    value, *slopes = Goal.of(OWN, objectives, least)(MEAN, STDDEV)
    np.testing.assert_allclose(value, norm.logcdf((MEAN[2] - least[2]) / STDDEV[2]))
    assert not np.array(slopes)[:, :2].any()
    assert Goal.of(OWN, objectives, least - 0.1).boxes is not None  # one point is just feasible


def test_improvement_counts_from_a_reference_that_is_given():
    usual = Goal.of(OWN, [0, 1], LEAST).boxes[0].min(axis=0)
    goal = Goal.of(OWN, [0, 1], LEAST, np.array([np.nan, -0.7]))
    np.testing.assert_array_equal(goal.boxes[0].min(axis=0), [usual[0], -0.7])


def test_without_own_points_the_prior_mean_is_to_be_improved_on_if_there_is_no_limit():
    nothing, free = np.empty((3, 0)), np.full(3, NONE)
    np.testing.assert_array_equal(Goal.of(nothing, [1], free).boxes, [[[0.0]], [[np.inf]]])
    assert Goal.of(nothing, [0, 1], free).boxes[0].tolist() == [[0.0, 0.0]]
    assert Goal.of(nothing, [0, 1], LEAST).boxes is None


# -- units --------------------------------------------------------------------------------------------

NUMBERS = st.floats(-1e200, 1e200) | st.integers(-3, 3).map(float)


@given(st.lists(NUMBERS, max_size=8), NUMBERS)
def test_in_the_models_units_a_value_holds_its_limit_as_before(values, bound):
    values = np.array(values)
    y, limit = in_units(values, bound)
    assert np.isfinite([*y, limit]).all()
    clear = np.abs(values - bound) > 1e-6 * (np.ptp(values) if len(values) else 0.0)  # not equal by rounding
    np.testing.assert_array_equal((y >= limit)[clear], (values >= bound)[clear])
    if len(y) and np.ptp(y):
        np.testing.assert_allclose([y.mean(), y.std()], [0.0, 1.0], atol=1e-9)
        assert (np.diff(y[np.argsort(values)]) >= -1e-12).all()


@pytest.mark.parametrize(
    ("bound", "raised", "limit"),  # the median of the distinct values is 16, the spread 2, the fence 10
    [(-2000.0, 10.0, -2000.0), (-9.0, 8.0, 9.0), (10.0, 8.0, 10.0), (13.0, 10.0, 13.0)],
)
def test_a_diverged_value_is_raised_but_never_across_the_limit(bound, raised, limit):
    values, expected = (np.array([15.0, 16.0, 17.0, 18.0, last]) for last in (-1000.0, raised))
    y, found = in_units(values, bound)
    np.testing.assert_allclose(y, (expected - expected.mean()) / expected.std())
    np.testing.assert_allclose(found, (limit - expected.mean()) / expected.std())
    y, found = in_units(np.array([*values, -900.0, 16.0]), -900.0)
    assert y[4] < found < y[5]  # what is just at the limit holds it


def test_equal_values_tell_only_on_which_side_of_the_limit_they_are():
    for bound, expected in ((3.0, 1.0), (2.0, 0.0), (-7.0, -1.0)):
        y, limit = in_units(np.full(3, 2.0), bound)
        assert (y.tolist(), limit) == ([0.0] * 3, expected)
    assert in_units(np.array([1.0, 1.0 + 1e-9]), 1e300)[1] == 1e6
    assert in_units(np.empty(0), 3.0)[1] == 0.0


# -- the function -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objectives", "least"),
    [((0,), (0.2, NONE, -0.3)), ((0, 1, 2), (NONE,) * 3), ((0, 1), (NONE, -5, 5))],
)
def test_value_and_gradient_of_a_function_follow_from_its_processes(objectives, least):
    function, z = function_of(3, objectives, least), np.random.default_rng(5).random((30, 2))
    values, gradients = function.value_and_gradient(z)
    predicted = np.array([output.process.predict(z) for output in function.processes])
    expected = function.goal(predicted[:, 0], np.sqrt(predicted[:, 1]))[0]
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(function(z), values)
    for axis, step in enumerate(1e-6 * np.eye(2)):
        numeric = (function(z + step) - function(z - step)) / 2e-6
        assert (np.abs(gradients[:, axis] - numeric) <= 1e-5 * np.abs(numeric) + 1e-7 * np.abs(values)).all()


def test_functions_in_a_stack_have_bit_for_bit_the_values_that_they_have_alone():
    functions = [function_of(seed, least=(NONE, NONE, 0.6 * seed)) for seed in range(5)]
    assert len({f.goal.boxes is None or len(f.goal.boxes[0]) for f in functions}) > 2  # fronts differ in size
    assert len({shape_of(f) for f in functions}) == 1
    z = np.random.default_rng(8).random((5, 20, 2))
    stack = stack_of(functions)
    alone = [f.value_and_gradient(points) for f, points in zip(functions, z, strict=True)]
    for found, expected in zip(stack.value_and_gradient(z), zip(*alone, strict=True), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(stack.values(z), [value for value, _ in alone])
    np.testing.assert_array_equal(stack.take(np.array([4])).scores(z[4:]), stack.scores(z)[4:])


def test_a_candidate_is_liked_by_its_mean_if_it_likely_holds_every_limit():
    mean = np.array([[3.0, 2.0, 1.0, 2.5], [-1.0, 0.5, 2.0, 0.1]])
    stddev = np.array([[0.1, 0.1, 5.0, 0.1], [0.5, 0.5, 0.5, 0.5]])
    goal = Goal.of(np.array([[1.5], [1.0]]), [0], np.array([NONE, 0.0]))
    assert np.argsort(-goal.liked(mean, stddev)).tolist()[:2] == [3, 1]
    assert goal.liked(mean, stddev)[0] == -np.inf
    strict = Goal.of(np.array([[1.5], [-1.0]]), [0], np.array([NONE, 9.0]))
    assert np.argmax(strict.liked(mean, stddev)) == 2  # the likeliest
    front = Goal.of(np.array([[0.0, 2.0], [2.0, 0.0]]), [0, 1], np.array([NONE, NONE]))
    assert np.argmax(front.liked(mean[:, 1:], stddev[:, 1:])) == 1  # it adds the largest volume


# -- what a search has left to gain -------------------------------------------------------------------


BELIEF = np.array([[1.0, 3.0, 2.0, 0.5], [0.0, -1.0, 1.0, 2.0]])  # two sampled points, two own ones
SPREAD = np.array([[0.5, 1.0, 0.1, 0.0], [0.5, 0.2, 0.1, 0.1]])


def test_the_confidence_is_that_of_optuna():
    evaluator = pytest.importorskip("optuna.terminator.improvement.evaluator")
    for num_points, dimension in ((2, 1), (20, 5), (400, 12)):
        expected = math.sqrt(evaluator._get_beta(dimension, num_points))
        assert confidence(num_points, dimension) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("stddev", "num_sampled", "least", "expected"),
    [
        (SPREAD[:1], 2, [NONE], (3.0 + 2.0) - (2.0 - 0.2)),
        (SPREAD, 2, [NONE, 0.0], (2.0 + 0.2) - (2.0 - 0.2)),  # the second sampled point cannot hold it
        (SPREAD, 2, [NONE, 1.5], 0.0),  # the first own point does not, the first sampled one cannot
        (SPREAD, 2, [NONE, 3.0], math.inf),
    ],
)
def test_the_bound_is_the_highest_upper_less_the_highest_lower_bound_at_points_that_may_hold_the_limits(
    stddev, num_sampled, least, expected
):
    found = left_to_gain(BELIEF[: len(stddev)], stddev, num_sampled, np.array(least), 2.0)
    assert found == pytest.approx(expected)
