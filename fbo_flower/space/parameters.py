"""The four kinds of parameter, and how each maps its values to the unit interval.

A `Float` covers the interval continuously. The discrete kinds divide it into `k` bins, one per value: bin `i`
covers `[i/k, (i+1)/k)`, the last one also 1. A log-scaled `Int` divides `[low - 1/2, high + 1/2]` at the
half-integers and takes the logarithm, so that every integer has a bin and small integers have wide bins.

Values that are equal in Python (`1`, `1.0`, `True`) are the same choice: a list with two of them is refused.
A value matches a choice if both are equal and either both or neither are bool: `1.0` matches `1`, `True` does
not.

`unit` is a coordinate in [0, 1], `index` the number of a bin, counted from 0.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fbo_flower.errors import ConfigError

Array: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]
Choice: TypeAlias = str | int | float | bool | None
Conditions: TypeAlias = Mapping[str, Choice | Sequence[Choice]]

MAX_VALUES = 2**40  # above it, float64 cannot resolve the bins of a log-scaled Int reliably


def show(value: object) -> str:
    """Return `value` as one line of at most 80 characters, for an error message."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an int of more than 4300 digits
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


class _Parameter:
    """Base class of all kinds."""

    active_when: Conditions | None

    @property
    def conditions(self) -> dict[str, tuple[Choice, ...]]:
        """Parent -> values of it that make this parameter active; the conditions of all parents must hold."""
        return _conditions(type(self).__name__, self.active_when) or {}

    def _set(self, **values: object) -> None:
        for name, value in values.items():  # bypasses the frozen dataclass
            object.__setattr__(self, name, value)


class _Discrete(_Parameter, ABC):
    """A parameter with finitely many values; by default its bins have equal width."""

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


@dataclass(frozen=True)
class Float(_Parameter):
    """A real number in `[low, high]`.

    Parameters
    ----------
    low, high : finite, `low < high`
    log : uniform in the logarithm; requires `low > 0`
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

    def __post_init__(self) -> None:
        low, high = _finite("Float", "low", self.low), _finite("Float", "high", self.high)
        _check_range("Float", low, high, self.log)
        self._set(low=low, high=high, active_when=_conditions("Float", self.active_when))
        if not 0 < self._width < math.inf:
            scale = "the logarithms" if self.log else "the bounds"
            raise ConfigError(f"Float: expected {scale} to differ by a finite float, got {low=}, {high=}")

    def value(self, unit: float) -> float:
        """Return the value at coordinate `unit`; exactly `low` at 0 and exactly `high` at 1."""
        if unit in {0.0, 1.0}:
            return self.high if unit else self.low
        step = unit * self._width
        value = math.exp(math.log(self.low) + step) if self.log else self.low + step
        return min(max(value, self.low), self.high)

    def unit(self, value: object, name: str) -> float:
        """Return the coordinate of `value`; an error message begins with `name`."""
        number = _item(value)
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not self.low <= number <= self.high
        ):
            raise ConfigError(f"{name}: expected a number in [{self.low}, {self.high}], got {show(value)}")
        if number == self.high:
            return 1.0
        step = math.log(number) - math.log(self.low) if self.log else number - self.low
        return min(step / self._width, 1.0) + 0.0

    @cached_property
    def _width(self) -> float:
        return math.log(self.high) - math.log(self.low) if self.log else self.high - self.low


@dataclass(frozen=True)
class Int(_Discrete):
    """An integer in `[low, high]`, both included.

    Parameters
    ----------
    low, high : `low < high`, 64-bit, at most 2**40 values
    log : bins of equal ratio instead of equal width; requires `low > 0` and `high <= 2**40`
    active_when : `{parent: value or values}`: the parameter exists only for these values of its parents; None
        if it always exists

    Raises
    ------
    ConfigError
        If the bounds do not form a range.
    """

    low: int
    high: int
    log: bool = False
    active_when: Conditions | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        low, high = _integer("Int", "low", self.low), _integer("Int", "high", self.high)
        _check_range("Int", low, high, self.log)
        if high - low >= MAX_VALUES:
            raise ConfigError(
                f"Int: expected at most 2**40 values, got {low=}, {high=}; try a Float and round"
            )
        if self.log and high > MAX_VALUES:
            raise ConfigError(
                f"Int: expected high <= 2**40 for a log scale, got {high=}; try a Float and round"
            )
        self._set(low=low, high=high, active_when=_conditions("Int", self.active_when))

    @property
    def num_values(self) -> int:
        """Number of values k."""
        return self.high - self.low + 1

    def value_at(self, index: int) -> int:
        """Return the value of the bin with this index."""
        return self.low + int(index)

    def index_of(self, value: object, name: str) -> int:
        """Return the index of the bin of `value`; whole floats are accepted, bools are not."""
        number = _item(value)
        whole = isinstance(number, int) or (isinstance(number, float) and number.is_integer())
        if isinstance(number, bool) or not whole or not self.low <= number <= self.high:  # type: ignore[operator] # whole: a number
            raise ConfigError(f"{name}: expected an integer in [{self.low}, {self.high}], got {show(value)}")
        return int(number) - self.low  # type: ignore[call-overload, no-any-return] # whole: a number

    def edge_of(self, index: Indices) -> Array:
        """Return the lower edges of the bins with these indices `(n,)`; `edge_of(k)` is 1."""
        if not self.log:
            return super().edge_of(index)
        # log((low - 1/2 + index) / (low - 1/2)), divided by its value at index = k
        return np.asarray(np.log1p(index / (self.low - 0.5)) / self._width)

    def centre_of(self, index: Indices) -> Array:
        """Return the centres of the bins with these indices `(n,)`."""
        return (self.edge_of(index) + self.edge_of(index + 1)) / 2 if self.log else super().centre_of(index)

    def _guess(self, unit: Array) -> Indices:
        if not self.log:
            return super()._guess(unit)
        return ((self.low - 0.5) * np.expm1(unit * self._width)).astype(np.int64)

    @cached_property
    def _width(self) -> float:
        return float(np.log1p(self.num_values / (self.low - 0.5)))


class _Chosen(_Discrete):
    """Base class of parameters that take one of a list of values."""

    choices: Sequence[Choice]

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if isinstance(self.choices, str) or not isinstance(self.choices, Sequence | np.ndarray):
            raise ConfigError(f"{kind}: expected a list of choices, got {show(self.choices)}")
        choices = _distinct(kind, "choices", self.choices)
        self._set(choices=choices, active_when=_conditions(kind, self.active_when))

    @property
    def num_values(self) -> int:
        """Number of values k."""
        return len(self.choices)

    def value_at(self, index: int) -> Choice:
        """Return the value of the bin with this index."""
        return self.choices[index]

    def index_of(self, value: object, name: str) -> int:
        """Return the index of the bin of `value`; an error message begins with `name`."""
        plain = _item(value)
        index = self._numbering.get(plain) if _is_choice(plain) else None
        if index is None or isinstance(plain, bool) != isinstance(self.choices[index], bool):
            raise ConfigError(f"{name}: expected one of {show(list(self.choices))}, got {show(value)}")
        return index

    @cached_property
    def _numbering(self) -> dict[object, int]:
        return {choice: index for index, choice in enumerate(self.choices)}


@dataclass(frozen=True)
class Categorical(_Chosen):
    """One of several unordered values.

    Parameters
    ----------
    choices : at least one str, int, finite float, bool or None, all different
    active_when : `{parent: value or values}`: the parameter exists only for these values of its parents; None
        if it always exists

    Raises
    ------
    ConfigError
        If `choices` is not a list of different plain values.
    """

    choices: Sequence[Choice]
    active_when: Conditions | None = field(default=None, hash=False)


@dataclass(frozen=True)
class Ordinal(_Chosen):
    """One of several ordered values; neighbouring values are similar.

    Parameters
    ----------
    choices : at least one str, int, finite float, bool or None, all different, in order
    active_when : `{parent: value or values}`: the parameter exists only for these values of its parents; None
        if it always exists

    Raises
    ------
    ConfigError
        If `choices` is not a list of different plain values.
    """

    choices: Sequence[Choice]
    active_when: Conditions | None = field(default=None, hash=False)


Parameter: TypeAlias = Float | Int | Categorical | Ordinal


def _item(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def _is_choice(value: object) -> bool:
    return value is None or type(value) in {str, int, float, bool}


def _finite(kind: str, what: str, value: object) -> float:
    number = _item(value)
    if type(number) in {int, float}:
        try:
            number = float(number)  # type: ignore[arg-type] # an int or a float, by the line above
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number + 0.0  # turns -0.0 into 0.0, which is equal but written differently
    raise ConfigError(f"{kind}: expected {what} to be a finite number, got {show(value)}")


def _integer(kind: str, what: str, value: object) -> int:
    number = _item(value)
    if type(number) is not int or not -(2**63) <= number < 2**63:
        raise ConfigError(f"{kind}: expected {what} to be a 64-bit int, got {show(value)}")
    return number


def _check_range(kind: str, low: float, high: float, log: object) -> None:
    if type(log) is not bool:
        raise ConfigError(f"{kind}: expected log to be True or False, got {show(log)}")
    if not low < high:
        raise ConfigError(f"{kind}: expected low < high, got {low=}, {high=}")
    if log and low <= 0:
        raise ConfigError(f"{kind}: expected low > 0 for a log scale, got {low=}")


def _distinct(kind: str, what: str, values: Iterable[object]) -> tuple[Choice, ...]:
    plain = tuple(_choice(kind, what, value) for value in values)
    if not plain:
        raise ConfigError(f"{kind}: expected {what} to hold at least one value, got none")
    if len(set(plain)) < len(plain):
        twice = next(value for i, value in enumerate(plain) if value in plain[:i])
        raise ConfigError(
            f"{kind}: expected {what} to be different, got {show(twice)} twice (1 == 1.0 == True)"
        )
    return plain


def _choice(kind: str, what: str, value: object) -> Choice:
    plain = _item(value)
    if isinstance(plain, float) and type(plain) is float:
        return _finite(kind, f"every float of {what}", plain)
    if isinstance(plain, int) and type(plain) is int:
        return _integer(kind, f"every int of {what}", plain)
    if isinstance(plain, str) and type(plain) is str:
        if any(
            "\ud800" <= character <= "\udfff" for character in plain
        ):  # lone surrogates do not survive JSON
            raise ConfigError(f"{kind}: expected {what} to be valid Unicode, got {show(plain)}")
        return plain
    if plain is None or isinstance(plain, bool):
        return plain
    raise ConfigError(f"{kind}: expected {what} to be str, int, float, bool or None, got {show(value)}")


def _conditions(kind: str, active_when: object) -> dict[str, tuple[Choice, ...]] | None:
    if active_when is None:
        return None
    if not isinstance(active_when, Mapping) or not active_when:
        raise ConfigError(f"{kind}: expected active_when to be {{parent: values}}, got {show(active_when)}")
    conditions = {}
    for parent, values in active_when.items():
        if not isinstance(parent, str):
            raise ConfigError(f"{kind}: expected active_when to name parents, got {show(parent)}")
        listed = values if isinstance(values, list | tuple) else (values,)
        # Sorted, so that the order of the values does not change the digest of the space.
        conditions[parent] = tuple(
            sorted(_distinct(kind, f"active_when[{show(parent)}]", listed), key=json.dumps)
        )
    return conditions
