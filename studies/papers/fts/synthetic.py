"""Run FTS on functions drawn from a Gaussian process, the paper's synthetic setting [Dai2020, App. D.1].

Agent 0 is the target. The other 49 agents hold `t_n` observations from Thompson sampling alone, of functions
that differ from the target's by `d_n` at every point. There is one random starting point, and several
functions with several starts each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import save_figure
from fbo_flower.simulation import Start
from fbo_flower.simulation.problems import make_problem
from fbo_flower.study import Study
from studies import runs
from studies.jobs import Arrays, Directory, Job, OnJob, job, load, open_directory, run_jobs, stack
from studies.report import clustered, panels, shown, table, write_results

NUM_AGENTS = 50
LENGTHSCALE = 0.03
NUM_OBSERVATIONS = (40, 100)  # t_n
NUM_FEATURES = (30, 50, 100)  # M
DIFFERENCES = (0.02, 1.2)  # d_n
SCHEDULE = "1-1/sqrt(t)"
FASTER = ("1-1/t", "1-1/t^2")


def variants() -> dict[str, dict[str, Any]]:
    """Return label -> options of FTS, with `t_n` as `observations`; those of `ts` are empty."""
    found: dict[str, dict[str, Any]] = {"ts": {}}
    for observations in NUM_OBSERVATIONS:
        for num_features in NUM_FEATURES:
            found[f"fts t={observations} M={num_features}"] = {
                "observations": observations,
                "num_features": num_features,
                "schedule": SCHEDULE,
            }
    best = {"observations": 100, "num_features": 100}
    faster = {f"fts t=100 M=100 {p}": {**best, "schedule": p} for p in FASTER}
    return (found | faster) | {
        "fts t=100 portfolio": {**best, "advice": "portfolio", "schedule": "first-5"},
        "control t=100": {**best, "advice": "random", "schedule": SCHEDULE},
    }


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and a picture, and return these files.

    Parameters
    ----------
    quick : True: 1 function, 1 start and 10 iterations; False: 5, 5 and 50
    """
    size = (1, 1, 10) if quick else (5, 5, 50)
    names = ("num_functions", "num_starts", "num_iterations")
    path = open_directory(directory, {"experiment": "fts-synthetic", **dict(zip(names, size, strict=True))})
    for stage, work in zip(("prior observations", "variants"), jobs(path, *size), strict=True):
        run_jobs(work, path, num_workers, on_job, stage)
    return report(path, *size)


def report(directory: Path, num_functions: int, num_starts: int, num_iterations: int) -> list[Path]:
    """Write the table and the picture from the finished jobs."""
    text = [f"Simple regret of the target, {num_functions} functions x {num_starts} starts, mean ± s.e.\n"]
    at = [t for t in (0, 3, 5, 10, 20, 30, 50) if t <= num_iterations]
    repeats = range(num_functions)
    found = {d: {v: stack(directory, v, repeats, run_function, d) for v in variants()} for d in DIFFERENCES}
    for difference, panel in found.items():  # regret (functions, starts, T + 1); functions are the clusters
        text.append(f"## d_n = {difference:g}\n")
        head = ["variant", *(f"after {t}" for t in at), f"summed regret over {num_iterations}", "minus ts"]
        rows = []
        for name, regret in panel.items():
            mine, other = regret.mean(axis=1), panel["ts"].mean(axis=1)
            paired = "-" if name == "ts" else str(clustered((mine - other).sum(axis=1)[None]))
            rows.append([name, *(shown(mine[:, t]) for t in at), shown(mine.sum(axis=1), 3), paired])
        text.append(table(head, rows))
    results, picture = write_results(directory, text), directory / "regret.png"
    draw_regret(found, picture)
    return [results, picture]


def draw_regret(found: Mapping[float, Mapping[str, Array]], path: Path) -> None:
    """Draw mean simple regret against iterations, one panel per comparison of the paper's Fig. 1."""
    near, far = DIFFERENCES
    drawn = {
        f"others differ by {near:g} and hold {t} observations": (
            near,
            ["ts", *(f"fts t={t} M={m}" for m in NUM_FEATURES), "control t=100"],
        )
        for t in NUM_OBSERVATIONS
    }
    last = ["ts", "fts t=100 M=100", f"fts t=100 M=100 {FASTER[0]}", "fts t=100 portfolio", "control t=100"]
    drawn[f"others differ by {far:g} and hold {NUM_OBSERVATIONS[-1]} observations"] = (far, last)
    figure, axes = panels(len(drawn), len(drawn), 5.2, 4.2, sharey=True)
    colours = ["black", "#0072B2", "#D55E00", "#009E73", "#999999"]
    for axis, (title, (difference, names)) in zip(axes, drawn.items(), strict=True):
        for colour, name in zip(colours, names, strict=True):
            mean = found[difference][name].mean(axis=(0, 1))
            style = "--" if name == "ts" else ":" if name.startswith("control") else "-"
            axis.plot(
                np.arange(len(mean)), np.maximum(mean, 1e-5), style, color=colour, label=_explained(name)
            )
        axis.set_yscale("log")
        axis.set_title(title, loc="left", fontsize=11)
        axis.set_xlabel("iterations after the starting point")
        axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    axes[0].set_ylabel("mean simple regret")
    save_figure(figure, path)


def _explained(name: str) -> str:
    """Return the text of the legend for a variant; the number of observations is in the panel's title.

    >>> _explained("fts t=40 M=30"), _explained("fts t=100 M=100 1-1/t"), _explained("control t=100")
    ('fts, 30 features', 'fts, 100 features, p = 1-1/t', 'control: random advice')
    """
    if name.startswith("control"):
        return "control: random advice"
    words = [word for word in name.split() if not word.startswith("t=")]
    texts = [f"{word[2:]} features" if word.startswith("M=") else word for word in words]
    return ", ".join(f"p = {text}" if text.startswith("1-") else text for text in texts)


def jobs(directory: Path, num_functions: int, num_starts: int, num_iterations: int) -> list[list[Job]]:
    """Return the jobs in two stages: the other agents' earlier observations, then all runs."""
    cells = [(difference, function) for difference in DIFFERENCES for function in range(num_functions)]
    common = {"num_starts": num_starts, "num_iterations": num_iterations, "directory": str(directory)}
    return [[job(observe, *cell) for cell in cells], [job(run_function, *cell, **common) for cell in cells]]


def observe(difference: float, function: int) -> Arrays:
    """Let every agent tune alone; return its points and values in order."""
    study = _simulate(
        "ts", {"num_initial": 1}, difference, function, 50_000 + function, max(NUM_OBSERVATIONS)
    )
    trials = study.trials
    return {
        "agent": np.array(trials["agent"].tolist(), dtype=np.int64).astype(np.float64),
        "points": np.array([[config["x"]] for config in trials["config"]], dtype=np.float64),
        "values": np.asarray(trials["value"], dtype=np.float64),
    }


def run_function(
    difference: float, function: int, num_starts: int, num_iterations: int, directory: str
) -> Arrays:
    """Run every variant on one function; return each one's simple regret `(starts, iterations + 1)`."""
    prior = load(Path(directory), observe, difference, function)
    rows: dict[str, list[Array]] = {label: [] for label in variants()}
    num_rounds = num_iterations + 1
    for start in range(num_starts):
        for label, variant in variants().items():
            options = {"num_initial": 1, **variant}
            held = _held(prior, options.pop("observations", 0))
            if label != "ts":
                options |= {"communication": "once", "lengthscale": LENGTHSCALE, "targets": ("0",)}
            algorithm = "ts" if label == "ts" else "fts"
            # a different seed per function: with five seeds a schedule might never use a message
            seed = 1000 * function + start
            study = _simulate(algorithm, options, difference, function, seed, num_rounds, held)
            mine = study.regret.where(agent="0")
            rows[label].append(np.asarray(mine["simple"], dtype=np.float64))
    return {label: np.array(found) for label, found in rows.items()}


def _held(prior: Arrays, count: int) -> dict[str, tuple[Array, Array]]:
    """Return the first `count` observations of every agent but the target."""
    rows = {str(agent): prior["agent"] == agent for agent in range(1, NUM_AGENTS)}
    return {a: (prior["points"][r][:count], prior["values"][r][:count]) for a, r in rows.items()}


def _simulate(
    algorithm: str,
    options: Mapping[str, Any],
    difference: float,
    function: int,
    seed: int,
    num_rounds: int,
    prior: Mapping[str, tuple[Array, Array]] | None = None,
) -> Study:
    alone = algorithm == "ts" and prior is not None  # the target tunes alone
    problem_options = {"difference": difference, "function_seed": function}
    problem = make_problem("gp-samples", 1 if alone else NUM_AGENTS, seed, problem_options)
    start = Start(observations=None if alone else prior)
    return runs.run(problem, algorithm, options, num_rounds, seed, start=start)
