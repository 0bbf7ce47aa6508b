"""Checks of what users pass to parameters; an error names the kind, the expectation and what came.

Values of NumPy are turned into plain ones. Values that are equal in Python (`1`, `1.0`, `True`) are the same
choice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from fbo_flower.errors import ConfigError

Choice: TypeAlias = str | int | float | bool | None
MAX_VALUES = 2**40  # of a parameter: above it, float64 cannot resolve the bins of a log-scaled Int reliably
STEP_TOLERANCE = 1e-8  # of a step, as in Optuna
Conditions: TypeAlias = Mapping[str, Choice | Sequence[Choice]]


def show(value: object) -> str:
    """Return `value` as one line of at most 80 characters, for an error message."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an int of more than 4300 digits
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def plain_item(value: object) -> object:
    """Return a scalar of NumPy as a plain value; other values stay."""
    return value.item() if isinstance(value, np.generic) else value


def is_choice(value: object) -> bool:
    """Return whether a value is of a type that choices may have."""
    return value is None or type(value) in {str, int, float, bool}


def finite(kind: str, what: str, value: object) -> float:
    """Return a finite number."""
    number = plain_item(value)
    if type(number) in {int, float}:
        try:
            number = float(number)  # type: ignore[arg-type] # an int or a float, by the line above
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number + 0.0  # turns -0.0 into 0.0, which is equal but written differently
    raise ConfigError(f"{kind}: expected {what} to be a finite number, got {show(value)}")


def integer(kind: str, what: str, value: object) -> int:
    """Return a 64-bit integer."""
    number = plain_item(value)
    if type(number) is not int or not -(2**63) <= number < 2**63:
        raise ConfigError(f"{kind}: expected {what} to be a 64-bit int, got {show(value)}")
    return number


def check_range(kind: str, low: float, high: float, log: object) -> None:
    """Raise ConfigError if the bounds form no interval of the scale."""
    if type(log) is not bool:
        raise ConfigError(f"{kind}: expected log to be True or False, got {show(log)}")
    if not low < high:
        raise ConfigError(f"{kind}: expected low < high, got {low=}, {high=}")
    if log and low <= 0:
        raise ConfigError(f"{kind}: expected low > 0 for a log scale, got {low=}")


def check_step(kind: str, low: float, high: float, log: bool, step: float, resolution: float = 0.0) -> None:
    """Raise ConfigError if a step does not divide the interval into values that float64 tells apart."""
    if log:
        raise ConfigError(f"{kind}: expected no step for a log scale, got {step=}; leave one of them out")
    if not (4 * resolution < step and 1 - STEP_TOLERANCE <= (high - low) / step < MAX_VALUES):
        raise ConfigError(
            f"{kind}: expected 0 < step <= high - low, and at most 2**40 different values, got {low=}, "
            f"{high=}, {step=}"
        )


def distinct(kind: str, what: str, values: Iterable[object]) -> tuple[Choice, ...]:
    """Return plain values, at least one and all different."""
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
    plain = plain_item(value)
    if isinstance(plain, float) and type(plain) is float:
        return finite(kind, f"every float of {what}", plain)
    if isinstance(plain, int) and type(plain) is int:
        return integer(kind, f"every int of {what}", plain)
    if isinstance(plain, str) and type(plain) is str:
        if not plain.isprintable():  # logs and reports show it, and lone surrogates do not survive JSON
            raise ConfigError(f"{kind}: expected every text of {what} to be printable, got {show(plain)}")
        return plain
    if plain is None or isinstance(plain, bool):
        return plain
    raise ConfigError(f"{kind}: expected {what} to be str, int, float, bool or None, got {show(value)}")


def conditions_of(kind: str, active_when: object) -> dict[str, tuple[Choice, ...]] | None:
    """Return parent -> its values that make a parameter active; None: the parameter always exists."""
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
            sorted(distinct(kind, f"active_when[{show(parent)}]", listed), key=json.dumps)
        )
    return conditions
