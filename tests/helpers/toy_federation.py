"""A small Flower app whose federated training can be computed by hand, for tests of `fbo_flower.federated`.

Client `i` holds the point `centres[i]`. Training moves the model toward it by the configured learning rate;
the score of a model is `1 - (distance to the client's point)^2`. So FedAvg's model moves toward the mean of
the points, and a learning rate of 1 is the best.
"""

from contextlib import contextmanager
from dataclasses import fields

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg

from fbo_flower import Float, SearchSpace
from fbo_flower.federated import Clients, Judge, Keep, Run, Search, tune_federation
from fbo_flower.federated.state import Checkpoints
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.storage.store import Store

SPACE = SearchSpace({"learning-rate": Float(0.01, 1.0)})


def toy_app(seen=None, spread=0.1, mods=()):
    """Return the app; `seen` gets (partition, kind, config) of every message."""
    app = ClientApp(mods=list(mods))

    def centre(context):
        node, number = context.node_config["partition-id"], context.node_config["num-partitions"]
        return 1.0 + spread * (int(node) - (int(number) - 1) / 2)

    def note(kind, message, context):
        if seen is not None:
            config = dict(message.content["config"])
            seen.append((int(context.node_config["partition-id"]), kind, config))

    @app.train()
    def train(message, context):
        note("train", message, context)
        model = message.content["arrays"].to_numpy_ndarrays()[0]
        rate = message.content["config"]["learning-rate"]
        moved = model + rate * (centre(context) - model)
        loss = float((moved[0] - centre(context)) ** 2)
        metrics = MetricRecord({"num-examples": 10, "val-loss": loss})
        content = RecordDict({"arrays": ArrayRecord({"w": Array(moved)}), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        note("evaluate", message, context)
        model = message.content["arrays"].to_numpy_ndarrays()[0]
        score = 1.0 - float((model[0] - centre(context)) ** 2)
        content = RecordDict({"metrics": MetricRecord({"num-examples": 10, "accuracy": score})})
        return Message(content, reply_to=message)

    return app


def toy_grid(num_clients=4, faults=None, **kwargs):
    return InProcessGrid(toy_app(**kwargs), num_clients, faults=faults)


def toy_model():
    return ArrayRecord({"w": Array(np.zeros(3))})


def fedavg(config):
    return FedAvg(min_available_nodes=1, min_train_nodes=1, min_evaluate_nodes=1)


def fedadam(config):
    return FedAdam(min_available_nodes=1, min_train_nodes=1, min_evaluate_nodes=1, eta=0.2)


def tune_flat(grid, build, space, metric="accuracy", **flat):
    """Call `tune_federation` with the fields of its groups given flat.

    `build` returns a strategy; the other fields of a `Run` are given here, and may be functions of the
    configuration. `on_round` is a function for the callbacks.
    """
    given = {name: flat.pop(name) for name in RUN & flat.keys()}

    def built(config):
        initial = given["initial_arrays"]
        more = {**given, "initial_arrays": initial(config) if callable(initial) else initial}
        return Run(build(config), **more)

    for name, kind in {"search": Search, "judge": Judge, "clients": Clients, "keep": Keep}.items():
        known = {field.name for field in fields(kind)}
        if own := {key: flat.pop(key) for key in known & flat.keys()}:
            flat[name] = kind(**own)
    if "on_round" in flat:
        flat["callbacks"] = [flat.pop("on_round")]
    return tune_federation(grid, built if callable(build) else build, space, metric, **flat)


@contextmanager
def watched_writes(at):
    """Call `at(what, done)` before and after every write of a "journal" or a "checkpoint"."""
    transaction, write = Store.transaction, Checkpoints._write

    @contextmanager
    def watched_transaction(self):
        with transaction(self):
            yield
            at("journal", False)
        at("journal", True)

    def watched_write(self, path, *content):
        at("checkpoint", False)
        write(self, path, *content)
        at("checkpoint", True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "transaction", watched_transaction)
        patch.setattr(Checkpoints, "_write", watched_write)
        yield


RUN = {"initial_arrays", "train_config", "evaluate_config", "evaluate_fn"}
