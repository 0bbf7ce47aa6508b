"""The schema of a study: the columns of its tables, and checks of its settings (plain JSON)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.study.table import Kind, Table, printable_json

SCHEMA = 2  # version 2 added floats_down, floats_up and reasons to the rounds

TRIALS: dict[str, Kind] = {
    "algorithm": "text",
    "agent": "text",
    "round": "integer",
    "trial": "integer",
    "pulls": "integer",  # evaluations averaged in this row: bandits evaluate ("pull") a cell many times
    "config": "config",
    "value": "real",  # NaN: the trial failed
    "failure": "text",  # error message; "": the trial succeeded
    "regret": "real",  # NaN: the optimum is unknown
}
OPTIONAL: dict[str, Kind] = {  # last columns of the trials, each only where there is something to hold
    "stopped_at": "real",  # the last step of a trial that was stopped early; NaN: it was not stopped
    "best": "real",  # value at the agent's best after this trial; NaN: it is the best value so far
    "outputs": "config",  # name -> number as measured, with several objectives or limits; empty: it failed
    "feasible": "boolean",  # whether the trial holds the limits of its agent
}
ROUNDS: dict[str, Kind] = {
    "algorithm": "text",
    "round": "integer",
    "seconds": "real",
    "bytes_down": "integer",
    "bytes_up": "integer",
    "floats_down": "real",  # numbers in the algorithm's arrays, 8 bytes each; NaN: not counted
    "floats_up": "real",
    "tasks": "integer",
    "replies": "integer",
    "failures": "integer",
    "refused": "integer",
    "failed_trials": "integer",
    "mean_incumbent": "real",
    "best": "real",
    "reasons": "text",  # count per reason of failures and refused replies: "late:1 shape:2"
}
REGRET: dict[str, Kind] = {
    "algorithm": "text",
    "agent": "text",
    "evaluations": "integer",
    "cumulative": "real",
    "simple": "real",
}
MODELS: dict[str, Kind] = {  # one row per model that one site trains and others judge; NaN: unknown loss
    "algorithm": "text",
    "trial": "integer",
    "round": "integer",
    "config": "config",
    "failure": "text",  # error message; "": the training succeeded
    "local_loss": "real",  # cross-validated loss at the training site
    "remote_loss": "real",  # mean loss at the judging sites, weighted by their numbers of rows
    "on_front": "boolean",  # no other model is better in both losses
    "shipped": "boolean",
    "model": "text",  # SHA-256 of the packed model if it was kept
    "openbox_outbag": "real",  # final loss at the training site (openbox), on rows not used before
    "curators_outbag": "real",  # the same at the judging sites (curators), mean weighted by rows
    "lockbox": "real",  # the same at the held-out sites (lockbox), mean weighted by rows
}
JUDGEMENTS: dict[str, Kind] = {  # one row per model and site that judged it
    "algorithm": "text",
    "agent": "text",
    "role": "text",
    "trial": "integer",
    "split": "text",  # "inbag" or "outbag"
    "loss": "real",
    "num_rows": "integer",
    "failure": "text",
    "epsilon": "real",  # privacy budget the site spent on these rows so far; 0: it adds no noise
}
TIMES: dict[str, Kind] = {  # one row per disclosed trial; not in the trials, which a seed repeats
    "algorithm": "text",
    "agent": "text",
    "trial": "integer",
    "started": "real",  # seconds since 1970, by the clock of the agent; on a simulated clock since the start
    "ended": "real",
}
REPLIES: dict[str, Kind] = {  # one row per valid answer of an asynchronous run
    "algorithm": "text",
    "agent": "text",
    "round": "integer",  # the window in which it came
    "trial": "integer",  # its first trial
    "windows_old": "integer",  # windows that were closed between sending the task and the answer
    "answers_old": "integer",  # answers of other agents that came in between
    "used": "boolean",  # false: what it holds for others was dropped, because it was too old
}
RECOMMENDATIONS: dict[str, Kind] = {  # the best of each agent
    "algorithm": "text",
    "agent": "text",
    "value": "real",  # as measured; NaN: nobody has evaluated the configuration
    "mean": "real",  # what the model expects, by which it was chosen; NaN: values are not noisy
    "config": "config",
}

TABLES = {  # of a study, in the order of its constructor
    "trials": TRIALS,
    "rounds": ROUNDS,
    "regret": REGRET,
    "recommendations": RECOMMENDATIONS,
    "models": MODELS,
    "judgements": JUDGEMENTS,
    "times": TIMES,
    "replies": REPLIES,
}

_STATUSES = ("finished", "interrupted", "failed")


def label(run: Mapping[str, Any]) -> str:
    """Return the name of a run in tables and figures: its label, or its algorithm without one."""
    return str(run.get("label", run["algorithm"]))


def check_columns(name: str, table: Table) -> None:
    """Raise ConfigError if a table of a study does not have exactly its columns and kinds."""
    columns = trial_columns(table.columns) if name == "trials" else TABLES[name]
    if table.columns != tuple(columns) or table.kinds != columns:
        raise ConfigError(f"{name}: expected the columns {columns}, got {table.kinds}")


def trial_columns(names: Iterable[str]) -> dict[str, Kind]:
    """Return the columns of trials, with those of `OPTIONAL` that are among `names`."""
    there = set(names)
    return TRIALS | {name: kind for name, kind in OPTIONAL.items() if name in there}


def with_columns(trials: Table, names: Iterable[str]) -> Table:
    """Return trials with those columns of `OPTIONAL` that are among `names`, as if they were there before."""
    columns: dict[str, Any] = {
        "stopped_at": np.full(len(trials), np.nan),
        "best": np.full(len(trials), np.nan),
        "outputs": [{}] * len(trials),
        "feasible": np.isfinite(trials["value"]),  # without limits
    }
    columns |= {name: trials[name] for name in trials.columns}
    kinds = trial_columns([*trials.columns, *names])
    return trials if kinds == trials.kinds else Table({name: columns[name] for name in kinds}, kinds)


def checked_settings(settings: Any) -> dict[str, Any]:
    """Return checked settings as plain JSON with sorted keys: equal settings are saved as equal bytes."""
    try:
        settings = json.loads(as_json(settings, sort_keys=True))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"settings: expected plain JSON, {error}") from error
    check_schema(settings)
    if "tables" in settings:
        raise ConfigError("settings: the key 'tables' is reserved for the study itself; rename it")
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
    """Raise ConfigError if the settings have another schema version."""
    schema = expect(settings, dict, "settings").get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise ConfigError(f"study: expected schema {SCHEMA}, got {schema!r}; did another version save it?")


def expect(value: Any, type_: type, name: str) -> Any:
    """Return a value from a file or a caller; ConfigError if its type is not exactly `type_`."""
    if type(value) is not type_:
        raise ConfigError(f"{name}: expected a {type_.__name__}, got {type(value).__name__}")
    return value


def as_json(value: object, sort_keys: bool = False) -> str:
    """Return a value as indented JSON; NumPy scalars are Python numbers, control characters are escapes."""
    text = json.dumps(value, indent=2, sort_keys=sort_keys, ensure_ascii=False, default=_python_scalar)
    return printable_json(text)


def _python_scalar(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"not {type(value).__name__}")
