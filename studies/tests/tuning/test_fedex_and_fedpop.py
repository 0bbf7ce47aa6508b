"""FedEx moves its distribution to the best configuration; FedPop's worst ones copy the best."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import FedAdam
from toy_federation import SPACE, fedavg, toy_app, toy_grid, toy_model, tune_flat

from fbo_flower import Float, SearchSpace
from fbo_flower.federated.state import in_common, restore, state_of
from fbo_flower.simulation import FIRST_NODE, InProcessGrid
from fbo_flower.simulation.grids import Fault
from studies.tuning import FedEx, FedPop
from studies.tuning.fedex import STEP_SIZES, Distribution

CONFIGS: list[Any] = [{"learning-rate": rate} for rate in (0.05, 0.4, 1.0)]


def fedex(**changes: Any) -> FedEx:
    return FedEx(fedavg({}), SPACE, **{"configs": CONFIGS, "loss": "val-loss", **changes})


def fedpop(**changes: Any) -> FedPop:
    return FedPop(fedavg({}), SPACE, **{"center": {"learning-rate": 0.3}, "every": 2, "seed": 3, **changes})


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
    np.testing.assert_allclose(strategy.state.theta, expected.theta, rtol=1e-9)


def test_a_client_gets_the_same_draw_in_whatever_order_clients_are_listed() -> None:
    strategy, nodes = fedex(seed=3), [str(i) for i in range(12)]
    first = dict(zip(nodes, strategy.choose(1, nodes), strict=True))
    assert len({config["learning-rate"] for config in first.values()}) > 1
    assert dict(zip(nodes[::-1], strategy.choose(1, nodes[::-1]), strict=True)) == first


def test_below_the_cutoff_all_clients_get_the_best_configuration() -> None:
    seen: list[tuple[int, str, dict[str, Any]]] = []
    strategy = fedex(cutoff=10.0)
    strategy.state = Distribution(np.log([0.2, 0.7, 0.1]), np.empty(0))
    strategy.start(InProcessGrid(toy_app(seen), 4), toy_model(), num_rounds=2)
    rates = {config["learning-rate"] for _, kind, config in seen if kind == "train"}
    assert [*rates] == [pytest.approx(0.4)]
    np.testing.assert_allclose(strategy.state.theta, [0.2, 0.7, 0.1])


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
    def lie(content: Any) -> Any:
        for record in content.metric_records.values():
            if "val-loss" in record:
                record["val-loss"] = -1e9
        return content

    strategy = fedex(step_size="aggressive", bounds=(0.0, 100.0), seed=4)
    strategy.start(toy_grid(5, {0: Fault("malformed", change=lie)}), toy_model(), num_rounds=10)
    assert strategy.best_config == {"learning-rate": 1.0}


def line_by_line(history: list[Any], step: str, discount: float) -> list[float]:
    """Algorithm 2 without arrays and logarithms."""
    theta, means, squares = [0.25] * 4, list[float](), 0.0
    for t, (choices, losses, weights) in enumerate(history, start=1):
        ages = [discount**age for age in reversed(range(len(means)))]
        baseline = sum(a * m for a, m in zip(ages, means, strict=True)) / sum(ages) if means else 0.0
        rows = [*zip(choices, losses, weights, strict=True)]
        g = [sum(n * (x - baseline) for c, x, n in rows if c == j) / (p * sum(weights))
             for j, p in enumerate(theta)]  # fmt: skip
        largest = max(map(abs, g))
        squares += largest**2
        d = {"aggressive": largest, "adaptive": squares**0.5, "sqrt": t**0.5, "constant": 1.0}[step]
        raised = [p * math.exp(-math.sqrt(2 * math.log(4)) / d * gj) for p, gj in zip(theta, g, strict=True)]
        theta = [p / sum(raised) for p in raised]
        means.append(sum(n * x for _, x, n in rows) / sum(weights))
    return theta


@pytest.mark.parametrize("step", STEP_SIZES)
@pytest.mark.parametrize("discount", [0.0, 0.5])
def test_updates_equal_the_algorithm_read_line_by_line(step: str, discount: float) -> None:
    rng = np.random.default_rng(4)
    history = [(rng.integers(0, 4, 6), rng.random(6) / 10, rng.integers(1, 50, 6)) for _ in range(5)]
    found = Distribution.uniform(4)
    for choices, losses, weights in history:
        found = found.update(choices, losses, weights, step, discount)
    np.testing.assert_allclose(found.theta, line_by_line(history, step, discount), rtol=1e-9)


def test_no_probability_underflows_and_no_difference_changes_nothing() -> None:
    found = start = Distribution.uniform(3)
    for _ in range(2000):
        found = found.update(np.array([0, 1]), np.array([1.0, 0.0]), np.ones(2), "constant", 0.0)
    assert np.isfinite(found.log_theta).all()
    assert found.theta.sum() == pytest.approx(1.0)
    same = start.update(np.array([1]), np.zeros(1), np.ones(1), "aggressive", 0.9)
    np.testing.assert_allclose(same.theta, 1 / 3)


# -- FedPop --


def test_scores_are_discounted_means_and_the_worst_two_are_replaced() -> None:
    strategy = fedpop(num_configs=6, resample=0.0, quantile=0.3)
    nodes = [str(i) for i in range(6)]
    losses = {1: np.array([3.0, 2.0, 5.0, 1.0, 4.0, 9.0]), 2: np.array([2.0, 2.0, 1.0, 1.0, 8.0, 1.0])}
    scores, old = np.zeros(6), strategy.population["points"].copy()
    for server_round in (1, 2):
        strategy.choose(server_round, nodes)
        for node, place in strategy.applied.items():
            scores[place] += losses[server_round][int(node)] * (0.9 if server_round == 1 else 1.0) / 1.9
        strategy.learn(server_round, nodes, losses[server_round], np.ones(6))
    moved = np.flatnonzero((strategy.population["points"] != old).any(axis=1))
    assert set(moved) <= set(np.argsort(scores)[-2:])
    best = old[np.argsort(scores)[:2]]
    for place in moved:
        assert np.abs(strategy.population["points"][place] - best).min() <= strategy.width + 1e-12
    assert strategy.population["best"] == int(np.argmin(scores))


def test_with_fewer_clients_than_configurations_all_have_their_turn() -> None:
    strategy = fedpop(num_configs=7, every=100)
    used = []
    for server_round in range(1, 8):
        strategy.choose(server_round, ["a", "b", "c"])
        used += list(strategy.applied.values())
    assert np.bincount(used).tolist() == [3] * 7


def test_a_copy_has_a_population_of_its_own_around_its_own_base() -> None:
    def make(rate: float) -> FedPop:
        return FedPop(FedAdam(eta=rate), SPACE, center={"learning-rate": rate}, num_configs=4)

    old, fresh = make(0.2), make(0.7)
    old.population = {**old.population, "rounds": 9}
    before = fresh.population["points"].copy()
    arrays, form = state_of(old)
    restore(fresh, arrays, in_common(make(0.2), fresh, form))
    np.testing.assert_array_equal(fresh.population["points"], before)
    assert fresh.population["rounds"] == 0
    assert fresh.strategy.eta == 0.7  # type: ignore[attr-defined]
