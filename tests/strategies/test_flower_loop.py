"""Flower's own loop runs every strategy, and makes the trials of ours; see also `test_every_algorithm`."""

import numpy as np
import pytest
from federation import agents
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import Result, Strategy

from fbo_flower.errors import ConfigError
from fbo_flower.strategies import FTS, STRATEGIES

SMALL = {"num_features": 12, "num_candidates": 32, "num_path_features": 16}
SECURE = {"lengthscale": "federated", "secure_sums": 3, "num_candidates": 32, "num_path_features": 16}
BOTH_LOOPS = pytest.mark.parametrize("start", [FTS.start, Strategy.start], ids=["ours", "theirs"])


def fts(seed=3, **options):
    return FTS(num_agents=4, seed=seed, **(options or SMALL))


def test_both_loops_return_the_same_arrays_and_metrics():
    """Our loop understands the positional call of a Flower user."""
    ours, theirs = (
        start(fts(**SECURE), agents(4), ArrayRecord(), 4, 3600, ConfigRecord(), ConfigRecord(), None)
        for start in (FTS.start, Strategy.start)
    )
    assert isinstance(ours, Result)
    assert ours.train_metrics_clientapp == theirs.train_metrics_clientapp
    assert ours.evaluate_metrics_clientapp == theirs.evaluate_metrics_clientapp
    assert [m["evaluations"] for m in theirs.train_metrics_clientapp.values()] == [12, 4, 4, 4]
    assert theirs.train_metrics_clientapp[4]["best"] <= 1.0
    assert list(theirs.evaluate_metrics_clientapp) == [1], "the only sum, of the first round"
    assert theirs.evaluate_metrics_clientapp[1]["replies"] == 8
    arrays = [{n: a.numpy().tolist() for n, a in result.arrays.items()} for result in (ours, theirs)]
    assert arrays[0] == arrays[1]
    assert ours.arrays["weights"].shape == (4, 100)


@BOTH_LOOPS
def test_the_arrays_of_a_study_are_the_start_of_another(start):
    earlier = fts().start(agents(4), num_rounds=4)
    strategy = fts(4)
    start(strategy, agents(4), earlier.arrays, 2)
    assert len(strategy._rounds.run.server.state.messages) == 8, "4 of the earlier study, 4 of this one"


@BOTH_LOOPS
def test_evaluate_fn_is_called_before_the_first_round_and_after_each(start):
    seen = []

    def evaluate_fn(server_round, arrays):
        seen.append((server_round, sorted(arrays)))
        return MetricRecord({"number": server_round})

    result = start(fts(), agents(4), ArrayRecord(), 2, evaluate_fn=evaluate_fn)
    names = ["frequencies", "phases", "weights"]
    assert seen == [(0, []), (1, names), (2, names)]
    assert [m["number"] for m in result.evaluate_metrics_serverapp.values()] == [0, 1, 2]


def test_a_second_start_within_flowers_loop_is_a_study_of_its_own():
    strategy, found = fts(), []
    for _ in range(2):
        Strategy.start(strategy, agents(4), ArrayRecord(), num_rounds=2)
        found.append(strategy.study.trials)
    assert found[0] == found[1]


def test_what_flower_passes_and_tuning_cannot_use_is_refused():
    with pytest.raises(ConfigError, match="initial_arrays: expected an ArrayRecord, got 25"):
        fts().start(agents(4), 25)
    with pytest.raises(ConfigError, match="train_config: expected none, got lr"):
        Strategy.start(fts(), agents(4), ArrayRecord(), 2, train_config=ConfigRecord({"lr": 0.1}))
    model = ArrayRecord({"w": Array(np.zeros(3))})
    with pytest.raises(ConfigError, match="warm_start: expected an algorithm that keeps messages"):
        STRATEGIES["random"](num_agents=4, seed=3).start(agents(4), model, 2)
    with pytest.raises(ConfigError, match="expected a running study"):
        fts().finish(agents(4))
