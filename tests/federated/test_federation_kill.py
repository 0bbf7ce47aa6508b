"""A process that tunes a federation is SIGKILLed, at writes and in the middle of rounds, and resumed.

Each run is a fork of this process, so that nothing but files is left of it. `make kill` kills at every write
of the journal and of the checkpoints, and at every message; the ordinary test does so again and again.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from forks import import_noted, note_modules
from toy_federation import SPACE, fedadam, fedavg, toy_app, toy_model, tune_flat, watched_writes

from fbo_flower.federated import Population, TunedFederation
from fbo_flower.simulation.grids import InProcessGrid

NUM_CLIENTS = 4
Kill = tuple[str, int]  # "write", "committed" or "message", and the number of the one that is the last

CASES: dict[str, dict[str, Any]] = {
    "asha": {
        "build": fedadam, "eta": 2, "num_trials": 4, "num_initial": 2, "num_parallel": 2, "finalists": 2,
    },
    "population": {
        "build": fedavg,
        "schedule": Population(size=3, every=2),
    },
}  # fmt: skip


class Lines:
    """A list of what clients have done, in a file, which outlives its process."""

    def __init__(self, path: Path, kill: Kill | None) -> None:
        self._path, self._kill = path, kill

    def append(self, entry: tuple[int, str, dict[str, Any]]) -> None:
        append_line(self._path, entry[1])
        if self._kill is not None and self._kill[0] == "message" and len(lines(self._path)) == self._kill[1]:
            os.kill(os.getpid(), signal.SIGKILL)


def append_line(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(f"{text}\n")


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def tune(case: str, directory: Path, seen: Any) -> TunedFederation:
    arguments: dict[str, Any] = {
        "rounds": 4, "initial_arrays": toy_model(), "number": NUM_CLIENTS, "journals": directory,
        "resume": True, **CASES[case],
    }  # fmt: skip
    grid = InProcessGrid(toy_app(seen), NUM_CLIENTS)
    return tune_flat(grid, arguments.pop("build"), arguments.pop("space", SPACE), **arguments)


def dying(kill: Kill | None, writes: Path) -> AbstractContextManager[None]:
    """Note every write of journal and checkpoints, and end the process before or after one of them."""

    def at(what: str, done: bool) -> None:
        if not done:
            append_line(writes, what)
        if kill == ("committed" if done else "write", len(lines(writes))):
            os.kill(os.getpid(), signal.SIGKILL)

    return watched_writes(at)


def forked(work: Callable[[], None], directory: Path) -> bool:
    """Do work in a process of its own; return whether it came to its end, False: it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            work()
            note_modules(directory / "modules")
        except BaseException:
            (directory / "error").write_text(traceback.format_exc())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError("the run failed: " + (directory / "error").read_text())
    import_noted(directory / "modules")
    return True


def run(case: str, directory: Path, kill: Kill | None = None) -> bool:
    """Do what is left of a run, until its end or until it is killed."""
    directory.mkdir(exist_ok=True)

    def work() -> None:
        (directory / "writes").unlink(missing_ok=True)
        seen = Lines(directory / f"seen-{len(list(directory.glob('seen-*')))}", kill)
        with dying(kill, directory / "writes"):
            tune(case, directory, seen).save(directory / "result")

    return forked(work, directory)


def outcome(directory: Path) -> Any:
    result = TunedFederation.load(directory / "result")
    rows = [*map(repr, result.trials), *map(repr, result.curves)]
    return rows, result.best_trial, result.best_arrays["w"].numpy().tolist()


def said(directory: Path) -> list[str]:
    """Return the kinds of the messages that the clients have had, over all processes."""
    return [kind for path in directory.glob("seen-*") for kind in lines(path)]


def trained(directory: Path) -> int:
    return said(directory).count("train")


@pytest.mark.kill
@pytest.mark.parametrize("case", CASES)
def test_killed_at_every_write_and_message_a_run_comes_to_the_same_result(case: str, tmp_path: Path) -> None:
    assert run(case, tmp_path / "whole")
    whole, once = outcome(tmp_path / "whole"), trained(tmp_path / "whole")
    messages = len(said(tmp_path / "whole"))
    writes = range(1, len(lines(tmp_path / "whole" / "writes")) + 1)
    places: list[Kill] = [(k, n) for n in writes for k in ("write", "committed")]
    places += [("message", n) for n in range(1, messages + 1)]
    for number, kill in enumerate(places):
        directory = tmp_path / f"killed-{number}"
        assert not run(case, directory, kill), f"{kill}: expected a killed process"
        assert run(case, directory)
        assert outcome(directory) == whole, kill
        # only the round that was under way is done again: every client once, at most
        assert once <= trained(directory) <= once + NUM_CLIENTS, kill
        assert messages <= len(said(directory)) <= messages + 2 * NUM_CLIENTS, kill
    print(f"\n{case}: {len(places)} kills, all equal")


def test_killed_again_and_again_a_run_comes_to_its_end(tmp_path: Path) -> None:
    assert run("asha", tmp_path / "whole")
    times = 0
    while not run("asha", tmp_path / "killed", ("write" if times % 2 else "message", 7 + 2 * (times % 2))):
        times += 1
        assert times < 100
    assert times > 3
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")
    assert trained(tmp_path / "killed") <= trained(tmp_path / "whole") + times * NUM_CLIENTS
