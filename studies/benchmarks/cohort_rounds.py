"""Measure the CPU time of an agent's round when all agents are in one process, by algorithm.

    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.cohort_rounds [--agents 1000] [--before CHECKOUT]

Everything counts: the agents' steps and the server's work (engine `inline`, an objective that costs nothing).
With `--engine ray` the workers and Ray's own processes count, too; the last columns are the shares. With
`--before` every measurement alternates with one of another checkout, and the ratio is shown. CPU time hardly
depends on what else the machine does, unless it is very busy; the smallest round of a run counts. The first
is left out, of `fed-ei` the first four: random trials, an exchange without a trial, and two rounds that
repeat others' rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from studies.benchmarks.bench import ROOT, options, say
from studies.experiment import head

HERE = Path(__file__).resolve().parent
CELLS: dict[str, dict[str, Any]] = {
    "no-op": {"what": "idle"},
    "random": {"what": "random", "prior": 20},
    "ts": {"what": "ts", "prior": 20},
    "fts": {"what": "fts", "prior": 20},
    "ei": {"what": "ei", "prior": 20},
    "fed-ei": {"what": "fed-ei", "prior": 20, "options": {"secure_sums": 0}, "left_out": 4},
    "fed-ei, secure sums": {"what": "fed-ei", "prior": 20, "left_out": 4},
    "rgpe": {"what": "rgpe", "prior": 20},
    "taf": {"what": "taf", "prior": 20},
    "pf-pne": {"what": "pf-pne", "options": {"budget": 400, "max_evaluations_per_round": 100}},
}


def measure(cell: dict[str, Any], checkout: Path) -> tuple[list[dict[str, float]], float]:
    """Return the CPU milliseconds per agent of each round that counts, by process, and memory in GB."""
    path = f"{checkout}{os.pathsep}{ROOT}"
    environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "round_cell.py"), json.dumps(cell)]
    # not in a checkout: Ray's workers would import the package from the working directory
    done = subprocess.run(command, env=environment, cwd=HERE, capture_output=True, text=True)  # noqa: PLW1510
    if done.returncode:
        raise SystemExit(done.stderr)
    row = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    parts = row.get("cpu_parts") or [{"grid": seconds} for seconds in row["cpu_rounds"]]
    scaled = [{name: 1000 * seconds / cell["agents"] for name, seconds in part.items()} for part in parts]
    return scaled[cell.get("left_out", 1) :], row["memory"] / 1e9


def main() -> None:
    """Print one line per algorithm."""
    engines, cells = ("inline", "ray"), list(CELLS)
    given = options(__doc__, agents=1000, rounds=3, repeats=2, engine=engines, before=None, only=cells)
    columns = ["CPU ms per agent and round", "before", "ratio", "GB", "grid", "workers", "Ray"]
    print(head(["algorithm", "agents", *columns]))
    for name in given.only:
        rounds = given.rounds + CELLS[name].get("left_out", 1)
        cell = {"engine": given.engine, "agents": given.agents, "rounds": rounds, **CELLS[name]}
        best: dict[str, dict[str, float]] = {}
        memory = 0.0
        for _ in range(given.repeats):
            for which, checkout in (("now", ROOT), ("before", given.before)):
                if checkout is not None:
                    rounds, gigabytes = measure(cell, checkout)
                    best[which] = min([best.get(which, rounds[0]), *rounds], key=total)
                    memory = gigabytes if which == "now" else memory
        now, shares = total(best["now"]), [f"{part:.2f}" for part in best["now"].values()]
        old = total(best["before"]) if given.before else None
        before = ["-", "-"] if old is None else [f"{old:.2f}", f"{old / now:.1f}"]
        say(name, given.agents, f"{now:.2f}", *before, f"{memory:.2f}", *shares)


def total(parts: dict[str, float]) -> float:
    """Return the CPU time of all processes."""
    return sum(parts.values())


if __name__ == "__main__":
    main()
