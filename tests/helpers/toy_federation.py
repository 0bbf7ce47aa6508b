"""A small Flower app whose federated training can be computed by hand, for tests of `fbo_flower.federated`.

Client `i` holds the point `centres[i]`. Training moves the model toward it by the configured learning rate;
the score of a model is `1 - (distance to the client's point)^2`. So FedAvg's model moves toward the mean of
the points, and a learning rate of 1 is the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, Strategy

from fbo_flower import Float, SearchSpace
from fbo_flower.federated import Clients, Judge, Keep, Run, Search, TunedFederation, tune_federation
from fbo_flower.federated.state import Checkpoints
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.storage.store import Store

SPACE = SearchSpace({"learning-rate": Float(0.01, 1.0)})


def toy_app(seen: list[tuple[int, str, dict[str, Any]]] | None = None, spread: float = 0.1) -> ClientApp:
    """Return the app; `seen` gets (partition, kind, config) of every message."""
    app = ClientApp()

    def centre(context: Context) -> float:
        node, number = context.node_config["partition-id"], context.node_config["num-partitions"]
        return 1.0 + spread * (int(node) - (int(number) - 1) / 2)

    def note(kind: str, message: Message, context: Context) -> None:
        if seen is not None:
            config = dict(message.content["config"])  # type: ignore[arg-type]
            seen.append((int(context.node_config["partition-id"]), kind, config))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        note("train", message, context)
        model = message.content["arrays"].to_numpy_ndarrays()[0]  # type: ignore[union-attr]
        rate = message.content["config"]["learning-rate"]  # type: ignore[index]
        moved = model + rate * (centre(context) - model)  # type: ignore[operator]
        loss = float((moved[0] - centre(context)) ** 2)
        metrics = MetricRecord({"num-examples": 10, "val-loss": loss})
        content = RecordDict({"arrays": ArrayRecord({"w": Array(moved)}), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        note("evaluate", message, context)
        model = message.content["arrays"].to_numpy_ndarrays()[0]  # type: ignore[union-attr]
        score = 1.0 - float((model[0] - centre(context)) ** 2)
        content = RecordDict({"metrics": MetricRecord({"num-examples": 10, "accuracy": score})})
        return Message(content, reply_to=message)

    return app


def toy_grid(num_clients: int = 4, faults: Mapping[int, Fault] | None = None, **kwargs: Any) -> InProcessGrid:
    return InProcessGrid(toy_app(**kwargs), num_clients, faults=faults)


def toy_model() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(3))})


def fedavg(config: Mapping[str, Any]) -> Strategy:
    return FedAvg(min_available_nodes=1, min_train_nodes=1, min_evaluate_nodes=1)


def fedadam(config: Mapping[str, Any]) -> Strategy:
    return FedAdam(min_available_nodes=1, min_train_nodes=1, min_evaluate_nodes=1, eta=0.2)


BUILDERS: dict[str, Callable[[Mapping[str, Any]], Strategy]] = {"fedavg": fedavg, "fedadam": fedadam}


def tune_flat(grid: Any, build: Any, space: Any, metric: str = "accuracy", **flat: Any) -> TunedFederation:
    """Call `tune_federation` with the fields of its groups given flat.

    `build` returns a strategy; the other fields of a `Run` are given here, and may be functions of the
    configuration. `on_round` is a function for the callbacks.
    """
    given = {name: flat.pop(name) for name in RUN & flat.keys()}

    def built(config: Any) -> Run:
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
def watched_writes(at: Callable[[str, bool], None]) -> Iterator[None]:
    """Call `at(what, done)` before and after every write of a "journal" or a "checkpoint"."""
    transaction, write = Store.transaction, Checkpoints._write

    @contextmanager
    def watched_transaction(self: Store) -> Iterator[None]:
        with transaction(self):
            yield
            at("journal", False)
        at("journal", True)

    def watched_write(self: Checkpoints, path: Path, *content: Any) -> None:
        at("checkpoint", False)
        write(self, path, *content)
        at("checkpoint", True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "transaction", watched_transaction)
        patch.setattr(Checkpoints, "_write", watched_write)
        yield


RUN = {"initial_arrays", "train_config", "evaluate_config", "evaluate_fn"}
