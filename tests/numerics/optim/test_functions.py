"""Functions and their stacks are their formulas: exactly in values, to single precision elsewhere."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from acquisition_cases import slopes

from fbo_flower.errors import NumericalError
from fbo_flower.numerics.optim.functions import Each, LinearFunction, Sum, sample_paths, shape_of, stack_of
from fbo_flower.numerics.optim.maximise import keeps_distance, maximise, pick_from_all, pick_starts
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.surrogates import gp, rff
from fbo_flower.numerics.surrogates.gp import kernel


def rng(*key):
    return np.random.default_rng(key)


def paths(name):
    x, y = rng(0).random((4, 8, 2)), rng(1).standard_normal((4, 8))
    own = [gp.Hyperparameters(name, np.array([0.15, 0.3 + 0.1 * b]), 1.2, 0.02) for b in range(4)]
    return sample_paths(x, y, own, 64, [rng(2, b) for b in range(4)])


def formula(function, z):
    """The values `(m,)` by the docstrings."""
    if isinstance(function, LinearFunction):
        return function.features(z) @ function.weights + function.offset
    if isinstance(function, Sum):
        return formula(function.first, z) + formula(function.second, z)
    prior = np.cos(z @ function.features.frequencies.T + function.features.phases) @ function.weights
    h = function.hyperparameters
    return prior + kernel(h.kernel, z, function.x, h.lengthscales) @ function.coefficients


FEATURES = rff.draw_features(50, 0.3, 2, rng(3))
MESSAGES = [LinearFunction(FEATURES, rng(4, b).standard_normal(50), 0.2 * b) for b in range(4)]
STACKS = {
    "rbf": paths("rbf"),
    "matern52": paths("matern52"),
    "sums": [Sum(Sum(*pair), pair[0]) for pair in zip(MESSAGES, paths("rbf"), strict=True)],
}


@pytest.mark.parametrize("name", STACKS)
def test_values_scores_and_gradients_are_those_of_the_formulas(name):
    functions, z, rows = STACKS[name], rng(5).random((4, 11, 2)), np.array([2, 0])
    assert len({shape_of(function) for function in functions}) == 1
    stack = stack_of(functions)
    assert not isinstance(stack, Each)
    expected = np.array([formula(f, points) for f, points in zip(functions, z, strict=True)])
    numeric = [slopes(partial(formula, f), points) for f, points in zip(functions, z, strict=True)]
    np.testing.assert_allclose(stack.values(z), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(stack.scores(z), expected, rtol=0, atol=5e-5)
    values, gradients = stack.value_and_gradient(z)
    np.testing.assert_allclose(values, expected, rtol=0, atol=5e-5)
    np.testing.assert_allclose(gradients, numeric, rtol=0, atol=5e-4)
    taken = stack.take(rows)  # some functions of a stack are the stack of some functions
    np.testing.assert_array_equal(taken.values(z[rows]), stack.values(z)[rows])
    np.testing.assert_array_equal(taken.value_and_gradient(z[rows])[1], gradients[rows])
    for function, points, value, slope in zip(functions, z, stack.values(z), gradients, strict=True):
        np.testing.assert_array_equal(function(points), value)  # a function alone is a stack of one
        np.testing.assert_array_equal(function.value_and_gradient(points)[1], slope)


def test_functions_of_other_shapes_are_told_apart():
    other = LinearFunction(rff.draw_features(7, 0.3, 2, rng(6)), np.ones(7))
    sums = [Sum(MESSAGES[0], other), Sum(other, MESSAGES[0])]
    alike = [MESSAGES[0], other, STACKS["rbf"][0], STACKS["matern52"][0], *sums]
    assert len({shape_of(function) for function in alike}) == len(alike)


@dataclass
class Bumps:
    """Gaussian bumps with known tops."""

    centres: np.ndarray
    heights: np.ndarray
    width: float = 0.1

    def __call__(self, z):
        return self.value_and_gradient(z)[0]

    def value_and_gradient(self, z):
        difference = (z[:, None, :] - self.centres) / self.width
        bumps = self.heights * np.exp(-0.5 * (difference**2).sum(axis=2))
        return bumps.sum(axis=1), -(bumps[:, :, None] * difference).sum(axis=1) / self.width


def maximum(function, candidates, columns, **more):
    for name in ("avoid", "movable"):
        if name in more:
            more[name] = more[name][None]
    return maximise([function], candidates[None], columns, **more)[0]


COLUMNS = np.arange(2)
CENTRES = np.array([[0.2, 0.2], [0.8, 0.7], [0.25, 0.8]])
TWO_AND_A_HALF_TOPS = Bumps(CENTRES, np.array([1.0, 1.1, 0.7]))


def test_the_global_maximum_of_three_bumps_is_found_to_five_digits_also_on_the_border():
    candidates = sobol(64, 2, rng(0))
    before = candidates.copy()
    found = maximum(TWO_AND_A_HALF_TOPS, candidates, COLUMNS, avoid=np.zeros((0, 2)), min_distance=0.1)
    np.testing.assert_allclose(found.x, CENTRES[1], atol=1e-4)
    assert found.value == pytest.approx(1.1, abs=1e-6)
    assert found.avoided, "an empty list avoids nothing"
    np.testing.assert_array_equal(candidates, before)
    found = maximum(Bumps(np.array([[1.2, -0.1]]), np.ones(1), width=0.5), candidates, COLUMNS)
    np.testing.assert_allclose(found.x, [1.0, 0.0], atol=1e-6)
    found = maximum(TWO_AND_A_HALF_TOPS, candidates, COLUMNS, avoid=CENTRES[1:2], min_distance=0.4)
    np.testing.assert_allclose(found.x, CENTRES[0], atol=1e-3)


@pytest.mark.parametrize(("seed", "min_distance"), [(0, 0.1), (2, 0.3), (3, 2.0)])
def test_the_answer_keeps_its_distance_whenever_a_candidate_does_and_says_so(seed, min_distance):
    avoid = np.concatenate([CENTRES, rng(seed).random((3, 2))])
    candidates = sobol(32, 2, rng(seed))
    found = maximum(TWO_AND_A_HALF_TOPS, candidates, COLUMNS, avoid=avoid, min_distance=min_distance)
    distances = np.linalg.norm(candidates[:, None] - avoid, axis=2).min(axis=1)
    assert found.avoided == bool((distances >= min_distance).any())
    if found.avoided:
        assert np.linalg.norm(found.x - avoid, axis=1).min() >= min_distance
    if min_distance == 2.0:  # that nobody keeps
        np.testing.assert_allclose(found.x, CENTRES[1], atol=1e-4)


def test_without_columns_the_best_candidate_is_the_answer_and_one_candidate_is_enough():
    candidates = sobol(32, 2, rng(0))
    found = maximum(TWO_AND_A_HALF_TOPS, candidates, np.array([], dtype=np.intp))
    assert found.start == int(np.argmax(TWO_AND_A_HALF_TOPS(candidates)))
    np.testing.assert_array_equal(found.x, candidates[found.start])
    assert maximum(TWO_AND_A_HALF_TOPS, candidates[:1], COLUMNS).start == 0
    with pytest.raises(NumericalError, match="finite"):
        maximum(Bumps(CENTRES, np.array([1.0, np.nan, 1.0])), candidates, COLUMNS)


def test_columns_that_may_not_move_keep_the_value_of_their_candidate():
    candidates = np.array([[0.3, 0.3], [0.7, 0.6], [0.35, 0.7]])
    for movable in ([False, True], [False, False]):
        moves = np.tile(movable, (3, 1))
        best = maximum(TWO_AND_A_HALF_TOPS, candidates, COLUMNS, movable=moves)
        still = ~np.array(movable)
        np.testing.assert_array_equal(best.x[still], candidates[best.start][still])
        assert best.value >= TWO_AND_A_HALF_TOPS(candidates).max()
    one = maximum(TWO_AND_A_HALF_TOPS, candidates, COLUMNS[1:])  # other columns are not polished
    assert one.x[0] == candidates[one.start, 0]


@pytest.mark.parametrize("num_avoid", [0, 40, 1000])
def test_starts_picked_from_the_best_few_are_those_picked_from_all(num_avoid):
    candidates, scores = rng(0).random((12, 300, 2)), rng(1).standard_normal((12, 300))
    scores += 3.0 * candidates[:, :, 0]
    avoid = rng(2).random((12, num_avoid, 2))
    picked, avoided = pick_starts(scores, candidates, avoid, 0.08, 4, 0.14)
    for b in range(12):
        allowed = keeps_distance(candidates[b : b + 1], avoid[b : b + 1], 0.08)[0]
        assert avoided[b] == allowed.any()
        free = allowed if allowed.any() else np.ones_like(allowed)
        expected = pick_from_all(scores[b], candidates[b], free, 4, 0.14)
        assert set(picked[b]) == set(expected)
        assert picked[b][: len(expected)].tolist() == expected.tolist()


def test_a_distance_is_kept_exactly():
    points, avoid = np.array([[[0.5, 0.5], [0.5, 0.6]]]), np.array([[[0.5, 0.25]]])
    assert keeps_distance(points, avoid, 0.25).tolist() == [[True, True]]
    assert keeps_distance(points, avoid, 0.25 + 1e-9).tolist() == [[False, True]]
    assert keeps_distance(points, avoid[:, :0], 0.25).all()
