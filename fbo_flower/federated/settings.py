"""The groups of settings that `tune_federation` takes: a run, how to search, how to judge, which clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Strategy

from fbo_flower.algorithms.options import check_choice, check_number
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.federated.replies import Bounds
from fbo_flower.federated.schedules import Population

ALL, SHARE = "all", "share"  # who evaluates a trial
EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


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
            raise ConfigError(
                f"strategy: expected a flwr.serverapp.strategy.Strategy, got {kind_of(self.strategy)}"
            )
        if not isinstance(self.initial_arrays, ArrayRecord):
            raise ConfigError(
                f"initial_arrays: expected an ArrayRecord, got {kind_of(self.initial_arrays)}; pass "
                "ArrayRecord(LIST) for a list of NumPy arrays, or ArrayRecord(model.state_dict())"
            )


@dataclass(frozen=True)
class Search:
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

    num_trials: int | None = None
    schedule: str | Population = "asha"
    eta: int = 4
    first_rung: int = 1
    proposals: str = "ei"
    num_initial: int | None = None
    num_parallel: int = 1

    def __post_init__(self) -> None:
        check_number("num_parallel", self.num_parallel, 1, integer=True)
        if self.num_trials is not None:
            check_number("num_trials", self.num_trials, 1, integer=True)
        if isinstance(self.schedule, Population) and self.num_trials is not None:
            raise ConfigError(
                f"num_trials: expected None with a Population, which has a size, got {self.num_trials}"
            )


@dataclass(frozen=True)
class Judge:
    """How trials are judged by the clients' values of the metric.

    Parameters
    ----------
    minimize : whether smaller values of the metric are better
    evaluate_on : "share": a trial is judged by the clients of its share; "all": by all clients, which
        costs them evaluations
    finalists : number of best trials whose models all clients judge at the end
    bounds : least and largest value that the metric can have, such as (0, 1); a client's reply with another
        one is left out. None: every finite number is believed
    max_weight : a client that reports more rows (`num-examples`) than this multiple of the others' median
        counts with that multiple; None: every number is believed
    by : "mean": trials are judged by the metric that the strategy aggregates; "median": by the weighted
        median of the clients' own values, which a few false ones cannot move far
    """

    minimize: bool = False
    evaluate_on: str = SHARE
    finalists: int = 0
    bounds: Bounds | None = None
    max_weight: float | None = None
    by: str = "mean"

    def __post_init__(self) -> None:
        check_choice("evaluate_on", self.evaluate_on, (SHARE, ALL))
        check_number("finalists", self.finalists, 0, integer=True)


@dataclass(frozen=True)
class Clients:
    """How long the server waits for clients.

    Parameters
    ----------
    number : clients to wait for; None: until their number stops changing
    wait_seconds : how long to wait for them
    timeout : seconds for each half-round; later replies are dropped
    """

    number: int | None = None
    wait_seconds: float = 120.0
    timeout: float = 3600.0

    def __post_init__(self) -> None:
        if self.number is not None:
            check_number("number", self.number, 1, integer=True)
        check_number("wait_seconds", self.wait_seconds, 0.0)
        check_number("timeout", self.timeout, 0.0)
