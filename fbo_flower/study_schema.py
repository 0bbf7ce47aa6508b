"""What a study is made of: the columns of its tables, and settings that are plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.table import Kind, Table

SCHEMA = 1

TRIALS: dict[str, Kind] = {
    "algorithm": "text",
    "agent": "text",
    "round": "integer",
    "trial": "integer",
    "pulls": "integer",  # evaluations that the row stands for: bandits pull a cell many times
    "config": "config",
    "value": "real",  # NaN: failed
    "failure": "text",  # "": it did not fail
    "regret": "real",  # NaN: unknown
}
ROUNDS: dict[str, Kind] = {
    "algorithm": "text",
    "round": "integer",
    "seconds": "real",
    "bytes_down": "integer",
    "bytes_up": "integer",
    "tasks": "integer",
    "replies": "integer",
    "failures": "integer",
    "refused": "integer",
    "failed_trials": "integer",
    "mean_incumbent": "real",
    "best": "real",
}
REGRET: dict[str, Kind] = {
    "algorithm": "text",
    "agent": "text",
    "evaluations": "integer",
    "cumulative": "real",
    "simple": "real",
}
RECOMMENDATIONS: dict[str, Kind] = {"algorithm": "text", "agent": "text", "value": "real", "config": "config"}

_STATUSES = ("finished", "interrupted", "failed")


def label(run: Mapping[str, Any]) -> str:
    """Return the name of a run in tables and figures: its label, else its algorithm."""
    return str(run.get("label", run["algorithm"]))


def check_columns(name: str, table: Table, columns: Mapping[str, Kind]) -> None:
    """Raise ConfigError unless a table has exactly these columns."""
    if table.columns != tuple(columns) or table.kinds != columns:
        raise ConfigError(f"{name}: expected the columns {columns}, got {table.kinds}")


def checked_settings(settings: Any) -> dict[str, Any]:
    """Return a copy that is plain JSON with sorted keys, so that equal settings are saved as equal bytes."""
    try:
        settings = json.loads(as_json(settings, sort_keys=True))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"settings: expected plain JSON, {error}") from error
    check_schema(settings)
    if "tables" in settings:
        raise ConfigError("settings: the key 'tables' belongs to the study itself")
    for number, run in enumerate(expect(settings.get("runs"), list, "runs")):
        expect(run, dict, f"runs[{number}]")
        expect(run.get("algorithm"), str, f"runs[{number}].algorithm")
        if run.get("status", "finished") not in _STATUSES:
            raise ConfigError(f"runs[{number}].status: expected one of {_STATUSES}, got {run['status']!r}")
    labels = [label(run) for run in settings["runs"]]
    if len(set(labels)) < len(labels):
        raise ConfigError(f"settings: expected runs with different labels, got {', '.join(labels)}")
    return dict(settings)


def check_schema(settings: Any) -> None:
    """Raise ConfigError unless the settings are of this version."""
    schema = expect(settings, dict, "settings").get("schema")
    if schema != SCHEMA:
        raise ConfigError(
            f"study: expected schema {SCHEMA}, got {schema!r}; was it saved by another version?"
        )


def expect(value: Any, type_: type, name: str) -> Any:
    """Return a value that came from a file or a caller; ConfigError unless it is of this very type."""
    if type(value) is not type_:
        raise ConfigError(f"{name}: expected a {type_.__name__}, got {type(value).__name__}")
    return value


def as_json(value: object, sort_keys: bool = False) -> str:
    """Return a value as JSON for people; NumPy's scalars become Python's."""
    return json.dumps(value, indent=2, sort_keys=sort_keys, ensure_ascii=False, default=_python_scalar)


def _python_scalar(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"not {type(value).__name__}")
