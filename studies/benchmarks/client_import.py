"""Measure what a message costs a device before its objective runs, as Flower starts a process for each.

It measures, in new processes, the CPU time to import Flower's ClientApp, to import this package's client
side, to register, and to do an algorithm's first task with a free objective (two messages: the initial design
and the first proposal after it). Aims: 0.15 s for the import and 0.6 s for FTS's first task. The slowest
imports follow, measured by `python -X importtime`.

    python -m studies.benchmarks.client_import [--algorithm fts] [--repeats 7]
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

from studies.benchmarks.bench import ROOT, options

HEAVY = [
    "sklearn",
    "ray",
    "matplotlib",
    "pandas",
    "scipy.stats",
    "ConfigSpace",
    "skops",
    "moocore",
    "sqlite3",
]
SETTING = """
from fbo_flower import Float, SearchSpace
SPACE = SearchSpace({"C": Float(1e-3, 1e3, log=True), "gamma": Float(1e-4, 1.0, log=True)})
def objective(config, context):
    return -abs(config["gamma"] - 0.01)
"""
RECORD = """
import pickle, sys
from flwr.client import NumPyClient
from fbo_flower.clients.agent import TuningAgent
from fbo_flower.clients.app import agent_app
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import STRATEGIES
tasks = []
class Recorded(TuningAgent):
    def fit(self, parameters, config):
        if self._agent == "0":
            tasks.append((parameters, config))
        return super().fit(parameters, config)
app = agent_app(lambda context: Recorded(objective, SPACE, context, seed=5))
STRATEGIES[sys.argv[1]](num_agents=2, seed=5).start(InProcessGrid(app, 2), num_rounds=2)
pickle.dump(tasks, open(sys.argv[2], "wb"))
"""
MEASURE = """
import json, pickle, sys, time
marks = [time.process_time()]
import flwr.app, flwr.clientapp
marks.append(time.process_time())
before = set(sys.modules)
import fbo_flower.clients
marks.append(time.process_time())
imported = sorted(set(sys.modules) - before)
from flwr.app import Context, RecordDict
context = Context(1, 1, {"partition-id": 0}, RecordDict(), {})
agent = fbo_flower.clients.TuningAgent(objective, SPACE, context, seed=5)
marks.append(time.process_time())
agent.get_properties({})
marks.append(time.process_time())
tasks = pickle.load(open(sys.argv[1], "rb"))
marks.append(time.process_time())
for parameters, config in tasks:
    agent.fit(parameters, config)
    marks.append(time.process_time())
print(json.dumps({"marks": marks, "imported": imported, "in_the_end": sorted(set(sys.modules) - before)}))
"""


def run(code: str, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run code in a new process with one BLAS thread."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *options, "-c", code, *arguments],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip


def measure(algorithm: str, repeats: int) -> dict[str, object]:
    """Return the smallest CPU seconds of each step, and the heavy modules that were imported."""
    with tempfile.TemporaryDirectory() as directory:
        tasks = str(Path(directory) / "tasks")
        run(SETTING + RECORD, algorithm, tasks)
        num_tasks = len(pickle.loads(Path(tasks).read_bytes()))
        found = [json.loads(run(MEASURE.replace("context =", SETTING + "context =", 1), tasks).stdout)
                 for _ in range(repeats)]  # fmt: skip
    steps = [[b - a for a, b in zip(row["marks"], row["marks"][1:], strict=False)] for row in found]
    least = [min(column) for column in zip(*steps, strict=True)]
    imports, clients, _, registration, _, *work = least
    assert len(work) == num_tasks

    def heavy(names: list[str]) -> list[str]:
        return [name for name in HEAVY if name in names]

    return {
        "import flwr's clientapp": imports,
        "import fbo_flower.clients": clients,
        "registration": registration,
        "tasks": work,
        "heavy at import": heavy(found[0]["imported"]),
        "heavy in the end": heavy(found[0]["in_the_end"]),
    }


def slowest_imports(number: int = 12) -> list[tuple[str, float]]:
    """Return the slowest modules beyond Flower's clientapp, with their own import time in milliseconds."""
    lines = run(
        "import flwr.app, flwr.clientapp; import fbo_flower.clients", options=("-X", "importtime")
    ).stderr
    rows = [line.removeprefix("import time:").split("|") for line in lines.splitlines()[1:]]
    own = [(row[2].strip(), int(row[0]) / 1000) for row in rows if len(row) == 3 and row[0].strip().isdigit()]
    names = [name for name, _ in own]
    return sorted(own[names.index("flwr.clientapp") + 1 :], key=lambda row: -row[1])[:number]


def main() -> None:
    arguments = options(__doc__, algorithm="fts", repeats=7)
    for name, value in measure(arguments.algorithm, arguments.repeats).items():
        if isinstance(value, float):
            print(f"{name:28} {value:6.3f} s")
        elif name == "tasks" and isinstance(value, list):
            for i, seconds in enumerate(value):
                print(f"{f'{arguments.algorithm}, task {i + 1}':28} {seconds:6.3f} s")
        else:
            print(f"{name:28} {value}")
    for name, milliseconds in slowest_imports():
        print(f"  {milliseconds:7.1f} ms  {name}")


if __name__ == "__main__":
    main()
