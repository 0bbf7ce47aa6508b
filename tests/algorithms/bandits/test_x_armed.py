"""What all bandits share: values that are reused, real data, and budgets that end."""

import numpy as np
import pytest
from contract import over_grid

from fbo_flower.algorithms import make_algorithm
from fbo_flower.cli.main import run as command
from fbo_flower.clients.evaluator import EvaluationCache
from fbo_flower.reports.summary import summarise, to_markdown
from fbo_flower.simulation import make_problem, simulate
from fbo_flower.simulation.grids import Fault
from fbo_flower.space import Float, SearchSpace

BANDITS = {
    "pf-pne": {"budget": 300},
    "pf-pne racing": {"budget": 300, "variant": "racing"},
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
        assert made[agent] == len(set(configs)) < options["budget"]
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


def test_what_was_evaluated_survives_a_state():
    cache = EvaluationCache()
    points = np.random.default_rng(0).random((3, 2))
    for k, point in enumerate(points):
        cache.recall(point, float(k))
    again = EvaluationCache.read(cache.arrays(2))
    assert again == cache
    assert [again.values[point.tobytes()] for point in points] == [0.0, 1.0, 2.0]
    assert EvaluationCache.read(EvaluationCache().arrays(2)) == EvaluationCache()


def peak(x):
    return 1.0 - abs(x - 0.3)


@pytest.mark.parametrize("bandit", BANDITS)
def test_the_reported_value_of_a_point_does_not_contain_its_failures(bandit):
    def objective(config, context):
        if context.rng.random() < 0.3:
            raise RuntimeError("no luck")
        return peak(config["x"])

    options = BANDITS[bandit]
    study = over_grid(bandit.split()[0], objective, LINE, 2, seed=3, **options)
    assert study.trials["pulls"].sum() == 2 * options["budget"]  # failures use up budget
    assert study.rounds["failed_trials"].sum() > 0.2 * 2 * options["budget"]
    for best in study.best.values():
        assert best["value"] == pytest.approx(peak(best["config"]["x"]))


@pytest.mark.parametrize("bandit", BANDITS)
def test_points_that_always_fail_are_left(bandit):
    def objective(config, context):
        if config["x"] > 0.6:
            raise RuntimeError("no luck")
        return peak(config["x"])

    options = {**BANDITS[bandit], "budget": 60 if bandit == "fn-ucb" else 4000}
    options.pop("max_evaluations_per_round", None)
    study = over_grid(bandit.split()[0], objective, LINE, 2, **options)
    share = 0.5 if bandit == "fed1-ucb" else 0.2  # its first phase pulls all arms equally often
    assert 0 < study.rounds["failed_trials"].sum() < share * 2 * options["budget"]
    assert all(best["config"]["x"] <= 0.6 for best in study.best.values())


RACING = {"budget": 600, "max_evaluations_per_round": 60, "variant": "racing"}
GP = {"budget": 24, "variant": "gp"}
FED1 = {"budget": 900, "max_evaluations_per_round": 100, "arms_seed": 3}
FN = {"budget": 25, "arms_seed": 3}
DROPOUTS = [
    *(("pf-pne", {"budget": 800}, kind, [3, 4, 5]) for kind in ("silent", "raising", "down")),
    ("pf-pne", RACING, "silent", [2]),
    ("pf-pne", RACING, "raising", [1, 2]),
    ("pf-pne", RACING, "down", [4, 5, 6, 7]),
    ("pf-pne", GP, "raising", [1, 2]),
    ("pf-pne", GP, "down", [3, 4, 5]),
    ("pf-pne", GP, "down", [6, 7]),
    ("fed1-ucb", FED1, "silent", [2]),
    ("fed1-ucb", FED1, "down", [2, 3, 4]),
    ("fn-ucb", FN, "raising", [2, 3, 4]),
    ("fn-ucb", FN, "down", [2, 3, 4]),
]


@pytest.mark.parametrize(("name", "options", "kind", "rounds"), DROPOUTS)
def test_whoever_drops_out_and_comes_back_does_not_stop_the_others(name, options, kind, rounds):
    objective, space = (lambda config, context: peak(config["x"])), LINE
    if name == "pf-pne":
        objective = make_problem("himmelblau", 4, 2, {"noise": 0.0})
        space = objective.space
    faults = {3: Fault(kind, rounds=rounds)}
    study = over_grid(name, objective, space, 4, seed=2, faults=faults, round_timeout=0.2, **options)
    done = [int(study.trials.where(agent=agent)["pulls"].sum()) for agent in "0123"]
    assert done[:3] == [options["budget"]] * 3
    assert done[3] <= options["budget"]  # trials whose report was lost are not disclosed
    if name == "pf-pne" and "variant" not in options:
        assert study.rounds["failures"].sum() >= (0 if kind == "down" else 3)


def test_the_command_line_compares_bandits(tmp_path, capsys):
    arguments = ["simulate", "--problem", "himmelblau", "--agents", "2", "--engine", "inline"]
    arguments += ["--algorithm", "hct", "--option", "budget=20", "--option", "deterministic=true"]
    arguments += ["--compare", "pf-pne variant=racing budget=20 deterministic=true label=racing"]
    arguments += ["--compare", "fed1-ucb budget=20", "--compare", "fn-ucb budget=5"]
    assert command([*arguments, "--out", str(tmp_path / "study")]) == 0
    shown = capsys.readouterr().out
    for name in ("hct", "racing", "fed1-ucb", "fn-ucb", "evaluations really made"):
        assert name in shown
