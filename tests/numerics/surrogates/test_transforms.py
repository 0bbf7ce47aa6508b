import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm, rankdata

from fbo_flower.numerics.surrogates import transforms
from fbo_flower.numerics.surrogates.transforms import Y_TRANSFORMS, standardise, transform, winsorise

finite = st.integers(-(10**6), 10**6).map(lambda i: i / 7)
tied = arrays(np.float64, st.integers(1, 30), elements=st.sampled_from([-2.0, 0.0, 0.5, 1.0, 7.0]))
vectors = arrays(np.float64, st.integers(1, 30), elements=finite)


@given(tied | vectors)
def test_ranks_and_normal_scores_are_those_of_scipy(y):
    np.testing.assert_array_equal(transforms.mean_ranks(y), rankdata(y))
    scores = standardise(norm.ppf((rankdata(y) - 0.5) / len(y)))
    np.testing.assert_allclose(transform(y, "rank"), scores, atol=1e-12)


@pytest.mark.parametrize("name", Y_TRANSFORMS)
@given(tied | vectors, st.sampled_from([2.0**-20, 8.0]))
def test_transforms_keep_the_order_and_do_not_see_the_unit(name, y, unit):
    before, z = y.copy(), transform(y, name)
    assert z.shape == y.shape
    assert (np.diff(z[np.argsort(y, kind="stable")]) >= 0).all()
    np.testing.assert_array_equal(z[y == y[0]], z[0])
    np.testing.assert_array_equal(transform(unit * y, name), z)
    np.testing.assert_array_equal(y, before)


@pytest.mark.parametrize("y", [[1e308, 1.5e308, -1e308], [1e-200, 3e-200], [3.0, 0.5, 1.0]])
def test_extreme_values_are_told_apart(y):
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for name in Y_TRANSFORMS:
            assert np.isfinite(transform(np.array(y), name)).all()
    z, plain = standardise(np.array(y)), np.array(y) / max(y)
    np.testing.assert_allclose(z, (plain - plain.mean()) / plain.std(), rtol=1e-9)


def test_clip_raises_what_is_below_the_median():
    z = transform(np.array([-100.0, -1.0, 0.0, 1.0, 2.0]), "clip")
    assert z[0] == z[1] == z[2] < z[3] < z[4]
    np.testing.assert_allclose(z, transform(np.array([-5.0, -4.0, 0.0, 1.0, 9.0]), "clip"))


@pytest.mark.parametrize("name", Y_TRANSFORMS)
def test_degenerate_samples_become_zeros(name):
    assert transform(np.empty(0), name).shape == (0,)
    np.testing.assert_array_equal(transform(np.array([7.0]), name), [0.0])
    np.testing.assert_array_equal(transform(np.full(4, 0.1), name), np.zeros(4))


@pytest.mark.parametrize(
    ("kind", "at_e"), [("log", np.log(1 + np.e)), ("asinh", np.arcsinh(np.e)), ("none", 6 * np.e)]
)
def test_compressed_values_are_symmetric_and_expand_to_what_they_were(kind, at_e):
    values = 6.0 * np.array([-np.e, 0.0, np.e, 1e3])
    found = transforms.compressed(values, kind, 6.0)
    np.testing.assert_allclose(found[:3], [-at_e, 0.0, at_e])
    np.testing.assert_allclose([transforms.expanded(v, kind, 6.0) for v in found], values)


# -- winsorise ----------------------------------------------------------------------------------------


def test_winsorising_raises_a_diverged_value_and_leaves_the_others():
    y = np.array([0.1, 0.2, 0.3, 0.25, -1e9])
    for scale, offset in ((1.0, 0.0), (2.0**20, 0.0), (1.0, 7.0)):
        raised = scale * np.array([0.1, 0.2, 0.3, 0.25, 0.2 - 3 * 0.1]) + offset
        np.testing.assert_allclose(winsorise(scale * y + offset), raised)
    assert standardise(y)[:4].std() < 1e-8  # without it the others are one value
    assert transform(y, "winsorise")[:4].std() > 0.2


@pytest.mark.parametrize("y", [[0.5, 0.5, 0.5, -1e9], [0.5, 0.5, 0.5, 0.6, -1e9], [-1e9, 0.5]])
def test_winsorise_of_ties_and_pairs_keeps_what_is_best(y):
    z = winsorise(np.array(y))
    assert z.argmax() == np.argmax(y)
    assert (z >= np.array(y)).all()
