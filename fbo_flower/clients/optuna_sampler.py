"""`FederatedSampler`: a site's own Optuna study whose trials are chosen together with other sites."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fbo_flower.clients.asking import Site
from fbo_flower.errors import ConfigError
from fbo_flower.space.optuna import require_optuna
from fbo_flower.space.space import Config, SearchSpace

require_optuna("FederatedSampler")
from optuna.samplers import BaseSampler  # noqa: E402  # the line above says what to install
from optuna.trial import FrozenTrial, TrialState  # noqa: E402

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution

OURS = "fbo_flower:trial"  # system attribute of the trials that the agent has asked for


class FederatedSampler(BaseSampler):
    """A sampler of Optuna that takes its trials from the agent of this site.

    In a script only one line changes: `optuna.create_study(sampler=FederatedSampler("north.db"), ...)`.
    Objective, storage, pruner and dashboard stay as they are. The app has the objective `Asked()` and a
    search space with the names, ranges and choices that the script suggests.

    - A completed trial is told with its value, a failed or pruned one as failed.
    - Completed trials that the Optuna study holds already, and enqueued ones, enter the agent's own history.
    - Run a script in several processes for several trials at once, see `Site.ask`; `n_jobs` has to be 1.

    Parameters
    ----------
    journal : path of the agent's journal, as in `journal` of its `node_config`
    timeout : seconds to wait for a trial; None: any number

    Raises
    ------
    ConfigError
        If Optuna is not installed. In a trial: if the direction of the study is not that of the app, or the
        script suggests a parameter that the app's search space does not have.
    NotInTimeError
        In a trial: if the agent asks for nothing in time, for instance because the federated study has ended.
    """

    def __init__(self, journal: str | os.PathLike[str], timeout: float | None = None) -> None:
        self._site, self._timeout = Site(journal), timeout
        self._asked: dict[int, Config] = {}  # number of a trial under way -> what the agent has asked
        self._space: SearchSpace | None = None  # of the federated study
        self._known = False  # whether the site was told of the trials from before

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Wait for the agent's next trial, unless this one was enqueued with a configuration."""
        if "fixed_params" in trial.system_attrs:
            return
        try:
            self._raise_error_if_multi_objective(study)
            asked = self._site.question(self._timeout)
            self._space, minimize = self._site.about(asked.study)
            direction, own = "minimize" if minimize else "maximize", study.direction.name.lower()
            if direction != own:
                raise ConfigError(f"direction: expected {direction}, as in the app, got {own}; change one")
            if asked.config in self._asked.values():
                raise ConfigError("n_jobs: expected 1, got more; start the script several times instead")
        except BaseException:  # otherwise it would look as if it were running
            study._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
            raise
        if not self._known:
            self._tell_known(study)
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
        asked = self._asked.pop(trial.number, None)
        value = None if state != TrialState.COMPLETE or values is None else values[0]
        if asked is not None:
            self._site.tell(asked, value)
        elif value is not None:
            self._learn([(trial.params, value)])

    def _tell_known(self, study: Study) -> None:
        """Tell of the completed trials that the agent has not asked for."""
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        self._learn([(t.params, float(t.value or 0.0)) for t in trials if OURS not in t.system_attrs])
        self._known = True

    def _learn(self, trials: Sequence[tuple[Config, float]]) -> None:
        outside = []
        for config, value in trials:
            try:
                if self._space is not None:
                    self._space.encode(config)
                self._site.tell(config, value)
            except ConfigError as error:
                outside.append(str(error))
        if outside:
            warnings.warn(
                f"FederatedSampler: {len(outside)} of {len(trials)} earlier trials are not in the search "
                f"space and were left out, the first because of {outside[0]}",
                stacklevel=4,
            )
