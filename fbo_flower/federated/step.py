"""One round of all trials that run side by side: messages travel together, each trial aggregates its own.

Each trial has a Flower strategy, driven round by round: configure, aggregate, and checkpoint in between.
"""

from __future__ import annotations

import math
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore.run import Run as FlowerRun

from fbo_flower.algorithms.options import Settings, bounded, integer
from fbo_flower.errors import ConfigError, FBOError, kind_of
from fbo_flower.federated.effects import Effects
from fbo_flower.federated.proposals import median_variance, sampling_variance
from fbo_flower.federated.records import TrialRound
from fbo_flower.federated.replies import ALL, Checked, Judge, Metric, client_metrics, is_number
from fbo_flower.federated.run_config import MARK, NotedDict
from fbo_flower.federated.state import Content, decode, digest_of, encode, from_record, in_common, restore
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.curves import weighted_median
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.copies import copies, own
from fbo_flower.space.space import Config
from fbo_flower.strategies.exchange import ForwardingGrid, send_and_receive
from fbo_flower.strategies.registration import is_simulated, wait_for_nodes

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
PATIENCE = 10  # times that a strategy may look for more nodes while it configures one half-round


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
    read : gets the parameters that `build` reads
    """

    def __init__(
        self,
        build: Callable[[Config], Run],
        seed: int,
        number: int,
        config: Config,
        content: Content | None = None,
        parent: Config | None = None,
        read: set[str] | None = None,
    ) -> None:
        self._seed, self.number, self.config = seed, number, config
        read = set[str]() if read is None else read
        self._run = _built(build, config, read)
        self.arrays = self._run.initial_arrays
        self.train_metrics: dict[str, Any] = {}  # of the last training
        if content is not None:
            arrays, form = content
            self.arrays = decode(form["model"], arrays)
            state = form["strategy"]["items"]
            if parent is not None:
                state = in_common(_built(build, parent, read).strategy, self.strategy, state)
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

    def checkpoint(self, lost: dict[type, str] | None = None) -> Content:
        """Return model and state of the strategy; see `encode` for `lost`."""
        return encode({"model": self.arrays, "strategy": self.strategy}, lost)

    def messages(self, kind: str, server_round: int, grid: Grid, nodes: Sequence[int]) -> list[Message]:
        """Return the messages of a half-round, "train" or "evaluate", to nodes of this trial's share."""
        configure = getattr(self.strategy, f"configure_{kind}")
        values: dict[str, Any] = {**getattr(self._run, f"{kind}_config"), **self.config}
        try:
            config = ConfigRecord(values)  # it checks the types itself
        except TypeError as error:
            raise ConfigError(
                f"config: expected numbers, texts, bools and lists of them, got {values}"
            ) from error
        with self._drawing(kind, server_round):
            messages = list(configure(server_round, own(self.arrays), config, TrialGrid(grid, nodes)))
        for message in messages:
            message.metadata.__dict__["_group_id"] = message.metadata.group_id or MARK
        return messages

    def train(self, server_round: int, replies: Sequence[Message]) -> bool:
        """Give checked replies to the strategy and take over its model; return whether that is finite."""
        with self._drawing("aggregate", server_round):
            arrays, metrics = self.strategy.aggregate_train(server_round, replies)
        self.train_metrics = dict(metrics or {})
        if arrays is not None:
            self.arrays = own(arrays)
        model = from_record(self.arrays).values()
        return all(np.isfinite(array).all() for array in model if array.dtype.kind == "f")

    def evaluate(self, server_round: int, replies: Sequence[Message]) -> dict[str, Any]:
        """Return all metrics; those of `evaluate_fn` come before those of evaluation, and of training."""
        evaluate, found = self._run.evaluate_fn, dict(self.train_metrics)
        if replies:
            found.update(self.strategy.aggregate_evaluate(server_round, replies) or {})
        if evaluate is not None:
            found.update(evaluate(server_round, own(self.arrays)) or {})
        return {k: v.tolist() if isinstance(v, np.generic | np.ndarray) else v for k, v in found.items()}

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


def _built(build: Callable[[Config], Run], config: Config, read: set[str]) -> Run:
    """Return the run of a configuration; ConfigError if `build` returns something else."""
    found = build(NotedDict(own(config), read))
    if not isinstance(found, Run):
        raise ConfigError(
            f"build: expected a function that returns Run(strategy, initial_arrays), got {kind_of(found)}"
        )
    return found


# what every client's error matches in a half-round, if the app has a mistake -> the sentence that says so
MISTAKES = {
    # the KeyError of a `client_fn`'s client when no `LegacyClients` has converted the message
    re.compile("(fit|evaluate)ins.parameters"): (
        "grid: expected LegacyClients(grid), because the clients are made by a client_fn, got one of the "
        "message API; pass it as tune_federation(LegacyClients(grid), ...)"
    ),
    re.compile("secaggplus_configs"): (
        "mods: expected clients without secaggplus_mod, because only SecAggPlusWorkflow can talk to it, and "
        "that shows no client's update; tune in a simulation without both, and train with them afterwards"
    ),
    re.compile(r"^evaluation.*(LocalDpMod|\w+clipping_mod) (expects|requires)"): (
        "mods: expected LocalDpMod and clipping mods in @app.train(mods=[...]), got them in "
        "ClientApp(mods=[...]), where they refuse evaluations; a client_fn needs those of flwr.client.mod"
    ),
}


@dataclass(frozen=True)
class Failure:
    """Why a round of a trial brought nothing."""

    reason: str
    lost: bool = False  # whether no client could be reached, so that the round may be tried again


@dataclass(frozen=True)
class Step:
    """Runs rounds."""

    grid: Grid
    metric: Metric  # that judges trials
    judge: Judge
    clients: Clients
    effects: Effects
    stop: threading.Event = field(default_factory=threading.Event)  # ends a run when it is set

    def wait_for_clients(self, number: int | None, least: int = 1) -> list[int]:
        """Return the ids of the connected clients, or raise ConfigError if too few are there in time.

        It waits for `number` of them, or until it stops changing; without `least` no trial can run.
        """
        began = time.monotonic()
        nodes = wait_for_nodes(self.grid, number, began + self.clients.wait_seconds, self.stop)
        wanted = max(least, number or 1)
        if len(nodes) < wanted and is_simulated(self.grid):
            raise ConfigError(
                f"clients: expected {wanted}, the simulation has {len(nodes)} nodes; add --federation-config "
                f"num-supernodes={wanted}"
            )
        if len(nodes) < wanted:
            raise ConfigError(
                f"clients: expected {wanted}, only {len(nodes)} connected after "
                f"{time.monotonic() - began:.0f} s; start more SuperNodes, or set a larger wait_seconds"
            )
        return nodes

    def run(
        self,
        runs: Mapping[int, TrialRun],
        rounds: Mapping[int, int],
        shares: Mapping[int, Sequence[int]],
        population: Sequence[int],
    ) -> dict[int, TrialRound | Failure]:
        """Do one round of each trial and return what it brought, or why the trial has failed.

        `runs`, `rounds` and `shares` are each trial's live state, which changes, its number of this round and
        its clients; `population` are all clients that are connected.
        """
        results: dict[int, TrialRound | Failure] = {}
        before = {k: digest_of(from_record(run.arrays), {}) for k, run in runs.items() if rounds[k] == 1}
        trained = self._half_round("train", runs, rounds, shares, results)
        for k, checked in trained.items():
            if k in before:
                self.effects.note_training(k, before[k], checked.used)
            if failure := _train(runs[k], rounds[k], checked):
                results[k] = failure
        whom = {k: population if self.judge.evaluate_on == ALL else shares[k] for k in runs}
        left = {k: run for k, run in runs.items() if k not in results}
        for k, checked in self._half_round("evaluate", left, rounds, whom, results).items():
            judged = self._judge(runs[k], rounds[k], checked, len(population), trained[k])
            if isinstance(judged, TrialRound):
                judged = replace(judged, asked=trained[k].asked, trained=len(trained[k].used))
            results[k] = judged
        return results

    def judge_on(self, run: TrialRun, server_round: int, population: Sequence[int]) -> TrialRound | Failure:
        """Return how all clients judge a trial's model, or why they do not."""
        messages = [
            Message(message.content, node, message.metadata.message_type)
            for message in run.messages("evaluate", server_round, self.grid, population)[:1]
            for node in population
        ]
        checked = self._exchange({run.number: run}, {run.number: messages})[run.number]
        return self._judge(run, server_round, checked, len(population))

    def _half_round(
        self,
        kind: str,
        runs: Mapping[int, TrialRun],
        rounds: Mapping[int, int],
        nodes: Mapping[int, Sequence[int]],
        results: dict[int, TrialRound | Failure],
    ) -> dict[int, Checked]:
        """Do a half-round of all trials and return each one's checked replies; note whose strategy raised."""
        sent: dict[int, list[Message]] = {}
        for k, run in runs.items():
            try:
                sent[k] = run.messages(kind, rounds[k], self.grid, nodes[k])
            except FBOError:
                raise
            except Exception as error:  # of the user's strategy
                results[k] = Failure(f"configure: {type(error).__name__}: {error}")
        return self._exchange(runs, sent)

    def _exchange(
        self, runs: Mapping[int, TrialRun], sent: Mapping[int, list[Message]]
    ) -> dict[int, Checked]:
        flat = [message for messages in sent.values() for message in messages]
        replies = send_and_receive(self.grid, flat, self.clients.timeout, self.stop)
        found, start = {}, 0
        for k, messages in sent.items():
            own = [replies.get(start + i) for i in range(len(messages))]
            start += len(messages)
            self.effects.take_reads([reply for reply in own if reply is not None])
            found[k] = self.judge.checked(self.metric, messages, own, runs[k].weighted_by, f"Trial {k}")
        return found

    def _judge(
        self,
        run: TrialRun,
        server_round: int,
        checked: Checked,
        population: int,
        trained: Checked | None = None,
    ) -> TrialRound | Failure:
        """Return the value of a trial's model, or why the trial has failed."""
        name = self.metric.name
        if checked.not_finite > len(checked.used):
            return Failure("diverged: most evaluations were not finite")
        try:
            metrics = run.evaluate(server_round, checked.used)
        except Exception as error:  # of the user's strategy or evaluate_fn
            return Failure(f"aggregate_evaluate: {type(error).__name__}: {error}")
        found = self.metric.of(metrics)
        if checked.refused and not checked.used and found is None:
            return _without_replies("evaluation", checked)
        value = self.metric.required(metrics) if found is None else found
        own = self._values(run, checked)
        if own is None and trained is not None and self.metric.of(run.train_metrics) == value:
            own = self._values(run, trained)  # it is a metric of the training
        if self.judge.by == "mean":  # 0: the clients do not tell their own values
            variance = 0.0 if own is None else sampling_variance(*own, population)
        elif own is None:
            raise ConfigError(
                f"by: expected {name!r} in the metrics of @app.evaluate() to judge by its median, got "
                'none; choose by="mean"'
            )
        else:
            value = weighted_median(*own)
            variance = median_variance(*own, value, population)
        if not math.isfinite(value):
            return Failure(f"diverged: {name} is {value}")
        numbers = {key: float(number) for key, number in metrics.items() if isinstance(number, int | float)}
        return TrialRound(
            server_round, self.judge.sign * value, variance, evaluated=len(checked.used), metrics=numbers,
            outcome=digest_of(from_record(run.arrays), {"value": value}),
        )  # fmt: skip

    def _values(self, run: TrialRun, checked: Checked) -> tuple[Array, Array] | None:
        """Return values and weights of the clients that judged; None if they do not tell."""
        records = [client_metrics(reply) for reply in checked.used]
        found = [self.metric.of(record) for record in records]
        if not all(is_number(value) for value in found) or not records:
            return None
        weighted_by = run.weighted_by or ""
        weights = [record[weighted_by] if is_number(record.get(weighted_by)) else 1.0 for record in records]
        return np.array(found, dtype=np.float64), np.array(weights, dtype=np.float64)


def _train(run: TrialRun, server_round: int, checked: Checked) -> Failure | None:
    """Aggregate updates; return why the trial has failed, None if it has not."""
    if checked.asked and not checked.used:
        return _without_replies("update", checked)
    try:
        is_finite = run.train(server_round, checked.used)
    except FBOError:
        raise
    except Exception as error:  # of the user's strategy
        return Failure(f"aggregate_train: {type(error).__name__}: {error}")
    return None if is_finite else Failure("diverged: the aggregated model is not finite")


def _without_replies(what: str, checked: Checked) -> Failure:
    for errors, sentence in MISTAKES.items():
        if all(errors.search(f"{what}: {reason}") for reason in checked.refused):
            return Failure(sentence)
    if checked.not_finite:
        return Failure(f"diverged: every {what} held numbers that are not finite")
    reasons = "; ".join(checked.refused[:3])
    return Failure(f"no {what} could be used: {reasons}", lost=not checked.raised)
