"""A population of federations: the worst take over models and settings of the best."""

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvgM
from toy_federation import fedavg, toy_app, toy_model, tune_flat

from fbo_flower import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.federated import Population, cooled, exploit, perturbed
from fbo_flower.federated.state import in_common, restore, state_of
from fbo_flower.simulation.grids import InProcessGrid

MIXED = SearchSpace({
    "rate": Float(1e-3, 1.0, log=True),
    "epochs": Int(1, 5),
    "batch": Ordinal([8, 16, 32]),
    "kind": Categorical(["a", "b"]),
})  # fmt: skip


# the steps of evolution


def test_a_change_is_at_most_one_step_in_every_parameter():
    rng = np.random.default_rng(0)
    start = {"rate": 0.03, "epochs": 3, "batch": 16, "kind": "a"}
    point = MIXED.snap(MIXED.encode(start)[None])[0]
    seen = [MIXED.decode(perturbed(MIXED, point, 0.1, rng)) for _ in range(600)]
    logs = np.log10([config["rate"] for config in seen]) - np.log10(0.03)
    assert 0.29 < np.abs(logs).max() <= 0.1 * 3 + 1e-9  # a tenth of three decades
    assert logs.std() == pytest.approx(0.3 / 3**0.5, rel=0.1)  # uniform
    values, counts = np.unique([config["epochs"] for config in seen], return_counts=True)
    assert values.tolist() == [2, 3, 4]
    assert counts / 600 == pytest.approx(1 / 3, abs=0.07)  # each with probability 1/3
    assert {config["batch"] for config in seen} == {8, 16, 32}
    share = np.mean([config["kind"] == "b" for config in seen])
    assert share == pytest.approx(1 / 6, abs=0.06)  # drawn anew in a third of all changes


def test_the_worst_copy_the_best():
    rng = np.random.default_rng(0)
    losses = np.array([0.5, 0.1, 0.9, 0.3, 0.2, 0.8, 0.4])
    for _ in range(20):
        copies = exploit(losses, 0.3, rng)
        assert copies.keys() == {2, 5, 0}  # ceil(0.3 * 7) = 3
        assert set(copies.values()) <= {1, 4, 3}
    assert exploit(np.array([0.1, np.inf, 0.3, np.inf, 0.2]), 0.3, rng).keys() == {1, 3}
    assert exploit(np.array([np.nan, 0.1, 0.4, np.nan]), 0.3, rng) == {2: 1}
    assert exploit(np.array([np.inf, np.inf]), 0.3, rng) == {}
    assert exploit(np.array([0.3]), 0.5, rng) == {}


def test_the_width_falls_as_a_cosine():
    assert [round(cooled(2.0, t, 4), 12) for t in (0, 2, 4, 9)] == [2.0, 1.0, 0.0, 0.0]


# whole runs

SERVER = SearchSpace({"learning-rate": Float(0.01, 1.0), "server-learning-rate": Float(0.1, 1.0)})


def build(config):
    return FedAvgM(
        min_available_nodes=1, min_train_nodes=1, min_evaluate_nodes=1, server_momentum=0.5,
        server_learning_rate=config["server-learning-rate"],
    )  # fmt: skip


def tune(seen=None, make=build, **changes):
    arguments = {
        "rounds": 6, "schedule": Population(size=4, every=2), "initial_arrays": toy_model(), "number": 4,
    }  # fmt: skip
    grid = InProcessGrid(toy_app(seen), 4)
    return tune_flat(grid, make, SERVER, **{**arguments, **changes})


def test_the_first_value_of_a_copy_is_that_of_its_parents_model_and_its_own_settings():
    result = tune(make=fedavg)
    centres = 1.0 + 0.1 * (np.arange(4) - 1.5)
    models = {}
    for trial in result.trials:
        points = result.curves.where(trial=trial["trial"])["round"].tolist()
        model = 0.0 if trial["parent"] < 0 else models[trial["parent"]][points[0] - 1]
        rate, models[trial["trial"]] = trial["config"]["learning-rate"], {}
        for server_round, value in zip(points, result.curve(trial["trial"]), strict=True):
            model = float(np.mean(model + rate * (centres - model)))
            models[trial["trial"]][server_round] = model
            assert value == pytest.approx(float(np.mean(1 - (model - centres) ** 2)), rel=1e-9)


def test_a_copy_takes_over_momentum_and_not_the_learning_rate():
    old, fresh = build({"server-learning-rate": 0.2}), build({"server-learning-rate": 0.7})
    old.momentum_vector = [np.ones(3)]
    arrays, form = state_of(old)
    restore(fresh, arrays, in_common(build({"server-learning-rate": 0.2}), fresh, form))
    assert fresh.server_learning_rate == 0.7
    np.testing.assert_array_equal(fresh.momentum_vector[0], np.ones(3))


def test_a_member_that_fails_is_replaced():
    def make(config):
        strategy = build(config)
        if config["learning-rate"] < 0.5:
            strategy.aggregate_train = None
        return strategy

    result = tune(make=make, schedule=Population(size=6, every=2), num_parallel=2)
    assert "failed" in result.trials["state"].tolist()
    assert result.best_config["learning-rate"] >= 0.5


def test_a_population_is_resumed_with_the_same_settings_only(tmp_path):
    whole = tune()
    journal = {"journals": tmp_path, "resume": True}
    part = tune(budget=40, **journal)
    assert part.client_rounds < whole.client_rounds
    assert tune(**journal).trials == whole.trials
    with pytest.raises(Exception, match="size was"):
        tune(schedule=Population(size=5, every=2), **journal)
