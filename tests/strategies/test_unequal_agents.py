"""Agents with budgets, shares of the rounds or fixed parameters of their own, beside agents without."""

import pytest
from federation import agents
from flwr.app import ConfigRecord, RecordDict
from grouped import grouped

from fbo_flower.algorithms import ALGORITHMS, make_algorithm
from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Agents, Keep, simulate
from fbo_flower.simulation.durations import log_normal
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Categorical, Float, Int, SearchSpace
from fbo_flower.strategies import PFPNE, RandomSearch
from fbo_flower.strategies.node_report import read_registration
from fbo_flower.strategies.registration import takes_part

SPACE = SearchSpace(
    {"x": Float(0.0, 1.0), "y": Float(0.0, 1.0), "depth": Int(1, 5), "kernel": Categorical(["a", "b"])}
)
FIXED = {"0": {"y": 0.25, "kernel": "b"}, "2": {"depth": 4}}
SMALL = {"num_candidates": 32, "num_path_features": 16}
OPTIONS = {
    "ts": {"integer_moves": True, **SMALL},
    "fts": {"num_features": 16, **SMALL},
    "dp-fts": {"num_features": 8, "num_regions": 2, **SMALL},
    "fed-ei": {"secure_sums": 0, "num_candidates": 32},
    "rgpe": {"num_features": 16, "num_candidates": 32},
}


def hill(config, data):
    bonus = 0.1 * config["depth"] + 0.2 * (config["kernel"] == "a")
    return bonus - (config["x"] - 0.3) ** 2 - (config["y"] - 0.6) ** 2


def run(algorithm="random", num_rounds=9, mode="sync", **more):
    options = OPTIONS.get(algorithm, {})
    given = {"agents": 4, "algorithm": algorithm, "options": options, "num_rounds": num_rounds}
    durations = log_normal() if mode == "async" else None
    arguments = grouped(**given | more, mode=mode, durations=durations)
    return simulate(hill, SPACE, seed=2, engine="inline", **arguments)


def done(study, names="0123"):
    return [int(study.trials.where(agent=a)["pulls"].sum()) for a in names]


@pytest.mark.parametrize(
    ("algorithm", "mode"),
    [("random", "async"), ("fts", "async"), ("fed-ei", "sync"), ("rgpe", "sync")],
)
def test_an_agent_makes_its_budget_and_the_others_go_on(algorithm, mode):
    study = run(algorithm, mode=mode, max_trials={"0": 2, "1": 7})
    assert done(study, "01") == [2, 7]  # 2 of its 3 initial trials
    if mode == "sync":  # fed-ei has two initial trials, and an exchange without a trial
        assert done(study, "23") == [9 if algorithm == "fed-ei" else 11] * 2
    assert study.rounds["failures"].sum() == study.rounds["refused"].sum() == 0
    assert len(study.rounds) == 9


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_agent_takes_part_in_its_share_of_the_rounds(mode):
    study = run(mode=mode, num_rounds=20, participation={"0": 0.5, "1": 0.1}, options={"num_initial": 1})
    made = done(study)
    if mode == "sync":
        assert made == [10, 2, 20, 20]
    else:
        rounds = [len(set(study.trials.where(agent=a)["round"].tolist())) for a in "01"]
        assert 5 <= rounds[0] <= 11
        assert 1 <= rounds[1] <= 3


def test_shares_of_rounds_are_even_and_seeded():
    for share in (0.1, 0.3, 0.5, 0.9, 1.0):
        taken = [takes_part(7, "a", r, share) for r in range(1, 1001)]
        assert abs(sum(taken) - 1000 * share) <= 1
        assert taken == [takes_part(7, "a", r, share) for r in range(1, 1001)]
    assert len({takes_part(7, str(a), 1, 0.5) for a in range(20)}) == 2


def test_a_resumed_study_remembers_who_has_nothing_left(tmp_path):
    def study(num_rounds, **keep):
        keep = Keep(**keep) if keep else None
        shares = {"max_trials": {"0": 2, "1": 5}, "participation": {"2": 0.5}}
        return run("random", num_rounds, "async", keep=keep, **shares)

    whole = study(6)
    study(4, journals=tmp_path)
    resumed = study(6, journals=tmp_path, resume=True)
    for column in ("agent", "round", "trial", "value"):
        assert resumed.trials[column].tolist() == whole.trials[column].tolist()
    assert resumed.rounds["replies"].tolist() == whole.rounds["replies"].tolist()


def test_an_operator_overrides_the_budget_of_the_app_and_may_raise_it(tmp_path):
    for own, expected in (({}, [5, 3]), ({"max_trials": 6}, [5, 6])):
        grid = agents(2, max_trials=3, journals=tmp_path, node_configs={0: {"max_trials": 5}, 1: own})
        strategy = RandomSearch(num_agents=2, seed=1, num_initial=1)
        study = strategy.start(grid, num_rounds=10, journal=tmp_path / "study.db", resume=True).study
        assert done(study, "01") == expected


@pytest.mark.parametrize("algorithm", OPTIONS)
def test_fixed_parameters_keep_their_values_and_the_others_are_tuned(algorithm):
    secure = {"options": {"num_candidates": 32}} if algorithm == "fed-ei" else {}
    study = run(algorithm, 6, agents=3, fixed=FIXED, **secure)
    mine = study.trials.where(agent="0")["config"].tolist()
    assert len(mine) >= 6
    assert {(c["y"], c["kernel"]) for c in mine} == {(0.25, "b")}
    assert len({(c["x"], c["depth"]) for c in mine}) == len(mine)
    assert len({c["x"] for c in mine}) > 3
    assert {c["depth"] for c in study.trials.where(agent="2")["config"]} == {4}
    assert len({c["y"] for c in study.trials.where(agent="1")["config"]}) > 3
    assert study.rounds["failures"].sum() == study.rounds["refused"].sum() == 0
    assert study.settings["runs"][0]["fixed"] == {"0": ["y", "kernel"], "2": ["depth"]}


def test_algorithms_that_choose_points_for_all_refuse_with_a_sentence():
    refusing = {name for name in ALGORITHMS if make_algorithm(name, {}).needs_all_parameters}
    assert refusing >= {"pf-pne", "hct", "fed1-ucb", "fn-ucb", "co-kg", "rfms"}
    assert not refusing & {"random", "ei", "taf", *OPTIONS}
    app = client_app(lambda config, context: 0.5, SPACE, seed=1, fixed={"depth": 2})
    with pytest.raises(ConfigError, match="tunes all parameters, because all agents evaluate"):
        PFPNE(num_agents=1, seed=1, budget=20, wait_seconds=0.1).start(InProcessGrid(app, 1), num_rounds=2)
    with pytest.raises(ConfigError, match="tune all parameters, because in pf-pne"):
        simulate(hill, SPACE, agents=Agents(3, fixed=FIXED), algorithm="pf-pne", engine="inline")


def test_an_operator_fixes_parameters_in_node_config():
    app = client_app(lambda c, _: c["x"], SPACE, seed=1, disclose="trials", fixed={"depth": 2})
    grid = InProcessGrid(app, 2, node_configs={1: {"fixed": "y=0.5, kernel=a"}})
    study = RandomSearch(num_agents=2, seed=1).start(grid, num_rounds=2).study
    assert {c["depth"] for c in study.trials.where(agent="0")["config"]} == {2}
    assert {(c["y"], c["kernel"]) for c in study.trials.where(agent="1")["config"]} == {(0.5, "a")}


def registration(fixed):
    values = {"schema": 1, "agent": "a", "space": SPACE.to_json(), "digest": SPACE.digest, "role": ""}
    return RecordDict({"config": ConfigRecord({**values, "fixed": fixed})})


def test_a_registration_names_the_parameters_and_no_value():
    assert read_registration(7, registration(["x", "kernel"])).fixed == ("x", "kernel")
    nonsense = ["depth", 3, [1, 2], ["nobody"], ["x", "x"], list(SPACE.parameters), ["x"] * 100]
    for fixed in nonsense:
        with pytest.raises(ConfigError, match="fixed"):
            read_registration(7, registration(fixed))
    with pytest.raises(ConfigError, match="expected an integer"):
        client_app(hill, SPACE, seed=1, fixed={"depth": 99})
