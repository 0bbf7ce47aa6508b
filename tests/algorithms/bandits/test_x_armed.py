"""Bandits over Flower: values that are reused, budgets that end, drop-outs, and what travels."""

import numpy as np
import pytest
from contract import Run, over_grid

from fbo_flower.algorithms import FNUCB, make_algorithm
from fbo_flower.algorithms.bandits import base
from fbo_flower.algorithms.bandits.fn_ucb import num_weights
from fbo_flower.numerics.acquisition.feature_models import unpack_symmetric
from fbo_flower.numerics.bandits import ucb
from fbo_flower.reports.summary import summarise, to_markdown
from fbo_flower.simulation import make_problem, simulate
from fbo_flower.space import Float, SearchSpace

BANDITS = {
    "pf-pne": {"budget": 200},
    "pf-pne racing": {"budget": 200, "variant": "racing"},
    "pf-pne gp": {"budget": 24, "variant": "gp"},
    "hct": {"budget": 300, "max_evaluations_per_round": 70},
    "fed1-ucb": {"budget": 300, "arms_seed": 1},
    "fn-ucb": {"budget": 30, "arms_seed": 1},
}
LINE = SearchSpace({"x": Float(0.0, 1.0)})


@pytest.mark.parametrize("bandit", ["pf-pne", "pf-pne gp", "hct"])
def test_a_deterministic_objective_is_evaluated_once_per_point_and_gives_the_same_run(bandit):
    problem, name = make_problem("himmelblau", 2, 1, {"noise": 0.0}), bandit.split()[0]
    options = BANDITS[bandit]
    every, once = (
        simulate(problem, algorithm=make_algorithm(name, given), seed=1, engine="inline")
        for given in (options, {**options, "deterministic": True})
    )
    for column in ("round", "trial", "pulls", "config"):
        assert every.trials[column].tolist() == once.trials[column].tolist()
    np.testing.assert_allclose(every.trials["value"], once.trials["value"], rtol=1e-12)
    made = once.run(name)["evaluations"]
    for agent in ("0", "1"):
        configs = [str(config) for config in once.trials.where(agent=agent)["config"]]
        repeats = bandit != "pf-pne gp"  # which looks at new points only
        assert made[agent] == len(set(configs)) <= options["budget"] - repeats
    assert "evaluations" not in every.run(name)
    (row,) = summarise(once)
    assert row.evaluations_made == sum(made.values())
    assert "evaluations really made" in to_markdown([row])


@pytest.mark.parametrize("bandit", BANDITS)
def test_points_that_always_fail_are_left_and_no_reported_value_contains_a_failure(bandit):
    def objective(config, context):
        if config["x"] > 0.6 or context.rng.random() < 0.1:
            raise RuntimeError("no luck")
        return 1.0 - abs(config["x"] - 0.3)

    budget = {"fn-ucb": 60, "fed1-ucb": 2000, "pf-pne gp": 60}.get(bandit, 400)
    options = {**BANDITS[bandit], "budget": budget}
    study = over_grid(bandit.split()[0], objective, LINE, 2, **options)
    assert study.trials["pulls"].sum() == 2 * budget  # failures use up budget
    share = 0.6 if bandit == "fed1-ucb" else 0.4  # its first phase pulls all arms equally often
    assert 0 < study.rounds["failed_trials"].sum() < share * 2 * budget
    for best in study.best.values():
        assert best["config"]["x"] <= 0.6
        assert best["value"] == pytest.approx(1.0 - abs(best["config"]["x"] - 0.3))


def test_fn_ucb_sends_sums_and_never_an_inverse():
    run = Run.begin(FNUCB(budget=12, arms_seed=1), num_agents=3).steps(12)
    names = {name for e in run.exchanges for name in e.report.arrays}
    assert names == {"gram", "response", "weights"}
    size = num_weights(run.algorithm.neural_options(), 2)
    last = run.exchanges[-1]
    assert last.report.arrays["gram"].shape == (size * (size + 1) // 2,)
    points = base.points(1, 2)
    features = ucb.neural_features(points, run.algorithm.neural_options(), np.random.default_rng([1, 4]))
    history = run.histories()["2"]
    rows = [int(np.flatnonzero((points == p).all(axis=1))[0]) for p in history.points]
    g = features.gradients[rows]
    np.testing.assert_allclose(unpack_symmetric(last.report.arrays["gram"], size), g.T @ g, atol=1e-9)
    np.testing.assert_allclose(last.report.arrays["response"], g.T @ history.values, atol=1e-9)
