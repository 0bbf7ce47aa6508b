"""Objectives and limits on devices: what leaves an agent, what operators may change, its own answer."""

import json

import numpy as np
import pytest
from agents import node, packed, task
from federation import agents

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import ExpectedImprovement
from fbo_flower.algorithms.aims import Aims
from fbo_flower.cli.main import run
from fbo_flower.clients import TuningAgent
from fbo_flower.errors import ConfigError
from fbo_flower.strategies import ExpectedImprovement as Strategy
from fbo_flower.strategies import FedEI

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
BOUND = 17.0625
GOALS = {"objectives": {"gain": "max"}, "limits": {"latency_ms": BOUND}}
FRONTS = {"gain": "max", "latency_ms": "min"}


def measured(config, context):
    return {"gain": 1 - (config["x"] - 0.7) ** 2, "latency_ms": 30 * config["x"] + 5 * config["y"]}


def tune(num_rounds=6, **given):
    grid = agents(2, measured, **{"space": SPACE, **GOALS, **given})
    return Strategy(seed=1, num_agents=2).start(grid, num_rounds=num_rounds).study


def agent(context=None, objective=measured, disclose="trials", **goals):
    aims = Aims.of(**{**GOALS, **goals})
    return TuningAgent(objective, SPACE, context or node(), seed=1, disclose=disclose, aims=aims)


def test_an_operator_sets_bounds_of_the_device_and_no_table_holds_one(tmp_path):
    study = tune(12, node_configs={1: {"limits": "latency_ms <= 12"}})
    for name, bound in {"0": BOUND, "1": 12.0}.items():
        for row in study.trials.where(agent=name):
            assert row["feasible"] == (row["outputs"]["latency_ms"] <= bound)
        assert study.best[name]["outputs"]["latency_ms"] <= bound
    assert study.settings["runs"][0]["limits"] == {"latency_ms": "<="}
    study.save(tmp_path)
    assert not any(str(BOUND) in file.read_text() for file in tmp_path.iterdir())


@pytest.mark.parametrize("text", ["latency_ms < 3", "latency_ms", "latency_ms >= 3", "gain <= 1"])
def test_an_operator_cannot_set_another_limit(text):
    with pytest.raises(ConfigError, match="limits: expected"):
        agent(node(limits=text))


@pytest.mark.parametrize("disclose", ["none", "incumbent", "trials"])
def test_nothing_that_leaves_an_agent_holds_its_bound(disclose):
    def fails(config, context):
        return measured(config, context) | ({"latency_ms": np.inf} if context.trial == 1 else {})

    tuned = agent(objective=fails, disclose=disclose)
    replies = [tuned.answer(packed(ExpectedImprovement(), task(trial, 3))) for trial in (0, 3)]
    said = [repr(tuned.get_properties({})), *(repr(reply.config) for reply in replies)]
    assert not any(str(BOUND) in text for text in said)
    for reply in replies:
        assert any("outputs" in name for name in reply.arrays) == (disclose == "trials")
        assert any("feasible" in name for name in reply.arrays) == (disclose == "trials")
        for array in reply.arrays.values():
            assert not np.isin(np.abs(array.astype(float)), BOUND).any()


def test_a_bound_that_changes_within_a_study_holds_from_the_next_one_on(tmp_path):
    def points(study, name, *limits):
        found = []
        for trial, limit in enumerate(limits):
            asked = packed(ExpectedImprovement(num_initial=2), task(trial, 1), study=study)
            tuned = agent(node(tmp_path / f"{name}.db", limits=f"latency_ms <= {limit}"))
            found.append(tuned.answer(asked).arrays["disclosed.points"].tolist())
        return found

    assert points("s", "a", 9, 9, 9, 30, 30) == points("s", "b", 9, 9, 9, 9, 9)
    assert points("t", "a", *[9] * 5) != points("t", "b", *[30] * 5)


def test_an_output_that_an_operator_keeps_is_named_at_registration_and_excludes_disclosure():
    kept = node(private="latency_ms, gain")
    assert agent(kept, disclose="none").get_properties({})["private"] == ["latency_ms", "gain"]
    for disclose in ("incumbent", "trials"):
        with pytest.raises(
            ConfigError, match=r"disclose: expected 'none' together with private outputs \(la"
        ):
            agent(kept, disclose=disclose)
    with pytest.raises(ConfigError, match=r"private: expected some of several outputs \(gain, latency_ms\)"):
        agent(node(private="watts"), disclose="none")


def test_a_federation_shares_what_no_operator_keeps():
    kept = {1: {"private": "latency_ms"}}
    grid = agents(3, measured, space=SPACE, disclose="none", node_configs=kept, **GOALS)
    study = FedEI(seed=1, num_agents=3, num_candidates=64).start(grid, num_rounds=4).study
    (run,) = study.settings["runs"]
    assert run["options"]["shared_outputs"] == ["gain"]
    assert run["privacy"]["sums_made"] == 3, "of moments, first rows and a search; advice enters none"


def test_the_answer_and_the_command_show_the_numbers_of_the_best_and_the_front(tmp_path, capsys):
    def answers(name, num_rounds, **goals):
        found = []
        told = {"on_finish": lambda answer, context: found.append(answer), "journals": tmp_path / name}
        tune(num_rounds, **told, **goals)
        assert run(["best", str(tmp_path / name)]) == 0
        return found, capsys.readouterr().out

    held, printed = answers("limits", 5)
    assert {a.outputs["gain"] for a in held} == {a.value for a in held}
    assert f"latency_ms: {held[0].outputs['latency_ms']:.6g}" in printed
    assert run(["best", str(tmp_path / "limits"), "--json"]) == 0
    assert [entry["outputs"] for entry in json.loads(capsys.readouterr().out)] == [
        dict(a.outputs) for a in held
    ]

    _, printed = answers("none", 2, limits={"latency_ms": -1.0})
    assert "no configuration holds the limits; the nearest has" in printed
