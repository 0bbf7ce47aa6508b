"""A small federation in this process: agents that climb a hill, and the strategies that ask them."""

import logging
from contextlib import contextmanager

from fbo_flower.clients import client_app
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Float, SearchSpace

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
EVER = range(1, 100_000)
_OF_THE_GRID = ("faults", "node_configs", "run_config")


def hill(config, context):
    return 0.9 - (config["x"] - 0.3) ** 2 - config["y"] ** 2


def agents(count=3, objective=hill, *, journals=None, grid=InProcessGrid, **given):
    """Return a grid of agents that disclose their trials.

    Parameters
    ----------
    journals : directory of the agents' journals
    given : arguments of the grid and of `client_app`
    """
    of_grid = {name: given.pop(name) for name in _OF_THE_GRID if name in given}
    if journals is not None:
        own = of_grid.get("node_configs") or {}
        files = {n: {"journal": str(journals / f"agent-{n}.db")} for n in range(count)}
        of_grid["node_configs"] = {n: {**files[n], **own.get(n, {})} for n in range(count)}
    app = client_app(objective, **{"space": SPACE, "seed": 1, "disclose": "trials", **given})
    return grid(app, count, **of_grid)


class Recording(InProcessGrid):
    """Keeps the messages to agents and their replies, as they pass."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.sent, self.replies = [], []

    def push_messages(self, messages):
        self.sent += (messages := list(messages))
        return super().push_messages(messages)

    def pull_messages(self, message_ids):
        self.replies += (found := list(super().pull_messages(message_ids)))
        return found

    @property
    def contents(self):
        return [message.content for message in (*self.sent, *self.replies) if not message.has_error()]


@contextmanager
def log_lines(level=logging.INFO):
    """Collect what Flower's logger says."""
    lines: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("flwr"), Keeping(level)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
