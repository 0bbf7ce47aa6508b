"""Outcomes of one task become one outcome with a row per point."""

from __future__ import annotations

import numpy as np

from fbo_flower.algorithms.bandits.base import once_per_state
from fbo_flower.algorithms.records import AgentState, History, Outcome
from fbo_flower.algorithms.run_task import joined
from fbo_flower.space import Float, SearchSpace


def outcome(points, values, first, counts, spans, failures=None):
    spans = np.array(spans)
    trials = first + np.cumsum(spans) - spans
    return Outcome(np.array(points), np.array(values), trials, failures or {}, np.array(counts), spans)


def test_evaluations_of_one_point_become_one_row_in_the_order_of_first_evaluations():
    nan = float("nan")
    found = joined([
        outcome([[0.5, 0.5], [0.0, 1.0]], [2.0, nan], 10, [2, 0], [3, 1], {10: "once", 13: "dark"}),
        outcome([[-0.0, 1.0], [0.5, 0.5]], [4.0, 5.0], 14, [1, 1], [2, 1], {14: "late"}),
    ])  # fmt: skip
    np.testing.assert_array_equal(found.points, [[0.5, 0.5], [0.0, 1.0]])
    np.testing.assert_allclose(found.values, [3.0, 4.0])
    assert found.counts.tolist() == [3, 1]
    assert found.spans.tolist() == [4, 3]
    assert found.trials.tolist() == [10, 14]
    assert found.failures == {10: "once", 14: "dark"}


def test_the_first_failure_of_a_point_is_kept():
    rows = [
        outcome([[0.5], [0.25]], [1.0, np.nan], 0, [1, 0], [1, 1], {1: "first"}),
        outcome([[0.25]], [np.nan], 2, [0], [1], {2: "second"}),
    ]
    found = joined(rows)
    assert found.failures == {1: "first"}
    assert found.trials.tolist() == [0, 1]
    assert np.isnan(found.values[1])


def test_many_outcomes_are_joined_as_with_sorted_points():
    rng = np.random.default_rng(0)
    points, values = rng.integers(0, 4, (40, 2)) / 4.0, rng.standard_normal(40)
    found = joined(
        [outcome([p], [v], t, [1], [1]) for t, (p, v) in enumerate(zip(points, values, strict=True))]
    )
    _, first, row = np.unique(points, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    np.testing.assert_array_equal(found.points, points[first[order]])
    means = [values[row.reshape(-1) == i].mean() for i in order]
    np.testing.assert_allclose(found.values, means, rtol=1e-12)
    assert found.spans.sum() == 40


def test_a_result_is_computed_once_for_the_same_owner_and_state():
    calls = []

    class Owner:
        @once_per_state
        def best(self, agent_state):
            calls.append(agent_state)
            return len(calls)

    space = SearchSpace({"x": Float(0.0, 1.0)})
    one, two = (AgentState(space, History.empty(1)) for _ in range(2))
    owner = Owner()
    assert [owner.best(s) for s in (one, one, two, two, one)] == [1, 1, 2, 2, 3]
    assert Owner().best(one) == 4
