"""Run PF-PNE and its comparators: cumulative regret on five shifted functions and on landmine detection.

There are ten clients, uniform noise on [-.1, .1] and shifts of three sizes; [Li2024] states none of these.
All runs use the plain driver in `pne.reference`; algorithms with the same seed draw the same noise. On
landmine a field's optimum is the best value in its table or in any run. If the data are missing, that part is
left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.bandits import partition
from fbo_flower.simulation.problems import XArmed, make_problem
from fbo_flower.storage import read_arrays
from studies.experiment import Arrays, Experiment, OnJob, Part, job, load, run_jobs
from studies.papers.pne import guarantees as checks
from studies.papers.pne import reference
from studies.papers.pne.client import BanditRun, Shifted, Surface, Tabulated, thinned
from studies.problems import LandmineSVM

FUNCTIONS = ("garland", "double-sine", "himmelblau", "ackley", "rastrigin-10d")
NEURAL = ("garland", "himmelblau")
CENTRED = ("double-sine", "ackley", "rastrigin-10d")  # optimum in the middle of the cube, before the shift
ALGORITHMS = (
    "pf-pne", "pf-pne ceil", "fed-pne", "local-pne", "hct", "fed1-ucb", "racing", "racing-local",
)  # fmt: skip
FIRST_SEED = 200  # smaller seeds were used to design the racing variant
LANDMINE_NOISE = {"landmine, noise 0.1": 0.1, "landmine, no noise": 0.0}  # half the range


def has_landmine() -> bool:
    """Return whether the landmine data are available."""
    try:
        LandmineSVM(1, 0).check_data()
    except ConfigError:
        return False
    return True


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return all parts; quick: hundreds of evaluations, two seeds."""
    budgets = (500, 1000) if quick else (20_000, 100_000)
    stddevs = (0.05,) if quick else (0.01, 0.05, 0.1)
    surfaces = {f"{p}, sd {s:g}": (p, s) for p in FUNCTIONS for s in stddevs}
    few = {p: (p, 0.05) for p in NEURAL}
    seeds = range(FIRST_SEED, FIRST_SEED + (2 if quick else 10))
    three = seeds[: 1 if quick else 3]
    fields = {"num_fields": 2 if quick else 29, "depth": 5 if quick else 10, "directory": str(directory)}
    pairs = [("racing", "racing-local"), ("pf-pne ceil", "pf-pne")]
    shared: dict[str, Any] = {"baseline": "hct", "pairs": pairs, "joint": True}
    drawn: dict[str, Any] = {"drawn": "regret", "axis": "pulls", "how": "log", "hidden": ("pf-pne ceil",)}
    found = []
    for budget in budgets:
        common = {"surfaces": surfaces, "budget": budget, "names": ALGORITHMS}
        more = {**shared, **drawn, "places": thinned(budget).tolist()}
        found.append(Part(f"T = {budget}", run, list(surfaces), ALGORITHMS, seeds, common, **more))
        for title, noise in LANDMINE_NOISE.items() if has_landmine() else ():
            common = {"budget": budget, **fields}
            some = three if noise else seeds[:1]  # without noise all seeds are alike
            found.append(
                Part(
                    f"{title}, T = {budget}", run_landmine, [title], ALGORITHMS, some, common,
                    correct=partial(with_optima, budget), **more,
                )
            )  # fmt: skip
    names = ("fn-ucb", "fed1-ucb", "pf-pne", "hct", "racing")
    neural = {"surfaces": few, "budget": 20 if quick else budgets[0], "names": (*ALGORITHMS, "fn-ucb")}
    seeds_of_peaks = range(FIRST_SEED, FIRST_SEED + (2 if quick else 200))
    short, long = ({"budget": budget} for budget in budgets)
    moved = ("pf-pne", "hct", "racing")
    return [
        *found,
        Part("FN-UCB", run, list(few), names, three, neural, baseline="hct", joint=True),
        Part(
            "lost optima, sharp peaks", checks.lost_sharp, ["sharp peaks"], checks.SHARP_RHO, seeds_of_peaks
        ),
        Part("lost optima, garland", checks.lost_garland, ["garland"], checks.GARLAND_RHO, seeds, long),
        Part("optima in different cells", checks.apart, ["peaks"], checks.APART_ROWS, seeds, short),
        Part("optima moved by .137", checks.moved, CENTRED, moved, seeds, short, baseline="hct"),
    ]


def prepare(directory: Path, parts: Sequence[Part], num_workers: int, on_job: OnJob | None) -> None:
    """Tabulate the landmine fields."""
    for part in [part for part in parts if part.run is run_landmine][:1]:
        depth = part.common["depth"]
        work = [job(tabulate, field, depth=depth) for field in range(part.common["num_fields"])]
        run_jobs(work, directory, num_workers, on_job, "landmine table")


EXPERIMENT = Experiment("PF-PNE, its racing variant and six comparators: cumulative regret", parts, prepare)


# -- runs --------------------------------------------------------------------------------------


def run(
    title: str, seed: int, surfaces: Mapping[str, tuple[str, float]], budget: int, names: Sequence[str]
) -> Arrays:
    """Run algorithms on a shifted function."""
    problem, stddev = surfaces[title]
    chosen = make_problem(problem, None, seed, {"shift_stddev": stddev})
    assert isinstance(chosen, XArmed)
    return records(compare(Shifted(chosen), budget, seed, names))


def tabulate(field: int, depth: int) -> Arrays:
    """Evaluate a landmine field at the centres of all cells of depths 0 to `depth`, depth by depth."""
    problem = LandmineSVM(field + 1, 0)
    points = np.concatenate([_centres(h) for h in range(depth + 1)])
    values = [problem.true_value(problem.space.decode(point), field) for point in points]
    return {"values": np.array(values, dtype=np.float64)}


def run_landmine(title: str, seed: int, budget: int, directory: str, num_fields: int, depth: int) -> Arrays:
    """Run all algorithms but FN-UCB on the landmine fields."""
    known = _landmine(directory, num_fields, depth)
    surface = Tabulated(known.problem, known.optima, LANDMINE_NOISE[title], known.table)
    found = records(compare(surface, budget, seed, ALGORITHMS))
    best = np.full(num_fields, -np.inf)
    for (client, _), value in known.table.items():
        best[client] = max(best[client], value)
    return found | {"excess": best - known.optima}


def with_optima(budget: int, directory: Path, found: Arrays) -> Arrays:
    """Return metrics for the best values that any run has found, `excess (M,)` above the table's."""
    paths = (directory / "jobs").glob("landmine-*.npz")
    excess = np.max([read_arrays(path)["excess"] for path in paths], axis=0)
    more = {
        "regret": excess.mean() * thinned(budget), "cumulative regret": budget * excess,
        "simple regret": excess,
    }  # fmt: skip
    return {key: values + more.get(key.rpartition("/")[2], 0.0) for key, values in found.items()}


def records(runs: Mapping[str, BanditRun]) -> Arrays:
    """Return the metrics of each run as `name/metric`; the curve is the mean over the clients."""
    found: Arrays = {}
    for name, run_ in runs.items():
        found |= {
            f"{name}/regret": run_.regret.mean(axis=0, keepdims=True),
            f"{name}/cumulative regret": run_.final,
            f"{name}/simple regret": run_.simple,
            f"{name}/floats exchanged": np.array(float(run_.exchanged.sum())),
            f"{name}/rounds": np.array(float(run_.rounds)),
        }
    return found


def compare(surface: Surface, budget: int, seed: int, names: Sequence[str]) -> dict[str, BanditRun]:
    """Return the record of each algorithm."""
    algorithms = {**reference.algorithms(), "pf-pne ceil": reference.algorithms(h0="ceil")["pf-pne"]}
    return {name: algorithms[name](surface, budget, seed) for name in names}


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
