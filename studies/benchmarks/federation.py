"""Tune federated training at equal client-rounds: `tune_federation`, and Optuna around whole runs by hand.

A method is charged for training messages only. Its incumbent, at each twelfth of the budget of 16 whole runs,
is trained anew with all clients, with other seeds, and its score on the rows held out is the figure. "Own
model" is the score of the model that tuning itself has trained, at the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp.strategy import Strategy

from fbo_flower import SearchSpace
from fbo_flower.federated import Clients, Judge, Population, Run, Search, TunerProgress, tune_federation
from fbo_flower.federated.proposals import Proposals, ranking
from fbo_flower.federated.records import FederatedTrial
from fbo_flower.federated.schedules import ASHA
from fbo_flower.simulation import InProcessGrid
from studies.benchmarks import federation_app as app
from studies.benchmarks.federation_app import NUM_RUNS, ROUNDS, SPACE, Found, Trace, budget_of, num_clients_of
from studies.benchmarks.federation_data import FEDERATIONS, federation, scores, unpack
from studies.experiment import Arrays, Experiment, Part
from studies.papers.local_peers import is_installed

POINTS, ETA, NUM_INITIAL = 12, 3, 12


def tuned(
    on: str, seed: int, make: Callable[..., Strategy] = app.build, space: SearchSpace = SPACE,
    evaluate_on: str = "share", **settings: Any,
) -> Found:  # fmt: skip
    """Return the incumbents of `tune_federation`, and the model of the last one."""
    budget, model = budget_of(on, seed), app.first_model(on, seed, 1)
    trace: list[tuple[int, tuple[FederatedTrial, ...]]] = []

    def note(progress: TunerProgress) -> None:
        if any(t.rounds and not t.failure for t in progress.trials):
            trace.append((progress.spent, progress.trials))

    result = tune_federation(
        InProcessGrid(app.app(on, seed, 1), num_clients_of(on, seed)),
        lambda config: Run(make(config), model),
        space,
        rounds=ROUNDS,
        budget=budget,
        search=Search(eta=ETA, num_initial=NUM_INITIAL, **settings),
        judge=Judge(evaluate_on=evaluate_on),
        clients=Clients(num_clients_of(on, seed)),
        seed=seed,
        callbacks=[note],
    )
    kind = "random" if isinstance(settings.get("schedule"), Population) else settings.get("proposals", "ei")
    proposals = Proposals(space, kind, NUM_INITIAL, seed)
    rungs = ASHA(ROUNDS, ETA, 1).rungs_of(0)
    found: Trace = []
    for point in range(1, POINTS + 1):
        spent, trials = [entry for entry in trace if entry[0] <= budget * point / POINTS][-1]
        found.append((spent, dict(ranking(trials, proposals, rungs)[0].config)))
    return found, unpack(federation(on, seed), result.best_arrays)


MAKERS: dict[str, Callable[..., Strategy]] = {
    "fedex": app.build_fedex,
    "halving-fedex": app.build_fedex,
    "fedpop": app.build_fedpop,
    "personal": app.build_personal,
}
METHODS: dict[str, Callable[[str, int], Found]] = {
    "optuna": app.optuna_by_hand,
    "random": app.random_search,
    "hyperband": partial(tuned, schedule="hyperband", proposals="random"),
    "fedex": partial(tuned, make=app.build_fedex, proposals="random"),
    "fedpop": partial(tuned, make=app.build_fedpop, schedule=Population(size=NUM_RUNS, every=3)),
    "personal": partial(tuned, make=app.build_personal, space=app.SHARED),
    "halving-random": partial(tuned, schedule="halving", proposals="random"),
    "halving-fedex": partial(tuned, schedule="halving", make=app.build_fedex, proposals="random"),
    "asha-random": partial(tuned, proposals="random"),
    "asha-ei": tuned,
    "asha-ei-2-all": partial(tuned, num_parallel=2, evaluate_on="all"),
}


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: three methods on one split of digits, one seed."""
    rows = ["optuna", "random", "asha-ei"] if quick else list(METHODS)
    rows = rows if is_installed("TPE") else rows[1:]
    pairs = [("fedex", "asha-random"), ("halving-fedex", "halving-random"), ("fedpop", "asha-ei")]
    labels, seeds = FEDERATIONS[1:2] if quick else FEDERATIONS, range(1 if quick else 8)
    return [
        Part(
            "federated training", judged, labels, rows, seeds, {}, "optuna", pairs, at=(3, 4, 6, 12),
            drawn="score", axis="twelfths of the budget", how="mean",
        )
    ]  # fmt: skip


EXPERIMENT = Experiment("`tune_federation` and Optuna on federated training, at equal client-rounds", parts)


def judged(on: str, name: str, seed: int) -> Arrays:
    """Return the held-out score of a method's incumbent at each twelfth of the budget."""
    start = time.process_time()
    trace, model = METHODS[name](on, seed)
    seconds = time.process_time() - start
    of, curve = federation(on, seed), list[float]()
    quality = cache(lambda config: app.quality(on, seed, json.loads(config), MAKERS.get(name, app.build)))
    for point in range(1, POINTS + 1):
        so_far = [config for spent, config in trace if spent <= budget_of(on, seed) * point / POINTS]
        curve.append(quality(json.dumps(so_far[-1])) if so_far else of.worst)
    own = of.worst if model is None else scores(model, of.held)[0]
    return {"score": np.array([curve]), "own model": np.array(own), "CPU seconds": np.array(seconds)}
