"""Bandits over Flower: values that are reused, budgets that end, drop-outs, and what travels."""

from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
from contract import Run, over_grid

from fbo_flower.algorithms import FNUCB, Fed1UCB, make_algorithm
from fbo_flower.algorithms.bandits import base
from fbo_flower.algorithms.bandits.fn_ucb import num_weights
from fbo_flower.numerics.acquisition.feature_models import unpack_symmetric
from fbo_flower.numerics.bandits import ucb
from fbo_flower.reports.summary import summarise, to_markdown
from fbo_flower.simulation import make_problem, simulate
from fbo_flower.simulation.grids import Fault
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


@pytest.mark.parametrize("bandit", BANDITS)
def test_a_deterministic_objective_is_evaluated_once_per_point_and_gives_the_same_run(bandit):
    problem, name = make_problem("himmelblau", 2, 1, {"noise": 0.0}), bandit.split()[0]
    options = BANDITS[bandit]
    every, once = (
        simulate(problem, algorithm=make_algorithm(name, given), seed=1, engine="inline")
        for given in (options, {**options, "deterministic": True})
    )
    for column in ("agent", "round", "trial", "pulls", "config"):
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
    assert "evaluations really made" not in to_markdown(summarise(every))


def test_a_noisy_objective_whose_values_are_reused_has_one_value_per_point():
    calls = []

    def objective(config, context):
        calls.append(config["x"])
        if config["x"] > 0.9:
            raise RuntimeError("no luck")
        return float(context.rng.random())

    options = {"budget": 500, "deterministic": True, "max_evaluations_per_round": 60}
    study = over_grid("local-pne", objective, LINE, 1, **options)
    seen = {}
    for row in study.trials:
        if not row["failure"]:
            assert seen.setdefault(row["config"]["x"], row["value"]) == pytest.approx(row["value"], rel=1e-12)
    good = [x for x in calls if x <= 0.9]
    assert len(good) == len(set(good)) == len(seen)
    assert study.run("local-pne")["evaluations"] == {"0": len(calls)}


def peak(x):
    return 1.0 - abs(x - 0.3)


@pytest.mark.parametrize("bandit", BANDITS)
def test_points_that_always_fail_are_left_and_no_reported_value_contains_a_failure(bandit):
    def objective(config, context):
        if config["x"] > 0.6 or context.rng.random() < 0.1:
            raise RuntimeError("no luck")
        return peak(config["x"])

    budget = {"fn-ucb": 60, "fed1-ucb": 2000}.get(bandit, 1000)
    options = {**BANDITS[bandit], "budget": budget}
    study = over_grid(bandit.split()[0], objective, LINE, 2, **options)
    assert study.trials["pulls"].sum() == 2 * budget  # failures use up budget
    share = 0.6 if bandit == "fed1-ucb" else 0.3  # its first phase pulls all arms equally often
    assert 0 < study.rounds["failed_trials"].sum() < share * 2 * budget
    for best in study.best.values():
        assert best["config"]["x"] <= 0.6
        assert best["value"] == pytest.approx(peak(best["config"]["x"]))


@pytest.mark.parametrize(("bandit", "kind"), [*zip(BANDITS, cycle(["silent", "down", "raising"]))])
def test_whoever_drops_out_and_comes_back_does_not_stop_the_others(bandit, kind):
    def objective(config, context):
        return peak(config["x"])

    name, options, faults = bandit.split()[0], BANDITS[bandit], {3: Fault(kind, rounds=[3, 4, 5])}
    study = over_grid(name, objective, LINE, 4, seed=2, faults=faults, round_timeout=0.05, **options)
    done = [int(study.trials.where(agent=agent)["pulls"].sum()) for agent in "0123"]
    assert done[:3] == [options["budget"]] * 3
    assert done[3] <= options["budget"]  # trials whose report was lost are not disclosed


@pytest.mark.parametrize(
    ("owed", "waits"), [([0, 0, 0], False), ([0, 1, 0], True), ([0, 0], True), ([], True)]
)
def test_a_phase_of_fed1_ucb_ends_once_everybody_has_made_its_pulls(owed, waits):
    run = Run.begin(Fed1UCB(budget=900, arms_seed=3)).step()
    state = replace(run.state, owed={str(agent): left for agent, left in enumerate(owed)})
    after = run.algorithm.close(state, list("012"))
    assert (after.phase, len(after.active) < 400) == ((1, True) if owed == [0, 0, 0] else (0, False))


def test_fn_ucb_exchanges_only_when_an_agent_has_seen_enough():
    every, rare = (
        Run.begin(FNUCB(budget=16, threshold=t, arms_seed=1), num_agents=2).steps(40) for t in (0.0, 30.0)
    )
    assert every.algorithm.finished(every.state)
    assert rare.algorithm.finished(rare.state)
    assert every.state.exchanges >= 15
    assert 1 <= rare.state.exchanges < 8
    quiet = [e for e in rare.exchanges if not e.report.arrays]
    assert len(quiet) > len(rare.exchanges) / 2
    asked = [e for e in rare.exchanges if e.task.values.get("send")]
    assert all("gram" in e.report.arrays and e.task.num_trials == 0 for e in asked)


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
