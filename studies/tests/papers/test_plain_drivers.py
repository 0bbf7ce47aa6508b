"""The bandits on Flower against the plain drivers of their papers, which know no federation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.bandits import elimination, ucb
from fbo_flower.simulation import make_problem, simulate
from studies.papers.pne import gp_reference
from studies.papers.pne import reference as plain

DRIVERS: dict[str, Any] = {
    "pf-pne": lambda surface, budget, seed, _: plain.pne(surface, budget, seed, 6),
    "fed-pne": lambda surface, budget, seed, _: plain.pne(surface, budget, seed, elimination.NEVER),
    "local-pne": lambda surface, budget, seed, _: plain.pne(surface, budget, seed, -1),
    "racing": lambda surface, budget, seed, _: plain.racing_pne(surface, budget, seed),
    "gp": lambda surface, budget, seed, _: gp_reference.gp_pne(surface, budget, seed),
    "hct": lambda surface, budget, seed, _: plain.local_hct(surface, budget, seed),
    "fed1-ucb": lambda surface, budget, seed, given: plain.fed1_ucb(
        surface, budget, seed, given["noise_stddev"]
    ),
    "fn-ucb": lambda surface, budget, seed, given: plain.fn_ucb(
        surface, budget, seed, ucb.NeuralOptions(**given)
    ),
}
ROUND = "max_evaluations_per_round"


def both(
    driver: str, name: str, agents: int, budget: int, seed: int, noise: float = 0.0, **options: Any
) -> Any:
    """Return the study of an algorithm, its problem, and the run of the plain driver."""
    problem = make_problem(name, agents, seed, {"noise": noise})
    given = {"budget": budget, **options} | ({"arms_seed": seed} if driver.endswith("ucb") else {})
    given |= {"variant": driver} if driver in {"racing", "gp"} else {}
    algorithm = make_algorithm("pf-pne" if driver in {"racing", "gp"} else driver, given)
    study = simulate(problem, algorithm=algorithm, seed=seed, engine="inline")
    named = {key: value for key, value in options.items() if key != ROUND}
    return study, problem, DRIVERS[driver](problem, budget, seed, named)


def cumulative(study: Any, num_agents: int) -> Any:
    return np.array([study.regret.where(agent=str(m))["cumulative"][-1] for m in range(num_agents)])


@pytest.mark.parametrize(
    ("driver", "name", "agents", "budget", "seed", "options"),
    [
        *((d, "garland", 4, 1500, 3, {}) for d in ("pf-pne", "fed-pne", "local-pne")),
        *((d, "rastrigin-10d", 4, 1500, 3, {}) for d in ("pf-pne", "fed-pne", "local-pne")),
        ("pf-pne", "double-sine", 4, 1500, 3, {}),
        ("pf-pne", "ackley", 4, 1500, 3, {}),
        *(("pf-pne", "himmelblau", 3, 400, 1, {ROUND: limit}) for limit in (7, 10_000)),
        ("racing", "garland", 4, 1500, 3, {ROUND: 37}),
        ("racing", "double-sine", 4, 1500, 3, {ROUND: 10_000}),
        ("racing", "ackley", 4, 1500, 3, {ROUND: 37}),
        ("racing", "rastrigin-10d", 4, 1500, 3, {ROUND: 10_000}),
        # ends within the first cells, or later
        *(("racing", "himmelblau", 3, budget, 1, {}) for budget in (1, 17, 40, 5000)),
        ("racing", "garland", 1, 900, 2, {}),  # alone
        ("gp", "garland", 3, 30, 3, {ROUND: 3}),
        ("gp", "himmelblau", 4, 25, 3, {ROUND: 10_000}),
        ("hct", "garland", 3, 700, 3, {ROUND: 100}),
        ("hct", "himmelblau", 3, 700, 3, {ROUND: 1000}),
        ("hct", "rastrigin-10d", 3, 700, 3, {ROUND: 1000}),
        ("fed1-ucb", "garland", 3, 5000, 4, {"noise_stddev": 1.0, ROUND: 333}),
        ("fed1-ucb", "garland", 3, 20000, 4, {"noise_stddev": 0.3, ROUND: 10_000}),
        ("fed1-ucb", "double-sine", 3, 6000, 4, {"noise_stddev": 0.2, ROUND: 333}),
        ("fed1-ucb", "himmelblau", 3, 3000, 4, {"noise_stddev": 1.0}),  # ends within the first phase
        ("fed1-ucb", "himmelblau", 3, 50, 4, {"noise_stddev": 1.0, ROUND: 333}),
        ("fed1-ucb", "rastrigin-10d", 3, 1200, 4, {"noise_stddev": 1.0}),
        ("fn-ucb", "garland", 3, 60, 4, {}),
        ("fn-ucb", "himmelblau", 3, 60, 4, {"threshold": 30.0}),
        ("fn-ucb", "garland", 3, 60, 4, {"mix_from": 5, "mix_until": 30, "train_until": 40}),
    ],
)  # fmt: skip
def test_regrets_without_noise_are_those_of_the_plain_driver(
    driver: str, name: str, agents: int, budget: int, seed: int, options: dict[str, Any]
) -> None:
    study, problem, expected = both(driver, name, agents, budget, seed, **options)
    np.testing.assert_allclose(cumulative(study, agents), expected.final, atol=1e-6, rtol=1e-12)
    simple = [problem.optimum(m) - problem.true_value(study.best[str(m)]["config"], m) for m in range(agents)]
    np.testing.assert_allclose(simple, expected.simple, atol=1e-9)
    assert study.trials["pulls"].sum() == agents * budget
    assert int(np.max(study.trials["pulls"])) <= options.get(ROUND, 10_000)


def test_with_noise_the_regret_of_racing_is_that_of_the_driver_on_average() -> None:
    """Other draws, the same distribution: paired differences within three standard errors."""
    differences: list[float] = []
    for seed in range(6):
        study, _, expected = both("racing", "himmelblau", 3, 1000, seed, noise=0.1)
        differences += (cumulative(study, 3) - expected.final).tolist()
    error = np.std(differences, ddof=1) / np.sqrt(len(differences))
    assert abs(np.mean(differences)) < 3 * error
