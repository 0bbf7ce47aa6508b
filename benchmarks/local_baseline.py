"""Compare `ei` with Optuna's GPSampler: best so far at 5, 10 and 20, from the same three starting points.

Optuna and torch come with the extra `bench`. Three agents of each problem tune alone; differences
are paired by agent and seed, and the standard error is that of the means of the seeds::

    python benchmarks/local_baseline.py OUT.npz --seeds 8

The file keeps the curves of both, so that a run that was stopped continues.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.experiments.ei.curves import best_so_far, run_study, score
from fbo_flower.experiments.ei.problems import PROBLEMS
from fbo_flower.simulation.problems import Problem
from fbo_flower.space import Float, Int, SearchSpace
from fbo_flower.study.study import Study

BUDGET, AGENTS, CHECKPOINTS = 20, 3, (5, 10, 20)


class Context:
    """The second argument of an objective."""

    def __init__(self, partition: int) -> None:
        self.partition, self.rng = partition, np.random.default_rng(0)


def suggested(space: SearchSpace, trial: Any) -> dict[str, Any]:
    """Return the configuration that an Optuna trial suggests; a condition's parents come before it."""
    config: dict[str, Any] = {}
    for name, p in space.parameters.items():
        if any(config.get(parent) not in allowed for parent, allowed in p.conditions.items()):
            continue
        if isinstance(p, Float):
            config[name] = trial.suggest_float(name, p.low, p.high, log=p.log)
        elif isinstance(p, Int):
            config[name] = trial.suggest_int(name, p.low, p.high, log=p.log)
        else:
            config[name] = trial.suggest_categorical(name, list(p.choices))
    return config


def gp_sampler(problem: Problem, agent: int, starts: list[Mapping[str, Any]], seed: int) -> np.ndarray:
    """Return the best scores so far `(BUDGET,)` of one agent with GPSampler."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=len(starts), deterministic_objective=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for config in starts:
        study.enqueue_trial(dict(config))
    scores = []

    def objective(trial: Any) -> float:
        config = suggested(problem.space, trial)
        value = float(problem(config, Context(agent)))
        known = score(problem, config, agent)
        scores.append(value if known is None else known)
        return value

    study.optimize(objective, n_trials=BUDGET)
    return np.maximum.accumulate(scores)


def starting_points(study: Study, agent: int) -> list[Mapping[str, Any]]:
    """Return the configurations of an agent's first three trials."""
    mine = study.trials.where(agent=str(agent))
    return [mine["config"][i] for i in np.argsort(mine["trial"], kind="stable")[:3]]


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--problems", default=";".join(PROBLEMS), help="labels, separated by semicolons")
    parser.add_argument("--options", default="", help="options of ei: name=value,name=value")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    options: dict[str, Any] = {}
    for part in filter(None, arguments.options.split(",")):
        name, _, text = part.partition("=")
        options[name] = float(text) if text.replace(".", "").isdigit() else text
    kept = dict(np.load(arguments.file)) if arguments.file.exists() else {}
    for seed in range(arguments.seeds):
        for label in arguments.problems.split(";"):
            if label not in PROBLEMS:
                continue
            problem = replace(PROBLEMS[label][1](seed), num_agents=AGENTS)
            key = f"{label}|{seed}"
            begin = time.process_time()
            study = run_study(problem, "ei", options, seed, BUDGET)
            kept[f"ei|{key}"] = best_so_far(study, problem, BUDGET)
            seconds = time.process_time() - begin
            if f"gp|{key}" not in kept:
                rows = [gp_sampler(problem, a, starting_points(study, a), seed) for a in range(AGENTS)]
                kept[f"gp|{key}"] = np.array(rows)
            np.savez(arguments.file, **kept)
            print(seed, label, f"{seconds:.1f} s", f"{time.process_time() - begin:.1f} s", flush=True)
    for label in PROBLEMS:
        seeds = [s for s in range(arguments.seeds) if f"ei|{label}|{s}" in kept]
        if not seeds:
            continue
        row = []
        for at in CHECKPOINTS:
            ei, gp = (
                np.array([kept[f"{k}|{label}|{s}"][:, at - 1].mean() for s in seeds]) for k in ("ei", "gp")
            )
            error = (ei - gp).std(ddof=1) / np.sqrt(len(seeds)) if len(seeds) > 1 else np.nan
            row.append(f"{gp.mean():.4f} {np.mean(ei - gp):+.4f} ± {error:.4f}")
        print(f"| {label} | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
