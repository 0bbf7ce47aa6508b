from __future__ import annotations

import warnings

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from fbo_flower.errors import NumericalError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.elastic_net import TOLERANCE, PenalisedLikelihood, logistic_regression, solve


def problem(
    n: int, d: int, strength: float, mix: float, seed: int = 0, odds: float = 1.0
) -> PenalisedLikelihood:
    rng = generator(seed, "elastic-net")
    x = rng.normal(size=(n, d))
    y = (x[:, 0] - 0.5 * x[:, -1] + rng.normal(size=n) > 0.4).astype(float)
    y[:2] = 0.0, 1.0
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    weights = np.where(y == 1, odds, 1.0)
    return PenalisedLikelihood(x, y, weights / weights.mean(), strength, mix)


def saga(p: PenalisedLikelihood) -> tuple[np.ndarray, float]:
    model = LogisticRegression(
        C=1 / (len(p.y) * p.strength), l1_ratio=p.mix, solver="saga", max_iter=200_000, tol=1e-9
    )
    model.fit(p.x, p.y, sample_weight=p.weights)
    return model.coef_[0], float(model.intercept_[0])


@pytest.mark.parametrize("strength", [2**-10, 2**-5, 0.1])
@pytest.mark.parametrize("mix", [0.0, 0.3])
@pytest.mark.parametrize(("n", "d"), [(80, 5), (30, 60)])
def test_coefficients_are_those_of_scikit_learns_solver_once_it_has_converged(
    n: int, d: int, strength: float, mix: float
) -> None:
    p = problem(n, d, strength, mix, odds=3.0)
    fit = solve(p)
    b, b0 = saga(p)
    assert fit.residual <= TOLERANCE
    ours, theirs = (p.value(w, p.x @ w + w0) for w, w0 in ((fit.coefficients, fit.intercept), (b, b0)))
    assert ours <= theirs + 1e-6
    assert p.x @ fit.coefficients + fit.intercept == pytest.approx(p.x @ b + b0, abs=0.05)
    if strength >= 2**-5:
        assert fit.coefficients == pytest.approx(b, abs=2e-3)


@given(
    n=st.integers(4, 60),
    d=st.integers(1, 40),
    log_strength=st.floats(-10, 10),
    mix=st.floats(0, 1),
    log_odds=st.floats(-4, 4),
    seed=st.integers(0, 50),
)
@settings(max_examples=examples(60, 15), deadline=None)
def test_every_fit_of_the_space_satisfies_the_optimality_conditions(
    n: int, d: int, log_strength: float, mix: float, log_odds: float, seed: int
) -> None:
    fit = solve(problem(n, d, 2.0**log_strength, mix, seed, 2.0**log_odds))
    assert np.isfinite(fit.coefficients).all()
    assert fit.residual <= 20 * TOLERANCE


def test_the_residual_is_a_subgradient_of_the_objective() -> None:
    p = problem(40, 4, 0.02, 0.0)

    def objective(b: np.ndarray) -> float:
        return p.value(b[1:], p.x @ b[1:] + b[0])

    best = minimize(objective, np.zeros(5), tol=1e-12)
    assert solve(p).coefficients == pytest.approx(best.x[1:], abs=1e-3)
    away = best.x + 0.1
    probabilities = 1 / (1 + np.exp(-(p.x @ away[1:] + away[0])))
    step = np.array([0, 1e-6, 0, 0, 0])
    slope = (objective(away + step) - objective(away - step)) / 2e-6
    assert p.residual(away[1:], probabilities) >= abs(slope) - 1e-6


def test_a_penalty_above_every_gradient_leaves_the_base_rate() -> None:
    p = problem(50, 6, 8.0, 1.0)
    fit = solve(p)
    assert fit.num_steps == 0
    assert not fit.coefficients.any()
    assert 1 / (1 + np.exp(-fit.intercept)) == pytest.approx(p.y.mean())


def test_separable_rows_under_the_weakest_penalty_converge() -> None:
    x = np.array([[-1.0, 0.5], [-0.8, -0.5], [0.8, 0.5], [1.0, -0.5]])
    fit = solve(PenalisedLikelihood(x, np.array([0.0, 0, 1, 1]), np.ones(4), 2**-10, 0.5))
    assert fit.residual <= TOLERANCE
    assert fit.coefficients[0] > 3


def test_the_result_predicts_as_a_plain_model_of_scikit_learn() -> None:
    p = problem(60, 5, 0.01, 0.5)
    labels = np.array(["ill", "well"])[p.y.astype(int)]
    model = logistic_regression(p.x, labels, 0.01, 0.5, odds=1.0)
    assert type(model) is LogisticRegression
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predicted = model.predict(p.x)
    b, b0 = saga(p)
    expected = np.where(p.x @ b + b0 > 0, "well", "ill")
    assert np.mean(predicted == expected) == 1.0
    assert pytest.approx(1 / 0.6) == model.C


def test_rows_with_a_high_weight_are_classified_as_positive() -> None:
    p = problem(60, 5, 0.1, 0.5)
    shares = [
        float(np.mean(logistic_regression(p.x, p.y.astype(int), 0.1, 0.5, odds).predict(p.x)))
        for odds in (1 / 16, 1.0, 16.0)
    ]
    assert shares[0] < shares[1] < shares[2]


def test_one_class_is_refused_and_rows_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(ValueError, match="expected two classes, got 1"):
        logistic_regression(np.zeros((3, 1)), [1, 1, 1], 0.1, 0.5, 1.0)
    p = problem(10, 2, 0.1, 0.5)
    p.x[0, 0] = np.inf
    with pytest.raises(NumericalError, match="expected a finite gradient"), np.errstate(invalid="ignore"):
        solve(p)
