"""The algorithm against the plain driver of the paper, which knows no federation."""

import numpy as np
import pytest

from fbo_flower.algorithms import make_algorithm
from fbo_flower.simulation import make_problem, simulate
from studies.papers.pne import reference as pne_reference
from studies.papers.pne.client import Shifted

RACING = {"variant": "racing"}


def cumulative(study, num_agents):
    return np.array([study.regret.where(agent=str(m))["cumulative"][-1] for m in range(num_agents)])


@pytest.mark.parametrize("name", ["garland", "double-sine", "himmelblau", "ackley", "rastrigin-10d"])
@pytest.mark.parametrize("limit", [10_000, 37])
def test_regrets_without_noise_are_those_of_the_plain_driver(name, limit):
    problem = make_problem(name, 4, 3, {"noise": 0.0})
    options = {**RACING, "budget": 1500, "max_evaluations_per_round": limit}
    study = simulate(problem, algorithm=make_algorithm("pf-pne", options), seed=3, engine="inline")
    expected = pne_reference.racing_pne(Shifted(problem), 1500, 3)
    np.testing.assert_allclose(cumulative(study, 4), expected.final, atol=1e-6, rtol=0)
    simple = [problem.optimum(m) - problem.true_value(study.best[str(m)]["config"], m) for m in range(4)]
    np.testing.assert_allclose(simple, expected.simple, atol=1e-9)
    assert study.trials["pulls"].sum() == 4 * 1500
    assert int(np.max(study.trials["pulls"])) <= limit


@pytest.mark.parametrize("budget", [1, 17, 40, 5000])
def test_budgets_that_end_within_the_first_cells_or_later_agree_with_the_driver(budget):
    problem = make_problem("himmelblau", 3, 1, {"noise": 0.0})
    study = simulate(
        problem, algorithm=make_algorithm("pf-pne", {**RACING, "budget": budget}), seed=1, engine="inline"
    )
    expected = pne_reference.racing_pne(Shifted(problem), budget, 1)
    np.testing.assert_allclose(cumulative(study, 3), expected.final, atol=1e-6, rtol=0)


def test_one_agent_alone_agrees_with_the_driver():
    problem = make_problem("garland", 1, 2, {"noise": 0.0})
    study = simulate(
        problem, algorithm=make_algorithm("pf-pne", {**RACING, "budget": 900}), seed=2, engine="inline"
    )
    expected = pne_reference.racing_pne(Shifted(problem), 900, 2)
    np.testing.assert_allclose(cumulative(study, 1), expected.final, atol=1e-6, rtol=0)


def test_with_noise_the_regret_is_that_of_the_driver_on_average():
    """Other draws, the same distribution: paired differences within three standard errors."""
    differences = []
    for seed in range(6):
        problem = make_problem("himmelblau", 3, seed, {})
        study = simulate(
            problem,
            algorithm=make_algorithm("pf-pne", {**RACING, "budget": 1000}),
            seed=seed,
            engine="inline",
        )
        expected = pne_reference.racing_pne(Shifted(problem), 1000, seed)
        differences += (cumulative(study, 3) - expected.final).tolist()
    error = np.std(differences, ddof=1) / np.sqrt(len(differences))
    assert abs(np.mean(differences)) < 3 * error
