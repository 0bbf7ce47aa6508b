"""Several outputs: does sharing pay beside the best local optimisers, and beside copying?

A row of the table is an optimiser. All tune the same problems of `studies.problems.outputs` and begin with
three random points of each agent, the same for all but `fed-ei`, which begins with two.

With one objective, an agent's score is the best value that holds its limits. As long as it has none, its
score is its own regret for that: the median of the values that hold the limits among `DRAWN` random
configurations. With several objectives, it is the hypervolume of the agent's front from the fixed reference.
Scores are divided by their deviation over agents and seeds under `ei` at the same number of evaluations.
Standard errors are over seeds. GPSampler, NSGA-II and BoTorch tune for the first agents only, which are
compared with themselves.
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
from fbo_flower.numerics.seeding import generator
from fbo_flower.reports.pictures import save_figure
from fbo_flower.simulation import Agents, simulate
from studies.jobs import Arrays, Directory, OnJob, has, job, open_directory, run_jobs, stack
from studies.papers import output_peers
from studies.problems.outputs import PROBLEMS, Problem, Site
from studies.report import band, legend, mean_and_error, panels, shown, table, write_csv, write_results

FIRST_SEED, NUM_SEEDS, BUDGET = 500, 12, 40
CHECKPOINTS = (10, 20, 40)
BASELINE = "ei"
TOGETHER = {"fed-ei": {"secure_sums": 0}, "ei": {}, "share-best": {}, "share-random": {}, "random": {}}
ALONE = {"GPSampler": (2, 20), "NSGA-II": (2, 40), "qLogNEHVI": (1, 10)}  # agents and evaluations: a step
ROWS = (*TOGETHER, *ALONE)  # takes GPSampler half a second, BoTorch two
DRAWN = 200  # random configurations of each agent, for the scale of its values
COLOURS = ("#0072B2", "#D55E00", "#E69F00", "#999999", "#009E73", "#CC79A7", "#56B4E9")
FIRST_DRAWN = 3
_MEDIANS: dict[tuple[Any, ...], float] = {}


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

    tune = output_peers.botorch_outputs if row == "qLogNEHVI" else output_peers.optuna_outputs
    return tune(row, problem.space, aims, evaluate, starts, budget, seed)


def score(problem: Problem, site: Site, outputs: Array) -> Array:
    """Return an agent's scores `(n,)` after each of its trials with outputs `(n, O)`."""
    aims = problem.aims(site)
    holds = aims.feasible(outputs)
    objectives = len(aims.objectives)
    if objectives == 1:
        values = np.where(holds, outputs[:, 0], -np.inf)
        return np.maximum(np.maximum.accumulate(values), _median(problem, site))
    return np.array([
        hypervolume(outputs[: n + 1][holds[: n + 1], :objectives], aims.start) for n in range(len(outputs))
    ])  # fmt: skip


def _median(problem: Problem, site: Site) -> float:
    """Return the median of the first output among random configurations that hold the limits."""
    key = site.seed, site.number, problem.function.__name__, tuple(site.limits.items())
    if key not in _MEDIANS:
        aims, rng = problem.aims(site), generator(site.seed, "median", str(site.number))
        points = rng.random((DRAWN, problem.space.dimension))
        found = [problem.function(problem.space.decode(u), site) for u in points]
        outputs = np.array([[each[name] for name in aims.names] for each in found]) * aims.signs
        _MEDIANS[key] = float(np.median(outputs[aims.feasible(outputs), 0]))
    return _MEDIANS[key]


# -- the report --------------------------------------------------------------------------------


def report(directory: Path, labels: Sequence[str], seeds: Sequence[int]) -> list[Path]:
    """Write `results.md`, `results.csv` and `gains.png` from the finished jobs; return them."""
    rows, gains = [], {}
    for label in labels:
        found = {
            row: stack(directory, "score", seeds, scores, label, row)
            for row in ROWS
            if all(has(directory, scores, label, row, seed) for seed in seeds)
        }
        base = found[BASELINE]
        deviation = np.maximum(base.reshape(-1, base.shape[2]).std(axis=0), 1e-12)
        for row, values in found.items():
            agents, n = values.shape[1:]
            gains[label, row] = (values - base[:, :agents, :n]).mean(axis=1) / deviation[:n]
            for at in (at for at in CHECKPOINTS if at <= n):
                numbers = (
                    *mean_and_error(values.mean(axis=1)[:, at - 1]),
                    *mean_and_error(gains[label, row][:, at - 1]),
                )
                rows.append([label, row, at, len(seeds), agents, *(f"{number:.4g}" for number in numbers)])
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


def gain_table(labels: Sequence[str], gains: Mapping[tuple[str, str], Array]) -> str:
    """Return gains over the baseline, a line per problem and number of evaluations."""
    rows = [row for row in ROWS if row != BASELINE and any((label, row) in gains for label in labels)]
    lines = []
    for label in labels:
        for at in CHECKPOINTS:
            cells = [
                shown(gains[label, row][:, at - 1], 2, "+")
                if (label, row) in gains and gains[label, row].shape[1] >= at
                else ""
                for row in rows
            ]
            if any(cells):
                lines.append([label, at, *cells])
    return table(["problem", "evaluations", *rows], lines)


def ahead_table(labels: Sequence[str], gains: Mapping[tuple[str, str], Array]) -> str:
    """Return on how many problems `fed-ei` is ahead of each row and behind it, by two standard errors."""
    lines = []
    for row in ROWS:
        for at in CHECKPOINTS:
            pairs = [
                (gains[label, "fed-ei"], gains[label, row])
                for label in labels
                if (label, row) in gains and gains[label, row].shape[1] >= at
            ]
            if row == "fed-ei" or not pairs:
                continue
            z = []
            for ours, theirs in pairs:
                mean, error = mean_and_error(ours[:, at - 1] - theirs[:, at - 1])
                z.append(float(mean / np.maximum(error, 1e-12)))
            counts = [sum(test) for test in ([x > 0 for x in z], [x > 2 for x in z], [x < -2 for x in z])]
            lines.append([row, at, len(z), *counts])
    return table(["row", "evaluations", "problems", "fed-ei is ahead", "by two s.e.", "behind by two"], lines)


def draw_gains(labels: Sequence[str], gains: Mapping[tuple[str, str], Array], path: Path) -> None:
    """Draw the gains of all rows over the baseline, a panel per problem."""
    figure, axes = panels(len(labels), 4, 3.0, 2.3)
    for axis, label in zip(axes, labels, strict=True):
        axis.axhline(0.0, color="black", linewidth=1, linestyle="--")
        for colour, row in zip(COLOURS, [row for row in ROWS if row != BASELINE], strict=True):
            if (label, row) in gains and gains[label, row].shape[1] > FIRST_DRAWN:
                gain = gains[label, row][:, FIRST_DRAWN - 1 :]
                band(axis, np.arange(FIRST_DRAWN, FIRST_DRAWN + gain.shape[1]), gain, row, colour)
        axis.set_title(label, loc="left", fontsize=9)
        axis.set_xlabel("evaluations per agent")
    axes[0].set_ylabel(f"gain over {BASELINE}")
    legend(figure, axes, 7)
    save_figure(figure, path, 120)
