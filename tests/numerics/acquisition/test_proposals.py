import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare, norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from fbo_flower.numerics.acquisition import proposals
from fbo_flower.numerics.acquisition.hypervolume import non_dominated
from fbo_flower.numerics.acquisition.proposals import (
    KERNEL,
    draw_weights,
    merge_equal,
    normalise,
    plan_improvement,
    plan_volume_improvement,
    tchebycheff,
)
from fbo_flower.numerics.optim.maximise import maximise


def rng(seed=0):
    return np.random.default_rng(seed)


def improvement(x, losses, incumbent="mean"):
    return plan_improvement(x, losses, incumbent).fitted(KERNEL)


def volume_improvement(x, losses, reference=None):
    return plan_volume_improvement(x, losses, reference).fitted(KERNEL)


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
    moves = 1e-6 * np.eye(2)
    expected = np.stack([(surface(Z + move) - surface(Z - move)) / 2e-6 for move in moves], axis=1)
    likely = values > values.max() - 20
    assert likely.sum() > 5
    np.testing.assert_allclose(gradients[likely], expected[likely], rtol=1e-3, atol=1e-3)


def scikit_moments(posterior, z):
    """Mean and deviation of scikit-learn's process with the same kernel, noise and data."""
    h = posterior.hyperparameters
    kernel = ConstantKernel(h.outputscale) * Matern(h.lengthscales, nu=2.5)
    process = GaussianProcessRegressor(kernel, alpha=h.noise_variance, optimizer=None)
    return process.fit(posterior.x, posterior.y).predict(z, return_std=True)


def strips(means, stddevs, front, corner):
    """The closed form of two losses, strip by strip: width opened by the first times gain of the second."""

    def gain(edge, j):
        z = (edge - means[:, j]) / stddevs[:, j]
        return stddevs[:, j] * (z * norm.cdf(z) + norm.pdf(z))

    total, before, height = 0.0, 0.0, corner[1]
    for first, second in [*sorted(front[(front < corner).all(axis=1)].tolist()), [corner[0], -np.inf]]:
        if second < height:
            total = total + (gain(first, 0) - before) * gain(height, 1)
            before, height = gain(first, 0), second
    return total


@pytest.mark.parametrize("reference", [None, np.array([1.0, 1.0])])
def test_the_volume_improvement_is_that_of_a_plain_reference(reference):
    losses = two_losses(X) + 0.1 * rng(10).standard_normal((25, 2))
    surface = volume_improvement(X, losses, reference)
    at_points, at_z = ([scikit_moments(p, z) for p in surface.posteriors] for z in (X, Z))
    front = -np.stack([mean for mean, _ in at_points], axis=1)  # posterior means, not what was observed
    if reference is None:
        kept = front[non_dominated(-front)]
        corner = kept.max(axis=0) + 0.1 * np.ptp(losses, axis=0) / losses.std(axis=0)
    else:
        corner = (reference - losses.mean(axis=0)) / losses.std(axis=0)
    means, stddevs = (np.stack([sign * m[i] for m in at_z], axis=1) for i, sign in ((0, -1.0), (1, 1.0)))
    expected = strips(means, stddevs, front, corner)
    np.testing.assert_allclose(np.exp(surface(Z)), expected, rtol=1e-6, atol=1e-9)


SPREAD = rng(7).random((60, 2))
ONE_POINT = np.full((60, 2), 0.3)
AWKWARD = {
    "60 identical losses": (SPREAD, np.full((60, 2), 0.37)),
    "60 zeros": (SPREAD, np.zeros((60, 2))),
    "60 identical points and losses": (ONE_POINT, np.full((60, 2), 0.37)),
    "60 identical points, 60 losses": (ONE_POINT, rng(8).random((60, 2))),
    "ties but for rounding": (SPREAD, 0.37 + 1e-17 * rng(9).standard_normal((60, 2))),
    "ties but for an ulp": (SPREAD, np.nextafter(0.37, rng(9).integers(2, size=(60, 2)))),
    "points but for rounding": (0.3 + 1e-16 * rng(10).standard_normal((60, 2)), rng(8).random((60, 2))),
    "two levels": (SPREAD, np.where(SPREAD > 0.5, 0.37, 0.5)),
    "one loss stands out": (SPREAD, np.where(np.arange(120).reshape(60, 2) == 17, 1e12, 0.1)),
    "one point": (SPREAD[:1], SPREAD[:1]),
    "tiny losses": (SPREAD, 1e-300 * rng(8).random((60, 2))),
    "one loss is constant": (SPREAD, np.stack([SPREAD[:, 0], np.full(60, 0.2)], axis=1)),
    "the same loss twice": (SPREAD, np.stack([SPREAD[:, 0], SPREAD[:, 0]], axis=1)),
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
    different, losses = merge_equal(x, np.array([[1.0], [2.0], [3.0], [4.0]]))
    assert different.tolist() == [[0.5, 0.1], [0.2, 0.2], [0.2, 0.3]]
    assert losses.ravel().tolist() == [2.0, 2.0, 4.0]


@pytest.mark.parametrize(("num_losses", "resolution"), [(1, 3), (2, 5), (3, 4), (4, 2)])
def test_every_weight_vector_of_the_lattice_is_drawn_equally_often(num_losses, resolution, monkeypatch):
    monkeypatch.setattr(proposals, "RESOLUTION", resolution)
    generator, places = rng(1), itertools.product(range(resolution + 1), repeat=num_losses)
    counts = {count: 0 for count in places if sum(count) == resolution}
    for _ in range(100 * len(counts)):
        weights = draw_weights(num_losses, generator)
        counts[tuple(int(n) for n in np.rint(weights * resolution))] += 1  # KeyError off the lattice
    if len(counts) > 1:
        assert chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize("num_losses", [1, 2, 6])
def test_weights_sum_to_one_and_are_not_negative(num_losses):
    weights = draw_weights(num_losses, rng(num_losses))
    assert weights.shape == (num_losses,)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1.0)


@given(arrays(np.float64, (6, 2), elements=st.floats(-1e6, 1e6)))
def test_normalised_losses_span_zero_to_one_and_keep_their_order(losses):
    scaled = normalise(losses)
    assert scaled.min() >= 0
    assert scaled.max() <= 1
    for before, after in zip(losses.T, scaled.T, strict=True):
        assert (np.diff(after[np.argsort(before)]) >= 0).all()
        assert set(np.unique(after)) >= {0.0, 1.0} or not after.any()


def test_a_constant_loss_and_one_of_rounding_errors_normalise_to_zero():
    losses = np.array([[0.3, 0.3], [0.3, 0.3 + 1e-17], [0.3, 0.3 + 2e-16]])
    assert not normalise(losses).any()
    assert normalise(np.zeros((0, 2))).shape == (0, 2)


def test_the_scalar_loss_is_the_formula():
    losses, weights = rng(1).random((5, 3)), np.array([0.2, 0.3, 0.5])
    for row, value in zip(losses, tchebycheff(losses, weights), strict=True):
        terms = [w * f for w, f in zip(weights, row, strict=True)]
        assert value == pytest.approx(max(terms) + 0.05 * sum(terms))
