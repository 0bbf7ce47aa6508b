"""One trial's Flower strategy, driven round by round: configure, aggregate, and checkpoint in between."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.federated.checkpoints import Content
from fbo_flower.federated.grids import TrialGrid
from fbo_flower.federated.settings import Run
from fbo_flower.federated.strategy_state import from_record, in_common, restore, state_of, to_record
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.space import Config


@dataclass(frozen=True)
class TrialSetup:
    """What all trials have in common.

    Parameters
    ----------
    build : returns the run of a configuration
    seed : of the draws of strategies
    """

    build: Callable[[Config], Run]
    seed: int

    def run_of(self, config: Config) -> Run:
        """Return the run of a configuration; ConfigError if `build` returns something else."""
        found = self.build(dict(config))
        if not isinstance(found, Run):
            raise ConfigError(
                f"build: expected a function that returns Run(strategy, initial_arrays), got {kind_of(found)}"
            )
        return found


class TrialRun:
    """The live state of a trial: its strategy and its model.

    Parameters
    ----------
    setup : what all trials have in common
    number, config : of the trial
    content : the checkpoint from which to go on; None: begin
    parent : configuration of the trial that has written the checkpoint, if it was another one. Of that
        trial's strategy, only the state is taken over that does not depend on the configuration
    """

    def __init__(
        self,
        setup: TrialSetup,
        number: int,
        config: Config,
        content: Content | None,
        parent: Config | None = None,
    ) -> None:
        self._setup, self.number, self.config = setup, number, config
        self._run = setup.run_of(config)
        strategy = self.strategy = self._run.strategy
        if content is None:
            self.arrays = self._run.initial_arrays
            return
        arrays, form = content
        self.arrays = to_record({name: arrays[f"model/{name}"] for name in form["model"]})
        own = {n.removeprefix("state/"): a for n, a in arrays.items() if n.startswith("state/")}
        state = form["state"]
        if parent is not None:
            state = in_common(setup.run_of(parent).strategy, strategy, state)
        restore(strategy, own, state)

    @property
    def weighted_by(self) -> str | None:
        """Name of the metric that weights a client's reply; None if the strategy names none."""
        key = getattr(self.strategy, "weighted_by_key", None)
        return key if isinstance(key, str) else None

    def checkpoint(self) -> Content:
        """Return model and state of the strategy."""
        model = from_record(self.arrays)
        state, form = state_of(self.strategy)
        arrays = {f"model/{name}": array for name, array in model.items()}
        arrays |= {f"state/{name}": array for name, array in state.items()}
        return arrays, {"model": list(model), "state": form}

    def messages(self, kind: str, server_round: int, grid: Grid, nodes: Sequence[int]) -> list[Message]:
        """Return the messages of a half-round, "train" or "evaluate", to nodes of this trial's share."""
        configure, values = self.strategy.configure_evaluate, self._run.evaluate_config
        if kind == "train":
            configure = self.strategy.configure_train
            values = {**self._run.train_config, **self.config}
        with self._drawing(kind, server_round):
            return list(configure(server_round, self.arrays, to_config(values), TrialGrid(grid, nodes)))

    def train(self, server_round: int, replies: Sequence[Message]) -> None:
        """Give checked replies to the strategy and take over the model that it returns."""
        with self._drawing("aggregate", server_round):
            arrays, _ = self.strategy.aggregate_train(server_round, replies)
        if arrays is not None:
            self.arrays = arrays

    def evaluate(self, server_round: int, replies: Sequence[Message]) -> dict[str, float]:
        """Return the aggregated metrics of checked replies, and those of `evaluate_fn`."""
        record = self.strategy.aggregate_evaluate(server_round, replies) if replies else None
        found = numbers_of(record)
        if self._run.evaluate_fn is not None:
            found |= numbers_of(self._run.evaluate_fn(server_round, self.arrays))
        return found

    def diverged(self) -> bool:
        """Return whether the model holds a number that is not finite."""
        arrays = from_record(self.arrays).values()
        return not all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")

    @contextmanager
    def _drawing(self, purpose: str, server_round: int) -> Iterator[None]:
        """Seed Python's and NumPy's global generators, from which strategies draw, and restore them."""
        rng = generator(self._setup.seed, "federation", purpose, self.number, server_round)
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  # strategies use it
        random.seed(int(rng.integers(2**63)))
        np.random.seed(int(rng.integers(2**32)))  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def numbers_of(record: MetricRecord | None) -> dict[str, float]:
    """Return the metrics that are single numbers, by name."""
    items = {} if record is None else dict(record)
    return {name: float(value) for name, value in items.items() if isinstance(value, int | float)}


def to_config(values: Mapping[str, object]) -> ConfigRecord:
    """Return a new ConfigRecord; ConfigError if it cannot hold a value."""
    try:
        return ConfigRecord(dict(values))  # type: ignore[arg-type]  # it checks the types itself
    except TypeError as error:
        raise ConfigError(
            f"config: expected numbers, texts, bools and lists of them, got {dict(values)}"
        ) from error


def is_number(value: object) -> bool:
    """Return whether a metric is one finite number."""
    return isinstance(value, int | float) and math.isfinite(value)
