"""FedEx over an in-process grid: what it draws is what the clients train with, and it finds the best rate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord
from flwr.clientapp import ClientApp
from toy_federation import SPACE, fedavg, toy_app, toy_grid, toy_model, tune_flat

from fbo_flower import Float, SearchSpace
from fbo_flower.simulation import FIRST_NODE, InProcessGrid
from studies.tuning import FedEx
from studies.tuning.fedex import STEP_SIZES, Distribution

CONFIGS: list[Any] = [{"learning-rate": rate} for rate in (0.05, 0.4, 1.0)]


def fedex(**changes: Any) -> FedEx:
    return FedEx(fedavg({}), SPACE, **{"configs": CONFIGS, "loss": "val-loss", **changes})


def test_the_distribution_is_updated_by_the_losses_that_the_clients_report() -> None:
    strategy, grid = fedex(discount=0.5), toy_grid(6)
    messages = list(strategy.configure_train(1, toy_model(), ConfigRecord({"learning-rate": 9.0}), grid))
    replies = grid.send_and_receive(messages)
    centres = 1.0 + 0.1 * (np.arange(6) - 2.5)
    chosen = np.array([strategy.applied[str(FIRST_NODE + i)] for i in range(6)])
    rates = np.array([CONFIGS[c]["learning-rate"] for c in chosen])
    losses = ((1 - rates) * centres) ** 2  # of the model rate * centre
    strategy.aggregate_train(1, replies[::-1])  # their order does not matter
    expected = Distribution.uniform(3).update(chosen, losses, np.ones(6), "adaptive", 0.5)
    np.testing.assert_allclose(strategy.distribution, expected.theta, rtol=1e-9)


def test_it_finds_the_best_configuration_while_the_model_trains() -> None:
    strategy = fedex()
    result = strategy.start(toy_grid(10, spread=0.01), toy_model(), num_rounds=12)
    assert strategy.best_config == {"learning-rate": 1.0}
    assert strategy.distribution.max() > 0.5
    assert result.evaluate_metrics_clientapp[12]["accuracy"] > 0.99  # type: ignore[operator]


def test_below_the_cutoff_all_clients_get_the_best_configuration() -> None:
    seen: list[tuple[int, str, dict[str, Any]]] = []
    strategy = fedex(cutoff=10.0)
    strategy.state = Distribution(np.log([0.2, 0.7, 0.1]), np.empty(0))
    strategy.start(InProcessGrid(toy_app(seen), 4), toy_model(), num_rounds=2)
    rates = {config["learning-rate"] for _, kind, config in seen if kind == "train"}
    assert [*rates] == [pytest.approx(0.4)]
    np.testing.assert_allclose(strategy.distribution, [0.2, 0.7, 0.1])


def test_drawn_configurations_are_near_the_center_and_hold_it() -> None:
    space = SearchSpace({"a": Float(0, 1), "b": Float(1e-3, 1.0, log=True)})
    strategy = FedEx(fedavg({}), space, center={"a": 0.5, "b": 0.1}, num_configs=20, radius=0.2, seed=3)
    assert len(strategy.configs) == 20
    assert np.abs(strategy.points - space.encode({"a": 0.5, "b": 0.1})).max() <= 0.2
    assert any(config == {"a": 0.5, "b": pytest.approx(0.1)} for config in strategy.configs)
    assert FedEx(fedavg({}), space, num_configs=5).points.shape == (5, 2)


def test_trials_of_the_tuner_may_be_runs_of_fedex_and_are_resumed_with_their_distribution() -> None:
    """The paper wraps FedEx by successive halving; promoted trials keep their distribution."""
    built: list[FedEx] = []

    def build(config: Any) -> FedEx:
        built.append(FedEx(fedavg({}), SPACE, center=config, num_configs=9, radius=0.3))
        return built[-1]

    result = tune_flat(
        toy_grid(4), build, SPACE, rounds=8, eta=2, initial_arrays=toy_model(), number=4, num_trials=5
    )
    assert "finished" in result.trials["state"].tolist()
    assert max(len(strategy.state.losses) for strategy in built) == 8


def test_losses_out_of_bounds_are_not_believed() -> None:
    honest, app = toy_app(), ClientApp()

    def lie(message: Message, context: Any) -> Message:
        reply = honest(message, context)
        if int(context.node_config["partition-id"]) == 0:
            reply.content["metrics"] = MetricRecord({"num-examples": 10, "val-loss": -1e9})
        return reply

    app.train()(lie)
    app.evaluate()(honest)
    found = {}
    for bounds in (None, (0.0, 100.0)):
        strategy = fedex(step_size="aggressive", bounds=bounds, seed=4)
        strategy.start(InProcessGrid(app, 5), toy_model(), num_rounds=10)
        found[bounds] = strategy.best_config
    assert found[(0.0, 100.0)] == {"learning-rate": 1.0}


# -- the distribution -------------------------------------------------------------------------------


def brute_force(
    theta: list[float], history: list[tuple[list[int], list[float], list[float]]], step: str, discount: float
) -> list[float]:
    """Algorithm 2 read line by line, with loops and without logarithms."""
    k, means, squares = len(theta), [], 0.0
    for t, (choices, losses, weights) in enumerate(history, start=1):
        past = [discount ** (len(means) - 1 - s) for s in range(len(means))]
        baseline = sum(w * m for w, m in zip(past, means, strict=True)) / sum(past) if means else 0.0
        g = []
        for j in range(k):
            total = 0.0
            for c, loss, n in zip(choices, losses, weights, strict=True):
                if c == j:
                    total += n * (loss - baseline)
            g.append(total / (theta[j] * sum(weights)))
        largest = max(map(abs, g))
        squares += largest**2
        d = {"aggressive": largest, "adaptive": squares**0.5, "sqrt": t**0.5, "constant": 1.0}[step]
        eta = math.sqrt(2 * math.log(k)) / d
        raised = [p * math.exp(-eta * gj) for p, gj in zip(theta, g, strict=True)]
        theta = [p / sum(raised) for p in raised]
        means.append(sum(n * x for n, x in zip(weights, losses, strict=True)) / sum(weights))
    return theta


@pytest.mark.parametrize("step", STEP_SIZES)
@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_updates_equal_the_algorithm_read_line_by_line(step: str, discount: float) -> None:
    rng = np.random.default_rng(4)
    history = [
        (rng.integers(0, 4, 6).tolist(), (rng.random(6) / 10).tolist(), rng.integers(1, 50, 6).tolist())
        for _ in range(5)
    ]
    found = Distribution.uniform(4)
    for choices, losses, weights in history:
        found = found.update(
            np.array(choices), np.array(losses), np.array(weights, dtype=float), step, discount
        )
    np.testing.assert_allclose(found.theta, brute_force([0.25] * 4, history, step, discount), rtol=1e-9)


def test_the_gradients_estimate_is_unbiased_whatever_the_baseline() -> None:
    theta, losses = np.array([0.5, 0.3, 0.2]), np.array([1.0, 2.0, 4.0])
    found = Distribution(np.log(theta), np.empty(0))
    for baseline in (0.0, 1.5):
        mean = sum(
            theta[j] * found.gradient(np.array([j]), losses[j : j + 1], np.ones(1), baseline)
            for j in range(3)
        )
        np.testing.assert_allclose(mean, losses - baseline)


def test_no_probability_underflows_and_no_gradient_overflows() -> None:
    found = Distribution.uniform(3)
    for _ in range(2000):
        found = found.update(np.array([0, 1]), np.array([1.0, 0.0]), np.ones(2), "constant", 0.0)
    assert np.isfinite(found.log_theta).all()
    assert found.theta.sum() == pytest.approx(1.0)
    assert found.entropy >= 0.0


def test_no_answer_and_no_difference_change_nothing() -> None:
    start = Distribution.uniform(3)
    assert start.update(np.array([], dtype=np.int64), np.empty(0), np.empty(0), "sqrt", 0.9) is start
    same = start.update(np.array([1]), np.zeros(1), np.ones(1), "aggressive", 0.9)
    np.testing.assert_allclose(same.theta, 1 / 3)
