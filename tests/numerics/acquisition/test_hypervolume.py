"""Boxes, volumes, log EHVI and proposals against moocore, draws, integration, BoTorch and differences."""

import functools
import itertools

import moocore
import numpy as np
import pytest
from acquisition_cases import slopes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare, norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from fbo_flower.numerics.acquisition import hypervolume as hv
from fbo_flower.numerics.acquisition import proposals
from fbo_flower.numerics.acquisition.hypervolume import non_dominated
from fbo_flower.numerics.acquisition.proposals import KERNEL, normalise
from fbo_flower.numerics.optim.maximise import maximise

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


def test_the_reference_point_lies_below_the_front_by_a_tenth_of_its_range_or_half_a_deviation():
    np.testing.assert_allclose(hv.reference_point(np.array([[8.0, 0.0], [-2.0, 0.3]])), [-3.0, -0.5])


# -- expected improvement -----------------------------------------------------------------------------


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
    pairs = zip(mean.T, stddev.T, strict=True)
    expected = [integrated_improvement(*pair, values, reference) for pair in pairs]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("num_objectives", [1, 3])
@pytest.mark.parametrize(("shift", "spread"), [(0.0, 1.0), (-500.0, 1.0), (40.0, 1.0), (0.3, 1e-5)])
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


def rng(seed=0):
    return np.random.default_rng(seed)


def improvement(x, losses, incumbent="mean"):
    return proposals.plan_improvement(x, losses, incumbent).fitted(KERNEL)


def volume_improvement(x, losses, reference=None):
    return proposals.plan_volume_improvement(x, losses, reference).fitted(KERNEL)


def bowl(x, centre=0.4):
    return ((x - centre) ** 2).sum(axis=1)


def two_losses(x):
    return np.stack([bowl(x, 0.3), bowl(x, 0.7)], axis=1)


X = rng(1).random((25, 2))
Z = rng(2).random((30, 2))


@pytest.mark.parametrize(
    "surface", [improvement(X, bowl(X)), volume_improvement(X, two_losses(X))], ids=["one", "two"]
)
def test_values_and_gradients_agree_with_each_other(surface):
    values, gradients = surface.value_and_gradient(Z)
    np.testing.assert_allclose(values, surface(Z), atol=1e-6)
    likely = values > values.max() - 20
    assert likely.sum() > 5
    np.testing.assert_allclose(gradients[likely], slopes(surface, Z)[likely], rtol=1e-3, atol=1e-3)


def scikit_moments(posterior, z):
    """Mean and deviation of scikit-learn's process with the same kernel, noise and data."""
    h = posterior.hyperparameters
    kernel = ConstantKernel(h.outputscale) * Matern(h.lengthscales, nu=2.5)
    process = GaussianProcessRegressor(kernel, alpha=h.noise_variance, optimizer=None)
    return process.fit(posterior.x, posterior.y).predict(z, return_std=True)


@pytest.mark.parametrize("reference", [None, np.array([1.0, 1.0])])
def test_the_volume_improvement_is_that_of_a_plain_reference(reference):
    losses = two_losses(X) + 0.1 * rng(10).standard_normal((25, 2))
    surface = volume_improvement(X, losses, reference)
    values, moments = (
        np.array([scikit_moments(p, z) for p in surface.posteriors]).transpose(1, 2, 0) for z in (X, Z)
    )
    front = values[0][non_dominated(values[0])]  # posterior means, not what was observed
    if reference is None:
        corner = front.min(axis=0) - 0.1 * np.ptp(losses, axis=0) / losses.std(axis=0)
    else:
        corner = (losses.mean(axis=0) - reference) / losses.std(axis=0)
    expected = [integrated_improvement(*pair, front, corner) for pair in zip(*moments, strict=True)]
    np.testing.assert_allclose(np.exp(surface(Z)), expected, rtol=1e-6, atol=1e-9)


SPREAD = rng(7).random((60, 2))
ONE_POINT = np.full((60, 2), 0.3)
AWKWARD = {
    "60 identical losses": (SPREAD, np.full((60, 2), 0.37)),
    "60 identical points and losses": (ONE_POINT, np.full((60, 2), 0.37)),
    "ties but for rounding": (SPREAD, 0.37 + 1e-17 * rng(9).standard_normal((60, 2))),
    "one loss stands out": (SPREAD, np.where(np.arange(120).reshape(60, 2) == 17, 1e12, 0.1)),
    "tiny losses": (SPREAD, 1e-300 * rng(8).random((60, 2))),
    "one loss is constant": (SPREAD, np.stack([SPREAD[:, 0], np.full(60, 0.2)], axis=1)),
}


@pytest.mark.parametrize("case", AWKWARD)
def test_awkward_losses_still_give_a_point(case):
    x, losses = AWKWARD[case]
    for surface in (
        improvement(x, losses[:, 0]),
        volume_improvement(x, losses),
        volume_improvement(x, losses, reference=np.array([1.0, 1.0])),
    ):
        candidates = rng(3).random((1, 64, 2))
        (found,) = maximise([surface], candidates, np.arange(2), avoid=x[None], min_distance=0.005)
        assert np.isfinite(found.value)
        assert ((found.x >= 0) & (found.x <= 1)).all()


def test_the_incumbent_is_what_the_surrogate_believes_or_if_asked_for_the_best_observation():
    losses = bowl(X, 0.3) + 0.1 * rng(1).standard_normal(len(X))
    believed, observed = improvement(X, losses), improvement(X, losses, "observed")
    assert observed.best == pytest.approx((losses.mean() - losses.min()) / losses.std())
    assert believed.best == pytest.approx(believed.posterior.predict(X)[0].max())
    assert believed.best < observed.best


def test_equal_points_are_merged_in_their_order_and_their_losses_averaged():
    x = np.array([[0.5, 0.1], [0.2, 0.2], [0.5, 0.1], [0.2, 0.3]])
    different, losses = proposals.merge_equal(x, np.array([[1.0], [2.0], [3.0], [4.0]]))
    assert different.tolist() == [[0.5, 0.1], [0.2, 0.2], [0.2, 0.3]]
    assert losses.ravel().tolist() == [2.0, 2.0, 4.0]


@pytest.mark.parametrize(("num_losses", "resolution"), [(1, 3), (3, 4)])
def test_every_weight_vector_of_the_lattice_is_drawn_equally_often(num_losses, resolution, monkeypatch):
    monkeypatch.setattr(proposals, "RESOLUTION", resolution)
    generator, places = rng(1), itertools.product(range(resolution + 1), repeat=num_losses)
    counts = {count: 0 for count in places if sum(count) == resolution}
    for _ in range(100 * len(counts)):
        weights = proposals.draw_weights(num_losses, generator)
        counts[tuple(int(n) for n in np.rint(weights * resolution))] += 1  # KeyError off the lattice
    if len(counts) > 1:
        assert chisquare(list(counts.values())).pvalue > 1e-3


def test_normalised_losses_span_zero_to_one_and_constants_become_zero():
    losses = np.array([[0.3, -1e6, 0.3], [0.3, 1e6, 0.3 + 1e-17], [0.3, 0.0, 0.3 + 2e-16]])
    assert normalise(losses).T.tolist() == [[0.0] * 3, [0.0, 1.0, 0.5], [0.0] * 3]
    assert normalise(np.zeros((0, 2))).shape == (0, 2)


def test_the_scalar_loss_is_the_formula():
    losses, weights = rng(1).random((5, 3)), np.array([0.2, 0.3, 0.5])
    for row, value in zip(losses, proposals.tchebycheff(losses, weights), strict=True):
        terms = [w * f for w, f in zip(weights, row, strict=True)]
        assert value == pytest.approx(max(terms) + 0.05 * sum(terms))
