"""Any algorithm whose server needs sums, with secure sums in their place.

`SecureAggregation` stands around an algorithm and gives its server no report's summands but their sum. In
TRAIN agents answer under masks (`secure.rounds`); in EVALUATE, which these algorithms leave free, those who
have answered reveal what takes the masks off; then the algorithm is told the sum, and of whom it is.

Sums that come to nothing, because too many left in between or somebody lied, are asked for again, in groups
that halve each time, so that whoever spoils them spoils only the sum of one group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np

from fbo_flower.algorithms.capabilities import ReportsResults, ServerResults, Summable, Summand
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    Payload,
    Phase,
    Report,
    Scalar,
    Task,
    floats,
    natural_key,
)
from fbo_flower.algorithms.schema import ArraySpec, Schema
from fbo_flower.algorithms.session import Draws, Session
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.secure import fixed_point, keys, rounds
from fbo_flower.space.space import SearchSpace

PATIENCE = 5  # sums in a row that come to nothing; then the study ends
MAX_NUMBERS = 2**22  # of one report
_SUM, _REVEALED = "secure.sum", "secure.revealed"
_SENT = ("secure.words", "secure.boxes", "secure.commitment")


@dataclass(frozen=True)
class Opened:
    """A sum that is under way.

    Parameters
    ----------
    groups : agents in the order of their circles; every group has a sum of its own
    layout : what is summed
    sent : agent -> what it sent
    """

    groups: tuple[tuple[str, ...], ...]
    layout: Mapping[str, Summand]
    sent: Mapping[str, rounds.Masked] = field(default_factory=dict)


@dataclass(frozen=True)
class SecureState:
    """What the server knows.

    Parameters
    ----------
    space : the search space
    inner : the algorithm's own state
    keys : agent -> public key
    counter : of sums asked for, the number of the last one
    opened : the one under way
    failures : sums that somebody spoilt, less those since that nobody did; so often are groups halved
    in_vain : sums in a row that came to nothing
    silent : agents without which the next one is made, as they did not answer to one that was spoilt
    made : sums that the algorithm was told
    """

    space: SearchSpace
    inner: Any
    keys: Mapping[str, bytes] = field(default_factory=dict)
    counter: int = 0
    opened: Opened | None = None
    failures: int = 0
    in_vain: int = 0
    silent: frozenset[str] = frozenset()
    made: int = 0


@dataclass(frozen=True, kw_only=True)
class SecureAggregation(Algorithm[SecureState]):
    """An algorithm with secure sums.

    Parameters
    ----------
    inner : the algorithm
    least : agents that a sum is of, at least
    """

    phases: ClassVar[tuple[Phase, ...]] = (Phase.TRAIN, Phase.EVALUATE)

    inner: Algorithm[Any]
    least: int

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Summable):
            raise ConfigError(
                f"secure_sums: expected an algorithm that can do with sums, got {self.inner.name}"
            )
        object.__setattr__(self, "name", self.inner.name)
        object.__setattr__(self, "finishes", self.inner.finishes)

    @property
    def _summable(self) -> Summable:
        return cast(Summable, self.inner)

    def check(self, space: SearchSpace) -> None:
        self.inner.check(space)

    def options(self) -> dict[str, object]:
        return self.inner.options()

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> SecureState:
        return SecureState(federation.space, self.inner.init(federation, rng))

    def inner_state(self, state: SecureState) -> Any:
        return state.inner

    def with_inner_state(self, state: SecureState, inner: Any) -> SecureState:
        return replace(state, inner=inner)

    def register_public_keys(self, state: SecureState, public: Mapping[str, bytes]) -> SecureState:
        return replace(state, keys={a: key for a, key in public.items() if keys.is_public_key(key)})

    def ask(
        self,
        state: SecureState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[SecureState, dict[str, Task]]:
        if phase is Phase.EVALUATE:
            return state, self._ask_to_reveal(state, server_round, present)
        state = self._close(state)
        inner, tasks = self.inner.ask(state.inner, phase, server_round, present, rng)
        state = replace(state, inner=inner)
        layouts = {agent: self._summable.summands(task, state.space) for agent, task in tasks.items()}
        due = [agent for agent, layout in layouts.items() if layout]
        if not due:
            return state, tasks
        known = [agent for agent in due if agent in state.keys]
        able = [agent for agent in known if agent not in state.silent]
        groups = self._groups(able, state.failures, rng)
        opened = Opened(groups, layouts[due[0]])
        state = replace(state, counter=state.counter + 1, opened=opened)
        for agent, others in self._around(groups).items():
            task = tasks[agent]
            public = np.array([np.frombuffer(state.keys[other], dtype=np.uint8) for other in others])
            tasks[agent] = replace(
                task,
                arrays={**task.arrays, "secure.keys": public},
                values={**task.values, _SUM: state.counter},
            )
        return state, tasks

    def tell(self, state: SecureState, phase: Phase, reports: Mapping[str, Report]) -> SecureState:
        if phase is Phase.EVALUATE:
            return self._add_up(state, reports)
        stripped = {}
        sent: dict[str, rounds.Masked] = {}
        for agent, report in reports.items():
            rest = {name: array for name, array in report.arrays.items() if name not in _SENT}
            stripped[agent] = replace(report, arrays=rest)
            if state.opened is not None and len(rest) < len(report.arrays):
                words, boxes, commitment = (np.asarray(report.arrays[name]) for name in _SENT)
                if len(words) == _size(state.opened.layout):
                    sent[agent] = rounds.Masked(
                        words.view(np.uint64), boxes.astype(np.uint8), commitment.tobytes()
                    )
        opened = None if state.opened is None else replace(state.opened, sent=sent)
        return replace(state, inner=self.inner.tell(state.inner, phase, stripped), opened=opened)

    def finished(self, state: SecureState) -> bool:
        return state.in_vain >= PATIENCE or self.inner.finished(state.inner)

    def _groups(
        self, able: Sequence[str], failures: int, rng: np.random.Generator
    ) -> tuple[tuple[str, ...], ...]:
        """Return groups drawn at random; of several, each is large enough that somebody may leave."""
        if len(able) < max(self.least, 2):
            return ()
        number = max(1, min(2**failures, len(able) // (self.least + max(1, self.least // 2))))
        order = [able[i] for i in rng.permutation(len(able))]
        return tuple(tuple(order[i::number]) for i in range(number))

    def _around(self, groups: Sequence[Sequence[str]]) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for group in groups:
            found |= rounds.neighbours(group, rounds.degree(self.least))
        return found

    def _ask_to_reveal(
        self, state: SecureState, server_round: int, present: Sequence[str]
    ) -> dict[str, Task]:
        """Tell those who have sent their numbers who else has."""
        if state.opened is None:
            return {}
        sent, around = state.opened.sent, self._around(state.opened.groups)
        tasks = {}
        for agent in present:
            if agent not in sent:
                continue
            others = around[agent]
            there = np.array([other in sent for other in others], dtype=np.uint8)
            if np.sum(there) < self._needed(len(others)):
                continue
            boxes = np.zeros((len(others), rounds.BOX_BYTES), dtype=np.uint8)
            for row, other in zip(boxes, others, strict=True):
                if other in sent:
                    row[:] = sent[other].boxes[around[other].index(agent)]
            arrays: dict[str, AnyArray] = {"secure.there": there, "secure.boxes": boxes}
            tasks[agent] = Task(Phase.EVALUATE, server_round, 0, 0, arrays, {_SUM: state.counter})
        return tasks

    def _add_up(self, state: SecureState, reports: Mapping[str, Report]) -> SecureState:
        """Take the masks off, group by group, and tell the algorithm what comes out."""
        if state.opened is None:
            return state
        opened, around = state.opened, self._around(state.opened.groups)
        revealed = {
            agent: dict(zip(around[agent], _revealed(report), strict=False))
            for agent, report in reports.items()
            if agent in opened.sent
        }
        total, agents, spoilt = np.zeros(_size(opened.layout)), [], False
        bounds = np.concatenate([np.full(_length(s), s.bound) for s in opened.layout.values()])
        for group in opened.groups:
            sent = {a: opened.sent[a] for a in sorted(group, key=natural_key) if a in opened.sent}
            words = rounds.unmask(sent, state.keys, around, revealed) if len(sent) >= self.least else None
            found = None if words is None else fixed_point.decode(words)
            if found is None or not (np.abs(found) <= len(sent) * bounds).all():
                spoilt = True
            else:
                total += found
                agents += list(sent)
        failures = state.failures + 1 if spoilt else max(0, state.failures - 1)
        silent = _silent(opened) if spoilt else frozenset()
        state = replace(state, opened=None, failures=failures, silent=silent)
        if not agents:
            return replace(state, in_vain=state.in_vain + 1)
        agents.sort(key=natural_key)
        inner = self._summable.aggregate_sum(state.inner, agents, _named(total, opened.layout))
        return replace(state, inner=inner, in_vain=0, made=state.made + 1)

    def _close(self, state: SecureState) -> SecureState:
        """Give up a sum of which nothing came, not even an answer."""
        if state.opened is None:
            return state
        return replace(state, opened=None, silent=_silent(state.opened), in_vain=state.in_vain + 1)

    def _needed(self, num_neighbours: int) -> int:
        """Return how many neighbours must have sent their numbers before an agent reveals anything."""
        return max(self.least - 1, rounds.threshold(num_neighbours))

    # -- the agent's half ----------------------------------------------------------------------

    def accept(self, task: Task, agent_state: AgentState) -> AgentState:
        """Return the agent's state with what this sum is about; WireError if it could tell too much."""
        if _SUM not in task.values:
            return agent_state
        number = int(task.values[_SUM])
        before = np.asarray(agent_state.arrays.get("secure.numbers", np.zeros(2)), dtype=np.int64)
        if task.phase is Phase.EVALUATE:
            there = np.asarray(task.arrays.get("secure.there", np.empty(0)))
            boxes = task.arrays.get("secure.boxes", np.empty((0, 0)))
            num_neighbours = len(agent_state.arrays.get("secure.keys", ()))
            if number != before[0] or number <= before[1]:
                raise WireError(f"secure.sum: expected {before[0]}, once, got {number}", "values")
            if not num_neighbours == len(there) == len(boxes):
                raise WireError(f"secure.there: expected {num_neighbours} agents, got {len(there)}", "shape")
            if np.count_nonzero(there) < self._needed(num_neighbours):
                raise WireError(
                    f"secure.there: expected at least {self._needed(num_neighbours)} neighbours that have "
                    f"sent their numbers, got {np.count_nonzero(there)}",
                    "values",
                )
            return agent_state.write(**{"secure.numbers": np.array([number, number])})
        public = np.asarray(task.arrays.get("secure.keys", np.empty((0, keys.PUBLIC_BYTES))), dtype=np.uint8)
        distinct = {row.tobytes() for row in public}
        if number <= before[0]:
            raise WireError(f"secure.sum: expected more than {before[0]}, got {number}", "values")
        if len(distinct) != len(public) or keys.public_key(_bytes(agent_state, "private")) in distinct:
            raise WireError("secure.keys: expected one of every other agent", "content")
        if len(public) < max(self.least - 1, 1):
            raise WireError(
                f"secure.keys: expected at least {self.least - 1} neighbours, got {len(public)}", "shape"
            )
        return agent_state.write(**{"secure.numbers": np.array([number, before[1]]), "secure.keys": public})

    def evaluation_task(self, task: Task) -> Task:
        arrays = {name: array for name, array in task.arrays.items() if not name.startswith("secure.")}
        values = {name: value for name, value in task.values.items() if not name.startswith("secure.")}
        return replace(task, arrays=arrays, values=values)

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        if task.phase is not Phase.EVALUATE:
            agent_state = yield from self.inner.session(task, agent_state, draws)
        return agent_state

    def summarise(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Payload:
        if task.phase is Phase.EVALUATE:
            return Payload(values=self._reveal(task, agent_state))
        inner = self.inner.summarise(task, agent_state, rng)
        arrays = dict(inner.arrays)
        layout = self._summable.summands(task, agent_state.space)
        clear = {name: floats(arrays.pop(name, np.zeros(s.shape))) for name, s in layout.items()}
        if _SUM not in task.values or not layout:
            return Payload(arrays, inner.values)  # summands do not leave without a mask
        words = np.concatenate(
            [fixed_point.encode(np.ravel(clear[name]), summand.bound) for name, summand in layout.items()]
        )
        label = _label(agent_state, int(task.values[_SUM]))
        masked = rounds.mask(words, _bytes(agent_state, "private"), _keys(agent_state), label)
        commitment = np.frombuffer(masked.commitment, dtype=np.uint8)
        values = masked.words.view(np.int64), masked.boxes, commitment
        parts: dict[str, AnyArray] = dict(zip(_SENT, values, strict=True))
        return Payload(arrays | parts, inner.values)

    def _reveal(self, task: Task, agent_state: AgentState) -> dict[str, Scalar]:
        """Return the shares and seeds that take the masks off the sum."""
        there = np.asarray(task.arrays["secure.there"], dtype=np.bool_).tolist()
        boxes = np.asarray(task.arrays["secure.boxes"], dtype=np.uint8)
        label = _label(agent_state, int(task.values[_SUM]))
        found = rounds.reveal(_bytes(agent_state, "private"), _keys(agent_state), there, boxes, label)
        return {_REVEALED: ",".join(part.hex() for part in found)}

    def recommend(self, agent_state: AgentState) -> Array | None:
        return self.inner.recommend(agent_state)

    # -- what may cross the wire ---------------------------------------------------------------

    def task_schema(self, space: SearchSpace) -> Schema:
        most = rounds.degree(self.least)
        own = {
            "secure.keys": ArraySpec((None, keys.PUBLIC_BYTES), "uint8", max_length=most),
            "secure.there": ArraySpec((None,), "uint8", max_length=most),
            "secure.boxes": ArraySpec((None, rounds.BOX_BYTES), "uint8", max_length=most),
        }
        inner = self.inner.task_schema(space)
        return Schema({**inner.arrays, **own}, {**inner.values, _SUM: int})

    def report_schema(self, space: SearchSpace) -> Schema:
        own = {
            "secure.words": ArraySpec((None, 2), "int64", -np.inf, np.inf, MAX_NUMBERS),
            "secure.boxes": ArraySpec(
                (None, rounds.BOX_BYTES), "uint8", max_length=rounds.degree(self.least)
            ),
            "secure.commitment": ArraySpec((keys.SEED_BYTES,), "uint8"),
        }
        inner = self.inner.report_schema(space)
        return Schema({**inner.arrays, **own}, {**inner.values, _REVEALED: str})

    def check_report(self, task: Task, report: Report) -> None:
        """Raise WireError unless a sum's report has all its parts, for all neighbours."""
        came = [name for name in _SENT if name in report.arrays]
        wanted = _SUM in task.values and task.phase is not Phase.EVALUATE
        if came and (not wanted or len(came) < len(_SENT)):
            raise WireError(
                f"names: expected {', '.join(_SENT if wanted else ['none of a sum'])}, got {came}"
            )
        if came and len(report.arrays["secure.boxes"]) != len(task.arrays["secure.keys"]):
            raise WireError("secure.boxes: expected one for every neighbour", "shape")
        if (_REVEALED in report.values) != (task.phase is Phase.EVALUATE):
            raise WireError(f"values: expected {_REVEALED} in the second half-round and only there", "values")
        rest = {name: array for name, array in report.arrays.items() if name not in _SENT}
        self.inner.check_report(task, replace(report, arrays=rest))

    # -- what the server knows at the end --------------------------------------------------------

    def results(self, state: SecureState) -> ServerResults | None:
        found = self.inner.results(state.inner) if isinstance(self.inner, ReportsResults) else None
        found = found or ServerResults()
        sums = {"sums_of_at_least": self.least, "sums_made": state.made, "sums_asked_for": state.counter}
        return replace(found, privacy={**found.privacy, **sums})


def identity(private: bytes, study: str) -> dict[str, AnyArray]:
    """Return what an agent's state must hold for a study with secure sums."""
    return {
        "secure.private": np.frombuffer(private, dtype=np.uint8),
        "secure.study": np.frombuffer(study.encode(), dtype=np.uint8),
    }


def _silent(opened: Opened) -> frozenset[str]:
    return frozenset(a for group in opened.groups for a in group if a not in opened.sent)


def _length(summand: Summand) -> int:
    return int(np.prod(summand.shape))


def _size(layout: Mapping[str, Summand]) -> int:
    return sum(_length(summand) for summand in layout.values())


def _named(total: Array, layout: Mapping[str, Summand]) -> dict[str, Array]:
    ends = np.cumsum([_length(summand) for summand in layout.values()])[:-1]
    parts = np.split(total, ends)
    return {name: part.reshape(s.shape) for (name, s), part in zip(layout.items(), parts, strict=True)}


def _revealed(report: Report) -> list[bytes]:
    """Return the shares and seeds of a report; an empty one for what is none."""
    found = []
    for part in str(report.values.get(_REVEALED, "")).split(","):
        try:
            found.append(bytes.fromhex(part))
        except ValueError:
            found.append(b"")
    return found


def _bytes(agent_state: AgentState, name: str) -> bytes:
    return np.asarray(agent_state.arrays[f"secure.{name}"], dtype=np.uint8).tobytes()


def _keys(agent_state: AgentState) -> list[bytes]:
    return [row.tobytes() for row in np.asarray(agent_state.arrays["secure.keys"], dtype=np.uint8)]


def _label(agent_state: AgentState, number: int) -> bytes:
    return _bytes(agent_state, "study") + number.to_bytes(8)
