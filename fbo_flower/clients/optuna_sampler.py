"""`FederatedSampler`: a site's own Optuna study whose trials are chosen together with other sites."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fbo_flower.algorithms.aims import NUMBER, SIDES
from fbo_flower.clients.asking import Site
from fbo_flower.errors import ConfigError
from fbo_flower.space.checks import check_number
from fbo_flower.space.optuna import require_optuna
from fbo_flower.space.space import Config, SearchSpace

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, TrialState
else:
    try:
        from optuna.samplers import BaseSampler
        from optuna.trial import TrialState
    except ImportError:  # the name can be imported and looked up; a sampler says what to install
        BaseSampler = object

OURS = "fbo_flower:trial"  # system attribute of the trials that the agent has asked for


class FederatedSampler(BaseSampler):
    """A sampler of Optuna that takes its trials from the agent of this site.

    In a script only one line changes: `optuna.create_study(sampler=FederatedSampler("north.db"), ...)`.
    Objective, storage, pruner and dashboard stay as they are. The app has the objective `Asked()` and a
    search space with the names, ranges and choices that the script suggests.

    - A completed trial is told with its value or values, a failed or pruned one as failed.
    - With several objectives the study has their `directions`, in the order of the app's. A limited output
      that is no objective is a user attribute, `trial.set_user_attr("latency_ms", 12.0)`, or a constraint,
      `trial.set_constraint("latency_ms", -3.0)`: how far it is beyond the device's bound. Optuna sees which
      trials hold the limits of this device.
    - Completed trials that the Optuna study holds already, and enqueued ones, enter the agent's own history.
    - Run a script in several processes for several trials at once, see `Site.ask`; `n_jobs` has to be 1.

    Parameters
    ----------
    journal : path of the agent's journal, as in `journal` of its `node_config`
    timeout : seconds to wait for a trial; None: any number

    Raises
    ------
    ConfigError
        If Optuna is not installed. In a trial: if the directions of the study are not those of the app, the
        script suggests a parameter that the app's search space does not have, or an output is missing.
    NotInTimeError
        In a trial: if the agent asks for nothing in time, for instance because the federated study has ended.
    """

    def __init__(self, journal: str | os.PathLike[str], timeout: float | None = None) -> None:
        require_optuna("FederatedSampler")
        self._site = Site(journal)
        self._timeout = None if timeout is None else check_number("timeout", timeout, 0.0)
        self._asked: dict[int, Config] = {}  # number of a trial under way -> what the agent has asked
        self._known = ""  # the federated study whose agent knows the trials from before
        self._aims = NUMBER  # of that study

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Wait for the agent's next trial, unless this one was enqueued with a configuration."""
        if "fixed_params" in trial.system_attrs:
            return
        try:
            asked = self._site.question(self._timeout)
            space, self._aims = self._site.about(asked.study)
            expected = ", ".join(f"{way}imize" for _, way in self._aims.objectives)
            own = ", ".join(direction.name.lower() for direction in study.directions)
            if expected != own:
                raise ConfigError(f"direction: expected {expected}, as in the app, got {own}; change one")
            if asked.config in self._asked.values():
                raise ConfigError("n_jobs: expected 1, got more; start the script several times instead")
        except BaseException:  # otherwise it would look as if it were running
            study._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
            raise
        if self._known != asked.study:
            self._tell_known(study, asked.study, space)
        self._asked[trial.number] = asked.config
        study._storage.set_trial_system_attr(trial._trial_id, OURS, f"{asked.study} {asked.trial}")

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return no parameters, so that the script's own distributions decide which values it can take."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return no parameters."""
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the value that the agent has chosen; ConfigError if there is none, or it is out of range."""
        asked = self._asked.get(trial.number, {})
        with suppress(KeyError, ValueError, TypeError):  # not in the app's space, or no choice of the script
            value = asked[param_name]
            if param_distribution._contains(param_distribution.to_internal_repr(value)):
                return value
        self._asked.pop(trial.number, None)  # a mistake of the script: the trial is not told as failed
        app = f"{param_name}={asked[param_name]!r}" if param_name in asked else f"only {', '.join(asked)}"
        raise ConfigError(
            f"{param_name}: expected a range or choices of the app's search space, which asks for {app}, got "
            f"{param_distribution}; give script and app the same names, ranges and choices"
        )

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Tell the agent how a trial has ended."""
        asked, value = self._asked.pop(trial.number, None), None
        if state == TrialState.COMPLETE and values is not None and self._known:
            value = self._value(trial, values)
        if asked is not None:
            self._site.tell(asked, value)
        elif value is not None:  # it was enqueued; before the first question `_tell_known` tells it later
            self._site.know([(trial.params, value)])
        if isinstance(value, dict):  # for Optuna, which asks what is feasible on this device
            excess = [SIDES[side] * (bound - value[name]) for name, side, bound in self._aims.limits]
            study._storage.set_trial_system_attr(trial._trial_id, "constraints", excess)

    def _value(self, trial: FrozenTrial, values: Sequence[float]) -> float | dict[str, float]:
        """Return the value of a completed trial, or its outputs by name; ConfigError if one is missing."""
        aims = self._aims
        if not aims.names:
            return values[0]
        found = {name: value for (name, _), value in zip(aims.objectives, values, strict=True)}
        for name, side, bound in aims.limits:
            excess = trial.system_attrs.get(f"constraints:{name}")
            if name in trial.user_attrs:
                found.setdefault(name, trial.user_attrs[name])
            elif excess is not None:
                found.setdefault(name, bound - SIDES[side] * excess)
            elif name not in found:
                raise ConfigError(
                    f"{name}: expected a user attribute, because the app limits it, got none; call "
                    f"trial.set_user_attr({name!r}, ...) in the objective"
                )
        return found

    def _tell_known(self, study: Study, federated: str, space: SearchSpace) -> None:
        """Give the agent the completed trials that it has not asked for in this federated study."""
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        before = [t for t in trials if not str(t.system_attrs.get(OURS)).startswith(f"{federated} ")]
        inside, outside = [], []
        for trial in before:
            try:
                space.encode(trial.params)
                inside.append((trial.params, self._value(trial, trial.values)))
            except ConfigError as error:
                outside.append(str(error))
        self._site.know(inside)
        self._known = federated
        if outside:
            warnings.warn(
                f"FederatedSampler: {len(outside)} of {len(before)} earlier trials do not fit the app and "
                f"were left out, the first because of {outside[0]}",
                stacklevel=4,
            )
