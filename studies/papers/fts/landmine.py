"""Run FTS on landmine detection, the paper's setting on all 29 fields [Dai2020, section 5.2].

Each field in turn is the target, with 3 random starting points, then 50 iterations. The other 28 fields hold
50 observations from Thompson sampling alone and send one message. Every variant starts from the same points.
Repetitions on one field are not independent, so standard errors are over fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import Start, make_problem
from fbo_flower.study import Study, incumbents
from studies import experiment as runs
from studies.experiment import Arrays, Experiment, OnJob, Part, job, load, run_jobs

Variants = Mapping[str, tuple[str, Mapping[str, Any]]]  # label -> algorithm and options

NUM_FIELDS, NUM_INITIAL, PRIOR_OBSERVATIONS = 29, 3, 50
SCALES = ("linear", "log")
_ONCE, _CLIP, _FIRST = {"communication": "once"}, {"y_transform": "clip"}, {"schedule": "first-5"}
VARIANTS: Variants = {
    "ts": ("ts", {}),
    "ts clip": ("ts", _CLIP),
    "fts single": ("fts", _ONCE),
    "fts mixture": ("fts", _ONCE | {"advice": "mixture"}),
    "fts portfolio": ("fts", _ONCE | _FIRST | {"advice": "portfolio"}),
    "fts portfolio clip": ("fts", _ONCE | _FIRST | _CLIP | {"advice": "portfolio"}),
    "control single": ("fts", {"advice": "random"}),
    "control portfolio": ("fts", _FIRST | {"advice": "random"}),
    "control portfolio clip": ("fts", _FIRST | _CLIP | {"advice": "random"}),
}


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: 1 start, 2 fields and 5 iterations."""
    common = {"num_iterations": 5 if quick else 50, "num_fields": 2 if quick else NUM_FIELDS}
    clipped = [name for name in VARIANTS if name.endswith(" clip") and name != "ts clip"]
    return [
        Part(
            "each field in turn", run_targets, SCALES, list(VARIANTS), range(1 if quick else 8),
            {"directory": str(directory), **common}, "ts", pairs=[(name, "ts clip") for name in clipped],
            at=(5, 10, 20, 50), first=0, over="agents", drawn="best",
        )
    ]  # fmt: skip


def prepare(directory: Path, parts: Sequence[Part], num_workers: int, on_job: OnJob | None) -> None:
    """Let every field tune alone, whose observations the targets' runs read."""
    fields = parts[0].common["num_fields"]
    work = [job(observe, s, start, num_fields=fields) for s in SCALES for start in parts[0].seeds]
    run_jobs(work, directory, num_workers, on_job, "prior observations")


EXPERIMENT = Experiment("FTS on 29 landmine fields, each in turn the target", parts, prepare)


# -- runs --------------------------------------------------------------------------------------


def observe(scale: str, start: int, num_fields: int) -> Arrays:
    """Let every field tune alone; return its 50 points and values."""
    study = tune("ts", {}, scale, 10_000 + start, PRIOR_OBSERVATIONS - NUM_INITIAL, num_fields)
    return runs.observed(study, make_problem("landmine-svm", None, 0, {"scale": scale}))


def held(directory: str, scale: str, start: int, num_fields: int) -> dict[str, tuple[Array, Array]]:
    """Return what `observe` has found for every field."""
    return runs.held(load(Path(directory), observe, scale, start), range(num_fields))


def run_targets(
    scale: str, variant: str, start: int, directory: str, num_iterations: int, num_fields: int
) -> Arrays:
    """Run one variant with every field as the target; return best values `(fields, iterations + 1)`."""
    algorithm, options = VARIANTS[variant]
    if algorithm != "fts":  # alone: all fields in one study
        return measured(tune(algorithm, options, scale, start, num_iterations, num_fields))
    known = held(directory, scale, start, num_fields)
    rows, sent = [], np.zeros(2)
    for target in range(num_fields):
        own = {agent: seen for agent, seen in known.items() if agent != str(target)}
        chosen = {**options, "targets": (str(target),)}
        study = tune(algorithm, chosen, scale, start, num_iterations, num_fields, own)
        rows.append(curves_of(study)[0])
        sent += [float(np.sum(study.rounds[name])) for name in runs.BYTES]
    return {"best": np.array(rows), **dict(zip(runs.BYTES, sent / num_fields, strict=True))}


def measured(study: Study) -> Arrays:
    """Return the best values of a study and the bytes that were sent per agent."""
    return {"best": curves_of(study), **runs.traffic(study)}


def tune(
    algorithm: str,
    options: Mapping[str, Any],
    scale: str,
    seed: int,
    num_iterations: int,
    num_fields: int,
    prior: Mapping[str, tuple[Array, Array]] | None = None,
) -> Study:
    """Return a study of the first fields, from three starting points and from earlier observations."""
    problem = make_problem("landmine-svm", num_fields, seed, {"scale": scale})
    options = {"num_initial": NUM_INITIAL, **options}
    return runs.run(problem, algorithm, options, num_iterations + 1, seed, start=Start(observations=prior))


def curves_of(study: Study) -> Array:
    """Return best values so far `(fields, iterations + 1)`, from the last starting point on."""
    _, best = incumbents(study.trials)
    return np.asarray(best[:, NUM_INITIAL - 1 :], dtype=np.float64)
