"""Checks of what users pass, wherever the package takes a number, an integer or a flag.

`check_number`, `check_integer` and `check_flag` return the plain Python value of what was passed. Scalars of
NumPy, arrays and tensors without axes, fractions and decimals are numbers. A bool is a flag and no number, a
number is no flag, and a float is no integer. Other functions here check the parameters of a search space:
values that are equal in Python (`1`, `1.0`, `True`) are the same choice. An error names the thing, the
expectation and what came.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

from fbo_flower.errors import ConfigError, did_you_mean

Choice: TypeAlias = str | int | float | bool | None
MAX_VALUES = 2**40  # of a parameter: above it, float64 cannot resolve the bins of a log-scaled Int reliably
STEP_TOLERANCE = 1e-8  # of a step, as in Optuna
Conditions: TypeAlias = Mapping[str, Choice | Sequence[Choice]]

_PLAIN = frozenset({type(None), bool, int, float, str})


def show(value: object) -> str:
    """Return `value` as one line of at most 80 characters, for an error message."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an int of more than 4300 digits
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def plain(value: object) -> object:
    """Return the Python value of a scalar of NumPy, or of an array or a tensor without axes; others stay.

    >>> plain(np.int64(3)), plain(np.array(0.5)), plain([np.int64(3)])
    (3, 0.5, [np.int64(3)])
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.generic):  # counts of nanoseconds are no numbers
        return value if isinstance(value, np.datetime64 | np.timedelta64) else value.item()
    if getattr(value, "shape", None) == ():
        for name in ("item", "numpy"):  # tensors of TensorFlow have only the second
            if callable(method := getattr(value, name, None)):
                try:
                    return method() if name == "item" else plain(method())
                except Exception:  # of another library: a tensor that holds no value
                    return value
    return value


def as_real(value: object) -> float | None:
    """Return a real number as a plain int or float; None if the value is none. Flags are none.

    >>> as_real(np.float32(0.5)), as_real("0.5"), as_real(True), as_real(10**400)
    (0.5, None, None, inf)
    """
    value = plain(value)
    if isinstance(value, bool | np.bool_ | np.timedelta64) or not isinstance(value, numbers.Real | Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]  # an int or a fraction
    except ValueError:  # a Decimal that signals
        return math.nan
    return int(value) if isinstance(value, int) else number


def check_number(name: str, value: object, low: float, high: float = math.inf) -> float:
    """Return a number in `[low, high]`; raise ConfigError if it is none."""
    number = as_real(value)
    if number is None or not low <= number <= high:
        raise ConfigError(f"{name}: expected a number {_between(low, high)}, got {show(value)}")
    return number


def check_integer(name: str, value: object, low: float, high: float = math.inf) -> int:
    """Return an integer in `[low, high]`; raise ConfigError if it is none."""
    number = as_real(value)
    if not isinstance(number, int) or not low <= number <= high:
        raise ConfigError(f"{name}: expected an integer {_between(low, high)}, got {show(value)}")
    return number


def check_flag(name: str, value: object) -> bool:
    """Return True or False; raise ConfigError if the value is neither."""
    flag = plain(value)
    if not isinstance(flag, bool):
        raise ConfigError(f"{name}: expected True or False, got {show(value)}")
    return flag


def check_options(kind: Any, given: Iterable[str]) -> None:
    """Raise ConfigError, with the nearest name, unless a dataclass has all these fields."""
    defaults = {option.name: option.default for option in fields(kind) if option.init}
    for name in given:
        if name not in defaults:
            listing = ", ".join(k if v is MISSING else f"{k}={v!r}" for k, v in defaults.items())
            hint = did_you_mean(name, defaults, "options") or f"; it has {listing}"
            owner = getattr(kind, "name", kind.__name__)
            raise ConfigError(f"options: {owner} has no option {name!r}{hint}")


def _between(low: float, high: float) -> str:
    return f">= {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"


def is_choice(value: object) -> bool:
    """Return whether a value is of a type that choices may have."""
    return type(value) in _PLAIN


def finite(kind: str, what: str, value: object) -> float:
    """Return a finite number."""
    number = as_real(value)
    if number is not None and math.isfinite(number):
        return float(number) + 0.0  # turns -0.0 into 0.0, which is equal but written differently
    raise ConfigError(f"{kind}: expected {what} to be a finite number, got {show(value)}")


def integer(kind: str, what: str, value: object) -> int:
    """Return a 64-bit integer."""
    number = as_real(value)
    if not isinstance(number, int) or not -(2**63) <= number < 2**63:
        raise ConfigError(f"{kind}: expected {what} to be a 64-bit int, got {show(value)}")
    return number


def check_range(kind: str, low: float, high: float, log: object) -> bool:
    """Return whether the scale is a logarithmic one; ConfigError if the bounds form no interval of it."""
    log = check_flag(f"{kind}: log", log)
    if not low < high:
        raise ConfigError(f"{kind}: expected low < high, got {low=}, {high=}")
    if log and low <= 0:
        raise ConfigError(f"{kind}: expected low > 0 for a log scale, got {low=}")
    return log


def check_step(kind: str, low: float, high: float, log: bool, step: float, resolution: float = 0.0) -> None:
    """Raise ConfigError if a step does not divide the interval into values that float64 tells apart."""
    if log:
        raise ConfigError(f"{kind}: expected no step for a log scale, got {step=}; leave one of them out")
    steps = (high - low + 2 * resolution) / step
    if not (4 * resolution < step and 1 - STEP_TOLERANCE <= steps < MAX_VALUES):
        raise ConfigError(
            f"{kind}: expected 0 < step <= high - low, and at most 2**40 different values, got {low=}, "
            f"{high=}, {step=}"
        )


def distinct(kind: str, what: str, values: Iterable[object]) -> tuple[Choice, ...]:
    """Return plain values, at least one and all different."""
    found = tuple(_choice(kind, what, value) for value in values)
    if not found:
        raise ConfigError(f"{kind}: expected {what} to hold at least one value, got none")
    if len(set(found)) < len(found):
        twice = next(value for i, value in enumerate(found) if value in found[:i])
        raise ConfigError(
            f"{kind}: expected {what} to be different, got {show(twice)} twice (1 == 1.0 == True)"
        )
    return found


def _choice(kind: str, what: str, value: object) -> Choice:
    item = plain(value)
    if type(item) is float:
        return finite(kind, f"every float of {what}", item)
    if type(item) is int:
        return integer(kind, f"every int of {what}", item)
    if type(item) is str and not item.isprintable():
        # logs and reports show it, and lone surrogates do not survive JSON
        raise ConfigError(f"{kind}: expected every text of {what} to be printable, got {show(item)}")
    if is_choice(item):
        return item  # type: ignore[return-value]  # checked by the line above
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
