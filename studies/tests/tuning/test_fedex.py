"""FedEx over an in-process grid: what it draws is what the clients train with, and it finds the best rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord
from flwr.clientapp import ClientApp
from toy_federation import SPACE, fedavg, toy_app, toy_grid, toy_model, tune_flat

from fbo_flower import Float, SearchSpace
from fbo_flower.simulation import FIRST_NODE, InProcessGrid
from studies.tuning import FedEx
from studies.tuning.exponentiated_gradient import Distribution

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
