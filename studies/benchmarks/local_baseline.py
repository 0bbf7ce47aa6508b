"""Compare `ei` with Optuna's GPSampler: best so far at 5, 10 and 20, from the same three starting points.

Optuna and torch come with the extra `bench`. Three agents of each problem tune alone; differences
are paired by agent and seed, and the standard error is that of the means of the seeds::

    python -m studies.benchmarks.local_baseline OUT.npz --seeds 8

With `--federated DIR`, the directory of `python -m studies experiment fed-ei`, a second table compares the
same three agents in their federation with GPSampler alone; these studies have the seeds from 100 on::

    python -m studies.benchmarks.local_baseline OUT.npz --first 100 --seeds 12 --federated runs/fed-ei

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

from fbo_flower.study import Study
from studies.jobs import has_result, load_job
from studies.papers.ei.curves import best_so_far, run_study
from studies.papers.ei.problems import PROBLEMS
from studies.papers.optuna_peers import scores

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
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--federated", type=Path, help="directory of the experiment fed-ei")
    parser.add_argument("--problems", default=";".join(PROBLEMS), help="labels, separated by semicolons")
    parser.add_argument("--options", default="", help="options of ei: name=value,name=value")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    options: dict[str, Any] = {}
    for part in filter(None, arguments.options.split(",")):
        name, _, text = part.partition("=")
        options[name] = float(text) if text.replace(".", "").isdigit() else text
    kept = dict(np.load(arguments.file)) if arguments.file.exists() else {}
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    for seed in seeds:
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
    curves = {"ei": {(label, s): kept[f"ei|{label}|{s}"] for label, s in done(kept, "ei", seeds)}}
    alone = {(label, s): kept[f"gp|{label}|{s}"] for label, s in done(kept, "gp", seeds)}
    if arguments.federated is not None:
        curves["fed-ei"] = federated(arguments.federated, seeds)
    for name, found in curves.items():
        print(f"\nGPSampler, and {name} minus GPSampler, at {CHECKPOINTS}:")
        print_table(found, alone)


def done(kept: Mapping[str, Any], kind: str, seeds: range) -> list[tuple[str, int]]:
    """Return the problems and seeds whose curves are there."""
    return [(label, s) for label in PROBLEMS for s in seeds if f"{kind}|{label}|{s}" in kept]


def federated(directory: Path, seeds: range) -> dict[tuple[str, int], np.ndarray]:
    """Return the curves of the same agents in the studies of the experiment `fed-ei`."""
    names = {(label, s): f"{label}-fed-ei-{s}" for label in PROBLEMS for s in seeds}
    return {
        key: load_job(directory, name)["best"][:AGENTS, :BUDGET]
        for key, name in names.items()
        if has_result(directory, name)
    }


def print_table(
    curves: Mapping[tuple[str, int], np.ndarray], alone: Mapping[tuple[str, int], np.ndarray]
) -> None:
    """Print GPSampler's mean best so far and the paired difference with its standard error."""
    for label in PROBLEMS:
        pairs = [key for key in alone if key[0] == label and key in curves]
        if not pairs:
            continue
        row = []
        for at in CHECKPOINTS:
            ours, gp = (np.array([c[key][:, at - 1].mean() for key in pairs]) for c in (curves, alone))
            error = (ours - gp).std(ddof=1) / np.sqrt(len(pairs)) if len(pairs) > 1 else np.nan
            row.append(f"{gp.mean():.4f} {np.mean(ours - gp):+.4f} ± {error:.4f}")
        print(f"| {label} | {len(pairs)} | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
