"""The algorithm against the plain driver of the paper, which knows no federation."""

import numpy as np
import pytest

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.bandits import elimination
from fbo_flower.simulation import make_problem, simulate
from studies.papers.pne import reference as pne_reference
from studies.papers.pne.client import Shifted

BUDGET = 1500
TRANSITIONS = {"pf-pne": 6, "fed-pne": elimination.NEVER, "local-pne": -1}


def cumulative(study, num_agents):
    return np.array([study.regret.where(agent=str(m))["cumulative"][-1] for m in range(num_agents)])


def simple_regrets(study, problem):
    """Regret of what each agent recommends."""
    return [
        problem.optimum(m) - problem.true_value(study.best[str(m)]["config"], m)
        for m in range(problem.num_agents)
    ]


@pytest.mark.parametrize("name", ["garland", "double-sine", "himmelblau", "ackley", "rastrigin-10d"])
@pytest.mark.parametrize("algorithm", TRANSITIONS)
def test_regrets_without_noise_are_those_of_the_plain_driver(name, algorithm):
    problem = make_problem(name, 4, 3, {"noise": 0.0})
    study = simulate(
        problem, algorithm=make_algorithm(algorithm, {"budget": BUDGET}), seed=3, engine="inline"
    )
    expected = pne_reference.pne(Shifted(problem), BUDGET, 3, TRANSITIONS[algorithm])
    np.testing.assert_allclose(cumulative(study, 4), expected.final, atol=1e-6, rtol=0)
    assert study.trials["pulls"].sum() == 4 * BUDGET
    np.testing.assert_allclose(simple_regrets(study, problem), expected.simple, atol=1e-9)


@pytest.mark.parametrize("limit", [7, 100, 10_000])
def test_the_bound_of_a_round_changes_nothing_but_the_rounds(limit):
    problem = make_problem("himmelblau", 3, 1, {"noise": 0.0})
    options = {"budget": 400, "max_evaluations_per_round": limit}
    study = simulate(problem, algorithm=make_algorithm("pf-pne", options), seed=1, engine="inline")
    expected = pne_reference.pne(Shifted(problem), 400, 1, 6)
    np.testing.assert_allclose(cumulative(study, 3), expected.final, atol=1e-6, rtol=0)
    assert int(np.max(study.trials["pulls"])) <= limit


@pytest.mark.parametrize("name", ["garland", "himmelblau", "rastrigin-10d"])
@pytest.mark.parametrize("limit", [100, 1000])
def test_hct_pulls_what_the_plain_driver_pulls(name, limit):
    problem = make_problem(name, 3, 3, {"noise": 0.0})
    options = {"budget": 700, "max_evaluations_per_round": limit}
    study = simulate(problem, algorithm=make_algorithm("hct", options), seed=3, engine="inline")
    expected = pne_reference.local_hct(Shifted(problem), 700, 3)
    np.testing.assert_allclose(cumulative(study, 3), expected.final, atol=1e-6, rtol=0)
    np.testing.assert_allclose(simple_regrets(study, problem), expected.simple, atol=1e-9)
