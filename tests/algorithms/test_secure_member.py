"""Rows enter at most one sum: many sums with collisions, silent agents, kills and resumes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

from fbo_flower.algorithms import FedEI
from fbo_flower.algorithms.records import AgentState, Federation, History, Outcome, Phase, Report
from fbo_flower.algorithms.requests import alone
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.algorithms.secure_aggregation import SecureAggregation
from fbo_flower.algorithms.secure_member import Member, Written, identity_arrays
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
            self.play(lost(""))

    def owners(self) -> dict[bytes, str]:
        """Return whose each row is that an agent has written or will write."""
        found = {}
        for name, node in self.nodes.items():
            for row in Written.of(node.agent_state).own_rows:
                assert row.tobytes() not in found
                found[row.tobytes()] = name
        return found


def opened_rows() -> list[bytes]:
    """Return the rows of all totals."""
    low, high = np.array([0.0, 0.0, -3.5]), np.array([1.0, 1.0, 3.5])
    return [row.tobytes() for _, table in OPENED for row in slots.read(table, low, high)[0]]


def lost(names, in_phase=Phase.TRAIN, how="lost"):
    """Return a fate: what some agents send in a half-round does not arrive."""
    return lambda name, phase: how if name in names and phase is in_phase else "answers"


def check_opened_once(federation: Federated) -> list[bytes]:
    """Return the rows of all totals: each is an agent's, and none is there twice."""
    rows = opened_rows()
    assert max(Counter(rows).values()) == 1
    assert set(rows) <= set(federation.owners())
    return rows


def test_no_row_is_opened_twice_and_what_is_missing_collided_or_was_withheld():
    """Agents fail before they send numbers: they are down, the reply is lost, or nothing was stored.

    An agent that comes back makes a trial before it is in a sum again, so a failure withholds a row or two.
    """
    rng = np.random.default_rng(7)
    federation, num_failures = Federated(7), 0
    for _ in range(40):
        failing = {n: str(rng.choice(["silent", "lost", "killed"])) for n in "0123456" if rng.random() < 0.15}
        num_failures += len(failing)
        federation.play(
            lambda n, phase, f=failing: f.get(n, "answers") if phase is Phase.TRAIN else "answers"
        )
    federation.rounds(2)  # an agent that was silent takes part again
    rows = check_opened_once(federation)
    written = {n: Written.of(node.agent_state) for n, node in federation.nodes.items()}
    # never sent: rows of trials that a pool advised, in a round that failed
    withheld = sum(int(np.isnan(w.rows[: w.spent - 1, -1]).sum()) for w in written.values())
    assert 0 < withheld <= 2 * num_failures
    marks = np.rint(np.concatenate([table[:, -1] for _, table in OPENED if len(table)]) / slots.MARK)
    collided = int(marks[marks > 1].sum())  # slots that several agents wrote into
    assert len(rows) + collided + withheld == sum(w.spent - 1 for w in written.values())
    for name, node in federation.nodes.items():  # all that an agent has observed is accounted for
        assert written[name].spent - 1 == node.agent_state.history.num_succeeded


def test_the_initial_rows_of_an_agent_whose_report_was_lost_come_with_the_next_sum():
    federation = Federated(4)
    federation.rounds(1)
    federation.play(lost("2"))
    waiting = Written.of(federation.nodes["2"].agent_state).new_rows
    assert len(waiting) == 2
    federation.rounds(2)  # at first it is not asked for a sum
    again = Written.of(federation.nodes["2"].agent_state)
    assert again.spent >= 3
    np.testing.assert_array_equal(again.rows[:2, :2], waiting[:, :2])
    assert not np.isnan(again.rows[:2]).any()


@pytest.mark.parametrize("failing", ["0123", "2"])
def test_a_row_that_a_pool_advised_comes_with_the_next_sum_only_if_its_task_tells_of_the_same_pool(failing):
    federation = Federated(4)
    federation.rounds(4)
    federation.play(lost(failing))  # if nobody's rows arrive, the pool stays as it is
    node = federation.nodes["2"]
    (row,) = Written.of(node.agent_state).new_rows
    before = len(Written.of(node.agent_state).own_rows)
    federation.rounds(2)
    own = Written.of(node.agent_state).own_rows
    comes = any(np.array_equal(one[:2], row[:2]) for one in own)
    assert comes == (failing == "0123")
    assert len(own) > before - (not comes), "later rows come"


@pytest.mark.parametrize("phase", [Phase.EVALUATE, Phase.REVEAL])
def test_failures_between_the_exchanges_of_a_sum_open_no_row_twice(phase):
    """A sum without all signatures stays closed; those who signed never send its rows again."""
    rng = np.random.default_rng(8)
    federation = Federated(9)
    for _ in range(20):
        federation.play(lost({n for n in federation.nodes if rng.random() < 0.08}, phase))
    assert len(check_opened_once(federation)) > 9 * 6


def test_who_does_not_sign_is_left_out_for_longer_each_time():
    federation = Federated(6)
    masked = []
    for _ in range(16):
        federation.play(lost("1", Phase.EVALUATE, "silent"))
        masked.append(any("1" in group for group in federation.state.groups))
    assert masked[:2] == [True, False]
    assert sum(masked) <= 4
    assert len([table for _, table in OPENED if len(table)]) >= 10, "the others go on"


def test_a_server_that_pretends_a_failure_or_leaves_signatures_out_sees_no_row_among_other_members():
    """Members mask, sign and reveal once, and do not reveal unless all have signed."""
    federation = Federated(6)
    federation.rounds(3)
    algorithm = federation.algorithm
    federation.play(lost(""), phases=(Phase.TRAIN, Phase.EVALUATE))  # all have signed
    signed = {n: Written.of(node.agent_state) for n, node in federation.nodes.items()}
    assert all(w.spent == w.offered for w in signed.values())
    _, tasks = algorithm.ask(federation.state, Phase.REVEAL, 9, list(federation.nodes), generator(1))
    assert len(tasks) == 6
    for name, task in tasks.items():
        signatures = task.arrays["secure.signatures"].copy()
        signatures[0] = 0
        forged = replace(task, arrays={**task.arrays, "secure.signatures": signatures})
        with pytest.raises(WireError, match=r"secure.signatures: expected 6 members .* got 5"):
            algorithm.accept(forged, federation.nodes[name].agent_state)
    later = algorithm._close(federation.state, [])  # the server says that the sum failed
    _, tasks = algorithm.ask(later, Phase.TRAIN, 9, ["0", "1", "2", "3"], generator(9))
    for name, task in tasks.items():
        node = federation.nodes[name]
        node.answer(algorithm, task, stored=True)
        (row,) = Written.of(node.agent_state).new_rows
        assert row.tobytes() not in {old.tobytes() for old in signed[name].rows}
