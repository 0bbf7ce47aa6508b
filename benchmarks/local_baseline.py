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

from fbo_flower.experiments.ei.curves import best_so_far, run_study
from fbo_flower.experiments.ei.problems import PROBLEMS
from fbo_flower.experiments.optuna_peers import scores
from fbo_flower.study.study import Study

BUDGET, AGENTS, CHECKPOINTS = 20, 3, (5, 10, 20)


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
                rows = [
                    scores(problem, a, starting_points(study, a), "gpsampler", seed, BUDGET)
                    for a in range(AGENTS)
                ]
                kept[f"gp|{key}"] = np.maximum.accumulate(rows, axis=1)
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
