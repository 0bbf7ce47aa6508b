"""Combined surfaces against regressions on the observations themselves, and gradients."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad

from fbo_flower.numerics.surrogates.rff import draw_features
from studies.peers.flora import COMBINATIONS, combined, statistics

RNG = np.random.default_rng(0)
FEATURES = draw_features(30, 0.5, 3, RNG)
DATA = [(RNG.random((n, 3)), RNG.standard_normal(n)) for n in (4, 9, 15)]
SUMS = [statistics(FEATURES(x), y) for x, y in DATA]
Z = RNG.random((6, 3))
RIDGE, CAUTION = 0.1, 1.5


def surface(combine):
    return combined(combine, FEATURES, SUMS, RIDGE, CAUTION)


def regression(x, y, z):
    """Mean and standard deviation of a Gaussian process with the kernel `phi^T phi`, in the dual form."""
    phi, at = FEATURES(x), FEATURES(z)
    gram = phi @ phi.T + RIDGE * np.eye(len(y))
    cross = at @ phi.T
    mean = cross @ np.linalg.solve(gram, y)
    variance = (at * at).sum(axis=1) - (cross * np.linalg.solve(gram, cross.T).T).sum(axis=1)
    return mean, np.sqrt(variance)


def test_a_single_model_is_the_regression_on_all_observations():
    mean, stddev = regression(*(np.concatenate(part) for part in zip(*DATA, strict=True)), Z)
    np.testing.assert_allclose(surface("single")(Z), mean, atol=1e-9)
    np.testing.assert_allclose(surface("uncertainty")(Z), mean - CAUTION * stddev, atol=1e-9)


def test_max_min_is_the_worst_agents_prediction_and_average_weights_by_observations():
    means = np.array([regression(x, y, Z)[0] for x, y in DATA])
    np.testing.assert_allclose(surface("max-min")(Z), means.min(axis=0), atol=1e-9)
    np.testing.assert_allclose(surface("average")(Z), np.array([4, 9, 15]) @ means / 28, atol=1e-9)


def test_sums_suffice_for_a_single_model():
    total = [tuple(np.sum(parts, axis=0) for parts in zip(*SUMS, strict=True))]
    for combine in ("single", "uncertainty"):
        found = combined(combine, FEATURES, total, RIDGE, CAUTION)
        np.testing.assert_allclose(found(Z), surface(combine)(Z), atol=1e-12)


@pytest.mark.parametrize("combine", COMBINATIONS)
def test_values_and_gradients_agree(combine):
    found = surface(combine)
    np.testing.assert_allclose(found.value_and_gradient(Z)[0], found(Z), atol=1e-9)
    for z in Z:
        error = check_grad(
            lambda p: float(found(p[None, :])[0]), lambda p: found.value_and_gradient(p[None, :])[1][0], z
        )
        assert error < 1e-5
