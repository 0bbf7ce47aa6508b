"""Optuna's samplers as comparators: one agent tunes alone, from given starting points.

Optuna comes with the extra `bench`; GPSampler needs torch as well.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import Problem
from fbo_flower.space import Float, Int, SearchSpace
from studies.runs import score

SAMPLERS = ("tpe", "gpsampler")


def is_installed() -> bool:
    """Return whether Optuna and torch can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in ("optuna", "torch"))


@dataclass(frozen=True)
class Context:
    """The second argument of an objective."""

    partition: int
    rng: np.random.Generator


def suggested(space: SearchSpace, trial: Any) -> dict[str, Any]:
    """Return the configuration that an Optuna trial suggests; a condition's parents come before it."""
    config: dict[str, Any] = {}
    for name, p in space.parameters.items():
        if any(config.get(parent) not in allowed for parent, allowed in p.conditions.items()):
            continue
        if isinstance(p, Float):
            config[name] = trial.suggest_float(name, p.low, p.high, log=p.log, step=p.step)
        elif isinstance(p, Int):
            config[name] = trial.suggest_int(name, p.low, p.high, log=p.log, step=p.step)
        else:
            config[name] = trial.suggest_categorical(name, list(p.choices))
    return config


def scores(
    problem: Problem, agent: int, starts: Sequence[Mapping[str, Any]], sampler: str, seed: int, budget: int
) -> Array:
    """Return the values `(budget,)` of an agent's evaluations, without noise where that is known."""
    configs, values = evaluations(problem, agent, starts, sampler, seed, budget)
    found = []
    for config, value in zip(configs, values, strict=True):
        known = score(problem, config, agent)
        if known is None and problem.optimum(agent) is not None:
            known = problem.true_value(config, agent)
        found.append(value if known is None else known)
    return np.array(found)


def evaluations(
    problem: Problem, agent: int, starts: Sequence[Mapping[str, Any]], sampler: str, seed: int, budget: int
) -> tuple[list[dict[str, Any]], Array]:
    """Return the configurations that an agent evaluates alone, and their values `(budget,)`.

    Parameters
    ----------
    starts : configurations to evaluate first
    sampler : one of `SAMPLERS`
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    made: Any
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that GPSampler is experimental
        if sampler == "tpe":
            made = optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(len(starts), 10))
        else:
            made = optuna.samplers.GPSampler(seed=seed, n_startup_trials=len(starts))
        study = optuna.create_study(direction="maximize", sampler=made)
        for config in starts:
            study.enqueue_trial(dict(config))
        configs: list[dict[str, Any]] = []
        values: list[float] = []

        def objective(trial: Any) -> float:
            config = suggested(problem.space, trial)
            context: Any = Context(agent, generator(seed, "objective", str(agent), trial.number))
            configs.append(config)
            values.append(float(problem(config, context)))
            return values[-1]

        study.optimize(objective, n_trials=budget)
    return configs, np.array(values)
