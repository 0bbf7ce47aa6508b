"""Algorithms with secure sums: the decisions of those without, whoever leaves or lies."""

import numpy as np
import pytest

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.records import AgentState, Federation, History, Payload, Phase, Report, Task
from fbo_flower.algorithms.secure_aggregation import PATIENCE, SecureAggregation, identity
from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.bandits import elimination
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.secure import fixed_point, keys, rounds
from fbo_flower.secure.rounds import BOX_BYTES
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.simulation.runner import simulate
from fbo_flower.space import Float, SearchSpace
from fbo_flower.storage import StudyJournal
from fbo_flower.strategies import STRATEGIES

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
SMALL = {"num_candidates": 64, "num_path_features": 32}
CASES = {
    "fed-pne": ({"budget": 120}, None),
    "pf-pne": ({"budget": 150, "max_evaluations_per_round": 17, "gap": 0.3}, None),
    "dp-fts": ({"sampling_rate": 0.9, "num_regions": 2, **SMALL}, 6),
    "fts": ({"lengthscale": "federated", "schedule": 0.3, "num_features": 20, **SMALL}, 4),
    "co-kg": ({"num_initial": 4, "num_points": 25, "refit": 2}, 5),
}


def objective(config, context):
    shift = 0.02 * int(context.agent)
    noise = 0.05 * context.rng.standard_normal()
    return 1.0 - (config["x"] - 0.3 - shift) ** 2 - (config["y"] - 0.6) ** 2 + noise


def run(case, least=3, num_agents=6, faults=None, journal=None, **settings):
    options, num_rounds = CASES[case]
    strategy = STRATEGIES[case](
        **{"seed": 4, "num_agents": num_agents, "round_timeout": 1.0, **options, **settings},
        secure_sums=least,
    )
    app = client_app(objective, SPACE, seed=4, disclose="trials")
    return strategy.start(InProcessGrid(app, num_agents, faults=faults), num_rounds, journal=journal)


def privacy(study):
    return study.settings["runs"][0]["privacy"]


@pytest.mark.parametrize("case", CASES)
def test_decisions_are_those_without_secure_sums(case):
    plain, secure = run(case, least=0), run(case)
    for column in ("agent", "trial", "round"):
        assert plain.trials[column].tolist() == secure.trials[column].tolist()
    np.testing.assert_allclose(plain.trials["value"], secure.trials["value"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        plain.recommendations["value"], secure.recommendations["value"], rtol=0, atol=1e-12
    )
    assert privacy(secure)["sums_made"] == privacy(secure)["sums_asked_for"] >= 1
    assert not secure.rounds["refused"].any()


@pytest.mark.parametrize("case", ["fed-pne", "dp-fts", "co-kg"])
def test_no_report_and_nothing_that_it_is_made_of_reaches_the_server(case, tmp_path):
    made = {"fed-pne": {"means", "counts"}, "dp-fts": {"weights"}, "co-kg": {"moments", "theta"}}[case]
    path = tmp_path / "study.db"
    run(case, journal=path)
    with StudyJournal(path) as journal:
        replies = [event for event in journal.events() if event.kind == "reply"]
    names = {name for e in replies for name in str(e.values["config"]["names"]).split(",")}
    assert "secure.words" in names
    assert not names & made


@pytest.mark.parametrize("kind", ["silent", "raising", "down"])
@pytest.mark.parametrize("case", CASES)
def test_an_agent_that_comes_and_goes_costs_its_own_part(case, kind):
    study = run(case, faults={1: Fault(kind, rounds=[2, 3])}, round_timeout=0.3 if kind == "silent" else 9.0)
    assert study.settings["runs"][0]["status"] == "finished"
    assert privacy(study)["sums_made"] >= 1
    assert set(study.trials["agent"].tolist()) == set("012345")


def leave_between(content):
    """An agent that sends its numbers and reveals nothing."""
    return type(content)() if "secure.revealed" in str(content["config"].get("values", "")) else content


def test_an_agent_that_leaves_between_the_half_rounds_is_in_the_sum_all_the_same():
    undisturbed = run("fed-pne")
    study = run("fed-pne", faults={1: Fault("malformed", change=leave_between)})
    assert study.trials["value"].tolist() == undisturbed.trials["value"].tolist()
    assert privacy(study)["sums_made"] == privacy(study)["sums_asked_for"]
    assert study.rounds["refused"].sum() == privacy(study)["sums_asked_for"]


def test_a_depth_is_summed_once_so_that_no_difference_of_sums_is_an_agents_report():
    study = run("fed-pne", faults={1: Fault("raising", rounds=[2])})
    whole = run("fed-pne")
    assert privacy(study)["sums_made"] <= privacy(whole)["sums_made"] + 1
    rounds_of_sums = [r for r, up in zip(study.rounds["round"], study.rounds["tasks"], strict=True) if up > 6]
    assert len(rounds_of_sums) == privacy(study)["sums_asked_for"]


def test_two_neighbours_that_leave_one_before_and_one_between_cost_one_more_round():
    faults = {1: Fault("raising", rounds=[2]), 2: Fault("malformed", rounds=[2], change=leave_between)}
    study = run("fed-pne", faults=faults)
    assert study.settings["runs"][0]["status"] == "finished"
    assert privacy(study)["sums_made"] == privacy(study)["sums_asked_for"] - 1


def replaced(content, name, draw):
    names = str(content["config"].get("names", "")).split(",")
    if name in names:
        key = list(content["arrays"])[names.index(name)]
        array = content["arrays"][key]
        content["arrays"][key] = type(array)(draw(np.random.default_rng(0), array.numpy().shape))
    return content


def lie(content):
    """Random numbers in place of masked ones."""
    return replaced(content, "secure.words", lambda rng, shape: rng.integers(-(2**62), 2**62, shape))


def lock(content):
    """Boxes that nobody can open."""
    return replaced(content, "secure.boxes", lambda rng, shape: rng.integers(0, 256, shape).astype(np.uint8))


@pytest.mark.parametrize("change", [lie, lock])
@pytest.mark.parametrize("case", ["fed-pne", "dp-fts"])
def test_a_liar_spoils_the_sums_of_its_group_alone(case, change):
    study = run(case, least=2, num_agents=9, faults={1: Fault("malformed", change=change)})
    assert study.settings["runs"][0]["status"] == "finished"
    found = privacy(study)
    assert 1 <= found["sums_made"] < found["sums_asked_for"]
    undisturbed = run(case, least=2, num_agents=9)
    assert study.trials.where(agent="5")["pulls"].sum() == undisturbed.trials.where(agent="5")["pulls"].sum()


@pytest.mark.parametrize("case", [pytest.param("fed-pne", marks=pytest.mark.slow), "dp-fts"])
def test_half_of_the_agents_that_never_answer_cost_rounds_and_not_the_study(case):
    faults = {i: Fault("raising", rounds=range(2, 99)) for i in range(5)}
    study = run(case, num_agents=10, faults=faults)
    assert study.settings["runs"][0]["status"] == "finished"
    found = privacy(study)
    assert found["sums_made"] >= 2
    assert found["sums_asked_for"] <= 2 * found["sums_made"] + 2
    assert len(study.trials.where(agent="7")) > len(study.trials.where(agent="2"))


def test_sums_that_never_come_end_the_study_instead_of_asking_for_ever():
    study = run("fed-pne", num_agents=3, faults={0: Fault("malformed", change=lie)})
    assert privacy(study)["sums_made"] == 0
    assert privacy(study)["sums_asked_for"] == PATIENCE
    assert run("fed-pne", least=7).settings["runs"][0]["status"] == "finished"  # six agents


@pytest.mark.ray
def test_engine_ray_comes_to_the_same(ray_cluster):
    found = [
        simulate("himmelblau", "fed-pne", 4, engine=e, options={"budget": 40, "secure_sums": 3}, seed=2)
        for e in ("inline", "ray")
    ]
    assert found[0].trials == found[1].trials


# -- what an agent refuses ---------------------------------------------------------------------------


@pytest.fixture
def secured():
    return make_algorithm("fed-pne", {"secure_sums": 3})


@pytest.fixture
def agent_state():
    return AgentState(SPACE, History.empty(2), identity(keys.new_private_key(), "study"))


def public(count):
    made = [keys.public_key(keys.new_private_key()) for _ in range(count)]
    return np.array([np.frombuffer(key, dtype=np.uint8) for key in made])


def summing(number, others):
    arrays = {
        "cells": np.zeros(1, dtype=np.int64),
        "pulls": np.ones(1, dtype=np.int64),
        "secure.keys": others,
    }
    return Task(Phase.TRAIN, 1, 0, 0, arrays, {"secure.sum": number, "sum": True, "agents": 4, "depth": 0})


def revealing(number, there):
    arrays = {
        "secure.there": np.array(there, dtype=np.uint8),
        "secure.boxes": np.zeros((len(there), BOX_BYTES), np.uint8),
    }
    return Task(Phase.EVALUATE, 1, 0, 0, arrays, {"secure.sum": number})


def test_an_agent_takes_part_in_a_sum_once_and_reveals_once(secured, agent_state):
    after = secured.accept(summing(3, public(3)), agent_state)
    for number in (1, 2, 3):
        with pytest.raises(WireError, match="expected more than 3"):
            secured.accept(summing(number, public(3)), after)
    revealed = secured.accept(revealing(3, [1, 1, 1]), after)
    for book, number in ((revealed, 3), (after, 4), (after, 2), (agent_state, 1)):
        with pytest.raises(WireError, match=r"secure\.sum"):
            secured.accept(revealing(number, [1, 1, 0]), book)


def test_an_agent_does_not_go_into_sums_of_too_few(secured, agent_state):
    with pytest.raises(WireError, match="at least 2 neighbours"):
        secured.accept(summing(1, public(1)), agent_state)
    for other in (1, 2, 3):
        with pytest.raises(WireError, match=r"at least [23] neighbours that have sent"):
            secured.accept(
                revealing(1, [1] + [0] * other), secured.accept(summing(1, public(1 + other)), agent_state)
            )


@pytest.mark.parametrize(("asked", "takes_part"), [(0, False), (2, False), (3, True), (4, True)])
def test_an_operator_may_insist_on_sums_of_so_many(asked, takes_part):
    app = client_app(objective, SPACE, seed=4)
    configs = {1: {"secure_sums": 3}}
    strategy = STRATEGIES["fed-pne"](num_agents=5, seed=0, budget=20, secure_sums=asked)
    strategy.start(InProcessGrid(app, 5, node_configs=configs), 2)
    failures = strategy.study.rounds["failures"].tolist()
    assert (sum(failures) == 0) == takes_part


def test_algorithms_without_sums_do_not_concern_such_an_operator():
    app = client_app(objective, SPACE, seed=4)
    strategy = STRATEGIES["random"](num_agents=2, seed=0)
    strategy.start(InProcessGrid(app, 2, node_configs={1: {"secure_sums": 3}}), 2)
    assert not strategy.study.rounds["failures"].any()


def test_an_agent_is_not_its_own_neighbour_nor_has_one_twice(secured, agent_state):
    own = keys.public_key(agent_state.arrays["secure.private"].tobytes())
    twice = public(3)
    twice[2] = twice[0]
    mine = public(3)
    mine[1] = np.frombuffer(own, dtype=np.uint8)
    for others in (twice, mine):
        with pytest.raises(WireError, match="one of every other agent"):
            secured.accept(summing(1, others), agent_state)


def test_without_a_sum_under_way_summands_do_not_leave(secured, agent_state):
    task = summing(1, public(3))
    clear = Task(Phase.TRAIN, 1, 0, 0, task.arrays, {"sum": True, "agents": 4, "depth": 0})
    rng = np.random.default_rng(0)
    assert set(secured.inner.summarise(clear, agent_state, rng).arrays) == {
        "present",
        "means",
        "inverse",
        "counts",
    }
    payload = secured.summarise(clear, agent_state, rng)
    assert secured.protect(clear, agent_state, payload, uniform_from(rng)) == Payload()


def test_reports_of_a_sum_have_all_their_parts_and_come_when_asked(secured):
    words = {"secure.words": np.zeros((4, 2), np.int64)}
    boxes = {"secure.boxes": np.zeros((3, BOX_BYTES), np.uint8), "secure.commitment": np.zeros(32, np.uint8)}
    task = summing(1, public(3))
    secured.check_report(task, Report(0, 0, 0, words | boxes))
    secured.check_report(task, Report(0, 0, 0, {}))
    wrong = boxes | {"secure.boxes": np.zeros((2, BOX_BYTES), np.uint8)}
    plain = Task(Phase.TRAIN, 1, 0, 0, {}, {})
    for asked, arrays in ((task, words), (task, words | wrong), (plain, words | boxes)):
        with pytest.raises(WireError):
            secured.check_report(asked, Report(0, 0, 0, arrays))
    with pytest.raises(WireError, match="second half-round"):
        secured.check_report(revealing(1, [1]), Report(0, 0, 0, {}))


def test_agents_without_a_key_are_left_out_of_sums(secured):
    state = secured.init(Federation(SPACE, tuple("0123")), np.random.default_rng(0))
    known = {a: keys.public_key(keys.new_private_key()) for a in "012"} | {"3": b"x" * 49}
    state = secured.register_public_keys(state, known)
    state, tasks = secured.ask(state, Phase.TRAIN, 1, list("0123"), np.random.default_rng(0))
    assert [a for a, t in tasks.items() if "secure.sum" in t.values] == ["0", "1", "2"]


def test_groups_hold_everybody_once_and_none_is_too_small():
    secured = SecureAggregation(inner=make_algorithm("fed-pne", {}), least=3)
    rng = np.random.default_rng(0)
    for size in range(2, 30):
        names = [str(i) for i in range(size)]
        for failures in range(5):
            groups = secured._groups(names, failures, rng)
            assert sorted(a for g in groups for a in g) == (sorted(names) if size >= 3 else [])
            assert all(len(group) >= 3 for group in groups)
            assert len(groups) <= 2**failures


# -- sums of statistics ------------------------------------------------------------------------------


def test_merged_sums_are_merged_means():
    rng = np.random.default_rng(1)
    means, counts = rng.standard_normal((7, 11)), rng.integers(0, 5, (7, 11))
    counts[:, 3], counts[:, 4] = 0, 6
    there = counts > 0
    sums = [there, np.where(there, means, 0), np.where(there, 1 / np.maximum(counts, 1), 0), counts]
    words = [fixed_point.encode(np.ravel(s), 1e9) for s in sums]
    exact = [fixed_point.decode(w).reshape(7, 11).sum(axis=0) for w in words]
    found, expected = elimination.merge_sums(*exact), elimination.merge(means, counts)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.count, expected.count, rtol=1e-12)
    assert found.count[4] == 42
    assert found.num_clients.tolist() == expected.num_clients.tolist()


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("fed-pne", {"secure_sums": 1}, "from 2 on"),
        ("fed-pne", {"secure_sums": 3, "aggregate": "median"}, "expected 'mean'"),
        ("pf-pne", {"secure_sums": 3, "variant": "racing"}, "variant='racing'"),
        ("fts", {"secure_sums": 3}, "federated"),
        ("co-kg", {"secure_sums": 3, "weights": "reliability"}, "expected 'uniform'"),
        ("dp-fts", {"secure_sums": -1}, "secure_sums"),
    ],
)
def test_options_that_sums_do_not_go_with(name, options, text):
    with pytest.raises(ConfigError, match=text):
        make_algorithm(name, options)


def test_degree_leaves_room_for_agents_that_leave():
    for least in (2, 3, 5, 20):
        degree = rounds.degree(least)
        assert degree % 2 == 0
        secured = SecureAggregation(inner=make_algorithm("fed-pne", {}), least=least)
        assert secured._least_neighbours(degree) < degree
