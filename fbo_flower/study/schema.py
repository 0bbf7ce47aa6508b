"""What a study is made of: the columns of its tables, and settings that are plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.study.table import Kind, Table

SCHEMA = 2  # since 2, rounds count floats, and name reasons
READABLE = (1, SCHEMA)  # what a directory may hold

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
    "floats_down": "real",  # numbers in the algorithm's own arrays, 8 bytes each; NaN: not counted
    "floats_up": "real",
    "tasks": "integer",
    "replies": "integer",
    "failures": "integer",
    "refused": "integer",
    "failed_trials": "integer",
    "mean_incumbent": "real",
    "best": "real",
    "reasons": "text",  # of failures and refused replies, with their numbers: "late:1 shape:2"
}
REGRET: dict[str, Kind] = {
    "algorithm": "text",
    "agent": "text",
    "evaluations": "integer",
    "cumulative": "real",
    "simple": "real",
}
MODELS: dict[str, Kind] = {  # where agents train and judge models; losses, NaN: unknown
    "algorithm": "text",
    "trial": "integer",
    "round": "integer",
    "config": "config",
    "failure": "text",  # "": it did not fail
    "local_loss": "real",  # where it was trained, cross-validated
    "remote_loss": "real",  # at the sites that judged it, mean by rows
    "on_front": "boolean",  # not dominated in these two
    "shipped": "boolean",
    "model": "text",  # SHA-256 of the packed model, where it was kept
    "openbox_outbag": "real",  # at the end, on rows that were not used before
    "curators_outbag": "real",  # mean by rows
    "lockbox": "real",  # mean by rows
}
JUDGEMENTS: dict[str, Kind] = {  # what each site said of each model
    "algorithm": "text",
    "agent": "text",
    "role": "text",
    "trial": "integer",
    "split": "text",  # "inbag" or "outbag"
    "loss": "real",
    "num_rows": "integer",
    "failure": "text",
    "epsilon": "real",  # spent by the site on these rows so far; 0: it adds no noise
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


def check_schema(settings: Any, readable: Sequence[int] = (SCHEMA,)) -> None:
    """Raise ConfigError unless the settings are of a version that is `readable`."""
    schema = expect(settings, dict, "settings").get("schema")
    if type(schema) is not int or schema not in readable:
        expected = " or ".join(map(str, readable))
        raise ConfigError(
            f"study: expected schema {expected}, got {schema!r}; was it saved by another version?"
        )


def upgraded_rounds(rounds: Table) -> Table:
    """Return the rounds of an older study with the columns that came later, as unknown."""
    later = {name for name in ("floats_down", "floats_up", "reasons") if name not in rounds.columns}
    if not later or rounds.columns != tuple(name for name in ROUNDS if name not in later):
        return rounds  # of today, or not of an older study either: `check_columns` says what is wrong
    unknown: dict[str, Any] = {"real": np.full(len(rounds), np.nan), "text": [""] * len(rounds)}
    return Table({n: unknown[kind] if n in later else rounds[n] for n, kind in ROUNDS.items()}, ROUNDS)


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
