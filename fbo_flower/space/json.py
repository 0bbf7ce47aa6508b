"""Write a search space as canonical JSON, and read it back from untrusted senders.

::

    {"parameters": [{"high": 1000.0, "kind": "float", "log": true, "low": 0.001, "name": "C"}, ...]}

The canonical form is ASCII with sorted keys, no spaces, floats in Python's shortest repr, parameters in the
order of the axes, `step` only where there is one, and `active_when` only for conditional parameters, always
with lists. Equal spaces have equal texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from fbo_flower.errors import ConfigError, WireError
from fbo_flower.space.checks import show
from fbo_flower.space.parameters import Categorical, Float, Int, Ordinal, Parameter

MAX_JSON_LENGTH = 2**20  # 1 MiB: the canonical JSON is ASCII

KEYS: dict[type[Parameter], tuple[str, ...]] = {
    **dict.fromkeys((Float, Int), ("low", "high", "log", "step")),
    **dict.fromkeys((Categorical, Ordinal), ("choices",)),
}
NO_STEP: dict[type[Parameter], int | None] = {Float: None, Int: 1}  # not written
KINDS: dict[str, type[Parameter]] = {kind.__name__.lower(): kind for kind in KEYS}

T = TypeVar("T")


def write(parameters: Mapping[str, Parameter]) -> str:
    """Return the canonical JSON of a space's parameters."""
    entries = []
    for name, parameter in parameters.items():
        own = {key: getattr(parameter, key) for key in KEYS[type(parameter)]}
        if own.get("step") == NO_STEP.get(type(parameter)):
            own.pop("step", None)
        entry = {"name": name, "kind": type(parameter).__name__.lower(), **own}
        entries.append(entry | ({"active_when": parameter.conditions} if parameter.conditions else {}))
    return json.dumps({"parameters": entries}, sort_keys=True, separators=(",", ":"), allow_nan=False)


def read(text: str) -> dict[str, Parameter]:
    """Return the parameters in a JSON text, which may come from an untrusted sender; see `from_json`."""
    if not isinstance(text, str) or len(text) > MAX_JSON_LENGTH:
        got = f"{len(text)}" if isinstance(text, str) else f"a {type(text).__name__}"
        raise WireError(f"search space: expected a JSON text of at most 1 MiB, got {got}")
    try:
        content = json.loads(
            text, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_without_duplicates
        )
    except WireError:
        raise
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:100]
        raise WireError(f"search space: expected JSON, got {show(text)} ({reason})") from None
    _check_keys("search space", content, ["parameters"])
    entries = _field("search space", content, "parameters", list)
    parameters: dict[str, Parameter] = {}
    for position, entry in enumerate(entries):
        name, parameter = _parameter(f"parameter {position}", entry)
        if name in parameters:
            raise WireError(f"search space: expected different names, got {show(name)} twice")
        parameters[name] = parameter
    return parameters


def _parameter(where: str, entry: object) -> tuple[str, Parameter]:
    name = _field(where, entry, "name", str)
    where = f"parameter {show(name)}"
    kind = KINDS.get(_field(where, entry, "kind", str))
    if kind is None:
        raise WireError(f"{where}: expected kind to be one of {', '.join(KINDS)}, got {show(entry)}")
    given = entry if isinstance(entry, dict) else {}
    optional = [key for key in ("step", "active_when") if key in given]
    _check_keys(where, entry, ["name", "kind", *(key for key in KEYS[kind] if key != "step"), *optional])
    conditions = _field(where, entry, "active_when", dict) if "active_when" in given else None
    for values in (conditions or {}).values():
        _check_plain(where, values)
    try:
        if issubclass(kind, Float | Int):
            number: type[float] = float if issubclass(kind, Float) else int
            own: dict[str, Any] = {
                key: _field(where, entry, key, number) for key in ("low", "high", "step") if key in given
            }
            return name, kind(**own, log=_field(where, entry, "log", bool), active_when=conditions)
        choices = _field(where, entry, "choices", list)
        _check_plain(where, choices)
        return name, kind(choices, conditions)
    except ConfigError as error:
        # The message begins with the kind ("Float: ..."); replace it by the parameter's name.
        _, _, problem = str(error).partition(": ")
        raise ConfigError(f"{name if name.isprintable() else show(name)}: {problem}") from None


def _check_plain(where: str, values: object) -> None:
    if not isinstance(values, list) or any(isinstance(value, list | dict) for value in values):
        raise WireError(f"{where}: expected a list of plain values, got {show(values)}")


def _check_keys(where: str, content: object, keys: list[str]) -> None:
    if not isinstance(content, dict) or set(content) != set(keys):
        got = list(content) if isinstance(content, dict) else content
        raise WireError(f"{where}: expected an object with the keys {', '.join(keys)}, got {show(got)}")


def _field(where: str, content: object, key: str, expected: type[T]) -> T:
    value = content.get(key) if isinstance(content, dict) else content
    # Compare the exact type, because a bool is an instance of int.
    if not isinstance(content, dict) or not isinstance(value, expected) or type(value) is not expected:
        raise WireError(f"{where}: expected {key} to be a {expected.__name__}, got {show(value)}")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise WireError(f"search space: expected finite numbers, got {show(text)}")
    return number


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise WireError(f"search space: expected different keys, got {show([key for key, _ in pairs])}")
    return content
