"""The app that `studies/benchmarks/federation.py` tunes: FedAvgM for 9 rounds, whole runs, tuning by hand.

Six hyperparameters are tuned: learning rate, momentum, local epochs and batch size of the clients, a proximal
term, and the server's learning rate. The federations and the MLP are in `federation_data.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvgM, Strategy

from fbo_flower import Float, Int, Ordinal, SearchSpace
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation import InProcessGrid
from studies.benchmarks.federation_data import Split, federation, new_model, pack, scores, train, unpack
from studies.papers.local_peers import suggested
from studies.tuning import FedEx, FedPop, Personal

ROUNDS, NUM_RUNS = 9, 16  # of a training; whole runs that the budget is worth
SPACE = SearchSpace({
    "learning-rate": Float(1e-3, 1.0, log=True),
    "momentum": Float(0.0, 0.95),
    "local-epochs": Int(1, 5),
    "batch-size": Ordinal([8, 16, 32, 64]),
    "proximal-mu": Float(1e-4, 1.0, log=True),
    "server-learning-rate": Float(0.1, 2.0, log=True),
})  # fmt: skip
PERSONAL = ("learning-rate", "local-epochs")
SHARED = SearchSpace({name: p for name, p in SPACE.parameters.items() if name not in PERSONAL})
CLIENT_SIDE = ("learning-rate", "momentum", "local-epochs", "batch-size", "proximal-mu")

Trace = list[tuple[int, dict[str, Any]]]  # client-rounds so far, incumbent
Model = list[np.ndarray]
Found = tuple[Trace, Model | None]  # and the model that tuning itself has trained


def app(on: str, seed: int, stream: int) -> ClientApp:
    """Return the ClientApp; `stream` tells the clients' draws of tuning from those of the final run."""
    found = ClientApp()

    def own(context: Context) -> tuple[Split, Split]:
        return federation(on, seed).clients[int(context.node_config["partition-id"])]

    @found.train()
    def fit(message: Message, context: Context) -> Message:
        config, (data, judge) = message.content["config"], own(context)
        model = unpack(federation(on, seed), message.content["arrays"])
        key = [seed, stream, int(context.node_config["partition-id"]), int(config["server-round"])]
        with np.errstate(all="ignore"):
            train(model, data, config, key)
            loss = scores(model, judge)[1]
        metrics = MetricRecord({"num-examples": len(data[1]), "val-loss": loss})
        return Message(RecordDict({"arrays": pack(model), "metrics": metrics}), reply_to=message)

    @found.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        judge = own(context)[1]
        model = unpack(federation(on, seed), message.content["arrays"])
        with np.errstate(all="ignore"):
            accuracy, _ = scores(model, judge)
        metrics = MetricRecord({"num-examples": len(judge[1]), "accuracy": accuracy})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return found


def build(config: Mapping[str, Any]) -> Strategy:
    return FedAvgM(
        min_available_nodes=1,
        min_train_nodes=1,
        min_evaluate_nodes=1,
        server_learning_rate=config["server-learning-rate"],
        server_momentum=0.0,
    )


CLIENTS_SPACE = SearchSpace({name: SPACE.parameters[name] for name in CLIENT_SIDE})


def build_fedex(config: Mapping[str, Any]) -> Strategy:
    """FedEx over 9 configurations of the clients around the trial's, as its paper wraps it by halving."""
    center = {name: config[name] for name in CLIENT_SIDE}
    return FedEx(build(config), CLIENTS_SPACE, center=center, num_configs=9, radius=0.1)


def build_fedpop(config: Mapping[str, Any]) -> Strategy:
    """FedPop-L around the trial's configuration, one configuration for each of 8 clients."""
    center = {name: config[name] for name in CLIENT_SIDE}
    return FedPop(build(config), CLIENTS_SPACE, center=center, num_configs=8, every=3, num_rounds=ROUNDS)


def build_personal(config: Mapping[str, Any]) -> Strategy:
    """Learning rate and epochs of each client by `fed-ei`, the rest is the trial's."""
    return Personal(build(config), SearchSpace({name: SPACE.parameters[name] for name in PERSONAL}))


# -- runs --------------------------------------------------------------------------------------


def num_clients_of(on: str, seed: int) -> int:
    return len(federation(on, seed).clients)


def budget_of(on: str, seed: int) -> int:
    """Return the client-rounds of `NUM_RUNS` whole runs."""
    return num_clients_of(on, seed) * ROUNDS * NUM_RUNS


def first_model(on: str, seed: int, stream: int) -> ArrayRecord:
    """Return the model before the first round; stream 1 is that of tuning."""
    return new_model(federation(on, seed), seed if stream == 1 else seed + 1000 * stream)


def by_hand(
    on: str, seed: int, config: Mapping[str, Any], stream: int
) -> Iterator[tuple[float, list[np.ndarray]]]:
    """Do what a run does without messages, three times as quickly; yield accuracy and model of each round."""
    of = federation(on, seed)
    clients = of.clients
    model = unpack(of, first_model(on, seed, stream))
    total, judges = sum(len(data[1]) for data, _ in clients), sum(len(judge[1]) for _, judge in clients)
    with np.errstate(all="ignore"):
        for server_round in range(1, ROUNDS + 1):
            mean = [np.zeros_like(a) for a in model]
            for number, (data, _) in enumerate(clients):
                own = [a.copy() for a in model]
                train(own, data, config, [seed, stream, number, server_round])
                mean = [m + a * len(data[1]) / total for m, a in zip(mean, own, strict=True)]
            rate = config["server-learning-rate"]
            model = [a + rate * (m - a) for a, m in zip(model, mean, strict=True)]
            if not all(np.isfinite(a).all() for a in model):
                yield float("-inf"), model
                return
            yield sum(scores(model, judge)[0] * len(judge[1]) / judges for _, judge in clients), model


def quality(on: str, seed: int, config: Mapping[str, Any], make: Callable[..., Strategy] = build) -> float:
    """Return the mean accuracy on the rows held out, of two models that are trained anew."""
    of, found = federation(on, seed), []
    for stream in (998, 999):
        if make is build:
            *_, (_, model) = by_hand(on, seed, config, stream)
        else:
            grid, first = InProcessGrid(app(on, seed, stream), len(of.clients)), first_model(on, seed, stream)
            sent = ConfigRecord(dict(config))
            with single_thread():
                result = make(config).start(grid, first, num_rounds=ROUNDS, train_config=sent)
            model = unpack(of, result.arrays)
        fine = all(np.isfinite(a).all() for a in model)
        found.append(scores(model, of.held)[0] if fine else of.worst)
    return float(np.mean(found))


# -- tuning by hand ------------------------------------------------------------------------------


def optuna_by_hand(on: str, seed: int) -> Found:
    """Return the incumbents of Optuna's TPE with its MedianPruner, wrapped around whole runs."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler, pruner = optuna.samplers.TPESampler(seed=seed), optuna.pruners.MedianPruner()
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    trace: Trace = []
    best: dict[str, Any] = {}
    best_model: Model | None = None
    num_clients, budget, spent = num_clients_of(on, seed), budget_of(on, seed), 0
    floor = min(federation(on, seed).worst, 0.0)
    while spent < budget:
        trial = study.ask()
        config = suggested(SPACE, trial)
        value, pruned, last = 0.0, False, None
        for number, (value, last) in enumerate(by_hand(on, seed, config, 1), start=1):  # noqa: B007
            spent += num_clients
            trial.report(max(value, floor), number)
            pruned = number < ROUNDS and trial.should_prune()
            if pruned or spent >= budget:
                break
        if pruned:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        elif number == ROUNDS or not np.isfinite(value):
            study.tell(trial, max(value, floor))
            if study.best_trial.number == trial.number:
                best, best_model = config, last
            trace.append((spent, dict(best)))
    return trace, best_model


def random_search(on: str, seed: int) -> Found:
    """Return the incumbents of random search over whole runs."""
    rng, trace, best = np.random.default_rng([seed, 3]), [], -np.inf
    config: dict[str, Any] = {}
    best_model: Model | None = None
    for number in range(1, NUM_RUNS + 1):
        drawn = SPACE.decode(rng.random(SPACE.dimension))
        value, model = list(by_hand(on, seed, drawn, 1))[-1]
        if not config or value > best:
            best, config, best_model = value, drawn, model
        trace.append((number * num_clients_of(on, seed) * ROUNDS, dict(config)))
    return trace, best_model
