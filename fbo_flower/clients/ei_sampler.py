"""`EISampler`: what `ei` does, as an ordinary sampler of Optuna; no server and no federated study.

The search space is the one that Optuna infers: the parameters that all completed trials have in common. They
are chosen together, from a model of the trials in Optuna's storage. Each other one, such as that of a branch,
is chosen beside what the trial has already, from a model of the trials that have it. The sampler keeps
nothing between trials: its draws follow from the seed and the number of the trial, so several threads or
processes can share a study.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.algorithms.aims import MOST_OBJECTIVES, NUMBER, Aims
from fbo_flower.algorithms.ei.local import ExpectedImprovement
from fbo_flower.algorithms.protocol import uniform_point
from fbo_flower.algorithms.records import AgentState, Array, Phase, Task, Trials
from fbo_flower.errors import ConfigError, explains_names
from fbo_flower.numerics.seeding import fresh_entropy, generator
from fbo_flower.numerics.threads import single_thread
from fbo_flower.space.checks import check_integer
from fbo_flower.space.held import held_space
from fbo_flower.space.optuna import from_distributions, require_optuna
from fbo_flower.space.space import Config, SearchSpace

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution, CategoricalDistribution
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.search_space import intersection_search_space
    from optuna.trial import FrozenTrial, TrialState
else:
    try:
        from optuna.distributions import CategoricalDistribution
        from optuna.samplers import BaseSampler, RandomSampler
        from optuna.search_space import intersection_search_space
        from optuna.trial import TrialState
    except ImportError:  # the name can be imported and looked up; a sampler says what to install
        BaseSampler = object

CHOSEN = "fbo_flower:ei"  # system attribute of a trial under way: what was chosen, as text
_TOLD = ("COMPLETE", "PRUNED", "FAIL")  # states of trials that have ended


@explains_names
class EISampler(BaseSampler):
    """A sampler of Optuna that maximises expected improvement, as the algorithm `ei` does.

    - Each of up to 3 objectives, and each constraint (`trial.set_constraint`, or `constraints_func`), has a
      model of its own.
    - A failed trial counts as the worst one. A pruned trial counts with its last reported value, and at best
      as the median of the completed ones.
    - What other threads and processes evaluate at the moment counts with the values that the model expects.

    Parameters
    ----------
    seed : the same seed gives the same trials; None: different ones each time
    algorithm : `ei` with other options, e.g. `algorithms.ExpectedImprovement(num_initial=10)`
    constraints_func : as of Optuna's samplers: numbers of a trial; a positive one breaks a constraint

    Raises
    ------
    ConfigError
        If Optuna is not installed, `seed` is negative, or a study has more than 3 objectives.

    Examples
    --------
    >>> import optuna
    >>> from fbo_flower import EISampler
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=EISampler(seed=0))
    >>> study.optimize(lambda trial: (trial.suggest_float("x", 0, 1) - 0.3) ** 2, n_trials=12)
    >>> round(study.best_params["x"], 1)
    0.3
    """

    def __init__(
        self,
        seed: int | None = None,
        *,
        algorithm: ExpectedImprovement | None = None,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
    ) -> None:
        require_optuna("EISampler")
        self._seed = fresh_entropy() if seed is None else check_integer("seed", seed, 0)
        self._algorithm = ExpectedImprovement() if algorithm is None else algorithm
        self._constraints = constraints_func

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Raise ConfigError if the study has too many objectives."""
        if len(study.directions) > MOST_OBJECTIVES:
            study._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
            raise ConfigError(
                f"directions: expected at most {MOST_OBJECTIVES} objectives, got {len(study.directions)}; "
                "use optuna.samplers.NSGAIISampler for more"
            )

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that all completed trials have in common, with more than one value."""
        found: dict[str, BaseDistribution] = {}
        for name, distribution in intersection_search_space(study.get_trials(deepcopy=False)).items():
            if not distribution.single() and _space({name: distribution}) is not None:
                found[name] = distribution
        return found

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the point of the largest improvement; a random one before there are enough trials."""
        space = _space(search_space) if search_space else None
        if space is None:
            return {}
        config = self._chosen(
            study, trial, space, search_space, generator(self._seed, "optuna", trial.number)
        )
        study._storage.set_trial_system_attr(trial._trial_id, CHOSEN, json.dumps(config))
        return {name: _outside(config[name], found) for name, found in search_space.items()}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the best value beside what the trial has; a random one before enough trials have it."""
        rng = generator(self._seed, "optuna", trial.number, param_name)
        those = [
            other
            for other in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            if other.distributions.get(param_name) == param_distribution
        ]
        if len(those) >= self._algorithm.num_initial:
            common = intersection_search_space(those).items()
            branch = {name: found for name, found in common if not found.single()}
            space = _space(branch)
            held = {
                name: _inside(trial.params[name], found)
                for name, found in branch.items()
                if trial.distributions.get(name) == found
            }
            if space is not None:
                with suppress(ConfigError):  # a held value is beyond its range: it was enqueued
                    own = held_space(space, held)
                    found = self._chosen(study, trial, own, branch, rng)[param_name]
                    return _outside(found, param_distribution)
        random = RandomSampler(int(rng.integers(2**32)))
        return random.sample_independent(study, trial, param_name, param_distribution)

    def _chosen(
        self,
        study: Study,
        trial: FrozenTrial,
        space: SearchSpace,
        search_space: Mapping[str, BaseDistribution],
        rng: np.random.Generator,
    ) -> Config:
        """Return the configuration of the largest improvement; a random one at first."""
        trials = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        state = self._state(study, space, search_space, [t for t in trials if t.state.name in _TOLD])
        task = Task(Phase.TRAIN, 0, state.next_trial, 1)
        if self._algorithm.is_random(task, state):
            query = uniform_point(state, rng)
        else:
            busy = [_busy_point(t, space, search_space) for t in trials if t.state == TrialState.RUNNING]
            points = [point for point in busy if point is not None]
            with single_thread():
                if points:
                    state = self._believing(task, state, space.whole.snap(np.array(points)))
                query, _ = self._algorithm.step(task, state, rng)
        return space.decode(space.snap(query.points)[0])

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Store the constraints of a trial, where all of Optuna looks for them."""
        if self._constraints is not None and state in {TrialState.COMPLETE, TrialState.PRUNED}:
            found = [float(number) for number in self._constraints(copy.deepcopy(trial))]
            if any(map(math.isnan, found)):
                raise ValueError("constraints_func: expected numbers, got NaN; return a positive one instead")
            study._storage.set_trial_system_attr(trial._trial_id, "constraints", found)

    # -- the model's view of Optuna's trials --------------------------------------------------------

    def _state(
        self,
        study: Study,
        space: SearchSpace,
        search_space: Mapping[str, BaseDistribution],
        trials: Sequence[FrozenTrial],
    ) -> AgentState:
        """Return what the agent of `ei` would know of some trials."""
        signs = np.array([-1.0 if way.name == "MINIMIZE" else 1.0 for way in study.directions])
        complete = [t for t in trials if t.state == TrialState.COMPLETE]
        names = list(dict.fromkeys(name for trial in complete for name in _broken(trial)))
        objectives = {f"value {number}": "max" for number in range(len(signs))}
        aims = Aims.of(False, objectives, dict.fromkeys(names, 0.0)) if names or len(signs) > 1 else NUMBER
        firsts = [signs[0] * t.values[0] for t in complete if math.isfinite(t.values[0])]
        rows, points = [], []
        for trial in trials:
            point = _point(trial, trial.params, space, search_space)
            if point is None:
                continue
            values, broken = np.full(len(signs), np.nan), _broken(trial)
            if trial.state == TrialState.COMPLETE:
                values = signs * np.array(trial.values, dtype=np.float64)
            elif trial.state == TrialState.PRUNED and len(signs) == 1 and trial.last_step is not None:
                last = signs[0] * trial.intermediate_values[trial.last_step]
                values = np.array([min(last, float(np.median(firsts)) if firsts else last)])
            row = np.array([*values, *(-broken.get(name, math.nan) for name in names)])
            rows.append(row if np.isfinite(row).all() else np.full(len(row), np.nan))
            points.append(point)
        found = np.array(rows).reshape(-1, len(signs) + len(names))
        snapped = space.whole.snap(np.array(points).reshape(-1, space.dimension))
        history = Trials(
            snapped, found[:, 0], np.arange(len(rows)), outputs=found if aims.has_outputs else None
        )
        return AgentState(space, history, aims=aims)

    def _believing(self, task: Task, state: AgentState, points: Array) -> AgentState:
        """Return a state in which points under way have the values that the model expects of them."""
        means = self._algorithm.expected_values(task, state, points)
        outputs, trials = means.reshape(len(points), -1), len(state.history) + np.arange(len(points))
        known = None if state.history.outputs is None else outputs
        return state.learn(Trials(points, outputs[:, 0], trials, outputs=known))


def _space(search_space: Mapping[str, BaseDistribution]) -> SearchSpace | None:
    """Return the space of distributions, with the numbers of choices; None if it cannot be one."""
    numbered = {
        name: CategoricalDistribution(range(len(found.choices)))
        if isinstance(found, CategoricalDistribution)
        else found
        for name, found in search_space.items()
    }
    try:
        return from_distributions(numbered)
    except ConfigError:  # e.g. more than 2**40 integers
        return None


def _inside(value: Any, distribution: BaseDistribution) -> Any:
    """Return a value of Optuna's as one of our space, in which choices are numbered."""
    inside = distribution.to_internal_repr(value)
    return int(inside) if isinstance(distribution, CategoricalDistribution) else value


def _outside(value: Any, distribution: BaseDistribution) -> Any:
    """Return a value of our space as one of Optuna's."""
    return distribution.to_external_repr(float(value))


def _point(
    trial: FrozenTrial,
    params: Mapping[str, Any],
    space: SearchSpace,
    search_space: Mapping[str, BaseDistribution],
) -> Array | None:
    """Return the point of a trial; None if it has other parameters or ranges."""
    config: dict[str, Any] = {}
    for name, distribution in search_space.items():
        if name not in params or trial.distributions.get(name) != distribution:
            return None
        config[name] = _inside(params[name], distribution)
    try:
        return space.encode(config)
    except ConfigError:  # it was enqueued, beyond the range
        return None


def _busy_point(
    trial: FrozenTrial, space: SearchSpace, search_space: Mapping[str, BaseDistribution]
) -> Array | None:
    """Return the point of a trial under way, whose objective may not have suggested all of it yet."""
    chosen = trial.system_attrs.get(CHOSEN)
    if chosen is None:
        return _point(trial, trial.params, space, search_space)
    try:
        return space.encode(json.loads(chosen))
    except ConfigError:  # the space has changed since
        return None


def _broken(trial: FrozenTrial) -> dict[str, float]:
    """Return the constraints of a trial by name; a positive number breaks one."""
    attributes = trial.system_attrs
    listed = {str(n): number for n, number in enumerate(attributes.get("constraints") or ())}
    named = {k.partition(":")[2]: n for k, n in attributes.items() if k.startswith("constraints:")}
    return {f"constraint {name}": float(number) for name, number in {**listed, **named}.items()}
