"""Studies and Optuna: trials written into a storage, so that its dashboard shows them, and read from one.

Each agent has an Optuna study of its own, because agents have objectives of their own; or one Optuna study
holds the trials of all agents. Every Optuna trial has the user attributes `agent`, `trial` and `round`. By
the first two a trial is recognised: what a storage holds is not written again.

An Optuna study is called `LABEL: AGENT`, or `LABEL` if it holds all agents. A second run with this label in
the same storage is called `LABEL (2)`. The user attributes of an Optuna study say which run it belongs to.

Finished trials are read: complete ones with their value, failed ones without. Pruned trials of others are
left out, because their last value was measured with less work than a complete one's, and so are those that
still run.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.space.checks import is_choice, plain, show
from fbo_flower.space.optuna import from_distributions, require_optuna, to_distributions
from fbo_flower.space.space import SearchSpace, check_space
from fbo_flower.storage.files import special_kind
from fbo_flower.storage.paths import path_of
from fbo_flower.study.ranking import natural_order
from fbo_flower.study.schema import SCHEMA, TIMES, trial_columns
from fbo_flower.study.table import Table
from fbo_flower.study.trial import RUNNING, STOPPED_EARLY, SUCCEEDED, Trial, trials_of

if TYPE_CHECKING:
    from fbo_flower.study.study import Study

SQLITE = "sqlite:///"
BUSY_SECONDS = 1.0  # to wait for a locked database; Optuna itself tries five times
_DATABASES, _JOURNALS = (".db", ".sqlite", ".sqlite3"), (".log", ".journal")
_RUN, _LABEL, _NUMBER, _AGENT = "fbo_flower:study", "fbo_flower:label", "fbo_flower:number", "agent"
_SETTINGS = ("algorithm", "options", "problem", "metric", "seed")  # of a run, for its Optuna studies
_STATES = {RUNNING: "RUNNING", SUCCEEDED: "COMPLETE", STOPPED_EARLY: "PRUNED"}  # all others: FAIL
_FAILED = "the trial failed"
_NAMES, _OUTPUT = "study:metric_names", "outputs."  # Optuna's system attribute, and our user attributes

Storage = Any  # a URL, a path or an `optuna.storages.BaseStorage`, which has no types where it is missing


# -- storages ---------------------------------------------------------------------------------------------


def storage_name(storage: Storage) -> Storage:
    """Return a storage with a file in the form of a URL or path that `open_storage` knows, with `~` expanded.

    "study.db" becomes "sqlite:///study.db".

    Raises
    ------
    ConfigError
        If Optuna is not installed, or `storage` cannot be one.
    """
    require_optuna("optuna")
    if hasattr(storage, "create_new_trial"):
        return storage
    if not isinstance(storage, str | os.PathLike):
        raise ConfigError(
            f"optuna: expected a URL such as 'sqlite:///study.db', got {kind_of(storage)}; or a file, or a "
            "storage of Optuna"
        )
    text = os.fspath(storage)
    if "://" in text and not text.startswith(SQLITE):
        return text
    path = path_of(text.removeprefix(SQLITE), "optuna")
    if not text.startswith(SQLITE) and path.suffix not in _DATABASES + _JOURNALS:
        raise ConfigError(
            f"optuna: expected a URL such as 'sqlite:///study.db', or a file that ends in .db (SQLite) or "
            f".log (Optuna's journal), got {text!r}"
        )
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"optuna: expected a file in an existing directory, got {text!r}")
    if kind := special_kind(path):
        raise ConfigError(f"optuna: expected a regular file, got {kind} at {path}; pass the file itself")
    return f"{path}" if path.suffix in _JOURNALS else f"{SQLITE}{path}"


def open_storage(storage: Storage) -> Any:
    """Return the `optuna.storages.BaseStorage` that `storage_name` names; Optuna's errors pass."""
    optuna = require_optuna("optuna")
    storage = storage_name(storage)
    if not isinstance(storage, str):
        return storage
    if storage.startswith(SQLITE):
        waits = {"connect_args": {"timeout": BUSY_SECONDS}}
        return optuna.storages.RDBStorage(storage, engine_kwargs=waits)
    if "://" in storage:
        return optuna.storages.get_storage(storage)
    from optuna.storages.journal import JournalFileBackend

    return optuna.storages.JournalStorage(JournalFileBackend(storage))


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Let Optuna log warnings only; it would log a line for every study that is created."""
    optuna = require_optuna("optuna")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


# -- writing ----------------------------------------------------------------------------------------------


@dataclass
class _Target:
    """An Optuna study: its id, and (agent, trial) -> id of the Optuna trial and whether it is running."""

    study_id: int
    known: dict[tuple[str, int], tuple[int, bool]] = field(default_factory=dict)


class OptunaWriter:
    """Writes the trials of one run into an Optuna storage.

    Parameters
    ----------
    storage : a URL, a file, or a storage of Optuna
    run : id of the run; trials of the same run are not written twice
    label : name of the run
    space : its search space
    minimize : whether smaller values are better
    objectives : name -> "max" or "min" of several objectives; else empty
    one_study : whether the trials of all agents go into one Optuna study
    attributes : further user attributes of the Optuna studies, JSON values

    Raises
    ------
    ConfigError
        If Optuna is not installed, or cannot hold the values of a parameter.
    """

    def __init__(
        self,
        storage: Storage,
        run: str,
        label: str,
        space: SearchSpace,
        minimize: bool,
        objectives: Mapping[str, str],
        one_study: bool = False,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self._optuna = require_optuna("optuna")
        self._distributions = to_distributions(space)
        self._run, self._label = run, label
        self._directions = objectives if len(objectives) > 1 else {"": "min" if minimize else "max"}
        self._one_study = one_study
        self._attributes = dict(attributes or {})
        self._targets: dict[str, _Target] = {}
        with quiet_optuna():
            self._storage = open_storage(storage)
            own, numbers = 0, [0]  # the number of this run, and those of others with this label
            for study in self._storage.get_all_studies():
                known = study.user_attrs
                if known.get(_LABEL) != label or not isinstance(known.get(_NUMBER), int):
                    continue
                if known.get(_RUN) != run:
                    numbers.append(known[_NUMBER])
                elif (_AGENT not in known) == one_study:
                    own = known[_NUMBER]
                    target = self._targets[str(known.get(_AGENT, ""))] = _Target(study._study_id)
                    for trial in self._storage.get_all_trials(study._study_id, deepcopy=False):
                        agent, number = trial.user_attrs.get("agent"), trial.user_attrs.get("trial")
                        if isinstance(agent, str) and isinstance(number, int):
                            target.known[agent, number] = trial._trial_id, not trial.state.is_finished()
            self._number = own or max(numbers) + 1

    @property
    def names(self) -> list[str]:
        """Names of the Optuna studies of this run, in the order of the agents."""
        ordered = sorted(self._targets.items(), key=lambda item: natural_order(item[0]))
        return [self._storage.get_study_name_from_id(target.study_id) for _, target in ordered]

    def write(self, trial: Trial) -> bool:
        """Write a trial; return whether the storage did not hold it in this state. Optuna's errors pass."""
        with quiet_optuna():
            agent = "" if self._one_study else trial.agent
            target = self._targets.get(agent)
            if target is None:
                target = self._targets[agent] = self._create(agent)
            key = trial.agent, trial.trial
            trial_id, running = target.known.get(key, (None, True))
            if not running or (trial_id is not None and trial.state == RUNNING):
                return False
            frozen = self._frozen(trial)
            if trial_id is None:
                trial_id = self._storage.create_new_trial(target.study_id, frozen)
            else:  # it was written while it ran; this can be repeated if it is cut short
                for name, value in frozen.params.items():
                    distribution = frozen.distributions[name]
                    internal = distribution.to_internal_repr(value)
                    self._storage.set_trial_param(trial_id, name, internal, distribution)
                for store, entries in (
                    (self._storage.set_trial_user_attr, frozen.user_attrs),
                    (self._storage.set_trial_system_attr, frozen.system_attrs),
                    (self._storage.set_trial_intermediate_value, frozen.intermediate_values),
                ):
                    for name, value in entries.items():
                        store(trial_id, name, value)
                self._storage.set_trial_state_values(trial_id, frozen.state, frozen.values)
            target.known[key] = trial_id, trial.state == RUNNING
            return True

    def fail_unfinished(self, reason: str) -> None:
        """Let the trials that the storage holds as running end as failed."""
        with quiet_optuna():
            for target in self._targets.values():
                for key, (trial_id, running) in target.known.items():
                    if running:
                        self._storage.set_trial_user_attr(trial_id, "failure", reason)
                        self._storage.set_trial_state_values(trial_id, self._optuna.trial.TrialState.FAIL)
                        target.known[key] = trial_id, False

    def _create(self, agent: str) -> _Target:
        from optuna.study import StudyDirection

        known = {"min": StudyDirection.MINIMIZE, "max": StudyDirection.MAXIMIZE}
        directions = [known[direction] for direction in self._directions.values()]
        while True:
            number = f" ({self._number})" if self._number > 1 else ""
            name = f"{self._label}{number}" + (f": {agent}" if agent else "")
            try:
                study_id = self._storage.create_new_study(directions, name)
                break
            except self._optuna.exceptions.DuplicatedStudyError:  # made by somebody else
                self._number += 1
        own = {_RUN: self._run, _LABEL: self._label, _NUMBER: self._number}
        own |= {_AGENT: agent} if agent else {}
        for attribute, value in (own | self._attributes).items():
            self._storage.set_study_user_attr(study_id, attribute, value)
        if len(directions) > 1:
            self._storage.set_study_system_attr(study_id, _NAMES, list(self._directions))
        return _Target(study_id)

    def _frozen(self, trial: Trial) -> Any:
        """Return a trial of Optuna, with the times of the agent if it said them.

        Optuna's constraint is -1 where a trial holds its agent's limits and 1 elsewhere: bounds are unknown.
        """
        attributes: dict[str, Any] = {"agent": trial.agent, "trial": trial.trial, "round": trial.round}
        attributes |= {"failure": trial.failure} if trial.failure else {}
        attributes |= {"pulls": trial.pulls} if trial.pulls != 1 else {}
        attributes |= {f"{_OUTPUT}{name}": number for name, number in trial.outputs.items()}
        values = [trial.value] if trial.state in {SUCCEEDED, STOPPED_EARLY} else None
        if values and len(self._directions) > 1:
            values = [trial.outputs[name] for name in self._directions]
        limited = values is not None and trial.feasible is not None
        frozen = self._optuna.trial.create_trial(
            state=self._optuna.trial.TrialState[_STATES.get(trial.state, "FAIL")],
            values=values,
            system_attrs={"constraints": [-1.0 if trial.feasible else 1.0]} if limited else {},
            params=dict(trial.config),
            distributions={name: self._distributions[name] for name in trial.config},
            user_attrs=attributes,
            intermediate_values=dict(trial.intermediate),
        )
        now = datetime.now()  # Optuna's times are local and have no zone
        frozen.datetime_start = _local(trial.started, now)
        frozen.datetime_complete = None if trial.state == RUNNING else _local(trial.ended, now)
        return frozen


def _local(seconds: float, otherwise: datetime) -> datetime:
    try:
        return datetime.fromtimestamp(seconds)
    except (ValueError, OverflowError, OSError):  # NaN: unknown; or an agent's clock is far off
        return otherwise


def write(study: Study, storage: Storage, one_study: bool, space: SearchSpace | None) -> list[Any]:
    """Write the trials of all runs of a study into an Optuna storage; see `Study.to_optuna`."""
    optuna = require_optuna("optuna")
    texts = {label: study.run(label).get("space") for label in study.algorithms}
    if space is not None:
        check_space(space)
    for label in [] if space else [label for label, text in texts.items() if not isinstance(text, str)]:
        raise ConfigError(
            f"to_optuna: expected the search space of {label} in the study, found none; pass space=..."
        )
    names: list[str] = []
    with quiet_optuna():
        try:
            opened = optuna.storages.InMemoryStorage() if storage is None else open_storage(storage)
            for label, text in texts.items():
                run, own = study.run(label), space or SearchSpace.from_json(str(text))
                # a study that was made by hand has no id
                run_id = run.get("study") or f"{label} {study.settings.get('created', '')}".strip()
                known = {name: run[name] for name in _SETTINGS if name in run}
                minimize, objectives = study.minimizes(label), study.objectives
                writer = OptunaWriter(opened, run_id, label, own, minimize, objectives, one_study, known)
                tables = (table.where(algorithm=label) for table in (study.trials, study.times))
                for trial in trials_of(*tables):
                    writer.write(trial)
                names += writer.names
        except ConfigError:
            raise
        except Exception as error:  # of any database driver
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise ConfigError(f"{storage}: cannot be written ({reason})") from error
        return [optuna.load_study(study_name=name, storage=opened) for name in names]


# -- reading ----------------------------------------------------------------------------------------------


def read_studies(
    storage: Storage, name: str | None, agent: str | None, space: SearchSpace | None
) -> tuple[dict[str, Any], Table, Table]:
    """Return the settings, the trials and the times of Optuna studies; see `Study.from_optuna`."""
    chosen = _stored(storage, name)
    runs: dict[str, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    times: list[dict[str, Any]] = []
    outside: list[str] = []
    for study, trials in chosen:
        label, run = _run_of(study, space, trials)
        runs.setdefault(label, run)
        for trial in trials:
            if trial.state.name not in {"COMPLETE", "FAIL", "PRUNED"} or not trial.params:
                continue
            last = trial.intermediate_values.get(trial.last_step, math.nan)
            if trial.state.name == "PRUNED" and not ("agent" in trial.user_attrs and math.isfinite(last)):
                continue  # a pruned trial of others
            try:
                for own, value in trial.params.items():
                    if not is_choice(plain(value)):
                        raise ConfigError(f"{own}: expected str, int, float, bool or None, got {show(value)}")
                if space is not None:
                    space.encode(trial.params)
            except ConfigError as error:
                outside.append(str(error))
                continue
            owner = agent or study.user_attrs.get(_AGENT) or study.study_name
            row = _row(trial, label, owner, study.system_attrs.get(_NAMES, []))
            rows.append(row)
            started, ended = trial.datetime_start, trial.datetime_complete
            if isinstance(started, datetime) and isinstance(ended, datetime):
                key = {name: row[name] for name in ("algorithm", "agent", "trial")}
                times.append(key | {"started": started.timestamp(), "ended": ended.timestamp()})
    if outside:
        warnings.warn(
            f"from_optuna: {len(outside)} of {len(outside) + len(rows)} trials are not in the search space "
            f"and were left out, the first because of {outside[0]}",
            stacklevel=4,
        )
    settings = {"schema": SCHEMA, "name": name or str(storage), "runs": list(runs.values())}
    there = {
        "stopped_at": any(math.isfinite(row["stopped_at"]) for row in rows),
        "outputs": any(row["outputs"] for row in rows),
        "feasible": any(row["feasible"] is not None for row in rows),
    }
    columns = trial_columns([name for name, is_there in there.items() if is_there])
    for row in rows:
        row["feasible"] = row["feasible"] is not False and math.isfinite(row["value"])
    table = Table.from_rows([{name: row[name] for name in columns} for row in rows], columns)
    return settings, table, Table.from_rows(times, TIMES)


def _stored(storage: Storage, name: str | None) -> list[tuple[Any, list[Any]]]:
    with quiet_optuna():
        try:
            opened = open_storage(storage)
        except ConfigError:
            raise
        except Exception as error:  # of any database driver
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(f"{storage}: cannot be opened as an Optuna storage ({reason})") from error
        found = {study.study_name: study for study in opened.get_all_studies()}
        if name is not None and name not in found:
            known = ", ".join(sorted(found)) or "no study"
            raise ConfigError(f"study: expected one of {known} in {storage}, got {name!r}")
        if not found:
            raise ConfigError(f"{storage}: expected an Optuna study, found none")
        chosen = list(found.values()) if name is None else [found[name]]
        return [(study, opened.get_all_trials(study._study_id)) for study in chosen]


def _run_of(study: Any, space: SearchSpace | None, trials: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    attributes = study.user_attrs
    label, number = attributes.get(_LABEL, study.study_name), attributes.get(_NUMBER, 1)
    label = f"{label} ({number})" if number != 1 else str(label)
    run: dict[str, Any] = {"algorithm": label, "label": label}
    directions = ["min" if direction.name == "MINIMIZE" else "max" for direction in study.directions]
    if len(directions) > 1:
        names = study.system_attrs.get(_NAMES)
        if not isinstance(names, list):
            raise ConfigError(
                f"{study.study_name}: expected names of its {len(directions)} objectives, found none; call "
                "study.set_metric_names([...]), or pass the name of another study"
            )
        run["objectives"] = [list(pair) for pair in zip(names, directions, strict=True)]
    elif directions == ["min"]:
        run["minimize"] = True
    if _RUN in attributes:
        run["study"] = attributes[_RUN]
    distributions = [trial.distributions for trial in trials if trial.distributions]
    if space is None and distributions and all(found == distributions[0] for found in distributions):
        with suppress(ConfigError):  # a name or a number of steps that a search space cannot have
            space = from_distributions(distributions[0])
    return label, run | ({} if space is None else {"space": space.to_json()})


def _row(trial: Any, label: str, agent: str, names: Sequence[str]) -> dict[str, Any]:
    """Return a row of trials; `names` are those of the objectives, if they have any.

    Numbers among the user attributes are outputs, too, if there are limits or several objectives.
    """
    attributes, values = trial.user_attrs, trial.values or [math.nan]
    stopped = trial.state.name == "PRUNED"
    complete = trial.state.name == "COMPLETE" and all(map(math.isfinite, values))
    value = trial.intermediate_values[trial.last_step] if stopped else values[0]
    system = trial.system_attrs  # a list, or by name
    named = (number for key, number in system.items() if key.startswith("constraints:"))
    constraints = [*system.get("constraints", ()), *named]
    outputs: dict[str, float] = {}
    if complete and (len(values) > 1 or constraints):
        own = {name: found for name, found in attributes.items() if type(found) in {int, float}}
        outputs = {
            name.removeprefix(_OUTPUT): float(found)
            for name, found in own.items()
            if name not in {"agent", "trial", "round", "pulls"} and math.isfinite(found)
        } | dict(zip(names, values, strict=False))
    return {
        "algorithm": label,
        "agent": _attribute(attributes, "agent", agent),
        "round": _attribute(attributes, "round", 0),
        "trial": _attribute(attributes, "trial", trial.number),
        "pulls": _attribute(attributes, "pulls", 1),
        "config": {name: plain(value) for name, value in trial.params.items()},
        "value": value if complete or stopped else math.nan,
        "failure": "" if complete or stopped else _attribute(attributes, "failure", _FAILED),
        "regret": math.nan,
        "stopped_at": float(trial.last_step) if stopped else math.nan,
        "outputs": outputs,
        "feasible": all(number <= 0 for number in constraints) if constraints else None,
    }


def _attribute(attributes: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    """Return a user attribute if it has the type that we write, and otherwise a default."""
    value = attributes.get(name)
    return value if type(value) is type(otherwise) else otherwise
