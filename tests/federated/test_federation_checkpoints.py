import random
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM
from toy_federation import SPACE, fedavg, toy_grid, toy_model, tune_flat

from fbo_flower.errors import JournalError
from fbo_flower.federated import Run
from fbo_flower.federated.state import Checkpoints, decode, digest_of, encode, restore, state_of
from fbo_flower.federated.step import TrialRun

ONE = {"min_available_nodes": 1, "min_train_nodes": 1, "min_evaluate_nodes": 1}
ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False])}


def run_of(build, content=None):
    return TrialRun(lambda config: Run(build(config), toy_model()), 0, 0, {"learning-rate": 0.3}, content)


def advance(run, first, last):
    grid = toy_grid(3)
    for server_round in range(first, last + 1):
        messages = run.messages("train", server_round, grid, grid.get_node_ids())
        run.train(server_round, grid.send_and_receive(messages))


@pytest.mark.parametrize(
    ("build", "on_disk"),
    [
        (lambda config: FedAdam(**ONE, eta=0.3), True),
        (lambda config: FedAvgM(**ONE, server_learning_rate=0.7, server_momentum=0.8), False),
    ],
    ids=["fedadam", "fedavgm"],
)
def test_a_trial_that_goes_on_from_its_checkpoint_equals_one_that_was_never_stopped(build, on_disk, tmp_path):
    whole, first = run_of(build), run_of(build)
    advance(whole, 1, 6)
    advance(first, 1, 3)
    store = Checkpoints(tmp_path / "c" if on_disk else None)
    second = run_of(build, store.get(store.put(*first.checkpoint())))
    advance(second, 4, 6)
    assert digest_of(*second.checkpoint()) == digest_of(*whole.checkpoint())


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

    run = tune_flat(
        toy_grid(3),
        lambda config: Own(),
        SPACE,
        initial_arrays=toy_model(),
        rounds=4,
        num_trials=6,
        eta=2,
        number=3,
    )
    assert not run.trials.where(state="failed")
    assert run.trials.where(state="finished"), "one was promoted"
    named = [line for line in caplog.messages if "cannot be saved" in line]
    assert len(named) == 1
    assert "Own.lookup" in named[0]
    assert "state_dict()" in named[0]


def test_arrays_keep_their_order_and_their_names_do_not_mix(tmp_path):
    one, two = np.zeros(2), np.ones(2)
    model = ArrayRecord({"w/b": Array(one), "w": Array(two), "a": Array(np.array(["text"]))})
    given = {"model": model, "nested": {"w": {"b": two}, "w/b": one}, "no": np.array([{}], dtype=object)}
    store = Checkpoints(tmp_path)
    arrays, form = store.get(store.put(*encode(given)))
    assert list(form) == ["model", "nested"]
    found = decode(form["model"], arrays)
    assert [(name, a.numpy().tolist()) for name, a in found.items()] == [
        ("w/b", [0.0, 0.0]), ("w", [1.0, 1.0]), ("a", ["text"]),
    ]  # fmt: skip
    nested = decode(form["nested"], arrays)
    assert (nested["w"]["b"].tolist(), nested["w/b"].tolist()) == ([1.0, 1.0], [0.0, 0.0])


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


def test_collect_removes_what_nothing_names(tmp_path):
    store = Checkpoints(tmp_path)
    keep, drop = store.put(ARRAYS, {}), store.put({}, {"x": 1})
    (tmp_path / "own.txt").write_text("of the user")
    (tmp_path / "half.tmp").write_text("of a process that died")
    store.collect({keep})
    assert store.get(keep)[1] == {}
    with pytest.raises(JournalError):
        store.get(drop)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"{keep}.npz", "own.txt"])
