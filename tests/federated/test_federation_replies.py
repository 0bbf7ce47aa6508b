"""Replies are hostile until they are checked: each of these is left out, and only it.

Clients whose replies are well-formed and false cannot decide the tuning, once there are guards.
"""

import re

import numpy as np
import pytest
from absurd_replies import ABSURD, lying
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from toy_federation import SPACE, fedavg, toy_grid, toy_model, tune_flat

from fbo_flower.errors import ConfigError
from fbo_flower.federated.proposals import median_variance
from fbo_flower.federated.replies import Judge, check_replies
from fbo_flower.federated.step import PATIENCE, TrialGrid
from fbo_flower.simulation.grids import FIRST_NODE, Fault, identify


def reply(number, metrics):
    identify()
    message = Message(RecordDict({"config": ConfigRecord()}), FIRST_NODE + number, "evaluate")
    return message, Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


def exchange(*changes):
    """Return messages to two honest clients and one for each change of a reply, and the replies."""
    identify()
    sent, replies = [], []
    for number, change in enumerate([nothing, nothing, *changes]):
        content = RecordDict({"arrays": ArrayRecord({"w": Array(np.zeros(2))}), "config": ConfigRecord()})
        sent.append(Message(content, FIRST_NODE + number, "train"))
        metrics = MetricRecord({"num-examples": 5, "loss": 0.5})
        answer = RecordDict({"arrays": ArrayRecord({"w": Array(np.ones(2))}), "metrics": metrics})
        change(answer)
        replies.append(Message(answer, reply_to=sent[-1]))
    return sent, replies


def put(**records):
    return lambda content: content.update(records)


nothing = put()


def array(value):
    return put(arrays=ArrayRecord({"w": value if isinstance(value, Array) else Array(np.array(value))}))


def metrics(**numbers):
    named = {name.replace("_", "-"): value for name, value in numbers.items()}
    return put(metrics=MetricRecord(named))


def used(checked):
    return [reply.metadata.src_node_id - FIRST_NODE for reply in checked.used]


MALFORMED = [
    (array([1.0, np.nan]), "finite"),
    (array(np.ones(3)), r"\(2,\), got \(3,\)"),
    (put(arrays=ArrayRecord({"v": Array(np.ones(2))})), "expected the arrays"),
    (array(np.ones(2, dtype=np.int64)), "dtype"),
    (array(Array("float64", (2,), "numpy.ndarray", b"garbage")), "Error"),
    (put(more=ArrayRecord({"w": Array(np.ones(2))})), "one ArrayRecord"),
    (put(more=MetricRecord({"x": 1})), "one MetricRecord"),
    (metrics(num_examples=5, loss=float("nan")), "loss: expected finite"),
    (metrics(num_examples=0, loss=0.1), "positive"),
    (metrics(num_examples=5, auc=0.1), "expected the metrics loss"),
    (array(np.ones(2, dtype=np.float32)), "expected the dtypes w: float64, as most clients sent them, got w"),
    (lambda content: content.clear(), "one MetricRecord"),
]


def test_malformed_replies_are_left_out_each_with_its_reason():
    checked = check_replies(*exchange(*(change for change, _ in MALFORMED)), "num-examples")
    assert used(checked) == [0, 1]
    reasons = dict(reason.removeprefix("client ").split(": ", 1) for reason in checked.refused)
    for node, (_, words) in enumerate(MALFORMED, start=FIRST_NODE + 2):
        assert re.search(words, reasons[str(node)]), (words, reasons[str(node)])


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_missing_reply_one_of_another_client_and_an_infinite_narrow_float_are_left_out():
    sent, replies = exchange(nothing)
    assert len(check_replies(sent, [replies[0], None, replies[2]]).used) == 2
    assert len(check_replies(sent, [replies[0], replies[2], replies[1]]).used) == 1
    for reply, value in zip(replies, (1.0, np.inf, 60_000.0), strict=True):
        array(np.full(2, value, dtype=np.float16))(reply.content)
    assert used(check_replies(sent, replies)) == [0, 2], "most clients send narrow ones"


def test_absurd_replies_cost_a_trial_of_the_tuner_nothing_else():
    tuned = tune_flat(
        lying(*ABSURD), fedavg, SPACE, rounds=2, num_trials=4, schedule="none",
        initial_arrays=toy_model(), number=4 + len(ABSURD),
    )  # fmt: skip
    assert set(tuned.trials["state"].tolist()) == {"finished"}
    assert set(tuned.curves["trained"].tolist()) == {4}
    assert set(tuned.curves["evaluated"].tolist()) == {4 + 2}, "arrays of an evaluation are not used"
    assert -1.0 < tuned.best_value <= 1.0


def test_a_strategy_that_waits_for_more_clients_than_its_share_is_named():
    grid = TrialGrid(None, [1, 2])  # it is not asked
    for _ in range(PATIENCE):
        assert grid.get_node_ids() == [1, 2]
    with pytest.raises(ConfigError, match="2 clients of a trial's share"):
        grid.get_node_ids()


# guards


def tune(change=None, **guards):
    """Tune a learning rate, whose best value is 1, by twelve random configurations; a client may lie."""
    faults = {2: Fault("malformed", change=change)} if change else None
    return tune_flat(
        toy_grid(5, faults), fedavg, SPACE, rounds=2, num_trials=12, schedule="none",
        proposals="random", initial_arrays=toy_model(), number=5, **guards,
    )  # fmt: skip


@pytest.fixture(scope="module")
def plain():
    return tune()


def praise(value, rows=10):
    """Return an attack that praises models which have learnt little, or claims many rows."""

    def change(content):
        record = dict(content["metrics"]) | {"num-examples": rows}
        if "accuracy" in record:
            record["accuracy"] *= -value  # the worse, the better
        content["metrics"] = MetricRecord(record)
        return content

    return change


@pytest.mark.parametrize(
    ("attack", "guards"),
    [
        (praise(1e9), {"by": "median"}),
        (praise(1.0, rows=10**11), {"max_weight": 2.0, "by": "median"}),
        (praise(1e9, rows=10**11), {"max_weight": 1.0, "bounds": (-1.0, 1.0)}),
    ],
    ids=["huge", "many rows", "both"],
)
def test_a_liar_decides_without_guards_and_not_with_them(attack, guards, plain):
    rate = plain.best_config["learning-rate"]
    assert tune(attack).best_config["learning-rate"] < 0.5 < rate
    assert tune(attack, **guards).best_config["learning-rate"] > 0.8


def test_honest_clients_are_judged_as_before(plain):
    guarded = tune(bounds=(-10.0, 1.0), max_weight=3.0)
    assert guarded.curves == plain.curves
    assert guarded.best_config == plain.best_config


def test_a_medians_variance_is_that_of_many_draws():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((4000, 25))
    medians = np.median(draws, axis=1)
    found = [median_variance(d, np.ones(25), float(m), 10**6) for d, m in zip(draws, medians, strict=True)]
    assert np.mean(found) == pytest.approx(medians.var(), rel=0.15)
    assert median_variance(draws[0], np.ones(25), 0.0, 25) == 0.0
    assert np.isnan(median_variance(draws[0, :1], np.ones(1), 0.0, 25))


def test_weights_are_lowered_to_a_multiple_of_the_lower_median():
    replies = [reply(i, {"num-examples": n, "accuracy": 0.5})[1] for i, n in enumerate((10, 12, 10**11, 11))]
    (line,) = Judge(max_weight=3.0).lower_weights(replies, "num-examples")
    assert "was lowered to 33" in line
    assert [answer.content["metrics"]["num-examples"] for answer in replies] == [10, 12, 33, 11]
    pair = [reply(i, {"num-examples": n})[1] for i, n in enumerate((5, 10**11))]
    Judge(max_weight=1.0).lower_weights(pair, "num-examples")
    assert [answer.content["metrics"]["num-examples"] for answer in pair] == [5, 5]
