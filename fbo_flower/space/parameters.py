"""The four kinds of parameter, how each maps its values to the unit interval, and when it is active.

A `Float` without a step covers the interval continuously. All others divide it into `k` bins, one per value:
bin `i` covers `[i/k, (i+1)/k)`, the last one also 1. A log-scaled `Int` divides `[low - 1/2, high + 1/2]` at
the half-integers and takes the logarithm, so that every integer has a bin and small integers have wide bins.

Values that are equal in Python (`1`, `1.0`, `True`) are the same choice: a list with two of them is refused.
A value matches a choice if both are equal and either both or neither are bool: `1.0` matches `1`, `True` does
not.

`unit` is a coordinate in [0, 1], `index` the number of a bin, counted from 0.

Which parameters are active follows from the graph that `active_when` forms. A parent is a parameter that
another one's `active_when` names. Axes are positions in the search space.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fbo_flower.errors import ConfigError, explains_names
from fbo_flower.space import checks
from fbo_flower.space.checks import Choice, Conditions, as_real, show
from fbo_flower.space.copies import copies

Array: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]

_DECIMAL = Context(prec=60)  # the user may have changed the precision of the default one


class _Discrete(ABC):
    """Base class of all kinds: a parameter with finitely many values, by default in bins of equal width."""

    active_when: Conditions | None

    @property
    def conditions(self) -> dict[str, tuple[Choice, ...]]:
        """Parent -> values of it that make this parameter active; the conditions of all parents must hold."""
        return checks.conditions_of(type(self).__name__, self.active_when) or {}

    def _set(self, **values: object) -> None:
        for name, value in values.items():  # bypasses the frozen dataclass
            object.__setattr__(self, name, value)

    @property
    @abstractmethod
    def num_values(self) -> int:
        """Number of values k."""

    @abstractmethod
    def value_at(self, index: int) -> Choice:
        """Return the value of the bin with this index."""

    @abstractmethod
    def index_of(self, value: object, name: str) -> int:
        """Return the index of the bin of `value`; an error message begins with `name`."""

    def edge_of(self, index: Indices) -> Array:
        """Return the lower edges of the bins with these indices `(n,)`; `edge_of(k)` is 1."""
        return index / self.num_values

    def centre_of(self, index: Indices) -> Array:
        """Return the centres of the bins with these indices `(n,)`."""
        return (index + 0.5) / self.num_values

    def bin_of(self, unit: Array) -> Indices:
        """Return the indices of the bins that contain the coordinates `(n,)`."""
        index = np.minimum(self._guess(unit), self.num_values - 1)
        # The guess may be off by one through rounding; compare with the edges to correct it.
        index = index - (unit < self.edge_of(index))
        return index + ((index < self.num_values - 1) & (unit >= self.edge_of(index + 1)))

    def _guess(self, unit: Array) -> Indices:
        return (unit * self.num_values).astype(np.int64)


@explains_names
@copies("active_when")
@dataclass(frozen=True)
class Float(_Discrete):
    """A real number in `[low, high]`.

    Parameters
    ----------
    low, high : finite, `low < high`
    log : uniform in the logarithm; requires `low > 0`
    step : the values are `low`, `low + step`, ..., in decimal arithmetic; `high` becomes the last one. None:
        all numbers; a log scale has no step
    active_when : `{parent: value or values}`: the parameter exists only for these values of its parents; None
        if it always exists

    Raises
    ------
    ConfigError
        If the bounds do not form an interval.
    """

    low: float
    high: float
    log: bool = False
    active_when: Conditions | None = field(default=None, hash=False)
    step: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        low, high = checks.finite("Float", "low", self.low), checks.finite("Float", "high", self.high)
        log = checks.check_range("Float", low, high, self.log)
        self._set(low=low, high=high, log=log, active_when=checks.conditions_of("Float", self.active_when))
        if self.step is not None:
            step = checks.finite("Float", "step", self.step)
            checks.check_step("Float", low, high, log, step, math.ulp(max(abs(low), abs(high))))
            self._set(step=step)
            self._set(high=self.value_at(self.num_values - 1))
        if not 0 < self._width < math.inf:
            scale = "the logarithms" if self.log else "the bounds"
            raise ConfigError(f"Float: expected {scale} to differ by a finite float, got {low=}, {high=}")

    @cached_property
    def num_values(self) -> int:
        low, high, step = (Decimal(repr(number)) for number in (self.low, self.high, self.step))
        steps = _DECIMAL.divide(_DECIMAL.subtract(high, low), step)
        return int(_DECIMAL.add(steps, Decimal(checks.STEP_TOLERANCE))) + 1

    def value_at(self, index: int) -> float:
        return float(_DECIMAL.fma(Decimal(repr(self.step)), int(index), Decimal(repr(self.low))))

    def index_of(self, value: object, name: str) -> int:
        """Return the index of the bin of `value`, which may differ from it by 1e-8 of a step."""
        number, step = as_real(value), self.step or 0.0
        if number is not None and self.low - step <= number <= self.high + step:
            index = min(max(round((number - self.low) / step), 0), self.num_values - 1)
            rounding = 2 * math.ulp(max(abs(self.low), abs(self.high)))
            if abs(number - self.value_at(index)) <= checks.STEP_TOLERANCE * step + rounding:
                return index
        raise ConfigError(
            f"{name}: expected a number in [{self.low}, {self.high}] in steps of {step}, got {show(value)}"
        )

    def value(self, unit: float) -> float:
        """Return the value at coordinate `unit`; exactly `low` at 0 and exactly `high` at 1."""
        if unit in {0.0, 1.0}:
            return self.high if unit else self.low
        step = unit * self._width
        value = math.exp(math.log(self.low) + step) if self.log else self.low + step
        return min(max(value, self.low), self.high)

    def unit(self, value: object, name: str) -> float:
        """Return the coordinate of `value`; an error message begins with `name`."""
        number = as_real(value)
        if number is None or not self.low <= number <= self.high:
            raise ConfigError(f"{name}: expected a number in [{self.low}, {self.high}], got {show(value)}")
        if number == self.high:
            return 1.0
        step = math.log(number) - math.log(self.low) if self.log else number - self.low
        return min(step / self._width, 1.0) + 0.0

    @cached_property
    def _width(self) -> float:
        return math.log(self.high) - math.log(self.low) if self.log else self.high - self.low


@explains_names
@copies("active_when")
@dataclass(frozen=True)
class Int(_Discrete):
    """An integer in `[low, high]`, both included.

    Parameters
    ----------
    low, high : `low < high`, 64-bit, at most 2**40 values
    log : bins of equal ratio instead of equal width; requires `low > 0` and `high <= 2**40`
    step : as of `Float`; a log scale has steps of 1
    active_when : as of `Float`

    Raises
    ------
    ConfigError
        If the bounds do not form a range.
    """

    low: int
    high: int
    log: bool = False
    active_when: Conditions | None = field(default=None, hash=False)
    step: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        low, high = checks.integer("Int", "low", self.low), checks.integer("Int", "high", self.high)
        log = checks.check_range("Int", low, high, self.log)
        if high - low >= checks.MAX_VALUES:
            raise ConfigError(
                f"Int: expected at most 2**40 values, got {low=}, {high=}; try a Float and round"
            )
        if log and high > checks.MAX_VALUES:
            raise ConfigError(
                f"Int: expected high <= 2**40 for a log scale, got {high=}; try a Float and round"
            )
        step = checks.integer("Int", "step", self.step)
        if step != 1:
            checks.check_step("Int", low, high, log, step)
        high = low + (high - low) // step * step
        conditions = checks.conditions_of("Int", self.active_when)
        self._set(low=low, high=high, log=log, step=step, active_when=conditions)

    @property
    def num_values(self) -> int:
        return (self.high - self.low) // self.step + 1

    def value_at(self, index: int) -> int:
        return self.low + int(index) * self.step

    def index_of(self, value: object, name: str) -> int:
        """Return the index of the bin of `value`; whole floats are accepted, bools are not."""
        number = as_real(value)
        if number is None or not self.low <= number <= self.high or number != int(number):
            raise ConfigError(f"{name}: expected an integer in {self._range}, got {show(value)}")
        index = (int(number) - self.low) // self.step
        if self.value_at(index) != number:
            raise ConfigError(f"{name}: expected an integer in {self._range}, got {show(value)}")
        return index

    @property
    def _range(self) -> str:
        return f"[{self.low}, {self.high}]" + (f" in steps of {self.step}" if self.step != 1 else "")

    def edge_of(self, index: Indices) -> Array:
        if not self.log:
            return super().edge_of(index)
        # log((low - 1/2 + index) / (low - 1/2)), divided by its value at index = k
        return np.asarray(np.log1p(index / (self.low - 0.5)) / self._width)

    def centre_of(self, index: Indices) -> Array:
        return (self.edge_of(index) + self.edge_of(index + 1)) / 2 if self.log else super().centre_of(index)

    def _guess(self, unit: Array) -> Indices:
        if not self.log:
            return super()._guess(unit)
        return ((self.low - 0.5) * np.expm1(unit * self._width)).astype(np.int64)

    @cached_property
    def _width(self) -> float:
        return float(np.log1p(self.num_values / (self.low - 0.5)))


@copies("active_when")
@dataclass(frozen=True)
class _Chosen(_Discrete):
    """A parameter that takes one of a list of values."""

    choices: Sequence[Choice]
    active_when: Conditions | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if isinstance(self.choices, str) or not isinstance(self.choices, Sequence | np.ndarray):
            raise ConfigError(f"{kind}: expected a list of choices, got {show(self.choices)}")
        choices = checks.distinct(kind, "choices", self.choices)
        self._set(choices=choices, active_when=checks.conditions_of(kind, self.active_when))

    @property
    def num_values(self) -> int:
        return len(self.choices)

    def value_at(self, index: int) -> Choice:
        return self.choices[index]

    def index_of(self, value: object, name: str) -> int:
        item = checks.plain(value)
        index = self._numbering.get(item) if checks.is_choice(item) else None
        if index is None or isinstance(item, bool) != isinstance(self.choices[index], bool):
            raise ConfigError(f"{name}: expected one of {show(list(self.choices))}, got {show(value)}")
        return index

    @cached_property
    def _numbering(self) -> dict[object, int]:
        return {choice: index for index, choice in enumerate(self.choices)}


@explains_names
@dataclass(frozen=True)
class Categorical(_Chosen):
    """One of several unordered values.

    Parameters
    ----------
    choices : at least one printable str, int, finite float, bool or None, all different
    active_when : as of `Float`

    Raises
    ------
    ConfigError
        If `choices` is not a list of different plain values.
    """


@explains_names
@dataclass(frozen=True)
class Ordinal(_Chosen):
    """One of several values in order, of which neighbours are similar; otherwise as `Categorical`."""


Parameter: TypeAlias = Float | Int | Categorical | Ordinal


def is_continuous(parameter: Parameter) -> TypeGuard[Float]:
    """Return whether a parameter takes all numbers of an interval: a `Float` without a step."""
    return isinstance(parameter, Float) and parameter.step is None


# conditional axis -> pairs (axis of a parent, indices of the parent's values that activate it)
Rules: TypeAlias = dict[int, tuple[tuple[int, frozenset[int]], ...]]


def check_parents(parameters: Mapping[str, Parameter]) -> None:
    """Raise ConfigError if a condition names an unknown or continuous parameter, or an unknown value."""
    for name, parameter in parameters.items():
        for parent, values in parameter.conditions.items():
            other = parameters.get(parent)
            if other is None:
                raise ConfigError(f"{name}: expected active_when to name parameters, got {show(parent)}")
            if is_continuous(other):
                raise ConfigError(
                    f"{name}: expected active_when to name discrete parameters, got Float {parent}"
                )
            for value in values:
                other.index_of(value, f"{name}: active_when {parent}")


def order_of(parameters: Mapping[str, Parameter]) -> tuple[int, ...]:
    """Return all axes, each after its parents and soon after the last of them; ConfigError for a cycle."""
    axis_of = {name: axis for axis, name in enumerate(parameters)}
    sorter = TopologicalSorter({name: tuple(p.conditions) for name, p in parameters.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = " -> ".join(error.args[1])
        raise ConfigError(f"search space: expected active_when without cycles, got {cycle[:200]}") from None
    ready, order = list(sorter.get_ready()), []
    while ready:
        name = ready.pop()
        order.append(axis_of[name])
        sorter.done(name)
        ready.extend(sorter.get_ready())
    return tuple(order)


def rules_of(parameters: Mapping[str, Parameter], order: Sequence[int]) -> Rules:
    """Return the rules of all conditional axes, parents before children.

    Parameters
    ----------
    order : as `order_of` returns it
    """
    names = tuple(parameters)
    axis_of = {name: axis for axis, name in enumerate(names)}
    rules: Rules = {}
    for axis in order:
        conditions = parameters[names[axis]].conditions
        if conditions:
            rules[axis] = tuple(
                (axis_of[name], frozenset(parent.index_of(value, name) for value in values))
                for name, values in conditions.items()
                if not is_continuous(parent := parameters[name])
            )
    return rules


def count_configs(parameters: Sequence[Parameter], order: Sequence[int], rules: Rules) -> int:
    """Return the number of different configurations of discrete parameters.

    Parameters
    ----------
    parameters : of all axes
    order, rules : as `order_of` and `rules_of` return them
    """
    # Dynamic programming over the axes. A state is the set of conditions (parent, child) that hold and
    # whose child is still to be visited; the cost depends on how many are open at the same time.
    opens: dict[int, dict[int, set[tuple[int, int]]]] = {}  # parent -> index -> conditions
    for child, pairs in rules.items():
        for parent, allowed in pairs:
            for index in allowed:
                opens.setdefault(parent, {}).setdefault(index, set()).add((parent, child))
    counts: Counter[frozenset[tuple[int, int]]] = Counter({frozenset(): 1})
    for axis in order:
        parameter = parameters[axis]
        assert not is_continuous(parameter), "it has infinitely many values"
        opened = Counter(frozenset(conditions) for conditions in opens.get(axis, {}).values())
        opened[frozenset()] += parameter.num_values - opened.total()
        needed = frozenset((parent, axis) for parent, _ in rules.get(axis, ()))
        following: Counter[frozenset[tuple[int, int]]] = Counter()
        for state, count in counts.items():
            for conditions, multiplicity in opened.items() if needed <= state else [(frozenset(), 1)]:
                following[(state - needed) | conditions] += count * multiplicity
        counts = following
    return counts.total()
