"""A server that dies at a write goes on with the round in which it was, to the same result.

The death is an exception that nothing catches; `tests/kill` kills processes at writes of the same journals.
"""

from contextlib import suppress

import numpy as np
import pytest
from toy_federation import SPACE, fedadam, fedavg, toy_app, toy_model, tune_flat, watched_writes

from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.federated import Population
from fbo_flower.simulation.grids import Fault, InProcessGrid

NUM_CLIENTS = 4
CASES = {
    "asha": {
        "build": fedadam, "eta": 2, "num_trials": 4, "num_initial": 2, "num_parallel": 2, "finalists": 2,
    },
    "population": {"build": fedavg, "schedule": Population(size=3, every=2)},
}  # fmt: skip


def tune(directory, case="asha", seen=None, **changes):
    arguments = {
        "rounds": 4, "initial_arrays": toy_model(), "number": NUM_CLIENTS, "journals": directory,
        "resume": True, **CASES[case], **changes,
    }  # fmt: skip
    return tune_flat(InProcessGrid(toy_app(seen), NUM_CLIENTS), arguments.pop("build"), SPACE, **arguments)


def outcome(result):
    model = result.best_arrays["w"].numpy().tolist()
    return list(map(repr, result.trials)), list(map(repr, result.curves)), result.best_trial, model


class Killed(BaseException):
    """Stands for the death of the process: nothing catches it."""


@pytest.mark.parametrize("case", CASES)
def test_killed_at_a_write_again_and_again_a_run_comes_to_the_same_result(case, tmp_path):
    seen = []
    whole, num_trained = outcome(tune(tmp_path / "whole", case, seen)), len(seen)
    seen.clear()
    left = {}  # writes of each kind until the death

    def die(what, done):
        left[what] -= not done
        if left[what] == 0 and done == committed:
            raise Killed

    for lives in range(100):
        committed, left = bool(lives % 2), {"journal": 3 + lives % 3, "checkpoint": 4}
        with suppress(Killed), watched_writes(die):
            result = tune(tmp_path / "killed", case, seen)
            break
    assert lives > 3
    assert outcome(result) == whole
    assert len(seen) <= num_trained + 2 * lives * NUM_CLIENTS, "one round is done again"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("finished")
    tune(directory, num_trials=3, budget=1000)
    return directory


def test_a_finished_run_goes_on_with_a_larger_budget(tmp_path):
    first = tune(tmp_path, num_trials=3, finalists=0, budget=1000)
    more = tune(tmp_path, num_trials=6, finalists=0, budget=None)
    assert len(more.trials) == 6
    for trial in first.trials:
        curve = first.curve(trial["trial"])
        assert more.curve(trial["trial"])[: len(curve)] == curve


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_trials": 2}, r"num_trials was \d+ and is 2; to end"),
        ({"budget": 10}, r"budget was \d+ and is 10; to end"),
        ({"rounds": 8}, "rounds"),
        ({"seed": 1}, "seed"),
        ({"metric": "loss"}, "metric"),
        ({"num_parallel": 1}, "num_parallel"),
    ],
)
def test_a_run_is_not_resumed_with_other_settings_or_smaller_limits(changes, words, finished):
    with pytest.raises(JournalError, match=words):
        tune(finished, **{"num_trials": 3, "budget": 1000, **changes})


def test_a_run_without_end_gets_no_end_and_is_not_overwritten(tmp_path):
    result = tune(tmp_path)
    checkpoints = tmp_path / "federation.db.checkpoints"
    assert len(list(checkpoints.iterdir())) == len(result.trials), "only those that may be needed are kept"
    with pytest.raises(JournalError, match="budget was without end and is 5000"):
        tune(tmp_path, budget=5000)
    with pytest.raises(ConfigError, match="resume=True"):
        tune(tmp_path, resume=False)
    for path in checkpoints.iterdir():
        path.unlink()
    with pytest.raises(JournalError, match="checkpoint"):
        tune(tmp_path, num_trials=6)


def test_a_round_without_any_client_is_repeated_and_its_trial_goes_on(tmp_path):
    lost = InProcessGrid(toy_app(), 3, faults={i: Fault("silent") for i in range(3)})
    pushed = []

    class Once(InProcessGrid):
        def push_messages(self, messages):
            pushed.append(messages)
            return (lost if len(pushed) == 1 else super()).push_messages(messages)

    result = tune_flat(
        Once(toy_app(), 3), fedavg, SPACE, num_trials=1, schedule="none", timeout=0.05,
        initial_arrays=toy_model(), number=3, rounds=2,
    )  # fmt: skip
    assert result.trials["state"].tolist() == ["finished"]
    assert result.client_rounds == 3 + 2 * 3  # the lost round has cost its messages
    assert np.isfinite(result.best_value)
