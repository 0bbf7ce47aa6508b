"""Compare messages of FTS, RGPE and TAF on landmine detection: numbers, time and gain [Dai2020, Figs. 2-5].

Fields 1 to 6 in turn are the target, as in the published figures, with messages of 100 features. The other
fields hold 50 observations from Thompson sampling alone and send one message; in the row "growing" they
continue to tune (Fig. 4). Variants share targets and starting points. Seconds are CPU seconds of the server,
the target and the other agents together.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from fbo_flower.study import incumbents
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
NUM_FEATURES = 100


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: 1 start, 2 targets among 4 fields, 8 iterations."""
    fields, targets = (4, 2) if quick else (NUM_FIELDS, 6)
    common = {"directory": str(directory), "num_iterations": 8 if quick else 50}
    common |= {"num_fields": fields, "num_targets": targets}
    return [
        Part(
            "messages", run_targets, [f"fields 1-{targets}"], list(VARIANTS), range(1 if quick else 10),
            common, "ts", drawn="best", at=(5, 10, 20, 50), first=0, over="agents",
        )
    ]  # fmt: skip


EXPERIMENT = Experiment("FTS, RGPE and TAF on landmine: numbers, time and gain", parts, landmine.prepare)


def run_targets(
    title: str, variant: str, start: int, directory: str, num_iterations: int, num_fields: int,
    num_targets: int,
) -> Arrays:  # fmt: skip
    """Run one variant with the first fields as targets, one after the other; `ts` with all at once.

    Returns
    -------
    best : `(targets, iterations + 1)`, best values from the last starting point on
    CPU seconds : `(targets,)`, of a whole run
    numbers to the target : `(targets,)`; numbers from each agent : one number
    """
    algorithm, options = VARIANTS[variant]
    begin = time.process_time()
    if variant == "ts":
        found = landmine.curves_of(tune("ts", {}, SCALE, start, num_iterations, num_targets))
        seconds = np.full(num_targets, (time.process_time() - begin) / num_targets)
        return {"best": found, "CPU seconds": seconds}
    known = held(directory, SCALE, start, num_fields)
    best, spent, numbers = [], [], []
    for target in map(str, range(num_targets)):
        targets = {} if variant == "fts growing" else {"targets": (target,)}
        own = {agent: seen for agent, seen in known.items() if agent != target}
        begin = time.process_time()
        chosen = {**options, **targets, "num_features": NUM_FEATURES}
        study = tune(algorithm, chosen, SCALE, start, num_iterations, num_fields, own)
        spent.append(time.process_time() - begin)
        names, curves = incumbents(study.trials)
        best.append(np.asarray(curves[list(names).index(target), NUM_INITIAL - 1 :], dtype=np.float64))
        numbers.append(float(np.sum(study.rounds["floats_down"])))
    each = NUM_FEATURES  # numbers of a message: `omega`, or a posterior, with TAF's best value
    if algorithm != "fts":
        each = NUM_FEATURES * (NUM_FEATURES + 3) // 2 + (algorithm == "taf")
    return {
        "best": np.array(best),
        "CPU seconds": np.array(spent),
        "numbers to the target": np.array(numbers),
        "numbers from each agent": np.array(each),
    }
