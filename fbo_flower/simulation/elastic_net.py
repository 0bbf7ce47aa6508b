"""Elastic-net logistic regression by proximal Newton steps with coordinate descent, as in glmnet.

With a weak penalty, scikit-learn's saga solver needs thousands of passes; a handful of weighted least-squares
problems [Friedman2010, section 3] gives the same coefficients. The fitted model is a plain
`LogisticRegression`.

References
----------
[Friedman2010] Friedman, Hastie, Tibshirani. Regularization paths for generalized linear models via coordinate
descent. Journal of Statistical Software 33(1).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbo_flower.errors import NumericalError
from fbo_flower.numerics.arrays import Array

TOLERANCE = 1e-5  # of the residual, a gradient for features of unit variance
MAX_NEWTON_STEPS = 100
MAX_HALVINGS = 20
MIN_CURVATURE = 1e-5  # the smallest p (1 - p) of a row [Friedman2010, section 3]


@dataclass(frozen=True)
class ElasticNetFit:
    """The solution: coefficients `(d,)` and intercept, the number of steps, and the optimality residual."""

    coefficients: Array
    intercept: float
    num_steps: int
    residual: float


@dataclass(frozen=True)
class PenalisedLikelihood:
    """`min_{b, b0} 1/n sum_i w_i log(1 + exp(-s_i (x_i b + b0))) + lambda P(b)`, `s_i = 2 y_i - 1`.

    `P(b) = alpha |b|_1 + (1 - alpha) / 2 |b|_2^2` [Friedman2010, Eqs. 2 and 13].

    Parameters
    ----------
    x : `(n, d)`, standardised
    y : `(n,)`, 0 or 1; both occur
    weights : `(n,)`, positive, of mean 1
    strength : lambda, positive
    mix : alpha, in [0, 1]
    """

    x: Array
    y: Array
    weights: Array
    strength: float
    mix: float

    def value(self, b: Array, scores: Array) -> float:
        """Return the objective at coefficients `b` with `scores = x b + b0`."""
        loss = np.mean(self.weights * (np.logaddexp(0.0, scores) - self.y * scores))
        return float(loss + self.strength * (self.mix * np.abs(b).sum() + (1 - self.mix) / 2 * (b @ b)))

    def residual(self, b: Array, probabilities: Array) -> float:
        """Return the largest violation of the optimality conditions."""
        error = self.weights * (probabilities - self.y)
        gradient = self.x.T @ error / len(self.y) + self.strength * (1 - self.mix) * b
        bound = self.strength * self.mix
        violation = np.where(b != 0, np.abs(gradient + bound * np.sign(b)), np.abs(gradient) - bound)
        return float(max(violation.max(initial=0.0), abs(error.mean())))


def solve(problem: PenalisedLikelihood) -> ElasticNetFit:
    """Minimise the objective; the fit's residual says how close it is to the optimum.

    Raises
    ------
    NumericalError
        If a step gives numbers that are not finite.
    """
    b = np.zeros(problem.x.shape[1])
    rate = float(np.mean(problem.weights * problem.y))
    b0 = np.log(rate / (1 - rate))
    scores = np.full(len(problem.y), b0)
    value = problem.value(b, scores)
    residual, steps = np.inf, 0
    while True:
        probabilities = 0.5 + 0.5 * np.tanh(0.5 * scores)
        residual = problem.residual(b, probabilities)
        if not np.isfinite(residual):
            raise NumericalError(f"elastic net: expected a finite gradient, got {residual}")
        if residual <= TOLERANCE or steps == MAX_NEWTON_STEPS:
            break
        steps += 1
        new_b, new_b0 = _newton_step(problem, b, scores, probabilities, residual)
        direction = problem.x @ (new_b - b) + (new_b0 - b0)
        for halving in range(MAX_HALVINGS):
            step = 0.5**halving
            tried_b, tried = b + step * (new_b - b), scores + step * direction
            tried_value = problem.value(tried_b, tried)
            if tried_value <= value:
                break
        else:
            break  # the objective no longer decreases in this precision
        b, b0, scores, value = tried_b, b0 + step * (new_b0 - b0), tried, tried_value
    return ElasticNetFit(b, float(b0), steps, residual)


def _newton_step(
    problem: PenalisedLikelihood, b: Array, scores: Array, probabilities: Array, residual: float
) -> tuple[Array, float]:
    """Minimise the quadratic model of the loss at `b`, plus the penalty."""
    from sklearn.linear_model import enet_path

    curvature = problem.weights * np.maximum(probabilities * (1 - probabilities), MIN_CURVATURE)
    target = scores + problem.weights * (problem.y - probabilities) / curvature  # z, Eq. 17
    total = curvature.sum()
    mean_x, mean_target = curvature @ problem.x / total, float(curvature @ target / total)
    root = np.sqrt(curvature)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the next step continues one that stops early
        _, path, _ = enet_path(
            np.asfortranarray(root * (problem.x - mean_x)),
            root[:, 0] * (target - mean_target),
            l1_ratio=max(problem.mix, 1e-12),
            alphas=[problem.strength],
            coef_init=b.copy(),  # enet_path overwrites it
            precompute=False,
            check_input=False,
            tol=min(1e-4, residual * 1e-2),
            max_iter=1000,
        )
    new_b = path[:, 0]
    return new_b, float(mean_target - mean_x @ new_b)


def logistic_regression(x: Array, y: Any, strength: float, mix: float, odds: float) -> Any:
    """Return a fitted `sklearn.linear_model.LogisticRegression`.

    Parameters
    ----------
    x : `(n, d)`, standardised
    y : `(n,)`, of two classes; the second one is the positive class
    odds : weight of a positive row relative to a negative row; the weights are scaled to a mean of 1
    """
    from sklearn.linear_model import LogisticRegression

    classes, codes = np.unique(np.asarray(y), return_inverse=True)
    if len(classes) != 2:
        raise ValueError(f"y: expected two classes, got {len(classes)}")
    weights = np.where(codes == 1, odds, 1.0)
    fit = solve(PenalisedLikelihood(x, codes.astype(np.float64), weights / weights.mean(), strength, mix))
    model = LogisticRegression(C=1.0 / (len(x) * strength), l1_ratio=mix, solver="saga")
    model.classes_ = classes
    model.coef_ = fit.coefficients[None, :]
    model.intercept_ = np.array([fit.intercept])
    model.n_features_in_ = x.shape[1]
    model.n_iter_ = np.array([fit.num_steps], dtype=np.int32)
    return model
