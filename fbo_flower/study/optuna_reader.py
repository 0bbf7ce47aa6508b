"""Read the trials of Optuna studies, so that agents can begin with them.

Finished trials are read: complete ones with their value, failed ones without. Pruned trials are left out,
because their last value was measured with less work than a complete one's, and so are those that still run.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from fbo_flower.errors import ConfigError
from fbo_flower.space.optuna import from_distributions
from fbo_flower.space.space import SearchSpace
from fbo_flower.study.optuna_storage import Storage, open_storage, quiet_optuna
from fbo_flower.study.optuna_writer import AGENT, LABEL, NUMBER, RUN
from fbo_flower.study.schema import SCHEMA, STOPPED, TIMES, TRIALS
from fbo_flower.study.table import Table

_FAILED = "the trial failed"


def read_studies(
    storage: Storage, name: str | None, agent: str | None, space: SearchSpace | None
) -> tuple[dict[str, Any], Table, Table]:
    """Return the settings, the trials and the times of Optuna studies; see `Study.from_optuna`.

    Raises
    ------
    ConfigError
        If Optuna is not installed, there is no such study, or one has several objectives.
    """
    with quiet_optuna():
        opened, source = _opened(storage)
        found = {study.study_name: study for study in opened.get_all_studies()}
        if name is not None and name not in found:
            raise ConfigError(
                f"study: expected one of {', '.join(sorted(found)) or 'no study'} in {source}, got {name!r}"
            )
        chosen = [found[name]] if name is not None else list(found.values())
        if not chosen:
            raise ConfigError(f"{source}: expected an Optuna study, found none")
        trials = {study.study_name: opened.get_all_trials(study._study_id) for study in chosen}
    runs: dict[str, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    times: list[dict[str, Any]] = []
    outside: list[str] = []
    for study in chosen:
        if len(study.directions) != 1:
            raise ConfigError(
                f"{study.study_name}: expected one objective, got {len(study.directions)}; pass the name of "
                "another study"
            )
        label, run = _run_of(study, space, trials[study.study_name])
        runs.setdefault(label, run)
        for trial in trials[study.study_name]:
            if trial.state.name not in {"COMPLETE", "FAIL", "PRUNED"} or not trial.params:
                continue
            if trial.state.name == "PRUNED" and not _is_stopped(trial):
                continue
            if space is not None and (reason := _outside(space, trial.params)):
                outside.append(reason)
                continue
            row = _row(trial, label, agent or study.user_attrs.get(AGENT) or study.study_name)
            rows.append(row)
            times += _times(trial, row)
    if outside:
        warnings.warn(
            f"from_optuna: {len(outside)} of {len(outside) + len(rows)} trials are not in the search space "
            f"and were left out, the first because of {outside[0]}",
            stacklevel=4,
        )
    settings = {"schema": SCHEMA, "name": name or source, "runs": list(runs.values())}
    columns = TRIALS
    if any(math.isfinite(row["stopped_at"]) for row in rows):
        columns = TRIALS | STOPPED
    table = Table.from_rows([{name: row[name] for name in columns} for row in rows], columns)
    return settings, table, Table.from_rows(times, TIMES)


def _opened(storage: Storage) -> tuple[Any, str]:
    try:
        return open_storage(storage), str(storage)
    except ConfigError:
        raise
    except Exception as error:  # of any database driver
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{storage}: cannot be opened as an Optuna storage ({reason})") from error


def _run_of(study: Any, space: SearchSpace | None, trials: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Return the label and the settings of the run that an Optuna study belongs to."""
    attributes = study.user_attrs
    label, number = attributes.get(LABEL, study.study_name), attributes.get(NUMBER, 1)
    label = f"{label} ({number})" if number != 1 else str(label)
    run: dict[str, Any] = {"algorithm": label, "label": label}
    if study.directions[0].name == "MINIMIZE":
        run["minimize"] = True
    if RUN in attributes:
        run["study"] = attributes[RUN]
    space = _space_of(trials) if space is None else space
    return label, run | ({} if space is None else {"space": space.to_json()})


def _space_of(trials: Sequence[Any]) -> SearchSpace | None:
    """Return the space that the trials are from; None if some parameters are not in every trial."""
    distributions = [trial.distributions for trial in trials if trial.distributions]
    if not distributions or any(found != distributions[0] for found in distributions):
        return None
    try:
        return from_distributions(distributions[0])
    except ConfigError:  # a name or a number of steps that a search space cannot have
        return None


def _outside(space: SearchSpace, config: Mapping[str, Any]) -> str:
    """Return why a configuration is not in a space; "" if it is."""
    try:
        space.encode(config)
    except ConfigError as error:
        return str(error)
    return ""


def _row(trial: Any, label: str, agent: str) -> dict[str, Any]:
    attributes = trial.user_attrs
    stopped = trial.state.name == "PRUNED"
    complete = trial.state.name == "COMPLETE" and math.isfinite(trial.value)
    value = trial.intermediate_values[trial.last_step] if stopped else trial.value
    return {
        "algorithm": label,
        "agent": _attribute(attributes, "agent", agent),
        "round": _attribute(attributes, "round", 0),
        "trial": _attribute(attributes, "trial", trial.number),
        "pulls": _attribute(attributes, "pulls", 1),
        "config": dict(trial.params),
        "value": value if complete or stopped else math.nan,
        "failure": "" if complete or stopped else _attribute(attributes, "failure", _FAILED),
        "regret": math.nan,
        "stopped_at": float(trial.last_step) if stopped else math.nan,
    }


def _is_stopped(trial: Any) -> bool:
    """Return whether a pruned trial is one of ours, with a last step and a finite value there."""
    step = trial.last_step
    return "agent" in trial.user_attrs and step is not None and math.isfinite(trial.intermediate_values[step])


def _attribute(attributes: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    """Return a user attribute if it has the type that we write, and otherwise a default."""
    value = attributes.get(name)
    return value if type(value) is type(otherwise) else otherwise


def _times(trial: Any, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    started, ended = trial.datetime_start, trial.datetime_complete
    if isinstance(started, datetime) and isinstance(ended, datetime):
        key = {name: row[name] for name in ("algorithm", "agent", "trial")}
        yield key | {"started": started.timestamp(), "ended": ended.timestamp()}
