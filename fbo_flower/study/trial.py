"""The trials of a study in other forms: as objects, as a pandas DataFrame, and as points and values.

pandas is optional and imported late::

    study = Study.load("runs/demo")
    frame = study.to_dataframe()
    frame.loc[frame["state"] == "succeeded"].groupby("agent")["value"].max()
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fbo_flower.lazy import required
from fbo_flower.space.copies import copies
from fbo_flower.space.space import SearchSpace, check_space
from fbo_flower.study.table import Column, Table

Array: TypeAlias = npt.NDArray[np.float64]
Observations: TypeAlias = dict[str, tuple[Array, Array | Mapping[str, Array]]]

RUNNING, SUCCEEDED, FAILED, STOPPED_EARLY = "running", "succeeded", "failed", "stopped early"


@copies("config", "intermediate", "outputs")
@dataclass(frozen=True)
class Trial:
    """One disclosed trial of an agent.

    Parameters
    ----------
    agent : its name
    trial : its number at this agent, from 0
    round : the round in which it was evaluated, from 1
    state : "running", "succeeded", "failed" or "stopped early"
    config : the configuration without inactive parameters; empty while the trial is running, because the
        agent chooses it
    value : as the user measures it, of a stopped trial the last one that it reported; NaN if it failed or is
        running
    failure : why it failed; "" if it did not
    pulls : evaluations that `value` is the mean of
    started, ended : seconds since 1970 by the clock of the agent; NaN if unknown
    intermediate : step -> value that was reported during the evaluation
    outputs : name -> number as measured, with several objectives or limits; empty if the trial failed
    feasible : whether it holds its agent's limits; None: there are none
    best : value at the agent's best after this trial, where noise makes another trial the best; else NaN
    """

    agent: str
    trial: int
    round: int
    state: str = RUNNING
    config: Mapping[str, Any] = field(default_factory=dict)
    value: float = math.nan
    failure: str = ""
    pulls: int = 1
    started: float = math.nan
    ended: float = math.nan
    intermediate: Mapping[int, float] = field(default_factory=dict)
    outputs: Mapping[str, float] = field(default_factory=dict)
    feasible: bool | None = None
    best: float = math.nan

    @staticmethod
    def of_row(row: Mapping[str, Any], times: tuple[float, float] | None) -> Trial:
        """Return the trial of a row of `trials.csv`; `times` are its start and end, None if unknown."""
        value, last = float(row["value"]), float(row.get("stopped_at", math.nan))
        state = SUCCEEDED if math.isfinite(value) else FAILED
        stopped = not math.isnan(last)
        started, ended = times or (math.nan, math.nan)
        return Trial(
            row["agent"], int(row["trial"]), int(row["round"]), STOPPED_EARLY if stopped else state,
            row["config"], value, row["failure"], int(row["pulls"]), started, ended,
            {int(last): value} if stopped else {}, row.get("outputs", {}), row.get("feasible"),
            float(row.get("best", math.nan)),
        )  # fmt: skip


def trials_of(trials: Table, times: Table) -> Iterator[Trial]:
    """Yield the trials of tables with the columns `TRIALS` and `TIMES`."""
    known = times_of(times)
    for row, key in zip(trials, _keys(trials), strict=True):
        yield Trial.of_row(row, known.get(key))


def times_of(times: Table) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Return algorithm, agent and trial -> start and end, of a table with the columns `TIMES`."""
    seconds = zip(times["started"].tolist(), times["ended"].tolist(), strict=True)
    return dict(zip(_keys(times), seconds, strict=True))


def _keys(table: Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].tolist() for name in ("algorithm", "agent", "trial")), strict=True)


def trials_frame(trials: Table, times: Table) -> Any:
    """Return trials as a DataFrame with one row per trial and one column per parameter.

    Parameters
    ----------
    trials, times : columns as in `study.schema.TRIALS` and `TIMES`

    Returns
    -------
    The columns `algorithm`, `agent`, `round`, `trial`, `value`, `state` ("succeeded", "failed" or "stopped
    early"), `started` and `ended` (times in UTC by the clock of the agent, NaT if unknown), one `config.NAME`
    for each parameter in order of appearance, one `outputs.NAME` for each of several outputs, then `pulls`,
    `regret` and `failure`, then `stopped_at`, `best` and `feasible` if `trials.csv` has them. The
    names are those of `trials.csv` and `times.csv`, so a parameter may be called "value".

    Numeric parameters have a numeric column, others a column of Python objects. A parameter that is inactive
    in a trial is NaN or None there; integers with a gap become floats.

    Raises
    ------
    ConfigError
        If pandas is not installed.
    """
    pandas = required("pandas", "to_dataframe")
    columns: dict[str, Column] = {
        name: trials[name].copy() for name in ("algorithm", "agent", "round", "trial", "value")
    }
    columns["state"] = np.where(np.isfinite(trials["value"]), SUCCEEDED, FAILED).astype(object)
    if "stopped_at" in trials.columns:
        columns["state"][np.isfinite(trials["stopped_at"])] = STOPPED_EARLY
    known = times_of(times)
    seconds = np.array([known.get(key, (math.nan, math.nan)) for key in _keys(trials)]).reshape(-1, 2)
    for name, column in zip(("started", "ended"), seconds.T, strict=True):
        columns[name] = pandas.to_datetime(column, unit="s", utc=True)
    for kind, rows in {n: trials[n].tolist() for n in ("config", "outputs") if n in trials.columns}.items():
        for name in dict.fromkeys(name for row in rows for name in row):
            values = [row.get(name) for row in rows]
            types = {type(value) for value in values}
            dtype: Any = object
            if types == {bool}:
                dtype = np.bool_
            elif types == {int} and all(abs(value) < 2**63 for value in values):
                dtype = np.int64
            elif types <= {int, float, type(None)} and types & {int, float}:
                dtype = np.float64  # None -> NaN
            column = np.fromiter(values, dtype=object, count=len(values))
            columns[f"{kind}.{name}"] = column.astype(dtype)
    last = ("pulls", "regret", "failure", "stopped_at", "best", "feasible")
    columns |= {name: trials[name].copy() for name in last if name in trials.columns}
    return pandas.DataFrame(columns)


def observations(trials: Table, space: SearchSpace, without: Collection[str] = ()) -> Observations:
    """Return the points and values of the trials that completed; see `Study.observations`."""
    check_space(space)
    held: Observations = {}
    succeeded = np.isfinite(trials["value"])
    if "stopped_at" in trials.columns:
        succeeded &= np.isnan(trials["stopped_at"])
    for agent in dict.fromkeys(trials["agent"].tolist()):
        rows = (trials["agent"] == agent) & succeeded
        if agent not in without and rows.any():
            points = np.array([space.encode(config) for config in trials["config"][rows]])
            outputs = trials["outputs"][rows].tolist() if "outputs" in trials.columns else [{}]
            named = {name: np.array([row.get(name, np.nan) for row in outputs]) for name in outputs[0]}
            held[agent] = points, named or np.array(trials["value"][rows], dtype=np.float64)
    return held
