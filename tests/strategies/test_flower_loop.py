"""Flower's own loop runs every strategy, and makes the trials of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import Result, Strategy

from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.strategies import FTS, STRATEGIES

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
SMALL = {"num_candidates": 32, "num_path_features": 16}
OPTIONS = {"num_features": 12, **SMALL}


def hill(config: Any, context: Any) -> float:
    return 1.0 - (config["x"] - 0.2 - 0.1 * context.partition) ** 2 - (config["y"] - 0.4) ** 2


def grid(**faults: Any) -> InProcessGrid:
    return InProcessGrid(client_app(hill, SPACE, seed=3, disclose="trials"), 4, **faults)


def rows(strategy: Any) -> list[list[Any]]:
    study = strategy.study
    return [study.trials[c].tolist() for c in ("agent", "round", "trial", "value", "config")]


def test_the_positional_call_of_a_flower_user_is_understood() -> None:
    named, positional = (STRATEGIES["fts"](num_agents=4, seed=3, **OPTIONS) for _ in range(2))
    named.start(grid(), num_rounds=3)
    result = positional.start(grid(), ArrayRecord(), 3, 3600, ConfigRecord(), ConfigRecord(), None)
    assert isinstance(result, Result)
    assert rows(positional) == rows(named)
    assert result.study is positional.study


def test_both_loops_return_the_same_arrays_and_metrics() -> None:
    results = []
    for start in (FTS.start, Strategy.start):
        strategy = FTS(num_agents=4, seed=3, lengthscale="federated", secure_sums=3, **SMALL)
        results.append(start(strategy, grid(), ArrayRecord(), 4))
    ours, theirs = results
    assert ours.train_metrics_clientapp == theirs.train_metrics_clientapp
    assert ours.evaluate_metrics_clientapp == theirs.evaluate_metrics_clientapp
    assert [m["evaluations"] for m in theirs.train_metrics_clientapp.values()] == [12, 4, 4, 4]
    assert theirs.train_metrics_clientapp[4]["best"] <= 1.0
    assert list(theirs.evaluate_metrics_clientapp) == [1], "the only sum, of the first round"
    assert theirs.evaluate_metrics_clientapp[1]["replies"] == 8
    assert {n: a.numpy().tolist() for n, a in ours.arrays.items()} == {
        n: a.numpy().tolist() for n, a in theirs.arrays.items()
    }
    assert ours.arrays["weights"].shape == (4, 100)


@pytest.mark.parametrize("loop", ["ours", "theirs"])
def test_the_arrays_of_a_study_are_the_start_of_another(loop: str) -> None:
    earlier = FTS(num_agents=4, seed=3, **OPTIONS).start(grid(), num_rounds=4)
    strategy = FTS(num_agents=4, seed=4, **OPTIONS)
    start = FTS.start if loop == "ours" else Strategy.start
    start(strategy, grid(), earlier.arrays, 2)
    assert len(strategy._run.state.messages) == 8, "those of the earlier study, and those of this one"
    fresh = FTS(num_agents=4, seed=4, **OPTIONS)
    fresh.start(grid(), num_rounds=2)
    assert len(fresh._run.state.messages) == 4


@pytest.mark.parametrize("loop", ["ours", "theirs"])
def test_evaluate_fn_is_called_before_the_first_round_and_after_each(loop: str) -> None:
    seen: list[tuple[int, list[str]]] = []

    def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append((server_round, sorted(arrays)))
        return MetricRecord({"number": server_round})

    strategy = FTS(num_agents=4, seed=3, **OPTIONS)
    start = FTS.start if loop == "ours" else Strategy.start
    result = start(strategy, grid(), ArrayRecord(), 2, evaluate_fn=evaluate_fn)
    names = ["frequencies", "phases", "weights"]
    assert seen == [(0, []), (1, names), (2, names)]
    assert [m["number"] for m in result.evaluate_metrics_serverapp.values()] == [0, 1, 2]


class Wrapping(Strategy):
    """Forwards Flower's four hooks, and counts messages."""

    def __init__(self, inner: Strategy) -> None:
        self.inner, self.num_messages = inner, 0

    def configure_train(self, *given: Any) -> Any:
        messages = list(self.inner.configure_train(*given))
        self.num_messages += len(messages)
        return messages

    def aggregate_train(self, *given: Any) -> Any:
        return self.inner.aggregate_train(*given)

    def configure_evaluate(self, *given: Any) -> Any:
        return self.inner.configure_evaluate(*given)

    def aggregate_evaluate(self, *given: Any) -> Any:
        return self.inner.aggregate_evaluate(*given)

    def summary(self) -> None:
        self.inner.summary()


def test_a_strategy_that_wraps_ours_works() -> None:
    inner = FTS(num_agents=4, seed=3, lengthscale="federated", secure_sums=3, **SMALL)
    wrapping = Wrapping(inner)
    wrapping.start(grid(), ArrayRecord(), num_rounds=3)
    plain = FTS(num_agents=4, seed=3, lengthscale="federated", secure_sums=3, **SMALL)
    plain.start(grid(), num_rounds=3)
    assert rows(inner) == rows(plain)
    assert wrapping.num_messages == 12


def test_a_second_start_within_flowers_loop_is_a_study_of_its_own() -> None:
    strategy = FTS(num_agents=4, seed=3, **OPTIONS)
    first = [Strategy.start(strategy, grid(), ArrayRecord(), num_rounds=2), rows(strategy)][1]
    Strategy.start(strategy, grid(), ArrayRecord(), num_rounds=2)
    assert rows(strategy) == first


def test_what_flower_passes_and_tuning_cannot_use_is_refused() -> None:
    strategy = FTS(num_agents=4, seed=3, **OPTIONS)
    with pytest.raises(ConfigError, match="initial_arrays: expected an ArrayRecord, got 25"):
        strategy.start(grid(), 25)
    with pytest.raises(ConfigError, match="train_config: expected none, got lr"):
        Strategy.start(strategy, grid(), ArrayRecord(), 2, train_config=ConfigRecord({"lr": 0.1}))
    model = ArrayRecord({"w": Array(np.zeros(3))})
    with pytest.raises(ConfigError, match="warm_start: expected an algorithm that keeps messages"):
        STRATEGIES["random"](num_agents=4, seed=3).start(grid(), model, 2)
    with pytest.raises(ConfigError, match="expected a running study"):
        FTS(num_agents=4).finish(grid())
