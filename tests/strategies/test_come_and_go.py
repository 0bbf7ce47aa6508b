"""Nodes join and leave at any time, in both modes."""

from __future__ import annotations

import pytest

from fbo_flower.clients import client_app
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.strategies import STRATEGIES

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
NUM_NODES, ROUNDS = 5, 10
OPTIONS = {"fts": {"num_features": 16}, "fed-ei": {"secure_sums": 0}}


def hill(config, context):
    return 1.0 - (config["x"] - 0.3) ** 2 - config["y"] ** 2


class ComeAndGo(InProcessGrid):
    """A grid whose nodes are connected only between two counts of messages."""

    def __init__(self, app, num_nodes, spans):
        super().__init__(app, num_nodes)
        self.spans, self.pushed = spans, 0

    def get_node_ids(self):
        ids = super().get_node_ids()
        return [n for i, n in enumerate(ids) if self.spans[i][0] <= self.pushed < self.spans[i][1]]

    def push_messages(self, messages):
        listed = list(messages)
        self.pushed += len(listed)
        return super().push_messages(listed)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("algorithm", ["random", "fts", "fed-ei"])
def test_agents_join_and_leave_at_any_time(algorithm, mode):
    app = client_app(hill, SPACE, seed=1, disclose="trials")
    ever = 10**9
    grid = ComeAndGo(app, NUM_NODES, [(0, ever), (0, 12), (9, ever), (14, 24), (0, ever)])
    strategy = STRATEGIES[algorithm](num_agents=3, seed=1, round_timeout=5.0, **OPTIONS.get(algorithm, {}))
    study = strategy.start(grid, num_rounds=ROUNDS, mode=mode).study
    assert len(study.rounds) == ROUNDS
    made = {a: study.trials.where(agent=str(a))["trial"].tolist() for a in range(NUM_NODES)}
    assert all(sorted(trials) == list(range(len(trials))) for trials in made.values())
    # fed-ei begins with two trials and an exchange without one, the others with three trials
    all_rounds = ROUNDS if algorithm == "fed-ei" else ROUNDS + 2
    assert len(made[0]) == len(made[4]) == all_rounds if mode == "sync" else len(made[0]) >= ROUNDS
    assert 3 <= len(made[1]) < len(made[0])
    assert len(made[2]) >= 3
    assert 0 < len(made[3]) < len(made[0])


def test_in_async_mode_an_agent_that_returns_goes_on_where_it_was():
    app = client_app(hill, SPACE, seed=1, disclose="trials")
    grid = InProcessGrid(app, 3, faults={2: Fault("down", rounds=[3, 4, 5])})
    strategy = STRATEGIES["ts"](num_agents=3, seed=1, round_timeout=5.0)
    mine = strategy.start(grid, num_rounds=9, mode="async").study.trials.where(agent="2")
    assert mine["trial"].tolist() == list(range(len(mine)))
    assert max(mine["round"]) >= 8
    assert not {4, 5} & set(mine["round"].tolist())


def test_an_asynchronous_study_goes_on_while_nobody_is_there():
    app = client_app(hill, SPACE, seed=1, disclose="trials")
    grid = InProcessGrid(app, 2, faults={n: Fault("down", rounds=[3]) for n in range(2)})
    strategy = STRATEGIES["random"](num_agents=2, seed=1, round_timeout=1.0)
    assert len(strategy.start(grid, num_rounds=3, mode="async").study.rounds) == 3
