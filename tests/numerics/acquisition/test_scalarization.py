import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare

from fbo_flower.numerics.acquisition import scalarization
from fbo_flower.numerics.acquisition.scalarization import draw_weights, normalise, tchebycheff


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("num_losses", "resolution"), [(1, 3), (2, 5), (3, 4), (4, 2)])
def test_every_weight_vector_of_the_lattice_is_drawn_equally_often(num_losses, resolution, monkeypatch):
    monkeypatch.setattr(scalarization, "RESOLUTION", resolution)
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
