"""Measure speed: a function for each table of `docs/results/benchmarks.md` and of the pages that quote one.

    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.speed NAME [--help]

`make bench` runs `whole-runs`. Runs are measured in processes of their own (`round_cell.py`).
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import typer

from fbo_flower.algorithms import ALGORITHMS
from studies.experiment import head, row

ROOT = Path(__file__).parents[2]
CELL = Path(__file__).with_name("round_cell.py")


app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)


def say(*cells: object) -> None:
    """Print a line of a Markdown table at once."""
    print(row(cells), flush=True)


# -- whole runs ------------------------------------------------------------------------------------

COUNTS = {100: 5, 1000: 4, 5000: 3, 10_000: 3}  # agents -> rounds
PRIOR = 20  # observations that an agent holds


@app.command()
def whole_runs(
    quick: bool = False, out: Path | None = None, limit: float = 150.0, no_libraries: bool = False
) -> None:
    """Measure seconds per round and peak memory, by engine and number of agents.

    Every measurement (a cell) runs in a new process; its result is a JSON file in `OUT/cells`, and a cell
    with a result is not measured again. Then `libraries` measures parts that other libraries have too, and
    `page.py` writes the results into the page. A cell that takes longer than the limit (seconds) is stopped
    and reported as such. `--quick` takes small numbers, about a minute, and writes no page; `--no-libraries`
    measures whole runs alone.
    """
    out = out or ROOT / "runs" / ("benchmarks-quick" if quick else "benchmarks")
    (out / "cells").mkdir(parents=True, exist_ok=True)
    for cell in cells(quick):
        path = out / "cells" / "{what}-{engine}-{agents}-{rounds}.json".format(**cell)
        if not path.exists():
            load, begin = os.getloadavg()[0], time.perf_counter()
            found = measured(cell, limit)
            path.write_text(json.dumps({**found, "load": load}) + "\n", encoding="utf-8")
            shown = " ".join(f"{s:.2f}" for s in found.get("seconds", [])) or "no result"
            print(f"{path.stem}: {shown} ({time.perf_counter() - begin:.0f} s in all)", flush=True)
    if not (no_libraries or (out / "libraries.json").exists()):
        command = [sys.executable, "-m", "studies.benchmarks.speed", "libraries"]
        command += ["--out", str(out / "libraries.json"), *["--quick"] * quick]
        subprocess.run(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, cwd=ROOT, check=True)
    if not quick:
        from studies.benchmarks.page import write_page

        write_page(out, ROOT / "docs" / "results" / "benchmarks.md")


def cells(quick: bool) -> list[dict[str, Any]]:
    """Return the measurements to make, the most important first."""
    found: list[dict[str, Any]] = []
    for agents, rounds in COUNTS.items():
        for engine in ("ray", "inline") if agents <= 1000 or not quick else ():
            common = {"engine": engine, "agents": agents}
            found.append({"what": "idle", "rounds": rounds, **common})
            if not (quick and agents > 100):
                found.append({"what": "fts", "rounds": min(3, rounds), "prior": PRIOR, **common})
    for agents in (100,) if quick else COUNTS:
        common = {"engine": "flower", "agents": agents, "rounds": 2 if agents < 5000 else 1}
        found.append({"what": "idle", **common})
        if agents < 5000:
            found.append({"what": "fts", "prior": PRIOR, **common})
    return found


def measured(cell: dict[str, Any], limit: float | None = None) -> dict[str, Any]:
    """Return the result of a cell; with "limit" or "failed" if there is none."""
    process = subprocess.Popen(
        [sys.executable, str(CELL), json.dumps(cell)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # not in the checkout: Ray's workers would import the package from the working directory
        cwd=CELL.parent, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        end(process)
        return {**cell, "limit": limit}
    except BaseException:  # Ctrl-C: the cell runs in a session of its own and would go on
        end(process)
        raise
    lines = [line for line in output.splitlines() if line.startswith("{")]
    found: dict[str, Any] = {**cell, "failed": errors}
    return found if process.returncode or not lines else json.loads(lines[-1])


def end(process: subprocess.Popen[str]) -> None:
    """End a cell and the processes that it started."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


# -- CPU time by algorithm -------------------------------------------------------------------------

COHORTS: dict[str, dict[str, Any]] = {
    "no-op": {"what": "idle"},
    **{name: {"what": name, "prior": PRIOR} for name in ("random", "ts", "fts", "ei")},
    "fed-ei": {"what": "fed-ei", "prior": PRIOR, "options": {"secure_sums": 0}, "left_out": 4},
    "fed-ei, secure sums": {"what": "fed-ei", "prior": PRIOR, "left_out": 4},
    **{name: {"what": name, "prior": PRIOR} for name in ("rgpe", "taf")},
    "pf-pne": {"what": "pf-pne", "options": {"budget": 400, "max_evaluations_per_round": 100}},
}


@app.command()
def cohort_rounds(
    only: list[str] = [*COHORTS],  # noqa: B006  # read only
    agents: int = 1000, rounds: int = 3, repeats: int = 2, engine: str = "inline",
) -> None:  # fmt: skip
    """Measure the CPU time of an agent's round when all agents are in one process, by algorithm.

    Everything counts: the agents' steps and the server's work (engine `inline`, an objective that costs
    nothing). With `--engine ray` the workers and Ray's own processes count, too; the last columns are the
    shares. CPU time hardly depends on what else the machine does, unless it is very busy; the smallest round
    of a run counts. The first is left out, of `fed-ei` the first four: random trials, an exchange without a
    trial, and two rounds that repeat others' rows.
    """
    print(head(["algorithm", "agents", "CPU ms per agent and round", "GB", "grid", "workers", "Ray"]))
    for name in only:
        left_out = COHORTS[name].get("left_out", 1)
        cell = {"engine": engine, "agents": agents, "rounds": rounds + left_out, **COHORTS[name]}
        best: list[dict[str, float]] = []
        for _ in range(repeats):
            found = measured(cell)
            if "failed" in found:
                raise SystemExit(found["failed"])
            parts = found.get("cpu_parts") or [{"grid": seconds} for seconds in found["cpu_rounds"]]
            best.append(min(parts[left_out:], key=lambda part: sum(part.values())))
        least = {who: 1000 * s / agents for who, s in min(best, key=lambda p: sum(p.values())).items()}
        shares = [f"{least[who]:.2f}" if who in least else "-" for who in ("grid", "workers", "ray")]
        say(name, agents, f"{sum(least.values()):.2f}", f"{found['memory'] / 1e9:.2f}", *shares)


# -- other libraries -------------------------------------------------------------------------------


@app.command()
def libraries(quick: bool = False, out: Path | None = None) -> None:
    """Measure parts that other libraries have too; with `--out`, also write them as JSON."""
    from studies.benchmarks.libraries import measure

    rows = measure(quick)
    print(head(["work", "library", "CPU ms"]))
    for each in rows:
        say(each["group"], each["who"], f"{each['ms']:.3g}")
    if out is not None:
        out.write_text(json.dumps(rows), encoding="utf-8")


# -- the path of a trial ---------------------------------------------------------------------------


@app.command()
def trial_path(only: list[str] = [*ALGORITHMS], every: bool = False) -> None:  # noqa: B006  # read only
    """Count what a trial runs in steady rounds: files, functions, calls and types, and their depth.

    With `--every`, also list every function with its calls per trial.
    """
    from studies.benchmarks.trial_path import per_trial, trace

    print(head(["algorithm", "files", "functions", "calls", "depth", "types"]))
    for name in only:
        path = trace(name)
        say(name, *(f"{number:.0f}" for number in path.per_trial()))
        for (file, function, _), calls in path.calls.most_common() if every else ():
            print(f"{per_trial(calls):8.2f} {file.split('/fbo_flower/')[1]} {function}")


# -- secure sums -----------------------------------------------------------------------------------

LEAST = 3
GROUPS = ((4, 100), (6, 100), (10, 100), (12, 100), (12, 10_000))  # agents, numbers of each


@app.command()
def secure_sums(quick: bool = False) -> None:
    """Measure what secure sums cost an agent and the server."""
    from fbo_flower.secure import keys

    print(f"One group, sums of at least {LEAST}; a group has at most {keys.largest_group(LEAST)}.\n")
    print(head(["group", "numbers", "agent, ms", "server per agent, ms", "bytes up", "bytes down"]))
    for num_agents, size in GROUPS[: 2 if quick else None]:
        agent, server, up, down = one_sum(num_agents, size)
        say(num_agents, size, f"{agent:.1f}", f"{server:.1f}", up, down)


def one_sum(num_agents: int, size: int) -> tuple[float, float, int, int]:
    """Return CPU ms of an agent, CPU ms of the server per agent, and an agent's bytes up and down."""
    from fbo_flower.secure import keys, rounds
    from studies.attacks.equivocation import Group, exchanged, total

    names = [str(i) for i in range(num_agents)]
    group = Group.draw(names, np.random.default_rng(0), size, LEAST)
    begin = time.process_time()
    done = exchanged(group, 1, "work")
    agent = 1e3 * (time.process_time() - begin) / num_agents
    assert done is not None
    begin = time.process_time()
    statement = done.after[names[0]].statement()
    identities = {name: keys.identity_of(member.card()) for name, member in group.agents.items()}
    assert all(keys.is_signed(identities[n], statement, done.signatures[n]) for n in names)
    total(group, done)
    server = 1e3 * (time.process_time() - begin) / num_agents
    up = done.sent["0"].words.nbytes + done.sent["0"].boxes.nbytes + keys.SEED_BYTES
    up += 2 * keys.SIGNATURE_BYTES + len(done.revealed["0"])
    down = (num_agents - 1) * (keys.CARD_BYTES + 1 + rounds.BOX_BYTES + keys.SIGNATURE_BYTES)
    return agent, server, up, down


if __name__ == "__main__":
    logging.getLogger("flwr").setLevel(logging.ERROR)
    app()
