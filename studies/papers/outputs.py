"""Several outputs: does sharing pay beside the best local optimisers, and beside copying?

A row of the table is an optimiser. All tune the same problems of `studies.problems.outputs` and begin with
three random points of each agent, the same for all but `fed-ei`, which begins with two.

With one objective, an agent's score is the best value that holds its limits. As long as it has none, its
score is the problem's `worst`, which most configurations that hold the limits reach. With several objectives,
it is the hypervolume of the agent's front from the fixed reference. Differences from `ei` are divided by the
deviation of `ei`'s scores over agents and seeds after 10 evaluations; standard errors are over seeds.
GPSampler, NSGA-II and BoTorch may tune for the first agents only, which are compared with themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.acquisition.hypervolume import hypervolume
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import save_figure
from fbo_flower.simulation import Agents, simulate
from studies.jobs import Arrays, Directory, OnJob, has, job, open_directory, run_jobs, stack
from studies.papers import output_peers
from studies.problems.outputs import PROBLEMS, Problem, Site
from studies.report import band, legend, mean_and_error, panels, shown, table, write_csv, write_results

FIRST_SEED, NUM_SEEDS, BUDGET = 500, 12, 40
CHECKPOINTS = (5, 10, 20, 40)
SCALED_AT = 10  # evaluations after which scores still differ on all problems
BASELINE = "ei"
TOGETHER = {"fed-ei": {"secure_sums": 0}, "ei": {}, "share-best": {}, "share-random": {}, "random": {}}
ALONE = {"GPSampler": (8, 20), "NSGA-II": (8, 40), "qLogNEHVI": (2, 10)}  # agents and evaluations: a step
ROWS = (*TOGETHER, *ALONE)  # takes GPSampler a fifth of a second, BoTorch one
COLOURS = ("#0072B2", "#D55E00", "#E69F00", "#999999", "#009E73", "#CC79A7", "#56B4E9")
FIRST_DRAWN = 3
Gains = dict[tuple[str, str], dict[int, Array]]  # problem, row -> number of the seed -> `(n,)`


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result; write the tables after every seed, and return the files.

    Parameters
    ----------
    quick : True: 2 seeds of Branin, 10 evaluations, without the comparators of other libraries
    """
    seeds, budget = (2, 10) if quick else (NUM_SEEDS, BUDGET)
    path, files = open_directory(directory, {"experiment": "outputs", "budget": budget}), []
    labels = ["Branin"] if quick else list(PROBLEMS)
    rows = [row for row in ROWS if row in TOGETHER or (not quick and output_peers.is_installed(row))]
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        work = [
            job(scores, label, row, seed, budget=min(budget, ALONE.get(row, (0, budget))[1]))
            for row in rows
            for label in labels
        ]
        run_jobs(work, path, num_workers, on_job, f"seed {seed}")
        files = report(path, labels, range(FIRST_SEED, seed + 1))
    return files


def scores(label: str, row: str, seed: int, budget: int) -> Arrays:
    """Return the scores so far of each agent, `(agents, budget)`."""
    problem = PROBLEMS[label]
    sites = problem.sites(seed)
    if row in TOGETHER:
        outputs = outputs_of(problem, sites, row, seed, budget)
    else:
        outputs = [alone(label, name, row, seed, budget) for name in list(sites)[: ALONE[row][0]]]
    pairs = zip(sites.values(), outputs, strict=False)
    return {"score": np.array([score(problem, site, found) for site, found in pairs])}


def outputs_of(problem: Problem, sites: Mapping[str, Site], row: str, seed: int, budget: int) -> list[Array]:
    """Return the outputs of each agent's trials, `(budget, O)`, larger is better."""
    study = simulate(
        problem.function, problem.space, Agents(sites, limits={name: s.limits for name, s in sites.items()}),
        make_algorithm(row, TOGETHER[row]), budget, seed=seed, engine="inline", **problem.goals,
    )  # fmt: skip
    found = []
    for name, site in sites.items():
        aims, trials = problem.aims(site), study.trials.where(agent=name)
        rows = sorted(trials, key=lambda trial: trial["trial"])[:budget]
        found.append(np.array([[trial["outputs"][n] for n in aims.names] for trial in rows]) * aims.signs)
    return found


@lru_cache(maxsize=2)
def starting_points(label: str, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Return the configurations of each agent's random points under `ei`."""
    problem = PROBLEMS[label]
    study = simulate(
        problem.function, problem.space, problem.sites(seed), BASELINE, 1,
        seed=seed, engine="inline", **problem.goals,
    )  # fmt: skip
    return {name: list(study.trials.where(agent=name)["config"]) for name in problem.sites(seed)}


def alone(label: str, name: str, row: str, seed: int, budget: int) -> Array:
    """Return the outputs `(budget, O)` of an agent that tunes with a comparator, from `ei`'s points."""
    problem = PROBLEMS[label]
    site = problem.sites(seed)[name]
    aims, starts = problem.aims(site), starting_points(label, seed)[name]

    def evaluate(config: dict[str, Any]) -> Array:
        found = problem.function(config, site)
        return np.array([found[name] for name in aims.names]) * aims.signs

    case = output_peers.Case(problem.space, aims, evaluate, starts, budget, seed)
    if row == "qLogNEHVI":
        return output_peers.botorch_outputs(case)
    return output_peers.optuna_outputs(row, case)


def score(problem: Problem, site: Site, outputs: Array) -> Array:
    """Return an agent's scores `(n,)` after each of its trials with outputs `(n, O)`."""
    aims = problem.aims(site)
    holds = aims.feasible(outputs)
    objectives = len(aims.objectives)
    if objectives == 1:
        values = np.where(holds, outputs[:, 0], -np.inf)
        best = np.maximum(np.maximum.accumulate(values), problem.worst * aims.signs[0])
        return np.asarray(best, dtype=np.float64)
    return np.array([
        hypervolume(outputs[: n + 1][holds[: n + 1], :objectives], aims.start) for n in range(len(outputs))
    ])  # fmt: skip


# -- the report --------------------------------------------------------------------------------


def report(directory: Path, labels: Sequence[str], seeds: Sequence[int]) -> list[Path]:
    """Write `results.md`, `results.csv` and `gains.png` from the finished jobs; return them."""
    rows: list[list[object]] = []
    gains: Gains = {}
    for label in labels:
        base = stack(directory, "score", seeds, scores, label, BASELINE)
        deviation = base[:, :, SCALED_AT - 1].std()
        for row in ROWS:
            places = [i for i, seed in enumerate(seeds) if has(directory, scores, label, row, seed)]
            if not places:  # the comparators of other libraries may have fewer seeds, or none
                continue
            values = stack(directory, "score", [seeds[i] for i in places], scores, label, row)
            agents, n = values.shape[1:]
            gain = (values - base[places, :agents, :n]).mean(axis=1) / deviation
            gains[label, row] = dict(zip(places, gain, strict=True))
            for at in (at for at in CHECKPOINTS if at <= n):
                means = mean_and_error(values.mean(axis=1)[:, at - 1])
                numbers = (*means, *mean_and_error(gain[:, at - 1]))
                rows.append([label, row, at, len(places), agents, *(f"{number:.4g}" for number in numbers)])
    columns = [
        "problem",
        "row",
        "evaluations",
        "seeds",
        "agents",
        "mean",
        "error",
        f"gain over {BASELINE}",
        "error of that",
    ]
    text = [f"Seeds {seeds[0]} to {seeds[-1]}.", "", gain_table(labels, gains), ahead_table(labels, gains)]
    files = [write_results(directory, text), write_csv(directory / "results.csv", columns, rows)]
    draw_gains(labels, gains, directory / "gains.png")
    return [*files, directory / "gains.png"]


def gain_table(labels: Sequence[str], gains: Gains) -> str:
    """Return gains over the baseline, a line per problem and number of evaluations."""
    rows = [row for row in ROWS if row != BASELINE and any((label, row) in gains for label in labels)]
    lines = []
    for label in labels:
        for at in CHECKPOINTS:
            found = [_at(gains.get((label, row), {}), at) for row in rows]
            if any(found):
                cells = [shown(np.array(list(each.values())), 2, "+") if each else "" for each in found]
                lines.append([label, at, *cells])
    return table(["problem", "evaluations", *rows], lines)


def ahead_table(labels: Sequence[str], gains: Gains) -> str:
    """Return on how many problems `fed-ei` is ahead of each row and behind it, by two standard errors."""
    lines = []
    for row in (row for row in ROWS if row != "fed-ei"):
        for at in CHECKPOINTS:
            z = []
            for label in labels:
                ours, theirs = (_at(gains.get((label, name), {}), at) for name in ("fed-ei", row))
                differences = np.array([ours[place] - theirs[place] for place in theirs])
                if len(differences) > 1:
                    mean, error = mean_and_error(differences)
                    z.append(float(mean / np.maximum(error, 1e-12)))
            counts = [sum(test) for test in ([x > 0 for x in z], [x > 2 for x in z], [x < -2 for x in z])]
            if z:
                lines.append([row, at, len(z), *counts])
    return table(["row", "evaluations", "problems", "fed-ei is ahead", "by two s.e.", "behind by two"], lines)


def _at(found: Mapping[int, Array], at: int) -> dict[int, float]:
    """Return seed -> gain after a number of evaluations, of the seeds that have as many."""
    return {place: float(gain[at - 1]) for place, gain in found.items() if len(gain) >= at}


def draw_gains(labels: Sequence[str], gains: Gains, path: Path) -> None:
    """Draw the gains of all rows over the baseline, a panel per problem."""
    figure, axes = panels(len(labels), 4, 3.0, 2.3)
    for axis, label in zip(axes, labels, strict=True):
        axis.axhline(0.0, color="black", linewidth=1, linestyle="--")
        for colour, row in zip(COLOURS, [row for row in ROWS if row != BASELINE], strict=True):
            if (label, row) in gains:
                gain = np.array(list(gains[label, row].values()))[:, FIRST_DRAWN - 1 :]
                band(axis, np.arange(FIRST_DRAWN, FIRST_DRAWN + gain.shape[1]), gain, row, colour)
        axis.set_title(label, loc="left", fontsize=9)
        axis.set_xlabel("evaluations per agent")
    axes[0].set_ylabel(f"gain over {BASELINE}")
    legend(figure, axes, 7)
    save_figure(figure, path, 120)
