"""Clients whose replies are well-formed and false: with the guards, one of them cannot decide the tuning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from toy_federation import SPACE, fedavg, toy_app, toy_model, tune_flat

from fbo_flower.errors import ConfigError
from fbo_flower.federated import TunedFederation
from fbo_flower.federated.replies import Guard, check_replies
from fbo_flower.federated.values import median_variance, sampling_variance
from fbo_flower.numerics.curves import weighted_median
from fbo_flower.simulation.grids import FIRST_NODE, InProcessGrid, identify

LIAR = 2
Attack = Any  # (kind of message, content) -> None, which changes the content of the liar's reply


def lying_app(attack: Attack) -> ClientApp:
    """Return the toy app, in which one client changes its replies before it sends them."""
    honest, app = toy_app(), ClientApp()

    def answer(kind: str, message: Message, context: Any) -> Message:
        reply = honest(message, context)
        if int(context.node_config["partition-id"]) == LIAR:
            attack(kind, reply.content)
        return reply

    app.train()(lambda message, context: answer("train", message, context))
    app.evaluate()(lambda message, context: answer("evaluate", message, context))
    return app


def tune(attack: Attack, **guards: Any) -> TunedFederation:
    """Tune a learning rate, whose best value is 1, by twelve random configurations."""
    return tune_flat(
        InProcessGrid(lying_app(attack), 5), fedavg, SPACE, rounds=2, num_trials=12, schedule="none",
        proposals="random", initial_arrays=toy_model(), number=5, **guards,
    )  # fmt: skip


def honestly(kind: str, content: Any) -> None:
    """Change nothing."""


@pytest.fixture(scope="module")
def plain() -> TunedFederation:
    return tune(honestly)


def praise(value: float, rows: int = 10) -> Attack:
    """Return an attack that praises models which have learnt little, or claims many rows."""

    def attack(kind: str, content: Any) -> None:
        for name, record in list(content.metric_records.items()):
            changed = dict(record)
            if kind == "evaluate":
                changed["accuracy"] = value * -changed["accuracy"]  # the worse, the better
            changed["num-examples"] = rows
            content[name] = MetricRecord(changed)

    return attack


@pytest.mark.parametrize(
    ("attack", "guards"),
    [
        (praise(1e9), {"bounds": (-1.0, 1.0)}),
        (praise(1e9), {"by": "median"}),
        (praise(1.0, rows=10**11), {"max_weight": 2.0, "by": "median"}),
        (praise(1e9, rows=10**11), {"max_weight": 1.0, "by": "median"}),
        (praise(1e9, rows=10**11), {"max_weight": 1.0, "bounds": (-1.0, 1.0)}),
    ],
    ids=["huge, bounds", "huge, median", "many rows", "both, median", "both, bounds"],
)
def test_a_liar_decides_without_guards_and_not_with_them(
    attack: Attack, guards: dict[str, Any], plain: TunedFederation
) -> None:
    rate = plain.best_config["learning-rate"]
    assert tune(attack).best_config["learning-rate"] < 0.5 < rate  # type: ignore[operator]
    assert tune(attack, **guards).best_config["learning-rate"] > 0.8  # type: ignore[operator]


def test_a_model_from_many_rows_is_weighted_as_one_from_few() -> None:
    def attack(kind: str, content: Any) -> None:
        if kind == "train":
            content["arrays"] = ArrayRecord({"w": Array(np.full(3, -50.0))})
            content["metrics"] = MetricRecord({"num-examples": 10**11, "val-loss": 0.0})

    one, guarded = tune(attack), tune(attack, max_weight=1.0)
    assert one.best_arrays["w"].numpy()[0] == pytest.approx(-50.0, abs=1e-6)
    assert abs(guarded.best_arrays["w"].numpy()[0] + 50.0 / 5) < 1.5  # a fifth of the weight


def test_honest_clients_are_judged_as_before(plain: TunedFederation) -> None:
    guarded = tune(honestly, bounds=(-10.0, 1.0), max_weight=3.0)
    assert guarded.curves == plain.curves
    assert guarded.best_config == plain.best_config


def test_the_surrogate_is_not_blinded_by_a_false_value() -> None:
    """The variance of a median does not grow with the lie, so the trials stay worth something."""
    values, weights = np.array([0.5, 0.6, 0.55, 1e9]), np.ones(4)
    assert sampling_variance(values, weights, 100) > 1e15
    assert median_variance(values, weights, 0.575, 100) < 0.01


def test_a_medians_variance_is_that_of_many_draws() -> None:
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((4000, 25))
    medians = np.median(draws, axis=1)
    found = [median_variance(d, np.ones(25), float(m), 10**6) for d, m in zip(draws, medians, strict=True)]
    assert np.mean(found) == pytest.approx(medians.var(), rel=0.15)
    assert median_variance(draws[0], np.ones(25), 0.0, 25) == 0.0
    assert np.isnan(median_variance(draws[0, :1], np.ones(1), 0.0, 25))


@given(arrays(np.float64, st.integers(1, 12), elements=st.floats(-1e6, 1e6, allow_subnormal=False)))
def test_a_median_with_equal_weights_is_numpys(values: np.ndarray) -> None:
    assert weighted_median(values, np.ones(len(values))) == np.median(values)


@given(
    arrays(np.float64, 7, elements=st.floats(0, 1, allow_subnormal=False)),
    st.sampled_from([1e300, -1e300, 0.0]),
)
def test_a_minority_moves_a_median_only_between_honest_values(values: np.ndarray, lie: float) -> None:
    found = weighted_median(np.append(values, [lie] * 3), np.ones(10))
    assert values.min() <= found <= values.max()


def reply(number: int, metrics: dict[str, Any]) -> tuple[Message, Message]:
    identify()
    message = Message(RecordDict({"config": ConfigRecord()}), FIRST_NODE + number, "evaluate")
    return message, Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


def test_weights_are_lowered_to_a_multiple_of_the_lower_median() -> None:
    replies = [reply(i, {"num-examples": n, "accuracy": 0.5})[1] for i, n in enumerate((10, 12, 10**11, 11))]
    lines = Guard("accuracy", max_weight=3.0).lower_weights(replies, "num-examples")
    found = [answer.content["metrics"]["num-examples"] for answer in replies]
    assert found == [10, 12, 33, 11]
    assert len(lines) == 1
    assert "was lowered to 33" in lines[0]
    pair = [reply(i, {"num-examples": n})[1] for i, n in enumerate((5, 10**11))]
    Guard("accuracy", max_weight=1.0).lower_weights(pair, "num-examples")
    assert [answer.content["metrics"]["num-examples"] for answer in pair] == [5, 5]


def test_values_out_of_bounds_are_left_out_and_named() -> None:
    pairs = [reply(i, {"num-examples": 1, "accuracy": a}) for i, a in enumerate((0.2, 1.0, 1e9, [0.5, 2.0]))]
    checked = check_replies([s for s, _ in pairs], [r for _, r in pairs], None, {"accuracy": (0.0, 1.0)})
    assert len(checked.used) == 2
    assert all("expected a value in [0, 1]" in reason for reason in checked.refused)


def test_a_median_needs_the_clients_own_values() -> None:
    with pytest.raises(ConfigError, match='by="mean"'):
        tune(honestly, by="median", metric="loss", evaluate_fn=lambda r, a: MetricRecord({"loss": 1.0}))


@pytest.mark.parametrize(
    ("guards", "words"),
    [
        ({"bounds": (1.0, 0.0)}, "bounds"),
        ({"bounds": (0.0,)}, "bounds"),
        ({"bounds": "ab"}, "bounds"),
        ({"bounds": (float("nan"), 1.0)}, "bounds"),
        ({"max_weight": 0.5}, "max_weight"),
        ({"by": "mode"}, "by"),
    ],
)
def test_mistakes_are_named(guards: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        tune(honestly, **guards)
