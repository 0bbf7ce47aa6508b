"""Turn the trials of a study into a pandas DataFrame; pandas is optional and imported late.

::

    study = Study.load("runs/demo")
    frame = study.to_dataframe()
    frame.loc[frame["state"] == "succeeded"].groupby("agent")["value"].max()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fbo_flower.study.pandas_module import require_pandas
from fbo_flower.study.table import Table

Column = npt.NDArray[Any]

SUCCEEDED, FAILED, STOPPED_EARLY = "succeeded", "failed", "stopped early"
_PARAMETER: Final = "config."
_KEY = ("algorithm", "agent", "trial")  # of a trial in `trials.csv` and `times.csv`


def trials_frame(trials: Table, times: Table) -> Any:
    """Return trials as a DataFrame with one row per trial and one column per parameter.

    Parameters
    ----------
    trials, times : columns as in `study.schema.TRIALS` and `TIMES`

    Returns
    -------
    The columns `algorithm`, `agent`, `round`, `trial`, `value`, `state` ("succeeded", "failed" or
    "stopped early"), `started`
    and `ended` (times in UTC by the clock of the agent, NaT if unknown), one `config.NAME` for each parameter
    in order of appearance, then `pulls`, `regret` and `failure`, and
    `stopped_at` if trials were stopped early. The names are those of `trials.csv` and
    `times.csv`, so a parameter may be called "value".

    Numeric parameters have a numeric column, others a column of Python objects. A parameter that is inactive
    in a trial is NaN or None there; integers with a gap become floats.

    Raises
    ------
    ConfigError
        If pandas is not installed.
    """
    pandas = require_pandas("to_dataframe")
    configs = trials["config"].tolist()
    columns: dict[str, Column] = {
        name: trials[name].copy() for name in ("algorithm", "agent", "round", "trial", "value")
    }
    columns["state"] = np.where(np.isfinite(trials["value"]), SUCCEEDED, FAILED).astype(object)
    if "stopped_at" in trials.columns:
        columns["state"][np.isfinite(trials["stopped_at"])] = STOPPED_EARLY
    for name, seconds in _aligned(trials, times).items():
        columns[name] = pandas.to_datetime(seconds, unit="s", utc=True)
    for name in dict.fromkeys(name for config in configs for name in config):
        columns[_PARAMETER + name] = _parameter_column([config.get(name) for config in configs])
    last = [name for name in ("pulls", "regret", "failure", "stopped_at") if name in trials.columns]
    columns |= {name: trials[name].copy() for name in last}
    return pandas.DataFrame(columns)


def _aligned(trials: Table, times: Table) -> dict[str, Column]:
    """Return start and end of every trial in seconds, NaN if unknown, `(n,)` each."""
    keys = [zip(*(table[name].tolist() for name in _KEY), strict=True) for table in (trials, times)]
    rows = {key: row for row, key in enumerate(keys[1])}
    found = np.array([rows.get(key, -1) for key in keys[0]], dtype=np.int64)
    return {
        name: np.append(times[name], np.nan)[found]  # -1 takes the NaN at the end
        for name in ("started", "ended")
    }


def _parameter_column(values: Sequence[Any]) -> Column:
    types = {type(value) for value in values}
    if types == {bool}:
        return np.array(values, dtype=np.bool_)
    if types == {int} and all(abs(value) < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    if types <= {int, float, type(None)} and types & {int, float}:
        return np.array(values, dtype=np.float64)  # None -> NaN
    return np.fromiter(values, dtype=object, count=len(values))
