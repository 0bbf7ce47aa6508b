"""A server of `fed-ei` that tells each agent what it likes, in well-formed messages, and reads all totals.

The agents are those of the package, with their checks, their memory and their keys; only the server lies. It
wants to know whose a row is:

- Nested sums. If a row stands in two totals, its owner is in both groups.
- Marks. An agent that was told something else than the others makes rows that look different.
- Repeats. Trials that repeat rows show who has not seen a row yet, if their rows enter a sum (`asked_alone`,
  `same_lie`, `late`).
- Reactions. Expected improvement follows a made-up pool, less where an agent knows better (`invented`).

An honest server attacks as well: it pairs rows by the moments of the first values (`pairs`).

Where the rule that prevents an attack can be switched off, a control does that.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from flwr.app import Context, RecordDict

from fbo_flower import wire
from fbo_flower.algorithms import FedEI
from fbo_flower.algorithms.ei.pool import Part, Pool, bounds_of_rows
from fbo_flower.algorithms.messages import SUM, Content, summands_of
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Phase, Report, Task
from fbo_flower.algorithms.requests import Draws, Evaluation
from fbo_flower.clients import ObjectiveContext, TuningAgent
from fbo_flower.errors import FBOError
from fbo_flower.numerics import slots
from fbo_flower.numerics.surrogates import fitting, gp, trend
from fbo_flower.secure import keys
from fbo_flower.secure import member as secure_member
from fbo_flower.secure.server import OpenSum
from fbo_flower.simulation.problems import Config, Problem
from studies.attacks.harness import AttackResult
from studies.papers.ei.problems import PROBLEMS

LEAST, NUM_AGENTS, SIZE = 3, 8, 256  # smallest sum, agents, slots
VICTIM = "0"
SAME = 1e-9  # distance of two points that are one
NEAR, FAR = 0.1, 0.3  # of a marked point, and from it
NOBODYS = np.zeros(trend.NUM_SUMS)  # a level from no agent: each has units of its own
SHARING = Pool(level=NOBODYS, slots=SIZE)
HONEST = FedEI(secure_sums=LEAST)


class PartOfEach(Part):
    """A report that counts as new work in each sum."""

    @classmethod
    def sum_name(cls, task: Task, agent_state: AgentState) -> str:
        return f"sum {task.values[SUM]!r}"


class PartOfAny(Part):
    """A report for which it does not matter what the members of a sum were told."""

    @classmethod
    def sum_content(cls, task: Task) -> Mapping[str, AnyArray]:
        return {}


@dataclass(frozen=True, kw_only=True)
class Again(FedEI):
    """Agents whose rows enter each of their sums: a control."""

    name: ClassVar[str] = "fed-ei-again"
    report_content: ClassVar[type[Content]] = PartOfEach

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        agent_state = super().session(task, agent_state, draws, evaluate)
        return agent_state.write(**{"rows.new": np.unique(self._own_rows(agent_state), axis=0)})


@dataclass(frozen=True, kw_only=True)
class Repeating(FedEI):
    """Agents whose first trial with a pool repeats a row, in sums too: a control."""

    name: ClassVar[str] = "fed-ei-repeating"

    def accept(self, task: Task, agent_state: AgentState) -> AgentState:
        if "rows" in task.arrays and "first" not in agent_state.arrays:
            agent_state = agent_state.write(first=np.array([max(agent_state.next_trial, task.trial)]))
        return super().accept(task, agent_state)

    def _is_advised(self, task: Task, agent_state: AgentState) -> bool:
        first = int(agent_state.arrays.get("first", [0])[0])
        return "rows" in task.arrays and agent_state.next_trial <= first


@dataclass(frozen=True, kw_only=True)
class Credulous(FedEI):
    """Agents that do not compare what the members of a sum were told: a control."""

    name: ClassVar[str] = "fed-ei-credulous"
    report_content: ClassVar[type[Content]] = PartOfAny


@dataclass(frozen=True)
class Total:
    """A sum that was revealed: its members, and the sums by name."""

    agents: tuple[str, ...]
    sums: Mapping[str, Array]

    @property
    def rows(self) -> Array:
        """The rows `(m, D + 1)` in it."""
        table = self.sums["table"]
        return slots.read(table, *bounds_of_rows(table.shape[1], 1))[0]


@dataclass
class HostileServer:
    """A server and its agents, which run `honest` or one of `others`, and have made their initial trials."""

    problem: Problem
    seed: int
    honest: FedEI = HONEST
    others: Mapping[str, FedEI] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [str(partition) for partition in range(self.problem.num_agents)]
        self.points: dict[str, list[Array]] = {agent: [] for agent in names}  # the truth
        self.values: dict[str, list[float]] = {agent: [] for agent in names}
        self._num_sums = 0
        known: Any = [type(a) for a in (self.honest, *self.others.values()) if type(a) is not FedEI]
        self._agents = {
            agent: TuningAgent(
                self._objective, self.problem.space,
                Context(1, i, {"agent": agent, "partition-id": i}, RecordDict(), {}),
                seed=self.seed, algorithms=known,
            )
            for i, agent in enumerate(names)
        }  # fmt: skip
        keys = {agent: made.get_properties({"key": True})["key"] for agent, made in self._agents.items()}
        self._cards = {agent: bytes.fromhex(key) for agent, key in keys.items()}
        for agent in names:
            self.send(agent, self.task(agent, Pool(), 2))

    def _objective(self, config: Config, context: ObjectiveContext) -> float:
        self.points[context.agent].append(self.problem.space.encode(config))
        self.values[context.agent].append(self.problem(config, context))
        return self.values[context.agent][-1]

    def level(self) -> Array:
        """Return sums of moments as agents tell them."""
        rng = np.random.default_rng(self.seed)
        parts = [trend.level_sums(np.array(values[:2]), rng) for values in self.values.values()]
        return np.asarray(np.sum(parts, axis=0), dtype=np.float64)

    def task(self, agent: str, content: Pool, num_trials: int = 1) -> Task:
        """Return an agent's next task."""
        return content.task(Phase.TRAIN, 1, len(self.points[agent]), num_trials)

    def tasks(
        self, content: Pool, but: str = "", *, agents: Sequence[str] = (), num_trials: int = 1
    ) -> dict[str, Task]:
        """Return the next tasks of some agents, or of all but one."""
        names = agents or [agent for agent in self.points if agent != but]
        return {agent: self.task(agent, content, num_trials) for agent in names}

    def pool(self, rows: Array, level: Array | None = None) -> Pool:
        """Return a search task with rows."""
        scales = np.full(self.problem.space.dimension, 0.7)
        return Pool(
            rows=rows, lengthscales=scales, level=self.level() if level is None else level, slots=SIZE
        )

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

    def ask_alone(self, agents: Sequence[str], pool: Pool) -> None:
        """Ask each agent for a trial outside of sums."""
        for agent in agents:
            self.send(agent, self.task(agent, replace(pool, slots=0)))

    def add_up(self, tasks: Mapping[str, Task]) -> Total | None:
        """Return the total over the agents of tasks; None if they reveal nothing."""
        self._num_sums += 1
        group, task = tuple(tasks), next(iter(tasks.values()))
        cards = {agent: self._cards[agent] for agent in group}
        content = secure_member.content_of(self.honest, task)
        layout = summands_of(self.honest, self.problem.space, task)
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
        if len(sent) < LEAST:
            return None
        there = {a: np.array([other in sent for other in group if other != a], dtype=np.uint8) for a in sent}
        signing = self._exchange(Phase.EVALUATE, {agent: {"secure.there": there[agent]} for agent in sent})
        books = replace(books, signatures=books.valid_signatures(signing))
        revealed = self._exchange(Phase.REVEAL, {agent: books.shares(group, agent) for agent in sent})
        total = books.sum_of(group, revealed)
        return None if total is None else Total(tuple(sent), books.named(total))

    def _exchange(self, phase: Phase, arrays: Mapping[str, Mapping[str, AnyArray]]) -> dict[str, Report]:
        """Return the reports of those agents that do not refuse."""
        tasks = {agent: Task(phase, 1, 0, 0, arrays[agent], {SUM: self._num_sums}) for agent in arrays}
        reports = {agent: self.send(agent, task) for agent, task in tasks.items()}
        return {agent: report for agent, report in reports.items() if report is not None}

    def rows_of(self, tasks: Mapping[str, Task]) -> list[Array]:
        """Return the rows of the total over the agents of tasks; none if there is no total."""
        total = self.add_up(tasks)
        return [] if total is None else list(total.rows)

    def first_owner(self, row: Array) -> str:
        """Return which agent has an initial trial at a row's point."""
        made = {agent: np.array(points[:2]) for agent, points in self.points.items()}
        return next(a for a, points in made.items() if np.abs(points - row[:-1]).max(axis=1).min() < SAME)

    def has_made(self, agent: str, row: Array) -> bool:
        """Return whether an agent has evaluated a row's point."""
        return any(np.abs(point - row[:-1]).max() < SAME for point in self.points[agent])


def attack(seed: int) -> Iterator[AttackResult]:
    """Run all attacks of a hostile server on eight agents."""
    problem = PROBLEMS["Styblinski-5"](NUM_AGENTS, seed)
    for all_sums in (HONEST, Again()):
        yield nested(problem, seed, all_sums)
    for honest in (HONEST, Credulous()):
        yield marked(problem, seed, honest)
    for honest in (HONEST, Repeating(secure_sums=LEAST)):
        yield asked_alone(problem, seed, honest)
        yield same_lie(problem, seed, honest)
        yield late(problem, seed, honest)
    yield invented(problem, seed)
    few = PROBLEMS["Styblinski-5"](6, seed)
    for exact in (False, True):
        yield pairs(few, seed, exact)


def nested(problem: Problem, seed: int, honest: FedEI = HONEST, num_sums: int = NUM_AGENTS) -> AttackResult:
    """Leave out one agent in turn, and look for rows in two totals: their owners are members of both."""
    server = HostileServer(problem, seed, honest)
    found: Counter[tuple[float, ...]] = Counter()
    for number in range(num_sums):
        rows = server.rows_of(server.tasks(SHARING, but=str(number % problem.num_agents)))
        found.update(tuple(np.round(row[:-1], 9)) for row in rows)
    return AttackResult(
        f"fed-ei, a server that leaves out one agent in turn{_control(honest)}: rows in two totals",
        sum(count > 1 for count in found.values()), 0.0, "rows", len(found), "an honest server",
    )  # fmt: skip


def marked(problem: Problem, seed: int, honest: FedEI = HONEST) -> AttackResult:
    """Tell one agent of high rows near another place, where it searches next, and look there for its rows."""
    server, rng = HostileServer(problem, seed, honest), np.random.default_rng(seed)
    server.add_up(server.tasks(SHARING))
    place, elsewhere = rng.random((2, problem.space.dimension))

    def near(middle: Array) -> Pool:
        points = np.clip(middle + 0.1 * NEAR * rng.standard_normal((8, len(middle))), 0.0, 1.0)
        return server.pool(np.column_stack([points, np.full(len(points), 3.0)]))

    common, told = near(elsewhere), near(place)
    rows = server.rows_of({**server.tasks(common), VICTIM: server.task(VICTIM, told)})
    for _ in range(2):
        rows += server.rows_of(server.tasks(common))
    shown = [row for row in rows if np.abs(row[:-1] - place).max() < NEAR]
    return AttackResult(
        f"fed-ei, an agent that is told other rows{_control(honest)}: its rows that can be recognised",
        sum(server.has_made(VICTIM, row) for row in shown), 0.0, "rows", len(rows), "an honest server",
    )  # fmt: skip


def asked_alone(problem: Problem, seed: int, honest: FedEI = HONEST) -> AttackResult:
    """Ask one agent for trials outside of sums, and name it as the owner of the rows that repeat none."""
    server = HostileServer(problem, seed, honest)
    first = np.array(server.rows_of(server.tasks(replace(SHARING, level=server.level()), num_trials=0)))
    told = server.pool(first)
    server.ask_alone([VICTIM], told)
    fresh = [row for row in server.rows_of(server.tasks(told)) if _distance(first, row) > SAME]
    right = [server.has_made(VICTIM, row) for row in fresh]
    return AttackResult(
        f"fed-ei, an agent with a trial outside of sums{_control(honest)}: it, as "
        "the owner of each row that repeats none", float(np.mean(right)) if right else 0.0,
        1.0 / problem.num_agents, "share of right owners", len(fresh), "any member of the sum",
    )  # fmt: skip


def same_lie(problem: Problem, seed: int, honest: FedEI = HONEST) -> AttackResult:
    """Tell everybody the same pool, a row and decoys, and ask of whose sums a copy of the row is missing.

    Of a row the server knows that three agents summed it. Its owner cannot repeat it. The server asks for a
    sum of each of the first two with two others, who can.
    """
    server, rng = HostileServer(problem, seed, honest), np.random.default_rng(seed)
    suspects, helpers, row, told = _made_up(server, rng)
    missing = np.full(LEAST, 0.5)  # copies that are missing in each suspect's sum; of the last one unknown
    for place, suspect in enumerate(suspects[:-1]):
        group = [suspect, *helpers[2 * place : 2 * place + 2]]
        if honest is HONEST:  # repeats outside of sums, before the search
            server.ask_alone(group, told)
        rows = server.rows_of(server.tasks(told, agents=group))
        copies = sum(_distance(row[None], other) < SAME for other in rows)
        missing[place] = len(group) - copies if copies else 0.5
    named = suspects[int(rng.choice(np.flatnonzero(missing == missing.max())))]
    return AttackResult(
        f"fed-ei, all are told the same row and decoys{_control(honest)}: whose the row is",
        float(server.first_owner(row) == named), 1.0 / LEAST, "share of right owners", 1,
        "any member of its sum",
    )  # fmt: skip


def invented(problem: Problem, seed: int) -> AttackResult:
    """Tell everybody that one row is the best, and ask of whose sum most rows are far from it.

    Its owner knows better. The pool is the same for all members and search trials follow it, so no rule of
    the sums prevents this; an agent learns that the pool lies with its first trial there.
    """
    server = HostileServer(problem, seed)
    suspects, helpers, row, told = _made_up(server, np.random.default_rng(seed))
    far = np.zeros(LEAST)
    for place, suspect in enumerate(suspects):
        group = [suspect, *(helpers[(2 * place + i) % len(helpers)] for i in range(LEAST - 1))]
        rows = server.rows_of(server.tasks(told, agents=group))
        far[place] = sum(np.linalg.norm(other[:-1] - row[:-1]) > FAR for other in rows)
    named = np.flatnonzero(far == far.max())
    right = int(server.first_owner(row)) in named
    return AttackResult(
        "fed-ei, all are told that one row is the best, and search near it: whose the row is",
        right / len(named), 1.0 / LEAST, "share of right owners", 1, "any member of its sum",
    )  # fmt: skip


def _made_up(server: HostileServer, rng: np.random.Generator) -> tuple[list[str], list[str], Array, Pool]:
    """Return three suspects, the other agents, a row of a suspect, and a pool in which it is the best."""
    names = list(server.points)
    opening = replace(SHARING, level=server.level())
    first = server.rows_of(server.tasks(opening, agents=names[:LEAST], num_trials=0))
    row = first[rng.integers(len(first))]
    decoys = np.column_stack([rng.random((3, len(row) - 1)), np.full(3, -3.0)])
    return names[:LEAST], names[LEAST:], row, server.pool(np.vstack([np.append(row[:-1], 3.0), decoys]))


def late(problem: Problem, seed: int, honest: FedEI = HONEST) -> AttackResult:
    """Let one agent join late, and look for rows at points of the pool; its size is what the server says."""
    server = HostileServer(problem, seed, honest)
    sharing = replace(SHARING, level=server.level())
    pool = server.rows_of(server.tasks(sharing, but=VICTIM, num_trials=0))
    pool += server.rows_of(server.tasks(server.pool(np.array(pool)), but=VICTIM))
    many = 100.0 * server.level()  # as if nobody were late
    rows = server.rows_of(server.tasks(server.pool(np.array(pool), many)))
    shown = [row for row in rows if _distance(np.array(pool), row) < SAME]
    return AttackResult(
        f"fed-ei, an agent that joins late{_control(honest)}: its rows that can be recognised, at "
        "points of the pool", sum(server.has_made(VICTIM, row) for row in shown), 0.0, "rows", len(rows),
        "nothing of the kind",
    )  # fmt: skip


def _distance(rows: Array, row: Array) -> float:
    """Return the distance of a row's point from the nearest point of rows."""
    return float(np.abs(rows[:, :-1] - row[:-1]).max(axis=1).min(initial=np.inf))


# -- pairs: an honest server ---------------------------------------------------------------------------


def pairs(problem: Problem, seed: int, exact: bool = False) -> AttackResult:
    """Find which two rows are of one agent: those whose values explain the sums of moments best.

    Units turn two rows of one agent into its raw values, if its initial trials are both in the pool. All
    pairings of one row each of the opening with one of the first search are tried. In the control, `exact`,
    the rows are all agents' first and second trials, and the moments have no noise.
    """
    server, rng = HostileServer(problem, seed), np.random.default_rng(seed)
    noise = (1e-4, 1e-4) if exact else (trend.MEAN_NOISE, trend.LOG_NOISE)
    firsts = [np.array(values[:2]) for values in server.values.values()]
    told = np.sum([_told(values, noise, rng) for values in firsts], axis=0)
    level = trend.Level.of(told, 2)
    if exact:
        points = [np.array(points[:2]) for points in server.points.values()]
        own = [
            np.column_stack([x, level.standardise(problem.space.features(x), y, None)[0]])
            for x, y in zip(points, firsts, strict=True)
        ]
        first, later = [rows[0] for rows in own], list(rng.permutation([rows[1] for rows in own]))
    else:
        first = server.rows_of(server.tasks(replace(SHARING, level=told), num_trials=0))
        pool = server.pool(np.array(first), told)
        server.ask_alone(list(server.points), pool)
        later = server.rows_of(server.tasks(pool))
    rows, places = np.array([*first, *later]), range(len(first), len(first) + len(later))
    most = min(len(first), len(later))
    matchings = (tuple(zip(range(most), p, strict=True)) for p in permutations(places, most))
    owners = [next(agent for agent in server.points if server.has_made(agent, row)) for row in rows]
    features = problem.space.features(rows[:, :-1])
    table = np.full((len(rows), len(rows), 2), np.nan)  # mean and log variance of the values of two rows
    for i in range(len(rows)):
        for j in range(i):
            table[i, j] = table[j, i] = _raw_moments(level, features[[i, j]], rows[[i, j], -1])

    def misfit(matching: tuple[tuple[int, int], ...]) -> float:
        mean, logs = np.array([table[pair] for pair in matching]).T
        spread = np.exp(logs + _BIAS) * noise[0] ** 2
        expected = (mean.sum(), (mean**2 + spread).sum(), logs.sum(), (logs**2 + noise[1] ** 2).sum())
        variances = (
            spread.sum(), (4 * mean**2 * spread + 2 * spread**2).sum(), len(logs) * noise[1] ** 2,
            (4 * logs**2 * noise[1] ** 2 + 2 * noise[1] ** 4).sum(),
        )  # fmt: skip
        terms = zip(told[1:], expected, variances, strict=True)
        return float(sum((a - b) ** 2 / v + np.log(v) for a, b, v in terms))

    best = min(matchings, key=misfit) if level.nu else ()  # without common units nothing fits
    right = [owners[i] == owners[j] for i, j in best]
    what = f"fed-ei, rows and {'exact moments (control)' if exact else 'moments'}"
    return AttackResult(
        f"{what}: which two rows are of one agent", float(np.mean(right)) if right else 0.0,
        1.0 / max(len(later), 1), "share of right pairs", len(right), "any two rows",
    )  # fmt: skip


_BIAS = trend.log_bias(1)


def _told(values: Array, noise: tuple[float, float], rng: np.random.Generator) -> Array:
    """Return what an agent tells of its values, with noise of given deviations."""
    mean = values.mean() + noise[0] * values.std(ddof=1) * rng.standard_normal()
    logs = np.log(values.var(ddof=1)) - _BIAS + noise[1] * rng.standard_normal()
    return np.array([1.0, mean, mean**2, logs, logs**2])


def _raw_moments(level: trend.Level, x: Array, z: Array) -> tuple[float, float]:
    """Return mean and log variance, without its bias, of the raw values of which `z` are the rows."""
    scales = np.full(x.shape[1], fitting.LENGTHSCALE_CENTRE * sqrt(x.shape[1]))
    covariance = gp.kernel(trend.KERNEL, x, x, scales) + level.tau + trend.WHITE * np.eye(len(z))
    solve = np.linalg.inv(covariance)
    w = z + level.tau * solve.sum(axis=0) @ z / (1.0 - level.tau * solve.sum())
    left = max(level.nu + len(z) - w @ solve @ w, 1e-12)
    raw = level.mean + sqrt(level.nu * level.variance / left) * w
    return float(raw.mean()), float(np.log(max(raw.var(ddof=1), 1e-300)) - _BIAS)


def _control(honest: FedEI) -> str:
    return "" if type(honest) is FedEI else f" (control: {type(honest).__name__})"
