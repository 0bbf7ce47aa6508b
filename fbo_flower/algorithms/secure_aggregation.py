"""Secure sums: the server of any algorithm that needs only sums learns sums and no single summand.

`SecureAggregation` wraps such an algorithm. The server divides the agents into groups, and each round has
three half-rounds. In TRAIN, members of a group send their summands under random masks (`secure.rounds`). In
EVALUATE they sign who of the group has sent numbers (`secure.keys`). In REVEAL, members that see enough
signatures of the same list reveal the shares that remove the masks. The wrapped algorithm receives the total
of all good groups and the names of the agents in it; every agent in a sum adds something to it.

A group's sum fails when too many members leave, or when a member lies. A failed sum is never repeated,
because an agent masks the report of one piece of work once (`secure_member.py`). After a failure groups are
halved, so a misbehaving agent spoils a smaller sum.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import FunctionType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms import secure_member
from fbo_flower.algorithms.definition import results_of, returned_state, tasks_of
from fbo_flower.algorithms.messages import ArraySpec, Schema, Summand, arrays_of
from fbo_flower.algorithms.open_sum import REVEALED, SIGNATURE, OpenSum, bounds_of
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    Payload,
    Phase,
    Report,
    ServerResults,
    Task,
    floats,
    natural_key,
)
from fbo_flower.algorithms.requests import Draws, Rng, Session, Steps
from fbo_flower.algorithms.secure_member import MASKED, SUM, Member
from fbo_flower.errors import ConfigError, HookError, WireError
from fbo_flower.numerics.discrete_noise import Uniform
from fbo_flower.secure import fixed_point, keys, rounds
from fbo_flower.space.space import SearchSpace

PATIENCE = 5  # the study ends after this many failed sums in a row, if the algorithm needs them
MAX_NUMBERS = 2**22  # masked numbers in one report
_UNMASKING = (Phase.EVALUATE, Phase.REVEAL)


@dataclass(frozen=True)
class SecureState:
    """The server's state.

    Parameters
    ----------
    space : the search space
    inner : the wrapped algorithm's state
    study : id of the study, which members sign
    cards : agent -> its card (`secure.keys`)
    num_asked : sums asked for so far; the number of the last one
    open_sum : the sum that is not finished; None: there is none
    failures : sums with a failed group, minus later sums without one (at least 0): groups are halved this
        many times
    failures_in_a_row : consecutive sums without any result
    asked : agents that have a task in the open half-round
    silent : agents that did not answer their last task; sums leave them out until they answer one
    num_completed : sums that the wrapped algorithm received
    groups : of the last sum
    bound : groups whose members have signed a sum over all their observations: they sum again as a whole, or
        not at all, see `secure_member`
    """

    space: SearchSpace
    inner: Any
    study: str = ""
    cards: Mapping[str, bytes] = field(default_factory=dict)
    num_asked: int = 0
    open_sum: OpenSum | None = None
    failures: int = 0
    failures_in_a_row: int = 0
    asked: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    num_completed: int = 0
    groups: tuple[tuple[str, ...], ...] = ()
    bound: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class SecureAggregation(Algorithm[SecureState]):
    """An algorithm `wrapped`, whose server receives sums over `least` agents or more, and no summand."""

    phases: ClassVar[tuple[Phase, ...]] = (Phase.TRAIN, Phase.EVALUATE, Phase.REVEAL)
    sums_securely: ClassVar[bool] = True
    barrier: ClassVar[str] = "a secure sum needs several agents together (option secure_sums = 0 has none)"

    wrapped: Algorithm[Any]
    least: int

    def __post_init__(self) -> None:
        if "secure_sums" not in self.inner.options():
            raise ConfigError(
                f"secure_sums: expected an algorithm whose server needs only sums, got {self.inner.name}; "
                "set secure_sums=0"
            )
        if self.inner.phases != (Phase.TRAIN,):
            raise ConfigError(
                f"phases: expected (Phase.TRAIN,) of {self.inner.name} with secure_sums, because sums "
                f"need the other half-rounds, got {', '.join(self.inner.phases)}; set secure_sums=0"
            )

    @property
    def inner(self) -> Algorithm[Any]:
        return self.wrapped

    def for_outputs(self, names: tuple[str, ...]) -> Self:
        return replace(self, wrapped=self.wrapped.for_outputs(names))

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: Generator) -> SecureState:
        return SecureState(federation.space, self.inner.init(federation, rng))

    def inner_state(self, state: SecureState) -> Any:
        return state.inner

    def with_inner_state(self, state: SecureState, inner: Any) -> SecureState:
        return replace(state, inner=inner)

    def register_cards(self, state: SecureState, study: str, cards: Mapping[str, bytes]) -> SecureState:
        valid: dict[str, bytes] = {}
        used: set[bytes] = set()
        for agent in sorted(cards, key=natural_key):
            card = cards[agent]
            own = {keys.identity_of(card), keys.agreement_of(card)}
            is_known = state.cards.get(agent) == card or keys.is_card(card)
            if is_known and used.isdisjoint(own):  # of agents with a copied key only the first takes part
                valid[agent] = card
                used |= own
        return replace(state, study=study, cards=valid)

    def ask(
        self, state: SecureState, phase: Phase, server_round: int, present: Sequence[str], rng: Generator
    ) -> tuple[SecureState, dict[str, Task]]:
        if phase in _UNMASKING:
            state, tasks = self._ask_to_unmask(state, phase, server_round, present)
            return replace(state, asked=frozenset(tasks)), tasks
        state = self._close(state, [])  # if it is still open
        inner, tasks = tasks_of(self.inner, state.inner, phase, server_round, present, rng)
        state = replace(state, inner=inner, asked=frozenset(tasks))
        layouts = {agent: self.inner.summands(task, state.space) for agent, task in tasks.items()}
        summing = [agent for agent, layout in layouts.items() if layout]
        if not summing:
            return state, tasks
        self._check_alike(phase, {agent: tasks[agent] for agent in summing}, layouts)
        candidates = [agent for agent in summing if agent in state.cards and agent not in state.silent]
        groups = self._groups(state, candidates, rng)
        cards = {agent: state.cards[agent] for group in groups for agent in group}
        content = secure_member.digest_of(self.sum_content(tasks[summing[0]]))
        number = state.num_asked + 1
        open_sum = OpenSum(number, state.study, self.least, groups, cards, layouts[summing[0]], content)
        state = replace(state, num_asked=number, open_sum=open_sum, groups=groups)
        for group in groups:
            for agent in group:
                others = secure_member.to_rows([cards[a] for a in group if a != agent], keys.CARD_BYTES)
                task = tasks[agent]
                arrays = {**task.arrays, "secure.members": others}
                tasks[agent] = replace(task, arrays=arrays, values={**task.values, SUM: number})
        return state, tasks

    def _check_alike(
        self, phase: Phase, tasks: Mapping[str, Task], layouts: Mapping[str, Mapping[str, Summand]]
    ) -> None:
        """Raise ConfigError if the reports of these tasks cannot be one sum."""
        first, *others = tasks
        if phase is not Phase.TRAIN:
            raise ConfigError(
                f"{self.name}: expected tasks that ask for a sum in train only, got one in {phase}; "
                "let `asks_for_sum` return False there"
            )
        content = secure_member.digest_of(self.inner.sum_content(tasks[first]))
        for agent in others:
            if layouts[agent] != layouts[first]:
                raise ConfigError(
                    f"{self.name}: expected summable arrays of one shape from {first} and {agent}, got "
                    f"{_shapes(layouts[first])} and {_shapes(layouts[agent])}; let their shapes depend on "
                    "what all tasks of a round share"
                )
            if secure_member.digest_of(self.inner.sum_content(tasks[agent])) != content:
                raise ConfigError(
                    f"{self.name}: expected the same content for all members of a sum, got another one in "
                    f"the task of agent {agent} than of {first}; override `sum_content`, to return only what "
                    "the summed numbers depend on"
                )

    def tell(self, state: SecureState, phase: Phase, reports: Mapping[str, Report]) -> SecureState:
        if phase is Phase.EVALUATE:
            return self._read_signatures(state, reports)
        if phase is Phase.REVEAL:
            return self._close(state, [] if state.open_sum is None else state.open_sum.opened(reports))
        stripped = {}
        sent: dict[str, rounds.Masked] = {}
        for agent, report in reports.items():
            rest = {name: array for name, array in report.arrays.items() if name not in MASKED}
            stripped[agent] = replace(report, arrays=rest)
            masked = None if state.open_sum is None else state.open_sum.masked(report)
            if masked is not None:
                sent[agent] = masked
        return replace(
            state,
            inner=returned_state(
                self.inner, "tell", state.inner, self.inner.tell(state.inner, phase, stripped)
            ),
            open_sum=None if state.open_sum is None else replace(state.open_sum, sent=sent),
            silent=(state.silent | state.asked) - reports.keys(),
        )

    def finished(self, state: SecureState) -> bool:
        needed = self.inner.needs_sums
        return (needed and state.failures_in_a_row >= PATIENCE) or self.inner.finished(state.inner)

    def _groups(
        self, state: SecureState, candidates: Sequence[str], rng: Generator
    ) -> tuple[tuple[str, ...], ...]:
        """Divide the candidates at random into groups of at most `4 least`, halved `state.failures` times.

        When there are several groups, each has at least `1.5 least` agents, so that some may leave before the
        reveal. Fewer candidates than `least` give no group.

        While nothing fails and nobody comes or goes, groups stay: their members have agreed on keys, and sums
        over ever other agents would tell more about each. Bound groups always stay, and wait for each other.
        """
        taken = {agent for group in state.bound for agent in group}
        whole = tuple(group for group in state.bound if set(group) <= set(candidates))
        candidates = [agent for agent in candidates if agent not in taken]
        if len(candidates) < max(self.least, 2):
            return whole
        fewest = -(-len(candidates) // keys.largest_group(self.least))  # rounded up
        most = len(candidates) // (self.least + max(1, self.least // 2))
        number = max(1, min(fewest * 2**state.failures, most))
        groups = tuple(group for group in state.groups if group not in state.bound)
        last = {agent for group in groups for agent in group}
        stays = number == len(groups) and last == set(candidates) and not state.failures
        if stays:
            return whole + groups
        order = [candidates[i] for i in rng.permutation(len(candidates))]
        return whole + tuple(tuple(order[i::number]) for i in range(number))

    def _ask_to_unmask(
        self, state: SecureState, phase: Phase, server_round: int, present: Sequence[str]
    ) -> tuple[SecureState, dict[str, Task]]:
        """Return the tasks to sign or to reveal; without any, the sum has failed and is closed."""
        tasks: dict[str, Task] = {}
        open_sum = state.open_sum
        if open_sum is None:
            return state, tasks
        for group in open_sum.groups:
            there, needed = open_sum.there(group), keys.threshold(len(group), self.least)
            speakers = [agent for agent in there if agent in open_sum.signatures]
            if phase is Phase.EVALUATE:
                speakers = there
            for agent in speakers if len(speakers) >= needed else ():
                if agent in present:
                    others = [other for other in group if other != agent]
                    arrays: dict[str, AnyArray] = {
                        "secure.there": np.array([other in there for other in others], dtype=np.uint8)
                    }
                    if phase is Phase.REVEAL:
                        arrays = open_sum.shares(group, agent)
                    tasks[agent] = Task(phase, server_round, 0, 0, arrays, {SUM: state.num_asked})
        return (state if tasks else self._close(state, [])), tasks

    def _read_signatures(self, state: SecureState, reports: Mapping[str, Report]) -> SecureState:
        """Store the valid signatures; an agent without one counts as silent."""
        open_sum = state.open_sum
        if open_sum is None:
            return state
        signatures = open_sum.valid_signatures(reports)
        silent = state.silent | (state.asked - signatures.keys())
        bound = state.bound
        if self.inner.repeats_observations:
            signed = (tuple(open_sum.there(g)) for g in open_sum.groups if set(g) & signatures.keys())
            bound = tuple(dict.fromkeys((*bound, *signed)))
        return replace(state, open_sum=replace(open_sum, signatures=signatures), silent=silent, bound=bound)

    def _close(self, state: SecureState, good: Sequence[tuple[Sequence[str], Array]]) -> SecureState:
        """Return the state without an open sum; the wrapped algorithm gets the sums of the good groups.

        If no group is good, it learns that the reports were lost, unless no agent was asked to mask any.

        Parameters
        ----------
        good : agents and sum of each group that succeeded
        """
        open_sum = state.open_sum
        if open_sum is None:
            return state
        any_failed = len(good) < len(open_sum.groups)
        failures = state.failures + 1 if any_failed else max(0, state.failures - 1)
        state = replace(state, open_sum=None, failures=failures)
        if not good:
            inner = self.inner.skip_sum(state.inner) if open_sum.groups else state.inner
            waits = bool(state.bound) and not open_sum.groups  # for a member that is silent
            return replace(state, inner=inner, failures_in_a_row=state.failures_in_a_row + (not waits))
        sums = [(sorted(there, key=natural_key), open_sum.named(group_sum)) for there, group_sum in good]
        inner = self.inner.aggregate_groups(state.inner, sums)
        inner = returned_state(self.inner, "aggregate_sum", state.inner, inner)
        return replace(state, inner=inner, failures_in_a_row=0, num_completed=state.num_completed + 1)

    # -- the agent's half ----------------------------------------------------------------------

    def members(self, task: Task) -> list[bytes]:
        cards = np.asarray(task.arrays.get("secure.members", ()), dtype=np.uint8)
        return [keys.identity_of(card.tobytes()) for card in cards]

    def accept(self, task: Task, agent_state: AgentState) -> AgentState:
        member = Member.read(agent_state)
        if task.phase is Phase.EVALUATE:
            repeats = self.inner.repeats_observations
            member = secure_member.accept_signing(task, member, self.least, repeats)
            return member.write(agent_state)
        if task.phase is Phase.REVEAL:
            return secure_member.accept_reveal(task, member, self.least).write(agent_state)
        agent_state = self.inner.accept(task, agent_state)
        if SUM not in task.values or not self.inner.summands(task, agent_state.space):
            return replace(member, masks=False).write(agent_state)
        work = self.inner.sum_name(task, agent_state)
        content = self.sum_content(task)
        repeats = self.inner.repeats_observations
        accepted = secure_member.accept_masking(task, member, self.least, work, content, repeats)
        return accepted.write(agent_state)

    def sum_content(self, task: Task) -> Mapping[str, AnyArray]:
        """Return what must be the same for all members: parts of the task, and the options."""
        options = np.frombuffer(canonical_json(self.options()).encode(), dtype=np.uint8)
        return {**self.inner.sum_content(_without_sum(task)), "secure.options": options}

    def evaluation_task(self, task: Task) -> Task:
        return self.inner.evaluation_task(_without_sum(task))

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        if task.phase not in _UNMASKING:
            agent_state = yield from self.inner.session(task, agent_state, draws)
        return agent_state

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Payload | Steps[Payload]:
        if task.phase is Phase.EVALUATE:
            return Payload(values={SIGNATURE: secure_member.signature(Member.read(agent_state))})
        if task.phase is Phase.REVEAL:
            return Payload(values={REVEALED: secure_member.revealed(task, Member.read(agent_state))})
        return self.inner.summarise(task, agent_state, rng)

    def protect(self, task: Task, agent_state: AgentState, payload: Payload, uniform: Uniform) -> Payload:
        """Return the payload with masked words in place of the summands; masks never come from `uniform`."""
        if task.phase in _UNMASKING:
            return payload
        payload = self.inner.protect(task, agent_state, payload, uniform)
        arrays = dict(payload.arrays)
        layout = self.inner.summands(task, agent_state.space)
        specs = arrays_of(self.inner.report_content)
        for name in arrays.keys() & specs.keys() - layout.keys():
            if specs[name].bound is not None:
                raise HookError(
                    f"{self.name}: summarise: {name}: expected it in reports to tasks that ask for a sum "
                    "only, got it for another one; leave it out there, or let `asks_for_sum` return True"
                )
        clear = {name: floats(arrays.pop(name, np.zeros(s.shape))) for name, s in layout.items()}
        for name, summand in layout.items():
            if clear[name].shape != summand.shape:
                raise HookError(
                    f"{self.name}: summarise: {name}: expected an array {summand.shape}, as `summable` says, "
                    f"got {clear[name].shape}"
                )
        if SUM not in task.values or not layout:
            return Payload(arrays, payload.values)  # summands never leave the agent without a mask
        member = Member.read(agent_state)
        # it was masked before; or the agent has nothing to add, and would not hide the others' reports
        if not member.masks or not any(np.any(array) for array in clear.values()):
            return Payload(arrays, payload.values)
        flat = np.concatenate([np.ravel(clear[name]) for name in layout])
        words = fixed_point.encode(flat, bounds_of(layout))
        return Payload(arrays | secure_member.masked_arrays(words, member, self.least), payload.values)

    def uses_observations(self, task: Task, space: SearchSpace) -> bool:
        # in the later exchanges the agent sends only a signature and shares of masks
        return task.phase not in _UNMASKING and self.inner.uses_observations(task, space)

    # -- what may cross the wire ---------------------------------------------------------------

    def task_schema(self, space: SearchSpace) -> Schema:
        most = keys.largest_group(self.least) - 1
        own = {
            "secure.members": ArraySpec((None, keys.CARD_BYTES), "uint8", max_length=most),
            "secure.there": ArraySpec((None,), "uint8", max_length=most),
            "secure.boxes": ArraySpec((None, rounds.BOX_BYTES), "uint8", max_length=most),
            "secure.signatures": ArraySpec((None, keys.SIGNATURE_BYTES), "uint8", max_length=most),
        }
        inner = self.inner.task_schema(space)
        return Schema({**inner.arrays, **own}, {**inner.values, SUM: int})

    def report_schema(self, space: SearchSpace) -> Schema:
        most = keys.largest_group(self.least) - 1
        own = {
            "secure.words": ArraySpec((None, 2), "int64", -np.inf, np.inf, MAX_NUMBERS),
            "secure.boxes": ArraySpec((None, rounds.BOX_BYTES), "uint8", max_length=most),
            "secure.commitment": ArraySpec((keys.SEED_BYTES,), "uint8"),
        }
        inner = self.inner.report_schema(space)
        return Schema({**inner.arrays, **own}, {**inner.values, SIGNATURE: str, REVEALED: str})

    def check_report(self, task: Task, report: Report) -> None:
        """Raise WireError if a report lacks a part of the sum, or holds one that the task did not ask for."""
        received = [name for name in MASKED if name in report.arrays]
        asked = SUM in task.values and task.phase not in _UNMASKING
        if received and (not asked or len(received) < len(MASKED)):
            expected = ", ".join(MASKED) if asked else "none of a secure sum's arrays"
            raise WireError(f"names: expected {expected}, got {', '.join(received)}")
        if received and len(report.arrays["secure.boxes"]) != len(task.arrays["secure.members"]):
            raise WireError(
                f"secure.boxes: expected one for each of {len(task.arrays['secure.members'])} other members, "
                f"got {len(report.arrays['secure.boxes'])}",
                "shape",
            )
        for name, phase in ((SIGNATURE, Phase.EVALUATE), (REVEALED, Phase.REVEAL)):
            if (name in report.values) != (task.phase is phase):
                raise WireError(f"values: expected {name} in half-round {phase} and in no other", "values")
        if task.phase not in _UNMASKING:
            rest = {name: array for name, array in report.arrays.items() if name not in MASKED}
            self.inner.check_report(task, replace(report, arrays=rest))

    # -- what the server knows at the end --------------------------------------------------------

    def results(self, state: SecureState) -> ServerResults | None:
        found = results_of(self.inner, state.inner) or ServerResults()
        sums = {
            "sums_of_at_least": self.least,
            "sums_made": state.num_completed,
            "sums_asked_for": state.num_asked,
        }
        return replace(found, privacy={**found.privacy, **sums})


def _without_sum(task: Task) -> Task:
    """Return the task as the wrapped algorithm made it."""
    arrays = {name: array for name, array in task.arrays.items() if not name.startswith("secure.")}
    values = {name: value for name, value in task.values.items() if not name.startswith("secure.")}
    return replace(task, arrays=arrays, values=values)


def _shapes(layout: Mapping[str, Summand]) -> str:
    return ", ".join(f"{name} {summand.shape}" for name, summand in layout.items())


class _Forwarded:
    """A member of the wrapped algorithm; its methods get and return their own state, without the sums."""

    def __init__(self, name: str) -> None:
        method = inspect.getattr_static(Algorithm, name, None)
        self._name, self._is_method = name, isinstance(method, FunctionType)
        self._returns_state = getattr(method, "__annotations__", {}).get("return") == "State"

    def __get__(self, instance: SecureAggregation | None, owner: type[SecureAggregation]) -> Any:
        if instance is None:  # members of the class, as `Configurable` needs them
            return getattr(super(SecureAggregation, owner), self._name)
        member = getattr(instance.inner, self._name)
        return partial(self._call, member) if self._is_method else member

    def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        own = [a.inner if isinstance(a, SecureState) else a for a in arguments]
        result = method(*own, **named)
        return replace(arguments[0], inner=result) if self._returns_state else result


# whatever the class above does not define is the wrapped algorithm's
for _name in {"name", *dir(Algorithm)} - vars(SecureAggregation).keys():
    if not _name.startswith("_"):
        setattr(SecureAggregation, _name, _Forwarded(_name))
