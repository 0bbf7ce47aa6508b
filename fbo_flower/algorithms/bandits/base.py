"""Base classes of the bandits: all have a budget; those on cells also a partition and a smoothness.

An agent that discloses its best asks the algorithm for it in every half-round. The search through its
statistics is done once for each state, see `once_per_state`.

Random arms: the server draws a seed, from which the server and all agents generate the same arms. Arm `k` of
`K` is a point of the unit cube, see `numerics.bandits.ucb.random_arms`. An agent stores its pulls of each
arm; messages carry the seed instead of `K D` coordinates.
"""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np

from fbo_flower.algorithms.messages import Content, Replies, real, whole
from fbo_flower.algorithms.options import bounded, choice, flag, integer
from fbo_flower.algorithms.protocol import Algorithm, Progress
from fbo_flower.algorithms.records import (
    NUM_EVALUATIONS,
    AgentState,
    Best,
    Phase,
    Report,
    Task,
    Trials,
    floats,
    natural_key,
)
from fbo_flower.algorithms.requests import Rng
from fbo_flower.errors import WireError
from fbo_flower.numerics import finite
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.bandits import ucb
from fbo_flower.numerics.bandits.pulls import Pulls
from fbo_flower.space.space import SearchSpace

MAX_MISSED = 3  # the end of a run is not delayed for an agent that left this many tasks in a row unanswered
MAX_SEED = 2**53  # largest integer that every JSON reader represents exactly


@dataclass(frozen=True)
class Attendance:
    """Which agents answer their tasks.

    An agent that left its last task unanswered is silent. A shared stage does not wait for silent agents, but
    they still get tasks. The first valid report ends the silence.

    Parameters
    ----------
    asked : agents with a task in the open half-round
    missed : silent agent -> how many tasks in a row it left unanswered
    """

    asked: tuple[str, ...] = ()
    missed: Mapping[str, int] = field(default_factory=dict)

    def ask(self, agents: Iterable[str]) -> Attendance:
        """Return the record with the agents that get a task now."""
        return Attendance(tuple(agents), self.missed)

    def tell(self, reports: Iterable[str]) -> Attendance:
        """Return the record after a half-round in which the agents `reports` answered."""
        return self.hear(reports).give_up(())

    def hear(self, reports: Iterable[str]) -> Attendance:
        """Return the record after the agents `reports` answered, while others are still at work."""
        answered = set(reports)
        missed = {agent: number for agent, number in self.missed.items() if agent not in answered}
        return Attendance(tuple(agent for agent in self.asked if agent not in answered), missed)

    def give_up(self, at_work: Iterable[str]) -> Attendance:
        """Return the record in which agents that were asked, and are not at work, have missed their task."""
        busy, missed = tuple(at_work), dict(self.missed)
        for agent in self.asked:
            if agent not in busy:
                missed[agent] = missed.get(agent, 0) + 1
        return Attendance(busy, missed)

    def is_silent(self, agent: str) -> bool:
        """Return whether an agent left its last task unanswered.

        Its next report may be about that earlier task. The server then knows only that it made trials.
        """
        return agent in self.missed

    def responsive(self, agents: Iterable[str]) -> list[str]:
        """Return the agents that are not silent, in the given order."""
        return [agent for agent in agents if agent not in self.missed]

    def is_over(self, agents: Sequence[str], progress: Progress, budget: int) -> bool:
        """Return whether all agents have spent their budget, or are silent while the others have.

        If all agents fall silent after the first trial, the run waits for one of them.
        """
        spent = [progress.of(agent) >= budget for agent in agents]
        gone = [self.missed.get(agent, 0) >= MAX_MISSED for agent in agents]
        begun = any(progress.of(agent) > 0 for agent in agents)
        return all(s or g for s, g in zip(spent, gone, strict=True)) and (any(spent) or not begun)


def drawn_seed(seed: int | None, rng: np.random.Generator) -> int:
    """Return `seed`, or a random one if it is None."""
    return int(rng.integers(MAX_SEED)) if seed is None else seed


def checked_seed(seed: int) -> int:
    """Return the seed of the arms in a task; WireError if it is missing (-1) or out of range."""
    if not 0 <= seed <= MAX_SEED:
        raise WireError(f"arms_seed: expected an integer between 0 and {MAX_SEED}, got {seed!r}")
    return seed


def points(seed: int, dim: int) -> Array:
    """Return the points of all arms, `(K, D)`."""
    return ucb.random_arms(dim, np.random.default_rng([seed, 3]))


def num_arms(dim: int) -> int:
    """Return `K`, the number of arms."""
    return ucb.ARMS_ABOVE if dim > 2 else ucb.ARMS_PER_DIMENSION**dim


def read_pulls(agent_state: AgentState) -> Pulls:
    """Return the agent's pulls of the arms, `(K,)`, which it stores under "arms."."""
    return Pulls.read(agent_state.arrays, "arms.", num_arms(agent_state.space.dimension))


def recommended(agent_state: AgentState, pulls: Pulls, arm: int) -> tuple[Array, float]:
    """Return point `(D,)` and mean of an arm; the agent's state has the seed."""
    seed = int(np.sum(agent_state.arrays["seed"]))
    point: Array = points(seed, agent_state.space.dimension)[arm]
    return point, float(pulls.means()[arm])


Value = TypeVar("Value")
Seen = TypeVar("Seen", bound=Pulls)
ARITIES = ("binary", "full")


@dataclass(frozen=True)
class BanditState:
    """The server's state."""

    # agents of the registration; the run ends when all of them have spent their budget
    agents: tuple[str, ...]
    progress: Progress = field(default_factory=Progress, kw_only=True)  # every agent's next trial
    # which agents answer their tasks
    attendance: Attendance = field(default_factory=Attendance, kw_only=True)
    # without a barrier, the tasks of agents that are at work; None: with one
    under_way: Mapping[str, Task] | None = field(default=None, kw_only=True)


State = TypeVar("State", bound=BanditState)


def most_rows(algorithm: Any, space: SearchSpace) -> int:
    """Return the largest number of cells or arms in a message."""
    return int(algorithm.most_rows(space))


@dataclass(frozen=True, kw_only=True)
class Evaluations(Content):
    """A report: the number of evaluations really made, if the agent reuses values."""

    conditions: ClassVar[Mapping[str, str]] = MappingProxyType({NUM_EVALUATIONS: "deterministic"})

    evaluations: int = 0


@dataclass(frozen=True, kw_only=True)
class PullMeans(Evaluations):
    """A report: mean and count of every cell or arm of the task, and how many pulls are still to be made."""

    means: Annotated[Array | None, real(None, most=most_rows)] = None
    counts: Annotated[IntArray | None, whole(None, high=1e9, most=most_rows)] = None
    owed: Annotated[IntArray | None, whole(1, high=1e15)] = None

    @staticmethod
    def about(reports: Mapping[str, Report], size: int) -> dict[str, tuple[Array, IntArray, int]]:
        """Return means, counts and owed pulls of each agent that reports on `size` cells or arms.

        A report on another number of them belongs to another batch.
        """
        found = {}
        for agent, report in reports.items():
            sent = PullMeans.of(report)
            if sent.means is None or sent.counts is None or sent.owed is None:
                continue
            if sent.means.shape == sent.counts.shape == (size,):
                counts = np.asarray(sent.counts, dtype=np.int64)
                found[agent] = floats(sent.means), counts, int(np.sum(sent.owed))
        return found


@dataclass(frozen=True, kw_only=True)
class Bandit(Algorithm[State]):
    """A search that ends when its budget is spent. To pull a cell or an arm is to evaluate its point once.

    Parameters
    ----------
    budget : `T`, number of pulls of every agent
    deterministic : whether the objective returns the same value whenever a point is evaluated again. If true,
        an agent evaluates each point once and reuses its value; every pull still counts against the budget,
        and reports contain the number of evaluations made
    """

    report_content: ClassVar[type[Content]] = Evaluations
    budget_option: ClassVar[str] = "budget"

    budget: int = integer(20_000, 1, 10**9)
    deterministic: bool = flag(False)

    def ask(
        self, state: State, phase: Phase, server_round: int, present: Sequence[str], rng: np.random.Generator
    ) -> tuple[State, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        waiting = [agent for agent in present if state.progress.of(agent) < self.budget]
        at_work = sorted(state.under_way or (), key=natural_key)
        if state.under_way is not None:
            state = replace(state, attendance=state.attendance.give_up(at_work))
        state, tasks = self.close(state, [*waiting, *at_work]), {}
        for agent in waiting:
            trial = state.progress.of(agent)
            content, pulls = self.next_pulls(state, agent, self.budget - trial)
            if content is not None:
                tasks[agent] = content.task(phase, server_round, trial, pulls)
        return replace(state, attendance=state.attendance.ask([*at_work, *tasks])), tasks

    def close(self, state: State, waiting: Sequence[str]) -> State:
        """Return the state after what the agents do together, once all that answer have done their part."""
        return state

    def next_pulls(self, state: State, agent: str, left: int) -> tuple[Content | None, int]:
        """Return an agent's next task, of up to `left` pulls; None if it has to wait for the others."""
        return Content(), left

    def tell(self, state: State, phase: Phase, reports: Replies) -> State:
        attendance = state.attendance
        attendance = attendance.tell(reports) if state.under_way is None else attendance.hear(reports)
        return replace(state, progress=state.progress.advance(reports), attendance=attendance)

    def finished(self, state: State) -> bool:
        return state.attendance.is_over(state.agents, state.progress, self.budget)

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        return Evaluations(evaluations=self.evaluations(agent_state))

    def evaluations(self, agent_state: AgentState) -> int:
        """Return the number of evaluations made if values are reused, else 0."""
        return int(np.sum(agent_state.arrays.get(NUM_EVALUATIONS, 0))) if self.deterministic else 0

    @abstractmethod
    def best_pulled(self, agent_state: AgentState) -> tuple[Array, float] | None:
        """Return the point `(D,)` to use, and the mean of its pulls; None before the first success."""

    def best(self, agent_state: AgentState, *, own: bool = True) -> Best | None:
        found = self.best_pulled(agent_state)
        return None if found is None else Best(found[0], float(finite.difference(found[1], 0.0)))


@dataclass(frozen=True, kw_only=True)
class BatchedBandit(Bandit[State]):
    """A bandit whose tasks ask for many pulls; `Bandit` describes the other options.

    Parameters
    ----------
    max_evaluations_per_round : largest number of trials of one agent in a round
    """

    max_evaluations_per_round: int = integer(10_000, 1, 10**7)

    def next_pulls(self, state: State, agent: str, left: int) -> tuple[Content | None, int]:
        return Content(), min(left, self.max_evaluations_per_round)


@dataclass(frozen=True, kw_only=True)
class XArmedBandit(BatchedBandit[State]):
    """A search in a tree of cells; `BatchedBandit` and `Bandit` describe the other options.

    Parameters
    ----------
    nu, rho : smoothness: no point of a cell of depth `h` is better than its centre by more than `nu rho^h`
    c : factor of the confidence radius
    arity : "binary": each depth halves one dimension; "full": each depth halves every dimension, for `D <= 3`
    """

    nu: float = bounded(1.0, 1e-12)
    rho: float = bounded(0.5, 1e-6, 1 - 1e-6)
    c: float = bounded(0.1, 1e-12)
    arity: str = choice("binary", ARITIES)

    def branching(self, dim: int) -> int:
        """Return `k`, the number of children of a cell."""
        return branching(self.arity, dim)


def first_that_fit(pulls: IntArray, left: int) -> IntArray:
    """Return how many of the pulls `(n,)` to make, the first ones first, if `left` can be made."""
    return np.asarray(np.clip(left - (np.cumsum(pulls) - pulls), 0, pulls), dtype=np.int64)


def with_outcome(pulls: Seen, rows: IntArray | list[int], outcome: Trials) -> Seen:
    """Return a table of pulls with an outcome added, whose rows are pulls of `rows`."""
    assert outcome.counts is not None and outcome.deviations is not None  # noqa: PT018  # repeats were asked
    with np.errstate(over="ignore"):  # huge values
        total = np.where(outcome.counts > 0, outcome.values * outcome.counts, 0.0)
    return pulls.add(rows, outcome.counts, total, outcome.deviations, outcome.spans - outcome.counts)


def in_order(by_agent: Mapping[str, Value]) -> dict[str, Value]:
    """Return a mapping with agents in natural order, so that the order of replies has no effect."""
    return {agent: by_agent[agent] for agent in sorted(by_agent, key=natural_key)}


def branching(arity: str, dim: int) -> int:
    """Return `k`, the number of children of a cell, for `arity` "binary" or "full"."""
    return 2 if arity == "binary" else 2**dim


Owner = TypeVar("Owner")
T = TypeVar("T")


def once_per_state(method: Callable[[Owner, AgentState], T]) -> Callable[[Owner, AgentState], T]:
    """Let a method return its last result again, if owner and state are the same objects as before."""
    last: tuple[Any, weakref.ref[AgentState], T] | None = None

    @wraps(method)
    def remembering(self: Owner, agent_state: AgentState) -> T:
        nonlocal last
        known = last  # one reading: another thread may replace it
        if known is not None and known[0] is self and known[1]() is agent_state:
            return known[2]
        found = method(self, agent_state)
        last = self, weakref.ref(agent_state), found
        return found

    return remembering
