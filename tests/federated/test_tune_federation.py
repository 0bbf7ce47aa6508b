"""`tune_federation` over an in-process grid, with an app whose training can be computed by hand."""

import numpy as np
import pytest
from flwr.app import MetricRecord
from flwr.serverapp.strategy import FedAvg, FedProx
from toy_federation import SPACE, fedavg, toy_app, toy_grid, toy_model, tune_flat

from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.federated import LegacyClients, Population, TunedFederation
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.trackers import Callback


def tune(grid=None, build=fedavg, **changes):
    arguments = {"rounds": 4, "num_trials": 6, "initial_arrays": toy_model(), "number": 4}
    return tune_flat(grid or toy_grid(4), build, changes.pop("space", SPACE), **{**arguments, **changes})


def test_the_curve_of_a_trial_is_that_of_the_strategy_computed_by_hand():
    result = tune(schedule="none", num_trials=2)
    centres = 1.0 + 0.1 * (np.arange(4) - 1.5)
    for trial in result.trials:
        rate, model, expected = trial["config"]["learning-rate"], 0.0, []
        for _ in range(4):
            model = float(np.mean(model + rate * (centres - model)))  # FedAvg of the clients' models
            expected.append(np.mean(1 - (model - centres) ** 2))
        np.testing.assert_allclose(result.curve(trial["trial"]), expected, rtol=1e-12)
    assert result.client_rounds == 2 * 4 * 4
    assert result.trials["state"].tolist() == ["finished", "finished"]


def test_the_configuration_reaches_the_clients_and_nothing_else_changes():
    seen = []
    result = tune(
        InProcessGrid(toy_app(seen), 4),
        lambda config: FedProx(proximal_mu=config["learning-rate"], min_available_nodes=1),
        num_trials=3, schedule="none", rounds=2,
        train_config={"local-epochs": 3}, evaluate_config={"split": "test"},
    )  # fmt: skip
    rates = [trial["config"]["learning-rate"] for trial in result.trials]
    rounds = [(rate, number) for rate in rates for number in (1, 2) for _ in range(4)]
    assert [config for _, kind, config in seen if kind == "train"] == [
        {"local-epochs": 3, "learning-rate": rate, "proximal-mu": rate, "server-round": number}
        for rate, number in rounds
    ]
    evaluated = [(c["learning-rate"], c["split"]) for _, kind, c in seen if kind == "evaluate"]
    assert evaluated == [(rate, "test") for rate, _ in rounds]


def test_side_by_side_every_client_trains_one_trial_per_round_and_meets_all():
    places, seen = 4, []
    given = {"num_parallel": places, "num_trials": places, "schedule": "none", "rounds": 4, "number": 8}
    result = tune(InProcessGrid(toy_app(seen), 8), **given)
    trained = [(node, config) for node, kind, config in seen if kind == "train"]
    assert len(trained) == 4 * 8  # every client once in each round
    for trial in result.trials:
        rate = trial["config"]["learning-rate"]
        nodes = [node for node, config in trained if config["learning-rate"] == rate]
        counts = np.bincount(nodes, minlength=8)
        assert counts.min() == counts.max() == 4 // places
    assert (result.curves["stddev"] > 0).all()  # the clients' own spread


def test_finalists_are_judged_by_all_clients():
    result = tune(num_parallel=2, finalists=2, num_trials=4)
    judged = result.trials["on_all_clients"]
    assert np.isfinite(judged).sum() == 2
    model = result.best_arrays["w"].numpy()[0]
    centres = 1.0 + 0.1 * (np.arange(4) - 1.5)
    assert result.best_value == pytest.approx(np.mean(1 - (model - centres) ** 2))
    assert result.best_value == np.nanmax(judged)


def test_trials_may_be_judged_by_all_clients_in_every_round():
    result = tune(num_parallel=2, evaluate_on="all", num_trials=2, schedule="none")
    assert set(result.curves["evaluated"].tolist()) == {4}
    assert set(result.curves["asked"].tolist()) == {2}
    assert set(result.curves["stddev"].tolist()) == {0.0}


def test_no_round_begins_after_the_budget():
    result = tune(budget=50, num_trials=None)
    assert 50 <= result.client_rounds < 50 + 4
    assert result.client_rounds == sum(result.curves["asked"])
    without = tune(num_trials=None, rounds=1, proposals="random")
    assert len(without.trials) == 20


def test_the_same_seed_gives_the_same_trials_and_the_strategys_own_sampling():
    def build(config):
        return FedAvg(fraction_train=0.5, fraction_evaluate=0.5, min_available_nodes=2)

    first, second, other = (tune(build=build, seed=seed) for seed in (1, 1, 2))
    assert (first.trials, first.curves) == (second.trials, second.curves)
    assert first.trials != other.trials


@pytest.mark.parametrize("schedule", ["halving", "hyperband"])
def test_a_schedule_comes_to_an_end_with_a_whole_run(schedule, caplog):
    caplog.set_level("INFO", "flwr")
    result = tune(schedule=schedule, num_trials=7, eta=2, num_parallel=2)
    assert any("trial 1, round 1/4: accuracy" in line and "best" in line for line in caplog.messages)
    assert "finished" in result.trials["state"].tolist()
    assert len(result.trials) == 7


def test_the_result_is_saved_and_loaded(tmp_path):
    result = tune(out=tmp_path)
    loaded = TunedFederation.load(tmp_path)
    assert (loaded.trials, loaded.curves, loaded.settings) == (result.trials, result.curves, result.settings)
    assert loaded.best_config == result.best_config
    np.testing.assert_array_equal(loaded.best_arrays["w"].numpy(), result.best_arrays["w"].numpy())
    assert loaded.to_dataframe()["config.learning-rate"].between(0.01, 1.0).all()
    (tmp_path / "curves.csv").write_text("nothing")
    with pytest.raises(ConfigError, match="expected the files of"):
        TunedFederation.load(tmp_path)


# failures


def test_a_trial_whose_strategy_raises_fails_alone():
    def build(config):
        strategy = fedavg(config)
        if config["learning-rate"] < 0.5:
            strategy.aggregate_train = None
        return strategy

    result = tune(build=build, num_trials=8)
    for trial in result.trials:
        failed = trial["config"]["learning-rate"] < 0.5
        assert (trial["state"] == "failed", "aggregate_train: TypeError" in trial["failure"]) == (
            failed,
            failed,
        )
    assert result.best_config["learning-rate"] >= 0.5


def test_a_trial_whose_metric_is_not_finite_has_diverged_and_fails_alone():
    def loss(server_round, arrays):
        value = float(arrays["w"].numpy()[0])
        return MetricRecord({"loss": value if value > 0.5 else float("nan")})

    result = tune(metric="loss", minimize=True, evaluate_fn=loss, num_trials=8, rounds=1)
    failed = result.trials.where(state="failed")
    assert 0 < len(failed) < 8
    assert set(failed["failure"].tolist()) == {"diverged: loss is nan"}
    assert result.best_value > 0.5


def test_if_every_trial_fails_the_error_says_why():
    with pytest.raises(ObjectiveError, match="planted fault"):
        tune(toy_grid(4, {i: Fault("raising") for i in range(4)}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metric": "auc"}, "'auc'.*got accuracy"),
        ({"build": lambda c: FedAvg(min_available_nodes=1, fraction_evaluate=0)}, "got val-loss; return it"),
        ({"schedule": "ahsa"}, "schedule: expected one of .*; did you mean asha"),
        ({"schedule": Population(size=4, every=2)}, "num_trials"),
        *(({"bounds": wrong}, "bounds") for wrong in ((1.0, 0.0), (0.0,), "ab", (float("nan"), 1.0))),
        ({"callbacks": [Callback]}, "callbacks: expected functions"),
        ({"build": fedavg({})}, "build: expected a function"),
        ({"build": lambda config: None}, "strategy: expected .*got None"),
        ({"initial_arrays": [np.zeros(3)]}, r"initial_arrays: .*got a list; pass ArrayRecord\(LIST\)"),
        ({"number": 9, "wait_seconds": 0.1}, "expected 9, only 4"),
        ({"build": lambda config: FedAvg(min_available_nodes=3), "num_parallel": 2}, "num_parallel"),
        ({"train_config": {"x": object()}}, "config"),
        ({"by": "median", "metric": "loss", "evaluate_fn": lambda r, a: {"loss": 1.0}}, 'by="mean"'),
    ],
)
def test_mistakes_are_named(changes, words):
    with pytest.raises(ConfigError, match=words):
        tune(**changes)


def test_a_simulation_with_too_few_nodes_says_so_at_once():
    simulation = type("InMemoryGrid", (InProcessGrid,), {})(toy_app(), 2)  # as Flower's is named
    for grid in (simulation, LegacyClients(simulation)):
        with pytest.raises(ConfigError, match="expected 10, the simulation has 2 nodes; add"):
            tune(grid, number=10)
