"""Boxes, volumes and log EHVI against moocore, draws, brute-force integration, BoTorch and differences."""

from __future__ import annotations

import functools
import itertools

import moocore
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition import hypervolume as hv

# a coarse grid, where equal values and equal points are common; values of 0 do not exceed the reference
VALUES = st.tuples(st.integers(0, 9), st.integers(1, 3)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(0, 5).map(float))
)
REFERENCE = np.array([-1.5, -1.8, -1.3])


def case(num_objectives, num_points, num_candidates, seed=0):
    """Return values, reference, boxes, and means and deviations `(K, m)` of candidates."""
    rng = np.random.default_rng([seed, num_objectives, num_points])
    values, reference = rng.normal(size=(num_points, num_objectives)), REFERENCE[:num_objectives]
    mean = rng.normal(size=(num_objectives, num_candidates))
    stddev = 0.05 + rng.random((num_objectives, num_candidates))
    return values, reference, hv.free_boxes(values, reference), mean, stddev


@given(VALUES)
def test_the_boxes_are_disjoint_and_hold_all_that_is_not_dominated(values):
    reference = np.zeros(values.shape[1])
    lower, upper = hv.free_boxes(values, reference)
    places = np.array(list(itertools.product(np.arange(6) + 0.5, repeat=values.shape[1])))  # a cell each
    inside = ((places[:, None] >= lower) & (places[:, None] < upper)).all(axis=2).sum(axis=1)
    dominated = (places[:, None] <= values).all(axis=2).any(axis=1)
    np.testing.assert_array_equal(inside, ~dominated)
    assert hv.hypervolume(values, reference) == pytest.approx(np.count_nonzero(dominated))
    assert (lower >= reference).all()
    front = moocore.is_nondominated(values, maximise=True, keep_weakly=False) if len(values) else []
    np.testing.assert_array_equal(hv.non_dominated(values), front)
    assert len(lower) <= 1 + (values.shape[1] - 1) * hv.non_dominated(values).sum()  # few, as promised


@given(VALUES.filter(len))
def test_duplicates_and_dominated_points_change_nothing(values):
    reference = np.zeros(values.shape[1])
    front = values[hv.non_dominated(values)]
    assert len(np.unique(front, axis=0)) == len(front) > 0
    assert all((front >= row).all(axis=1).any() for row in values)
    more = np.concatenate([values, values, values - 0.1])
    for found in (front, more):
        assert hv.hypervolume(found, reference) == pytest.approx(hv.hypervolume(values, reference), abs=1e-12)


def test_three_objectives_dominate_the_volume_of_a_hand_worked_case():
    values = -np.array([[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.5], [2.0, 0.0, 0.0]])
    # two boxes of 1 x .5 x .5 share .5 x .5 x .5; the third row is dominated, the last is outside
    assert hv.hypervolume(values, -np.ones(3)) == pytest.approx(2 * 0.25 - 0.125)
    assert hv.hypervolume(values[3:], -np.ones(3)) == 0.0
    assert hv.non_dominated(values).tolist() == [True, True, False, True]


def test_the_reference_point_lies_below_the_front_by_a_tenth_of_its_range_or_half_a_deviation():
    np.testing.assert_allclose(hv.reference_point(np.array([[8.0, 0.0], [-2.0, 0.3]])), [-3.0, -0.5])


# -- expected improvement -----------------------------------------------------------------------------


def added_volume(point, values, reference):
    """The plain definition, by moocore."""
    if not (point > reference).all():
        return 0.0
    volumes = [moocore.hypervolume(v, ref=reference, maximise=True) for v in (values, [*values, point])]
    return volumes[1] - volumes[0]


@pytest.mark.parametrize("num_objectives", [1, 2, 3])
def test_the_expected_improvement_is_the_mean_over_draws(num_objectives):
    values, reference, boxes, mean, stddev = case(num_objectives, 6, 3)
    mean, stddev = np.abs(mean), 0.3 + stddev  # so that draws improve
    z = np.random.default_rng(1).normal(size=(2000, num_objectives))
    for factor, fits in ((1.0, True), (1.5, False)):  # wrong deviations are a negative control
        expected = np.exp(hv.log_improvement(mean, factor * stddev, *boxes)[0])
        found = []
        for c, value in enumerate(expected):
            draws = [added_volume(y, values, reference) for y in mean[:, c] + stddev[:, c] * z]
            found.append(abs(value - np.mean(draws)) < 4.5 * np.std(draws) / np.sqrt(len(z)))
        assert all(found) == fits


def integrated_improvement(mean, stddev, values, reference):
    """EHVI as an integral of `P(Y > v)` over all `v` that nothing dominates, cell by cell between values."""
    edges, masses = [], []
    nodes, weights = np.polynomial.legendre.leggauss(60)
    for k, low in enumerate(reference):
        high = max(mean[k] + 12.0 * stddev[k], values[:, k].max(initial=low) + 1.0)
        edge = np.unique([*values[values[:, k] > low, k], *np.linspace(low, high, 40)])
        half = 0.5 * np.diff(edge)[:, None]
        at = edge[:-1, None] + half * (1.0 + nodes)
        masses.append((half * weights * norm.sf((at - mean[k]) / stddev[k])).sum(axis=1))
        edges.append(edge[:-1])
    corners = np.stack(np.meshgrid(*edges, indexing="ij"), axis=-1)  # of the cells
    free = ~(values > corners[..., None, :]).all(axis=-1).any(axis=-1)
    return (free * functools.reduce(np.multiply.outer, masses)).sum()


@pytest.mark.parametrize(("num_objectives", "num_points"), [(1, 4), (2, 0), (2, 7), (3, 0), (3, 4)])
def test_the_expected_improvement_is_the_integral_over_what_is_not_dominated(num_objectives, num_points):
    values, reference, boxes, mean, stddev = case(num_objectives, num_points, 2)
    found = np.exp(hv.log_improvement(mean, stddev, *boxes)[0])
    expected = [
        integrated_improvement(*pair, values, reference) for pair in zip(mean.T, stddev.T, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("num_objectives", [1, 2, 3])
@pytest.mark.parametrize(
    ("shift", "spread"), [(0.0, 1.0), (-30.0, 0.5), (-500.0, 1.0), (40.0, 1.0), (0.3, 1e-5)]
)
def test_the_slopes_are_those_of_differences_also_where_the_improvement_underflows(
    num_objectives, shift, spread
):
    _, _, boxes, mean, stddev = case(num_objectives, 6, 20)
    both = np.array([mean + shift, spread * stddev])
    value, *slopes = hv.log_improvement(*both, *boxes)
    assert np.isfinite(value).all()
    if shift < -20.0:
        assert (np.exp(value) == 0.0).all()
    step = 1e-6 * spread * (10.0 if shift < -100.0 else 1.0)
    rounding = 1e-14 * (np.abs(value) + 1.0) / step
    for which, k in itertools.product((0, 1), range(num_objectives)):
        steps = np.zeros((2, *mean.shape))
        steps[which, k] = step
        up, down = (hv.log_improvement(*(both + sign * steps), *boxes)[0] for sign in (1.0, -1.0))
        numeric = (up - down) / (2.0 * step)
        assert (np.abs(slopes[which][k] - numeric) <= 1e-5 * np.abs(numeric) + rounding).all()


@pytest.mark.parametrize("far", [0.0, -60.0, -1e4])
def test_the_logarithm_of_the_improvement_on_nothing_is_a_sum_over_objectives(far):
    _, reference, boxes, mean, stddev = case(3, 0, 5)
    z = (mean + far - reference[:, None]) / stddev
    # Mills' ratio [Abramowitz & Stegun 26.2.12]: h(z) = phi(z) (1 / z^2 - 3 / z^4 + 15 / z^6 - ...)
    tail = 1.0 / z**2 - 3.0 / z**4 + 15.0 / z**6 - 105.0 / z**8
    log_h = norm.logpdf(z) + np.log(tail) if far else np.log(norm.pdf(z) + z * norm.cdf(z))
    found = hv.log_improvement(mean + far, stddev, *boxes)[0]
    np.testing.assert_allclose(found, (np.log(stddev) + log_h).sum(axis=0), rtol=1e-10)


def test_a_box_without_width_adds_nothing_and_does_not_disturb_the_slopes():
    values, reference, boxes, mean, stddev = case(2, 6, 20)
    more = [values + apart * np.array([1.0, -1.0]) for apart in (0.0, 1e-15, -1e-13)]
    thin = hv.free_boxes(np.concatenate(more), reference)
    assert len(thin[0]) > len(boxes[0])
    pairs = (hv.log_improvement(mean, stddev, *both) for both in (boxes, thin))
    for one, other in zip(*pairs, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("num_objectives", [2, 3])
def test_the_expected_improvement_is_that_of_botorch(num_objectives):
    torch = pytest.importorskip("torch")
    analytic = pytest.importorskip("botorch.acquisition.multi_objective.analytic")
    partitionings = pytest.importorskip("botorch.utils.multi_objective.box_decompositions.non_dominated")
    from botorch.utils.multi_objective.hypervolume import infer_reference_point
    from botorch.utils.testing import MockModel, MockPosterior

    values, reference, boxes, mean, stddev = case(num_objectives, 9, 15)
    posterior = MockPosterior(
        mean=torch.tensor(mean.T[:, None]), variance=torch.tensor(stddev.T[:, None] ** 2)
    )
    partitioning = partitionings.FastNondominatedPartitioning(torch.tensor(reference), torch.tensor(values))
    acquisition = analytic.ExpectedHypervolumeImprovement(
        MockModel(posterior), reference.tolist(), partitioning
    )
    expected = acquisition(torch.zeros(15, 1, 1, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(
        np.exp(hv.log_improvement(mean, stddev, *boxes)[0]), expected, rtol=1e-7, atol=1e-14
    )
    front = 20.0 * values[hv.non_dominated(values)]  # wide enough for a tenth of the range to count
    np.testing.assert_allclose(hv.reference_point(front), infer_reference_point(torch.tensor(front)).numpy())


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (hv.non_dominated, [np.zeros(3)], "values"),
        (hv.hypervolume, [np.array([[np.nan, 0.0]]), np.zeros(2)], "finite"),
        (hv.hypervolume, [np.zeros((1, 2)), np.zeros(3)], "reference: expected 2"),
        (hv.free_boxes, [np.zeros((1, 2)), np.array([0.0, -np.inf])], "reference"),
        (hv.free_boxes, [np.zeros((1, 4)), np.zeros(4)], "objectives: expected 1 to 3, got 4"),
        (hv.reference_point, [np.full((1, 2), np.inf)], "finite"),
    ],
)
def test_malformed_values_are_refused(function, arguments, message):
    with pytest.raises(ConfigError, match=message):
        function(*arguments)
