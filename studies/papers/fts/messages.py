"""Compare messages of FTS, RGPE and TAF on landmine detection: size, time and gain [Dai2020, Figs. 2-5].

Fields 1 to 6 in turn are the target, as in the published figures, with messages of 50 to 200 features; with
100 features all 29 fields are. The other fields hold 50 observations from Thompson sampling alone and send
one message; in the row "growing" they continue to tune (Fig. 4). A third part measures time against the
number of agents (Fig. 3d). Variants share targets and starting points. Seconds are CPU seconds of the server,
the target and the other agents together.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.study import incumbents
from studies import experiment as runs
from studies.experiment import Arrays, Experiment, Part
from studies.papers.fts import landmine
from studies.papers.fts.landmine import NUM_FIELDS, NUM_INITIAL, Variants, held, tune

SCALE = "linear"
_ONCE = {"communication": "once"}
VARIANTS: Variants = {
    "ts": ("ts", {}),
    "fts": ("fts", _ONCE | {"schedule": "1-1/t^2"}),
    "fts 1-1/sqrt(t)": ("fts", _ONCE),
    "fts growing": ("fts", {"communication": "every-round"}),
    "fts portfolio": ("fts", _ONCE | {"advice": "portfolio", "schedule": "first-5"}),
    "rgpe": ("rgpe", _ONCE),
    "taf": ("taf", _ONCE),
    "taf seen": ("taf", _ONCE | {"improvement_over": "seen"}),
}
ONE_SIZE = ("fts 1-1/sqrt(t)", "fts growing", "fts portfolio")  # these run with 100 features only
COUNTS = (3, 6, 12, 20, 28)  # numbers of other agents
NUM_FEATURES = (50, 100, 150, 200)
TIMED = ("fts 1-1/sqrt(t)", "rgpe", "taf")  # timed against the number of agents


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the three parts; quick: 1 start, 2 targets among 4 fields, 8 iterations."""
    fields, targets = (4, 2) if quick else (NUM_FIELDS, 6)
    sizes = {f"fields 1-{targets}, {m} features": (m, targets, fields) for m in NUM_FEATURES}
    few = [variant for variant in VARIANTS if variant not in ONE_SIZE]
    rows = {title: list(VARIANTS) if m == 100 else few for title, (m, _, _) in sizes.items()}
    every = {f"all {fields} fields, 100 features": (100, fields, fields)}
    agents = {f"{count} other agents": (100, 1, count + 1) for count in COUNTS if count < fields}
    shared: dict[str, Any] = {"at": (5, 10, 20, 50), "first": 0, "over": "agents"}
    common = {"directory": str(directory), "num_iterations": 8 if quick else 50, "num_fields": fields}
    seeds = range(1 if quick else 10)
    return [
        Part(
            "size of messages", run_targets, list(sizes), rows, seeds, {"sizes": sizes, **common}, "ts",
            drawn="best", **shared,
        ),
        Part(
            "all fields", run_targets, list(every), [v for v in VARIANTS if v != "fts growing"],
            range(1 if quick else 3), {"sizes": every, **common}, "ts", **shared,
        ),
        Part("agents", run_targets, list(agents), TIMED, seeds, {"sizes": agents, **common}, **shared),
    ]  # fmt: skip


EXPERIMENT = Experiment(
    "FTS, RGPE and TAF on landmine: message size, time and growing observations", parts, landmine.prepare
)


def run_targets(
    title: str,
    variant: str,
    start: int,
    sizes: dict[str, tuple[int, int, int]],
    directory: str,
    num_iterations: int,
    num_fields: int,
) -> Arrays:
    """Run one variant with the first fields as targets, one after the other; `ts` with all at once.

    Returns
    -------
    best : `(targets, iterations + 1)`, best values from the last starting point on
    CPU seconds : `(targets,)`, of a whole run
    numbers to the target : `(targets,)`; numbers from each agent : one number
    """
    num_features, num_targets, num_agents = sizes[title]
    algorithm, options = VARIANTS[variant]
    begin = time.process_time()
    if variant == "ts":
        found = landmine.curves_of(tune("ts", {}, SCALE, start, num_iterations, num_targets))
        seconds = np.full(num_targets, (time.process_time() - begin) / num_targets)
        return {"best": found, "CPU seconds": seconds}
    known = held(directory, SCALE, start, num_fields)
    best, spent, numbers = [], [], []
    for target in range(num_targets):
        targets = {} if variant == "fts growing" else {"targets": (str(target),)}
        own = {str(agent): known[str(agent)] for agent in range(num_agents) if agent != target}
        begin = time.process_time()
        chosen = {**options, **targets, "num_features": num_features}
        study = tune(algorithm, chosen, SCALE, start, num_iterations, num_agents, own)
        spent.append(time.process_time() - begin)
        names, curves = incumbents(study.trials)
        best.append(np.asarray(curves[list(names).index(str(target)), NUM_INITIAL - 1 :], dtype=np.float64))
        numbers.append(float(np.sum(study.rounds[runs.FLOATS[0]])))
    return {
        "best": np.array(best),
        "CPU seconds": np.array(spent),
        "numbers to the target": np.array(numbers),
        "numbers from each agent": np.array(floats_sent(algorithm, num_features)),
    }


def floats_sent(algorithm: str, num_features: int) -> int:
    """Return how many numbers an agent sends: `omega`, or a posterior, with TAF's its best value."""
    if algorithm == "fts":
        return num_features
    return num_features * (num_features + 3) // 2 + (algorithm == "taf")
