"""What a run leaves behind: every disclosed trial, every round, each agent's best.

A study holds one run per algorithm; `Study.merge` puts runs side by side to compare them. On disk it is a
directory of plain files::

    study.json    settings, and the kinds and lengths of the tables below
    trials.csv    one row per evaluation: algorithm, agent, round, trial, config.*, value, failure, regret
    rounds.csv    one row per round: time, traffic, who answered, mean incumbent
    best.json     algorithm -> agent -> its best configuration and value
    regret.csv    cumulative and simple regret by evaluations, where the optimum is known

Equal studies are saved as the same bytes. Everything is maximised; a failed trial has the value NaN and says
why.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError
from fbo_flower.table import Column, Kind, Table, atomic_file

SCHEMA = 1

TRIALS: dict[str, Kind] = {
    "algorithm": "text",
    "agent": "text",
    "round": "integer",
    "trial": "integer",
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

_FILES = ("trials", "rounds", "regret")
_STATUSES = ("finished", "interrupted", "failed")


class Study:
    """The runs of one or several algorithms on one problem; read-only.

    Parameters
    ----------
    settings : plain JSON: `schema`, `name`, `created`, `versions` and `runs`, one dict per algorithm:
        `algorithm` (required), `options`, `problem`, `problem_options`, `num_agents`, `num_rounds`, `seed`,
        `engine`, `status`, `seconds`, `num_initial`, `metric`, `target_agents`; `label` is the name in the
        tables where it is not the algorithm's
    trials : columns as in `TRIALS`
    rounds : columns as in `ROUNDS`
    regret : columns as in `REGRET`; none if the optimum is unknown
    recommendations : columns as in `RECOMMENDATIONS`, what each agent would use; its best trial by default.
        An agent without a finite value has no recommendation.

    Tables are sorted on arrival by algorithm (in order of appearance), agent ("2" < "10") and trial.

    Raises
    ------
    ConfigError
        If the settings are not JSON of this schema, or a table has other columns.
    """

    __slots__ = ("recommendations", "regret", "rounds", "settings", "trials")

    def __init__(
        self,
        settings: Mapping[str, Any],
        trials: Table,
        rounds: Table,
        regret: Table | None = None,
        recommendations: Table | None = None,
    ) -> None:
        regret = Table.from_rows([], REGRET) if regret is None else regret
        for name, table, columns in (
            ("trials", trials, TRIALS),
            ("rounds", rounds, ROUNDS),
            ("regret", regret, REGRET),
            ("recommendations", recommendations, RECOMMENDATIONS),
        ):
            if table is not None and (table.columns != tuple(columns) or table.kinds != columns):
                raise ConfigError(f"{name}: expected the columns {columns}, got {table.kinds}")
        self.settings: Final = _checked_settings(settings)
        tables = [trials, rounds, regret] + ([] if recommendations is None else [recommendations])
        labels = [label(run) for run in self.settings["runs"]]
        labels += [name for table in tables for name in table["algorithm"].tolist()]
        order = {name: rank for rank, name in enumerate(dict.fromkeys(labels))}
        self.trials: Final = _sorted(trials, order, "trial")
        self.rounds: Final = _sorted(rounds, order, "round")
        self.regret: Final = _sorted(regret, order, "evaluations")
        recommendations = self.trials if recommendations is None else recommendations
        self.recommendations: Final = _sorted(_best_rows(recommendations), order)

    @property
    def algorithms(self) -> list[str]:
        """Labels of the runs, in order of appearance in the settings, then in the tables."""
        labels = [label(run) for run in self.settings["runs"]]
        return list(dict.fromkeys(labels + [name for t in self._tables for name in t["algorithm"].tolist()]))

    @property
    def best(self) -> dict[str, dict[str, Any]]:
        """Agent -> `{"config", "value", "algorithm"}`: the best recommendation, of equal ones the first."""
        best: dict[str, dict[str, Any]] = {}
        for row in self.recommendations:
            agent = row.pop("agent")
            if agent not in best or row["value"] > best[agent]["value"]:
                best[agent] = {name: row[name] for name in ("config", "value", "algorithm")}
        return {agent: best[agent] for agent in sorted(best, key=natural_order)}

    def run(self, algorithm: str) -> dict[str, Any]:
        """Return the settings of one algorithm's run; empty if they were not recorded."""
        return next((run for run in self.settings["runs"] if label(run) == algorithm), {})

    def only(self, algorithm: str) -> Study:
        """Return one algorithm's run as a study of its own."""
        if algorithm not in self.algorithms:
            raise ConfigError(f"study: expected one of {', '.join(self.algorithms)}, got {algorithm!r}")
        runs = [run for run in self.settings["runs"] if label(run) == algorithm]
        tables = (table.where(algorithm=algorithm) for table in self._tables)
        return Study({**self.settings, "runs": runs}, *tables)

    def relabel(self, algorithm: str, new: str) -> Study:
        """Give one run another name in tables and figures, so that runs of one algorithm can be merged."""
        if algorithm not in self.algorithms or new in self.algorithms:
            raise ConfigError(
                f"relabel: expected a known name and a new one besides {', '.join(self.algorithms)}, "
                f"got {algorithm!r} and {new!r}"
            )
        runs = [{**run, "label": new} if label(run) == algorithm else run for run in self.settings["runs"]]
        return Study(
            {**self.settings, "runs": runs}, *(_relabelled(table, algorithm, new) for table in self._tables)
        )

    @staticmethod
    def merge(studies: Sequence[Study], name: str | None = None) -> Study:
        """Put the runs of several studies side by side.

        The result takes the first study's settings and the latest creation date; a run keeps the versions of
        its own study where they differ.
        """
        if not studies:
            raise ConfigError("merge: expected at least one study, got none")
        first = studies[0].settings
        labels = [algorithm for study in studies for algorithm in study.algorithms]
        if twice := sorted({algorithm for algorithm in labels if labels.count(algorithm) > 1}):
            raise ConfigError(
                f"merge: expected each algorithm once, got {', '.join(twice)} in several studies; "
                'try study.relabel("fts", "fts, seed 1")'
            )
        runs: list[dict[str, Any]] = []
        for study in studies:
            versions = study.settings.get("versions")
            own = {} if versions == first.get("versions") else {"versions": versions}
            runs += [{**own, **run} for run in study.settings["runs"]]
        settings = {**first, "runs": runs}
        if created := [study.settings["created"] for study in studies if "created" in study.settings]:
            settings["created"] = max(created)
        if name is not None:
            settings["name"] = name
        tables = zip(*(study._tables for study in studies), strict=True)
        return Study(settings, *map(Table.concatenate, tables))

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the study's files into `directory`, which is made if need be; each file appears whole or not.

        Raises
        ------
        ConfigError
            If a file cannot be written; the message names it.
        """
        directory = Path(directory)
        tables: dict[str, Any] = {}
        for name in _FILES:
            table, path = getattr(self, name), directory / f"{name}.csv"
            if name != "regret" or len(table):
                tables[name] = {"rows": len(table), "columns": table.write_csv(path)}
            else:
                _remove(path)  # of an earlier study in this directory
        best: dict[str, Any] = {}
        for row in self.recommendations:
            config = dict(sorted(row["config"].items()))
            best.setdefault(row["algorithm"], {})[row["agent"]] = {"value": row["value"], "config": config}
        _write_json(directory / "best.json", best)
        _write_json(
            directory / "study.json", {**self.settings, "tables": tables}
        )  # last: it vouches for the rest

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Study:
        """Read what `save` wrote.

        Raises
        ------
        ConfigError
            If a file is missing, malformed, of another schema or not of this study; the message names it.
        """
        directory = Path(directory)
        path = directory / "study.json"
        settings = _read_json(path)
        try:
            _check_schema(settings)
            layouts = _expect(settings.pop("tables", None), dict, "tables")
            tables = {}
            for name in _FILES:
                if name != "regret" or name in layouts:
                    layout = _expect(layouts.get(name), dict, f"tables.{name}")
                    columns = _expect(layout.get("columns"), dict, f"tables.{name}.columns")
                    rows = _expect(layout.get("rows"), int, f"tables.{name}.rows")
                    tables[name] = _read_table(directory / f"{name}.csv", columns, rows)
            recommendations = _read_best(directory / "best.json")
            return cls(settings, **tables, recommendations=recommendations)
        except ConfigError as error:
            message = str(error)
            raise ConfigError(message if str(directory) in message else f"{path}: {message}") from error

    @property
    def _tables(self) -> tuple[Table, Table, Table, Table]:
        return self.trials, self.rounds, self.regret, self.recommendations

    __hash__ = None  # type: ignore[assignment]  # equal by value, too large to hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Study):
            return NotImplemented
        return _json(self.settings) == _json(other.settings) and self._tables == other._tables

    def __repr__(self) -> str:
        name, runs = self.settings.get("name"), ", ".join(self.algorithms)
        return f"Study({name!r}: {runs}; {len(self.trials)} trials, {len(self.rounds)} rounds)"


def incumbents(trials: Table) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Best value so far of each agent after each of its evaluations.

    Parameters
    ----------
    trials : rows of one algorithm, columns as in `TRIALS`, in any order; evaluation `k` of an agent is its
        `k`-th trial, and a failed one keeps the incumbent

    Returns
    -------
    agents : in natural order
    curves : `(num_agents, max_evaluations)`; NaN before the first success and after the last evaluation

    Examples
    --------
    >>> columns = {"algorithm": ["ts"] * 4, "agent": ["1"] * 3 + ["2"], "trial": [0, 1, 2, 0]}
    >>> incumbents(Table({**columns, "value": [np.nan, 0.5, 0.25, 0.75]}))
    (['1', '2'], array([[ nan, 0.5 , 0.5 ],
           [0.75,  nan,  nan]]))
    """
    if len(algorithms := set(trials["algorithm"].tolist())) > 1:
        raise ConfigError(
            f"incumbents: expected trials of one algorithm, got {', '.join(sorted(algorithms))}"
        )
    agents, agent = _ranks(trials["agent"])
    order = np.lexsort((trials["trial"], agent))
    agent, value = agent[order], trials["value"][order]
    num_evaluations = np.bincount(agent, minlength=len(agents))  # (num_agents,)
    start = np.cumsum(num_evaluations) - num_evaluations
    evaluation = np.arange(len(agent)) - start[agent]
    curves = np.full((len(agents), num_evaluations.max(initial=0)), -np.inf)
    curves[agent, evaluation] = np.where(np.isfinite(value), value, -np.inf)
    curves = np.maximum.accumulate(curves, axis=1)
    curves[(np.arange(curves.shape[1]) >= num_evaluations[:, None]) | np.isneginf(curves)] = np.nan
    return agents, curves


def natural_order(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sort key under which "2" comes before "10", and "7" before "007" but next to it.

    Examples
    --------
    >>> sorted(["site-10", "site-2", "10", "2"], key=natural_order)
    ['2', '10', 'site-2', 'site-10']
    """
    parts = re.split(r"([0-9]+)", name)  # text, digits, text, ...
    parts[1::2] = [digits.lstrip("0") for digits in parts[1::2]]
    return [(len(part) if place % 2 else 0, part) for place, part in enumerate(parts)], name


def label(run: Mapping[str, Any]) -> str:
    """Return the name of a run in tables and figures: its label, else its algorithm."""
    return str(run.get("label", run["algorithm"]))


def _ranks(names: Column) -> tuple[list[str], npt.NDArray[np.intp]]:
    """Distinct names in natural order, and the place of each row's name among them."""
    ordered = sorted(set(names.tolist()), key=natural_order)
    rank = {name: place for place, name in enumerate(ordered)}
    return ordered, np.fromiter(map(rank.__getitem__, names.tolist()), dtype=np.intp, count=len(names))


def _sorted(table: Table, algorithms: Mapping[str, int], last: str | None = None) -> Table:
    """Sort by algorithm in the given order, agent (if there is such a column) and column `last`."""
    rank = map(algorithms.__getitem__, table["algorithm"].tolist())
    keys = [np.fromiter(rank, dtype=np.intp, count=len(table))]
    if "agent" in table.columns:
        keys.append(_ranks(table["agent"])[1])
    if last is not None:
        keys.append(table[last])
    order = np.lexsort(keys[::-1])
    return table if np.array_equal(order, np.arange(len(table))) else table.take(order)


def _best_rows(table: Table) -> Table:
    """First of each agent's best rows, per algorithm; an agent without a success has none."""
    table = table.take(np.isfinite(table["value"]))
    algorithm, agent = _ranks(table["algorithm"])[1], _ranks(table["agent"])[1]
    order = np.lexsort((-table["value"], agent, algorithm))  # stable
    key = np.stack([algorithm, agent])[:, order]
    is_first = np.ones(len(table), dtype=bool)
    is_first[1:] = np.any(key[:, 1:] != key[:, :-1], axis=0)
    rows = table.take(order[is_first])
    return Table({name: rows[name] for name in RECOMMENDATIONS}, RECOMMENDATIONS)


def _relabelled(table: Table, algorithm: str, new: str) -> Table:
    columns = {name: table[name] for name in table.columns}
    columns["algorithm"] = np.where(columns["algorithm"] == algorithm, new, columns["algorithm"])
    return Table(columns, table.kinds)


def _checked_settings(settings: Any) -> dict[str, Any]:
    """Return a copy that is plain JSON with sorted keys, so that equal settings are saved as equal bytes."""
    try:
        settings = json.loads(_json(settings, sort_keys=True))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"settings: expected plain JSON, {error}") from error
    _check_schema(settings)
    if "tables" in settings:
        raise ConfigError("settings: the key 'tables' belongs to the study itself")
    for number, run in enumerate(_expect(settings.get("runs"), list, "runs")):
        _expect(run, dict, f"runs[{number}]")
        _expect(run.get("algorithm"), str, f"runs[{number}].algorithm")
        if run.get("status", "finished") not in _STATUSES:
            raise ConfigError(f"runs[{number}].status: expected one of {_STATUSES}, got {run['status']!r}")
    labels = [label(run) for run in settings["runs"]]
    if len(set(labels)) < len(labels):
        raise ConfigError(f"settings: expected runs with different labels, got {', '.join(labels)}")
    return dict(settings)


def _check_schema(settings: Any) -> None:
    schema = _expect(settings, dict, "settings").get("schema")
    if schema != SCHEMA:
        raise ConfigError(
            f"study: expected schema {SCHEMA}, got {schema!r}; was it saved by another version?"
        )


def _expect(value: Any, type_: type, name: str) -> Any:
    if type(value) is not type_:
        raise ConfigError(f"{name}: expected a {type_.__name__}, got {type(value).__name__}")
    return value


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be removed ({error.strerror})") from error


def _read_table(path: Path, columns: Mapping[str, Any], num_rows: int) -> Table:
    table = Table.read_csv(path, columns)
    if len(table) != num_rows:
        raise ConfigError(f"{path}: expected {num_rows} rows as study.json says, got {len(table)}")
    return table


def _read_best(path: Path) -> Table:
    rows: list[dict[str, Any]] = []
    try:
        for algorithm, agents in _expect(_read_json(path), dict, "best").items():
            for agent, best in _expect(agents, dict, algorithm).items():
                rows.append({"algorithm": algorithm, "agent": agent, **_expect(best, dict, agent)})
        return Table.from_rows(rows, RECOMMENDATIONS)
    except ConfigError as error:
        raise ConfigError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def _json(value: object, sort_keys: bool = False) -> str:
    return json.dumps(value, indent=2, sort_keys=sort_keys, ensure_ascii=False, default=_python_scalar)


def _python_scalar(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"not {type(value).__name__}")


def _write_json(path: Path, value: object) -> None:
    with atomic_file(path, text=True) as file:
        file.write(_json(value) + "\n")


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; expected a directory that Study.save wrote") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected JSON, {error}") from error
