"""Write the trials of a run as trials of Optuna, so that its dashboard and its plots show them.

Each agent has an Optuna study of its own, because agents have objectives of their own; or one Optuna study
holds the trials of all agents. Every Optuna trial has the user attributes `agent`, `trial` and `round`. By
the first two a trial is recognised: what a storage holds is not written again.

An Optuna study is called `LABEL: AGENT`, or `LABEL` if it holds all agents. A second run with this label in
the same storage is called `LABEL (2)`. The user attributes of an Optuna study say which run it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fbo_flower.errors import ConfigError
from fbo_flower.space.optuna import require_optuna, to_distributions
from fbo_flower.space.space import SearchSpace
from fbo_flower.study.optuna_storage import Storage, open_storage, quiet_optuna
from fbo_flower.study.ranking import natural_order
from fbo_flower.study.trial import RUNNING, STOPPED_EARLY, SUCCEEDED, Trial, trials_of

if TYPE_CHECKING:
    from fbo_flower.study.study import Study

RUN, LABEL, NUMBER, AGENT = "fbo_flower:study", "fbo_flower:label", "fbo_flower:number", "agent"
_SETTINGS = ("algorithm", "options", "problem", "metric", "seed")  # of a run, for its Optuna studies
_WITH_VALUE = (SUCCEEDED, STOPPED_EARLY)


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
        one_study: bool = False,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self._optuna = require_optuna("optuna")
        self._distributions = to_distributions(space)
        self._run, self._label = run, label
        self._minimize, self._one_study = minimize, one_study
        self._attributes = dict(attributes or {})
        with quiet_optuna():
            self._storage = open_storage(storage)
            self._targets: dict[str, _Target] = {}
            self._number = self._find_own()

    @property
    def names(self) -> list[str]:
        """Names of the Optuna studies of this run, in the order of the agents."""
        ordered = sorted(self._targets.items(), key=lambda item: natural_order(item[0]))
        return [self._storage.get_study_name_from_id(target.study_id) for _, target in ordered]

    def write_all(self, trials: Iterable[Trial]) -> int:
        """Write trials; return how many of them the storage did not hold in their states."""
        with quiet_optuna():
            return sum(map(self.write, trials))

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
            if trial_id is None:
                trial_id = self._storage.create_new_trial(target.study_id, self._frozen(trial))
            else:
                self._finish(trial_id, trial)
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

    def _find_own(self) -> int:
        """Find the Optuna studies of this run; return its number among the runs with this label."""
        own, numbers = 0, [0]
        for study in self._storage.get_all_studies():
            attributes = study.user_attrs
            if attributes.get(LABEL) != self._label or not isinstance(attributes.get(NUMBER), int):
                continue
            if attributes.get(RUN) != self._run:
                numbers.append(attributes[NUMBER])
            elif (AGENT not in attributes) == self._one_study:
                own = attributes[NUMBER]
                target = self._targets[str(attributes.get(AGENT, ""))] = _Target(study._study_id)
                target.known.update(self._known(study._study_id))
        return own or max(numbers) + 1

    def _known(self, study_id: int) -> Iterable[tuple[tuple[str, int], tuple[int, bool]]]:
        for trial in self._storage.get_all_trials(study_id, deepcopy=False):
            agent, number = trial.user_attrs.get("agent"), trial.user_attrs.get("trial")
            if isinstance(agent, str) and isinstance(number, int):
                yield (agent, number), (trial._trial_id, not trial.state.is_finished())

    def _create(self, agent: str) -> _Target:
        from optuna.study import StudyDirection

        direction = StudyDirection.MINIMIZE if self._minimize else StudyDirection.MAXIMIZE
        while True:
            number = f" ({self._number})" if self._number > 1 else ""
            name = f"{self._label}{number}" + (f": {agent}" if agent else "")
            try:
                study_id = self._storage.create_new_study([direction], name)
                break
            except self._optuna.exceptions.DuplicatedStudyError:  # made by somebody else
                self._number += 1
        own = {RUN: self._run, LABEL: self._label, NUMBER: self._number} | ({AGENT: agent} if agent else {})
        for attribute, value in (own | self._attributes).items():
            self._storage.set_study_user_attr(study_id, attribute, value)
        return _Target(study_id)

    def _frozen(self, trial: Trial) -> Any:
        """Return a trial of Optuna, with the times of the agent if it said them."""
        running = trial.state == RUNNING
        frozen = self._optuna.trial.create_trial(
            state=self._state(trial),
            value=trial.value if trial.state in _WITH_VALUE else None,
            params=dict(trial.config),
            distributions={name: self._distributions[name] for name in trial.config},
            user_attrs=_attributes(trial),
            intermediate_values=dict(trial.intermediate),
        )
        now = datetime.now()  # Optuna's times are local and have no zone
        frozen.datetime_start = _local(trial.started, now)
        frozen.datetime_complete = None if running else _local(trial.ended, now)
        return frozen

    def _finish(self, trial_id: int, trial: Trial) -> None:
        """Give a running trial its configuration and its result; it can be repeated if it was cut short."""
        for name, value in trial.config.items():
            distribution = self._distributions[name]
            internal = distribution.to_internal_repr(value)
            self._storage.set_trial_param(trial_id, name, internal, distribution)
        for attribute, value in _attributes(trial).items():
            self._storage.set_trial_user_attr(trial_id, attribute, value)
        for step, value in trial.intermediate.items():
            self._storage.set_trial_intermediate_value(trial_id, step, value)
        values = [trial.value] if trial.state in _WITH_VALUE else None
        self._storage.set_trial_state_values(trial_id, self._state(trial), values)

    def _state(self, trial: Trial) -> Any:
        states = self._optuna.trial.TrialState
        if trial.state == RUNNING:
            return states.RUNNING
        if trial.state == STOPPED_EARLY:
            return states.PRUNED
        return states.COMPLETE if trial.state == SUCCEEDED else states.FAIL


def _attributes(trial: Trial) -> dict[str, Any]:
    attributes: dict[str, Any] = {"agent": trial.agent, "trial": trial.trial, "round": trial.round}
    if trial.failure:
        attributes["failure"] = trial.failure
    if trial.pulls != 1:
        attributes["pulls"] = trial.pulls
    return attributes


def _local(seconds: float, otherwise: datetime) -> datetime:
    try:
        return datetime.fromtimestamp(seconds)
    except (ValueError, OverflowError, OSError):  # NaN: unknown; or an agent's clock is far off
        return otherwise


def write_study_to_optuna(
    study: Study, storage: Storage, one_study: bool, space: SearchSpace | None
) -> list[Any]:
    """Write the trials of all runs of a study into an Optuna storage; see `Study.to_optuna`."""
    optuna = require_optuna("optuna")
    spaces = [space or _space_of(study, label) for label in study.algorithms]
    names: list[str] = []
    with quiet_optuna():
        try:
            opened = optuna.storages.InMemoryStorage() if storage is None else open_storage(storage)
            for label, own in zip(study.algorithms, spaces, strict=True):
                run = study.run(label)
                # a study that was made by hand has no id
                run_id = run.get("study") or f"{label} {study.settings.get('created', '')}".strip()
                known = {name: run[name] for name in _SETTINGS if name in run}
                writer = OptunaWriter(opened, run_id, label, own, study.minimizes(label), one_study, known)
                trials, times = (table.where(algorithm=label) for table in (study.trials, study.times))
                writer.write_all(trials_of(trials, times))
                names += writer.names
        except ConfigError:
            raise
        except Exception as error:  # of any database driver
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise ConfigError(f"{storage}: cannot be written ({reason})") from error
        return [optuna.load_study(study_name=name, storage=opened) for name in names]


def _space_of(study: Study, label: str) -> SearchSpace:
    text = study.run(label).get("space")
    if not isinstance(text, str):
        raise ConfigError(
            f"to_optuna: expected the search space of {label} in the study, found none; pass space=..."
        )
    return SearchSpace.from_json(text)
