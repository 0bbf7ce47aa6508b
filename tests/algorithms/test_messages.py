"""Messages, histories, states and records of the server are values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import pytest
from contract import SQUARE

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import FTS, FedPNE, records
from fbo_flower.algorithms import messages as schemas
from fbo_flower.algorithms.fts.fts import Advice, Message
from fbo_flower.algorithms.messages import ArraySpec, Content, schema_of, summable, summands_of
from fbo_flower.algorithms.protocol import Progress
from fbo_flower.algorithms.records import AnyArray, Phase, Report, Task, Trials
from fbo_flower.errors import ConfigError

SPACE = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})


def test_an_array_of_advice_has_a_row_for_each_of_several_steps():
    one, three = (schema_of(Advice, FTS(num_features=5, trials_per_round=n), SPACE).arrays for n in (1, 3))
    assert one["point"] == ArraySpec((2,), low=0.0, high=1.0)
    assert one["messages"] == ArraySpec((None, 5), max_length=32)
    assert three["point"] == ArraySpec((None, 2), low=0.0, high=1.0, max_length=3)
    assert three["steps"] == ArraySpec((None,), "int64", 0, 2, 3)


def test_what_is_summed_securely_may_not_travel_in_the_clear():
    clear, secure = (FTS(lengthscale="federated", secure_sums=n) for n in (0, 3))
    assert set(schema_of(Message, clear, SPACE).arrays) == {"weights", "log_likelihoods"}
    assert set(schema_of(Message, secure, SPACE).arrays) == {"weights"}
    task = Task(Phase.TRAIN, 1, 0, 1, {"lengthscales": np.ones(6)})
    (summed,) = summands_of(secure, SPACE, task).items()
    assert (summed[0], summed[1].shape, summed[1].bound) == ("log_likelihoods", (6,), 1e12)


@dataclass(frozen=True, kw_only=True)
class Counts(Content):
    counts: Annotated[AnyArray | None, summable("len(cells)", bound="budget", low=0.0, most=9)] = None
    present: Annotated[AnyArray | None, summable("len(cells)", bound=1.0, only_if="secure_sums")] = None


def test_a_summand_is_as_long_as_an_array_of_the_task_and_its_bound_may_be_an_option():
    kind = type("Counting", (FedPNE,), {"report_content": Counts})
    clear, secure = (kind(budget=50, secure_sums=n) for n in (0, 3))
    assert schema_of(Counts, clear, SPACE).arrays == {
        "counts": ArraySpec((None,), low=0.0, high=50.0, max_length=9)
    }
    assert not schema_of(Counts, secure, SPACE).arrays
    task = Task(Phase.TRAIN, 1, 0, 1, {"cells": np.zeros(4)}, {"sum": True})
    summands = summands_of(secure, SPACE, task)
    assert summands == {"counts": schemas.Summand((4,), 50.0), "present": schemas.Summand((4,), 1.0)}


def test_progress_never_goes_back_and_agents_are_sorted_as_people_count():
    progress = Progress({"a": 4}).advance({"a": Report(0, 3), "b": Report(0, 3)})
    assert progress.next_trial == {"a": 4, "b": 3}
    federation = records.Federation(SQUARE, ("10", "b", "2", "a", "02"))
    assert federation.agents == ("02", "2", "10", "a", "b")
    assert records.natural_key("²")[0] == 1, "a superscript is no number"
    with pytest.raises(ConfigError, match="every id once"):
        records.Federation(SQUARE, ("1", "1"))


def test_failed_trials_count_as_the_worst_seen():
    reasons = np.array(["", "no", ""], dtype=object)
    history = Trials(np.eye(3), np.array([2.0, np.nan, 1.0]), np.arange(3), reasons)
    points, values = history.observed()
    assert values.tolist() == [2.0, 1.0, 1.0]
    assert len(points) == 3
    assert [len(part) for part in Trials(np.eye(2), np.full(2, np.nan), np.arange(2)).observed()] == [0, 0]


def outcome(points, values, first, counts, spans, failures=None):
    spans = np.array(spans)
    trials = first + np.cumsum(spans) - spans
    return Trials(np.array(points), np.array(values), trials, failures, spans, np.array(counts))


def test_evaluations_of_one_point_become_one_row_in_the_order_of_first_evaluations():
    nan = float("nan")
    once, late = (np.array(reasons, dtype=object) for reasons in (["once", "dark"], ["late", ""]))
    first = outcome([[0.5, 0.5], [0.0, 1.0]], [2.0, nan], 10, [2, 0], [3, 1], once)
    more = outcome([[-0.0, 1.0], [0.5, 0.5]], [4.0, 5.0], 14, [1, 1], [2, 1], late)
    times = np.array([[[5.0, 6.0], [1.0, 2.0]], [[3.0, 4.0], [7.0, 9.0]]])
    first, more = replace(first, times=times[0]), replace(more, times=times[1])
    found = first.concat(more).merged()
    np.testing.assert_array_equal(found.times, [[5.0, 9.0], [1.0, 4.0]])
    np.testing.assert_array_equal(found.points, [[0.5, 0.5], [0.0, 1.0]])
    np.testing.assert_allclose(found.values, [3.0, 4.0])
    assert found.counts.tolist() == [3, 1]
    assert found.pulls.tolist() == [4, 3]
    assert found.trials.tolist() == [10, 14]
    assert found.reasons == {10: "once", 14: "dark"}
