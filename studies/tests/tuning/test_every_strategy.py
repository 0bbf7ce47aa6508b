"""FedEx, FedPop and Personal: clients train with what is drawn, and a bad client costs its own reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from absurd_replies import lying
from toy_federation import fedavg, toy_app, toy_grid, toy_model

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import make_algorithm
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import FIRST_NODE, Fault, InProcessGrid
from studies.tuning import FedEx, FedPop, Personal

CLIENTS = SearchSpace({"learning-rate": Float(0.01, 1.0)})
NEAR: dict[str, Any] = {"center": {"learning-rate": 0.9}}
STRATEGIES: dict[str, Callable[..., Any]] = {
    "FedEx": lambda **given: FedEx(fedavg({}), CLIENTS, **NEAR, num_configs=5, **given),
    "FedPop": lambda **given: FedPop(fedavg({}), CLIENTS, **NEAR, num_configs=4, every=2, **given),
    "Personal": lambda **given: Personal(fedavg({}), CLIENTS, algorithm="random", **given),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_is_drawn_for_a_client_is_what_it_trains_with(name: str) -> None:
    seen: list[tuple[int, str, dict[str, Any]]] = []
    drawn: list[dict[int, float]] = []
    strategy = STRATEGIES[name]()
    learn = strategy.learn

    def noting(server_round: int, *answers: Any) -> None:
        known = {  # what an entry of `applied` stands for
            node: CLIENTS.decode(held) if name == "Personal" else strategy.configs[held]
            for node, held in strategy.applied.items()
        }
        drawn.append({int(node) - FIRST_NODE: config["learning-rate"] for node, config in known.items()})
        learn(server_round, *answers)

    strategy.learn = noting
    strategy.start(InProcessGrid(toy_app(seen), 6), toy_model(), num_rounds=5)
    trained = [(node, config) for node, kind, config in seen if kind == "train"]
    assert len(trained) == 5 * 6
    for node, config in trained:
        assert config["learning-rate"] == pytest.approx(drawn[config["server-round"] - 1][node], rel=1e-12)
    assert len({config["learning-rate"] for _, config in trained[:6]}) > 1  # not one for all
    assert not any("learning-rate" in config for _, kind, config in seen if kind == "evaluate")


@pytest.mark.parametrize("lie", ["a loss of -1e308", "arrays of 1e308"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_an_absurd_reply_costs_its_own_contribution(name: str, lie: str, caplog: Any) -> None:
    with caplog.at_level("WARNING", logger="flwr"):
        result = STRATEGIES[name]().start(lying(lie), toy_model(), num_rounds=3)
    assert 0.0 < result.arrays["w"].numpy()[0] < 1.2
    assert len(result.evaluate_metrics_clientapp) == 3
    refused = [r.getMessage() for r in caplog.records if "goes on without a reply" in r.getMessage()]
    assert len(refused) >= 3
    assert all(f"{name} goes on without a reply: client {FIRST_NODE + 4}: " in line for line in refused)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_client_that_raises_costs_its_own_answer(name: str) -> None:
    result = STRATEGIES[name]().start(toy_grid(6, {0: Fault("raising")}), toy_model(), num_rounds=3)
    assert len(result.train_metrics_clientapp) == 3
    assert 0.5 < result.arrays["w"].numpy()[0] < 1.2


@pytest.mark.parametrize("name", STRATEGIES)
def test_clients_that_report_no_loss_are_named(name: str) -> None:
    with pytest.raises(ConfigError, match=r"'auc' in the metrics of @app\.train"):
        STRATEGIES[name](loss="auc").start(toy_grid(3), toy_model(), num_rounds=1)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        *(("FedEx", {n: v}, n) for n, v in (
            ("configs", []), ("step_size", "fast"), ("discount", 2.0), ("num_configs", 0), ("radius", -1))),
        *(("FedPop", {n: v}, n) for n, v in (
            ("num_configs", 0), ("every", 0), ("quantile", 0.6), ("width", -1), ("num_rounds", 0))),
        *(("Personal", {"algorithm": a}, f"agents go on alone.*{w}") for a, w in (
            ("dp-fts", "dp-fts"), (make_algorithm("co-kg", {}), "co-kg"), ("pf-pne", ""))),
        ("Personal", {"algorithm": "fed-eye"}, "fed-ei"),
        ("Personal", {"algorithm": 3}, "algorithm"),
        ("Personal", {"bounds": (1, 0)}, "bounds"),
        ("Personal", {"space": {"x": 1}}, "space"),
        ("Personal", {"strategy": None}, "strategy"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_named(name: str, changes: dict[str, Any], words: str) -> None:
    kind = {"FedEx": FedEx, "FedPop": FedPop, "Personal": Personal}[name]
    with pytest.raises(ConfigError, match=words):
        kind(**{"strategy": fedavg({}), "space": CLIENTS, **changes})
