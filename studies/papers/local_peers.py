"""Optuna's samplers and BoTorch as comparators: one agent tunes alone, from given starting points.

Optuna comes with the extra `bench`; GPSampler needs torch as well, and BoTorch is optional.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.acquisition.hypervolume import non_dominated, reference_point
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import Problem
from fbo_flower.space import Float, Int, SearchSpace
from studies.experiment import score

Evaluate = Callable[[dict[str, Any]], Array]  # outputs `(O,)` of a configuration, larger is better
SAMPLERS = ("tpe", "gpsampler")
NEEDS = {"GPSampler": ("optuna", "torch"), "qLogNEHVI": ("botorch",)}  # the others: Optuna alone
RESTARTS, RAW, SAMPLES = 2, 64, 64  # of BoTorch's maximisation


def is_installed(row: str = "GPSampler") -> bool:
    """Return whether the libraries of a comparator can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDS.get(row, ("optuna",)))


@dataclass(frozen=True)
class Case:
    """What an agent tunes alone, from which points, for how many evaluations."""

    space: SearchSpace
    aims: Aims
    evaluate: Evaluate
    starts: Sequence[Mapping[str, Any]]
    budget: int
    seed: int


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
    configs: list[dict[str, Any]] = []

    def evaluate(config: dict[str, Any]) -> Array:
        rng = generator(seed, "objective", str(agent), len(configs))
        context = ObjectiveContext(str(agent), agent, len(configs), 1, rng)
        configs.append(config)
        return np.array([float(problem(config, context))])

    case = Case(problem.space, NUMBER, evaluate, starts, budget, seed)
    return configs, optuna_outputs({"tpe": "TPE", "gpsampler": "GPSampler"}[sampler], case)[:, 0]


def optuna_outputs(name: str, case: Case) -> Array:
    """Return the outputs `(budget, O)` of an agent that tunes with "TPE", "GPSampler" or "NSGA-II"."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    found: list[Array] = []
    limited = np.flatnonzero(np.isfinite(case.aims.least))

    def broken(trial: Any) -> list[float]:
        return [float(b) for b in trial.user_attrs["broken"]]

    def objective(trial: Any) -> Any:
        found.append(case.evaluate(suggested(case.space, trial)))
        trial.set_user_attr("broken", (case.aims.least - found[-1])[limited].tolist())
        values = found[-1][: len(case.aims.objectives)].tolist()
        return values if len(values) > 1 else values[0]

    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "TPE": (optuna.samplers.TPESampler, {"n_startup_trials": max(len(case.starts), 10)}),
        "GPSampler": (optuna.samplers.GPSampler, {"n_startup_trials": len(case.starts)}),
        "NSGA-II": (optuna.samplers.NSGAIISampler, {"population_size": 10}),
    }
    kind, more = kinds[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that parts of Optuna are experimental
        sampler = kind(seed=case.seed, constraints_func=broken if len(limited) else None, **more)
        study = optuna.create_study(directions=["maximize"] * len(case.aims.objectives), sampler=sampler)
        for config in case.starts:
            study.enqueue_trial(dict(config))
        study.optimize(objective, n_trials=case.budget)
    return np.array(found)


def botorch_outputs(case: Case) -> Array:
    """Return the outputs `(budget, O)` of an agent that tunes with qLogNEHVI; qLogNEI for one objective."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(case.seed)
    points = [case.space.encode(config) for config in case.starts]
    found = [case.evaluate(dict(config)) for config in case.starts]
    while len(found) < case.budget:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            u = _botorch_point(np.array(points), np.array(found), case.aims)
        points.append(case.space.snap(u[None, :])[0])
        found.append(case.evaluate(case.space.decode(points[-1])))
    return np.array(found[: case.budget])


def _botorch_point(x: Array, outputs: Array, aims: Aims) -> Array:
    """Return the next point `(D,)` after points `(n, D)` with outputs `(n, O)`."""
    import torch
    from botorch.acquisition.logei import qLogNoisyExpectedImprovement
    from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
    from botorch.acquisition.multi_objective.objective import IdentityMCMultiOutputObjective
    from botorch.acquisition.objective import LinearMCObjective
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import ModelListGP, SingleTaskGP
    from botorch.optim import optimize_acqf
    from botorch.sampling import SobolQMCNormalSampler
    from gpytorch.mlls import SumMarginalLogLikelihood

    mean, scale = outputs.mean(axis=0), np.maximum(outputs.std(axis=0), 1e-9)
    y, least = (outputs - mean) / scale, (aims.least - mean) / scale
    start = (aims.start - mean[: len(aims.objectives)]) / scale[: len(aims.objectives)]
    points, dimension = torch.tensor(x), x.shape[1]
    model = ModelListGP(*(SingleTaskGP(points, torch.tensor(column[:, None])) for column in y.T))
    fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
    limited = np.flatnonzero(np.isfinite(least)).tolist()
    limits: Any = [lambda z, k=k: least[k] - z[..., k] for k in limited] or None
    common: Mapping[str, Any] = {
        "X_baseline": points,
        "constraints": limits,
        "prune_baseline": True,
        "sampler": SobolQMCNormalSampler(torch.Size([SAMPLES])),
    }
    count, improvement = len(aims.objectives), None
    if count == 1:
        improvement = qLogNoisyExpectedImprovement(
            model, objective=LinearMCObjective(torch.eye(y.shape[1], dtype=torch.float64)[0]), **common
        )
    else:
        objectives = y[:, :count]
        known = reference_point(objectives[non_dominated(objectives)])
        improvement = qLogNoisyExpectedHypervolumeImprovement(
            model,
            ref_point=np.where(np.isnan(start), known, start).tolist(),
            objective=IdentityMCMultiOutputObjective(list(range(count))),
            **common,
        )
    bounds = torch.tensor(np.array([np.zeros(dimension), np.ones(dimension)]))
    best, _ = optimize_acqf(improvement, bounds, q=1, num_restarts=RESTARTS, raw_samples=RAW)
    return np.asarray(best[0].numpy(), dtype=np.float64)


# -- BoTorch on the observations of all agents -----------------------------------------------------


def fitted_process(x: Array, y: Array) -> Any:
    """Return BoTorch's Gaussian process on points `(n, D)` and values `(n,)`, in double precision."""
    import torch
    from botorch import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    model = SingleTaskGP(torch.tensor(x), torch.tensor(y)[:, None])
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model
