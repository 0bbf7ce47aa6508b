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

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.bandits import partition
from fbo_flower.simulation.problems import XArmed, make_problem
from fbo_flower.storage import read_arrays
from studies.experiment import Arrays, Experiment, OnJob, Part, has_data, job, load, run_jobs
from studies.papers.pne import guarantees as checks
from studies.papers.pne import reference
from studies.papers.pne.client import Surface, Tabulated, thinned
from studies.problems import LandmineSVM

FUNCTIONS = ("garland", "double-sine", "himmelblau", "ackley", "rastrigin-10d")
NEURAL = ("garland", "himmelblau")
ALGORITHMS = "pf-pne", "pf-pne ceil", "fed-pne", "local-pne", "hct", "fed1-ucb", "racing", "racing-local"
FIRST_SEED = 200  # smaller seeds were used to design the racing variant
LANDMINE_NOISE = 0.1  # half the range


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return all parts; quick: hundreds of evaluations, two seeds."""
    budgets = (300, 600) if quick else (20_000, 100_000)
    stddevs = (0.05,) if quick else (0.01, 0.05, 0.1)
    surfaces = {f"{p}, sd {s:g}": (p, s) for p in FUNCTIONS for s in stddevs}
    few = {p: (p, 0.05) for p in NEURAL}
    seeds = range(FIRST_SEED, FIRST_SEED + (2 if quick else 10))
    three = seeds[: 1 if quick else 3]
    fields = {"num_fields": 1 if quick else 29, "depth": 5 if quick else 10, "directory": str(directory)}
    pairs = [("racing", "racing-local"), ("pf-pne ceil", "pf-pne")]
    shared: dict[str, Any] = {"baseline": "hct", "pairs": pairs, "joint": True}
    drawn: dict[str, Any] = {"drawn": "regret", "axis": "pulls", "how": "log", "hidden": ("pf-pne ceil",)}
    found = []
    for budget in budgets:
        common = {"surfaces": surfaces, "budget": budget, "names": ALGORITHMS}
        more = {**shared, **drawn, "places": thinned(budget).tolist()}
        found.append(Part(f"T = {budget}", run, list(surfaces), ALGORITHMS, seeds, common, **more))
        if has_data(LandmineSVM(1, 0)):
            title, common = f"landmine, noise {LANDMINE_NOISE}", {"budget": budget, **fields}
            more["correct"] = partial(with_optima, budget)
            whole = f"{title}, T = {budget}"
            found.append(Part(whole, run_landmine, [title], ALGORITHMS, three, common, **more))
    names = ("fn-ucb", "fed1-ucb", "pf-pne", "hct", "racing")
    neural = {"surfaces": few, "budget": 20 if quick else budgets[0], "names": (*ALGORITHMS, "fn-ucb")}
    peaks, long = range(FIRST_SEED, FIRST_SEED + (2 if quick else 200)), {"budget": budgets[1]}
    return [
        *found,
        Part("FN-UCB", run, list(few), names, three, neural, baseline="hct", joint=True),
        Part("lost optima, sharp peaks", checks.lost_sharp, ["sharp peaks"], checks.SHARP_RHO, peaks),
        Part("lost optima, garland", checks.lost_garland, ["garland"], checks.GARLAND_RHO, seeds, long),
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
    return records(chosen, budget, seed, names)


def tabulate(field: int, depth: int) -> Arrays:
    """Evaluate a landmine field at the centres of all cells of depths 0 to `depth`, depth by depth."""
    problem = LandmineSVM(field + 1, 0)
    points = np.concatenate([_centres(h) for h in range(depth + 1)])
    values = [problem.true_value(problem.space.decode(point), field) for point in points]
    return {"values": np.array(values, dtype=np.float64)}


def run_landmine(title: str, seed: int, budget: int, directory: str, num_fields: int, depth: int) -> Arrays:
    """Run all algorithms but FN-UCB on the landmine fields."""
    known = _landmine(directory, num_fields, depth)
    surface = Tabulated(known.problem, known.optima, LANDMINE_NOISE, known.table)
    found = records(surface, budget, seed, ALGORITHMS)
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


def records(surface: Surface, budget: int, seed: int, names: Sequence[str]) -> Arrays:
    """Return the metrics of each algorithm as `name/metric`; the curve is the mean over the clients."""
    algorithms = {**reference.algorithms(), "pf-pne ceil": reference.algorithms(h0="ceil")["pf-pne"]}
    found: Arrays = {}
    for name in names:
        made = algorithms[name](surface, budget, seed)
        found |= {
            f"{name}/regret": made.regret.mean(axis=0, keepdims=True),
            f"{name}/cumulative regret": made.final,
            f"{name}/simple regret": made.simple,
        }
    return found


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
