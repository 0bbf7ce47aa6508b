"""Functions and messages drawn together are those that the reference draws one by one."""

from __future__ import annotations

import numpy as np
import pytest

from fbo_flower.numerics.surrogates import gp, path_many, rff


def rng(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def processes(kernel: str, count: int = 5, n: int = 9, dimension: int = 3):
    x, y = rng(0).random((count, n, dimension)), rng(1).standard_normal((count, n))
    hyperparameters = [
        gp.Hyperparameters(kernel, 0.2 + rng(2, b).random(dimension), 0.5 + 0.3 * b, 0.01 * (b + 1))
        for b in range(count)
    ]
    return x, y, hyperparameters


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
@pytest.mark.parametrize("scale", [1.0, 0.4])
def test_paths_are_those_of_the_posteriors(kernel: str, scale: float) -> None:
    x, y, hyperparameters = processes(kernel)
    drawn = path_many.sample_paths(x, y, hyperparameters, 32, [rng(3, b) for b in range(5)], scale)
    z = rng(4).random((20, 3))
    for b, path in enumerate(drawn):
        posterior = gp.posterior(x[b], y[b], hyperparameters[b])
        expected = posterior.sample_path(32, rng(3, b), deviation_scale=scale)
        np.testing.assert_allclose(path(z), expected(z), rtol=0, atol=1e-9)


@pytest.mark.parametrize("n", [1, 12])
def test_messages_are_those_of_the_dual_draw(n: int) -> None:
    x, y = rng(0).random((6, n, 2)), rng(1).standard_normal((6, n))
    features = rff.draw_features(20, 0.4, 2, rng(2))
    drawn = path_many.sample_weights_many([features] * 6, x, y, 0.02, [rng(3, b) for b in range(6)])
    for b, weights in enumerate(drawn):
        expected = rff.sample_weights_dual(features(x[b]), y[b], 0.02, rng(3, b))
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-9)


def test_a_singular_matrix_gets_jitter_and_leaves_the_others_alone() -> None:
    good = np.array([[2.0, 0.5], [0.5, 1.0]])
    matrices = np.array([good, np.ones((2, 2)), good])
    b = np.array([[1.0, 2.0], [1.0, 1.0], [3.0, 0.0]])
    found = path_many.solve(matrices, b)
    alone = [path_many.solve(matrices[i : i + 1], b[i : i + 1])[0] for i in range(3)]
    np.testing.assert_array_equal(found, alone)
    np.testing.assert_allclose(found[0], np.linalg.solve(good, b[0]), atol=1e-12)
    np.testing.assert_allclose(np.ones((2, 2)) @ found[1], b[1], atol=1e-6)
