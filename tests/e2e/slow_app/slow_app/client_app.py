"""Agents that note beginning, process and end of an evaluation in the file `traces` of `node_config`."""

import os
import time

from fbo_flower import Float, SearchSpace
from fbo_flower.clients import client_app


def objective(config, context) -> float:
    value = -((config["x"] - 0.1 * context.partition - 0.3) ** 2) + 0.01 * float(context.rng.normal())
    if "traces" in context.node_config:
        with open(context.node_config["traces"], "a", encoding="utf-8") as file:
            print("begin", context.trial, os.getpid(), file=file, flush=True)
            time.sleep(context.node_config.get("seconds", 0))
            print("end", context.trial, value, file=file, flush=True)
    return value


space = SearchSpace({"x": Float(0, 1)})
app = client_app(objective, space, seed=5, disclose="trials")
