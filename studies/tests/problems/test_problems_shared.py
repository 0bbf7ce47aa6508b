"""The problems that all agents share: f1, Rosenbrock and two small networks."""

from __future__ import annotations

import gzip
import math
from dataclasses import replace

import numpy as np
import pytest
from every_xarmed import *  # noqa: F403
from every_xarmed import Context
from real_data import needs_data

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import F1, make_problem, shifts
from studies.problems import Ackley, BreastCancerMLP, CaliforniaMLP, Rastrigin10D, Rosenbrock
from studies.problems import mlp as network
from studies.problems.data import CALIFORNIA_FILE, DATA_VARIABLE


def at(x1: float, x2: float) -> dict[str, float]:
    return {"x1": x1, "x2": x2}


@pytest.mark.parametrize("problem", [F1(4, 0), Rosenbrock(4, 0)], ids=["f1", "rosenbrock"])
def test_the_optimum_is_the_maximum_over_a_fine_mesh(problem):
    axis = np.linspace(0.0, 1.0, 401)
    values = [problem.true_value(at(a, b), 0) for a in axis for b in axis]
    assert problem.optimum(2) - 1e-4 < max(values) <= problem.optimum(2)


@pytest.mark.parametrize("name", ["f1", "rosenbrock"])
def test_all_agents_share_the_function_and_have_noise_of_their_own(name):
    problem = make_problem(name, 4, 0, {"noise_variance": 0.04})
    true = [problem.true_value(at(0.3, 0.4), n) for n in range(4)]
    assert len(set(true)) == 1
    draws = np.array(
        [problem(at(0.3, 0.4), Context(n % 4, generator(n, "noise"))) for n in range(2000)]
    ) - np.array(true[0])
    # the variance of 2000 draws is chi-squared: standard deviation .04 sqrt(2 / 2000) = .0013
    assert draws.var() == pytest.approx(0.04, abs=5 * 0.0013)
    assert draws.mean() == pytest.approx(0.0, abs=5 * 0.2 / np.sqrt(2000))
    quiet = replace(problem, noise_variance=0)
    assert quiet(at(0.3, 0.4), Context(1, generator(0))) == true[0]


# -- networks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("classify", [True, False])
def test_the_gradient_of_a_network_is_that_of_finite_differences(classify):
    rng = generator(1, "network")
    x, width = rng.standard_normal((7, 3)), 4
    y = (rng.random(7) > 0.5).astype(float) if classify else rng.standard_normal(7)
    weights = rng.standard_normal(3 * width + 2 * width + 1)
    gradient = network._gradient(weights, x, y, width, classify)
    for i in range(len(weights)):
        up, down = weights.copy(), weights.copy()
        up[i] += 1e-6
        down[i] -= 1e-6
        losses = [network.loss(network.predict(w, x, width), y, classify) for w in (up, down)]
        assert gradient[i] == pytest.approx((losses[0] - losses[1]) / 2e-6, abs=1e-7)


def test_a_network_reaches_the_loss_of_scikit_learns():
    from sklearn.neural_network import MLPClassifier

    problem = BreastCancerMLP(4, 0)
    train, validation = problem.rows()
    model = MLPClassifier(
        (16,), alpha=0.0, batch_size=32, learning_rate_init=3e-3, max_iter=20, tol=0, random_state=0
    )
    with pytest.warns(UserWarning, match="Maximum iterations"):
        model.fit(train.x, train.y)
    p = model.predict_proba(validation.x)[:, 1]
    theirs = -np.mean(validation.y * np.log(p) + (1 - validation.y) * np.log(1 - p))
    ours = -problem.true_value({"learning_rate": 3e-3, "hidden_width": 16}, 0)
    assert ours == pytest.approx(theirs, rel=0.35)
    assert ours < 0.1  # guessing by prevalence: .66


def test_breast_cancer_agents_share_rows_and_value_and_validate_on_others():
    problem = BreastCancerMLP(4, 3)
    train, validation = problem.rows()
    assert len(train.y) + len(validation.y) == 569
    assert not {row.tobytes() for row in train.x} & {row.tobytes() for row in validation.x}
    config = {"learning_rate": 1e-2, "hidden_width": 8}
    assert len({problem(config, Context(n, generator(n))) for n in range(4)}) == 1
    noisy = replace(problem, noisy=True)
    assert len({noisy(config, Context(n, generator(n))) for n in range(4)}) == 4
    assert noisy(config, Context(0, generator(5))) == noisy(config, Context(1, generator(5)))
    assert noisy.true_value(config, 0) is None
    assert BreastCancerMLP(4, 4)(config, Context(0, generator(0))) != problem(
        config, Context(0, generator(0))
    )


@needs_data
def test_california_is_standardised_by_its_training_rows_and_better_than_the_mean():
    problem = CaliforniaMLP(4, 0, num_rows=1000)
    train, validation = problem.rows()
    assert train.x.shape == validation.x.shape == (500, 8)
    np.testing.assert_allclose(train.x.mean(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(train.x.std(axis=0), 1.0, atol=1e-10)
    value = problem.true_value({"learning_rate": 1e-2, "hidden_width": 16}, 0)
    assert -value < 0.6 * np.var(validation.y)


def test_a_california_file_with_other_columns_is_refused(tmp_path, monkeypatch):
    with gzip.open(tmp_path / CALIFORNIA_FILE, "wt", encoding="utf-8") as file:
        file.write("longitude,latitude\n1,2\n3,4\n")
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    problem = CaliforniaMLP(4, 77)
    problem.check_data()
    with pytest.raises(ConfigError, match=r"expected the columns longitude, .* got longitude, latitude"):
        problem({"learning_rate": 1e-2, "hidden_width": 8}, Context(0, generator(0)))


# -- ackley and rastrigin, and what is true of every x-armed function ----------------------------


def values_at(problem, *points):
    return problem.values(np.array(points, dtype=float), 0)


def test_values_worked_by_hand():
    still = {"shift_stddev": 0.0}
    assert values_at(Ackley(1, 0, **still), [0.5, 0.5])[0] == pytest.approx(1.0)
    corner = 20 * math.exp(-0.2) + math.e - math.e - 20
    lowest = abs(20 * math.exp(-0.2 * math.sqrt(0.5)) + math.exp(-1) - 20 - math.e)
    assert values_at(Ackley(1, 0, **still), [1.0, 1.0])[0] == pytest.approx(1 + corner / lowest)
    assert values_at(Rastrigin10D(1, 0, **still), [0.5] * 10, [1.0] * 10) == pytest.approx([1.0, 0.95])
    assert values_at(Rastrigin10D(1, 0, **still), [0.25] * 10)[0] == pytest.approx(1 - 20.25 / 20)
    assert Ackley(1, 0, **still).optimum(0) == pytest.approx(1.0, abs=1e-9)


def test_the_optimum_is_over_what_can_be_reached():
    for seed in range(300):
        problem = Ackley(1, seed, shift_stddev=0.5)
        if np.abs(shifts(problem)).max() > 0.6:
            break
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 801)] * 2), axis=-1).reshape(-1, 2)
    assert problem.optimum(0) < 1.0  # a clipped maximum would be 1
    assert problem.optimum(0) == pytest.approx(problem.values(grid, 0).max(), abs=2e-3)
