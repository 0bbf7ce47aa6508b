"""Rows enter at most one sum: many sums with collisions, silent agents, kills and resumes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from fbo_flower.algorithms import FedEI
from fbo_flower.algorithms.records import AgentState, Federation, History, Outcome, Phase, Report
from fbo_flower.algorithms.requests import alone
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.algorithms.secure_aggregation import SecureAggregation
from fbo_flower.algorithms.secure_member import SUM, Member, Written, identity_arrays
from fbo_flower.errors import WireError
from fbo_flower.numerics import slots
from fbo_flower.numerics.seeding import generator
from fbo_flower.secure import keys
from fbo_flower.space import Float, SearchSpace

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
OPENED: list[tuple[tuple[str, ...], np.ndarray]] = []  # members and table of every total


class Random(FedEI):
    """The exchanges of fed-ei with random points, and a server that keeps every total."""

    def is_random(self, task, agent_state):
        return True

    def aggregate_groups(self, state, groups):
        OPENED.extend((tuple(agents), sums["table"].copy()) for agents, sums in groups)
        return super().aggregate_groups(state, groups)


@dataclass
class Node:
    """An agent whose state is stored with each reply, as its journal does."""

    name: str
    agent_state: AgentState

    def answer(self, algorithm, task, stored: bool) -> Report:
        """Return the report; `stored`: False if the agent is killed before it has stored anything."""
        accepted = algorithm.accept(task, self.agent_state)

        def evaluate(query, trial):
            values = generator(1, self.name, trial).standard_normal(len(query.points))
            return Outcome(query.points, values, np.arange(trial, trial + len(values)))

        draws = partial(generator, 2, self.name, task.round, str(task.phase))
        result = alone(run_task(algorithm, task, accepted, evaluate, draws))
        if stored:
            self.agent_state = result.agent_state
        return result.report


class Federated:
    """A server and agents, exchange by exchange; `fates` says what happens to a message."""

    def __init__(self, num_agents: int, least: int = 3) -> None:
        OPENED.clear()
        self.algorithm = SecureAggregation(wrapped=Random(num_candidates=2), least=least)
        self.nodes, cards = {}, {}
        for name in map(str, range(num_agents)):
            arrays = identity_arrays(keys.new_private_key(), keys.new_identity(), "study")
            self.nodes[name] = Node(name, AgentState(SPACE, History.empty(2), arrays))
            cards[name] = Member.read(self.nodes[name].agent_state).card()
        self.state = self.algorithm.init(Federation(SPACE, tuple(self.nodes)), generator(0))
        self.state = self.algorithm.register_cards(self.state, "study", cards)
        self.round = 0

    def play(self, fate, phases=(Phase.TRAIN, Phase.EVALUATE, Phase.REVEAL)) -> None:
        self.round += 1
        for phase in phases:
            rng = generator(3, self.round, str(phase))
            self.state, tasks = self.algorithm.ask(self.state, phase, self.round, list(self.nodes), rng)
            reports = {}
            for name, task in tasks.items():
                what = fate(name, phase)
                if what == "silent":
                    continue
                report = self.nodes[name].answer(self.algorithm, task, stored=what != "killed")
                if what == "answers":
                    self.algorithm.check_report(task, report)
                    reports[name] = report
            self.state = self.algorithm.tell(self.state, phase, reports)

    def rounds(self, count: int) -> None:
        """Play rounds in which everybody answers."""
        for _ in range(count):
            self.play(lambda *_: "answers")

    def owners(self) -> dict[bytes, str]:
        """Return whose each row is that an agent has written or will write."""
        found = {}
        for name, node in self.nodes.items():
            for row in Written.of(node.agent_state).own_rows:
                assert row.tobytes() not in found
                found[row.tobytes()] = name
        return found


def num_withheld(node: Node) -> int:
    """Return how many rows are never sent: of trials that a pool advised, in a round that failed."""
    written = Written.of(node.agent_state)
    return int(np.isnan(written.rows[: written.spent - 1, -1]).sum())


def opened_rows() -> list[bytes]:
    """Return the rows of all totals."""
    low, high = np.array([0.0, 0.0, -3.5]), np.array([1.0, 1.0, 3.5])
    return [row.tobytes() for _, table in OPENED for row in slots.read(table, low, high)[0]]


def num_collided() -> int:
    """Return how many rows the slots of all totals hold that several agents wrote into."""
    marks = np.rint(np.concatenate([table[:, -1] for _, table in OPENED if len(table)]) / slots.MARK)
    return int(marks[marks > 1].sum())


def test_no_row_is_opened_twice_and_what_is_missing_collided_or_was_withheld():
    """Agents fail before they send numbers: they are down, the reply is lost, or nothing was stored.

    An agent that comes back makes a trial before it is in a sum again, so a failure withholds a row or two.
    """
    rng = np.random.default_rng(7)
    federation, num_failures = Federated(7), 0
    for _ in range(60):
        failing = {
            n: str(rng.choice(["silent", "lost", "killed"])) for n in federation.nodes if rng.random() < 0.15
        }
        num_failures += len(failing)
        federation.play(
            lambda n, phase, f=failing: f.get(n, "answers") if phase is Phase.TRAIN else "answers"
        )
    federation.rounds(2)  # an agent that was silent takes part again
    rows, owners = opened_rows(), federation.owners()
    assert max(Counter(rows).values()) == 1
    assert set(rows) <= set(owners)
    spent = {n: Written.of(node.agent_state) for n, node in federation.nodes.items()}
    withheld = sum(map(num_withheld, federation.nodes.values()))
    assert 0 < withheld <= 2 * num_failures
    assert len(rows) + num_collided() + withheld == sum(w.spent - 1 for w in spent.values())
    for name, node in federation.nodes.items():  # all that an agent has observed is accounted for
        assert spent[name].spent - 1 == node.agent_state.history.num_succeeded


def lose(name: str):
    """Return a fate: an agent's numbers are lost."""
    return lambda n, phase: "lost" if n == name and phase is Phase.TRAIN else "answers"


def test_the_initial_rows_of_an_agent_whose_report_was_lost_come_with_the_next_sum():
    federation = Federated(4)
    federation.rounds(1)
    federation.play(lose("2"))
    waiting = Written.of(federation.nodes["2"].agent_state).new_rows
    assert len(waiting) == 2
    federation.rounds(2)  # at first it is not asked for a sum
    again = Written.of(federation.nodes["2"].agent_state)
    assert again.spent >= 3
    np.testing.assert_array_equal(again.rows[:2, :2], waiting[:, :2])
    assert not np.isnan(again.rows[:2]).any()


@pytest.mark.parametrize("all_fail", [False, True])
def test_a_row_that_a_pool_advised_comes_with_the_next_sum_only_if_its_task_tells_of_the_same_pool(all_fail):
    federation = Federated(4)
    federation.rounds(4)
    if all_fail:  # nobody's rows arrive: the pool stays as it is
        federation.play(lambda n, phase: "lost" if phase is Phase.TRAIN else "answers")
    else:
        federation.play(lose("2"))
    node = federation.nodes["2"]
    (row,) = Written.of(node.agent_state).new_rows
    before = len(Written.of(node.agent_state).own_rows)
    federation.rounds(2)
    written = Written.of(node.agent_state)
    comes = any(np.array_equal(own[:2], row[:2]) for own in written.own_rows)
    assert comes == all_fail
    assert len(written.own_rows) > before - (not all_fail), "later rows come"


@pytest.mark.parametrize("phase", [Phase.EVALUATE, Phase.REVEAL])
def test_failures_between_the_exchanges_of_a_sum_open_no_row_twice(phase):
    """A sum without all signatures stays closed; those who signed never send its rows again."""
    rng = np.random.default_rng(8)
    federation = Federated(9)
    for _ in range(25):
        failing = {n for n in federation.nodes if rng.random() < 0.08}
        federation.play(lambda n, p, f=failing: "lost" if p is phase and n in f else "answers")
    rows, owners = opened_rows(), federation.owners()
    assert max(Counter(rows).values()) == 1
    assert set(rows) <= set(owners)
    assert len(rows) > 9 * 8


def test_who_does_not_sign_is_left_out_for_longer_each_time():
    federation = Federated(6)
    masked = []
    for _ in range(16):
        federation.play(lambda n, p: "silent" if n == "1" and p is Phase.EVALUATE else "answers")
        masked.append(any("1" in group for group in federation.state.groups))
    assert masked[:2] == [True, False]
    assert sum(masked) <= 4
    assert len([table for _, table in OPENED if len(table)]) >= 10, "the others go on"


def test_a_server_that_pretends_a_failure_sees_no_row_among_other_members():
    """It leaves signatures out, asks again, or changes the group; members mask, sign and reveal once."""
    federation = Federated(6)
    federation.rounds(3)
    algorithm, state = federation.algorithm, federation.state
    federation.play(lambda *_: "answers", phases=(Phase.TRAIN, Phase.EVALUATE))  # all have signed
    signed = {n: Written.of(node.agent_state) for n, node in federation.nodes.items()}
    assert all(w.spent == w.offered for w in signed.values())
    later = algorithm._close(federation.state, [])  # the server says that the sum failed
    later, tasks = algorithm.ask(later, Phase.TRAIN, 9, ["0", "1", "2", "3"], generator(9))
    for name, task in tasks.items():
        node = federation.nodes[name]
        old = {row.tobytes() for row in signed[name].rows}
        node.answer(algorithm, task, stored=True)
        new = Written.of(node.agent_state).new_rows
        assert len(new) == 1
        assert not old & {row.tobytes() for row in new}
    assert state is not later


def test_a_member_does_not_reveal_unless_all_have_signed():
    federation = Federated(6)
    federation.rounds(3)
    federation.play(lambda *_: "answers", phases=(Phase.TRAIN, Phase.EVALUATE))
    state, tasks = federation.algorithm.ask(
        federation.state, Phase.REVEAL, 9, list(federation.nodes), generator(1)
    )
    assert len(tasks) == 6
    for name, task in tasks.items():
        forged = dict(task.arrays)
        forged["secure.signatures"] = task.arrays["secure.signatures"].copy()
        forged["secure.signatures"][0] = 0
        with pytest.raises(WireError, match=r"secure.signatures: expected 6 members .* got 5"):
            federation.algorithm.accept(
                type(task)(task.phase, 9, 0, 0, forged, {SUM: task.values[SUM]}),
                federation.nodes[name].agent_state,
            )
    assert state is not None
