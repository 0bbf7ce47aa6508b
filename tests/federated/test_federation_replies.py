"""Replies are hostile until they are checked: each of these is left out, and only it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from absurd_replies import ABSURD, lying
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from toy_federation import fedavg, toy_model, tune_flat

from fbo_flower import Float, SearchSpace
from fbo_flower.errors import ConfigError
from fbo_flower.federated.replies import check_replies
from fbo_flower.federated.trial_run import PATIENCE, TrialGrid, least_clients
from fbo_flower.simulation.grids import FIRST_NODE, identify


def exchange(change: Callable[[RecordDict], Any], kind: str = "train") -> tuple[list[Message], list[Any]]:
    """Return messages to three clients and their replies, of which the second is changed."""
    identify()
    sent, replies = [], []
    for number in range(3):
        content = RecordDict({"arrays": ArrayRecord({"w": Array(np.zeros(2))}), "config": ConfigRecord()})
        message = Message(content, FIRST_NODE + number, kind)
        answer = RecordDict({
            "arrays": ArrayRecord({"w": Array(np.ones(2))}),
            "metrics": MetricRecord({"num-examples": 5, "loss": 0.5}),
        })  # fmt: skip
        if number == 1:
            change(answer)
        sent.append(message)
        replies.append(Message(answer, reply_to=message))
    return sent, replies


def put(**records: Any) -> Callable[[RecordDict], Any]:
    return lambda content: content.update(records)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put(arrays=ArrayRecord({"w": Array(np.array([1.0, np.nan]))})), "finite"),
        (put(arrays=ArrayRecord({"w": Array(np.array([1.0, np.inf]))})), "finite"),
        (put(arrays=ArrayRecord({"w": Array(np.ones(3))})), r"\(2,\), got \(3,\)"),
        (put(arrays=ArrayRecord({"v": Array(np.ones(2))})), "expected the arrays"),
        (put(arrays=ArrayRecord({"w": Array(np.ones(2, dtype=np.int64))})), "dtype"),
        (put(arrays=ArrayRecord({"w": Array(np.array(["a", "b"]))})), "dtype|encoding|Error"),
        (put(arrays=ArrayRecord({"w": Array("float64", (2,), "numpy.ndarray", b"garbage")})), "Error"),
        (put(more=ArrayRecord({"w": Array(np.ones(2))})), "one ArrayRecord"),
        (put(more=MetricRecord({"x": 1})), "one MetricRecord"),
        (put(metrics=MetricRecord({"num-examples": 5, "loss": float("nan")})), "loss: expected finite"),
        (put(metrics=MetricRecord({"num-examples": 5, "loss": [0.1, float("inf")]})), "finite"),
        (put(metrics=MetricRecord({"num-examples": 0, "loss": 0.1})), "positive"),
        (put(metrics=MetricRecord({"num-examples": -5, "loss": 0.1})), "positive"),
        (put(metrics=MetricRecord({"num-examples": [5], "loss": 0.1})), "positive"),
        (put(metrics=MetricRecord({"num-examples": 5, "auc": 0.1})), "expected the metrics loss"),
        (lambda content: content.clear(), "one MetricRecord"),
    ],
)  # fmt: skip
def test_a_malformed_reply_is_left_out(change: Callable[[RecordDict], Any], words: str) -> None:
    sent, replies = exchange(change)
    checked = check_replies(sent, replies, "num-examples")
    assert [reply.metadata.src_node_id - FIRST_NODE for reply in checked.used] == [0, 2]
    (reason,) = checked.refused
    import re

    assert re.search(words, reason), reason


def test_a_missing_reply_and_one_of_another_client_are_left_out() -> None:
    sent, replies = exchange(lambda content: None)
    assert len(check_replies(sent, [replies[0], None, replies[2]]).used) == 2
    assert len(check_replies(sent, [replies[0], replies[2], replies[1]]).used) == 1


def test_narrower_floats_are_used_if_most_clients_send_them() -> None:
    narrow = ArrayRecord({"w": Array(np.ones(2, dtype=np.float32))})
    sent, replies = exchange(put(arrays=narrow))
    checked = check_replies(sent, replies)
    assert len(checked.used) == 2
    assert "expected the dtypes w: float64, as most clients sent them, got w: float32" in checked.refused[0]
    for reply in replies:
        reply.content["arrays"] = narrow
    assert len(check_replies(sent, replies).used) == 3


CLIENTS = SearchSpace({"learning-rate": Float(0.01, 1.0)})


@pytest.mark.parametrize("lie", ABSURD)
def test_an_absurd_reply_costs_a_trial_of_the_tuner_nothing_else(lie: str) -> None:
    tuned = tune_flat(
        lying(lie), fedavg, CLIENTS, rounds=2, num_trials=4, schedule="none", initial_arrays=toy_model(),
        number=5,
    )  # fmt: skip
    assert set(tuned.trials["state"].tolist()) == {"finished"}
    assert -1.0 < tuned.best_value <= 1.0


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_an_infinite_half_precision_reply_among_finite_ones_is_left_out() -> None:
    sent, replies = exchange(lambda content: None)
    for reply, value in zip(replies, (1.0, np.inf, 60_000.0), strict=True):
        reply.content["arrays"] = ArrayRecord({"w": Array(np.full(2, value, dtype=np.float16))})
    checked = check_replies(sent, replies)
    assert [reply.metadata.src_node_id - FIRST_NODE for reply in checked.used] == [0, 2]
    assert "finite" in checked.refused[0]


def test_evaluations_need_no_arrays() -> None:
    sent, replies = exchange(lambda content: content.pop("arrays"), kind="evaluate")
    assert len(check_replies(sent, replies).used) == 3


def test_a_strategy_that_waits_for_more_clients_than_its_share_is_named() -> None:
    grid = TrialGrid(None, [1, 2])  # type: ignore[arg-type]  # it is not asked
    for _ in range(PATIENCE):
        assert grid.get_node_ids() == [1, 2]
    with pytest.raises(ConfigError, match="2 clients of a trial's share"):
        grid.get_node_ids()


def test_the_least_number_of_clients_is_read_through_wrappers() -> None:
    class Inner:
        min_available_nodes = 7

    class Outer:
        strategy = Inner()
        min_train_nodes = 3

    assert least_clients(Outer()) == 7
    assert least_clients(object()) == 1
