"""Agents that tune only some of the shared parameters, beside agents that tune all."""

from __future__ import annotations

import pytest
from amounts import slow
from grouped import grouped

from fbo_flower.algorithms import make_algorithm
from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Agents, simulate
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Categorical, Float, Int, SearchSpace
from fbo_flower.strategies import PFPNE, RandomSearch
from fbo_flower.strategies.registration_message import read_registration

SPACE = SearchSpace(
    {"x": Float(0.0, 1.0), "y": Float(0.0, 1.0), "depth": Int(1, 5), "kernel": Categorical(["a", "b"])}
)
FIXED = {"0": {"y": 0.25, "kernel": "b"}, "2": {"depth": 4}}
SURROGATES = {
    "random": {},
    "ts": {"integer_moves": True},
    "ei": {},
    "fts": {"num_features": 16},
    "dp-fts": {"num_features": 16, "num_regions": 2},
    "fed-ei": {},
    "rgpe": {"num_features": 16},
    "taf": {"num_features": 16},
}
REFUSING = ["pf-pne", "hct", "fed1-ucb", "fn-ucb", "co-kg", "rfms"]


def hill(config, data):
    bonus = 0.1 * config["depth"] + 0.2 * (config["kernel"] == "a")
    return bonus - (config["x"] - 0.3) ** 2 - (config["y"] - 0.6) ** 2


def run(algorithm, fixed, num_rounds=6, **more):
    given = {"agents": 3, "algorithm": algorithm, "num_rounds": num_rounds, "options": SURROGATES[algorithm]}
    return simulate(hill, SPACE, seed=2, engine="inline", **grouped(**given, fixed=fixed, **more))


@pytest.mark.parametrize("algorithm", SURROGATES)
def test_fixed_parameters_keep_their_values_and_the_others_are_tuned(algorithm):
    study = run(algorithm, FIXED)
    mine = study.trials.where(agent="0")["config"].tolist()
    assert len(mine) >= 6
    assert {(c["y"], c["kernel"]) for c in mine} == {(0.25, "b")}
    assert len({(c["x"], c["depth"]) for c in mine}) == len(mine)
    assert len({c["x"] for c in mine}) > 3
    assert {c["depth"] for c in study.trials.where(agent="2")["config"]} == {4}
    assert len({c["y"] for c in study.trials.where(agent="1")["config"]}) > 3
    assert study.rounds["failures"].sum() == study.rounds["refused"].sum() == 0
    assert study.settings["runs"][0]["fixed"] == {"0": ["y", "kernel"], "2": ["depth"]}


def test_without_fixed_parameters_nothing_changes():
    columns = [run("fed-ei", fixed, 3).trials["value"].tolist() for fixed in (None, {}, [None] * 3)]
    assert columns[0] == columns[1] == columns[2]


@pytest.mark.parametrize("algorithm", REFUSING)
def test_an_algorithm_that_chooses_points_for_all_refuses(algorithm):
    assert make_algorithm(algorithm, {}).needs_all_parameters


def test_the_server_and_the_agent_refuse_with_a_sentence():
    app = client_app(lambda config, context: 0.5, SPACE, seed=1, fixed={"depth": 2})
    with pytest.raises(ConfigError, match="tunes all parameters, because all agents evaluate"):
        PFPNE(num_agents=1, seed=1, budget=20, wait_seconds=0.5).start(InProcessGrid(app, 1), num_rounds=2)
    with pytest.raises(ConfigError, match="tune all parameters, because in pf-pne"):
        simulate(
            hill,
            space=SPACE,
            agents=Agents(3, fixed=FIXED),
            algorithm="pf-pne",
            num_rounds=2,
            engine="inline",
        )


def test_an_operator_fixes_parameters_in_node_config():
    app = client_app(lambda c, _: c["x"], SPACE, seed=1, disclose="trials", fixed={"depth": 2})
    grid = InProcessGrid(app, 2, node_configs={1: {"fixed": "y=0.5, kernel=a"}})
    study = RandomSearch(num_agents=2, seed=1).start(grid, num_rounds=2).study
    assert {c["depth"] for c in study.trials.where(agent="0")["config"]} == {2}
    assert {(c["y"], c["kernel"]) for c in study.trials.where(agent="1")["config"]} == {(0.5, "a")}


def registration(fixed):
    from flwr.app import ConfigRecord, RecordDict

    values = {
        "schema": 1, "agent": "a", "space": SPACE.to_json(), "digest": SPACE.digest, "role": "",
        "fixed": fixed,
    }  # fmt: skip
    return RecordDict({"config": ConfigRecord(values)})


@pytest.mark.parametrize(
    "fixed", ["depth", 3, [1, 2], ["nobody"], ["x", "x"], ["x", "y", "depth", "kernel"], ["x"] * 100]
)
def test_a_registration_with_nonsense_is_refused(fixed):
    with pytest.raises(ConfigError, match="fixed"):
        read_registration(7, registration(fixed))


def test_a_registration_names_the_parameters_and_no_value():
    assert read_registration(7, registration(["x", "kernel"])).fixed == ("x", "kernel")
    with pytest.raises(ConfigError, match="expected an integer"):
        client_app(hill, SPACE, seed=1, fixed={"depth": 99})


CUBE = SearchSpace({name: Float(0.0, 1.0) for name in ("x", "y", "z")})


def bowl(config, shift):
    squares = [(config[name] - 0.35 - shift) ** 2 for name in ("x", "y", "z")]
    return -sum(squares)


@slow
def test_agents_with_fixed_parameters_gain_from_similar_others_and_do_them_no_harm():
    """Mean best value after 5 evaluations, `fed-ei` against `ei` alone, from the same two random points."""
    fixed = {"0": {"z": 0.2}, "1": {"y": 0.6}}
    gains = {"some": [], "all": []}
    for seed in range(4):
        best = {}
        for algorithm, options, num_rounds in (("fed-ei", {"secure_sums": 0}, 5), ("ei", {}, 4)):
            study = simulate(
                bowl,
                space=CUBE,
                agents=Agents([0.0, 0.02, 0.04, 0.06, 0.03, 0.01], fixed=fixed),
                algorithm=make_algorithm(algorithm, {"num_initial": 2, **options}),
                num_rounds=num_rounds,
                seed=seed,
                engine="inline",
            )
            assert len(study.trials) == 6 * 5
            best[algorithm] = [study.best[a]["value"] for a in "012345"]
        gain = [one - two for one, two in zip(best["fed-ei"], best["ei"], strict=True)]
        gains["some"] += gain[:2]
        gains["all"] += gain[2:]
    assert sum(gains["some"]) > 0.0
    assert sum(gains["all"]) > 0.0
