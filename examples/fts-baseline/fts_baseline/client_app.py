"""The agent: it scores a configuration on the node's own rows."""

from functools import lru_cache

from fbo_flower import client_app
from fts_baseline.dataset import load
from fts_baseline.model import SPACE, accuracy

_data = lru_cache(load)


def objective(config: dict, context) -> float:
    return accuracy(config, _data(context.partition, int(context.node_config["num-partitions"])))


app = client_app(objective, SPACE)
