"""Run PF-PNE and its comparators: cumulative regret on five shifted functions and on landmine detection.

There are ten clients, uniform noise on [-.1, .1] and shifts of three sizes; [Li2024] states none of these.
All runs use the plain driver in `pne.reference`; algorithms with the same seed draw the same noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fbo_flower.numerics.arrays import Array
from studies.jobs import Arrays, Directory, OnJob, load_job, open_directory, run_jobs
from studies.papers.compare import Estimate
from studies.papers.pne import draw, work
from studies.papers.pne.work import ALGORITHMS, QUICK, Size
from studies.papers.tables import table, write_results

SHOWN_DEPTHS = 10  # deeper cells are summed up
SHOWN_STDDEV = 0.05


@dataclass(frozen=True)
class RegretSetting:
    """A problem with its repetitions, one line of the tables."""

    problem: str
    differ: str
    runs: tuple[Arrays, ...]

    def values(self, algorithm: str, what: str) -> Array:
        """Return means over the clients, one per seed."""
        return np.array([run[f"{algorithm}/{what}"].mean() for run in self.runs])


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and two pictures, and return these files.

    If the landmine data are missing, that part is left out, and `results.md` says so.

    Parameters
    ----------
    quick : True: the size `QUICK`, under a minute; False: `Size()`, about an hour
    """
    size = QUICK if quick else Size()
    path = open_directory(directory, {"experiment": "pne", **asdict(size), "stddevs": list(size.stddevs)})
    for stage, jobs in work.stages(path, size).items():
        run_jobs(jobs, path, num_workers, partial(on_job, stage))
    return report(path, size)


def report(directory: Path, size: Size) -> list[Path]:
    """Write the tables and pictures from the finished jobs."""
    text = [
        f"10 clients, noise U(-.1, .1); seeds from {work.FIRST_SEED}. Means over clients and seeds; "
        "`±` is the standard deviation over seeds, for differences, the standard error.\n"
    ]
    if not work.has_landmine():
        text.append("The landmine data are missing; that problem is left out.\n")
    pictures: list[Path] = []
    for budget, count in ((size.budget, size.num_seeds), (size.long_budget, size.num_long_seeds)):
        found = settings(directory, size, budget, count)
        text += [f"## T = {budget}, {count} seeds\n", *_tables(found)]
        if budget == size.budget:
            shown = [s for s in found if s.differ in {f"sd {SHOWN_STDDEV}", "fields, noise 0.1"}]
            text += ["### Evaluations per client and depth\n", depth_table(shown)]
            pictures = [directory / "regret.png", directory / "communication.png"]
            panels = {f"{s.problem}, {s.differ}": s.runs for s in shown}
            draw.regret(panels, pictures[0])
            draw.communication(panels, pictures[1])
    text += [_neural(directory, size), *_limits(directory, size)]
    results = write_results(directory, text)
    return [results, *pictures]


def settings(directory: Path, size: Size, budget: int, num_seeds: int) -> list[RegretSetting]:
    """Return all problems at one budget, with the results of their jobs."""
    found = [
        RegretSetting(
            problem,
            f"sd {stddev}",
            _load(directory, (work.function_name(problem, stddev, budget, s) for s in work.seeds(num_seeds))),
        )
        for problem in work.FUNCTIONS
        for stddev in sorted(size.stddevs)
    ]
    if work.has_landmine():
        found += _landmine(directory, size, budget)
    return found


# -- tables ------------------------------------------------------------------------------------


def spread(values: Array, digits: int = 0) -> str:
    """Return the mean and standard deviation over seeds as text."""
    mean = f"{values.mean():.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {values.std(ddof=1):.{digits}f}"


def paired(values: Array, baseline: Array) -> str:
    """Return the mean difference over paired seeds and its standard error as text."""
    difference = values - baseline
    if len(difference) < 2:
        return f"{difference.mean():+.0f}"
    estimate = Estimate(float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference))))
    return f"{estimate.mean:+.0f} ± {estimate.stderr:.0f}"


def depth_table(found: Sequence[RegretSetting]) -> str:
    """Return a table of mean evaluations per client and depth, for algorithms that have a tree."""
    rows = []
    for setting in found:
        for name in ALGORITHMS:
            if name == "fed1-ucb":
                continue
            depths = np.mean([run[f"{name}/depths"] for run in setting.runs], axis=0)
            shallow = [f"{n:.0f}" for n in depths[:SHOWN_DEPTHS]]
            rows.append([setting.problem, name, *shallow, f"{depths[SHOWN_DEPTHS:].sum():.0f}"])
    return table(["problem", "algorithm", *map(str, range(SHOWN_DEPTHS)), "deeper"], rows)


def _tables(found: Sequence[RegretSetting]) -> list[str]:
    first = ["problem", "clients"]
    regret = [[s.problem, s.differ, *(spread(s.values(a, "final")) for a in ALGORITHMS)] for s in found]
    pairs = [("pf-pne", "hct"), ("fed-pne", "hct"), ("local-pne", "hct"), ("racing", "hct")]
    pairs += [("racing-local", "hct"), ("racing", "racing-local"), ("pf-pne ceil", "pf-pne")]
    differences = [
        [
            s.problem,
            s.differ,
            *(paired(s.values(a, "final"), s.values(b, "final")) for a, b in pairs),
            f"{100 * np.mean([run['racing/final'] < run['hct/final'] for run in s.runs]):.0f} %",
        ]
        for s in found
    ]
    simple = [
        [s.problem, s.differ, *(f"{s.values(a, 'simple').mean():.4f}" for a in ALGORITHMS)] for s in found
    ]
    federated = [a for a in ALGORITHMS if a not in {"local-pne", "hct", "racing-local"}]
    floats = [[s.problem, s.differ, *(_traffic(s, a) for a in federated)] for s in found]
    return [
        "### Cumulative regret per client\n",
        table([*first, *ALGORITHMS], regret),
        "### Paired differences of cumulative regret\n",
        table([*first, *(f"{a} - {b}" for a, b in pairs), "clients with racing < hct"], differences),
        "### Simple regret of the recommendation\n",
        table([*first, *ALGORITHMS], simple),
        "### Floats exchanged by all clients, and number of rounds\n",
        table([*first, *federated], floats),
    ]


def _traffic(setting: RegretSetting, algorithm: str) -> str:
    exchanged = [run[f"{algorithm}/exchanged"] for run in setting.runs]
    floats, rounds = np.mean([e.sum() for e in exchanged]), np.mean([len(e) for e in exchanged])
    return f"{floats:.0f} in {rounds:.0f}"


def _neural(directory: Path, size: Size) -> str:
    names = ("fn-ucb", "fed1-ucb", "pf-pne", "hct", "racing")
    rows = []
    for problem in work.NEURAL:
        runs = _load(directory, (f"neural-{problem}-{s}" for s in work.seeds(size.num_neural_seeds)))
        setting = RegretSetting(problem, "", runs)
        rows.append(
            [problem, *(spread(setting.values(a, "final")) for a in names), _traffic(setting, "fn-ucb")]
        )
    return f"## FN-UCB: T = {size.neural_budget}, sd .05, {size.num_neural_seeds} seeds\n\n" + table(
        ["problem", *names, "FN-UCB's floats"], rows
    )


def _limits(directory: Path, size: Size) -> list[str]:
    sharp = []
    for key, rho in work.CHECKED_RHO.items():
        arrays = load_job(directory, f"sharp-{key}")
        lost, clients = arrays["lost"]
        holds = "holds" if arrays["smooth"] else "does not hold"
        sharp.append(["sharp peaks, T = 4000", f"{rho:.3f}", holds, f"{lost:.0f} of {clients:.0f}"])
    for rho in work.GARLAND_RHO:
        runs = _load(directory, (f"lost-{rho}-{s}" for s in work.seeds(size.num_seeds)))
        lost, clients = np.sum([arrays["lost"] for arrays in runs], axis=0)
        name = f"garland, sd .05, T = {size.long_budget}"
        sharp.append([name, f"{rho}", "not checked", f"{lost:.0f} of {clients:.0f}"])
    runs = _load(directory, (f"apart-{s}" for s in work.seeds(size.num_seeds)))
    apart = [
        [name, *(spread(np.array([arrays[name][m] for arrays in runs])) for m in range(3))]
        for name in ("fed-pne", "pf-pne, Delta .01", "pf-pne, Delta .26", "hct", "racing")
    ]
    moved = []
    for problem in work.CENTRED:
        runs = _load(directory, (f"moved-{problem}-{s}" for s in work.seeds(size.num_seeds)))
        means = {
            name: np.array([arrays[name].mean() for arrays in runs]) for name in ("pf-pne", "hct", "racing")
        }
        moved.append([problem, *map(spread, means.values()), paired(means["racing"], means["hct"])])
    return [
        "## Clients that lost their optimum\n",
        table(["problem", "rho", "smoothness (brute force)", "lost"], sharp),
        f"## Optima in different cells, T = {size.budget}: peaks at .1, .12, .88\n",
        table(["algorithm", "client 0", "client 1", "client 2"], apart),
        f"## Optima moved by .137 in every dimension, T = {size.budget}, sd .05\n",
        table(["problem", "pf-pne", "hct", "racing", "racing - hct"], moved),
    ]


def _landmine(directory: Path, size: Size, budget: int) -> list[RegretSetting]:
    """Return the landmine settings; a field's optimum is the best value in the table or in any run."""
    cells = {
        (t, noise): _load(
            directory, (work.landmine_name(t, noise, s) for s in work.landmine_seeds(size, noise))
        )
        for t in (size.budget, size.long_budget)
        for noise in work.LANDMINE_NOISE
    }
    excess = np.max([run["excess"] for runs in cells.values() for run in runs], axis=0)
    return [
        RegretSetting(
            "landmine-svm",
            f"fields, noise {noise}",
            tuple(_with_optimum(run, excess) for run in cells[budget, noise]),
        )
        for noise in work.LANDMINE_NOISE
    ]


def _with_optimum(run: Arrays, excess: Array) -> Arrays:
    """Return a run's records recomputed for optima that are higher by `excess (M,)`."""
    found = dict(run)
    for name in ALGORITHMS:
        times = run[f"{name}/times"]
        found[f"{name}/curve"] = run[f"{name}/curve"] + times * excess.mean()
        found[f"{name}/final"] = run[f"{name}/final"] + times[-1] * excess
        found[f"{name}/simple"] = run[f"{name}/simple"] + excess
    return found


def _load(directory: Path, names: Iterable[str]) -> tuple[Arrays, ...]:
    return tuple(load_job(directory, name) for name in names)
