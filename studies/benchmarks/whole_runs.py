"""Measure whole runs: seconds per round, peak memory and use of workers, by engine and number of agents.

    python -m studies.benchmarks.whole_runs [--quick] [--long] [--out runs/benchmarks] [--limit 150]

Every measurement (a cell) runs in a new process (`round_cell.py`); its result is a JSON file in `OUT/cells`,
and a cell with a result is not measured again. Then `libraries.py` measures parts that other libraries have
too, and `page.py` writes the results into `docs/results/benchmarks.md`. A cell that takes longer than the
limit (seconds) is stopped and reported as such. `--quick` takes small numbers, about a minute, and writes no
page; `--long` adds 20 rounds of 10000 agents, 25 minutes, and stops nothing; `--no-libraries` measures whole
runs alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from studies.benchmarks.bench import ROOT, options

HERE = Path(__file__).parent
COUNTS = (100, 1000, 5000, 10_000)
SLEEPS = ((0.001, 2000), (0.1, 100), (2.0, 8))  # seconds of an evaluation, number of agents
PRIOR = 20  # observations that an agent of FTS holds


def cells(quick: bool, long: bool) -> list[dict[str, Any]]:
    """Return the measurements to make, the most important first."""
    found: list[dict[str, Any]] = []
    counts = (100, 1000) if quick else COUNTS
    rounds = {100: 5, 1000: 4, 5000: 3, 10_000: 3}
    for agents in counts:
        for engine in ("ray", "inline"):
            common = {"engine": engine, "agents": agents}
            found.append({"what": "idle", "rounds": rounds[agents], **common})
            if not (quick and agents > 100):
                found.append({"what": "fts", "rounds": min(3, rounds[agents]), "prior": PRIOR, **common})
    for seconds, agents in SLEEPS[: 2 if quick else 3]:
        asked = {"what": "random", "engine": "ray", "agents": agents, "rounds": 3, "sleep": seconds}
        found.append({**asked, "options": {"num_initial": 1}})
    if not quick:
        options = {"budget": 400, "max_evaluations_per_round": 100}
        for agents in (1000, 10_000):
            common = {"engine": "ray", "agents": agents, "rounds": 3}
            found.append({"what": "pf-pne", "options": options, **common})
            found.append({"what": "ts", "prior": PRIOR, **common})
    for agents in (100,) if quick else (100, 1000, 5000, 10_000):
        common = {"engine": "flower", "agents": agents}
        found.append({"what": "idle", "rounds": 2 if agents < 5000 else 1, **common})
        if agents < 5000 or long:
            found.append({"what": "fts", "rounds": 2 if agents < 5000 else 1, "prior": PRIOR, **common})
    if long:
        found.append({"what": "fts", "engine": "ray", "agents": 10_000, "rounds": 20, "prior": 0})
    return found


def name_of(cell: dict[str, Any]) -> str:
    """Return the name of a cell's file."""
    sleep = f"-sleep{cell['sleep']:g}" if "sleep" in cell else ""
    return f"{cell['what']}-{cell['engine']}-{cell['agents']}-{cell['rounds']}{sleep}"


def measure(cell: dict[str, Any], path: Path, limit: float | None) -> None:
    """Run a cell and save its result with the machine's load at the start."""
    load = os.getloadavg()[0]
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, str(HERE / "round_cell.py"), json.dumps(cell)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )  # fmt: skip
    row = dict(cell)
    try:
        output, _ = process.communicate(timeout=limit)
        found = [line for line in output.splitlines() if line.startswith("{")]
        row = json.loads(found[-1]) if process.returncode == 0 and found else {**row, "failed": True}
    except subprocess.TimeoutExpired:
        end(process)
        row["limit"] = limit
    except BaseException:  # Ctrl-C: the cell runs in a session of its own and would go on
        end(process)
        raise
    row["load"] = load
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    took = time.perf_counter() - begin
    shown = " ".join(f"{s:.2f}" for s in row.get("seconds", [])) or "no result"
    print(f"{name_of(cell)}: {shown} ({took:.0f} s in all)", flush=True)


def end(process: subprocess.Popen[str]) -> None:
    """End a cell and the processes that it started."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def main() -> None:
    """Make the missing measurements, then write the page."""
    given = options(__doc__, quick=False, long=False, out=None, limit=150.0, no_libraries=False)
    out = given.out or ROOT / "runs" / ("benchmarks-quick" if given.quick else "benchmarks")
    (out / "cells").mkdir(parents=True, exist_ok=True)
    for cell in cells(given.quick, given.long):
        path = out / "cells" / f"{name_of(cell)}.json"
        if not path.exists():
            measure(cell, path, None if given.long else given.limit)
    if not (given.no_libraries or (out / "libraries.json").exists()):
        command = [sys.executable, "-m", "studies.benchmarks.libraries", "--out", str(out / "libraries.json")]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        subprocess.run(command + ["--quick"] * given.quick, env=environment, cwd=ROOT, check=True)
    if not given.quick:
        from studies.benchmarks.page import write_page

        results = ROOT / "studies" / "results" / "benchmarks"
        write_page(out, ROOT / "docs" / "results" / "benchmarks.md", results)


if __name__ == "__main__":
    main()
