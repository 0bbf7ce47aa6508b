"""What a hostile server can make an agent of `fed-ei` do: refuse the task, before anything is evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amounts import examples
from contract import SQUARE
from flwr.app import Context, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from fbo_flower import wire
from fbo_flower.algorithms import FedEI, make_algorithm
from fbo_flower.algorithms.ei.task_check import FEATURES, SUMMED
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.clients.agent import TuningAgent
from fbo_flower.errors import WireError
from fbo_flower.numerics.surrogates.trend import packed_size, statistics
from fbo_flower.wire.numpy_client import to_lists

M = 8
SMALL: dict[str, Any] = {"num_features": M, "num_candidates": 16}
RNG = np.random.default_rng(0)
GRAM, MOMENT = statistics(RNG.standard_normal((30, M)), RNG.standard_normal(30))
ARRAYS = {
    "frequencies": RNG.standard_normal((M, 2)),
    "phases": np.linspace(0, 6, M),
    "gram": GRAM,
    "moment": MOMENT,
    "energy": np.zeros(1),
    "agreement": np.array([3.0, 5.0]),
    "closeness": np.array([1.0, 2.0]),
    "points": RNG.random((4, 2)),
}
VALUES: dict[str, Any] = {"counted": -1, "share": True}


def send(arrays: dict[str, Any], values: dict[str, Any], secure_sums: int = 0, earlier: int = 2) -> int:
    """Send a task to a new agent and return how many points it evaluated for it."""
    configs: list[Any] = []

    def objective(config: Any, context: Any) -> float:
        configs.append(config)
        return float(config["x"])

    context = Context(1, 2, {"partition-id": 3}, RecordDict(), {})
    agent = TuningAgent(objective, SQUARE, context, seed=7, disclose="trials")
    options = {**SMALL, "secure_sums": secure_sums}
    made = make_algorithm("fed-ei", options)
    envelope = wire.Envelope("s", "3", SQUARE.digest, "fed-ei", canonical_json(made.options()))

    def ask(task: Task) -> None:
        agent.fit(*to_lists(wire.encode_task(task, envelope)))

    if earlier:
        ask(Task(Phase.TRAIN, 1, 0, earlier))
    configs.clear()
    try:
        ask(Task(Phase.TRAIN, 2, earlier, 1, arrays, values))
    except WireError:
        assert not configs, "an evaluation was spent on a task that was refused"
        raise
    return len(configs)


def test_a_complete_task_is_done() -> None:
    assert send(ARRAYS, VALUES) == 1
    assert send({"points": ARRAYS["points"]}, {}) == 1
    assert send({}, {}) == 1


@pytest.mark.parametrize("missing", [*SUMMED, "counted", *FEATURES])
@pytest.mark.parametrize("secure_sums", [0, 3])
def test_a_task_that_lacks_what_a_sum_needs_is_refused(missing: str, secure_sums: int) -> None:
    arrays = {name: array for name, array in ARRAYS.items() if name != missing}
    values = {name: value for name, value in VALUES.items() if name != missing}
    with pytest.raises(WireError, match=f"expected .*, got no {missing}$") as caught:
        send(arrays, values, secure_sums)
    assert caught.value.reason == "names"


@pytest.mark.parametrize("missing", FEATURES)
def test_a_request_to_share_without_features_is_refused(missing: str) -> None:
    arrays = {name: ARRAYS[name] for name in FEATURES if name != missing}
    with pytest.raises(WireError, match="request to share"):
        send(arrays, {"share": True})
    task = Task(Phase.TRAIN, 1, 0, 1, arrays, {"share": True})
    with pytest.raises(WireError, match="request to share"):
        FedEI(**SMALL).sum_content(task)


def test_a_gram_matrix_with_a_negative_eigenvalue_is_refused() -> None:
    with pytest.raises(WireError, match="negative eigenvalue"):
        send({**ARRAYS, "gram": -1e3 * np.ones(packed_size(M))}, VALUES)


@settings(max_examples=examples(300, 60))
@given(
    st.sets(st.sampled_from(sorted(ARRAYS))),
    st.sets(st.sampled_from(sorted(VALUES))),
    st.integers(-3, 9),
    st.sampled_from([0, 3]),
    st.sampled_from([0, 2]),
)
def test_whatever_is_missing_the_agent_does_the_task_or_refuses_it(
    arrays: set[str], values: set[str], counted: int, secure_sums: int, earlier: int
) -> None:
    told = {**VALUES, "counted": counted}
    try:
        done = send({n: ARRAYS[n] for n in arrays}, {n: told[n] for n in values}, secure_sums, earlier)
    except WireError:
        return
    assert done == 1
