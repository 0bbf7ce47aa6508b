"""An operator's bound on epsilon holds whatever the server asks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fbo_flower.clients import TuningAgent, client_app
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.privacy_account import Account
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.storage.read_ledger import read_ledger
from fbo_flower.strategies import DPFTS, FTS, RandomSearch

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
SMALL = {"num_candidates": 16, "num_path_features": 8, "num_features": 6}
LOCAL = {"noise": "local", "sampling_rate": 1.0, "schedule": 0.5, **SMALL}


class Objective:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, config, context):
        self.calls += 1
        return -((config["x"] - 0.3) ** 2) - config["y"] ** 2


def run(tmp_path, strategy, num_rounds=6, budget=3.0, **settings):
    objective = Objective()
    configs = {n: {"journal": str(tmp_path / f"agent-{n}.db"), "max_epsilon": budget} for n in range(2)}
    grid = InProcessGrid(client_app(objective, SPACE, seed=1), 2, node_configs=configs)
    study = strategy(num_agents=2, seed=0, **settings).start(grid, num_rounds)
    return study, objective


def messages(tmp_path, agent: int) -> int:
    path = tmp_path / f"agent-{agent}.db"
    return sum(row.name == "weights" for row in read_ledger(path).rows) if path.exists() else 0


def test_an_agent_answers_as_long_as_its_budget_lasts(tmp_path):
    run(tmp_path, DPFTS, noise_multiplier=2.0, **LOCAL)
    affordable = max(k for k in range(50) if cost_of(k, 1.0, 2.0) <= 3.0)
    assert 1 <= affordable < 6
    assert messages(tmp_path, 0) == messages(tmp_path, 1) == affordable


def test_the_budget_is_one_for_all_studies(tmp_path):
    run(tmp_path, DPFTS, 2, noise_multiplier=4.0, **LOCAL)
    first = messages(tmp_path, 0)
    assert first == 2
    run(tmp_path, DPFTS, 12, noise_multiplier=4.0, **LOCAL)
    second = messages(tmp_path, 0) - first
    cost = [cost_of(k, 1.0, 4.0) for k in (first, second, second + 1)]
    assert cost[0] + cost[1] <= 3.0 < cost[0] + cost[2]


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        (DPFTS, {**LOCAL, "noise_multiplier": 0.0}),
        (DPFTS, {**SMALL, "noise": "central", "sampling_rate": 1.0, "noise_multiplier": 100.0}),
        (FTS, SMALL),
    ],
)
def test_a_server_that_asks_without_noise_gets_nothing(tmp_path, strategy, settings):
    study, objective = run(tmp_path, strategy, 2, **settings)
    assert objective.calls == 0
    assert np.sum(study.rounds["replies"]) == 0
    assert messages(tmp_path, 0) == 0


def test_algorithms_that_tell_nothing_cost_nothing(tmp_path):
    study, objective = run(tmp_path, RandomSearch, 4)
    assert objective.calls == 2 * 6
    assert np.sum(study.rounds["replies"]) == 8


def test_without_a_budget_nothing_is_counted(tmp_path):
    run(tmp_path, DPFTS, 4, budget=0, noise_multiplier=0.1, **LOCAL)
    assert messages(tmp_path, 0) == 4


def test_a_budget_and_disclosure_do_not_go_together():
    def node(**config):
        return Context(1, 2, {"partition-id": 0, **config}, RecordDict(), {})

    with pytest.raises(ConfigError, match="disclose"):
        TuningAgent(Objective(), SPACE, node(max_epsilon=1.0, disclose="incumbent"))
    for wrong in (-1.0, math.nan, "much"):
        with pytest.raises(ConfigError, match="max_epsilon"):
            TuningAgent(Objective(), SPACE, node(max_epsilon=wrong))


def cost_of(count: int, rate: float, multiplier: float) -> float:
    """Epsilon at delta 1e-3 after equal releases; `tests/numerics` compares the account with exact values."""
    return Account({(multiplier, rate): count}).epsilon(1e-3) if count else 0.0
