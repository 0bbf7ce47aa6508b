"""Write and read a study's directory: tables as CSV, settings and recommendations as JSON.

`study.json` is written last and records the kinds and lengths of the tables, so a directory with a valid
`study.json` is complete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fbo_flower.errors import ConfigError
from fbo_flower.storage.files import atomic_file
from fbo_flower.study.directory import MARK, holds_study, remove_derived
from fbo_flower.study.schema import (
    RECOMMENDATIONS,
    as_json,
    check_schema,
    expect,
)
from fbo_flower.study.table import Table

_FILES = ("trials", "rounds", "regret", "models", "judgements", "times", "replies")
_OPTIONAL = ("regret", "models", "judgements", "times", "replies")  # written only if they have rows


def write_study(directory: Path, settings: Mapping[str, Any], tables: Mapping[str, Table]) -> None:
    """Write a study's files; each file is replaced as a whole or, if writing fails, not at all.

    Parameters
    ----------
    directory : created if it does not exist
    settings : plain JSON
    tables : `trials`, `rounds`, `recommendations`, and those of `_OPTIONAL`, which get no file if empty

    Raises
    ------
    ConfigError
        If a file cannot be written; the message names it.
    """
    if holds_study(directory) and not _is_same(directory / MARK, settings):
        remove_derived(directory)  # made from the study that this one replaces
    layouts: dict[str, Any] = {}
    for name in _FILES:
        table, path = tables[name], directory / f"{name}.csv"
        if name not in _OPTIONAL or len(table):
            layouts[name] = {"rows": len(table), "columns": table.write_csv(path)}
        else:
            _remove(path)  # left by an earlier study in this directory
    best: dict[str, Any] = {}
    for row in tables["recommendations"]:
        config = dict(sorted(row["config"].items()))
        best.setdefault(row["algorithm"], {})[row["agent"]] = {"value": row["value"], "config": config}
    _write_json(directory / "best.json", best)
    _write_json(directory / MARK, {**settings, "tables": layouts})  # last: marks the directory as complete


def read_study(directory: Path) -> tuple[dict[str, Any], dict[str, Table]]:
    """Return the settings and the tables of a study's directory.

    Returns
    -------
    settings : as in the file; a study of schema 1 is converted to the current schema
    tables : `trials`, `rounds`, `recommendations`, and each of the others that has a file

    Raises
    ------
    ConfigError
        If a file is missing, malformed, of another schema or does not match `study.json`. The message names
        the file or the entry of `study.json`.
    """
    settings = _read_json(directory / "study.json")
    check_schema(settings)
    layouts = expect(settings.pop("tables", None), dict, "tables")
    tables = {}
    for name in _FILES:
        if name not in _OPTIONAL or name in layouts:
            layout = expect(layouts.get(name), dict, f"tables.{name}")
            columns = expect(layout.get("columns"), dict, f"tables.{name}.columns")
            rows = expect(layout.get("rows"), int, f"tables.{name}.rows")
            tables[name] = _read_table(directory / f"{name}.csv", columns, rows)
    tables["recommendations"] = _read_best(directory / "best.json")
    return settings, tables


def _is_same(path: Path, settings: Mapping[str, Any]) -> bool:
    """Return whether the study at `path` has these settings; a study's time of creation is one of them."""
    try:
        found = dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return False
    found.pop("tables", None)
    return as_json(found, sort_keys=True) == as_json(dict(settings), sort_keys=True)


def _read_table(path: Path, columns: Mapping[str, Any], num_rows: int) -> Table:
    table = Table.read_csv(path, columns)
    if len(table) != num_rows:
        raise ConfigError(f"{path}: expected {num_rows} rows as study.json says, got {len(table)}")
    return table


def _read_best(path: Path) -> Table:
    rows: list[dict[str, Any]] = []
    try:
        for algorithm, agents in expect(_read_json(path), dict, "best").items():
            for agent, best in expect(agents, dict, algorithm).items():
                rows.append({"algorithm": algorithm, "agent": agent, **expect(best, dict, agent)})
        return Table.from_rows(rows, RECOMMENDATIONS)
    except ConfigError as error:
        raise ConfigError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be removed ({error.strerror})") from error


def _write_json(path: Path, value: object) -> None:
    with atomic_file(path, text=True) as file:
        file.write(as_json(value) + "\n")


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; expected a directory that Study.save wrote") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected JSON, {error}") from error
