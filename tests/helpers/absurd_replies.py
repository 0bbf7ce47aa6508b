"""Clients whose replies are well-formed, finite and absurd."""

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from toy_federation import toy_grid

from fbo_flower.simulation.grids import Fault


def changed(**metrics):
    def change(content):
        for name, record in list(content.metric_records.items()):
            known = {key: value for key, value in metrics.items() if key in record or key == "extra"}
            content[name] = MetricRecord({**record, **known})

    return change


def with_array(value):
    def change(content):
        if "arrays" in content:
            content["arrays"] = ArrayRecord({"w": Array(value)})

    return change


ABSURD = {
    "a loss of 1e308": changed(**{"val-loss": 1e308, "accuracy": 1e308}),
    "a loss of -1e308": changed(**{"val-loss": -1e308, "accuracy": -1e308}),
    "1e18 rows": changed(**{"num-examples": 10**18}),
    "another metric": changed(extra=1.0),
    "arrays of 1e308": with_array(np.full(3, 1e308)),
    "arrays of float16": with_array(np.zeros(3, dtype=np.float16)),
}


def lying(*lies):
    """Return a grid of four honest clients, and one for each lie."""

    def fault(lie):
        return Fault("malformed", change=lambda content: ABSURD[lie](content) or content)

    return toy_grid(4 + len(lies), dict(enumerate(map(fault, lies), start=4)))
