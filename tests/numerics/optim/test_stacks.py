"""Stacks agree with their functions: exactly in values, to single precision in scores and gradients."""

from __future__ import annotations

import numpy as np
import pytest

from fbo_flower.numerics.optim.functions import LinearFunction
from fbo_flower.numerics.optim.stacks import Each, stack_of
from fbo_flower.numerics.optim.starts import keeps_distance, pick_from_all, pick_starts
from fbo_flower.numerics.surrogates import gp, rff


def rng(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def paths(kernel: str):
    found = []
    for b in range(4):
        x, y = rng(0, b).random((8, 2)), rng(1, b).standard_normal(8)
        own = gp.Hyperparameters(kernel, np.array([0.15, 0.3 + 0.1 * b]), 1.2, 0.02)
        found += gp.sample_paths(x[None], y[None], [own], 64, [rng(2, b)])
    return found


FEATURES = rff.draw_features(50, 0.3, 2, rng(3))
MESSAGES = [LinearFunction(FEATURES, rng(4, b).standard_normal(50), 0.2 * b) for b in range(4)]
STACKS = {"rbf": paths("rbf"), "matern52": paths("matern52"), "messages": MESSAGES}


@pytest.mark.parametrize("name", STACKS)
def test_values_scores_and_gradients_are_those_of_the_functions(name: str) -> None:
    functions, z, rows = STACKS[name], rng(5).random((4, 11, 2)), np.array([2, 0])
    stack = stack_of(functions)
    assert not isinstance(stack, Each)
    expected = np.array([f(points) for f, points in zip(functions, z, strict=True)])
    gradients = np.array([f.value_and_gradient(p)[1] for f, p in zip(functions, z, strict=True)])
    np.testing.assert_allclose(stack.values(z), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(stack.scores(z), expected, rtol=0, atol=2e-5)
    values, slopes = stack.value_and_gradient(z)
    np.testing.assert_allclose(values, expected, rtol=0, atol=2e-5)
    np.testing.assert_allclose(slopes, gradients, rtol=0, atol=2e-4)
    taken = stack.take(rows)  # some functions of a stack are the stack of some functions
    np.testing.assert_array_equal(taken.values(z[rows]), stack.values(z)[rows])
    np.testing.assert_array_equal(taken.value_and_gradient(z[rows])[1], slopes[rows])


@pytest.mark.parametrize("num_avoid", [0, 1, 40, 1000])
def test_starts_picked_from_the_best_few_are_those_picked_from_all(num_avoid: int) -> None:
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


def test_a_distance_is_kept_exactly() -> None:
    points, avoid = np.array([[[0.5, 0.5], [0.5, 0.6]]]), np.array([[[0.5, 0.25]]])
    assert keeps_distance(points, avoid, 0.25).tolist() == [[True, True]]
    assert keeps_distance(points, avoid, 0.25 + 1e-9).tolist() == [[False, True]]
    assert keeps_distance(points, avoid[:, :0], 0.25).all()
