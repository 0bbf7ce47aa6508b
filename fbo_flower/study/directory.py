"""The directory of a study: what a run keeps, tables as CSV, settings and recommendations as JSON.

`study.json` is written last and records the kinds and lengths of the tables, so a directory with a valid
`study.json` is complete. It is not overwritten unless the user asks for it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.space.checks import check_flag, check_options
from fbo_flower.storage.files import atomic_file, writable_directory
from fbo_flower.storage.paths import path_of, read_text
from fbo_flower.study.schema import RECOMMENDATIONS, TABLES, as_json, check_schema, expect
from fbo_flower.study.table import Table

MARK = "study.json"  # written last, so a directory with it holds a whole study
DERIVED = ("report.png", "report.pdf", "report.svg", "report.html", "privacy.md")  # made from a study
_BEST = "best.json"  # holds the table of recommendations
_FILES = {name: f"{name}.csv" for name in TABLES if name != "recommendations"}
_ALWAYS = ("trials", "rounds")  # the other tables have a file only if they have rows
_OF_THE_RUN = ("messages", "models", "journals", "simulate.json")

LONGEST_LABEL = 200  # characters of a run's name
Directory = str | os.PathLike[str]


@dataclass(frozen=True)
class Keep:
    """What a run keeps on disk.

    Parameters
    ----------
    out : directory for the study's files, which are written also when the run is interrupted
    journals : directory for the run's journals, those of simulated agents included; a run that dies can be
        resumed from them. They cost some milliseconds per agent and round. None: no journals
    resume : continue the study in `journals` where it stopped, without repeating its evaluations
    messages : directory in whose folder `messages` the server saves the agents' messages, so that a later
        study can start from them with `Start(warm_start=...)`. None: `out`
    overwrite : replace the study in `out`, with all that was made from it; otherwise a directory with a study
        is refused
    label : name of this run in tables and pictures; None: the algorithm's name

    Raises
    ------
    ConfigError
        If `resume` is set without `journals`, or the label has characters that cannot be shown.

    Examples
    --------
    >>> Keep(resume=True)
    Traceback (most recent call last):
        ...
    fbo_flower.errors.ConfigError: keep: resume=True needs journals, the directory of the run to resume
    """

    out: Directory | None = None
    journals: Directory | None = None
    resume: bool = False
    messages: Directory | None = None
    overwrite: bool = False
    label: str | None = None

    def __new__(cls, *args: Any, **options: Any) -> Self:
        check_options(cls, options)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name in ("resume", "overwrite"):
            object.__setattr__(self, name, check_flag(name, getattr(self, name)))
        if self.resume and self.journals is None:
            raise ConfigError("keep: resume=True needs journals, the directory of the run to resume")
        for name in ("out", "journals", "messages"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, path_of(value, name))
        check_label(self.label)

    def how_to_continue(self, held: bool = False) -> str:
        """Return what an interrupted run has left, and how to continue, as the end of a sentence.

        Parameters
        ----------
        held : whether `out` held a study when the run began
        """
        parts = []
        if self.out is not None and holds_study(self.out):
            parts.append(f"{self.out} holds the results so far")
        elif held:
            parts.append(f"the study that was in {self.out} is removed")
        if self.journals is not None and any(Path(self.journals).rglob("*.db")):
            journals = os.fspath(self.journals)
            parts.append(f"continue with the same call and keep=Keep(journals={journals!r}, resume=True)")
        elif parts:
            parts.append("only a run with keep=Keep(journals=...) can be continued")
        elif self.journals is None:
            parts.append("nothing was written; with keep=Keep(out=..., journals=...) it could be continued")
        else:
            parts.append("nothing was written; repeat the call")
        return "; ".join(parts)


def check_label(label: object) -> None:
    """Raise ConfigError unless a label is None or a short printable text."""
    if label is not None and not (
        isinstance(label, str) and 0 < len(label) <= LONGEST_LABEL and label.isprintable()
    ):
        shown = repr(label[:80]) if isinstance(label, str) else kind_of(label)
        raise ConfigError(f"label: expected 1 to {LONGEST_LABEL} printable characters, got {shown}")


def holds_study(directory: Directory) -> bool:
    """Return whether a study was saved into a directory."""
    return (path_of(directory) / MARK).is_file()


def study_directory(directory: Directory, *, overwrite: bool = False, resume: bool = False) -> Path:
    """Create the directory of a new study if needed, and return it.

    Parameters
    ----------
    overwrite : remove a study that is there, with everything that was made from it; other files stay
    resume : the study that is there is continued

    Raises
    ------
    ConfigError
        If the directory cannot be written, or holds a study that is neither overwritten nor continued.
    """
    path = writable_directory(directory)
    if resume or not holds_study(path):
        return path
    if not overwrite:
        raise ConfigError(
            f"out: expected a directory without a study, got {path}, which holds one; choose another "
            "directory, or replace the study with --overwrite (in Python overwrite=True)"
        )
    for name in (MARK, *_FILES.values(), _BEST, *DERIVED, *_OF_THE_RUN):
        _remove(path / name)
    return path


@contextmanager
def removed_if_empty(directory: Path) -> Iterator[None]:
    """Remove a directory at the end if the block created it, with its parents, and wrote nothing into it."""
    created = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        yield
    finally:
        with suppress(OSError):  # not empty
            for path in created:
                path.rmdir()


def write_study(directory: Path, settings: Mapping[str, Any], tables: Mapping[str, Table]) -> None:
    """Write the files of a study with these settings, plain JSON, and `schema.TABLES`; see `Study.save`."""
    if holds_study(directory):
        try:
            former = dict(json.loads(read_text(directory / MARK)))
        except (OSError, ValueError, TypeError):
            former = {}
        former.pop("tables", None)
        if as_json(former, sort_keys=True) != as_json(dict(settings), sort_keys=True):
            for name in DERIVED:
                _remove(directory / name)  # made from the study that this one replaces
    layouts: dict[str, Any] = {}
    for name, file in _FILES.items():
        if name in _ALWAYS or len(tables[name]):
            layouts[name] = {"rows": len(tables[name]), "columns": tables[name].write_csv(directory / file)}
        else:
            _remove(directory / file)  # left by an earlier study in this directory
    best: dict[str, Any] = {}
    for row in tables["recommendations"]:
        config = dict(sorted(row["config"].items()))
        numbers = {name: row[name] for name in ("value", "mean") if math.isfinite(row[name])}
        best.setdefault(row["algorithm"], {})[row["agent"]] = {**numbers, "config": config}
    _write_json(directory / _BEST, best)
    _write_json(directory / MARK, {**settings, "tables": layouts})  # last: marks the directory as complete


def read_study(directory: Path) -> tuple[dict[str, Any], dict[str, Table]]:
    """Return the settings, and the tables that are there, of a study's directory; see `Study.load`."""
    settings = _read_json(directory / MARK)
    check_schema(settings)
    layouts = expect(settings.pop("tables", None), dict, "tables")
    path, rows = directory / _BEST, []
    try:
        for algorithm, agents in expect(_read_json(path), dict, "best").items():
            for agent, best in expect(agents, dict, algorithm).items():
                numbers = {"value": math.nan, "mean": math.nan}
                rows.append({"algorithm": algorithm, "agent": agent, **numbers, **expect(best, dict, agent)})
        tables = {"recommendations": Table.from_rows(rows, RECOMMENDATIONS)}
    except ConfigError as error:
        raise ConfigError(str(error) if str(path) in str(error) else f"{path}: {error}") from error
    for name, file in _FILES.items():
        if name in _ALWAYS or name in layouts:
            layout = expect(layouts.get(name), dict, f"tables.{name}")
            columns = expect(layout.get("columns"), dict, f"tables.{name}.columns")
            num_rows = expect(layout.get("rows"), int, f"tables.{name}.rows")
            table = tables[name] = Table.read_csv(directory / file, columns)
            if len(table) != num_rows:
                raise ConfigError(
                    f"{directory / file}: expected {num_rows} rows as study.json says, got {len(table)}"
                )
    return settings, tables


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be removed ({error.strerror})") from error


def _write_json(path: Path, value: object) -> None:
    with atomic_file(path, text=True) as file:
        file.write(as_json(value) + "\n")


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; expected a directory that Study.save wrote") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected JSON, {error}") from error
