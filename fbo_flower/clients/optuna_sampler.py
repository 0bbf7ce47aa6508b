"""`FederatedSampler`: a site's own Optuna study whose trials are chosen together with other sites.

What the agent has asked for stands in the Optuna trial, as a system attribute. So a trial can be asked for in
one process and told in another. A trial that ends without a word to the sampler is told or asked for later.
"""

from __future__ import annotations

import copy
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fbo_flower.algorithms.aims import SIDES, Aims
from fbo_flower.clients.asking import Question, Site, waiting
from fbo_flower.errors import ConfigError, JournalError, NotInTimeError, explains_names
from fbo_flower.space.checks import as_real, check_number, show
from fbo_flower.space.optuna import require_optuna
from fbo_flower.space.space import Config, SearchSpace

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.exceptions import TrialPruned
    from optuna.logging import get_logger
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.trial import FrozenTrial, TrialState
else:
    try:
        from optuna.exceptions import TrialPruned
        from optuna.logging import get_logger
        from optuna.samplers import BaseSampler, RandomSampler
        from optuna.trial import TrialState
    except ImportError:  # the name can be imported and looked up; a sampler says what to install
        BaseSampler = object

# system attributes of Optuna's trials
OURS = "fbo_flower:trial"  # the study, the trial and the configuration that the agent has asked for
COMPLETED = "fbo_flower:completed"  # a configuration of the agent's, for what an enqueued trial leaves open
ENDED = "fbo_flower:ended"  # there is nothing to evaluate: the federated study has ended
NEXT_STUDY_SECONDS = 60.0  # that a script waits for another study if it was started after the end of one

# (journal, study, trial) -> the thread that evaluates it, and whether in `study.optimize`; of this process
_UNDER_WAY: dict[tuple[str, str, int], tuple[int, bool]] = {}
_LOCK = threading.Lock()


@explains_names
class FederatedSampler(BaseSampler):
    """A sampler of Optuna that takes its trials from the agent of this site.

    In a script only one line changes: `optuna.create_study(sampler=FederatedSampler("north.db"), ...)`.
    Objective, storage, pruner and dashboard stay as they are. The app has the objective `Asked()` and a
    search space with the names, ranges and choices that the script suggests.

    - A completed trial is told with its value or values, a failed or pruned one as failed. A trial that was
      interrupted (Ctrl-C, a process that died, an `ask` without a `tell`) is asked for again.
    - With several objectives the study has their `directions`, in the order of the app's. A limited output
      that is no objective is a user attribute, `trial.set_user_attr("latency_ms", 12.0)`, or a constraint,
      `trial.set_constraint("latency_ms", -3.0)`: how far it is beyond the device's bound. Optuna sees which
      trials hold the limits of this device, and no bound.
    - Completed trials that the Optuna study holds already, and enqueued ones, enter the agent's own history.
      What an enqueued trial leaves open gets the agent's values.
    - Several trials at once (`n_jobs=2`, or a script in several processes) get different configurations, if
      the agent asks for several, see `Site.ask`.
    - When the federated study has ended, `study.optimize` returns.

    Parameters
    ----------
    journal : path of the agent's journal, as in `journal` of its `node_config`
    timeout : seconds to wait for a trial; None: any number
    constraints_func : as of Optuna's samplers; one number for each limit of the app, in their order

    Raises
    ------
    ConfigError
        If Optuna is not installed. In a trial: if the directions of the study are not those of the app, the
        script suggests a parameter that the app's search space does not have, or an output is missing.
    NotInTimeError
        In a trial: if the agent asks for nothing in time, or the federated study has ended and the trial is
        one of `study.ask`.
    """

    def __init__(
        self,
        journal: str | os.PathLike[str],
        timeout: float | None = None,
        *,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
    ) -> None:
        require_optuna("FederatedSampler")
        self._site = Site(journal)
        self._timeout = None if timeout is None else check_number("timeout", timeout, 0.0)
        self._constraints = constraints_func
        self._known = ""  # the federated study whose agent knows the trials from before
        self._about: dict[str, tuple[SearchSpace, Aims]] = {}  # of that study

    # -- a trial begins --------------------------------------------------------------------------

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Wait for the agent's next trial, unless this one was enqueued with a configuration."""
        if trial.system_attrs.get(OURS):  # Optuna retries it
            self._hold(study, tuple(trial.system_attrs[OURS][:2]))
            return
        if "fixed_params" in trial.system_attrs or trial.params:
            return
        storage, asked = study._storage, None
        try:
            asked = self._next(study)
            if asked is None:
                self._stop(study)
                storage.set_trial_system_attr(trial._trial_id, ENDED, True)
                return
            space, aims = self._about_study(asked.study)
            expected = ", ".join(f"{way}imize" for _, way in aims.objectives)
            own = ", ".join(direction.name.lower() for direction in study.directions)
            if expected != own:
                raise ConfigError(f"direction: expected {expected}, as in the app, got {own}; change one")
            if self._known != asked.study:
                self._tell_known(study, asked.study, space, aims)
            storage.set_trial_system_attr(trial._trial_id, OURS, [asked.study, asked.trial, asked.config])
        except BaseException:  # otherwise it would look as if it were running
            if asked is not None:
                self._release(asked.key)
            storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
            raise

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
        attributes = trial.system_attrs
        if attributes.get(ENDED):
            raise TrialPruned("the federated study has ended")
        if asked := attributes.get(OURS):
            config: Config = asked[2]
        elif COMPLETED in attributes:
            config = attributes[COMPLETED]
        else:  # it was enqueued
            question = self._next(study, evaluates=False)
            config = {} if question is None else question.config
            study._storage.set_trial_system_attr(trial._trial_id, COMPLETED, config)
        with suppress(KeyError, ValueError, TypeError):  # not in the app's space, or no choice of the script
            internal = param_distribution.to_internal_repr(config[param_name])
            if param_distribution._contains(internal):
                return param_distribution.to_external_repr(internal)
        if not asked:  # the agent's configuration has no such value: of another branch
            return RandomSampler(trial.number).sample_independent(
                study, trial, param_name, param_distribution
            )
        self._release(tuple(asked[:2]))  # a mistake of the script: it is not told as failed
        study._storage.set_trial_system_attr(trial._trial_id, OURS, None)
        app = f"{param_name}={config[param_name]!r}" if param_name in config else f"only {', '.join(config)}"
        raise ConfigError(
            f"{param_name}: expected a range or choices of the app's search space, which asks for {app}, got "
            f"{param_distribution}; give script and app the same names, ranges and choices"
        )

    # -- a trial ends ----------------------------------------------------------------------------

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Tell the agent how a trial has ended."""
        asked = trial.system_attrs.get(OURS)
        try:
            if state == TrialState.COMPLETE and values is not None:
                self._tell(study, trial, asked, values)
            elif asked and not _was_interrupted():
                self._site.answer(asked[0], asked[1], None)
        finally:  # and not before: another thread would take it once more
            if asked:
                self._release(tuple(asked[:2]))

    def _tell(
        self,
        study: Study,
        trial: FrozenTrial,
        asked: Sequence[Any] | None,
        values: Sequence[float],
    ) -> None:
        """Tell the value of a completed trial, and let Optuna know whether it holds this device's limits."""
        try:
            space, aims = self._about_study(asked[0] if asked else self._known)
        except JournalError:
            if asked:
                raise
            return  # there is no study yet: an enqueued trial is told in the first one
        value = self._value(trial, values, aims)
        if not asked:
            with suppress(ConfigError):  # it is not in the app's search space
                space.encode(trial.params)
                self._site.know([(trial.params, value)])
        else:
            for name, chosen in asked[2].items():
                if name in trial.params and trial.params[name] != chosen:
                    raise ConfigError(
                        f"{name}: expected the agent's value {chosen!r}, got {trial.params[name]!r}; "
                        f'to fix it, give the agent fixed = "{name}={trial.params[name]}" in node_config'
                    )
            self._site.answer(asked[0], asked[1], value)
        if isinstance(value, dict) and aims.limits and not trial.state.is_finished():
            # only the signs: the storage may be shared, and the bounds are the device's
            signs = [
                -1.0 if SIDES[side] * (value[name] - bound) >= 0 else 1.0 for name, side, bound in aims.limits
            ]
            study._storage.set_trial_system_attr(trial._trial_id, "constraints", signs)

    def _value(self, trial: FrozenTrial, values: Sequence[float], aims: Aims) -> float | dict[str, float]:
        """Return the value of a completed trial, or its outputs by name; ConfigError if one is missing."""
        if not aims.names:
            return values[0]
        found = {name: value for (name, _), value in zip(aims.objectives, values, strict=True)}
        excesses: dict[str, Any] = {}
        if self._constraints is not None:
            own = list(self._constraints(copy.deepcopy(trial)))
            if len(own) != len(aims.limits):
                raise ConfigError(
                    f"constraints_func: expected {len(aims.limits)} numbers, one for each limit of the app, "
                    f"got {len(own)}; change its `limits`"
                )
            excesses = {name: excess for (name, _, _), excess in zip(aims.limits, own, strict=True)}
        for name, side, bound in aims.limits:
            excess = _number(trial.system_attrs.get(f"constraints:{name}", excesses.get(name)))
            said = _number(trial.user_attrs.get(name))
            if not math.isnan(said):
                found.setdefault(name, said)
            elif not math.isnan(excess):
                found.setdefault(name, bound - SIDES[side] * excess)
            elif name not in found:
                got = show(trial.user_attrs[name]) if name in trial.user_attrs else "none"
                raise ConfigError(
                    f"{name}: expected a number as a user attribute, because the app limits it, got {got}; "
                    f"call trial.set_user_attr({name!r}, ...) in the objective"
                )
        return found

    # -- what the agent asks -----------------------------------------------------------------------

    def _about_study(self, federated: str) -> tuple[SearchSpace, Aims]:
        if not federated:
            return self._site.about()
        if federated not in self._about:
            self._about = {federated: self._site.about(federated)}
        return self._about[federated]

    def _next(self, study: Study, evaluates: bool = True) -> Question | None:
        """Wait for a question of the agent; None if the federated study has ended.

        Parameters
        ----------
        evaluates : whether a trial evaluates it, so that no other one gets it
        """
        began, timeout = time.monotonic(), math.inf if self._timeout is None else self._timeout
        patience = min(timeout, NEXT_STUDY_SECONDS if self._timeout is None else timeout)

        def look() -> Question | str | None:
            self._settle(study)
            found = self._hold(study) if evaluates else self._site.take()
            if found is not None or not (ended := self._site.ended()):
                return found
            took_part = ended == self._known
            return ended if took_part or time.monotonic() - began >= patience else None

        found = waiting(look, timeout)
        if found is None:
            raise NotInTimeError(self._site.not_asked(timeout))
        return found if isinstance(found, Question) else None

    def _hold(self, study: Study, key: tuple[Any, ...] = ()) -> Question | None:
        """Return a question that no other thread evaluates, and note that this one does.

        What this thread was asked before goes out again if there is nothing else: it has dropped it. So does
        what a thread was asked that has ended, and outside of `optimize` what was asked before it.

        Parameters
        ----------
        key : of the wanted question; (): any
        """
        me, journal = threading.get_ident(), str(self._site.journal.absolute())
        in_loop = bool(getattr(getattr(study, "_study", study)._thread_local, "in_optimize_loop", False))
        with _LOCK:
            if key:
                _UNDER_WAY[journal, key[0], key[1]] = me, in_loop
                return None
            alive = {thread.ident for thread in threading.enumerate()}
            own = {(name, n): holder for (file, name, n), holder in _UNDER_WAY.items() if file == journal}
            others = {
                key
                for key, (thread, loops) in own.items()
                if thread != me and thread in alive and (loops or not in_loop)
            }
            found = self._site.take(own) or self._site.take(others)
            if found is not None:
                _UNDER_WAY[journal, found.study, found.trial] = me, in_loop
            return found

    def _release(self, key: tuple[Any, ...]) -> None:
        with _LOCK:
            _UNDER_WAY.pop((str(self._site.journal.absolute()), key[0], key[1]), None)

    def _settle(self, study: Study) -> None:
        """Tell completed trials that a process without this sampler has told to Optuna."""
        open_questions = {question.key for question in self._site.untold()}
        if not open_questions:
            return
        for trial in study._storage.get_all_trials(study._study_id, False, (TrialState.COMPLETE,)):
            asked = trial.system_attrs.get(OURS)
            if asked and tuple(asked[:2]) in open_questions:
                with suppress(ConfigError):  # it was said when the trial ended
                    self._tell(study, trial, asked, trial.values)

    def _stop(self, study: Study) -> None:
        """End the loop of `optimize`, and say why; NotInTimeError outside of it."""
        why = (
            f"the federated study of {self._site.journal} has ended; for its next one start the script "
            "again, or pass timeout=SECONDS to wait for it"
        )
        try:
            study.stop()
        except RuntimeError:  # it is one of `study.ask`
            raise NotInTimeError(f"ask: {why}") from None
        get_logger("optuna.fbo_flower").warning("FederatedSampler: %s", why)

    def _tell_known(self, study: Study, federated: str, space: SearchSpace, aims: Aims) -> None:
        """Give the agent the completed trials that it has not asked for in this federated study."""
        trials = study._storage.get_all_trials(study._study_id, False, (TrialState.COMPLETE,))
        before = [t for t in trials if (t.system_attrs.get(OURS) or ("",))[0] != federated]
        inside, outside = [], []
        for trial in before:
            try:
                space.encode(trial.params)
                inside.append((trial.params, self._value(trial, trial.values, aims)))
            except Exception as error:  # `constraints_func` is the user's
                outside.append(str(error) or type(error).__name__)
        self._site.know(inside)
        self._known = federated
        if outside:
            warnings.warn(
                f"FederatedSampler: {len(outside)} of {len(before)} earlier trials do not fit the app and "
                f"were left out, the first because of {outside[0]}",
                stacklevel=4,
            )


def _number(value: object) -> float:
    """Return a number among attributes; NaN if it is none."""
    number = as_real(value)
    return math.nan if number is None else float(number)


def _was_interrupted() -> bool:
    """Return whether Ctrl-C has ended the objective; Optuna tells it as a failure, in a local variable."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_run_trial":
        frame = frame.f_back  # type: ignore[assignment]  # None at the outermost one
    return frame is not None and isinstance(frame.f_locals.get("func_err"), KeyboardInterrupt)
