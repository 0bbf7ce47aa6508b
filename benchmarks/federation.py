"""Tune federated training at equal client-rounds: `tune_federation`, and Optuna wrapped around whole runs by
hand.

    python benchmarks/federation.py --concentration 0.1 --seeds 8 --out runs/federation
    python benchmarks/federation.py --report runs/federation

The federation: scikit-learn's digits, split among 8 clients by Dirichlet's law over the labels, with a fifth
of all rows held out from everybody. Each client keeps a quarter of its rows to judge models. The model is an
MLP (64-32-10) in NumPy, trained by FedAvgM for 9 rounds. Six hyperparameters are tuned: learning rate,
momentum, local epochs and batch size of the clients, a proximal term, and the server's learning rate.

A method is charged for training messages only. Its incumbent, at each twelfth of the budget of 16 whole runs,
is trained anew with all clients, with another seed, and its accuracy on the rows held out is the figure.
"""

from __future__ import annotations

import argparse
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvgM, Strategy
from sklearn.datasets import load_digits

from fbo_flower import Float, Int, Ordinal, SearchSpace
from fbo_flower.federated import FedEx, TunerProgress, tune_federation
from fbo_flower.federated.proposals import Proposals
from fbo_flower.federated.recommend import ranking
from fbo_flower.federated.records import Trial
from fbo_flower.federated.schedules import ASHA
from fbo_flower.federated.step import SHARE, Failure, Step
from fbo_flower.federated.trial_run import TrialRun, TrialSetup
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation.grids import InProcessGrid

NUM_CLIENTS, ROUNDS, NUM_RUNS, POINTS = 8, 9, 16, 12
BUDGET = NUM_CLIENTS * ROUNDS * NUM_RUNS
HIDDEN, ETA, NUM_INITIAL = 32, 3, 12
SPACE = SearchSpace({
    "learning-rate": Float(1e-3, 1.0, log=True),
    "momentum": Float(0.0, 0.95),
    "local-epochs": Int(1, 5),
    "batch-size": Ordinal([8, 16, 32, 64]),
    "proximal-mu": Float(1e-4, 1.0, log=True),
    "server-learning-rate": Float(0.1, 2.0, log=True),
})  # fmt: skip
CLIENT_SIDE = ("learning-rate", "momentum", "local-epochs", "batch-size", "proximal-mu")
Split = tuple[np.ndarray, np.ndarray]
Trace = list[tuple[int, dict[str, Any]]]  # client-rounds so far, incumbent


# -- the app -----------------------------------------------------------------------------------


@cache
def federation(concentration: float, seed: int) -> tuple[list[tuple[Split, Split]], Split]:
    """Return each client's rows to train on and to judge with, and the rows that are held out."""
    rng = np.random.default_rng([seed, 77])
    x, y = load_digits(return_X_y=True)
    x = x / 16.0
    order = rng.permutation(len(y))
    cut = 2 * len(y) // 5
    held, rest = order[:cut], order[cut:]
    parts: list[list[int]] = [[] for _ in range(NUM_CLIENTS)]
    while min(map(len, parts)) < 8:
        parts = [[] for _ in range(NUM_CLIENTS)]
        for label in range(10):
            rows = rest[y[rest] == label]
            cuts = (np.cumsum(rng.dirichlet([concentration] * NUM_CLIENTS)) * len(rows)).astype(int)[:-1]
            for client, own in enumerate(np.split(rows, cuts)):
                parts[client] += own.tolist()
    clients = []
    for own in parts:
        rows = rng.permutation(own)
        judge, train = rows[: len(rows) // 4], rows[len(rows) // 4 :]
        clients.append(((x[train], y[train]), (x[judge], y[judge])))
    return clients, (x[held], y[held])


def new_model(seed: int) -> ArrayRecord:
    rng = np.random.default_rng([seed, 5])
    model = [
        rng.standard_normal((64, HIDDEN)) / 8.0,
        np.zeros(HIDDEN),
        rng.standard_normal((HIDDEN, 10)) / HIDDEN**0.5,
        np.zeros(10),
    ]
    return pack(model)


def pack(model: list[np.ndarray]) -> ArrayRecord:
    """Return the layers as one array, which makes messages quick."""
    return ArrayRecord({"model": Array(np.concatenate([a.ravel() for a in model]))})


def unpack(arrays: ArrayRecord) -> list[np.ndarray]:
    flat = np.array(arrays["model"].numpy())
    ends = np.cumsum([64 * HIDDEN, HIDDEN, HIDDEN * 10])
    w1, b1, w2, b2 = np.split(flat, ends)
    return [w1.reshape(64, HIDDEN), b1, w2.reshape(HIDDEN, 10), b2]


def forward(model: list[np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(x @ model[0] + model[1], 0.0)
    scores = hidden @ model[2] + model[3]
    scores -= scores.max(axis=1, keepdims=True)
    odds = np.exp(scores)
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def train(model: list[np.ndarray], data: Split, config: Mapping[str, Any], seed: list[int]) -> None:
    """Train a model in place by SGD with momentum and FedProx's term."""
    x, y = data
    rng, start = np.random.default_rng(seed), [a.copy() for a in model]
    velocity = [np.zeros_like(a) for a in model]
    size = int(config["batch-size"])
    for _ in range(int(config["local-epochs"])):
        order = rng.permutation(len(y))
        for first in range(0, len(y), size):
            rows = order[first : first + size]
            hidden, error = forward(model, x[rows])
            error[np.arange(len(rows)), y[rows]] -= 1.0
            error /= len(rows)
            back = (error @ model[2].T) * (hidden > 0.0)
            gradient = [x[rows].T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
            for k, g in enumerate(gradient):
                pull = config["proximal-mu"] * (model[k] - start[k])
                velocity[k] = config["momentum"] * velocity[k] - config["learning-rate"] * (g + pull)
                model[k] += velocity[k]


def scores(model: list[np.ndarray], data: Split) -> tuple[float, float]:
    """Return accuracy and mean log loss."""
    x, y = data
    _, p = forward(model, x)
    return float((p.argmax(axis=1) == y).mean()), float(-np.log(p[np.arange(len(y)), y] + 1e-12).mean())


def app(concentration: float, seed: int, stream: int) -> ClientApp:
    """Return the ClientApp; `stream` distinguishes the clients' draws of tuning from those of the final
    run.
    """
    found = ClientApp()

    def own(context: Context) -> tuple[Split, Split]:
        return federation(concentration, seed)[0][int(context.node_config["partition-id"])]

    @found.train()
    def fit(message: Message, context: Context) -> Message:
        config, (data, judge) = message.content["config"], own(context)
        model = unpack(message.content["arrays"])
        key = [seed, stream, int(context.node_config["partition-id"]), int(config["server-round"])]
        with np.errstate(all="ignore"):
            train(model, data, config, key)
            loss = scores(model, judge)[1]
        metrics = MetricRecord({"num-examples": len(data[1]), "val-loss": loss})
        return Message(RecordDict({"arrays": pack(model), "metrics": metrics}), reply_to=message)

    @found.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        judge = own(context)[1]
        model = unpack(message.content["arrays"])
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


# -- runs --------------------------------------------------------------------------------------


def first_model(seed: int, stream: int) -> ArrayRecord:
    """Return the model before the first round; stream 1 is that of tuning."""
    return new_model(seed if stream == 1 else seed + 1000 * stream)


def whole_run(
    concentration: float,
    seed: int,
    config: Mapping[str, Any],
    stream: int,
    make: Callable[[Mapping[str, Any]], Strategy] = build,
) -> Iterator[tuple[float, TrialRun]]:
    """Run a configuration with all clients; yield accuracy by the clients' judgement, round by round."""
    grid = InProcessGrid(app(concentration, seed, stream), NUM_CLIENTS)
    setup = TrialSetup(make, first_model(seed, stream), {}, {}, None, seed)
    run, nodes = TrialRun(setup, stream, dict(config), None), grid.get_node_ids()
    step = Step(grid, "accuracy", 1.0, 60.0, SHARE, threading.Event())
    for server_round in range(1, ROUNDS + 1):
        with single_thread():
            result = step.run({stream: run}, {stream: server_round}, {stream: nodes}, nodes)[stream]
        if isinstance(result, Failure):
            yield float("-inf"), run
            return
        yield result.value, run


def by_hand(
    concentration: float, seed: int, config: Mapping[str, Any], stream: int
) -> Iterator[tuple[float, list[np.ndarray]]]:
    """Do what `whole_run` does without messages, three times as quickly; yield accuracy and model."""
    clients = federation(concentration, seed)[0]
    model = unpack(first_model(seed, stream))
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


def quality(
    concentration: float, seed: int, config: Mapping[str, Any], make: Callable[..., Strategy] = build
) -> float:
    """Return the mean accuracy on the rows held out, of two models that are trained anew."""
    found, held = [], federation(concentration, seed)[1]
    for stream in (998, 999):
        model = None
        if make is build:
            for value, at in by_hand(concentration, seed, config, stream):
                model = at if np.isfinite(value) else None
        else:
            for value, run in whole_run(concentration, seed, config, stream, make):
                model = unpack(run.arrays) if np.isfinite(value) else None
        found.append(0.1 if model is None else scores(model, held)[0])
    return float(np.mean(found))


def tuned(concentration: float, seed: int, make: Callable[..., Strategy] = build, **settings: Any) -> Trace:
    """Return the incumbents of `tune_federation`."""
    trace: list[tuple[int, tuple[Trial, ...]]] = []

    def note(progress: TunerProgress) -> None:
        if any(t.rounds and not t.failure for t in progress.trials):
            trace.append((progress.spent, progress.trials))

    grid = InProcessGrid(app(concentration, seed, 1), NUM_CLIENTS)
    tune_federation(
        grid, make, SPACE, "accuracy", ROUNDS, initial_arrays=new_model(seed), budget=BUDGET,
        num_clients=NUM_CLIENTS, seed=seed, on_round=note, eta=ETA, num_initial=NUM_INITIAL, **settings,
    )  # fmt: skip
    proposals = Proposals(SPACE, settings.get("proposals", "ei"), NUM_INITIAL, seed)
    rungs = ASHA(ROUNDS, ETA, 1).rungs_of(0)
    found: Trace = []
    for point in range(1, POINTS + 1):
        spent, trials = [entry for entry in trace if entry[0] <= BUDGET * point / POINTS][-1]
        found.append((spent, dict(ranking(trials, proposals, rungs)[0].config)))
    return found


def optuna_by_hand(concentration: float, seed: int) -> Trace:
    """Return the incumbents of Optuna's TPE with its MedianPruner, wrapped around whole runs."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.MedianPruner(),
    )
    trace: Trace = []
    best: dict[str, Any] = {}
    spent = 0
    while spent < BUDGET:
        trial = study.ask()
        config = {
            "learning-rate": trial.suggest_float("learning-rate", 1e-3, 1.0, log=True),
            "momentum": trial.suggest_float("momentum", 0.0, 0.95),
            "local-epochs": trial.suggest_int("local-epochs", 1, 5),
            "batch-size": trial.suggest_categorical("batch-size", [8, 16, 32, 64]),
            "proximal-mu": trial.suggest_float("proximal-mu", 1e-4, 1.0, log=True),
            "server-learning-rate": trial.suggest_float("server-learning-rate", 0.1, 2.0, log=True),
        }
        value, pruned = 0.0, False
        for number, (value, _) in enumerate(by_hand(concentration, seed, config, 1), start=1):
            spent += NUM_CLIENTS
            trial.report(max(value, 0.0), number)
            pruned = number < ROUNDS and trial.should_prune()
            if pruned or spent >= BUDGET:
                break
        if pruned:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        elif number == ROUNDS or not np.isfinite(value):
            study.tell(trial, max(value, 0.0))
            if study.best_trial.number == trial.number:
                best = config
            trace.append((spent, dict(best)))
    return trace


def random_search(concentration: float, seed: int) -> Trace:
    """Return the incumbents of random search over whole runs."""
    rng, trace, best = np.random.default_rng([seed, 3]), [], -1.0
    config: dict[str, Any] = {}
    for number in range(1, NUM_RUNS + 1):
        drawn = SPACE.decode(rng.random(SPACE.dimension))
        value = [accuracy for accuracy, _ in by_hand(concentration, seed, drawn, 1)][-1]
        if value > best:
            best, config = value, drawn
        trace.append((number * NUM_CLIENTS * ROUNDS, dict(config)))
    return trace


METHODS: dict[str, Callable[[float, int], Trace]] = {
    "optuna": optuna_by_hand,
    "random": random_search,
    "hyperband": partial(tuned, schedule="hyperband", proposals="random"),
    "fedex": partial(tuned, make=build_fedex, proposals="random"),
    "asha-random": partial(tuned, proposals="random"),
    "asha-ei": tuned,
    "asha-ei-2": partial(tuned, num_parallel=2),
    "asha-ei-4": partial(tuned, num_parallel=4),
    "asha-ei-2-all": partial(tuned, num_parallel=2, evaluate_on="all"),
    "asha-ei-4-all": partial(tuned, num_parallel=4, evaluate_on="all"),
}


def judged(concentration: float, seed: int, name: str) -> dict[str, Any]:
    """Return the held-out accuracy of a method's incumbent at each point of the budget."""
    start = time.process_time()
    trace = METHODS[name](concentration, seed)
    seconds = time.process_time() - start
    known: dict[str, float] = {}
    curve = []
    for point in range(1, POINTS + 1):
        so_far = [config for spent, config in trace if spent <= BUDGET * point / POINTS]
        if not so_far:
            curve.append(0.1)
            continue
        key = json.dumps(so_far[-1], sort_keys=True)
        if key not in known:
            known[key] = quality(concentration, seed, so_far[-1], MAKERS.get(name, build))
        curve.append(known[key])
    return {"curve": curve, "best": trace[-1][1], "seconds": seconds}


MAKERS: dict[str, Callable[..., Strategy]] = {"fedex": build_fedex}


# -- the report --------------------------------------------------------------------------------


def report(directory: Path) -> str:
    """Return the tables of all results in a directory."""
    found: dict[float, dict[str, dict[int, list[float]]]] = {}
    for path in sorted(directory.glob("*.json")):
        row = json.loads(path.read_text())
        by_method = found.setdefault(row["concentration"], {})
        by_method.setdefault(row["method"], {})[row["seed"]] = row["curve"]
    lines = []
    for concentration, methods in sorted(found.items()):
        lines += ["", f"Dirichlet {concentration:g}", ""]
        lines += ["| method | seeds | at 1/4 | at 1/3 | at 1/2 | at the end | to Optuna's final level |"]
        lines += ["|---|---|---|---|---|---|---|"]
        level = np.mean([curve[-1] for curve in methods["optuna"].values()]) if "optuna" in methods else None
        for name, curves in methods.items():
            c = np.array(list(curves.values()))
            cells = []
            for point in (3, 4, 6, 12):
                stderr = c[:, point - 1].std(ddof=1) / len(c) ** 0.5 if len(c) > 1 else 0.0
                cells.append(f"{c[:, point - 1].mean():.4f} ± {stderr:.4f}")
            reached = "" if level is None else next(
                (f"{point}/{POINTS}" for point in range(1, POINTS + 1) if c[:, point - 1].mean() >= level -
                1e-9), "not reached",
            )  # fmt: skip
            lines.append(f"| {name} | {len(c)} | {' | '.join(cells)} | {reached} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--concentration", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path("runs/federation"))
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    if arguments.report is not None:
        print(report(arguments.report))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.seeds):
        for concentration in arguments.concentration:
            for name in arguments.methods:
                path = arguments.out / f"{concentration:g}-{name}-{seed}.json"
                if path.exists():
                    continue
                row = judged(concentration, seed, name)
                row |= {"concentration": concentration, "method": name, "seed": seed}
                path.write_text(json.dumps(row))
                print(path.name, " ".join(f"{v:.3f}" for v in row["curve"]), f"{row['seconds']:.1f} s")


if __name__ == "__main__":
    main()
