"""Run PF-PNE and its comparators: cumulative regret on five shifted functions and on landmine detection.

There are ten clients, uniform noise on [-.1, .1] and shifts of three sizes; [Li2024] states none of these.
All runs use the plain driver in `pne.reference`; algorithms with the same seed draw the same noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.bandits import partition
from fbo_flower.reports.pictures import algorithm_style, save_figure
from fbo_flower.simulation.problems import XArmed, make_problem
from studies.jobs import Arrays, Directory, Job, OnJob, job, load, open_directory, run_jobs
from studies.papers.pne import guarantees as checks
from studies.papers.pne import reference
from studies.papers.pne.client import BanditRun, Shifted, Surface, Tabulated
from studies.problems import LandmineSVM
from studies.report import legend, panels, shown, table, write_results

FUNCTIONS = ("garland", "double-sine", "himmelblau", "ackley", "rastrigin-10d")
NEURAL = ("garland", "himmelblau")
CENTRED = ("double-sine", "ackley", "rastrigin-10d")  # optimum in the middle of the cube, before the shift
ALGORITHMS = (
    "pf-pne", "pf-pne ceil", "fed-pne", "local-pne", "hct", "fed1-ucb", "racing", "racing-local",
)  # fmt: skip
FIRST_SEED = 200  # smaller seeds were used to design the racing variant
CHECKED_RHO = (2**-0.25, 0.5)
GARLAND_RHO = (0.5, 0.7)
LANDMINE_NOISE = (0.1, 0.0)  # half the range
_NAMED = ("pf-pne", "fed-pne", "local-pne", "hct", "fed1-ucb")
COLOURS = {name: algorithm_style(name).color for name in _NAMED} | {
    "racing": "#0072B2",
    "racing-local": "#CC79A7",
}
COMMUNICATING = {
    "fed-pne": ".-",
    "pf-pne": "o--",
    "fed1-ucb": ".-",
    "racing": "s-",
}  # algorithm -> line style

Panels = Mapping[str, Sequence[Arrays]]  # title -> results of the jobs of its seeds
SHOWN_DEPTHS = 10  # deeper cells are summed up
SHOWN_STDDEV = 0.05


@dataclass(frozen=True)
class Size:
    """The size of the experiment.

    Parameters
    ----------
    budget, long_budget : `T`
    num_seeds, num_long_seeds : repetitions with each budget
    stddevs : standard deviations of the shifts
    neural_budget, num_neural_seeds : budget and repetitions of the runs with FN-UCB
    num_fields, table_depth, num_field_seeds : landmine fields, tabulated depths, repetitions
    num_check_seeds : repetitions of the count of lost optima
    """

    budget: int = 20_000
    long_budget: int = 100_000
    num_seeds: int = 10
    num_long_seeds: int = 10
    stddevs: tuple[float, ...] = (0.05, 0.01, 0.1)
    neural_budget: int = 20_000
    num_neural_seeds: int = 3
    num_fields: int = 29
    table_depth: int = 10
    num_field_seeds: int = 3
    num_check_seeds: int = 200


QUICK = Size(500, 1000, 2, 2, (0.05,), 20, 1, 2, 5, 1, 2)


def has_landmine() -> bool:
    """Return whether the landmine data are available."""
    try:
        LandmineSVM(1, 0).check_data()
    except ConfigError:
        return False
    return True


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
    for stage, jobs in stages(path, size).items():
        run_jobs(jobs, path, num_workers, on_job, stage)
    return report(path, size)


def stages(directory: Path, size: Size) -> dict[str, list[Job]]:
    """Return the jobs by stage; the landmine problem is tabulated before its runs."""
    found = {
        "functions": functions(size.budget, size.num_seeds, size.stddevs),
        "limits": [
            *(
                job(checks.lost_sharp, rho, first_seed=FIRST_SEED, num_seeds=size.num_check_seeds)
                for rho in CHECKED_RHO
            ),
            *(
                job(checks.lost_garland, rho, s, budget=size.long_budget)
                for rho in GARLAND_RHO
                for s in seeds(size.num_seeds)
            ),
            *(job(checks.apart, s, budget=size.budget) for s in seeds(size.num_seeds)),
            *(job(checks.moved, p, s, budget=size.budget) for p in CENTRED for s in seeds(size.num_seeds)),
        ],
    }
    if has_landmine():
        depth, fields = size.table_depth, size.num_fields
        where: dict[str, Any] = {"directory": str(directory), "num_fields": fields, "depth": depth}
        found["landmine table"] = [job(tabulate, field, depth=depth) for field in range(fields)]
        found["landmine"] = [
            job(landmine_run, budget, noise, s, **where)
            for budget in (size.budget, size.long_budget)
            for noise in LANDMINE_NOISE
            for s in landmine_seeds(size, noise)
        ]
    found["functions, long"] = functions(size.long_budget, size.num_long_seeds, size.stddevs)
    found["FN-UCB"] = [  # last, as it takes longest
        job(neural_run, p, s, budget=size.neural_budget) for p in NEURAL for s in seeds(size.num_neural_seeds)
    ]
    return found


def seeds(count: int) -> range:
    """Return the seeds of a report, which were not used in development."""
    return range(FIRST_SEED, FIRST_SEED + count)


def landmine_seeds(size: Size, noise: float) -> range:
    """Return the seeds of the landmine runs; without noise there is one, since others would repeat it."""
    return seeds(size.num_field_seeds if noise else 1)


def functions(budget: int, num_seeds: int, stddevs: tuple[float, ...]) -> list[Job]:
    """Return the jobs of the five functions."""
    return [
        job(function_run, p, stddev, budget, s)
        for s in seeds(num_seeds)
        for stddev in stddevs
        for p in FUNCTIONS
    ]


# -- jobs --------------------------------------------------------------------------------------


def function_run(problem: str, stddev: float, budget: int, seed: int) -> Arrays:
    """Run all algorithms but FN-UCB on a shifted function."""
    return records(_compare(_surface(problem, stddev, seed), budget, seed, ALGORITHMS))


def neural_run(problem: str, seed: int, budget: int) -> Arrays:
    """Run FN-UCB, and the others with its budget."""
    return records(_compare(_surface(problem, 0.05, seed), budget, seed, (*ALGORITHMS, "fn-ucb")))


def tabulate(field: int, depth: int) -> Arrays:
    """Evaluate a landmine field at the centres of all cells of depths 0 to `depth`, depth by depth."""
    problem = LandmineSVM(field + 1, 0)
    points = np.concatenate([_centres(h) for h in range(depth + 1)])
    values = [problem.true_value(problem.space.decode(point), field) for point in points]
    return {"values": np.array(values, dtype=np.float64)}


def landmine_run(budget: int, noise: float, seed: int, directory: str, num_fields: int, depth: int) -> Arrays:
    """Run all algorithms but FN-UCB on the landmine fields.

    The array `excess (M,)` says by how much a run's best values exceed the optima in the table.
    """
    known = _landmine(directory, num_fields, depth)
    surface = Tabulated(known.problem, known.optima, noise, known.table)
    found = records(_compare(surface, budget, seed, ALGORITHMS))
    best = np.full(num_fields, -np.inf)
    for (client, _), value in known.table.items():
        best[client] = max(best[client], value)
    return found | {"excess": best - known.optima}


def records(runs: Mapping[str, BanditRun]) -> Arrays:
    """Return the arrays that the report needs, as `name/what`; curves are means over the clients."""
    found: Arrays = {}
    for name, run_ in runs.items():
        found |= {
            f"{name}/times": run_.times.astype(np.float64),
            f"{name}/curve": np.asarray(run_.regret.mean(axis=0)),
            f"{name}/final": run_.final,
            f"{name}/simple": run_.simple,
            f"{name}/depths": np.asarray(run_.pulls_per_depth.mean(axis=0)),
            f"{name}/exchanged": run_.exchanged.astype(np.float64),
        }
    return found


def _compare(surface: Surface, budget: int, seed: int, names: tuple[str, ...]) -> dict[str, BanditRun]:
    algorithms = {**reference.algorithms(), "pf-pne ceil": reference.algorithms(h0="ceil")["pf-pne"]}
    return {name: algorithms[name](surface, budget, seed) for name in names}


def _surface(problem: str, stddev: float, seed: int) -> Shifted:
    chosen = make_problem(problem, None, seed, {"shift_stddev": stddev})
    assert isinstance(chosen, XArmed)
    return Shifted(chosen)


@lru_cache(maxsize=1)
def _landmine(directory: str, num_fields: int, depth: int) -> Tabulated:
    """Return the tabulated fields; each process adds the points that its runs evaluate."""
    tables = [load(Path(directory), tabulate, m)["values"] for m in range(num_fields)]
    surface = Tabulated(LandmineSVM(num_fields, 0), np.array([values.max() for values in tables]))
    keys = [point.tobytes() for h in range(depth + 1) for point in _centres(h)]
    for m, values in enumerate(tables):
        surface.table.update(zip(((m, key) for key in keys), values.tolist(), strict=True))
    return surface


def _centres(depth: int) -> Array:
    return partition.centre(depth, np.arange(2**depth), 2)


# -- the report --------------------------------------------------------------------------------


def report(directory: Path, size: Size) -> list[Path]:
    """Write the tables and pictures from the finished jobs."""
    text = [
        f"10 clients, noise U(-.1, .1); seeds from {FIRST_SEED}. Means over clients and seeds; "
        "`±` is the standard deviation over seeds, for differences, the standard error.\n"
    ]
    if not has_landmine():
        text.append("The landmine data are missing; that problem is left out.\n")
    pictures: list[Path] = []
    for budget, count in ((size.budget, size.num_seeds), (size.long_budget, size.num_long_seeds)):
        found = settings(directory, size, budget, count)
        text += [f"## T = {budget}, {count} seeds\n", *_tables(found)]
        if budget == size.budget:
            some = [s for s in found if s.differ in {f"sd {SHOWN_STDDEV}", "fields, noise 0.1"}]
            text += ["### Evaluations per client and depth\n", depth_table(some)]
            pictures = [directory / "regret.png", directory / "communication.png"]
            drawn = {f"{s.problem}, {s.differ}": s.runs for s in some}
            draw_regret(drawn, pictures[0])
            draw_communication(drawn, pictures[1])
    text += [_neural(directory, size), *_limits(directory, size)]
    results = write_results(directory, text)
    return [results, *pictures]


def settings(directory: Path, size: Size, budget: int, num_seeds: int) -> list[RegretSetting]:
    """Return all problems at one budget, with the results of their jobs."""
    found = [
        RegretSetting(
            problem,
            f"sd {stddev}",
            _load(directory, num_seeds, function_run, problem, stddev, budget),
        )
        for problem in FUNCTIONS
        for stddev in sorted(size.stddevs)
    ]
    if has_landmine():
        found += landmine_settings(directory, size, budget)
    return found


# -- tables ------------------------------------------------------------------------------------


def spread(values: Array, digits: int = 0) -> str:
    """Return the mean and standard deviation over seeds as text."""
    mean = f"{values.mean():.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {values.std(ddof=1):.{digits}f}"


def paired(values: Array, baseline: Array) -> str:
    """Return the mean difference over paired seeds and its standard error as text."""
    return shown(values - baseline, 0, "+")


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
    for problem in NEURAL:
        runs = _load(directory, size.num_neural_seeds, neural_run, problem)
        setting = RegretSetting(problem, "", runs)
        rows.append(
            [problem, *(spread(setting.values(a, "final")) for a in names), _traffic(setting, "fn-ucb")]
        )
    return f"## FN-UCB: T = {size.neural_budget}, sd .05, {size.num_neural_seeds} seeds\n\n" + table(
        ["problem", *names, "FN-UCB's floats"], rows
    )


def _limits(directory: Path, size: Size) -> list[str]:
    sharp = []
    for rho in CHECKED_RHO:
        arrays = load(directory, checks.lost_sharp, rho)
        lost, clients = arrays["lost"]
        holds = "holds" if arrays["smooth"] else "does not hold"
        sharp.append(["sharp peaks, T = 4000", f"{rho:.3f}", holds, f"{lost:.0f} of {clients:.0f}"])
    for rho in GARLAND_RHO:
        runs = _load(directory, size.num_seeds, checks.lost_garland, rho)
        lost, clients = np.sum([arrays["lost"] for arrays in runs], axis=0)
        name = f"garland, sd .05, T = {size.long_budget}"
        sharp.append([name, f"{rho}", "not checked", f"{lost:.0f} of {clients:.0f}"])
    runs = _load(directory, size.num_seeds, checks.apart)
    apart = [
        [name, *(spread(np.array([arrays[name][m] for arrays in runs])) for m in range(3))]
        for name in ("fed-pne", "pf-pne, Delta .01", "pf-pne, Delta .26", "hct", "racing")
    ]
    moved = []
    for problem in CENTRED:
        runs = _load(directory, size.num_seeds, checks.moved, problem)
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


def landmine_settings(directory: Path, size: Size, budget: int) -> list[RegretSetting]:
    """Return the landmine settings; a field's optimum is the best value in the table or in any run."""
    cells = {
        (t, noise): _load(directory, len(landmine_seeds(size, noise)), landmine_run, t, noise)
        for t in (size.budget, size.long_budget)
        for noise in LANDMINE_NOISE
    }
    excess = np.max([run["excess"] for runs in cells.values() for run in runs], axis=0)
    return [
        RegretSetting(
            "landmine-svm",
            f"fields, noise {noise}",
            tuple(_with_optimum(run, excess) for run in cells[budget, noise]),
        )
        for noise in LANDMINE_NOISE
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


def _load(directory: Path, number: int, function: Callable[..., Arrays], *row: object) -> tuple[Arrays, ...]:
    """Return the results of a number of seeds."""
    return tuple(load(directory, function, *row, seed) for seed in seeds(number))


# -- pictures ----------------------------------------------------------------------------------


def draw_regret(drawn: Panels, path: Path) -> None:
    """Draw mean cumulative regret per client, bands ± 1 standard deviation over seeds, log scale."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = panels(len(drawn), 3, 4.6, 3.5)
    for axis, (title, runs) in zip(axes, drawn.items(), strict=True):
        for name, colour in COLOURS.items():
            times = runs[0][f"{name}/times"][1:]
            curves = np.array([run[f"{name}/curve"] for run in runs])[:, 1:]
            mean, low, high = band(curves)
            axis.plot(times, mean, color=colour, label=name, linewidth=1.6)
            axis.fill_between(times, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.xaxis.set_major_locator(MaxNLocator(nbins=5))
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.set_xlabel("evaluations per client")
        axis.set_ylabel("cumulative regret per client")
        _finish(axis, title)
    legend(figure, axes[:1], 4)
    save_figure(figure, path, 130)


def draw_communication(drawn: Panels, path: Path) -> None:
    """Draw floats exchanged by all clients so far against rounds, mean over seeds, log scales."""
    figure, axes = panels(len(drawn), 3, 4.6, 3.5)
    for axis, (title, runs) in zip(axes, drawn.items(), strict=True):
        for name, line in COMMUNICATING.items():
            mean = padded([run[f"{name}/exchanged"].sum(axis=1).cumsum() for run in runs]).mean(axis=0)
            rounds = np.arange(1, len(mean) + 1)
            axis.plot(rounds, mean, line, color=COLOURS[name], label=name, linewidth=1.4, markersize=5)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
        axis.set_xlabel("communication rounds")
        axis.set_ylabel("floats exchanged")
        _finish(axis, title)
        axis.margins(x=0.05)
    legend(figure, axes[:1], 4)
    save_figure(figure, path, 130)


def band(curves: Array) -> tuple[Array, Array, Array]:
    """Return the mean over seeds `(R, g)` and mean ± 1 standard deviation; one seed has no band."""
    mean = curves.mean(axis=0)
    stddev = curves.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros_like(mean)
    return mean, np.maximum(mean - stddev, 1e-3), mean + stddev


def padded(curves: Sequence[Array]) -> Array:
    """Return curves of different lengths as rows; short curves repeat their last value.

    >>> padded([np.array([1.0, 2.0]), np.array([3.0])]).tolist()
    [[1.0, 2.0], [3.0, 3.0]]
    """
    longest = max(len(curve) for curve in curves)
    return np.array(
        [np.pad(c, (0, longest - len(c)), "edge") if len(c) else np.zeros(longest) for c in curves]
    )


def _finish(axis: Any, title: str) -> None:
    axis.set_yscale("log")
    axis.set_title(title, loc="left", fontsize=11)
    axis.margins(x=0)
