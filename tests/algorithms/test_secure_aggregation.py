"""Algorithms with secure sums: the decisions of those without, whoever leaves or lies."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from contract import step

from fbo_flower.algorithms import make_algorithm, secure_member
from fbo_flower.algorithms.records import AgentState, Federation, History, Payload, Phase, Report, Task
from fbo_flower.algorithms.secure_aggregation import PATIENCE, SecureAggregation
from fbo_flower.algorithms.secure_member import Member, identity_arrays
from fbo_flower.clients import client_app
from fbo_flower.errors import WireError
from fbo_flower.numerics.bandits import elimination, partition
from fbo_flower.numerics.bandits.pulls import CellPulls
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.secure import fixed_point, keys
from fbo_flower.secure.rounds import BOX_BYTES
from fbo_flower.simulation import simulate
from fbo_flower.simulation.grids import Fault, InProcessGrid
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
    return strategy.start(
        InProcessGrid(app, num_agents, faults=faults), num_rounds=num_rounds, journal=journal
    ).study


def privacy(study):
    return study.settings["runs"][0]["privacy"]


@cache
def undisturbed(case, least=3):
    return run(case, least)


@pytest.mark.parametrize("case", CASES)
def test_decisions_are_those_without_secure_sums(case):
    plain, secure = undisturbed(case, 0), undisturbed(case)
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
    co_kg = {"moments", "theta", "log_likelihoods"}
    made = {"fed-pne": {"means", "counts"}, "dp-fts": {"weights"}, "co-kg": co_kg}[case]
    path = tmp_path / "study.db"
    run(case, journal=path)
    with StudyJournal(path) as journal:
        replies = [event for event in journal.events() if event.kind == "reply"]
    names = {name for e in replies for name in str(e.values["config"]["names"]).split(",")}
    assert "secure.words" in names
    assert not names & made


def saying(name, value=None):
    """Return a change of replies: an agent says something else under this name, or does not reply."""

    def change(content):
        if name in str(content["config"].get("values", "")):
            if value is None:
                return type(content)()
            content["config"]["values"] = json.dumps({name: value}, separators=(",", ":"))
        return content

    return change


@pytest.fixture
def works_asked(monkeypatch):
    """The pieces of work that agents were asked to mask: `(agent, name)`."""
    found, original = [], SecureAggregation.accept

    def accept(self, task, agent_state):
        if "secure.sum" in task.values and task.phase is Phase.TRAIN:
            agent = agent_state.arrays["secure.private"].tobytes()
            found.append((agent, self.inner.sum_name(task, agent_state)))
        return original(self, task, agent_state)

    monkeypatch.setattr(SecureAggregation, "accept", accept)
    return found


@pytest.mark.parametrize(
    ("case", "kind"),
    [("fed-pne", "silent"), ("pf-pne", "raising"), ("dp-fts", "down"), ("fts", "raising"), ("co-kg", "down")],
)
def test_an_agent_that_comes_and_goes_costs_its_own_part_and_no_work_is_asked_for_twice(
    case, kind, works_asked
):
    faults = {1: Fault(kind, [2, 3]), 2: Fault("malformed", change=saying("secure.revealed"))}
    study = run(case, faults=faults, round_timeout=0.3 if kind == "silent" else 9.0)
    assert study.settings["runs"][0]["status"] == "finished"
    assert privacy(study)["sums_made"] >= 1
    assert set(study.trials["agent"].tolist()) == set("012345")
    assert len(works_asked) == len(set(works_asked)) > 0


def test_an_agent_that_signs_and_reveals_nothing_is_in_the_sum_all_the_same():
    study = run("fed-pne", faults={1: Fault("malformed", change=saying("secure.revealed"))})
    assert study.trials["value"].tolist() == undisturbed("fed-pne").trials["value"].tolist()
    assert privacy(study)["sums_made"] == privacy(study)["sums_asked_for"]
    assert study.rounds["refused"].sum() == privacy(study)["sums_asked_for"]


def test_an_agent_that_does_not_sign_is_in_the_sum_and_not_asked_for_the_next_one():
    study = run("fed-pne", faults={1: Fault("malformed", rounds=[2], change=saying("secure.signature"))})
    assert privacy(study) == privacy(undisturbed("fed-pne"))
    assert study.trials.where(round=3) == undisturbed("fed-pne").trials.where(round=3)


def test_a_depth_whose_sum_failed_is_divided_as_a_whole_and_never_summed_again(works_asked):
    # one agent leaves before it sends numbers, and another before it reveals: their mask stays in the sum
    faults = {
        1: Fault("raising", rounds=[2]),
        2: Fault("malformed", rounds=[2], change=saying("secure.revealed")),
    }
    study = run("fed-pne", faults=faults)
    assert study.settings["runs"][0]["status"] == "finished"
    assert privacy(study)["sums_made"] == privacy(study)["sums_asked_for"] - 1
    assert len(works_asked) == len(set(works_asked)) >= 4


def sending(name, draw):
    """Return a change of replies: an agent sends something else in place of an array."""

    def change(content):
        names = str(content["config"].get("names", "")).split(",")
        if name in names:
            key = list(content["arrays"])[names.index(name)]
            array = content["arrays"][key]
            content["arrays"][key] = type(array)(draw(np.random.default_rng(0), array.numpy().shape))
        return content

    return change


lie = sending("secure.words", lambda rng, shape: rng.integers(-(2**62), 2**62, shape))
lock = sending("secure.boxes", lambda rng, shape: rng.integers(0, 256, shape).astype(np.uint8))
forge = saying("secure.signature", "ab" * 64)  # not a valid one
babble = saying("secure.revealed", ",".join(["cd" * 37] * 8))  # shares of other masks


@pytest.fixture
def members_of_sums(monkeypatch):
    """The agents in each sum that an algorithm receives."""
    found = []
    for name in ("fed-pne", "dp-fts"):
        original = type(make_algorithm(name, {})).aggregate_sum

        def aggregate_sum(self, state, agents, sums, original=original):
            found.append(set(agents))
            return original(self, state, agents, sums)

        monkeypatch.setattr(type(make_algorithm(name, {})), "aggregate_sum", aggregate_sum)
    return found


def test_members_sum_all_their_observations_again_with_the_same_partners_only(monkeypatch):
    """The difference of two sums, of which one lacks an agent, would be all observations of that agent."""
    kind, found = type(make_algorithm("co-kg", {})), []
    options = {"num_initial": 4, "num_points": 25, "refit": 1}
    original = kind.aggregate_sum

    def aggregate_sum(self, state, agents, sums):
        found.append(tuple(agents))
        return original(self, state, agents, sums)

    monkeypatch.setattr(kind, "aggregate_sum", aggregate_sum)
    app = client_app(objective, SPACE, seed=4, disclose="trials")

    def totals(num_agents, rounds, late=0, **faults):
        found.clear()
        grid = InProcessGrid(app, num_agents, faults={int(a[1:]): fault for a, fault in faults.items()})
        awaited = num_agents - late
        strategy = STRATEGIES["co-kg"](
            seed=4, num_agents=awaited, round_timeout=0.5, secure_sums=3, **options
        )
        study = strategy.start(grid, num_rounds=rounds).study
        return list(found), study.rounds["round"].tolist()

    everybody = ("0", "1", "2", "3")
    whole, _ = totals(4, 8)
    assert set(whole) == {everybody}
    gone, rounds = totals(4, 8, a0=Fault("silent", rounds=[4]))
    assert set(gone) == {everybody}
    assert len(whole) - 3 <= len(gone) < len(whole), "it goes on when the agent is back"
    assert len(rounds) == 8
    left, _ = totals(4, 8, a0=Fault("down", rounds=range(5, 99)))
    assert set(left) == {everybody}
    groups, _ = totals(14, 8, a0=Fault("down", rounds=range(5, 99)))
    assert len(set(groups)) == 2, "all, and the other group"
    late, _ = totals(4, 8, late=1, a3=Fault("down", rounds=range(0, 4)))
    assert set(late) == {("0", "1", "2")}


@pytest.mark.parametrize(("case", "change"), [("fed-pne", lie), ("fed-pne", lock), ("dp-fts", lie)])
def test_a_liar_spoils_the_sums_of_its_group_alone(case, change, members_of_sums):
    # nine agents in groups of 4 and 5, which become groups of 3
    study = run(case, least=2, num_agents=9, faults={1: Fault("malformed", change=change)})
    assert study.settings["runs"][0]["status"] == "finished"
    found = privacy(study)
    assert len(members_of_sums) == found["sums_made"] >= found["sums_asked_for"] - (case == "dp-fts")
    if change is lie:
        assert not any("1" in agents for agents in members_of_sums)
    if case == "fed-pne":  # in dp-fts the sums are over samples
        assert len(members_of_sums) >= 4
        assert all(len(agents) >= 6 for agents in members_of_sums[1:])
        assert {int(study.trials.where(agent=a)["pulls"].sum()) for a in "012345678"} == {120}


@pytest.mark.parametrize("change", [forge, babble])
def test_what_a_liar_says_after_the_numbers_costs_nothing(change, members_of_sums):
    study = run("fed-pne", least=3, num_agents=9, faults={1: Fault("malformed", change=change)})
    assert study.settings["runs"][0]["status"] == "finished"
    found = privacy(study)
    assert 1 <= len(members_of_sums) == found["sums_made"] == found["sums_asked_for"]


def test_several_liars_in_other_half_rounds_at_once_do_not_stop_a_study(members_of_sums):
    changes = {1: lie, 4: forge, 7: babble}
    faults = {i: Fault("malformed", change=change) for i, change in changes.items()}
    study = run("fed-pne", least=2, num_agents=12, faults=faults)
    assert study.settings["runs"][0]["status"] == "finished"
    assert privacy(study)["sums_made"] == len(members_of_sums) >= 3
    assert not any("1" in agents for agents in members_of_sums)
    assert {int(study.trials.where(agent=str(a))["pulls"].sum()) for a in range(12)} == {120}


@pytest.mark.parametrize("case", ["fed-pne", "dp-fts", "co-kg"])
def test_an_agent_that_is_silent_from_the_first_round_on_costs_at_most_one_sum(case):
    study = run(case, faults={1: Fault("raising", rounds=range(1, 99))})
    assert study.settings["runs"][0]["status"] == "finished"
    # at the end of fed-pne the others are asked too, although their budgets are spent
    in_vain = PATIENCE if case == "fed-pne" else 1
    assert 1 <= privacy(study)["sums_made"] >= privacy(study)["sums_asked_for"] - in_vain


def test_without_a_sum_of_lengthscales_fts_takes_the_middle_one_unless_it_can_ask_again():
    two = {i: Fault("raising", rounds=[1]) for i in (1, 2, 4)}  # of six agents too few are left
    again = run("fts", faults=two)
    assert privacy(again)["sums_made"] == 1
    assert privacy(again)["sums_asked_for"] == 2
    helped = run("fts", faults=two, targets=("0", "5"))  # the others make no trials: their report is spent
    assert helped.settings["runs"][0]["status"] == "finished"
    assert privacy(helped) == {"sums_of_at_least": 3, "sums_made": 0, "sums_asked_for": 1}


def test_sums_that_never_come_end_the_study_instead_of_asking_for_ever():
    study = run("fed-pne", num_agents=3, faults={0: Fault("malformed", change=lie)})
    assert privacy(study)["sums_made"] == 0
    assert privacy(study)["sums_asked_for"] == PATIENCE
    assert run("fed-pne", least=7).settings["runs"][0]["status"] == "finished"  # six agents


@pytest.mark.ray
def test_engine_ray_comes_to_the_same(ray_cluster):
    algorithm = make_algorithm("fed-pne", {"budget": 40, "secure_sums": 3})
    inline, ray = (
        simulate("himmelblau", agents=4, algorithm=algorithm, seed=2, engine=engine)
        for engine in ("inline", "ray")
    )
    assert inline.trials == ray.trials


# -- what an agent refuses ---------------------------------------------------------------------------


@pytest.fixture
def secured():
    return make_algorithm("fed-pne", {"secure_sums": 3})


class Agent:
    """An agent's keys and its state; other agents' keys are at hand, too."""

    def __init__(self):
        self.private, self.identity = keys.new_private_key(), keys.new_identity()
        self.state = AgentState(
            SPACE, History.empty(2), identity_arrays(self.private, self.identity, "study")
        )
        self.card = keys.make_card(self.identity, self.private)


@pytest.fixture
def agent():
    return Agent()


def rows(parts):
    return np.array([np.frombuffer(part, dtype=np.uint8) for part in parts])


def cards(count):
    return rows([Agent().card for _ in range(count)])


def summing(number, others, depth=0):
    arrays = {
        "cells": np.zeros(1, dtype=np.int64),
        "pulls": np.ones(1, dtype=np.int64),
        "secure.members": others,
    }
    values = {"secure.sum": number, "sum": True, "agents": 4, "depth": depth}
    return Task(Phase.TRAIN, 1, 0, 0, arrays, values)


def signing(number, there):
    arrays = {"secure.there": np.array(there, dtype=np.uint8)}
    return Task(Phase.EVALUATE, 1, 0, 0, arrays, {"secure.sum": number})


def revealing(number, signatures):
    arrays = {
        "secure.boxes": np.zeros((len(signatures), BOX_BYTES), np.uint8),
        "secure.signatures": rows(signatures),
    }
    return Task(Phase.REVEAL, 1, 0, 0, arrays, {"secure.sum": number})


def report(secured, task, agent_state):
    """Return the state and the payload after a task, as an agent computes them."""
    rng = np.random.default_rng(0)
    accepted = secured.accept(task, agent_state)
    payload = step(secured.summarise, task, accepted, rng)
    return accepted, secured.protect(task, accepted, payload, uniform_from(rng))


def signature(payload):
    return bytes.fromhex(payload.values["secure.signature"])


def test_an_agent_takes_part_in_a_sum_once_and_signs_once(secured, agent):
    after = secured.accept(summing(3, cards(3)), agent.state)
    for number in (-1, 1, 2, 3, 2**62):
        with pytest.raises(WireError, match="expected more than 3"):
            secured.accept(summing(number, cards(3), depth=1), after)
    signed = secured.accept(signing(3, [1, 1, 1]), after)
    for book, number in ((signed, 3), (after, 4), (after, 2), (agent.state, 1), (agent.state, 0)):
        with pytest.raises(WireError, match=r"secure\.sum|secure\.there"):
            secured.accept(signing(number, [1, 1, 0]), book)


def test_an_agent_reveals_once_and_only_if_enough_members_signed_what_it_signed(secured, agent):
    others = [Agent() for _ in range(4)]
    group = [agent, *others]  # threshold of five agents: four
    assert keys.threshold(5, 3) == 4
    lists = [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 1, 1]]
    states, made = [], []
    for member, there in zip(group, lists, strict=True):
        mine = rows([o.card for o in group if o is not member])
        masked, _ = report(secured, summing(1, mine), member.state)
        signed, payload = report(secured, signing(1, there), masked)
        states.append(signed)
        made.append(signature(payload))
    assert sorted(map(len, made)) == [64] * 5
    good, none = made[1:], bytes(64)
    revealed, payload = report(secured, revealing(1, good), states[0])  # one of them signed another list
    assert payload.values["secure.revealed"].count(",") == 3
    with pytest.raises(WireError, match="expected 1, once"):
        secured.accept(revealing(1, good), revealed)
    for signatures in (
        [none] * 4,
        [good[0], none, good[2], none],
        [good[0], good[0], good[0], good[0]],
        [good[0], good[1], good[2], none],
    ):
        with pytest.raises(WireError, match="expected 4 members that signed the same list"):
            secured.accept(revealing(1, signatures), states[0])
    with pytest.raises(WireError, match="expected 4 members"):  # the one that was told something else
        secured.accept(revealing(1, [made[0], made[1], made[2], made[4]]), states[3])
    unsigned = secured.accept(summing(1, rows([o.card for o in others])), agent.state)
    with pytest.raises(WireError, match=r"secure\.sum"):
        secured.accept(revealing(1, good), unsigned)


def test_signatures_of_members_that_are_not_in_do_not_count(secured, agent):
    others = [Agent() for _ in range(4)]
    asked = summing(1, rows([o.card for o in others]))
    masked = secured.accept(asked, agent.state)
    signed = secured.accept(signing(1, [1, 1, 1, 0]), masked)
    content = secure_member.digest_of(secured.sum_content(asked))
    statement = keys.statement(
        keys.label(b"study", 1, [agent.card, *(o.card for o in others)], content),
        [agent.card, *(o.card for o in others[:3])],
    )
    made = [keys.sign(o.identity, statement) for o in others]
    secured.accept(revealing(1, [*made[:3], bytes(64)]), signed)
    with pytest.raises(WireError, match="got 3"):
        secured.accept(revealing(1, [*made[:2], bytes(64), made[3]]), signed)


def test_members_that_are_asked_about_something_else_are_in_no_common_sum(secured, agent):
    """A server that names other cells to the others would learn this agent's means."""
    others = rows([Agent().card for _ in range(4)])
    task = summing(1, others)
    labels = set()
    for changed in ({}, {"cells": task.arrays["cells"] + 1}, {"pulls": task.arrays["pulls"] + 1}):
        asked = replace(task, arrays={**task.arrays, **changed})
        labels.add(Member.read(secured.accept(asked, agent.state)).label())
    deeper = replace(task, values={**task.values, "depth": 3})
    labels.add(Member.read(secured.accept(deeper, agent.state)).label())
    assert len(labels) == 4


def test_a_report_is_masked_once_whoever_asks_for_it_again(secured, agent):
    """Were it masked twice, the difference of the sums over different members would be a report."""
    after, first = report(secured, summing(1, cards(3)), pulled(agent.state))
    assert "secure.words" in first.arrays
    for number in (1, 2, 7):  # another number, other members: no numbers, and no error
        again, second = report(secured, summing(number, cards(4)), after)
        assert second == Payload()
        with pytest.raises(WireError, match=r"secure\.(there|sum)"):  # nor is it in that sum
            secured.accept(signing(number, [1, 1, 1, 1]), again)
    deeper, third = report(secured, summing(2, cards(3), depth=1), after)
    assert "secure.words" in third.arrays, "other work"
    assert report(secured, summing(3, cards(3)), deeper)[1] == Payload(), "the first is not forgotten"


def pulled(agent_state):
    """Return the state of an agent that has pulled the first cells of depths 0 and 1."""
    ones = np.ones(2, dtype=np.int64)
    pulls = CellPulls(partition.number([0, 1], [0, 0]), ones, np.ones(2), np.zeros(2), 0 * ones)
    return agent_state.write(**pulls.arrays("cells."))


@pytest.mark.parametrize(
    ("name", "options", "values", "arrays"),
    [
        ("dp-fts", {"num_features": 5}, {"message": True}, {"shares": np.ones(1)}),
        ("co-kg", {}, {"fit": True}, {}),
        ("fts", {"lengthscale": "federated"}, {"message": True}, {"lengthscales": np.ones(6)}),
    ],
)
def test_the_same_observations_have_the_same_name_whatever_the_task_says(name, options, values, arrays):
    secured = make_algorithm(name, {**options, "secure_sums": 2})
    state = AgentState(SPACE, History.empty(2), passed=7)

    def named(trial, num_trials):
        return secured.inner.sum_name(Task(Phase.TRAIN, 1, trial, num_trials, arrays, values), state)

    assert {named(trial, 0) for trial in range(8)} == {named(6, 1)} == {named(3, 2)}
    assert named(7, 1) != named(7, 0)
    assert len({named(7, k) for k in range(4)}) == 4


def test_an_agent_does_not_go_into_sums_of_too_few_nor_of_too_many(secured, agent):
    for count in (0, 1, 12):
        with pytest.raises(WireError, match="2 to 11 other members"):
            secured.accept(summing(1, cards(count).reshape(count, keys.CARD_BYTES)), agent.state)
    for other, needed in ((2, 2), (3, 2), (5, 4)):
        there = [1] * (needed - 1) + [0] * (other - needed + 1)
        with pytest.raises(WireError, match=f"at least {needed} other members"):
            secured.accept(signing(1, there), secured.accept(summing(1, cards(other)), agent.state))


@pytest.mark.parametrize(
    ("name", "options", "takes_part"),
    [
        ("fed-pne", {"budget": 20, "secure_sums": 0}, False),
        ("fed-pne", {"budget": 20, "secure_sums": 2}, False),
        ("fed-pne", {"budget": 20, "secure_sums": 3}, True),
        ("random", {}, True),
    ],
)
def test_an_operator_may_insist_on_sums_of_so_many_where_there_are_sums(name, options, takes_part):
    app = client_app(objective, SPACE, seed=4)
    strategy = STRATEGIES[name](num_agents=5, seed=0, **options)
    strategy.start(InProcessGrid(app, 5, node_configs={1: {"secure_sums": 3}}), num_rounds=2)
    assert strategy.study.rounds["failures"].any() != takes_part


def test_every_member_is_another_agent_with_signed_keys(secured, agent):
    twice = cards(3)
    twice[2] = twice[0]
    mine = cards(3)
    mine[1] = np.frombuffer(agent.card, dtype=np.uint8)
    for others in (twice, mine):
        with pytest.raises(WireError, match="one of every other agent"):
            secured.accept(summing(1, others), agent.state)
    forged = cards(3)
    forged[1, 40] ^= 1
    exchanged = cards(3)
    exchanged[0, : keys.IDENTITY_BYTES] = exchanged[1, : keys.IDENTITY_BYTES]
    for others in (forged, exchanged):
        with pytest.raises(WireError, match="keys that their agents signed"):
            secured.accept(summing(1, others), agent.state)


def test_an_agent_with_nothing_to_add_does_not_pretend_to_hide_others(secured, agent):
    assert "secure.words" in report(secured, summing(1, cards(3)), pulled(agent.state))[1].arrays
    assert report(secured, summing(1, cards(3)), agent.state)[1] == Payload()


def test_without_a_sum_under_way_summands_do_not_leave(secured, agent):
    agent_state = agent.state
    task = summing(1, cards(3))
    clear = Task(Phase.TRAIN, 1, 0, 0, task.arrays, {"sum": True, "agents": 4, "depth": 0})
    rng = np.random.default_rng(0)
    assert set(step(secured.inner.summarise, clear, agent_state, rng).arrays) == {
        "present",
        "means",
        "inverse",
        "counts",
    }
    payload = step(secured.summarise, clear, agent_state, rng)
    assert secured.protect(clear, agent_state, payload, uniform_from(rng)) == Payload()


def test_reports_of_a_sum_have_all_their_parts_and_come_when_asked(secured):
    words = {"secure.words": np.zeros((4, 2), np.int64)}
    boxes = {"secure.boxes": np.zeros((3, BOX_BYTES), np.uint8), "secure.commitment": np.zeros(32, np.uint8)}
    task = summing(1, cards(3))
    secured.check_report(task, Report(0, 0, 0, words | boxes))
    secured.check_report(task, Report(0, 0, 0, {}))
    wrong = boxes | {"secure.boxes": np.zeros((2, BOX_BYTES), np.uint8)}
    plain = Task(Phase.TRAIN, 1, 0, 0, {}, {})
    for asked, arrays in ((task, words), (task, words | wrong), (plain, words | boxes)):
        with pytest.raises(WireError):
            secured.check_report(asked, Report(0, 0, 0, arrays))
    signing_task, revealing_task = signing(1, [1]), revealing(1, [bytes(64)])
    secured.check_report(signing_task, Report(0, 0, 0, {}, {"secure.signature": ""}))
    secured.check_report(revealing_task, Report(0, 0, 0, {}, {"secure.revealed": ""}))
    for asked, values in (
        (signing_task, {}),
        (revealing_task, {}),
        (signing_task, {"secure.revealed": ""}),
        (revealing_task, {"secure.signature": "", "secure.revealed": ""}),
        (task, {"secure.signature": ""}),
    ):
        with pytest.raises(WireError, match="half-round"):
            secured.check_report(asked, Report(0, 0, 0, {}, values))


def test_agents_without_a_valid_card_or_with_a_copied_one_are_left_out_of_sums(secured):
    state = secured.init(Federation(SPACE, tuple("01234")), np.random.default_rng(0))
    known = {a: Agent().card for a in "012"} | {"3": b"x" * 128}
    state = secured.register_cards(state, "study", known | {"4": known["1"]})
    state, tasks = secured.ask(state, Phase.TRAIN, 1, list("01234"), np.random.default_rng(0))
    assert [a for a, t in tasks.items() if "secure.sum" in t.values] == ["0", "1", "2"]


def test_groups_hold_everybody_once_and_none_is_too_small_or_too_large(secured):
    rng = np.random.default_rng(0)
    state = secured.init(Federation(SPACE, tuple("01")), rng)
    for size in range(2, 60):
        names = [str(i) for i in range(size)]
        for failures in range(5):
            groups = secured._groups(replace(state, failures=failures), names, rng)
            assert sorted(a for g in groups for a in g) == (sorted(names) if size >= 3 else [])
            assert all(3 <= len(group) <= 12 for group in groups)
            if failures == 0:
                assert len(groups) == (-(-size // 12) if size >= 3 else 0)


def test_groups_stay_until_somebody_comes_or_goes_or_a_sum_fails(secured):
    rng, names = np.random.default_rng(0), [str(i) for i in range(30)]
    state = secured.init(Federation(SPACE, tuple(names)), np.random.default_rng(0))
    state = replace(state, groups=secured._groups(state, names, rng))
    assert secured._groups(state, names[::-1], rng) == state.groups
    for changed, present in (
        (state, names[1:]),
        (state, [*names, "30"]),
        (replace(state, failures=1), names),
        (replace(state, groups=tuple(tuple(names[i : i + 5]) for i in range(0, 30, 5))), names),
    ):
        groups = secured._groups(changed, present, rng)
        assert set(groups).isdisjoint(changed.groups)
        assert sorted(a for group in groups for a in group) == sorted(present)


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
