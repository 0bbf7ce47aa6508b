"""Does `fed-ei` pay? Beside tuning alone, copying others, other federated and pooled optimisers.

A row of the table is an optimiser; one with two variants counts with the better of both, by the mean over
all seeds at each number of evaluations. All begin with the same random points of each agent. A difference is
that of the means over the agents of one seed; the standard error is over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms.registry import FTS_OPTIONS
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import save_figure
from studies.jobs import Arrays, Directory, OnJob, has, job, load, open_directory, run_jobs, stack
from studies.papers import optuna_peers
from studies.papers.ei import known_owners
from studies.papers.ei.late import joined_late
from studies.papers.ei.problems import PROBLEMS, SEVERAL
from studies.report import band, legend, mean_and_error, panels, table, write_csv, write_results
from studies.runs import best_so_far, curve_of, run_budget, starting_points

FIRST_SEED, NUM_SEEDS, BUDGET = 500, 12, 20
FEDERATED: dict[str, Any] = {"secure_sums": 0}  # the same trials without masks
Variants = list[tuple[str, dict[str, Any]]]


def _both(algorithm: str, options: Mapping[str, Any] | None = None) -> Variants:
    return [(algorithm, {**(options or {}), "num_initial": number}) for number in (2, 3)]


ROWS: dict[str, Variants] = {
    "ei": _both("ei"),
    "fed-ei": [("fed-ei", FEDERATED)],
    "share-best": _both("share-best"),
    "share-random": _both("share-random"),
    "fts": _both("fts", FTS_OPTIONS),
    "GPSampler": _both("gpsampler"),
    "known owners": [("known owners", {})],
}
# other numbers of agents: label, number
OTHERS = [
    *((label, 3) for label in ("Styblinski-5", "draws, .64 in common", "Hartmann-6", "choice of a model")),
    *((label, 50) for label in ("Styblinski-5", "draws, .64 in common")),
]
MOST_GP = 3  # agents that tune with GPSampler, the costliest row; they are compared with themselves
MANY = 20  # agents from which on the costly rows are left out
COSTLY = ("GPSampler", "known owners")
LATE = ("Hartmann-6", "Styblinski-5", "choice of a model")
LATE_BUDGET, NUM_JOINERS, HELD = 10, 3, 20
BASELINE = "ei"
CHECKPOINTS = (4, 5, 10, 20)
LATE_CHECKPOINTS = (1, 2, 3, 5, 10)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

Found = dict[str, Array]  # row -> `(seeds, agents, checkpoints)`; of some rows the first agents only
Setting = tuple[str, int]  # label, number of agents


def settings(quick: bool) -> list[tuple[str, int]]:
    """Return labels and numbers of agents."""
    return [("Branin", 3)] if quick else [*((label, SEVERAL) for label in PROBLEMS), *OTHERS]


def rows_of(agents: int) -> list[str]:
    """Return the rows that are measured with this number of agents."""
    left_out = set(COSTLY) if agents > MANY else set()
    left_out |= set() if optuna_peers.is_installed() else {"GPSampler"}
    return [row for row in ROWS if row not in left_out]


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result; write tables and pictures after every seed, and return the files.

    Parameters
    ----------
    quick : True: 2 seeds of Branin with 3 agents, 6 evaluations
    """
    num_seeds, budget = (2, 6) if quick else (NUM_SEEDS, BUDGET)
    path = open_directory(directory, {"experiment": "fed-ei", "budget": budget})
    files: list[Path] = []
    late = ("Branin",) if quick else LATE
    for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
        work = [
            job(curves, label, agents, name, variant, seed, budget=budget)
            for label, agents in settings(quick)
            for name in rows_of(agents)
            for variant in range(len(ROWS[name]))
        ]
        more = {"held": 4 if quick else HELD, "budget": min(budget, LATE_BUDGET)}
        work += [job(late_curves, label, seed, **more) for label in late]
        run_jobs(work, path, num_workers, on_job, f"seed {seed}")
        files = report(path, settings(quick), range(FIRST_SEED, seed + 1), late)
    return files


def curves(label: str, agents: int, row: str, variant: int, seed: int, budget: int) -> Arrays:
    """Return the best scores so far, `(agents, budget)`."""
    problem = PROBLEMS[label](agents, seed)
    algorithm, options = ROWS[row][variant]
    if algorithm == "gpsampler":
        starts = starting_points(problem, seed, options["num_initial"])
        best = [
            curve_of(problem, a, *optuna_peers.evaluations(problem, a, starts[a], algorithm, seed, budget))
            for a in range(min(agents, MOST_GP))
        ]
        return {"best": best}  # type: ignore[dict-item]  # np.savez makes it an array
    if algorithm == "known owners":
        points, values = known_owners.best_points(problem, seed, budget)
        space = problem.space
        found = [
            curve_of(problem, agent, [space.decode(p) for p in points[agent]], values[agent])
            for agent in range(agents)
        ]
        return {"best": found}  # type: ignore[dict-item]
    return {"best": best_so_far(run_budget(problem, algorithm, options, seed, budget), problem, budget)}


def late_curves(label: str, seed: int, held: int, budget: int) -> Arrays:
    """Return the best scores so far of agents that join late, and of the same agents alone."""
    problem = PROBLEMS[label](SEVERAL, seed)
    return {
        "fed-ei": joined_late(problem, "fed-ei", FEDERATED, NUM_JOINERS, held, budget, seed),
        "ei": joined_late(problem, "ei", {}, NUM_JOINERS, 0, budget, seed),
    }


# -- the report --------------------------------------------------------------------------------


def report(
    directory: Path, settings: Sequence[Setting], seeds: Sequence[int], late: Sequence[str]
) -> list[Path]:
    """Write `results.md`, `results.csv`, `gains.png`, `late.png` from the finished jobs; return them."""
    loaded = {s: _loaded(directory, s, seeds) for s in settings}
    lines = [f"Seeds {seeds[0]} to {seeds[-1]}; differences from `{BASELINE}` at {CHECKPOINTS} evaluations."]
    figures = []
    for setting, (found, deviation) in loaded.items():
        for name, values in found.items():
            difference = paired(values, found[BASELINE]) if name != BASELINE else values.mean(axis=1)
            numbers = zip(CHECKPOINTS, *mean_and_error(difference), deviation, strict=False)
            figures += [
                [*setting, name, at, len(values), *(f"{v:.5g}" for v in more)] for at, *more in numbers
            ]
    lines += ["", _table(loaded), _summary(loaded)]
    joined = {label: _late(directory, label, seeds) for label in late}
    lines += [f"## Late joiners: fed-ei minus {BASELINE}", "", _late_table(joined)]
    columns = ["problem", "agents", "row", "evaluations", "seeds", "mean", "error", "deviation of ei"]
    files = [write_results(directory, lines), write_csv(directory / "results.csv", columns, figures)]
    pictures = [directory / "gains.png", directory / "late.png"]
    draw_gains(figures, pictures[0])
    draw_late(joined, pictures[1])
    return [*files, *pictures]


def _loaded(directory: Path, setting: Setting, seeds: Sequence[int]) -> tuple[Found, Array]:
    """Return the values at the checkpoints, and the baseline's deviation over agents and seeds.

    Of a row's variants the one with the better mean over all seeds counts, at each checkpoint.
    """
    found: Found = {}
    deviation = np.empty(0)
    for name in ROWS:
        every = _curves(directory, setting, name, seeds)
        if not every:
            continue
        at = [n - 1 for n in CHECKPOINTS if n <= every[0].shape[2]]
        values = np.array([each[:, :, at] for each in every])
        better = values.mean(axis=(1, 2)).argmax(axis=0)
        found[name] = np.stack([values[b, :, :, place] for place, b in enumerate(better)], axis=2)
        if name == BASELINE:
            deviation = values[-1].reshape(-1, len(at)).std(axis=0)
    return found, deviation


def paired(values: Array, others: Array) -> Array:
    """Return differences `(seeds, checkpoints)`, means over the agents that both rows have."""
    agents = min(values.shape[1], others.shape[1])
    return np.asarray((values[:, :agents] - others[:, :agents]).mean(axis=1), dtype=np.float64)


def _curves(directory: Path, setting: Setting, name: str, seeds: Sequence[int]) -> list[Array]:
    """Return the best values so far `(seeds, agents, budget)` of those variants with a run for each seed."""
    return [
        stack(directory, "best", seeds, curves, *setting, name, variant)
        for variant in range(len(ROWS[name]))
        if all(has(directory, curves, *setting, name, variant, seed) for seed in seeds)
    ]


def _table(loaded: Mapping[Setting, tuple[Found, Array]]) -> str:
    """Return differences from the baseline with their standard errors, a line per problem."""
    names = [name for name in ROWS if name != BASELINE]
    rows = [
        [*setting, *(_shown(paired(found[n], found[BASELINE])) if n in found else "" for n in names)]
        for setting, (found, _) in loaded.items()
    ]
    return table(["problem", "agents", *names], rows)


def _summary(loaded: Mapping[Setting, tuple[Found, Array]]) -> str:
    """Return the mean gain of each row in deviations of the baseline, and how often fed-ei is ahead of it."""
    rows = []
    for name in ROWS:
        gains, z = [], []
        for found, deviation in loaded.values():
            if name not in found or "fed-ei" not in found or len(found[name]) < 2:
                continue
            gain = paired(found[name], found[BASELINE]).mean(axis=0)
            gains.append(gain / np.maximum(deviation, 1e-12))
            mean, error = mean_and_error(paired(found["fed-ei"], found[name]))
            z.append(mean / np.maximum(error, 1e-12))
        if not gains:
            continue
        ahead = np.array(z)
        counts = [np.sum(t, axis=0) for t in (ahead > 0, ahead > 2, ahead < -1, ahead < -2)]
        cells = [" ".join(map(str, count)) + f" of {len(z)}" for count in counts]
        gained = " ".join(f"{gain:+.2f}" for gain in np.mean(gains, axis=0))
        rows.append([name, gained, *(cells if name != "fed-ei" else [""] * 4)])
    return table(["row", "mean gain", "fed-ei is ahead", "by two s.e.", "behind by one", "by two"], rows)


def _late(directory: Path, label: str, seeds: Sequence[int]) -> tuple[Array, Array]:
    """Return the best values so far of late joiners with `fed-ei` and alone."""
    found = [load(directory, late_curves, label, s) for s in seeds if has(directory, late_curves, label, s)]
    fed, alone = (np.array([f[name].mean(axis=0) for f in found]) for name in ("fed-ei", BASELINE))
    return fed, alone


def _late_table(joined: Mapping[str, tuple[Array, Array]]) -> str:
    rows = []
    for label, (fed, alone) in joined.items():
        at = [n - 1 for n in LATE_CHECKPOINTS if n <= fed.shape[1]]
        rows.append([label, _shown((fed - alone)[:, at]), f"{alone[:, -1].mean():.3f}"])
    return table(["problem", f"at {LATE_CHECKPOINTS}", f"{BASELINE} at 10"], rows)


def _shown(differences: Array) -> str:
    """Return means and standard errors of differences `(seeds, checkpoints)`, with three digits."""
    means, errors = mean_and_error(differences)
    digits = max(0, 2 - int(np.floor(np.log10(max(np.abs(means).max(), 1e-9)))))
    return "<br>".join(f"{m:+.{digits}f} ± {e:.{digits}f}" for m, e in zip(means, errors, strict=True))


# -- pictures ----------------------------------------------------------------------------------


def draw_gains(figures: Sequence[Sequence[Any]], path: Path) -> None:
    """Draw the gains of all rows over the baseline, a panel per problem, from the rows of `results.csv`."""
    settings = list(dict.fromkeys((label, int(agents)) for label, agents, *_ in figures))
    figure, axes = panels(len(settings), 4, 3.0, 2.3)
    for place, (axis, setting) in enumerate(zip(axes, settings, strict=True)):
        axis.axhline(0.0, color="black", linewidth=1, linestyle="--")
        mine = [row for row in figures if (row[0], int(row[1])) == setting]
        for colour, name in zip(COLOURS, [name for name in ROWS if name != BASELINE], strict=False):
            drawn = [(float(at), float(m), float(e)) for _, _, n, at, _, m, e, _ in mine if n == name]
            if drawn:
                at, mean, error = zip(*drawn, strict=True)
                axis.errorbar(at, mean, error, label=name, color=colour, marker=".", linewidth=1.2)
        _label(axis, f"{setting[0]}, {setting[1]} agents", "evaluations per agent")
        if place % 4 == 0:
            axis.set_ylabel(f"gain over {BASELINE}")
    legend(figure, axes, 6)
    save_figure(figure, path, 120)


def draw_late(joined: Mapping[str, tuple[Array, Array]], path: Path) -> None:
    """Draw the best values so far of agents that join late, with `fed-ei` and alone."""
    figure, axes = panels(len(joined), 3, 3.8, 3.0)
    for axis, (label, (fed, alone)) in zip(axes, joined.items(), strict=True):
        evaluations = 1.0 + np.arange(fed.shape[1])
        band(axis, evaluations, fed, "joins a federation with fed-ei", COLOURS[0])
        band(axis, evaluations, alone, f"begins alone with {BASELINE}", "#4D4D4D")
        _label(axis, label, "evaluations of the new agent")
    axes[0].set_ylabel("best value so far")
    legend(figure, axes, 6)
    save_figure(figure, path, 120)


def _label(axis: Any, title: str, xlabel: str) -> None:
    axis.set_title(title, loc="left", fontsize=9)
    axis.set_xlabel(xlabel)
    axis.margins(x=0)
