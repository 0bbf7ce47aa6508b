"""A server that is killed at any write goes on with the round in which it was, to the same result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_federation import SPACE, fedadam, fedavg, toy_app, toy_model, tune_flat

from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.federated import TunedFederation
from fbo_flower.federated import checkpoints as checkpoints_module
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.storage.store import Store


class Killed(BaseException):
    """Stands for the death of the process: nothing catches it."""


@contextmanager
def dying(number: int, committed: bool) -> Iterator[list[str]]:
    """Die at the `number`-th write of journal or checkpoint, before or after it; 0: never."""
    writes: list[str] = []
    transaction, write = Store.transaction, checkpoints_module.Checkpoints._write

    def at(what: str, late: bool) -> None:
        if not late:
            writes.append(what)
        if len(writes) == number and late == committed:
            raise Killed

    @contextmanager
    def dying_transaction(self: Store) -> Iterator[None]:
        with transaction(self):
            yield
            at("journal", False)
        at("journal", True)

    def dying_write(self: Any, path: Path, *content: Any) -> None:
        at("checkpoint", False)
        write(self, path, *content)
        at("checkpoint", True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "transaction", dying_transaction)
        patch.setattr(checkpoints_module.Checkpoints, "_write", dying_write)
        yield writes


def tune(directory: Path, seen: list[Any] | None = None, **changes: Any) -> TunedFederation:
    arguments: dict[str, Any] = {
        "rounds": 4, "eta": 2, "num_trials": 4, "num_initial": 2, "num_parallel": 2, "finalists": 2,
        "initial_arrays": toy_model(), "number": 4, "journals": directory, "resume": True,
    }  # fmt: skip
    grid = InProcessGrid(toy_app(seen), 4)
    return tune_flat(grid, changes.pop("build", fedadam), SPACE, **{**arguments, **changes})


def tables(result: TunedFederation) -> Any:
    model = result.best_arrays["w"].numpy().tolist()
    return list(map(repr, result.trials)), list(map(repr, result.curves)), result.best_trial, model


def test_killed_at_every_write_a_run_comes_to_the_same_result(tmp_path: Path) -> None:
    with dying(0, False) as writes:
        whole = tune(tmp_path / "whole")
    assert {"journal", "checkpoint"} == set(writes)
    for number in range(1, len(writes) + 1):
        for committed in (False, True):
            directory = tmp_path / f"{number}-{committed}"
            with pytest.raises(Killed), dying(number, committed):
                tune(directory)
            assert tables(tune(directory)) == tables(whole), (number, writes[number - 1], committed)


def test_killed_again_and_again_a_run_comes_to_its_end(tmp_path: Path) -> None:
    whole, times = tune(tmp_path / "whole"), 0
    while True:
        try:
            with dying(6, times % 2 == 0):
                result = tune(tmp_path / "killed")
            break
        except Killed:
            times += 1
            assert times < 100
    assert times > 3
    assert tables(result) == tables(whole)


def test_only_the_round_that_was_under_way_is_done_again(tmp_path: Path) -> None:
    seen: list[Any] = []
    tune(tmp_path / "whole", seen)
    messages, once = len(seen), len([1 for _, kind, _ in seen if kind == "train"])
    seen.clear()
    with dying(0, False) as writes:
        tune(tmp_path / "count")
    with pytest.raises(Killed), dying(len(writes) // 2, False):
        tune(tmp_path / "killed", seen)
    tune(tmp_path / "killed", seen)
    trained = len([1 for _, kind, _ in seen if kind == "train"])
    assert once <= trained <= once + 4
    assert messages <= len(seen) <= messages + 8


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
