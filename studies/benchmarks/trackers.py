"""CPU time that each tracker takes for a round of 100 agents: `python -m studies.benchmarks.trackers`.

A round is 100 finished trials with two parameters and its numbers. Trackers whose library is not installed
are left out. For Weights & Biases the time of its service, a process of its own, is added.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fbo_flower import Float, SearchSpace
from fbo_flower.errors import ConfigError
from fbo_flower.study import Study, Table
from fbo_flower.study.schema import ROUNDS, SCHEMA, TRIALS
from fbo_flower.study.trial import Trial
from fbo_flower.trackers import (
    Callback,
    MLflowTracker,
    OptunaTracker,
    RoundInfo,
    StudyInfo,
    TensorBoardTracker,
    WandbTracker,
)

SPACE = SearchSpace({"C": Float(1e-3, 1e3, log=True), "gamma": Float(1e-4, 10, log=True)})
NUMBERS = {"seconds": 60.0, "replies": 100, "best": 0.9, "mean_incumbent": 0.8, "bytes_up": 1e5}
MAKERS: dict[str, Callable[[Path], Callback]] = {
    "OptunaTracker, SQLite": lambda d: OptunaTracker(d / "a.db", running_from=1e9),
    "OptunaTracker, SQLite, also running trials": lambda d: OptunaTracker(d / "b.db", running_from=0.0),
    "OptunaTracker, journal": lambda d: OptunaTracker(d / "c.log", running_from=1e9),
    "OptunaTracker, journal, also running trials": lambda d: OptunaTracker(d / "d.log", running_from=0.0),
    "TensorBoardTracker": lambda d: TensorBoardTracker(d / "logs"),
    "MLflowTracker, directory": lambda d: MLflowTracker(d / "mlruns"),
    "WandbTracker, offline": WandbTracker,
}


def round_of(tracker: Callback, info: StudyInfo, number: int, agents: int) -> None:
    """Tell a tracker one round: tasks are sent, trials come back, the round ends."""
    for agent in range(agents):
        tracker.on_trial(info, Trial(str(agent), number, number))
    for agent in range(agents):
        config, value = {"C": 1.0 + agent, "gamma": 0.5}, agent / agents + number
        tracker.on_trial(info, Trial(str(agent), number, number, "succeeded", config, value))
    tracker.on_round(info, RoundInfo(number, NUMBERS))


def seconds(tracker: Callback, agents: int, rounds: int) -> tuple[float, float]:
    """Return the CPU time of the first round, which creates everything, and of each later one."""
    info = StudyInfo("0123456789abcdef", "fts", "fts", {}, SPACE, False)
    times, children = [time.process_time()], resource.getrusage(resource.RUSAGE_CHILDREN)
    for number in range(1, rounds + 1):
        round_of(tracker, info, number, agents)
        times.append(time.process_time())
    run = {"algorithm": "fts", "status": "finished"}
    settings = {"schema": SCHEMA, "runs": [run]}
    tracker.on_finish(info, Study(settings, Table.from_rows([], TRIALS), Table.from_rows([], ROUNDS)))
    services = 0.0
    if isinstance(tracker, WandbTracker):
        import wandb

        wandb.teardown()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        services = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
    return times[1] - times[0], (times[-1] - times[1] + services) / (rounds - 1)


def results(agents: int, rounds: int) -> Iterator[tuple[str, float, float]]:
    """Yield each tracker with its times."""
    for name, make in MAKERS.items():
        with tempfile.TemporaryDirectory() as directory:
            try:
                yield name, *seconds(make(Path(directory)), agents, rounds)
            except ConfigError as error:
                print(error)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print("| tracker | first round, CPU s | later rounds, CPU s each |\n|---|---:|---:|")
    for name, first, later in results(given.agents, given.rounds):
        print(f"| {name} | {first:.2f} | {later:.3f} |", flush=True)
