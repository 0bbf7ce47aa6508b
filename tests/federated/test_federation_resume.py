"""A server that dies at a write goes on with the round in which it was, to the same result.

In this process the death is an exception. A SIGKILL needs a fork of it, so that nothing but files is left:
`make kill` kills at every write of the journal and of the checkpoints, and at every message.
"""

import os
import random
import signal
from collections import Counter, OrderedDict, defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedAvgM
from forks import forked
from toy_federation import SPACE, fedadam, fedavg, toy_app, toy_grid, toy_model, tune_flat, watched_writes

from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.federated import Population, TunedFederation
from fbo_flower.federated.state import Checkpoints, restore, state_of
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
        ({"seed": 1}, "seed"),
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


ONE = {"min_available_nodes": 1, "min_train_nodes": 1, "min_evaluate_nodes": 1}
ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False])}


class Counting(FedAvg):
    """A strategy whose state is an object that cannot be read from outside."""

    def __init__(self, explicit):
        super().__init__()
        self.secret = object()
        self.inner = fedavg({})
        self.total = np.zeros(2)
        if explicit:
            self.state_dict = lambda: {"total": self.total, "names": ["x", 1, None]}
            self.load_state_dict = self._load

    def _load(self, state):
        self.total = state["total"]


@pytest.mark.parametrize("explicit", [False, True])
def test_own_strategies_are_saved_by_their_attributes_or_by_their_own_methods(explicit):
    strategy = Counting(explicit)
    strategy.total = np.array([3.0, 4.0])
    strategy.inner.fraction_train = 0.25
    arrays, form = state_of(strategy)
    other = Counting(explicit)
    kept = other.secret
    restore(other, arrays, form)
    assert other.total.tolist() == [3.0, 4.0]
    assert other.secret is kept
    if not explicit:
        assert other.inner.fraction_train == 0.25


@dataclass(frozen=True)
class Point:
    x: float
    seen: list


STATES = [
    {1: {"a": 2}, (1, "b"): 3.0, None: 4, 2.5: 5}, {3, "x", (1, 2)}, frozenset({1}),
    (1, [2, {"x": (3,)}], True), deque([1, 2, 3], maxlen=5), defaultdict(list, {1: [2]}),
    OrderedDict(b=1, a=2), Counter("hello"), MetricRecord({"loss": [1.0, 2.0], "n": 3}),
    ConfigRecord({"b": b"\x00\x01", "flag": True, "texts": ["x", "y"]}),
    RecordDict({"m": MetricRecord({"loss": 1.0}), "c": ConfigRecord({"x": 1})}),
    Point(1.5, [Point(2.5, [])]), b"bytes", 1 + 2j, np.float32(1.5), np.int64(7),
    [float("inf"), -0.0, 10**30], {"empty": {}, "none": None, "list": [], "set": set()},
]  # fmt: skip
GENERATORS = [np.random.default_rng(1), np.random.RandomState(1), random.Random(1)]
GENERATORS.append(np.random.Generator(np.random.MT19937(1)))


def test_attributes_of_every_kind_are_restored_equal_and_of_the_same_type(tmp_path):
    for value in [*STATES, *GENERATORS]:
        store, strategy, other = Checkpoints(tmp_path), Counting(False), Counting(False)
        strategy.own = value
        restore(other, *store.get(store.put(*state_of(strategy))))
        assert type(other.own) is type(value)
        assert getattr(other.own, "maxlen", None) == getattr(value, "maxlen", None)
        assert value in GENERATORS or other.own == value
        assert state_of(other)[1] == state_of(strategy)[1], "the same digest again"


def test_what_cannot_be_saved_is_named_once_for_each_class(caplog):
    class Own(FedAvgM):
        def __init__(self):
            super().__init__(**ONE)
            self.hook, self.by_round, self.lookup = print, {}, object()

        def aggregate_train(self, server_round, replies):
            assert len(self.by_round) == server_round - 1, "of earlier rounds"
            self.by_round[server_round] = len(replies)
            return super().aggregate_train(server_round, replies)

    given = {"initial_arrays": toy_model(), "rounds": 4, "num_trials": 6, "eta": 2, "number": 3}
    run = tune_flat(toy_grid(3), lambda config: Own(), SPACE, **given)
    assert "finished" in run.trials["state"].tolist(), "one was promoted"
    (named,) = [line for line in caplog.messages if "cannot be saved" in line]
    assert "Own.lookup" in named
    assert "state_dict()" in named


def test_a_damaged_or_exchanged_checkpoint_is_refused(tmp_path):
    store = Checkpoints(tmp_path)
    digest, other = store.put(ARRAYS, {}), store.put({"a": np.ones(3)}, {})
    (tmp_path / f"{digest}.npz").write_bytes((tmp_path / f"{other}.npz").read_bytes())
    with pytest.raises(JournalError, match="expected the content"):
        store.get(digest)
    (tmp_path / f"{other}.npz").write_bytes(b"nothing")
    np.savez(tmp_path / f"{digest}.npz", form=np.array([{"a": 1}], dtype=object))  # pickled
    for wrong in (other, digest, "0" * 64):
        with pytest.raises(JournalError, match="undamaged"):
            store.get(wrong)


# SIGKILL


class Lines:
    """A list of what clients have done, in a file, which outlives its process."""

    def __init__(self, path, kill):
        self.path, self.kill = path, kill

    def append(self, entry):
        append_line(self.path, entry[1])
        if self.kill == ("message", len(lines(self.path))):
            os.kill(os.getpid(), signal.SIGKILL)


def append_line(path, text):
    with open(path, "a") as file:
        file.write(f"{text}\n")


def lines(path):
    return path.read_text().split() if path.exists() else []


def run(case, directory, kill=None):
    """Do what is left of a run, until its end or until it is killed."""
    directory.mkdir(exist_ok=True)
    writes = directory / "writes"

    def at(what, done):
        if not done:
            append_line(writes, what)
        if kill == ("committed" if done else "write", len(lines(writes))):
            os.kill(os.getpid(), signal.SIGKILL)

    def work():
        writes.unlink(missing_ok=True)
        seen = Lines(directory / f"seen-{len(list(directory.glob('seen-*')))}", kill)
        with watched_writes(at):
            tune(directory, case, seen).save(directory / "result")

    return forked(work, directory)


def saved(directory):
    return outcome(TunedFederation.load(directory / "result"))


def said(directory):
    """Return the kinds of the messages that the clients have had, over all processes."""
    return [kind for path in directory.glob("seen-*") for kind in lines(path)]


@pytest.mark.kill
@pytest.mark.parametrize("case", CASES)
def test_killed_at_every_write_and_message_a_run_comes_to_the_same_result(case, tmp_path):
    assert run(case, tmp_path / "whole")
    whole, messages = saved(tmp_path / "whole"), said(tmp_path / "whole")
    writes = range(1, len(lines(tmp_path / "whole" / "writes")) + 1)
    places = [(k, n) for n in writes for k in ("write", "committed")]
    places += [("message", n) for n in range(1, len(messages) + 1)]
    for number, kill in enumerate(places):
        directory = tmp_path / f"killed-{number}"
        assert not run(case, directory, kill), f"{kill}: expected a killed process"
        assert run(case, directory)
        assert saved(directory) == whole, kill
        # only the round that was under way is done again: every client once, at most
        again = said(directory)
        assert 0 <= again.count("train") - messages.count("train") <= NUM_CLIENTS, kill
        assert 0 <= len(again) - len(messages) <= 2 * NUM_CLIENTS, kill
    print(f"\n{case}: {len(places)} kills, all equal")
