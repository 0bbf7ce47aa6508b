"""A server that is killed at any write goes on with the round in which it was, to the same result.

That it is killed again and again, and how many messages are repeated, is in `test_federation_kill.py`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_federation import SPACE, fedadam, fedavg, toy_app, toy_model, tune_flat, watched_writes

from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.federated import TunedFederation
from fbo_flower.simulation.grids import Fault, InProcessGrid


class Killed(BaseException):
    """Stands for the death of the process: nothing catches it."""


def dying(number: int, committed: bool, writes: list[str]) -> AbstractContextManager[None]:
    """Die at the `number`-th write of journal or checkpoint, before or after it; 0: never."""

    def at(what: str, done: bool) -> None:
        if not done:
            writes.append(what)
        if len(writes) == number and done == committed:
            raise Killed

    return watched_writes(at)


def tune(directory: Path, **changes: Any) -> TunedFederation:
    arguments: dict[str, Any] = {
        "rounds": 4, "eta": 2, "num_trials": 4, "num_initial": 2, "num_parallel": 2, "finalists": 2,
        "initial_arrays": toy_model(), "number": 4, "journals": directory, "resume": True,
    }  # fmt: skip
    grid = InProcessGrid(toy_app(), 4)
    return tune_flat(grid, changes.pop("build", fedadam), SPACE, **{**arguments, **changes})


def tables(result: TunedFederation) -> Any:
    model = result.best_arrays["w"].numpy().tolist()
    return list(map(repr, result.trials)), list(map(repr, result.curves)), result.best_trial, model


def test_killed_at_every_write_a_run_comes_to_the_same_result(tmp_path: Path) -> None:
    writes: list[str] = []
    with dying(0, False, writes):
        whole = tune(tmp_path / "whole")
    assert {"journal", "checkpoint"} == set(writes)
    for number in range(1, len(writes) + 1):
        committed = bool(number % 2)  # `make kill` does both at each
        directory = tmp_path / f"{number}-{committed}"
        with pytest.raises(Killed), dying(number, committed, []):
            tune(directory)
        assert tables(tune(directory)) == tables(whole), (number, writes[number - 1], committed)


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
