"""The groups of settings that `tune_federation` takes, with `Judge`: a run, how to search, which clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Strategy

from fbo_flower.algorithms.options import Settings, bounded, choice, integer
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.federated.proposals import PROPOSALS
from fbo_flower.federated.schedules import Population
from fbo_flower.space.copies import copies

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


@copies("initial_arrays", "train_config", "evaluate_config")
@dataclass(frozen=True)
class Run:
    """A training run: the arguments of Flower's `Strategy.start` for one configuration.

    Parameters
    ----------
    strategy : a new strategy of Flower's message API
    initial_arrays : the model before the first round
    train_config, evaluate_config : further entries of the clients' `config` records; a training message has
        the configuration besides
    evaluate_fn : evaluates a model on the server: `evaluate_fn(round, arrays)` returns a MetricRecord, whose
        metrics are added to those of the clients. None: clients only
    """

    strategy: Strategy
    initial_arrays: ArrayRecord
    train_config: Mapping[str, object] = field(default_factory=dict)
    evaluate_config: Mapping[str, object] = field(default_factory=dict)
    evaluate_fn: EvaluateFn | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.strategy, Strategy):
            older = (
                "; a strategy of flwr.server has a twin there, and a workflow such as SecAggPlusWorkflow "
                "cannot be tuned, because it leads its rounds itself and shows no client's update"
            )
            raise ConfigError(
                f"strategy: expected a flwr.serverapp.strategy.Strategy, got {kind_of(self.strategy)}"
                + (older if type(self.strategy).__module__.startswith("flwr.server.") else "")
            )
        if not isinstance(self.initial_arrays, ArrayRecord):
            raise ConfigError(
                f"initial_arrays: expected an ArrayRecord, got {kind_of(self.initial_arrays)}; pass "
                "ArrayRecord(LIST) for a list of NumPy arrays, or ArrayRecord(model.state_dict())"
            )


@dataclass(frozen=True)
class Search(Settings):
    """Which configurations are tried, and for how long.

    Parameters
    ----------
    num_trials : most trials; None: 20 without a budget, no limit with one
    schedule : "asha", "halving" (synchronous successive halving), "hyperband", or "none": every trial runs to
        its end; or a `Population`, whose worst trials take over the models of its best
    eta : at a rung, the best of every `eta` trials is promoted
    first_rung : least rounds of a trial before it is compared with others
    proposals : "ei": expected improvement, or "random"
    num_initial : random configurations before the first one by "ei"; None: twice the number of parameters,
        at least 4
    num_parallel : trials that run side by side, each on its own share of the clients
    """

    num_trials: int | None = integer(None, 1)
    schedule: str | Population = "asha"
    eta: int = integer(4, 2)
    first_rung: int = integer(1, 1)
    proposals: str = choice("ei", PROPOSALS)
    num_initial: int | None = integer(None, 1)
    num_parallel: int = integer(1, 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.schedule, Population) and self.num_trials is not None:
            raise ConfigError(
                f"num_trials: expected None with a Population, which has a size, got {self.num_trials}"
            )


@dataclass(frozen=True)
class Clients(Settings):
    """How long the server waits for clients.

    Parameters
    ----------
    number : clients to wait for; None: until their number stops changing
    wait_seconds : how long to wait for them
    timeout : seconds for each half-round; later replies are dropped
    """

    number: int | None = integer(None, 1)
    wait_seconds: float = bounded(120.0, 0.0)
    timeout: float = bounded(3600.0, 0.0)
