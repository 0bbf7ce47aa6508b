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

# By name, the array of the last message that nobody can change, its specification, and its range.
_LAST_CHECKED: dict[str, tuple[AnyArray, ArraySpec, float, float]] = {}


def checked_arrays(arrays: Mapping[str, AnyArray], allowed: Mapping[str, ArraySpec]) -> dict[str, AnyArray]:
    """Return the arrays, if their names are allowed and each fits its specification."""
    for name, array in arrays.items():
        spec = allowed.get(name)
        if spec is None:
            known = ", ".join(allowed) or "none"
            raise WireError(f"arrays: expected only {known}, got {show(name)}", "names")
        last = _LAST_CHECKED.get(name)
        known_range = None
        if last is not None and last[0] is array:  # messages that are answered together share arrays
            if last[1] is spec:
                continue
            known_range = last[2:]
        fits = len(array.shape) == len(spec.shape)
        for length, expected in zip(array.shape, spec.shape, strict=False):
            fits = fits and (length <= spec.max_length if expected is None else length == expected)
        if array.dtype != spec.dtype or not fits:
            raise WireError(
                f"{name}: expected {spec.shape} {spec.dtype}, got {show(array.shape)} {array.dtype}",
                "shape" if array.dtype == spec.dtype else "dtype",
            )
        if array.dtype == np.uint8 or not array.size:
            continue  # bytes of a model; every byte is allowed
        if math.isinf(spec.low) and math.isinf(spec.high):
            continue  # NaN is allowed; the code that reads the array gives it a meaning
        numbers = np.asarray(array, dtype=np.float64)
        least, largest = known_range or (
            float(np.minimum.reduce(numbers, axis=None)),  # NaN if there is one
            float(np.maximum.reduce(numbers, axis=None)),
        )
        if not (least >= spec.low and largest <= spec.high):
            raise WireError(
                f"{name}: expected finite numbers between {spec.low:g} and {spec.high:g}",
                "bounds" if np.isfinite(numbers).all() else "not-finite",
            )
        if not array.flags.writeable and array.nbytes <= MAX_KEPT:
            _LAST_CHECKED[name] = array, spec, least, largest
    return dict(arrays)


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
    check_scalars(config, {key: MAX_TEXT})
    try:
        parsed = json.loads(str(config[key]), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise WireError(f"{key}: expected a JSON object, got {show(config[key])}", key.partition(".")[0])
    return parsed


def _refuse_constant(text: str) -> object:
    raise ValueError(text)


def check_scalars(
    config: Mapping[str, Scalar], texts: Mapping[str, int], counts: Collection[str] = ()
) -> None:
    """Raise WireError if an entry is missing, or no text or number as it is expected.

    Parameters
    ----------
    texts : entries that are texts -> their largest numbers of characters
    counts : entries that are integers from 0 to `MAX_TRIALS`
    """
    for key, most in texts.items():
        text = config.get(key)
        if not isinstance(text, str) or len(text) > most:
            reason = key.partition(".")[0]  # "disclosed" for all that is
            raise WireError(f"{key}: expected a text of at most {most} characters, got {show(text)}", reason)
    for key in counts:
        number = config.get(key)
        if type(number) is not int or not 0 <= number <= MAX_TRIALS:
            raise WireError(f"{key}: expected an integer from 0 to {MAX_TRIALS}, got {show(number)}", key)


def check_names(names: Collection[str], known: Collection[str], what: str) -> None:
    """Raise WireError if there are other names than the known ones; more than there are known are not read.

    Parameters
    ----------
    what : what is named, for the error
    """
    if len(names) > len(known):
        got = f"{len(names)} of them"
    elif unknown := set(names).difference(known):
        got = show(sorted(unknown))
    else:
        return
    raise WireError(f"{what}: expected only {', '.join(sorted(known))}, got {got}", "names")


def show(value: object) -> str:
    """Return a received value as one line of at most 80 characters, for an error message."""
    text = repr(value[:80] if isinstance(value, str | bytes | list) else value)
    return text if len(text) <= 80 else text[:77] + "..."
