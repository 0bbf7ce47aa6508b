"""The algorithm against the plain driver of the paper, which knows no federation."""

import numpy as np
import pytest

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.bandits import ucb
from fbo_flower.simulation import make_problem, simulate
from studies.papers.pne import reference as pne_reference
from studies.papers.pne.client import Shifted


def cumulative(study, num_agents):
    return np.array([study.regret.where(agent=str(m))["cumulative"][-1] for m in range(num_agents)])


def simple_regrets(study, problem):
    return [
        problem.optimum(m) - problem.true_value(study.best[str(m)]["config"], m)
        for m in range(problem.num_agents)
    ]


@pytest.mark.parametrize(
    ("name", "budget", "noise_stddev"),
    [
        ("garland", 5000, 1.0),
        ("garland", 20000, 0.3),
        ("double-sine", 6000, 0.2),
        ("himmelblau", 3000, 1.0),  # ends within the first phase
        ("himmelblau", 50, 1.0),
        ("rastrigin-10d", 1200, 1.0),
    ],
)
@pytest.mark.parametrize("limit", [10_000, 333])
def test_fed1_ucb_has_the_regrets_of_the_plain_driver(name, budget, noise_stddev, limit):
    problem = make_problem(name, 3, 4, {"noise": 0.0})
    options = {
        "budget": budget, "noise_stddev": noise_stddev, "arms_seed": 4, "max_evaluations_per_round": limit,
    }  # fmt: skip
    study = simulate(problem, algorithm=make_algorithm("fed1-ucb", options), seed=4, engine="inline")
    expected = pne_reference.fed1_ucb(Shifted(problem), budget, 4, noise_stddev)
    np.testing.assert_allclose(cumulative(study, 3), expected.final, atol=1e-6, rtol=1e-12)
    np.testing.assert_allclose(simple_regrets(study, problem), expected.simple, atol=1e-9)
    assert study.trials["pulls"].sum() == 3 * budget


@pytest.mark.parametrize("name", ["garland", "himmelblau"])
@pytest.mark.parametrize(
    "options", [{}, {"threshold": 30.0}, {"mix_from": 5, "mix_until": 30, "train_until": 40}]
)
def test_fn_ucb_has_the_regrets_of_the_plain_driver(name, options):
    problem = make_problem(name, 3, 4, {"noise": 0.0})
    given = {"budget": 60, "arms_seed": 4, **options}
    study = simulate(problem, algorithm=make_algorithm("fn-ucb", given), seed=4, engine="inline")
    expected = pne_reference.fn_ucb(Shifted(problem), 60, 4, ucb.NeuralOptions(**options))
    np.testing.assert_allclose(cumulative(study, 3), expected.final, atol=1e-6, rtol=0)
    np.testing.assert_allclose(simple_regrets(study, problem), expected.simple, atol=1e-9)
    assert study.trials["pulls"].sum() == 180
