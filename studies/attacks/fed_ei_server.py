"""A server of `fed-ei` that tells each agent what it likes, in well-formed messages, and reads all totals.

The agents are those of the package, with their checks, their memory and their keys; only the server lies. It
wants to know whose a row is, in three ways:

- Nested sums. If a row stands in two totals, its owner is in both groups.
- Marks. An agent that was told something else than the others makes rows that look different.
- Company. The server chooses whom it asks for what, so that the others' parts do not hide the victim's.

Where the rule that prevents an attack can be switched off, a control does that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from flwr.app import Context, RecordDict

from fbo_flower import wire
from fbo_flower.algorithms import FedEI, secure_member
from fbo_flower.algorithms.ei.pool import Pool
from fbo_flower.algorithms.open_sum import OpenSum
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Phase, Report, Task
from fbo_flower.algorithms.requests import Draws, Session
from fbo_flower.algorithms.secure_aggregation import SecureAggregation
from fbo_flower.algorithms.secure_member import SUM, Written
from fbo_flower.clients import ObjectiveContext, TuningAgent
from fbo_flower.errors import FBOError
from fbo_flower.numerics import slots
from fbo_flower.numerics.surrogates import trend
from fbo_flower.secure import keys
from fbo_flower.simulation.problems import Config, Problem
from studies.attacks.records import AttackResult, rms
from studies.papers.ei.problems import PROBLEMS

LEAST, NUM_AGENTS, SIZE = 3, 8, 256  # smallest sum, agents, slots
VICTIM = "0"
SAME = 1e-9  # distance of two points that are one
NEAR = 0.02  # of a marked point
NOBODYS = np.zeros(trend.NUM_SUMS)  # a level from no agent: each has units of its own
WIDE = 1e6 * np.array([1.0, 0.0, 0.0, 0.0, 1.0, 40.0, 1600.0, 4.9])  # a level with which values are nearly 0
SHARING = Pool(level=NOBODYS, slots=SIZE)
HONEST = FedEI(secure_sums=LEAST)
SCHEMES = (
    "leaves out one agent in turn", "abandons every second sum after the masks",
    "abandons every second sum after the signatures", "asks for a trial between masks and signatures",
)  # fmt: skip
ABANDONED = {SCHEMES[1]: Phase.TRAIN, SCHEMES[2]: Phase.EVALUATE}  # the last exchange of such a sum
MARKS = ("level", "rows", "table size", "rows in a sum that is abandoned", "rows before the sum")


@dataclass(frozen=True, kw_only=True)
class Again(FedEI):
    """Agents without the rule that a signed row is never sent again: a control."""

    name: ClassVar[str] = "fed-ei-again"

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        forgetful = replace(Written.of(agent_state), spent=0).write(agent_state)
        return (yield from super().session(task, forgetful, draws))


@dataclass(frozen=True, kw_only=True)
class Credulous(FedEI):
    """Agents that do not compare what the members of a sum were told: a control."""

    name: ClassVar[str] = "fed-ei-credulous"

    def sum_content(self, task: Task) -> Mapping[str, AnyArray]:
        return {}


@dataclass(frozen=True)
class Total:
    """A sum that was revealed: its members, and the sums by name."""

    agents: tuple[str, ...]
    sums: Mapping[str, Array]

    @property
    def rows(self) -> Array:
        """The rows `(m, D + 1)` in it."""
        high = np.ones(self.sums["table"].shape[1])
        high[-1] = trend.LARGEST
        low = np.append(np.zeros(len(high) - 1), -trend.LARGEST)
        return slots.read(self.sums["table"], low, high)[0]


@dataclass
class HostileServer:
    """A server and its agents.

    Parameters
    ----------
    problem : has the agents' objectives
    seed : of the agents
    honest : the algorithm that agents run
    others : agent -> another algorithm that it runs
    """

    problem: Problem
    seed: int
    honest: FedEI = HONEST
    others: Mapping[str, FedEI] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [str(partition) for partition in range(self.problem.num_agents)]
        self.points: dict[str, list[Array]] = {agent: [] for agent in names}  # the truth
        self.values: dict[str, list[float]] = {agent: [] for agent in names}
        self._agents: dict[str, TuningAgent] = {}
        self._num_sums = 0
        known: Any = [type(a) for a in (self.honest, *self.others.values()) if type(a) is not FedEI]
        for i, agent in enumerate(names):
            context = Context(1, i, {"agent": agent, "partition-id": i}, RecordDict(), {})
            self._agents[agent] = TuningAgent(
                self._objective, self.problem.space, context, seed=self.seed, algorithms=known
            )
        keys = {agent: made.get_properties({"key": True})["key"] for agent, made in self._agents.items()}
        self._cards = {agent: bytes.fromhex(key) for agent, key in keys.items()}
        for agent in names:
            self.send(agent, self.task(agent, Pool(), 2))

    def _objective(self, config: Config, context: ObjectiveContext) -> float:
        self.points[context.agent].append(self.problem.space.encode(config))
        self.values[context.agent].append(self.problem(config, context))
        return self.values[context.agent][-1]

    def level(self) -> Array:
        """Return the true sums of moments."""
        parts = [trend.level_sums(np.array(values[:2])) for values in self.values.values()]
        return np.asarray(np.sum(parts, axis=0), dtype=np.float64)

    def task(self, agent: str, content: Pool, num_trials: int = 1) -> Task:
        """Return an agent's next task."""
        return content.task(Phase.TRAIN, 1, len(self.points[agent]), num_trials)

    def tasks(self, content: Pool, but: str = "") -> dict[str, Task]:
        """Return the next tasks of all agents but one."""
        return {agent: self.task(agent, content) for agent in self.points if agent != but}

    def send(self, agent: str, task: Task) -> Report | None:
        """Return an agent's report; None if it refuses the task."""
        algorithm = self.others.get(agent, self.honest)
        options = canonical_json(algorithm.options())
        envelope = wire.Envelope("study", agent, self.problem.space.digest, algorithm.name, options)
        try:
            reply = self._agents[agent].answer(wire.encode_task(task, envelope))
        except FBOError:
            return None
        values = json.loads(str(reply.config["values"]))
        return Report(task.trial, task.num_trials, 0, dict(reply.arrays), values)

    def add_up(
        self, tasks: Mapping[str, Task], last: Phase = Phase.REVEAL, between: Callable[[], object] = list
    ) -> Total | None:
        """Return the total over the agents of tasks; None if they reveal nothing.

        Parameters
        ----------
        last : the last exchange that the server makes
        between : what the server does before it asks for signatures
        """
        self._num_sums += 1
        group, task = tuple(tasks), next(iter(tasks.values()))
        cards = {agent: self._cards[agent] for agent in group}
        secure = SecureAggregation(wrapped=self.honest, least=LEAST)
        content = secure_member.digest_of(secure.sum_content(task))
        layout = secure.inner.summands(task, self.problem.space)
        books = OpenSum(self._num_sums, "study", LEAST, (group,), cards, layout, content)
        sent = {}
        for agent, task in tasks.items():
            others = [cards[other] for other in group if other != agent]
            arrays = {**task.arrays, "secure.members": secure_member.to_rows(others, keys.CARD_BYTES)}
            report = self.send(agent, replace(task, arrays=arrays, values={**task.values, SUM: books.number}))
            masked = None if report is None else books.masked(report)
            if masked is not None:
                sent[agent] = masked
        books = replace(books, sent=sent)
        between()
        if last is Phase.TRAIN or len(sent) < LEAST:
            return None
        there = {a: np.array([other in sent for other in group if other != a], dtype=np.uint8) for a in sent}
        signing = self._exchange(Phase.EVALUATE, {agent: {"secure.there": there[agent]} for agent in sent})
        if last is Phase.EVALUATE:
            return None
        books = replace(books, signatures=books.valid_signatures(signing))
        revealed = self._exchange(Phase.REVEAL, {agent: books.shares(group, agent) for agent in sent})
        total = books.sum_of(group, revealed)
        return None if total is None else Total(tuple(sent), books.named(total))

    def _exchange(self, phase: Phase, arrays: Mapping[str, Mapping[str, AnyArray]]) -> dict[str, Report]:
        """Return the reports of those agents that do not refuse."""
        tasks = {agent: Task(phase, 1, 0, 0, arrays[agent], {SUM: self._num_sums}) for agent in arrays}
        reports = {agent: self.send(agent, task) for agent, task in tasks.items()}
        return {agent: report for agent, report in reports.items() if report is not None}

    def has_made(self, agent: str, row: Array) -> bool:
        """Return whether an agent has evaluated a row's point."""
        return any(np.abs(point - row[:-1]).max() < SAME for point in self.points[agent])


def attack(seed: int) -> Iterator[AttackResult]:
    """Run all attacks of a hostile server on eight agents."""
    problem = PROBLEMS["Styblinski-5"](NUM_AGENTS, seed)
    for scheme in SCHEMES:
        yield from nested(problem, seed, scheme)
    yield from nested(problem, seed, SCHEMES[0], Again())
    for mark in MARKS:
        yield marked(problem, seed, mark)
    yield marked(problem, seed, "level", Credulous())
    yield marked(problem, seed, "rows", Credulous())
    yield tables(problem, seed)
    yield from alone(problem, seed)
    yield most_asked(problem, seed)
    yield late(problem, seed)


# -- nested sums ---------------------------------------------------------------------------------------


def nested(
    problem: Problem, seed: int, scheme: str, honest: FedEI = HONEST, num_sums: int = NUM_AGENTS
) -> Iterator[AttackResult]:
    """Look for rows in two totals, and guess whose a row is from the members of the totals that hold it."""
    server = HostileServer(problem, seed, honest)
    found: dict[tuple[float, ...], list[set[str]]] = {}
    for number in range(num_sums):
        tasks = server.tasks(SHARING, but=str(number % problem.num_agents))
        stops = number % 2 == 0 and scheme in ABANDONED
        last = ABANDONED[scheme] if stops else Phase.REVEAL

        def between(asked: Mapping[str, Task] = tasks) -> None:
            for agent in asked if scheme == SCHEMES[-1] else ():
                server.send(agent, server.task(agent, Pool()))

        total = server.add_up(tasks, last, between)
        if total is not None:
            for row in total.rows:
                found.setdefault(tuple(np.round(row[:-1], 9)), []).append(set(total.agents))
    twice = sum(len(groups) > 1 for groups in found.values())
    right = [1.0 / len(set.intersection(*groups)) for groups in found.values()]
    what = f"fed-ei, a server that {scheme}{_control(honest)}:"
    yield AttackResult(f"{what} rows in two totals", twice, 0.0, "rows", len(found), "an honest server")
    yield AttackResult(
        f"{what} owner of a row, one of those in all of its totals", float(np.mean(right)),
        1.0 / (problem.num_agents - 1), "share of right owners", len(found), "any member of a sum",
    )  # fmt: skip


# -- marks ---------------------------------------------------------------------------------------------


def marked(problem: Problem, seed: int, mark: str, honest: FedEI = HONEST) -> AttackResult:
    """Tell one agent something else than the others, and look for its rows in the next totals."""
    server, rng = HostileServer(problem, seed, honest), np.random.default_rng(seed)
    server.add_up(server.tasks(SHARING))
    place = rng.random(problem.space.dimension)
    common = _pool(server, rng.random(problem.space.dimension), rng)
    told = _pool(server, place, rng)
    if mark == "level":
        told = replace(common, level=WIDE)
    elif mark == "table size":
        told = replace(common, slots=2 * SIZE)
    tasks = server.tasks(common)
    if mark == MARKS[-1]:
        server.send(VICTIM, server.task(VICTIM, replace(told, slots=0)))
        tasks = server.tasks(common)
    else:
        tasks[VICTIM] = server.task(VICTIM, told)
    totals = [server.add_up(tasks, Phase.TRAIN if mark == MARKS[-2] else Phase.REVEAL)]
    totals += [server.add_up(server.tasks(common)) for _ in range(2)]
    rows = [row for total in totals if total is not None for row in total.rows]
    if mark == "level":
        shown = [row for row in rows if abs(row[-1]) < 1e-4]
    elif mark == "table size":
        first = totals[0]
        shown = [] if first is None or VICTIM not in first.agents else list(first.rows)
    else:
        shown = [row for row in rows if np.abs(row[:-1] - place).max() < NEAR]
    found = sum(server.has_made(VICTIM, row) for row in shown)
    return AttackResult(
        f"fed-ei, an agent that is told other {mark}{_control(honest)}: its rows that can be recognised",
        found, 0.0, "rows", len(rows), "an honest server",
    )  # fmt: skip


def _pool(server: HostileServer, place: Array, rng: np.random.Generator) -> Pool:
    """Return a task with high rows around a place, which an agent therefore tries next."""
    points = np.clip(place + 0.1 * NEAR * rng.standard_normal((8, len(place))), 0.0, 1.0)
    rows = np.column_stack([points, np.full(len(points), 3.0)])
    scales, evidence = np.full(len(place), 0.7), np.zeros(len(trend.SHARES))
    return Pool(rows=rows, lengthscales=scales, evidence=evidence, level=server.level(), slots=SIZE)


def tables(problem: Problem, seed: int) -> AttackResult:
    """Ask for tables that an honest server never asks for: in a small one, rows collide and are few."""
    server = HostileServer(problem, seed)
    sizes = (1, 32, 96, 2**21)
    reports = [server.send(VICTIM, server.task(VICTIM, replace(SHARING, slots=size))) for size in sizes]
    return AttackResult(
        f"fed-ei, tables of {', '.join(map(str, sizes))} slots: tasks that an agent accepts",
        sum(report is not None for report in reports), 0.0, "tasks", len(sizes), "an honest server",
    )  # fmt: skip


# -- company -------------------------------------------------------------------------------------------


def alone(problem: Problem, seed: int) -> Iterator[AttackResult]:
    """Leave one agent out of the first sum, so that it is the only one with moments in later ones."""
    server = HostileServer(problem, seed)
    first = server.add_up(server.tasks(Pool(), but=VICTIM))
    assert first is not None
    values = np.sort(server.values[VICTIM][:2])
    later = [
        server.add_up(server.tasks(content))
        for content in (replace(SHARING, level=first.sums["level"]), Pool())
    ]
    level = np.sum([NOBODYS, *(total.sums["level"] for total in later if total is not None)], axis=0)
    error = guess = float(np.std([v for a, made in server.values.items() if a != VICTIM for v in made]))
    if level[0] == 1.0:
        half = sqrt(level[3])  # of two values, the variance divided by two
        error = rms(level[1] + np.array([-half, half]) - values)
    yield AttackResult(
        "fed-ei, an agent that was left out of the first sum: its first two values, from the level", error,
        guess, "units of the objective", len(values), "the mean of the others, about",
    )  # fmt: skip


def most_asked(problem: Problem, seed: int) -> AttackResult:
    """Ask one agent for eight trials more, then for a sum, and name it as the owner of each row."""
    server = HostileServer(problem, seed)
    server.add_up(server.tasks(SHARING))
    for _ in range(8):
        server.send(VICTIM, server.task(VICTIM, Pool()))
    total = server.add_up(server.tasks(SHARING))
    rows = [] if total is None else list(total.rows)
    right = [server.has_made(VICTIM, row) for row in rows]
    return AttackResult(
        "fed-ei, an agent that makes eight trials more between two sums: it, as the owner of each row",
        float(np.mean(right)) if right else 0.0, 1.0 / problem.num_agents, "share of right owners", len(rows),
        "any member of the sum",
    )  # fmt: skip


def late(problem: Problem, seed: int) -> AttackResult:
    """Let one agent join late, and look for rows at points of the pool, which its first trials repeat."""
    server = HostileServer(problem, seed)
    sharing = replace(SHARING, level=server.level())
    total = server.add_up(server.tasks(sharing, but=VICTIM))
    pool = np.empty((0, problem.space.dimension + 1)) if total is None else total.rows
    scales, evidence = np.full(problem.space.dimension, 0.7), np.zeros(len(trend.SHARES))
    told = replace(sharing, rows=pool, lengthscales=scales, evidence=evidence)
    for _ in range(2):
        total = server.add_up(server.tasks(told, but=VICTIM))
        pool = pool if total is None else np.concatenate([pool, total.rows])
        told = replace(told, rows=pool)
    later = [server.add_up(server.tasks(told)) for _ in range(2)]
    rows = [row for total in later if total is not None for row in total.rows]
    shown = [row for row in rows if np.abs(pool[:, :-1] - row[:-1]).max(axis=1).min() < SAME]
    return AttackResult(
        "fed-ei, an agent that joins late: its rows that can be recognised, at points of the pool",
        sum(server.has_made(VICTIM, row) for row in shown), 0.0, "rows", len(rows), "nothing of the kind",
    )  # fmt: skip


def _control(honest: FedEI) -> str:
    return "" if type(honest) is FedEI else f" (control: {type(honest).__name__})"
