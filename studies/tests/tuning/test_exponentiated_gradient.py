from __future__ import annotations

import math

import numpy as np
import pytest

from studies.tuning.exponentiated_gradient import STEP_SIZES, Distribution


def brute_force(
    theta: list[float], history: list[tuple[list[int], list[float], list[float]]], step: str, discount: float
) -> list[float]:
    """Algorithm 2 read line by line, with loops and without logarithms."""
    k, means, squares = len(theta), [], 0.0
    for t, (choices, losses, weights) in enumerate(history, start=1):
        past = [discount ** (len(means) - 1 - s) for s in range(len(means))]
        baseline = sum(w * m for w, m in zip(past, means, strict=True)) / sum(past) if means else 0.0
        g = []
        for j in range(k):
            total = 0.0
            for c, loss, n in zip(choices, losses, weights, strict=True):
                if c == j:
                    total += n * (loss - baseline)
            g.append(total / (theta[j] * sum(weights)))
        largest = max(map(abs, g))
        squares += largest**2
        d = {"aggressive": largest, "adaptive": squares**0.5, "sqrt": t**0.5, "constant": 1.0}[step]
        eta = math.sqrt(2 * math.log(k)) / d
        raised = [p * math.exp(-eta * gj) for p, gj in zip(theta, g, strict=True)]
        theta = [p / sum(raised) for p in raised]
        means.append(sum(n * x for n, x in zip(weights, losses, strict=True)) / sum(weights))
    return theta


@pytest.mark.parametrize("step", STEP_SIZES)
@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_updates_equal_the_algorithm_read_line_by_line(step: str, discount: float) -> None:
    rng = np.random.default_rng(4)
    history = [
        (rng.integers(0, 4, 6).tolist(), (rng.random(6) / 10).tolist(), rng.integers(1, 50, 6).tolist())
        for _ in range(5)
    ]
    found = Distribution.uniform(4)
    for choices, losses, weights in history:
        found = found.update(
            np.array(choices), np.array(losses), np.array(weights, dtype=float), step, discount
        )
    np.testing.assert_allclose(found.theta, brute_force([0.25] * 4, history, step, discount), rtol=1e-9)


def test_the_gradients_estimate_is_unbiased_whatever_the_baseline() -> None:
    theta, losses = np.array([0.5, 0.3, 0.2]), np.array([1.0, 2.0, 4.0])
    found = Distribution(np.log(theta), np.empty(0))
    for baseline in (0.0, 1.5):
        mean = sum(
            theta[j] * found.gradient(np.array([j]), losses[j : j + 1], np.ones(1), baseline)
            for j in range(3)
        )
        np.testing.assert_allclose(mean, losses - baseline)


def test_no_probability_underflows_and_no_gradient_overflows() -> None:
    found = Distribution.uniform(3)
    for _ in range(2000):
        found = found.update(np.array([0, 1]), np.array([1.0, 0.0]), np.ones(2), "constant", 0.0)
    assert np.isfinite(found.log_theta).all()
    assert found.theta.sum() == pytest.approx(1.0)
    assert found.entropy >= 0.0


def test_no_answer_and_no_difference_change_nothing() -> None:
    start = Distribution.uniform(3)
    assert start.update(np.array([], dtype=np.int64), np.empty(0), np.empty(0), "sqrt", 0.9) is start
    same = start.update(np.array([1]), np.zeros(1), np.ones(1), "aggressive", 0.9)
    np.testing.assert_allclose(same.theta, 1 / 3)
