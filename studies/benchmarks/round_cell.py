"""Measure whole rounds once and print the result as JSON; `speed.py` runs this in a new process.

    python -m studies.benchmarks.round_cell '{"what": "idle", "engine": "ray", "agents": 1000, "rounds": 3}'

`what` is "idle" (an app that returns what it receives), or an algorithm on a free objective, whose agents
hold `prior` observations each when the study begins.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's default of 15 would let other processes go first

# ruff: noqa: E402  # Flower and NumPy read the environment when they are imported
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import make_algorithm
from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import InProcessGrid, Start, simulate
from fbo_flower.simulation.problems import Config, Problem, number
from fbo_flower.simulation.ray_grid import RayGrid
from fbo_flower.strategies.exchange import send_and_receive

NUM_FLOATS = 100  # floats that the idle app gets and returns


@dataclass(frozen=True)
class Hills(Problem):
    """A smooth function with two hills, shifted a little for every agent; it takes some microseconds.

    Attributes
    ----------
    dimension : `D`; beyond two axes the hills are flat
    """

    dimension: int = 2

    name: ClassVar[str] = "hills"
    metric: ClassVar[str] = "value"
    default_agents: ClassVar[int] = 10

    @property
    def space(self) -> SearchSpace:
        return _space(self.dimension)

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        return self.true_value(config, context.partition)

    def repeated(self, config: Config, context: ObjectiveContext, repeats: int) -> np.ndarray:
        """Return several evaluations at once, which bandits ask for."""
        noise = context.rng.uniform(-0.05, 0.05, repeats)
        return np.asarray(self.true_value(config, context.partition) + noise)

    def true_value(self, config: Config, partition: int) -> float:
        shift = 0.05 * np.sin(partition)
        x, y = (number(config, f"x{min(i, self.dimension - 1)}") for i in range(2))
        hills = [(1.0, 8, 0.3, 0.6), (0.7, 20, 0.8, 0.2)]
        return float(sum(h * np.exp(-w * ((x - a - shift) ** 2 + (y - b) ** 2)) for h, w, a, b in hills))

    def prior(self, num_observations: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the agents' earlier observations: agent -> points `(n, D)` and values `(n,)`."""
        held = {}
        for agent in range(self.num_agents if num_observations else 0):
            rng = generator(self.seed, "hills", agent)
            points = rng.random((num_observations, self.dimension))
            values = [self.true_value(self.space.decode(point), agent) for point in points]
            held[str(agent)] = points, np.array(values) + 0.05 * rng.standard_normal(num_observations)
        return held


@cache
def _space(dimension: int) -> SearchSpace:
    return SearchSpace({f"x{i}": Float(0.0, 1.0) for i in range(dimension)})


def idle_app() -> ClientApp:
    """Return an app that returns what it receives."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(message.content, reply_to=message)

    return app


def idle_rounds(grid: Grid, nodes: Sequence[int], num_rounds: int) -> list[float]:
    """Send every node an array and wait for all the answers; return the seconds of each round."""
    seconds = []
    for server_round in range(1, num_rounds + 1):
        begin = time.perf_counter()
        messages = (  # made while the first are answered, as a strategy's are
            Message(
                RecordDict(
                    {
                        "arrays": ArrayRecord([np.full(NUM_FLOATS, float(node % 1000))]),
                        "config": ConfigRecord({"round": server_round}),
                    }
                ),
                node,
                MessageType.TRAIN,
                group_id=str(server_round),
            )
            for node in nodes
        )
        replies = send_and_receive(grid, messages, 3600.0, threading.Event())
        if len(replies) < len(nodes) or any(reply.has_error() for reply in replies.values()):
            raise SystemExit(f"{len(replies)} of {len(nodes)} nodes answered, or some with an error")
        seconds.append(time.perf_counter() - begin)
    return seconds


class MemoryWatch:
    """Record the largest memory of this process and its descendants, in bytes; a shared page counts once.

    It reads `/proc` every half second, and less often where that takes more than a fiftieth of a core's time.
    Without `/proc` (not on Linux) it stays 0.
    """

    def __init__(self, interval: float = 0.5, share: float = 0.02) -> None:
        self.largest = 0
        self._interval, self._share = interval, share
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        pause = self._interval
        while not self._stop.wait(pause):
            start = time.thread_time()
            self._look()
            pause = max(self._interval, (time.thread_time() - start) / self._share)

    def _look(self) -> None:
        sizes = {process: _proportional_size(process) for process in (os.getpid(), *family_of(_processes()))}
        self.largest = max(self.largest, sum(sizes.values()))


def _processes() -> dict[int, list[str]]:
    """Return the state of every process in `/proc` by its number: parent, and CPU ticks, among others."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            found[int(entry.parent.name)] = entry.read_text(encoding="utf-8").rpartition(")")[2].split()
    return found


def family_of(processes: dict[int, list[str]]) -> list[int]:
    """Return the descendants of this process."""
    family, new = [], [os.getpid()]
    while new:
        new = [process for process, fields in processes.items() if int(fields[1]) in new]
        family += new
    return family


def _proportional_size(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def cpu_seconds() -> dict[str, float]:
    """Return the CPU time so far of this process ("grid"), of its Ray workers, and of Ray itself.

    It reads `/proc`; without `/proc` (not on Linux) only "grid" is known.
    """
    found = {"grid": time.process_time(), "workers": 0.0, "ray": 0.0}
    processes = _processes()
    for process in family_of(processes):
        with suppress(OSError):  # it has ended
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            ticks = sum(map(int, processes[process][11:13]))
            found["workers" if b"ray::_Worker" in command else "ray"] += ticks / os.sysconf("SC_CLK_TCK")
    return found


# -- the measurement -------------------------------------------------------------------------------


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
    what: str, engine: str, agents: int, rounds: int, prior: int, options: dict[str, Any]
) -> dict[str, Any]:
    """Measure the rounds of a study."""
    problem = Hills(agents, 0)
    used = [cpu_seconds()]

    def note(progress: Any) -> None:
        print(f"round {progress.server_round}: {progress.seconds:.2f} s", file=sys.stderr, flush=True)
        used.append(cpu_seconds())

    known = Start(observations=problem.prior(prior))
    found = simulate(
        problem,
        algorithm=make_algorithm(what, options),
        num_rounds=rounds,
        engine=engine,
        start=known,
        callbacks=[note],
    )
    row: dict[str, Any] = {"seconds": found.rounds["seconds"].tolist()}
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
            row = study(what, *common, asked.get("prior", 0), asked.get("options", {}))
    row |= {"memory": memory.largest, "total": time.perf_counter() - begin}
    print(json.dumps({**asked, **row}))


if __name__ == "__main__":
    from studies.benchmarks.round_cell import main as of_module  # Ray's workers find its classes there

    of_module()
