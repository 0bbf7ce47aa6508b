"""Rows enter at most one sum: many sums with collisions, silent agents, kills and resumes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from contract import SQUARE

from fbo_flower.algorithms import FedEI
from fbo_flower.algorithms.messages import SUM
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Report, Trials
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.numerics import slots
from fbo_flower.numerics.seeding import generator
from fbo_flower.secure import keys
from fbo_flower.secure.member import Member, SumGuard, identity_arrays
from fbo_flower.secure.server import SecureServer

OPENED: list[tuple[tuple[str, ...], np.ndarray]] = []  # members and table of every total


class Random(FedEI):
    """The exchanges of fed-ei with random points, and a server that keeps every total."""

    def step(self, task, agent_state, rng):
        return Trials(rng.random((1, 2))), None

    def tell(self, state, phase, replies):
        OPENED.extend((tuple(agents), sums["table"].copy()) for agents, sums in replies.groups)
        return super().tell(state, phase, replies)


@dataclass
class Node:
    """An agent whose state is stored with each reply, as its journal does."""

    name: str
    agent_state: AgentState

    def answer(self, algorithm, task, stored: bool) -> Report:
        """Return the report; `stored`: False if the agent is killed before it has stored anything."""
        guard = SumGuard(algorithm)
        accepted = algorithm.accept(task, guard.admit(task, self.agent_state))

        def evaluate(query, trial):
            values = generator(1, self.name, trial).standard_normal(len(query.points))
            return Trials(query.points, values, np.arange(trial, trial + len(values)))

        draws = partial(generator, 2, self.name, task.round, str(task.phase))
        result = run_task(algorithm, task, accepted, evaluate, draws, guard=guard)
        if stored:
            self.agent_state = result.agent_state
        return result.report


class Federated:
    """A server and agents, exchange by exchange; `fates` says what happens to a message."""

    def __init__(self, num_agents: int, least: int = 3) -> None:
        OPENED.clear()
        algorithm = Random(num_candidates=2, secure_sums=least)
        self.nodes, cards = {}, {}
        for name in map(str, range(num_agents)):
            arrays = identity_arrays(keys.new_private_key(), keys.new_identity(), "study")
            self.nodes[name] = Node(name, AgentState(SQUARE, Trials.empty(2), arrays))
            cards[name] = Member.read(self.nodes[name].agent_state).card()
        self.server = SecureServer(algorithm, Federation(SQUARE, tuple(self.nodes)), generator(0))
        self.server.register_cards("study", cards)
        self.round = 0

    def play(self, fate, phases=(Phase.TRAIN, Phase.EVALUATE, Phase.REVEAL)) -> None:
        self.round += 1
        for phase in phases:
            rng = generator(3, self.round, str(phase))
            tasks = self.server.ask(phase, self.round, list(self.nodes), rng)
            reports = {}
            for name, task in tasks.items():
                what = fate(name, phase)
                if what == "silent":
                    continue
                report = self.nodes[name].answer(self.server.algorithm, task, stored=what != "killed")
                if what == "answers":
                    self.server.check_report(task, report)
                    reports[name] = report
            self.server.tell(phase, reports)

    def rounds(self, count: int) -> None:
        """Play rounds in which everybody answers."""
        for _ in range(count):
            self.play(lost(""))

    def owners(self) -> dict[bytes, str]:
        """Return whose each row is that an agent has put into a table."""
        found = {}
        for name, node in self.nodes.items():
            for row in self.server.algorithm._own_rows(node.agent_state):
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


def test_no_row_is_opened_twice_and_those_of_failed_sums_stay_with_their_agents():
    """Agents fail before they send numbers: they are down, the reply is lost, or nothing was stored."""
    rng = np.random.default_rng(7)
    federation = Federated(7)
    for _ in range(25):
        failing = {n: str(rng.choice(["silent", "lost", "killed"])) for n in "0123456" if rng.random() < 0.15}
        federation.play(
            lambda n, phase, f=failing: f.get(n, "answers") if phase is Phase.TRAIN else "answers"
        )
    rows = check_opened_once(federation)
    made = sum(node.agent_state.history.num_succeeded for node in federation.nodes.values())
    assert 0.4 * made < len(rows) < 0.9 * made


def test_rows_of_a_sum_that_failed_never_come():
    federation = Federated(4)
    federation.rounds(5)
    before = set(federation.owners())
    federation.play(lost("0123"))
    stay = set(federation.owners()) - before
    assert len(stay) == 4
    federation.rounds(3)
    rows = check_opened_once(federation)
    assert not stay & set(rows)
    assert set(rows) - before, "later rows come"


@pytest.mark.parametrize("phase", [Phase.EVALUATE, Phase.REVEAL])
def test_failures_between_the_exchanges_of_a_sum_open_no_row_twice(phase):
    """Where enough members sign and reveal, the rows of those who fell silent meanwhile are in the total."""
    rng = np.random.default_rng(8)
    federation = Federated(9)
    for _ in range(20):
        federation.play(lost({n for n in federation.nodes if rng.random() < 0.08}, phase))
    assert len(check_opened_once(federation)) > 9 * 8
    federation = Federated(6)
    federation.rounds(4)
    federation.play(lost("1", phase, "silent"))
    owners = federation.owners()
    assert "1" in {owners[row] for row in opened_rows()[-5:]}


def test_a_server_that_says_that_a_sum_failed_gets_no_row_of_it_into_another():
    federation = Federated(6)
    federation.rounds(4)
    server = federation.server
    federation.play(lost(""), phases=(Phase.TRAIN, Phase.EVALUATE))  # all have signed
    server._close([])
    signed = set(federation.owners())
    tasks = server.ask(Phase.TRAIN, 9, ["0", "1", "2", "3"], generator(9))
    assert len(tasks) == 4
    for name, task in tasks.items():
        node = federation.nodes[name]
        node.answer(server.algorithm, task, stored=True)
        (row,) = node.agent_state.arrays["rows.new"]
        assert row.tobytes() not in signed
        again = node.answer(server.algorithm, replace(task, values={**task.values, SUM: 99}), stored=True)
        assert not again.arrays, "the same work is masked once"
