"""Messages, histories, states and records of the server are values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pytest
from contract import MIXED, SQUARE, Run, same
from scipy import stats

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import FTS, FedPNE, RandomSearch, records
from fbo_flower.algorithms import messages as schemas
from fbo_flower.algorithms.bandits.base import once_per_state
from fbo_flower.algorithms.fts.fts import Advice, Message
from fbo_flower.algorithms.messages import ArraySpec, Content, Schema, real, schema_of, summable, summands_of
from fbo_flower.algorithms.protocol import Progress
from fbo_flower.algorithms.records import AgentState, AnyArray, Phase, Report, Task, Trials
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.wire.checks import checked_arrays, checked_values

SPACE = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
ADVICE = Schema(
    {
        "frequencies": ArraySpec((5, 2)),
        "phases": ArraySpec((5,), low=0.0, high=2 * np.pi),
        "weights": ArraySpec((5,)),
        "point": ArraySpec((2,), low=0.0, high=1.0),
        "messages": ArraySpec((None, 5), max_length=32),
        "lengthscales": ArraySpec((6,), low=1e-6, high=1e6),
    },
    {"message": bool},
)


def test_the_schema_of_advice_is_the_one_written_by_hand_also_with_a_row_for_each_of_several_steps():
    assert schema_of(Advice, FTS(num_features=5), SPACE) == ADVICE
    arrays = dict(ADVICE.arrays)
    arrays["weights"] = ArraySpec((None, 5), max_length=3)
    arrays["point"] = ArraySpec((None, 2), low=0.0, high=1.0, max_length=3)
    arrays["steps"] = ArraySpec((None,), "int64", 0, 2, 3)
    assert schema_of(Advice, FTS(num_features=5, trials_per_round=3), SPACE) == Schema(arrays, ADVICE.values)


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


def test_content_travels_without_its_defaults_and_comes_back():
    sent = Advice(point=np.array([0.5, 1.0]), message=True)
    assert set(sent.arrays) == {"point"}
    assert sent.values == {"message": True}
    task = Task(Phase.TRAIN, 1, 0, 1, {**sent.arrays, "secure.members": np.ones(1)}, sent.values)
    assert Advice.of(task).values == sent.values
    assert Advice.of(task).point is sent.point
    assert not Message().arrays
    assert not Message().values
    assert Message.of(Report(0, 1)) == Message()


@dataclass(frozen=True, kw_only=True)
class Cells(Content):
    cells: Annotated[AnyArray | None, schemas.whole(None, high=9, most=4)] = None
    triangle: Annotated[AnyArray | None, real(lambda algorithm, space: space.dimension + 1)] = None
    count: int = 0


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"other": np.ones(3)}, "names"),
        ({"triangle": np.ones(2)}, "shape"),
        ({"triangle": np.ones(3, dtype=np.float32)}, "dtype"),
        ({"triangle": np.array([0, np.nan, 0])}, "not-finite"),
        ({"cells": np.array([10])}, "bounds"),
        ({"cells": np.arange(5)}, "shape"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays: dict[str, Any], word: str):
    schema = schema_of(Cells, FTS(), SPACE)
    with pytest.raises(WireError) as caught:
        checked_arrays(arrays, schema.arrays)
    assert caught.value.reason == word


def test_scalars_that_do_not_fit_are_refused():
    schema = schema_of(Cells, FTS(), SPACE)
    assert checked_values({"values": '{"count": 3}'}, schema) == {"count": 3}
    for text in ('{"count": true}', '{"count": 0.5}', '{"other": 1}'):
        with pytest.raises(WireError):
            checked_values({"values": text}, schema)


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


# -- outcomes of one task become one outcome with a row per point --------------------------------------


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


def test_many_outcomes_are_joined_as_with_sorted_points():
    rng = np.random.default_rng(0)
    points, values = rng.integers(0, 4, (40, 2)) / 4.0, rng.standard_normal(40)
    rows = [outcome([p], [v], t, [1], [1]) for t, (p, v) in enumerate(zip(points, values, strict=True))]
    found = rows[0].concat(*rows[1:]).merged()
    _, first, row = np.unique(points, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    np.testing.assert_array_equal(found.points, points[first[order]])
    means = [values[row.reshape(-1) == i].mean() for i in order]
    np.testing.assert_allclose(found.values, means, rtol=1e-12)
    assert found.pulls.sum() == 40


def test_a_result_is_computed_once_for_the_same_owner_and_state():
    calls = []

    class Owner:
        @once_per_state
        def best(self, agent_state):
            calls.append(agent_state)
            return len(calls)

    one, two = (AgentState(SQUARE, Trials.empty(2)) for _ in range(2))
    owner = Owner()
    assert [owner.best(s) for s in (one, one, two, two, one)] == [1, 1, 2, 2, 3]
    assert Owner().best(one) == 4


def test_random_points_are_uniform_and_differ_between_agents():
    histories = Run.begin(RandomSearch(num_initial=200), num_agents=2).step().histories()
    for history in histories.values():
        for axis in history.points.T:
            assert stats.kstest(axis, "uniform").pvalue > 1e-3
    assert not same(histories["0"].points, histories["1"].points)
    run = Run.begin(RandomSearch(num_initial=300), space=MIXED, num_agents=1).step()
    kernels = [MIXED.decode(p)["kernel"] for p in run.histories()["0"].points]
    assert stats.chisquare(np.unique(kernels, return_counts=True)[1]).pvalue > 1e-3
