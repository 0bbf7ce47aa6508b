"""Messages of algorithms: a dataclass says what may cross the wire, and algorithms read and write it.

    @dataclass(frozen=True, kw_only=True)
    class Advice(Content):
        weights: Annotated[Array | None, real("num_features")] = None
        message: bool = False

A field with an annotation is an array, any other one a scalar. What has its default does not travel. A length
is a number; the name of an option of the algorithm; "D", the axes of the space; a function of algorithm and
space; "len(cells)", the length of the task's array `cells`, up to `most`; "value(slots)", the task's scalar
`slots`; or None, any up to `most`.

`schema_of` makes its `Schema`; `wire` rejects every message that does not fit its schema.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np

from fbo_flower.algorithms.options import Configurable, canonical_json, check_secure_sums, checked
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    IntArray,
    Phase,
    Report,
    Scalar,
    Task,
    floats,
    natural_key,
)
from fbo_flower.errors import HookError, WireError
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True)
class ArraySpec:
    """The shape, type and bounds of one array.

    Parameters
    ----------
    shape : length of each axis; None allows any length up to `max_length`
    dtype : NumPy's name of the type
    low, high : inclusive bounds of every entry
    max_length : largest length of an axis whose length is None in `shape`
    """

    shape: tuple[int | None, ...]
    dtype: str = "float64"
    low: float = -1e12
    high: float = 1e12
    max_length: int = 4096


@dataclass(frozen=True)
class Schema:
    """The arrays and values that a task or a report may hold.

    Parameters
    ----------
    arrays : name -> shape, type and bounds
    values : name -> Python type
    """

    arrays: Mapping[str, ArraySpec] = field(default_factory=dict)
    values: Mapping[str, type] = field(default_factory=dict)


@dataclass(frozen=True)
class Summand:
    """The shape and bound of an array whose sum over agents is all that the server needs.

    Parameters
    ----------
    shape : shape of the array
    bound : largest absolute value of an entry
    """

    shape: tuple[int, ...]
    bound: float

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(np.prod(self.shape))


Bound = float | str | Callable[[Any, SearchSpace], float]
Length = int | str | None | Callable[[Any, SearchSpace], int]
AXES = "D", "F"  # axes and features of the space
STEPS = "steps"  # which steps of a task the rows of its arrays belong to, counted from 0
SUM = "secure.sum"  # value of a task: the number of the secure sum that it asks for
MEMBERS = "secure.members"  # array of a task: the cards of the other members of this sum


@dataclass(frozen=True)
class Spec:
    """What an array of a message may be; `real`, `whole` and `summable` make it.

    Parameters
    ----------
    shape : the length of each axis
    dtype : NumPy's name of the type
    low, high : inclusive bounds of every entry
    most : largest length of an axis that may have any
    per_step : whether a task of several trials has a row for each of some steps; `steps` says which
    bound : largest absolute value of an entry that is only summed over agents, the name of a property of the
        algorithm, or a function of algorithm and space; None: it is not summed
    repeats, needed : see `summable`
    with_trials : whether it comes with new trials only, as its noise is drawn once
    is_trials : whether it holds points and their values, so that only agents that disclose them take part
    disclose : the settings of `disclose` with which it may leave an agent; the algorithm works without it.
        None: any
    in_clear : whether a report with `secure_sums` may not hold it
    only_if : whether an algorithm allows the array, or the name of an option that says so; None: it does
    """

    shape: tuple[Length, ...]
    dtype: str = "float64"
    low: float = -1e12
    high: float = 1e12
    most: Length = 4096
    per_step: bool = False
    bound: Bound | None = None
    repeats: bool = True
    needed: bool = True
    with_trials: bool = False
    is_trials: bool = False
    disclose: tuple[str, ...] | None = None
    in_clear: bool = False
    only_if: Callable[[Any], bool] | str | None = None


def real(*shape: Length, low: float = -1e12, high: float = 1e12, **more: Any) -> Spec:
    """Return the specification of an array of numbers; `more`: further fields of `Spec`."""
    return Spec(shape, "float64", low, high, **more)


def whole(*shape: Length, low: float = 0, high: float = 2.0**62, **more: Any) -> Spec:
    """Return the specification of an array of integers; `more`: further fields of `Spec`."""
    return Spec(shape, "int64", low, high, **more)


def octets(*shape: Length, most: int) -> Spec:
    """Return the specification of an array of bytes."""
    return Spec(shape, "uint8", 0, 255, most)


def summable(*shape: Length, bound: Bound, low: float | None = None, **more: Any) -> Spec:
    """Return the specification of an array of which the server needs only the sum over agents.

    With `secure_sums` it travels in a secure sum, and a report that holds it in the clear is refused. Either
    way `Replies.sum` has the sum.

    Parameters
    ----------
    bound : largest absolute value of an entry, the name of a property of the algorithm, or a function of
        algorithm and space
    low : inclusive lower bound of an entry that travels in the clear; None: `-bound`
    more : further fields of `Spec`, such as `repeats`: whether it may be made from observations that an
        earlier sum held. If so, members take part with the same partners only, see `secure.member`. False:
        each sum holds new evaluations, or an agent sends one report in a study, or noise of a known cost
        protects the reports. `needed`: whether the algorithm cannot go on without sums, so that sums that
        fail again and again end the study
    """
    high = bound if isinstance(bound, int | float) else np.inf  # `schema_of` asks the algorithm
    return Spec(shape, low=-high if low is None else low, high=high, bound=bound, in_clear=True, **more)


def step_numbers() -> Spec:
    """Return the specification of `steps`, which a task of one trial has not."""
    return Spec((None,), "int64", 0, np.inf, "trials_per_round", per_step=True)


@dataclass(frozen=True, kw_only=True)
class Content:
    """What an algorithm puts into a task or a report; its subclasses have fields.

    The class of a report with summable arrays says which tasks ask for them, and what is summed.
    """

    # name of a scalar -> the option without which it is left out
    conditions: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @classmethod
    def for_evaluations(cls, task: Task) -> Task:
        """Return the part of a task that its evaluations depend on; the rest may change when sent again."""
        return task

    @classmethod
    def report_kind(cls, task: Task) -> str | None:
        """Return the kind of report that a task without trials asks for; an agent sends each kind once.

        None: the report holds nothing about observations, and the agent may send it any number of times. An
        algorithm with several final exchanges names each of them.
        """
        return ""

    @classmethod
    def is_asked_by(cls, task: Task) -> bool:
        """Return whether a task asks for a report with this content; by default each does."""
        return True

    @classmethod
    def asks_for_sum(cls, task: Task) -> bool:
        """Return whether a task asks for the summable arrays; by default in TRAIN."""
        return task.phase is Phase.TRAIN

    @classmethod
    def sum_name(cls, task: Task, agent_state: AgentState) -> str:
        """Return the name of the piece of work whose report is summed; an agent masks each name once.

        Reports that are made from the same observations must have the same name, whatever the task says. Two
        sums of the same work over different agents would differ by a report. By default the name is the
        number of the agent's trials.
        """
        return f"trials {max(task.end, agent_state.next_trial)}"

    @classmethod
    def sum_content(cls, task: Task) -> Mapping[str, AnyArray]:
        """Return the parts of a task that must be the same for all agents in a sum.

        A server that asks one agent about something else than the others would learn that agent's report.
        By default they are the whole content. An algorithm that tells agents different things returns those
        on which the summed numbers depend.
        """
        values = np.frombuffer(canonical_json(dict(task.values)).encode(), dtype=np.uint8)
        return {**task.arrays, "values": values}

    @classmethod
    def of(cls, message: Task | Report) -> Self:
        """Return the content of a message that has passed its schema; what a secure sum adds is left out."""
        own = cls.__dataclass_fields__
        found = {name: array for name, array in message.arrays.items() if name in own}
        return cls(**found, **{name: value for name, value in message.values.items() if name in own})

    @classmethod
    def of_step(cls, task: Task, trial: int, trials_per_round: int) -> Self:
        """Return the content of a task as one of its steps finds it.

        Raises
        ------
        WireError
            If rows do not belong to ascending steps.
        """
        if trials_per_round == 1:
            return cls.of(task)
        steps = steps_of(task)
        specs = arrays_of(cls)
        names = [n for n in task.arrays if n in specs and n != STEPS and specs[n].per_step]
        for name in names:
            if len(task.arrays[name]) != len(steps):
                raise WireError(
                    f"{name}: expected a row for each of {len(steps)} {STEPS}, got {len(task.arrays[name])}",
                    "shape",
                )
        # copies: an array that was read from bytes may be unaligned, and its products rounded otherwise
        found = np.flatnonzero(steps == trial - task.trial)
        rows = {name: np.array(floats(task.arrays[name])[row]) for row in found for name in names}
        return replace(cls.of(task), **{STEPS: None, **dict.fromkeys(names), **rows})

    @cached_property
    def arrays(self) -> Mapping[str, AnyArray]:
        """The arrays that travel, by name."""
        found = {}
        for name in arrays_of(type(self)):
            if (array := getattr(self, name)) is not None:
                found[name] = array
        return found

    @cached_property
    def values(self) -> Mapping[str, Scalar]:
        """The scalars that travel, by name."""
        kind, found = type(self), {}
        arrays_of(kind)
        for name in _SCALARS[kind]:
            if (value := getattr(self, name)) != getattr(kind, name):
                found[name] = value
        return found

    def task(self, phase: Phase, server_round: int, trial: int, num_trials: int) -> Task:
        """Return a task with this content."""
        return Task(phase, server_round, trial, num_trials, self.arrays, self.values)


@dataclass(frozen=True, kw_only=True)
class Reporting(Configurable):
    """What has tasks and reports with a content; the base of `Algorithm`."""

    task_content: ClassVar[type[Content]] = Content
    report_content: ClassVar[type[Content]] = Content

    def __init_subclass__(cls, **more: Any) -> None:
        """Give the option `secure_sums` to a class whose reports have summable arrays, unless it has one."""
        super().__init_subclass__(**more)
        try:
            sums = bool(summable_of(cls.report_content))
        except (TypeError, NameError):  # `definition.check_definition` says what is wrong
            return
        if sums and isinstance(inspect.getattr_static(cls, "secure_sums"), property):
            cls.__annotations__ = {**inspect.get_annotations(cls), "secure_sums": "int"}
            setattr(cls, "secure_sums", checked(0, check_secure_sums))  # noqa: B010  # a property here

    @property
    def secure_sums(self) -> int:
        """The smallest number of agents in a secure sum; 0 for no secure sums."""
        return 0


class Replies(dict[str, Report]):
    """The reports of the agents that answered in a half-round, and the sums over them.

    Parameters
    ----------
    reports : agent -> its report
    content : the class of the reports' content
    groups : agents and sums by name of each group of a secure sum; empty: it failed. None: the reports hold
        their summable arrays
    """

    def __init__(
        self,
        reports: Mapping[str, Report],
        content: type[Content] = Content,
        groups: Sequence[tuple[Sequence[str], Mapping[str, Array]]] | None = None,
    ) -> None:
        super().__init__(reports)
        self._content, self._groups = content, groups
        self.unread = bool(groups)  # whether the sums were not looked at

    @property
    def failed(self) -> bool:
        """Whether a secure sum failed in every group; the same work is never summed again."""
        return self._groups is not None and not self._groups

    @property
    def groups(self) -> Sequence[tuple[Sequence[str], Mapping[str, Array]]]:
        """Agents and sums by name of each group of a secure sum; none without one."""
        self.unread = False
        return self._groups or ()

    @cached_property
    def sums(self) -> Mapping[str, Array]:
        """Name of a summable array -> its sum over agents; an array that some reports lack counts as zeros.

        Empty if no report holds any, or the secure sum failed.
        """
        names = summable_of(self._content)
        groups: list[Mapping[str, AnyArray]] = [sums for _, sums in self.groups]
        if self._groups is None:
            groups = [self[agent].arrays for agent in sorted(self, key=natural_key)]
        found = {name: [floats(one[name]) for one in groups if name in one] for name in names}
        return {name: np.sum(arrays, axis=0) for name, arrays in found.items() if arrays}

    def sum(self, name: str) -> Array | None:
        """Return the sum of a summable array over agents; None if there is none.

        HookError if no array of this name is summable.
        """
        if name not in (known := summable_of(self._content)):
            raise HookError(
                f"tell: expected the sum of a `summable` array of {self._content.__name__}, which are "
                f"{', '.join(known) or 'none'}, got {name!r}"
            )
        return self.sums.get(name)


def without_sum(task: Task) -> Task:
    """Return a task as the algorithm made it, without what a secure sum adds."""
    if SUM not in task.values:
        return task
    arrays, values = (
        {name: entry for name, entry in entries.items() if not name.startswith("secure.")}
        for entries in (task.arrays, task.values)
    )
    return replace(task, arrays=arrays, values=values)  # type: ignore[arg-type]


def rows_of(steps: Sequence[Mapping[str, AnyArray]]) -> dict[str, AnyArray]:
    """Return the arrays of a task from those for each of its steps; some steps may have none."""
    which = [step for step, arrays in enumerate(steps) if arrays]
    if not which:
        return {}
    rows = {name: np.array([steps[step][name] for step in which]) for name in steps[which[0]]}
    return {**rows, STEPS: np.array(which, dtype=np.int64)}


def steps_of(task: Task) -> IntArray:
    """Return to which steps the rows of a task belong; WireError unless they ascend."""
    steps = np.asarray(task.arrays.get(STEPS, ()), dtype=np.int64)
    if (np.diff(steps) <= 0).any():
        raise WireError(f"{STEPS}: expected numbers that ascend, got {steps.tolist()}", "content")
    return steps


def has_step(task: Task, trial: int, trials_per_round: int) -> bool:
    """Return whether a step has a row in its task, or the task has one step."""
    return trials_per_round == 1 or bool((steps_of(task) == trial - task.trial).any())


_ARRAYS: dict[type[Content], Mapping[str, Spec]] = {}
_SCALARS: dict[type[Content], Mapping[str, type]] = {}  # in the order of their names


def arrays_of(content: type[Content]) -> Mapping[str, Spec]:
    """Return the specification of every array of a class of contents, by name."""
    if content not in _ARRAYS:
        hints = get_type_hints(content, include_extras=True)
        specs = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
        names = sorted(f.name for f in fields(content))
        _SCALARS[content] = {name: hints[name] for name in names if specs[name] is None}
        _ARRAYS[content] = {name: spec for name, spec in specs.items() if isinstance(spec, Spec)}
    return _ARRAYS[content]


def schema_of(content: type[Content], algorithm: Reporting, space: SearchSpace) -> Schema:
    """Return what a message with this content may hold, for the options of an algorithm."""
    at_once = getattr(algorithm, "trials_per_round", 1)
    arrays: dict[str, ArraySpec] = {}
    for name, spec in arrays_of(content).items():
        if not _allows(algorithm, spec) or (name == STEPS and at_once == 1):
            continue
        shape = tuple(_length(n, algorithm, space) for n in spec.shape)
        most, low, high = _length(spec.most, algorithm, space) or 0, spec.low, spec.high
        if spec.bound is not None and not isinstance(spec.bound, int | float):
            bound = _bound(spec, algorithm, space)
            low, high = max(low, -bound), bound
        if name == STEPS:
            high = at_once - 1
        elif spec.per_step and at_once > 1:
            shape, most = (None, *shape), at_once
        arrays[name] = ArraySpec(shape, spec.dtype, low, high, most)
    missing = {name for name, option in content.conditions.items() if not getattr(algorithm, option)}
    return Schema(arrays, {name: kind for name, kind in _SCALARS[content].items() if name not in missing})


def report_schema(algorithm: Reporting, space: SearchSpace) -> Schema:
    """Return the arrays and values that a report may hold; those that a secure sum carries are not."""
    return schema_of(algorithm.report_content, algorithm, space)


def uses_observations(algorithm: Reporting, space: SearchSpace, task: Task) -> bool:
    """Return whether the report of a task may depend on the agent's observations."""
    if not algorithm.report_content.is_asked_by(task):
        return False
    schema = report_schema(algorithm, space)
    return bool(schema.arrays or schema.values or summands_of(algorithm, space, task))


def _bound(spec: Spec, algorithm: Reporting, space: SearchSpace) -> float:
    if callable(spec.bound):
        return spec.bound(algorithm, space)
    return float(getattr(algorithm, spec.bound) if isinstance(spec.bound, str) else spec.bound or 0.0)


def _allows(algorithm: Reporting, spec: Spec) -> bool:
    """Return whether a message may hold the array, outside a secure sum."""
    if spec.in_clear and algorithm.secure_sums:
        return False
    if isinstance(spec.only_if, str):
        return bool(getattr(algorithm, spec.only_if))
    return spec.only_if is None or spec.only_if(algorithm)


def summable_of(content: type[Content]) -> dict[str, Spec]:
    """Return the specification of every array of a content that is only summed, by name."""
    return {name: spec for name, spec in arrays_of(content).items() if spec.bound is not None}


def summands_of(algorithm: Reporting, space: SearchSpace, task: Task) -> dict[str, Summand]:
    """Return name -> shape and bound of the arrays that a task asks for in a secure sum, if it asks for one.

    If a report leaves such an array out, it counts as zeros.
    """
    if not algorithm.secure_sums or not algorithm.report_content.asks_for_sum(task):
        return {}
    found: dict[str, Summand] = {}
    for name, spec in summable_of(algorithm.report_content).items():
        shape = tuple(_length(n, algorithm, space, task) or 0 for n in spec.shape)
        found[name] = Summand(shape, _bound(spec, algorithm, space))
    return found


def reports_trials(algorithm: Reporting) -> bool:
    """Return whether reports hold points and values; then only agents that disclose trials take part."""
    specs = arrays_of(algorithm.report_content).values()
    return any(spec.is_trials and _allows(algorithm, spec) for spec in specs)


def length_of(length: object) -> str:
    """Return the array of a task in "len(cells)"; "" in any other length."""
    return length[4:-1] if isinstance(length, str) and length.startswith("len(") else ""


def value_of(length: object) -> str:
    """Return the scalar of a task in "value(slots)"; "" in any other length."""
    return length[6:-1] if isinstance(length, str) and length.startswith("value(") else ""


def _length(length: Length, algorithm: Reporting, space: SearchSpace, task: Task | None = None) -> int | None:
    if array := length_of(length):
        return len(task.arrays.get(array, ())) if task is not None else None
    if scalar := value_of(length):
        return int(task.values.get(scalar, 0)) if task is not None else None
    if isinstance(length, str):
        return space.dimension if length == "D" else int(getattr(algorithm, length))
    return length(algorithm, space) if callable(length) else length
