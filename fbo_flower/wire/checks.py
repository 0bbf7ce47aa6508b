"""Checks of the arrays and scalars of a message, which are not trusted until they have passed.

Each function returns what it checked, or raises a `WireError` that says what was expected. Tasks of one round
share arrays and repeat values, so the last results are kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import cast

import numpy as np

from fbo_flower.algorithms.messages import ArraySpec, Schema
from fbo_flower.algorithms.records import AnyArray, Scalar
from fbo_flower.errors import WireError

MAX_TEXT = 2**20  # characters of one text
MAX_NAME = 256  # characters of a name or an id
MAX_ENTRIES = 64  # scalars of a message; more are counted, not looked at
MAX_TRIALS = 2**53
MAX_KEPT = 2**16  # bytes of an array whose range is kept

_least, _largest = np.minimum.reduce, np.maximum.reduce  # NaN if there is one

# By name, the array of the last message that nobody can change, its specification, and its range.
_LAST_CHECKED: dict[str, tuple[AnyArray, ArraySpec, float, float]] = {}


def checked_arrays(arrays: Mapping[str, AnyArray], allowed: Mapping[str, ArraySpec]) -> dict[str, AnyArray]:
    """Return the arrays, if their names are allowed and each fits its specification."""
    return {name: _checked_array(name, array, allowed) for name, array in arrays.items()}


def _checked_array(name: str, array: AnyArray, allowed: Mapping[str, ArraySpec]) -> AnyArray:
    spec = allowed.get(name)
    if spec is None:
        known = ", ".join(allowed) or "none"
        raise WireError(f"arrays: expected only {known}, got {show(name)}", "names")
    last = _LAST_CHECKED.get(name)
    if last is not None and last[0] is array and last[1] is spec:
        return array  # messages that are answered together share arrays
    fits = array.shape == spec.shape or (
        len(array.shape) == len(spec.shape)
        and all(
            length <= spec.max_length if expected is None else length == expected
            for length, expected in zip(array.shape, spec.shape, strict=True)
        )
    )
    if array.dtype != spec.dtype or not fits:
        raise WireError(
            f"{name}: expected {spec.shape} {spec.dtype}, got {show(array.shape)} {array.dtype}",
            "shape" if array.dtype == spec.dtype else "dtype",
        )
    if array.dtype == np.uint8:
        return array  # bytes of a model; every byte is allowed
    if math.isinf(spec.low) and math.isinf(spec.high):
        return array  # NaN is allowed; the code that reads the array gives it a meaning
    if not array.size:
        return array
    last_range = last[2:] if last is not None and last[0] is array else None
    least, largest = last_range or _range(array)
    if not (least >= spec.low and largest <= spec.high):
        numbers = np.asarray(array, dtype=np.float64)
        raise WireError(
            f"{name}: expected finite numbers between {spec.low:g} and {spec.high:g}",
            "bounds" if np.isfinite(numbers).all() else "not-finite",
        )
    if not array.flags.writeable and array.nbytes <= MAX_KEPT:
        _LAST_CHECKED[name] = array, spec, least, largest
    return array


def _range(array: AnyArray) -> tuple[float, float]:
    """Return the least and the largest number; NaN if there is one."""
    numbers = np.asarray(array, dtype=np.float64)
    return float(_least(numbers, axis=None)), float(_largest(numbers, axis=None))


def checked_values(config: Mapping[str, Scalar], schema: Schema) -> dict[str, Scalar]:
    """Return the entry `values`, JSON of the scalars that a schema allows."""
    if config.get("values") == "{}":
        return {}
    values = json_object(config, "values")
    for name, value in values.items():
        kind = schema.values.get(name)
        if kind is None or type(value) is not kind:
            raise WireError(
                f"values: expected {show(sorted(schema.values))}, got {show({name: value})}", "values"
            )
        if isinstance(value, float) and not math.isfinite(value):  # `json.loads` reads 1e999 as infinity
            raise WireError(f"values: expected finite numbers, got {show({name: value})}", "not-finite")
    return cast(dict[str, Scalar], values)


def json_object(config: Mapping[str, Scalar], key: str) -> dict[str, object]:
    """Return an entry that is the JSON of an object."""
    try:
        parsed = json.loads(text_at(config, key), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{key}: expected a JSON object, got {show(config.get(key))}", _word(key)) from error
    if not isinstance(parsed, dict):
        raise WireError(f"{key}: expected a JSON object, got {show(parsed)}", _word(key))
    return parsed


def _refuse_constant(text: str) -> object:
    raise ValueError(text)


def text_at(config: Mapping[str, Scalar], key: str, most: int = MAX_TEXT) -> str:
    """Return an entry that is a text of at most `most` characters."""
    value = config.get(key)
    if not isinstance(value, str) or len(value) > most:
        raise WireError(f"{key}: expected a text of at most {most} characters, got {show(value)}", _word(key))
    return value


def count_at(config: Mapping[str, Scalar], key: str) -> int:
    """Return an entry that is an integer from 0 to `MAX_TRIALS`."""
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TRIALS:
        raise WireError(f"{key}: expected an integer from 0 to {MAX_TRIALS}, got {show(value)}", key)
    return value


def _word(key: str) -> str:
    return "disclosed" if key.startswith("disclosed.") else key


def check_names(names: Collection[str], known: Collection[str], what: str) -> None:
    """Raise WireError if there are other names than the known ones; more than there are known are not read.

    Parameters
    ----------
    what : what is named, for the error
    """
    if len(names) > len(known):
        got = f"{len(names)} of them"
    elif unknown := [name for name in names if name not in known]:
        got = show(sorted(unknown))
    else:
        return
    raise WireError(f"{what}: expected only {', '.join(sorted(known))}, got {got}", "names")


def check_count(config: Collection[str]) -> None:
    """Raise WireError if a message has more scalars than any message has; they are not read."""
    if len(config) > MAX_ENTRIES:
        raise WireError(f"config: expected at most {MAX_ENTRIES} entries, got {len(config)}", "size")


def show(value: object) -> str:
    """Return a received value as one line of at most 80 characters, for an error message."""
    text = repr(value[:80] if isinstance(value, str | bytes | list) else value)
    return text if len(text) <= 80 else text[:77] + "..."
