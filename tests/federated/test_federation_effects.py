"""Apps that read the run config, misspelt names, and metrics of every shape."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from fbo_flower import Categorical, Float, Int, SearchSpace, tune_federation
from fbo_flower.errors import ConfigError
from fbo_flower.federated import Clients, Judge, Run, Search, TunedFederation, tuned_run_config
from fbo_flower.federated.run_config import NotedDict, as_own
from fbo_flower.simulation.grids import InProcessGrid

OWN = {"learning-rate": 0.01, "local-epochs": 1, "nesterov": False, "penalty": "none", "params.eta": 1}
SPACE = {"learning-rate": Float(0.05, 0.9), "local-epochs": Int(1, 4)}


def an_app(seen=None, mods=(), from_message=()):
    """Return an app that reads its values from the run config, but for the names in `from_message`."""
    app = ClientApp(mods=list(mods))

    def read(message, context):
        config = {n: message.content["config"].get(n, OWN[n]) for n in from_message}
        config |= {name: context.run_config[name] for name in OWN if name not in config}
        if seen is not None:
            seen.append((message.metadata.message_type, config))
        return config

    def answer(message, weights, name):
        loss = float(np.mean((1.0 - weights) ** 2))
        metrics = {"num-examples": 5, name: [9.0, loss], f"{name}-last": loss}
        records = {"arrays": ArrayRecord({"w": Array(weights)}), "metrics": MetricRecord(metrics)}
        if name == "loss":
            del records["arrays"]
        return Message(RecordDict(records), reply_to=message)

    @app.train()
    def train(message, context):
        config, weights = read(message, context), message.content["arrays"].to_numpy_ndarrays()[0]
        for _ in range(config["local-epochs"]):
            weights = weights + config["learning-rate"] * (1.0 - weights)
        return answer(message, weights, "train-loss")

    @app.evaluate()
    def evaluate(message, context):
        read(message, context)
        return answer(message, message.content["arrays"].to_numpy_ndarrays()[0], "loss")

    return app


def run_of(config, **given):
    more = {name: given.pop(name) for name in ("evaluate_fn", "train_config") if name in given}
    strategy = FedAvg(min_available_nodes=2, **given)
    return Run(strategy, ArrayRecord({"w": Array(np.zeros(2))}), **more)


def tune(app, space=SPACE, metric="loss[-1]", build=run_of, **given):
    grid, judge = InProcessGrid(app, 4, run_config=OWN), Judge(minimize=True, **given)
    search, space = Search(num_trials=5, num_initial=5), SearchSpace(space)
    clients = Clients(4)
    return tune_federation(grid, build, space, metric, rounds=2, search=search, judge=judge, clients=clients)


def warned(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_client_that_reads_the_run_config_is_tuned_with_one_mod(caplog):
    seen = []
    space = {**SPACE, "nesterov": Categorical([True, False]), "penalty": Categorical(["l1", "l2"])}
    tuned = tune(an_app(seen, [tuned_run_config]), space)
    assert tuned.best_value < 0.1
    assert not tuned.without_effect
    configs = [trial["config"] for trial in tuned.trials]
    assert {kind for kind, _ in seen} == {"train", "evaluate"}
    for _, config in seen:
        assert {name: config[name] for name in space} in configs, "in both half-rounds"
        assert config["params.eta"] == 1
        assert {name: type(value) for name, value in config.items()} == {n: type(v) for n, v in OWN.items()}
    assert not [line for line in warned(caplog) if "effect" in line or "read" in line]


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_equal_results_are_warned_of_once_and_named_in_the_result(fraction, caplog, tmp_path):
    tuned = tune(an_app(), build=lambda config: run_of(config, fraction_train=fraction))
    assert tuned.without_effect == ["learning-rate", "local-epochs"]
    assert "without effect: learning-rate, local-epochs" in str(tuned)
    (line,) = [line for line in warned(caplog) if "effect" in line]
    assert "3 pairs" in line
    assert "tuned_run_config" in line
    tuned.save(tmp_path)
    assert TunedFederation.load(tmp_path).without_effect == tuned.without_effect


def test_a_misspelt_name_is_found_out_though_another_parameter_works(caplog):
    space = {"learning-rate": Float(0.05, 0.9), "local_epochs": Int(1, 4)}
    tuned = tune(an_app(mods=[tuned_run_config], from_message=["learning-rate"]), space)
    assert tuned.without_effect == ["local_epochs"]
    (line,) = [line for line in warned(caplog) if line.startswith("local_epochs")]
    assert "did you mean local-epochs?" in line


def test_what_the_server_reads_has_an_effect_and_so_has_what_is_discrete():
    def build(config):
        return Run(FedAvg(min_available_nodes=2), ArrayRecord({"w": Array(np.full(2, config["weight"]))}))

    assert not tune(an_app(mods=MOD), {"weight": Float(0.1, 1)}, build=build).without_effect
    space = {"local-epochs": Int(1, 2), "momentum": Float(0, 1)}
    assert tune(an_app(from_message=["local-epochs"]), space).without_effect == ["momentum"]


@pytest.mark.parametrize(
    ("own", "value", "expected"),
    [
        (3, 2.0, 2), (3, 2.5, 2.5), (3, True, 1), (0.1, 1, 1.0), (0.1, "auto", "auto"), (True, 0, False),
        (True, 1.0, True), (True, "false", False), (True, "no", "no"), ("3", 5, "5"), ("x", True, "true"),
        (1, 0.5, 0.5), ("l2", "l1", "l1"), (False, 3, 3),
    ],
)  # fmt: skip
def test_a_value_keeps_the_type_of_the_run_config(own, value, expected):
    found = as_own(own, value)
    assert (found, type(found)) == (expected, type(expected))


def test_who_reads_a_dict_as_a_whole_reads_all_of_it():
    for reads in (lambda noted: noted.items(), lambda noted: {**noted}):
        reads(NotedDict({"a": 1, "b": 2}, read := set()))
        assert read == {"a", "b"}


MOD = [tuned_run_config]


@pytest.mark.parametrize(
    ("metric", "build", "by"),
    [
        ("loss[1]", run_of, "median"),
        (lambda m: m["loss"][-1] + 0.0 * m["train-loss-last"], run_of, "mean"),
        (lambda m: m["loss"][-1], run_of, "median"),
        ("train-loss[-1]", lambda c: run_of(c, fraction_evaluate=0.0), "median"),
        ("server[0]", lambda c: run_of(c, evaluate_fn=lambda r, a: {"server": [_loss(a)]}), "mean"),
        ("own", lambda c: run_of(c, evaluate_metrics_aggr_fn=_aggregated), "mean"),
        ("own", lambda c: run_of(c, fraction_evaluate=0.0, train_metrics_aggr_fn=_aggregated), "mean"),
    ],
)
def test_metrics_as_flower_allows_them(metric, build, by):
    assert tune(an_app(mods=MOD), metric=metric, build=build, by=by).best_value < 0.1


def _loss(arrays):
    return float(np.mean((1.0 - arrays["w"].numpy()) ** 2))


def _aggregated(contents, weighted_by):
    records = [next(iter(content.metric_records.values())) for content in contents]
    name = next(name for name in records[0] if name.endswith("loss-last"))
    return MetricRecord({"own": float(np.mean([record[name] for record in records]))})


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("loss", r"'loss'.*got .*loss \(a list of 2 numbers: choose 'loss\[-1\]'\)"),
        ("loss[2]", r"'loss\[2\]'.*loss-last"),
        (lambda metrics: metrics["nope"], r"KeyError: 'nope'.*loss-last"),
        (lambda metrics: metrics["loss"], "expected a number, got a list"),
        (3, "metric: expected the name"),
    ],
)
def test_a_metric_that_is_not_there_is_named_with_what_is(metric, words):
    with pytest.raises(ConfigError, match=words) as caught:
        tune(an_app(mods=MOD), metric=metric)
    assert "\n" not in str(caught.value)
