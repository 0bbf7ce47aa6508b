"""The rows of a running study: few bytes each, and the same tables as from rows of Python objects."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.algorithms.records import Outcome
from fbo_flower.strategies.recorder import Recorder
from fbo_flower.strategies.trial_rows import TrialRows
from fbo_flower.wire.disclosure import Disclosure

SPACE = SearchSpace({"x": Float(0.0, 2.0), "k": Int(1, 4)})


def _outcome(first: int, **extra: object) -> Outcome:
    points = SPACE.snap(np.array([[0.25, 0.1], [0.5, 0.9]]))
    return Outcome(points, np.array([1.0, 2.0]), np.array([first, first + 1]), **extra)  # type: ignore[arg-type]


def test_a_disclosed_trial_takes_less_than_a_hundred_bytes() -> None:
    recorder = Recorder("random", SPACE)
    times = np.array([[1.7e9, 1.7e9 + 1], [1.7e9 + 1, 1.7e9 + 2]])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for first in range(0, 4_000, 2):
            recorder.disclose("a", 1 + first, Disclosure(trials=_outcome(first), times=times))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown / 4_000 < 100


def test_tables_hold_configurations_failures_last_steps_and_disclosed_times() -> None:
    rows = TrialRows("fts", SPACE)
    rows.append("a", 1, _outcome(0, failures={1: "no memory"}), np.array([1.0, math.nan]), None)
    rows.append("b", 2, _outcome(0, stopped={0: 7}), np.array([3.0, 4.0]), np.array([[5.0, 6.0], [6.0, 8.0]]))
    table = rows.table()
    assert table["config"].tolist() == [{"x": 0.5, "k": 1}, {"x": 1.0, "k": 4}] * 2
    assert table["failure"].tolist() == ["", "no memory", "", ""]
    assert np.array_equal(table["stopped_at"], [math.nan, math.nan, 7.0, math.nan], equal_nan=True)
    assert list(rows.times()) == [
        {"algorithm": "fts", "agent": "b", "trial": 0, "started": 5.0, "ended": 6.0},
        {"algorithm": "fts", "agent": "b", "trial": 1, "started": 6.0, "ended": 8.0},
    ]


def test_trials_since_a_row_are_those_of_the_table() -> None:
    rows = TrialRows("fts", SPACE)
    rows.append("a", 1, _outcome(0), np.array([1.0, 2.0]), None)
    rows.append("b", 2, _outcome(0, stopped={0: 7}), np.array([3.0, 4.0]), np.array([[5.0, 6.0], [6.0, 8.0]]))
    first, second = rows.since(2)
    assert (first.agent, first.state, first.intermediate, first.started) == (
        "b",
        "stopped early",
        {7: 3.0},
        5.0,
    )
    assert (second.round, second.trial, second.config, second.ended) == (2, 1, {"x": 1.0, "k": 4}, 8.0)
