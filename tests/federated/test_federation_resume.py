"""A server that dies at a write goes on with the round in which it was, to the same result.

In this process the death is an exception. A SIGKILL needs a fork of it, so that nothing but files is left:
`make kill` kills at every write of the journal and of the checkpoints, and at every message; the ordinary
test does so again and again.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forks import import_noted, note_modules
from toy_federation import SPACE, fedadam, fedavg, toy_app, toy_model, tune_flat, watched_writes

from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.federated import Population, TunedFederation
from fbo_flower.simulation.grids import Fault, InProcessGrid

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


def tune(directory: Path, case: str = "asha", seen: Any = None, **changes: Any) -> TunedFederation:
    arguments: dict[str, Any] = {
        "rounds": 4, "initial_arrays": toy_model(), "number": NUM_CLIENTS, "journals": directory,
        "resume": True, **CASES[case], **changes,
    }  # fmt: skip
    return tune_flat(InProcessGrid(toy_app(seen), NUM_CLIENTS), arguments.pop("build"), SPACE, **arguments)


def outcome(result: TunedFederation) -> Any:
    model = result.best_arrays["w"].numpy().tolist()
    return list(map(repr, result.trials)), list(map(repr, result.curves)), result.best_trial, model


class Killed(BaseException):
    """Stands for the death of the process: nothing catches it."""


def test_killed_at_a_write_a_run_comes_to_the_same_result(tmp_path: Path) -> None:
    writes: list[str] = []

    def note(what: str, done: bool) -> None:
        if not done:
            writes.append(what)

    with watched_writes(note):
        whole = outcome(tune(tmp_path / "whole"))
    assert {"journal", "checkpoint"} == set(writes)
    for number in range(1, len(writes) + 1, 3):
        committed, seen = bool(number % 2), 0  # `make kill` does both at each write

        def die(what: str, done: bool, number: int = number, committed: bool = committed) -> None:
            nonlocal seen
            seen += not done
            if (seen, done) == (number, committed):
                raise Killed

        with pytest.raises(Killed), watched_writes(die):
            tune(tmp_path / str(number))
        assert outcome(tune(tmp_path / str(number))) == whole, (number, writes[number - 1], committed)


def test_a_finished_run_goes_on_with_a_larger_budget(tmp_path: Path) -> None:
    first = tune(tmp_path, num_trials=3, finalists=0)
    more = tune(tmp_path, num_trials=6, finalists=0)
    assert len(more.trials) == 6
    for trial in first.trials:
        curve = first.curve(trial["trial"])
        assert more.curve(trial["trial"])[: len(curve)] == curve


@pytest.mark.parametrize("lowered", [{"num_trials": 2}, {"budget": 10}])
def test_a_resumed_run_has_no_smaller_limits(lowered: dict[str, Any], tmp_path: Path) -> None:
    tune(tmp_path, num_trials=3, budget=1000)
    (name,) = lowered
    with pytest.raises(JournalError, match=rf"{name} was \d+ and is {lowered[name]}; to end"):
        tune(tmp_path, **{"num_trials": 3, "budget": 1000, **lowered})
    assert len(tune(tmp_path, num_trials=4, budget=None).trials) == 4
    with pytest.raises(JournalError, match="budget was without end and is 5000"):
        tune(tmp_path, num_trials=4, budget=5000)


def test_only_the_checkpoints_that_may_be_needed_are_kept(tmp_path: Path) -> None:
    result = tune(tmp_path)
    assert len(list((tmp_path / "federation.db.checkpoints").iterdir())) == len(result.trials)


@pytest.mark.parametrize("changes", [{"rounds": 8}, {"seed": 1}, {"metric": "loss"}, {"num_parallel": 1}])
def test_a_run_is_not_resumed_with_other_settings(changes: dict[str, Any], tmp_path: Path) -> None:
    tune(tmp_path, num_trials=2)
    (name,) = changes
    with pytest.raises(JournalError, match=name):
        tune(tmp_path, **changes)


def test_a_journal_is_not_overwritten(tmp_path: Path) -> None:
    tune(tmp_path, num_trials=2)
    with pytest.raises(ConfigError, match="resume=True"):
        tune(tmp_path, resume=False)


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    tune(tmp_path, num_trials=2)
    for path in (tmp_path / "federation.db.checkpoints").iterdir():
        path.unlink()
    with pytest.raises(JournalError, match="checkpoint"):
        tune(tmp_path, num_trials=6)


def test_a_round_without_any_client_is_repeated_and_its_trial_goes_on(tmp_path: Path) -> None:
    # every half-round of this grid is a "round": the first one is lost for all clients
    grid = InProcessGrid(toy_app(), 3, faults={i: Fault("silent", rounds=[0]) for i in range(3)})
    arguments: dict[str, Any] = {"initial_arrays": toy_model(), "number": 3, "rounds": 2}
    answered = 0

    class Once(InProcessGrid):
        def push_messages(self, messages: Any) -> list[str]:
            nonlocal answered
            answered += 1
            return grid.push_messages(messages) if answered == 1 else super().push_messages(messages)

    result = tune_flat(
        Once(toy_app(), 3), fedavg, SPACE, num_trials=1, schedule="none", timeout=0.05, **arguments
    )
    assert result.trials["state"].tolist() == ["finished"]
    assert result.client_rounds == 3 + 2 * 3  # the lost round has cost its messages
    assert np.isfinite(result.best_value)


# SIGKILL


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

    writes = directory / "writes"

    def at(what: str, done: bool) -> None:
        if not done:
            append_line(writes, what)
        if kill == ("committed" if done else "write", len(lines(writes))):
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        writes.unlink(missing_ok=True)
        seen = Lines(directory / f"seen-{len(list(directory.glob('seen-*')))}", kill)
        with watched_writes(at):
            tune(directory, case, seen).save(directory / "result")

    return forked(work, directory)


def saved(directory: Path) -> Any:
    return outcome(TunedFederation.load(directory / "result"))


def said(directory: Path) -> list[str]:
    """Return the kinds of the messages that the clients have had, over all processes."""
    return [kind for path in directory.glob("seen-*") for kind in lines(path)]


def trained(directory: Path) -> int:
    return said(directory).count("train")


@pytest.mark.kill
@pytest.mark.parametrize("case", CASES)
def test_killed_at_every_write_and_message_a_run_comes_to_the_same_result(case: str, tmp_path: Path) -> None:
    assert run(case, tmp_path / "whole")
    whole, once = saved(tmp_path / "whole"), trained(tmp_path / "whole")
    messages = len(said(tmp_path / "whole"))
    writes = range(1, len(lines(tmp_path / "whole" / "writes")) + 1)
    places: list[Kill] = [(k, n) for n in writes for k in ("write", "committed")]
    places += [("message", n) for n in range(1, messages + 1)]
    for number, kill in enumerate(places):
        directory = tmp_path / f"killed-{number}"
        assert not run(case, directory, kill), f"{kill}: expected a killed process"
        assert run(case, directory)
        assert saved(directory) == whole, kill
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
    assert saved(tmp_path / "killed") == saved(tmp_path / "whole")
    assert trained(tmp_path / "killed") <= trained(tmp_path / "whole") + times * NUM_CLIENTS
