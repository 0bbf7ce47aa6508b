"""The work of the PF-PNE experiment: its size and its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.bandits import partition
from fbo_flower.simulation.problems import XArmed, make_problem
from studies.jobs import Arrays, Job, load_job
from studies.papers.pne import guarantees as checks
from studies.papers.pne import reference
from studies.papers.pne.client import BanditRun, Shifted, Surface, Tabulated
from studies.problems import LandmineSVM

FUNCTIONS = ("garland", "double-sine", "himmelblau", "ackley", "rastrigin-10d")
NEURAL = ("garland", "himmelblau")
CENTRED = ("double-sine", "ackley", "rastrigin-10d")  # optimum in the middle of the cube, before the shift
ALGORITHMS = (
    "pf-pne", "pf-pne ceil", "fed-pne", "local-pne", "hct", "fed1-ucb", "racing", "racing-local",
)  # fmt: skip
FIRST_SEED = 200  # smaller seeds were used to design the racing variant
CHECKED_RHO = {"holds": 2**-0.25, "fails": 0.5}
GARLAND_RHO = (0.5, 0.7)
LANDMINE_NOISE = (0.1, 0.0)  # half the range


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


def stages(directory: Path, size: Size) -> dict[str, list[Job]]:
    """Return the jobs by stage; the landmine problem is tabulated before its runs."""
    neural = [
        Job(f"neural-{p}-{s}", neural_run, {"problem": p, "budget": size.neural_budget, "seed": s})
        for p in NEURAL
        for s in seeds(size.num_neural_seeds)
    ]
    found = {"functions": functions(size.budget, size.num_seeds, size.stddevs), "limits": limits(size)}
    if has_landmine():
        depth, fields = size.table_depth, size.num_fields
        found["landmine table"] = [
            Job(f"table-{m}", tabulate, {"field": m, "depth": depth}) for m in range(fields)
        ]
        where = {"directory": str(directory), "num_fields": fields, "depth": depth}
        found["landmine"] = [
            Job(
                landmine_name(budget, noise, s),
                landmine_run,
                {**where, "budget": budget, "noise": noise, "seed": s},
            )
            for budget in (size.budget, size.long_budget)
            for noise in LANDMINE_NOISE
            for s in landmine_seeds(size, noise)
        ]
    found["functions, long"] = functions(size.long_budget, size.num_long_seeds, size.stddevs)
    found["FN-UCB"] = neural  # last, as it takes longest
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
        Job(
            function_name(p, stddev, budget, s),
            function_run,
            {"problem": p, "stddev": stddev, "budget": budget, "seed": s},
        )
        for s in seeds(num_seeds)
        for stddev in stddevs
        for p in FUNCTIONS
    ]


def limits(size: Size) -> list[Job]:
    """Return the jobs of `pne.guarantees`."""
    count = {"first_seed": FIRST_SEED, "num_seeds": size.num_check_seeds}
    sharp = [Job(f"sharp-{k}", checks.lost_sharp, {**count, "rho": rho}) for k, rho in CHECKED_RHO.items()]
    long = {"budget": size.long_budget}
    garland = [
        Job(f"lost-{rho}-{s}", checks.lost_garland, {**long, "seed": s, "rho": rho})
        for rho in GARLAND_RHO
        for s in seeds(size.num_seeds)
    ]
    short = {"budget": size.budget}
    apart = [Job(f"apart-{s}", checks.apart, {**short, "seed": s}) for s in seeds(size.num_seeds)]
    moved = [
        Job(f"moved-{p}-{s}", checks.moved, {**short, "problem": p, "seed": s})
        for p in CENTRED
        for s in seeds(size.num_seeds)
    ]
    return sharp + garland + apart + moved


def function_name(problem: str, stddev: float, budget: int, seed: int) -> str:
    """Return the name of a job."""
    return f"{problem}-{stddev}-{budget}-{seed}"


def landmine_name(budget: int, noise: float, seed: int) -> str:
    """Return the name of a job."""
    return f"landmine-{noise}-{budget}-{seed}"


# -- jobs --------------------------------------------------------------------------------------


def function_run(problem: str, stddev: float, budget: int, seed: int) -> Arrays:
    """Run all algorithms but FN-UCB on a shifted function."""
    return records(_compare(_surface(problem, stddev, seed), budget, seed, ALGORITHMS))


def neural_run(problem: str, budget: int, seed: int) -> Arrays:
    """Run FN-UCB, and the others with its budget."""
    return records(_compare(_surface(problem, 0.05, seed), budget, seed, (*ALGORITHMS, "fn-ucb")))


def tabulate(field: int, depth: int) -> Arrays:
    """Evaluate a landmine field at the centres of all cells of depths 0 to `depth`, depth by depth."""
    problem = LandmineSVM(field + 1, 0)
    points = np.concatenate([_centres(h) for h in range(depth + 1)])
    values = [problem.true_value(problem.space.decode(point), field) for point in points]
    return {"values": np.array(values, dtype=np.float64)}


def landmine_run(directory: str, num_fields: int, depth: int, budget: int, noise: float, seed: int) -> Arrays:
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
    tables = [load_job(Path(directory), f"table-{m}")["values"] for m in range(num_fields)]
    surface = Tabulated(LandmineSVM(num_fields, 0), np.array([values.max() for values in tables]))
    keys = [point.tobytes() for h in range(depth + 1) for point in _centres(h)]
    for m, values in enumerate(tables):
        surface.table.update(zip(((m, key) for key in keys), values.tolist(), strict=True))
    return surface


def _centres(depth: int) -> Array:
    return partition.centre(depth, np.arange(2**depth), 2)
