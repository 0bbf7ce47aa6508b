"""One trial's Flower strategy, driven round by round: configure, aggregate, and checkpoint in between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore.run import Run as FlowerRun

from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.federated.settings import Run
from fbo_flower.federated.state import Content, decode, encode, from_record, in_common, restore
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.space import Config
from fbo_flower.strategies.exchange import ForwardingGrid

PATIENCE = 10  # times that a strategy may look for more nodes while it configures one half-round


class TrialGrid(ForwardingGrid):
    """A grid with some of another grid's nodes.

    Strategies such as FedAvg wait until a minimum of nodes is there. In a share of fixed nodes that would
    never end, so the grid raises ConfigError when it has been asked `PATIENCE` times.
    """

    def __init__(self, grid: Grid, nodes: Sequence[int]) -> None:
        super().__init__(grid)
        self._nodes = list(nodes)
        self._looks = 0

    def get_node_ids(self) -> list[int]:
        """Return the nodes of the share."""
        self._looks += 1
        if self._looks > PATIENCE:
            raise ConfigError(
                f"strategy: expected one that is content with the {len(self._nodes)} clients of a trial's "
                "share, got one that waits for more; lower its min_available_nodes, min_train_nodes and "
                "min_evaluate_nodes, or num_parallel"
            )
        return list(self._nodes)

    def set_run(self, run: FlowerRun) -> None:
        """Do nothing, because the grid has its run already."""


def least_clients(strategy: object) -> int:
    """Return how many clients a strategy waits for, as far as its attributes say; at least 1."""
    names = ("min_available_nodes", "min_train_nodes", "min_evaluate_nodes")
    found = [getattr(strategy, name, 1) for name in names]
    inner = getattr(strategy, "strategy", None)
    if inner is not None and inner is not strategy:
        found.append(least_clients(inner))
    return max(1, *(value for value in found if isinstance(value, int)))


class TrialRun:
    """The live state of a trial: its strategy and its model.

    Parameters
    ----------
    build : returns the run of a configuration
    seed : of the draws of the strategy
    number, config : of the trial
    content : the checkpoint from which to go on; None: begin
    parent : configuration of the trial that has written the checkpoint, if it was another one. Of that
        trial's strategy, only the state is taken over that does not depend on the configuration
    """

    def __init__(
        self,
        build: Callable[[Config], Run],
        seed: int,
        number: int,
        config: Config,
        content: Content | None = None,
        parent: Config | None = None,
    ) -> None:
        self._seed, self.number, self.config = seed, number, config
        self._run = _built(build, config)
        self.arrays = self._run.initial_arrays
        if content is not None:
            arrays, form = content
            self.arrays = decode(form["model"], arrays)
            state = form["strategy"]["items"]
            if parent is not None:
                state = in_common(_built(build, parent).strategy, self.strategy, state)
            restore(self.strategy, arrays, state)

    @property
    def strategy(self) -> Strategy:
        """The strategy of the trial."""
        return self._run.strategy

    @property
    def weighted_by(self) -> str | None:
        """Name of the metric that weights a client's reply; None if the strategy names none."""
        key = getattr(self.strategy, "weighted_by_key", None)
        return key if isinstance(key, str) else None

    def checkpoint(self) -> Content:
        """Return model and state of the strategy."""
        return encode({"model": self.arrays, "strategy": self.strategy})

    def messages(self, kind: str, server_round: int, grid: Grid, nodes: Sequence[int]) -> list[Message]:
        """Return the messages of a half-round, "train" or "evaluate", to nodes of this trial's share."""
        configure, values = self.strategy.configure_evaluate, self._run.evaluate_config
        if kind == "train":
            configure = self.strategy.configure_train
            values = {**self._run.train_config, **self.config}
        try:
            config = ConfigRecord(dict(values))  # type: ignore[arg-type]  # it checks the types itself
        except TypeError as error:
            raise ConfigError(
                f"config: expected numbers, texts, bools and lists of them, got {dict(values)}"
            ) from error
        with self._drawing(kind, server_round):
            return list(configure(server_round, self.arrays, config, TrialGrid(grid, nodes)))

    def train(self, server_round: int, replies: Sequence[Message]) -> bool:
        """Give checked replies to the strategy and take over its model; return whether that is finite."""
        with self._drawing("aggregate", server_round):
            arrays, _ = self.strategy.aggregate_train(server_round, replies)
        if arrays is not None:
            self.arrays = arrays
        model = from_record(self.arrays).values()
        return all(np.isfinite(array).all() for array in model if array.dtype.kind == "f")

    def evaluate(self, server_round: int, replies: Sequence[Message]) -> dict[str, float]:
        """Return the metrics that are single numbers: of checked replies, and those of `evaluate_fn`."""
        own, found = self._run.evaluate_fn, dict[str, Any]()
        if replies:
            found.update(self.strategy.aggregate_evaluate(server_round, replies) or {})
        if own is not None:
            found.update(own(server_round, self.arrays) or {})
        return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}

    @contextmanager
    def _drawing(self, purpose: str, server_round: int) -> Iterator[None]:
        """Seed Python's and NumPy's global generators, from which strategies draw, and restore them."""
        rng = generator(self._seed, "federation", purpose, self.number, server_round)
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  # strategies use it
        random.seed(int(rng.integers(2**63)))
        np.random.seed(int(rng.integers(2**32)))  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _built(build: Callable[[Config], Run], config: Config) -> Run:
    """Return the run of a configuration; ConfigError if `build` returns something else."""
    found = build(dict(config))
    if not isinstance(found, Run):
        raise ConfigError(
            f"build: expected a function that returns Run(strategy, initial_arrays), got {kind_of(found)}"
        )
    return found
