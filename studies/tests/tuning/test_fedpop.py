"""FedPop over an in-process grid: what the population holds is what clients train with, and it improves."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.serverapp.strategy import FedAdam
from toy_federation import SPACE, fedavg, toy_grid, toy_model

from fbo_flower.federated.state import in_common, restore, state_of
from studies.tuning import FedPop


def fedpop(**changes: Any) -> FedPop:
    arguments: dict[str, Any] = {"center": {"learning-rate": 0.3}, "num_configs": 6, "every": 2, "seed": 3}
    return FedPop(fedavg({}), SPACE, **{**arguments, **changes})


# FedPop-L


def test_the_population_moves_to_the_best_configuration() -> None:
    strategy = fedpop(every=1, width=0.2)
    before = np.mean(strategy.population["points"])
    strategy.start(toy_grid(6, spread=0.01), toy_model(), num_rounds=20)
    assert np.mean(strategy.population["points"]) > before + 0.15
    assert strategy.best_config["learning-rate"] > 0.5  # type: ignore[operator]


def test_scores_are_discounted_means_and_the_worst_two_are_replaced() -> None:
    strategy = fedpop(resample=0.0, quantile=0.3)
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
