"""Measure whole rounds once and print the result as JSON; `whole_runs.py` runs this in a new process.

    python -m studies.benchmarks.round_cell '{"what": "idle", "engine": "ray", "agents": 1000, "rounds": 3}'

`what` is "idle" (an app that returns what it receives), or an algorithm on a free objective, whose agents
hold `prior` observations each when the study begins. With `"clock": "lognormal:1,1"` it is asynchronous, and
evaluations take simulated time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import pairwise
from typing import Any

from fbo_flower.algorithms import make_algorithm
from fbo_flower.simulation import Async, Clock, Start, Sync

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's default of 15 would let other processes go first

import logging  # noqa: E402  # Flower and NumPy read the environment when they are imported

from fbo_flower.simulation import InProcessGrid, engines, simulate  # noqa: E402
from fbo_flower.simulation.ray_grid import RayGrid  # noqa: E402
from studies.benchmarks.scenes import Hills, MemoryWatch, cpu_seconds, idle_app, idle_rounds  # noqa: E402

KEPT: list[RayGrid] = []  # grids of the engine ray


class WatchedGrid(RayGrid):
    """A grid that is kept in `KEPT` after the run."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        KEPT.append(self)


def idle(engine: str, agents: int, rounds: int) -> dict[str, Any]:
    """Measure rounds of an app that does nothing."""
    if engine == "inline":
        grid = InProcessGrid(idle_app(), agents)
        return {"seconds": idle_rounds(grid, grid.get_node_ids(), rounds)}
    if engine == "ray":
        with RayGrid(idle_app(), agents) as workers:
            return {"seconds": idle_rounds(workers, workers.get_node_ids(), rounds)}
    return {"seconds": idle_on_flower(agents, rounds)}


def idle_on_flower(agents: int, rounds: int) -> list[float]:
    """Measure the same rounds on Flower's own engine; all nodes are registered before the first."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    server, seconds = ServerApp(), []

    @server.main()
    def main(grid: Any, context: Any) -> None:
        while len(nodes := sorted(grid.get_node_ids())) < agents:
            time.sleep(0.1)
        seconds.extend(idle_rounds(grid, nodes, rounds))

    resources: Any = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"log_to_driver": False},
    }
    run_simulation(server, idle_app(), agents, backend_config=resources)
    return seconds


def study(
    what: str,
    engine: str,
    agents: int,
    rounds: int,
    prior: int,
    options: dict[str, Any],
    sleep: float,
    clock: str | None,
) -> dict[str, Any]:
    """Measure the rounds of a study."""
    problem = Hills(agents, 0, seconds=sleep)
    engines.RayGrid = WatchedGrid  # type: ignore[misc]
    busy: list[float] = []
    used = [cpu_seconds()]

    def note(progress: Any) -> None:
        print(f"round {progress.server_round}: {progress.seconds:.2f} s", file=sys.stderr, flush=True)
        busy.append(KEPT[-1].busy_seconds if KEPT else 0.0)
        used.append(cpu_seconds())

    known = Start(observations=problem.prior(prior))
    found = simulate(
        problem,
        algorithm=make_algorithm(what, options),
        num_rounds=rounds,
        engine=engine,
        rounds=Sync() if clock is None else Async(clock=Clock(clock)),
        start=known,
        callbacks=[note],
    )
    row = {name: found.rounds[name].tolist() for name in ("seconds", "bytes_down", "bytes_up", "replies")}
    begun = [0.0, *busy[:-1]]
    row["busy"] = [b - a for a, b in zip(begun, busy, strict=True)]  # the first includes the registration
    row["workers"] = KEPT[-1].num_workers if KEPT else 1
    row["trials"], row["cpu"] = len(found.trials), time.process_time() - used[0]["grid"]
    parts = [{name: b[name] - a[name] for name in a} for a, b in pairwise(used)]
    row["cpu_parts"] = parts  # the first with registration
    row["cpu_rounds"] = [sum(part.values()) for part in parts]
    return row


def main() -> None:
    """Run the measurement that the first argument describes."""
    asked = json.loads(sys.argv[1])
    logging.getLogger("flwr").setLevel(logging.ERROR)
    what, common = asked["what"], [asked[name] for name in ("engine", "agents", "rounds")]
    begin = time.perf_counter()
    with MemoryWatch() as memory:
        if what == "idle":
            before = time.process_time()
            row = idle(*common)
            row["cpu_rounds"] = [(time.process_time() - before) / common[2]] * common[2]
        else:
            own = asked.get("prior", 0), asked.get("options", {}), asked.get("sleep", 0.0), asked.get("clock")
            row = study(what, *common, *own)
    row |= {"memory": memory.largest, "memory_own": memory.own, "total": time.perf_counter() - begin}
    print(json.dumps({**asked, **row}))


if __name__ == "__main__":
    main()
