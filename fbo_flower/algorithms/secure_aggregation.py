"""Secure sums: the server of any algorithm that needs only sums learns the sum and no single summand.

`SecureAggregation` wraps such an algorithm. In the TRAIN half-round agents send their summands under random
masks (`secure.rounds`). In the EVALUATE half-round, which these algorithms do not use, the agents that sent
masked summands reveal the shares that remove the masks from the sum. The wrapped algorithm then receives the
sum and the names of the agents in it.

A sum fails when too many agents leave before the reveal, or when an agent lies. The server then asks again in
smaller groups: it halves their size at every failure, so a misbehaving agent spoils only its own group's sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np

from fbo_flower.algorithms.capabilities import (
    ProtectsReports,
    ReportsResults,
    ServerResults,
    Summable,
    Summand,
)
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
from fbo_flower.numerics.discrete_noise import Uniform
from fbo_flower.secure import fixed_point, keys, rounds
from fbo_flower.space.space import SearchSpace

PATIENCE = 5  # the study ends after this many failed sums in a row
MAX_NUMBERS = 2**22  # masked numbers in one report
_SUM, _REVEALED = "secure.sum", "secure.revealed"
_SENT = ("secure.words", "secure.boxes", "secure.commitment")


@dataclass(frozen=True)
class OpenSum:
    """A sum that was asked for and is not finished.

    Parameters
    ----------
    groups : agents of each group, in the order of its circle of neighbours; each group has its own sum
    layout : name of each array that is summed -> its shape and bound
    sent : agent -> the masked numbers that it sent
    """

    groups: tuple[tuple[str, ...], ...]
    layout: Mapping[str, Summand]
    sent: Mapping[str, rounds.Masked] = field(default_factory=dict)


@dataclass(frozen=True)
class SecureState:
    """The server's state.

    Parameters
    ----------
    space : the search space
    inner : the wrapped algorithm's state
    keys : agent -> public key
    num_asked : sums asked for so far; the number of the last one
    open_sum : the sum that is not finished; None: there is none
    failures : sums with a failed group, minus later sums without one (at least 0): groups are halved this
        many times
    failures_in_a_row : consecutive sums without any result
    silent : agents that did not answer a failed sum; the next sum leaves them out
    num_completed : sums that the wrapped algorithm received
    """

    space: SearchSpace
    inner: Any
    keys: Mapping[str, bytes] = field(default_factory=dict)
    num_asked: int = 0
    open_sum: OpenSum | None = None
    failures: int = 0
    failures_in_a_row: int = 0
    silent: frozenset[str] = frozenset()
    num_completed: int = 0


@dataclass(frozen=True, kw_only=True)
class SecureAggregation(Algorithm[SecureState]):
    """An algorithm whose server receives sums over agents instead of their single summands.

    Parameters
    ----------
    inner : the wrapped algorithm
    least : smallest number of agents in a sum
    """

    phases: ClassVar[tuple[Phase, ...]] = (Phase.TRAIN, Phase.EVALUATE)

    inner: Algorithm[Any]
    least: int

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Summable):
            raise ConfigError(
                f"secure_sums: expected an algorithm whose server needs only sums, got {self.inner.name}; "
                "set secure_sums=0"
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
        state = self._abandon_open_sum(state)
        inner, tasks = self.inner.ask(state.inner, phase, server_round, present, rng)
        state = replace(state, inner=inner)
        layouts = {agent: self._summable.summands(task, state.space) for agent, task in tasks.items()}
        summing = [agent for agent, layout in layouts.items() if layout]
        if not summing:
            return state, tasks
        candidates = [agent for agent in summing if agent in state.keys and agent not in state.silent]
        groups = self._groups(candidates, state.failures, rng)
        open_sum = OpenSum(groups, layouts[summing[0]])
        state = replace(state, num_asked=state.num_asked + 1, open_sum=open_sum)
        return state, {**tasks, **self._masking_tasks(state, groups, tasks)}

    def _masking_tasks(
        self, state: SecureState, groups: Sequence[Sequence[str]], tasks: Mapping[str, Task]
    ) -> dict[str, Task]:
        """Return the tasks of all agents in groups, with the sum's number and the neighbours' public keys."""
        masking = {}
        for agent, others in self._neighbours(groups).items():
            task = tasks[agent]
            public = np.array([np.frombuffer(state.keys[other], dtype=np.uint8) for other in others])
            masking[agent] = replace(
                task,
                arrays={**task.arrays, "secure.keys": public},
                values={**task.values, _SUM: state.num_asked},
            )
        return masking

    def tell(self, state: SecureState, phase: Phase, reports: Mapping[str, Report]) -> SecureState:
        if phase is Phase.EVALUATE:
            return self._unmask_sum(state, reports)
        stripped = {}
        sent: dict[str, rounds.Masked] = {}
        for agent, report in reports.items():
            rest = {name: array for name, array in report.arrays.items() if name not in _SENT}
            stripped[agent] = replace(report, arrays=rest)
            if state.open_sum is not None and len(rest) < len(report.arrays):
                words, boxes, commitment = (np.asarray(report.arrays[name]) for name in _SENT)
                if len(words) == _size(state.open_sum.layout):
                    sent[agent] = rounds.Masked(
                        words.view(np.uint64), boxes.astype(np.uint8), commitment.tobytes()
                    )
        open_sum = None if state.open_sum is None else replace(state.open_sum, sent=sent)
        return replace(state, inner=self.inner.tell(state.inner, phase, stripped), open_sum=open_sum)

    def finished(self, state: SecureState) -> bool:
        return state.failures_in_a_row >= PATIENCE or self.inner.finished(state.inner)

    def _groups(
        self, candidates: Sequence[str], failures: int, rng: np.random.Generator
    ) -> tuple[tuple[str, ...], ...]:
        """Divide the candidates at random into up to `2**failures` groups.

        When there are several groups, each has at least `1.5 least` agents, so that some may leave before the
        reveal. Fewer candidates than `least` give no group.
        """
        if len(candidates) < max(self.least, 2):
            return ()
        number = max(1, min(2**failures, len(candidates) // (self.least + max(1, self.least // 2))))
        order = [candidates[i] for i in rng.permutation(len(candidates))]
        return tuple(tuple(order[i::number]) for i in range(number))

    def _neighbours(self, groups: Sequence[Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """Return the neighbours of every agent: those with which it shares masks."""
        neighbours: dict[str, tuple[str, ...]] = {}
        for group in groups:
            neighbours |= rounds.neighbours(group, rounds.degree(self.least))
        return neighbours

    def _ask_to_reveal(
        self, state: SecureState, server_round: int, present: Sequence[str]
    ) -> dict[str, Task]:
        """Return a task for every agent that sent masked numbers, if enough of its neighbours did, too.

        The task lists the neighbours that sent theirs, with the sealed shares that they addressed to the
        agent.
        """
        if state.open_sum is None:
            return {}
        sent, neighbours = state.open_sum.sent, self._neighbours(state.open_sum.groups)
        tasks = {}
        for agent in present:
            if agent not in sent:
                continue
            others = neighbours[agent]
            has_sent = np.array([other in sent for other in others], dtype=np.uint8)
            if np.sum(has_sent) < self._least_neighbours(len(others)):
                continue
            boxes = np.zeros((len(others), rounds.BOX_BYTES), dtype=np.uint8)
            for row, other in zip(boxes, others, strict=True):
                if other in sent:
                    row[:] = sent[other].boxes[neighbours[other].index(agent)]
            arrays: dict[str, AnyArray] = {"secure.there": has_sent, "secure.boxes": boxes}
            tasks[agent] = Task(Phase.EVALUATE, server_round, 0, 0, arrays, {_SUM: state.num_asked})
        return tasks

    def _unmask_sum(self, state: SecureState, reports: Mapping[str, Report]) -> SecureState:
        """Remove the masks group by group; pass the total over good groups to the wrapped algorithm."""
        if state.open_sum is None:
            return state
        open_sum, neighbours = state.open_sum, self._neighbours(state.open_sum.groups)
        revealed = {
            agent: dict(zip(neighbours[agent], _revealed(report), strict=False))
            for agent, report in reports.items()
            if agent in open_sum.sent
        }
        total, agents, any_failed = np.zeros(_size(open_sum.layout)), [], False
        for group in open_sum.groups:
            members = [a for a in sorted(group, key=natural_key) if a in open_sum.sent]
            group_sum = self._group_sum(state, members, neighbours, revealed)
            if group_sum is None:
                any_failed = True
            else:
                total += group_sum
                agents += members
        failures = state.failures + 1 if any_failed else max(0, state.failures - 1)
        silent = _silent(open_sum) if any_failed else frozenset()
        state = replace(state, open_sum=None, failures=failures, silent=silent)
        if not agents:
            return replace(state, failures_in_a_row=state.failures_in_a_row + 1)
        agents.sort(key=natural_key)
        inner = self._summable.aggregate_sum(state.inner, agents, _named(total, open_sum.layout))
        return replace(state, inner=inner, failures_in_a_row=0, num_completed=state.num_completed + 1)

    def _group_sum(
        self,
        state: SecureState,
        members: Sequence[str],
        neighbours: Mapping[str, tuple[str, ...]],
        revealed: Mapping[str, Mapping[str, bytes]],
    ) -> Array | None:
        """Return the sum over the members of one group, flat; None if the group failed.

        A group fails if it has fewer than `least` members, if their masks cannot be removed, or if an entry
        of the sum exceeds what honest agents can send.
        """
        assert state.open_sum is not None
        if len(members) < self.least:
            return None
        sent = {agent: state.open_sum.sent[agent] for agent in members}
        words = rounds.unmask(sent, state.keys, neighbours, revealed)
        if words is None:
            return None
        decoded = fixed_point.decode(words)
        bounds = np.concatenate([np.full(_length(s), s.bound) for s in state.open_sum.layout.values()])
        return decoded if (np.abs(decoded) <= len(members) * bounds).all() else None

    def _abandon_open_sum(self, state: SecureState) -> SecureState:
        """Count a sum that is still open as failed: no agent answered in its second half-round."""
        if state.open_sum is None:
            return state
        return replace(
            state,
            open_sum=None,
            silent=_silent(state.open_sum),
            failures_in_a_row=state.failures_in_a_row + 1,
        )

    def _least_neighbours(self, num_neighbours: int) -> int:
        """Return how many neighbours must have sent their numbers before an agent reveals anything."""
        return max(self.least - 1, rounds.threshold(num_neighbours))

    # -- the agent's half ----------------------------------------------------------------------

    def accept(self, task: Task, agent_state: AgentState) -> AgentState:
        """Return the agent's state with this sum's number and keys; WireError if it could reveal a report.

        `secure.numbers` holds the number of the last sum that the agent masked numbers for, and of the last
        one that it revealed shares for.
        """
        if _SUM not in task.values:
            return agent_state
        if task.phase is Phase.EVALUATE:
            return self._accept_reveal(task, agent_state)
        return self._accept_masking(task, agent_state)

    def _accept_masking(self, task: Task, agent_state: AgentState) -> AgentState:
        """Accept a new sum: a larger number than before, and enough neighbours with different keys."""
        number, (masked, revealed) = int(task.values[_SUM]), _last_numbers(agent_state)
        public = np.asarray(task.arrays.get("secure.keys", np.empty((0, keys.PUBLIC_BYTES))), dtype=np.uint8)
        distinct = {row.tobytes() for row in public}
        if number <= masked:
            raise WireError(f"secure.sum: expected more than {masked}, got {number}", "values")
        if len(distinct) != len(public) or keys.public_key(_bytes(agent_state, "private")) in distinct:
            raise WireError(
                "secure.keys: expected one of every other agent, got a key twice or the agent's own",
                "content",
            )
        if len(public) < max(self.least - 1, 1):
            raise WireError(
                f"secure.keys: expected at least {self.least - 1} neighbours, got {len(public)}", "shape"
            )
        return agent_state.write(**{"secure.numbers": np.array([number, revealed]), "secure.keys": public})

    def _accept_reveal(self, task: Task, agent_state: AgentState) -> AgentState:
        """Accept the reveal of the last sum, once, if enough neighbours have sent their numbers."""
        number, (masked, revealed) = int(task.values[_SUM]), _last_numbers(agent_state)
        has_sent = np.asarray(task.arrays.get("secure.there", np.empty(0)))
        boxes = task.arrays.get("secure.boxes", np.empty((0, 0)))
        num_neighbours = len(agent_state.arrays.get("secure.keys", ()))
        if number != masked or number <= revealed:
            raise WireError(f"secure.sum: expected {masked}, once, got {number}", "values")
        if not num_neighbours == len(has_sent) == len(boxes):
            raise WireError(
                f"secure.there: expected an entry and a box for each of {num_neighbours} neighbours, "
                f"got {len(has_sent)} and {len(boxes)}",
                "shape",
            )
        if np.count_nonzero(has_sent) < self._least_neighbours(num_neighbours):
            raise WireError(
                f"secure.there: expected at least {self._least_neighbours(num_neighbours)} neighbours that "
                f"have sent their numbers, got {np.count_nonzero(has_sent)}",
                "values",
            )
        return agent_state.write(**{"secure.numbers": np.array([number, number])})

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
        return self.inner.summarise(task, agent_state, rng)

    def protect(self, task: Task, agent_state: AgentState, payload: Payload, uniform: Uniform) -> Payload:
        """Return the payload with masked words in place of the summands; masks never come from `uniform`."""
        if task.phase is Phase.EVALUATE:
            return payload
        if isinstance(self.inner, ProtectsReports):
            payload = self.inner.protect(task, agent_state, payload, uniform)
        arrays = dict(payload.arrays)
        layout = self._summable.summands(task, agent_state.space)
        clear = {name: floats(arrays.pop(name, np.zeros(s.shape))) for name, s in layout.items()}
        if _SUM not in task.values or not layout:
            return Payload(arrays, payload.values)  # summands never leave the agent without a mask
        words = np.concatenate(
            [fixed_point.encode(np.ravel(clear[name]), summand.bound) for name, summand in layout.items()]
        )
        label = _label(agent_state, int(task.values[_SUM]))
        masked = rounds.mask(words, _bytes(agent_state, "private"), _keys(agent_state), label)
        commitment = np.frombuffer(masked.commitment, dtype=np.uint8)
        values = masked.words.view(np.int64), masked.boxes, commitment
        parts: dict[str, AnyArray] = dict(zip(_SENT, values, strict=True))
        return Payload(arrays | parts, payload.values)

    def _reveal(self, task: Task, agent_state: AgentState) -> dict[str, Scalar]:
        """Return the shares and seeds that remove the masks from the sum."""
        has_sent = np.asarray(task.arrays["secure.there"], dtype=np.bool_).tolist()
        boxes = np.asarray(task.arrays["secure.boxes"], dtype=np.uint8)
        label = _label(agent_state, int(task.values[_SUM]))
        found = rounds.reveal(_bytes(agent_state, "private"), _keys(agent_state), has_sent, boxes, label)
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
        """Raise WireError if a report lacks a part of the sum, or holds one that the task did not ask for."""
        received = [name for name in _SENT if name in report.arrays]
        asked = _SUM in task.values and task.phase is not Phase.EVALUATE
        if received and (not asked or len(received) < len(_SENT)):
            expected = ", ".join(_SENT) if asked else "none of a secure sum's arrays"
            raise WireError(f"names: expected {expected}, got {', '.join(received)}")
        if received and len(report.arrays["secure.boxes"]) != len(task.arrays["secure.keys"]):
            raise WireError(
                f"secure.boxes: expected one for each of {len(task.arrays['secure.keys'])} neighbours, "
                f"got {len(report.arrays['secure.boxes'])}",
                "shape",
            )
        if (_REVEALED in report.values) != (task.phase is Phase.EVALUATE):
            raise WireError(
                f"values: expected {_REVEALED} in the second half-round and in no other", "values"
            )
        rest = {name: array for name, array in report.arrays.items() if name not in _SENT}
        self.inner.check_report(task, replace(report, arrays=rest))

    # -- what the server knows at the end --------------------------------------------------------

    def results(self, state: SecureState) -> ServerResults | None:
        found = self.inner.results(state.inner) if isinstance(self.inner, ReportsResults) else None
        found = found or ServerResults()
        sums = {
            "sums_of_at_least": self.least,
            "sums_made": state.num_completed,
            "sums_asked_for": state.num_asked,
        }
        return replace(found, privacy={**found.privacy, **sums})


def identity(private: bytes, study: str) -> dict[str, AnyArray]:
    """Return the arrays that an agent's state needs for secure sums: its private key and the study's id."""
    return {
        "secure.private": np.frombuffer(private, dtype=np.uint8),
        "secure.study": np.frombuffer(study.encode(), dtype=np.uint8),
    }


def _silent(open_sum: OpenSum) -> frozenset[str]:
    return frozenset(a for group in open_sum.groups for a in group if a not in open_sum.sent)


def _length(summand: Summand) -> int:
    return int(np.prod(summand.shape))


def _size(layout: Mapping[str, Summand]) -> int:
    return sum(_length(summand) for summand in layout.values())


def _named(total: Array, layout: Mapping[str, Summand]) -> dict[str, Array]:
    ends = np.cumsum([_length(summand) for summand in layout.values()])[:-1]
    parts = np.split(total, ends)
    return {name: part.reshape(s.shape) for (name, s), part in zip(layout.items(), parts, strict=True)}


def _revealed(report: Report) -> list[bytes]:
    """Return the shares and seeds of a report; empty bytes for a part that is not hexadecimal."""
    found = []
    for part in str(report.values.get(_REVEALED, "")).split(","):
        try:
            found.append(bytes.fromhex(part))
        except ValueError:
            found.append(b"")
    return found


def _last_numbers(agent_state: AgentState) -> tuple[int, int]:
    """Return the numbers of the last sums for which the agent masked numbers, and revealed shares."""
    masked, revealed = np.asarray(agent_state.arrays.get("secure.numbers", np.zeros(2)), dtype=np.int64)
    return int(masked), int(revealed)


def _bytes(agent_state: AgentState, name: str) -> bytes:
    return np.asarray(agent_state.arrays[f"secure.{name}"], dtype=np.uint8).tobytes()


def _keys(agent_state: AgentState) -> list[bytes]:
    return [row.tobytes() for row in np.asarray(agent_state.arrays["secure.keys"], dtype=np.uint8)]


def _label(agent_state: AgentState, number: int) -> bytes:
    return _bytes(agent_state, "study") + number.to_bytes(8)
