"""Algorithms with secure sums: the decisions of those without, whoever leaves or lies."""

import json
from dataclasses import replace

import numpy as np
import pytest
from contract import SQUARE as SPACE
from contract import over_grid, step

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Report, Task, Trials
from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.bandits import partition
from fbo_flower.numerics.bandits.pulls import CellPulls
from fbo_flower.secure import keys
from fbo_flower.secure.member import Member, SumGuard, check_summable, content_of, identity_arrays
from fbo_flower.secure.rounds import BOX_BYTES
from fbo_flower.secure.server import PATIENCE, SecureServer
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.storage import StudyJournal
from fbo_flower.strategies import STRATEGIES

SMALL = {"num_candidates": 64, "num_path_features": 32}
CO_KG = {"num_initial": 4, "num_points": 16, "refit": 2}
CASES = {
    "fed-pne": ({"budget": 120}, None),
    "dp-fts": ({"sampling_rate": 0.9, "num_regions": 2, **SMALL}, 6),
    "fts": ({"lengthscale": "federated", "schedule": 0.3, "num_features": 20, **SMALL}, 4),
    "co-kg": (CO_KG, 5),
}
MADE_OF = {
    "fed-pne": {"means", "counts"}, "dp-fts": {"weights"}, "co-kg": {"moments", "theta", "log_likelihoods"},
}  # fmt: skip


def objective(config, context):
    x, y = config["x"] - 0.3 - 0.02 * int(context.agent), config["y"] - 0.6
    return 1.0 - x**2 - y**2 + 0.05 * context.rng.standard_normal()


def run(case, least=3, num_agents=6, **given):
    options, num_rounds = CASES[case]
    settings = {"seed": 4, "round_timeout": 1.0, **options, **given}
    study = over_grid(case, objective, SPACE, num_agents, num_rounds, secure_sums=least, **settings)
    assert study.settings["runs"][0]["status"] == "finished"
    return study


def sums(study):
    """Return how many sums were made and asked for."""
    privacy = study.settings["runs"][0]["privacy"]
    return privacy["sums_made"], privacy["sums_asked_for"]


@pytest.mark.parametrize("case", CASES)
def test_decisions_are_those_without_secure_sums_and_no_summand_reaches_the_server(case, tmp_path):
    plain, secure = run(case, 0), run(case, journal=tmp_path / "study.db")
    for column in ("agent", "trial", "round"):
        assert plain.trials[column].tolist() == secure.trials[column].tolist()
    for table in ("trials", "recommendations"):
        values = [getattr(study, table)["value"] for study in (plain, secure)]
        np.testing.assert_allclose(*values, rtol=0, atol=1e-12)
    made, asked = sums(secure)
    assert made == asked >= 1
    assert not secure.rounds["refused"].any()
    with StudyJournal(tmp_path / "study.db") as journal:
        replies = [event for event in journal.events() if event.kind == "reply"]
    names = {name for event in replies for name in event.arrays}
    assert "secure.words" in names
    assert not names & MADE_OF.get(case, set())


# -- agents that leave, and agents that lie ------------------------------------------------------------


def saying(name, value=None):
    """Return a change of replies: an agent says something else under this name, or does not reply."""

    def change(content):
        if name in str(content["config"].get("values", "")):
            if value is None:
                return type(content)()
            content["config"]["values"] = json.dumps({name: value}, separators=(",", ":"))
        return content

    return change


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


def faulty(change, rounds=None):
    return Fault("malformed", change=change, **({} if rounds is None else {"rounds": rounds}))


LIE = sending("secure.words", lambda rng, shape: rng.integers(-(2**62), 2**62, shape))
LOCK = sending("secure.boxes", lambda rng, shape: rng.integers(0, 256, shape).astype(np.uint8))
FORGE = saying("secure.signature", "ab" * 64)  # not a valid one
BABBLE = saying("secure.revealed", ",".join(["cd" * 37] * 8))  # shares of other masks


@pytest.fixture
def works_asked(monkeypatch):
    """The pieces of work that agents were asked to mask: `(agent, name)`."""
    found, original = [], SumGuard.admit

    def admit(self, task, agent_state):
        if "secure.sum" in task.values and task.phase is Phase.TRAIN:
            agent = agent_state.arrays["secure.private"].tobytes()
            found.append((agent, self.algorithm.report_content.sum_name(task, agent_state)))
        return original(self, task, agent_state)

    monkeypatch.setattr(SumGuard, "admit", admit)
    return found


@pytest.fixture
def members_of_sums(monkeypatch):
    """The agents in each sum that an algorithm receives."""
    found, original = [], SecureServer._tell

    def tell(self, phase, replies):
        if replies._groups:
            found.append(tuple(sorted(agent for agents, _ in replies._groups for agent in agents)))
        original(self, phase, replies)

    monkeypatch.setattr(SecureServer, "_tell", tell)
    return found


@pytest.mark.parametrize(
    ("case", "kind"), [("fed-pne", "silent"), ("dp-fts", "down"), ("fts", "raising"), ("co-kg", "down")]
)
def test_an_agent_that_comes_and_goes_costs_its_own_part_and_no_work_is_asked_for_twice(
    case, kind, works_asked
):
    faults = {1: Fault(kind, [2, 3]), 2: faulty(saying("secure.revealed"))}
    study = run(case, faults=faults, round_timeout=0.2 if kind == "silent" else 9.0)
    assert sums(study)[0] >= 1
    assert set(study.trials["agent"].tolist()) == set("012345")
    assert len(works_asked) == len(set(works_asked)) > 0


def test_an_agent_that_does_not_reveal_is_in_the_sum_all_the_same():
    whole, mute = run("fed-pne"), run("fed-pne", faults={1: faulty(saying("secure.revealed"))})
    assert mute.trials["value"].tolist() == whole.trials["value"].tolist()
    assert mute.rounds["refused"].sum() == sums(mute)[0] == sums(mute)[1]


def test_a_depth_whose_sum_failed_is_divided_as_a_whole_and_never_summed_again(works_asked):
    # one agent leaves before it sends numbers, and another before it reveals: their mask stays in the sum
    faults = {1: Fault("raising", rounds=[2]), 2: faulty(saying("secure.revealed"), [2])}
    made, asked = sums(run("fed-pne", faults=faults))
    assert made == asked - 1
    assert len(works_asked) == len(set(works_asked)) >= 4


def test_members_sum_all_their_observations_again_with_the_same_partners_only(members_of_sums):
    """The difference of two sums, of which one lacks an agent, would be all observations of that agent."""

    def totals(num_agents, late=0, least=3, **faults):
        members_of_sums.clear()
        app = client_app(objective, SPACE, seed=4, disclose="trials")
        grid = InProcessGrid(app, num_agents, faults={int(a[1:]): fault for a, fault in faults.items()})
        given = {**CO_KG, "refit": 1, "secure_sums": least, "seed": 4, "round_timeout": 0.2}
        study = STRATEGIES["co-kg"](num_agents=num_agents - late, **given).start(grid, num_rounds=6).study
        assert len(study.rounds) == 6
        return list(members_of_sums)

    everybody = ("0", "1", "2", "3")
    gone = totals(4, a0=Fault("silent", rounds=[3]))
    left = totals(4, a0=Fault("down", rounds=range(4, 99)))
    assert set(gone) == set(left) == {everybody}
    assert len(gone) > len(left), "it goes on when the agent is back"
    groups = totals(9, least=2, a0=Fault("down", rounds=range(4, 99)))
    assert len(set(groups)) == 2, "all, and the other group"
    assert set(totals(4, late=1, a3=Fault("down", rounds=range(0, 4)))) == {("0", "1", "2")}


@pytest.mark.parametrize(
    ("num_agents", "liars"),
    [(9, {1: LIE}), (9, {1: LOCK}), (12, {1: LIE, 4: FORGE, 7: BABBLE}), (9, {1: FORGE}), (9, {1: BABBLE})],
    ids=["lie", "lock", "several", "forge", "babble"],
)
def test_a_liar_spoils_the_sums_of_its_group_alone_and_none_after_the_numbers(
    num_agents, liars, members_of_sums
):
    # nine agents in groups of 4 and 5, which become groups of 3
    faults = {agent: faulty(change) for agent, change in liars.items()}
    study = run("fed-pne", least=2, num_agents=num_agents, faults=faults)
    made, asked = sums(study)
    assert len(members_of_sums) == made >= 3
    if len(liars) == 1:
        assert made == asked
    if liars[1] in (LIE, LOCK):
        assert not any("1" in agents for agents in members_of_sums)
        assert len(liars) > 1 or all(len(agents) >= 6 for agents in members_of_sums[1:])
    pulls = {int(study.trials.where(agent=str(a))["pulls"].sum()) for a in range(num_agents)}
    assert pulls == {120}


def test_without_a_sum_of_lengthscales_fts_takes_the_middle_one_unless_it_can_ask_again():
    three = {i: Fault("raising", rounds=[1]) for i in (1, 2, 4)}  # of six agents too few are left
    assert sums(run("fts", faults=three)) == (1, 2)
    helped = run("fts", faults=three, targets=("0", "5"))  # the others make no trials: their report is spent
    assert sums(helped) == (0, 1)


def test_sums_that_never_come_end_the_study_instead_of_asking_for_ever():
    assert sums(run("fed-pne", num_agents=3, faults={0: faulty(LIE)})) == (0, PATIENCE)
    run("fed-pne", least=7)  # six agents


def test_an_algorithm_whose_server_needs_single_reports_has_no_secure_sums():
    with pytest.raises(ConfigError, match="expected an algorithm whose server needs only sums, got ts"):
        check_summable(make_algorithm("ts", {}))


# -- what an agent refuses ---------------------------------------------------------------------------

SECURED = make_algorithm("fed-pne", {"secure_sums": 3})
GUARD = SumGuard(SECURED)


class Agent:
    """An agent's keys and its state; other agents' keys are at hand, too."""

    def __init__(self):
        self.private, self.identity = keys.new_private_key(), keys.new_identity()
        own = identity_arrays(self.private, self.identity, "study")
        self.state = AgentState(SPACE, Trials.empty(2), own)
        self.card = keys.make_card(self.identity, self.private)


@pytest.fixture
def agent():
    return Agent()


def rows(parts):
    return np.array([np.frombuffer(part, dtype=np.uint8) for part in parts])


def cards(count):
    return rows([Agent().card for _ in range(count)]).reshape(count, keys.CARD_BYTES)


def summing(number, others, depth=0):
    ones = np.ones(1, dtype=np.int64)
    arrays = {"cells": 0 * ones, "pulls": ones, "secure.members": others}
    values = {"secure.sum": number, "sum": True, "agents": 4, "depth": depth}
    return Task(Phase.TRAIN, 1, 0, 0, arrays, values)


def signing(number, there):
    arrays = {"secure.there": np.array(there, dtype=np.uint8)}
    return Task(Phase.EVALUATE, 1, 0, 0, arrays, {"secure.sum": number})


def revealing(number, signatures):
    boxes = np.zeros((len(signatures), BOX_BYTES), np.uint8)
    arrays = {"secure.boxes": boxes, "secure.signatures": rows(signatures)}
    return Task(Phase.REVEAL, 1, 0, 0, arrays, {"secure.sum": number})


def reporting(task, agent_state):
    content = step(SECURED.summarise, task, agent_state, np.random.default_rng(0))
    return Report(task.trial, task.num_trials, 0, content.arrays, content.values)


def report(task, agent_state):
    """Return the state and the report after a task, as an agent computes them."""
    accepted = GUARD.admit(task, agent_state)
    answer = GUARD.answer(task, accepted)
    if answer is None:
        answer = GUARD.release(task, accepted, reporting(task, accepted))
    return accepted, answer


def refused(agent_state, task, match):
    with pytest.raises(WireError, match=match):
        GUARD.admit(task, agent_state)


def pulled(agent_state):
    """Return the state of an agent that has pulled the first cells of depths 0 and 1."""
    ones = np.ones(2, dtype=np.int64)
    pulls = CellPulls(partition.number([0, 1], [0, 0]), ones, np.ones(2), np.zeros(2), 0 * ones)
    return agent_state.write(**pulls.arrays("cells."))


def test_an_agent_takes_part_in_a_sum_once_and_signs_once(agent):
    after = GUARD.admit(summing(3, cards(3)), agent.state)
    for number in (-1, 1, 2, 3, 2**62):
        refused(after, summing(number, cards(3), depth=1), "expected more than 3")
    signed = GUARD.admit(signing(3, [1, 1, 1]), after)
    for book, number in ((signed, 3), (after, 4), (after, 2), (agent.state, 1), (agent.state, 0)):
        refused(book, signing(number, [1, 1, 0]), r"secure\.sum|secure\.there")


def test_an_agent_reveals_once_and_only_if_enough_members_signed_what_it_signed(agent):
    others = [Agent() for _ in range(4)]
    group = [agent, *others]  # threshold of five agents: four
    assert keys.threshold(5, 3) == 4
    states, made = [], []
    for i, member in enumerate(group):
        there = [1, 0, 1, 1] if i == 3 else [1, 1, 1, 1]
        masked, _ = report(summing(1, rows([o.card for o in group if o is not member])), member.state)
        signed, sent = report(signing(1, there), masked)
        states.append(signed)
        made.append(bytes.fromhex(sent.values["secure.signature"]))
    assert sorted(map(len, made)) == [64] * 5
    good, none = made[1:], bytes(64)
    revealed, sent = report(revealing(1, good), states[0])  # one of them signed another list
    assert sent.values["secure.revealed"].count(",") == 3
    refused(revealed, revealing(1, good), "expected 1, once")
    refused(states[0], replace(revealing(1, good), values={}), "expected 1, once, got 0")
    for state, signatures in (
        (states[0], [none] * 4),
        (states[0], [good[0], none, good[2], none]),
        (states[0], [good[0]] * 4),
        (states[0], [*good[:3], none]),
        (states[3], [*made[:3], made[4]]),  # the one that was told something else
    ):
        refused(state, revealing(1, signatures), "expected 4 members that signed the same list")
    unsigned = GUARD.admit(summing(1, rows([o.card for o in others])), agent.state)
    refused(unsigned, revealing(1, good), r"secure\.sum")


def test_signatures_of_members_that_are_not_in_do_not_count(agent):
    others = [Agent() for _ in range(4)]
    asked = summing(1, rows([o.card for o in others]))
    signed = GUARD.admit(signing(1, [1, 1, 1, 0]), GUARD.admit(asked, agent.state))
    content = content_of(SECURED, asked)
    label = keys.label(b"study", 1, [agent.card, *(o.card for o in others)], content)
    statement = keys.statement(label, [agent.card, *(o.card for o in others[:3])])
    made = [keys.sign(o.identity, statement) for o in others]
    GUARD.admit(revealing(1, [*made[:3], bytes(64)]), signed)
    refused(signed, revealing(1, [*made[:2], bytes(64), made[3]]), "got 3")


def test_members_that_are_asked_about_something_else_are_in_no_common_sum(agent):
    """A server that names other cells to the others would learn this agent's means."""
    task = summing(1, cards(4))
    asked = [task, replace(task, values={**task.values, "depth": 3})]
    asked += [replace(task, arrays={**task.arrays, n: task.arrays[n] + 1}) for n in ("cells", "pulls")]
    assert len({Member.read(GUARD.admit(a, agent.state)).label() for a in asked}) == 4


def test_a_report_is_masked_once_whoever_asks_for_it_again(agent):
    """Were it masked twice, the difference of the sums over different members would be a report."""
    after, first = report(summing(1, cards(3)), pulled(agent.state))
    assert "secure.words" in first.arrays
    for number in (1, 2, 7):  # another number, other members: no numbers, and no error
        again, second = report(summing(number, cards(4)), after)
        assert not second.arrays
        assert not second.values
        refused(again, signing(number, [1, 1, 1, 1]), r"secure\.(there|sum)")  # nor is it in that sum
    deeper, third = report(summing(2, cards(3), depth=1), after)
    assert "secure.words" in third.arrays, "other work"
    assert not report(summing(3, cards(3)), deeper)[1].arrays, "the first is not forgotten"
    assert not report(summing(1, cards(3)), agent.state)[1].arrays, "nothing to add hides no others"


@pytest.mark.parametrize(
    ("name", "options", "values", "arrays"),
    [
        ("dp-fts", {"num_features": 5}, {"message": True}, {"shares": np.ones(1)}),
        ("co-kg", {}, {"fit": True}, {}),
        ("fts", {"lengthscale": "federated"}, {"message": True}, {"lengthscales": np.ones(6)}),
    ],
)
def test_the_same_observations_have_the_same_name_whatever_the_task_says(name, options, values, arrays):
    content = make_algorithm(name, {**options, "secure_sums": 2}).report_content
    state = AgentState(SPACE, Trials.empty(2), passed=7)

    def named(trial, num_trials):
        return content.sum_name(Task(Phase.TRAIN, 1, trial, num_trials, arrays, values), state)

    assert {named(trial, 0) for trial in range(8)} == {named(6, 1)} == {named(3, 2)}
    assert len({named(7, k) for k in range(4)}) == 4


def test_an_agent_goes_into_sums_of_enough_other_agents_with_signed_keys_alone(agent):
    for count in (0, 1, 12):
        refused(agent.state, summing(1, cards(count)), "2 to 11 other members")
    for other, needed in ((2, 2), (3, 2), (5, 4)):
        there = [1] * (needed - 1) + [0] * (other - needed + 1)
        masked = GUARD.admit(summing(1, cards(other)), agent.state)
        refused(masked, signing(1, there), f"at least {needed} other members")
    twice, mine, forged, exchanged = (cards(3) for _ in range(4))
    twice[2] = twice[0]
    mine[1] = np.frombuffer(agent.card, dtype=np.uint8)
    forged[1, 40] ^= 1
    exchanged[0, : keys.IDENTITY_BYTES] = exchanged[1, : keys.IDENTITY_BYTES]
    for others, match in (
        (twice, "one of every other agent"),
        (mine, "one of every other agent"),
        (forged, "keys that their agents signed"),
        (exchanged, "keys that their agents signed"),
    ):
        refused(agent.state, summing(1, others), match)


def test_without_a_sum_under_way_summands_do_not_leave(agent):
    task = summing(1, cards(3))
    clear = replace(task, values={n: v for n, v in task.values.items() if n != "secure.sum"})
    found = reporting(clear, agent.state)
    assert set(found.arrays) == {"present", "means", "inverse", "counts"}
    assert not GUARD.release(clear, agent.state, found).arrays


# -- what the server checks --------------------------------------------------------------------------


def test_reports_of_a_sum_have_all_their_parts_and_come_when_asked():
    server = SecureServer(SECURED, Federation(SPACE, tuple("0123")), np.random.default_rng(0))
    words = {"secure.words": np.zeros((4, 2), np.int64)}
    boxes = {"secure.boxes": np.zeros((3, BOX_BYTES), np.uint8), "secure.commitment": np.zeros(32, np.uint8)}
    wrong = boxes | {"secure.boxes": np.zeros((2, BOX_BYTES), np.uint8)}
    asked, plain = summing(1, cards(3)), Task(Phase.TRAIN, 1, 0, 0, {}, {})
    sign, reveal = signing(1, [1]), revealing(1, [bytes(64)])
    signed, told = {"secure.signature": ""}, {"secure.revealed": ""}
    for task, arrays, values in (
        (asked, words | boxes, {}), (asked, {}, {}), (sign, {}, signed), (reveal, {}, told)
    ):  # fmt: skip
        server.check_report(task, Report(0, 0, 0, arrays, values))
    for task, arrays, values, match in (
        (asked, words, {}, "names"), (asked, words | wrong, {}, "secure.boxes"),
        (plain, words | boxes, {}, "names"), (sign, {}, {}, "half-round"), (reveal, {}, {}, "half-round"),
        (sign, {}, told, "half-round"), (reveal, {}, signed | told, "half-round"),
        (asked, {}, signed, "half-round"),
    ):  # fmt: skip
        with pytest.raises(WireError, match=match):
            server.check_report(task, Report(0, 0, 0, arrays, values))


def test_agents_without_a_valid_card_or_with_a_copied_one_are_left_out_of_sums():
    server = SecureServer(SECURED, Federation(SPACE, tuple("01234")), np.random.default_rng(0))
    known = {a: Agent().card for a in "012"} | {"3": b"x" * 128}
    server.register_cards("study", known | {"4": known["1"]})
    tasks = server.ask(Phase.TRAIN, 1, list("01234"), np.random.default_rng(0))
    assert [a for a, t in tasks.items() if "secure.sum" in t.values] == ["0", "1", "2"]


def test_groups_hold_everybody_once_none_is_too_small_or_too_large_and_they_stay_while_nothing_changes():
    rng = np.random.default_rng(0)
    server = SecureServer(SECURED, Federation(SPACE, tuple("01")), rng)
    for size in (2, 3, 4, 12, 13, 25, 59):
        names = [str(i) for i in range(size)]
        for server.failures in range(4):
            groups = server._groups(names, rng)
            assert sorted(a for g in groups for a in g) == (sorted(names) if size >= 3 else [])
            assert all(3 <= len(group) <= 12 for group in groups)
            number = max(1, min(-(-size // 12) * 2**server.failures, size // 4))
            assert len(groups) == (number if size >= 3 else 0)
    names, server.failures = names[:30], 0
    server.groups = stays = server._groups(names, rng)
    assert server._groups(names[::-1], rng) == stays
    for present, failures in ((names[1:], 0), ([*names, "30"], 0), (names, 1)):
        server.failures, server.groups = failures, stays
        groups = server._groups(present, rng)
        assert set(groups).isdisjoint(stays)
        assert sorted(a for group in groups for a in group) == sorted(present)
