"""Run Co-KG in the paper's settings, with all comparators and random search [Zhan2025, section IV].

There are two metrics, both without noise: the value of the configuration that the server would return (the
paper's rule), and that of the best configuration tried, which the paper's curves resemble.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import takewhile
from pathlib import Path

from studies.jobs import Arrays, Directory, OnJob, has_result, load_job, open_directory, run_jobs
from studies.papers.co_kg import draw as cokg_draw
from studies.papers.co_kg import tables, work
from studies.papers.co_kg.runs import MESH, NUM_AGENTS, NUM_INITIAL
from studies.papers.co_kg.work import QUICK, Size
from studies.papers.tables import write_results

DRAWN = ("f1", "rosenbrock, known noise", "rosenbrock, log")


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and two pictures, and return these files.

    If the California data are missing, that network is left out, and `results.md` says so.

    Parameters
    ----------
    quick : True: the size `QUICK`, half a minute on one core; False: `Size()`, more than an hour
    """
    size = QUICK if quick else Size()
    path = open_directory(directory, work.settings(size))
    for stage, jobs in work.stages(size).items():
        run_jobs(jobs, path, num_workers, partial(on_job, stage))
    return report(path, size)


def report(directory: Path, size: Size) -> list[Path]:
    """Write the tables and pictures from the finished jobs, also if the run was stopped.

    Each part uses its seeds up to the first that is missing; a part with fewer than two seeds is left out.
    """
    runs = {
        s: _load(directory, (work.job_name(s, i) for i in range(work.num_seeds(size, s))))
        for s in work.FUNCTIONS
    }
    networks = {
        p: _load(directory, (work.job_name(p, i) for i in range(size.num_network_seeds)))
        for p in work.networks()
    }
    pictures = [directory / "functions.png", directory / "networks.png"]
    cokg_draw.draw({s: tables.metrics_of(runs[s]) for s in DRAWN if runs[s]}, pictures[0], paired=False)
    cokg_draw.draw({p: tables.metrics_of(r) for p, r in networks.items() if r}, pictures[1], paired=True)
    swept = {
        s: _load(directory, (work.swept_name(s, i) for i in range(size.num_swept_seeds))) for s in work.SWEPT
    }
    odd = _load(directory, (f"odd-{i}" for i in range(size.num_odd_seeds)))
    private = _load(directory, (f"private-{i}" for i in range(size.num_private_seeds)))
    text = [
        f"{NUM_AGENTS} agents, {NUM_INITIAL} points each, then {size.num_rounds} rounds with one "
        f"({size.num_network_rounds} for the networks); a mesh of {MESH} x {MESH} unless another "
        "is stated. `±` is the standard error over seeds; for differences, that of the paired difference.\n",
        "## Functions\n",
        *(tables.function_table(s, r) for s, r in runs.items() if r),
        "## Acceptance\n",
        tables.acceptance({s: r for s, r in runs.items() if r}),
        "## Beta, mesh, number of agents\n",
        *(tables.swept_table(s, runs[s], r, size) for s, r in swept.items() if r),
        "## Networks\n",
        *(tables.network_table(p, r) for p, r in networks.items() if r),
        "" if work.has_california() else "The California data are missing; that network is left out.\n",
        "## Server time\n",
        tables.time_table({mesh: load_job(directory, f"time-{mesh}") for mesh in size.timed}),
        "## One odd agent\n",
        tables.odd_table(odd) if odd else "",
        "## Noise on the reported means\n",
        tables.private_table(private) if private else "",
    ]
    results = write_results(directory, text)
    return [results, *pictures]


def _load(directory: Path, names: Iterable[str]) -> list[Arrays]:
    found = [load_job(directory, name) for name in takewhile(partial(has_result, directory), names)]
    return found if len(found) > 1 else []
