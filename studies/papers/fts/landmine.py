"""Run FTS on landmine detection, the paper's setting on all 29 fields [Dai2020, section 5.2].

`fts-landmine`: each field in turn is the target, with 3 random starting points, then 50 iterations. The other
28 fields hold 50 observations from Thompson sampling alone and send one message. Every variant starts from
the same points. In a second part all 29 fields tune at once without earlier observations.

`dp-fts`: all fields tune at once, without earlier observations, at several noise levels. The control has so
much noise that its sums contain nothing of the agents' messages: what it gains comes from exploration.

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

Observations = Mapping[str, tuple[Array, Array]]  # agent -> points and values
Variants = Mapping[str, tuple[str, Mapping[str, Any]]]  # label -> algorithm and options

NUM_FIELDS, NUM_INITIAL = 29, 3
PRIOR_OBSERVATIONS = 50
SCALES = ("linear", "log")
_ONCE, _CLIP = {"communication": "once"}, {"y_transform": "clip"}
_FIRST = {"schedule": "first-5"}
VARIANTS: Variants = {
    "random": ("random", {}),
    "ts": ("ts", {}),
    "ts repeating": ("ts", {"min_distance": 0.0}),
    "ts clip": ("ts", _CLIP),
    "fts single": ("fts", _ONCE),
    "fts single 1-1/t^2": ("fts", _ONCE | {"schedule": "1-1/t^2"}),
    "fts mixture": ("fts", _ONCE | {"advice": "mixture"}),
    "fts portfolio": ("fts", _ONCE | _FIRST | {"advice": "portfolio"}),
    "fts portfolio clip": ("fts", _ONCE | _FIRST | _CLIP | {"advice": "portfolio"}),
    "control single": ("fts", {"advice": "random"}),
    "control portfolio": ("fts", _FIRST | {"advice": "random"}),
    "control portfolio clip": ("fts", _FIRST | _CLIP | {"advice": "random"}),
}
FROM_NOTHING: Variants = {
    "random": ("random", {}),
    "ts": ("ts", {}),
    "ts clip": ("ts", _CLIP),
    "fts single": ("fts", {}),
    "fts mixture": ("fts", {"advice": "mixture"}),
    "fts portfolio": ("fts", {"advice": "portfolio"}),
    "fts portfolio clip": ("fts", _CLIP | {"advice": "portfolio"}),
    "control": ("fts", {"advice": "random"}),
    "control clip": ("fts", _CLIP | {"advice": "random"}),
}
HIDDEN = ("random", "ts repeating", "fts single 1-1/t^2")  # shown in the table, not in the picture

CONTROL = 1e6  # noise multiplier at which the messages are lost in noise
_OURS: Mapping[str, Any] = {"num_regions": 4, "sampling_rate": 1.0}
_DRAWS: Mapping[str, Any] = {
    "num_regions": 4, "sampling_rate": 0.35, "message": "draw", "message_noise_variance": 1e-2,
    "num_features": 100, "clip": 11.0,
}  # fmt: skip
PRIVATE: Variants = {
    "ts": ("ts", {}),
    "fts": ("fts", {}),
    **{f"dp-fts z={z:g}": ("dp-fts", {**_OURS, "noise_multiplier": z}) for z in (0, 1, 2, 4, 8, CONTROL)},
    **{f"draws z={z:g}": ("dp-fts", {**_DRAWS, "noise_multiplier": z}) for z in (0, 1, CONTROL)},
    "local z=2": ("dp-fts", {**_OURS, "noise": "local", "noise_multiplier": 2.0}),
}


def _pairs_with_clipped(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, "ts clip") for name in names if name.endswith("clip") and name != "ts clip"]


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return both parts of `fts-landmine`; quick: 1 start, 4 fields and 10 iterations."""
    common = {"num_iterations": 10 if quick else 50, "num_fields": 4 if quick else NUM_FIELDS}
    shared: dict[str, Any] = {
        "baseline": "ts", "at": (5, 10, 20, 50), "first": 0, "over": "agents", "drawn": "best",
        "hidden": HIDDEN,
    }  # fmt: skip
    return [
        Part(
            "each field in turn", run_targets, SCALES, list(VARIANTS), range(1 if quick else 8),
            {"directory": str(directory), **common}, pairs=_pairs_with_clipped([*VARIANTS]), **shared,
        ),
        Part(
            "all fields from nothing", run_together, SCALES, list(FROM_NOTHING),
            range(20_000, 20_000 + (1 if quick else 5)), common,
            pairs=_pairs_with_clipped([*FROM_NOTHING]), **shared,
        ),
    ]  # fmt: skip


def private(quick: bool, directory: Path) -> list[Part]:
    """Return `dp-fts`; quick: 1 seed, 6 fields and 5 iterations."""
    controls = {"dp-fts": f"dp-fts z={CONTROL:g}", "draws": f"draws z={CONTROL:g}"}
    pairs = [(name, controls[start]) for name in PRIVATE if (start := name.split(" ")[0]) in controls]
    return [
        Part(
            "dp-fts", run_private, ["linear"], list(PRIVATE), range(30_000, 30_001 if quick else 30_006),
            {"num_iterations": 5 if quick else 20, "num_fields": 6 if quick else NUM_FIELDS}, "ts",
            pairs=[*pairs, ("local z=2", controls["dp-fts"])], at=(1, 2, 5, 10, 20), first=0, over="agents",
            drawn="best, mean over iterations", against="epsilon",
        )
    ]  # fmt: skip


def prepare(directory: Path, parts: Sequence[Part], num_workers: int, on_job: OnJob | None) -> None:
    """Let every field tune alone, whose observations the targets' runs read."""
    first = parts[0]
    scales, fields = [s for s in SCALES if s in first.problems] or ["linear"], first.common["num_fields"]
    work = [job(observe, s, start, num_fields=fields) for s in scales for start in first.seeds]
    run_jobs(work, directory, num_workers, on_job, "prior observations")


EXPERIMENT = Experiment("FTS on 29 landmine fields, each in turn the target", parts, prepare)
PRIVATE_EXPERIMENT = Experiment("Differential privacy on landmine: gain at several noise levels", private)


# -- runs --------------------------------------------------------------------------------------


def observe(scale: str, start: int, num_fields: int) -> Arrays:
    """Let every field tune alone; return its 50 points and values."""
    trials = tune("ts", {}, scale, 10_000 + start, PRIOR_OBSERVATIONS - NUM_INITIAL, num_fields).trials
    space = make_problem("landmine-svm", None, 0, {"scale": scale}).space
    return {
        "agent": np.array(trials["agent"].tolist(), dtype=np.int64).astype(np.float64),
        "points": np.array([space.encode(config) for config in trials["config"]]),
        "values": np.asarray(trials["value"], dtype=np.float64),
    }


def held(directory: str, scale: str, start: int, num_fields: int) -> Observations:
    """Return what `observe` has found for every field."""
    prior = load(Path(directory), observe, scale, start)
    rows = {str(agent): prior["agent"] == agent for agent in range(num_fields)}
    return {agent: (prior["points"][r], prior["values"][r]) for agent, r in rows.items()}


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
    down, up = sent / num_fields
    return {"best": np.array(rows), "bytes_down": np.array(down), "bytes_up": np.array(up)}


def run_together(scale: str, variant: str, seed: int, num_iterations: int, num_fields: int) -> Arrays:
    """Run one variant with all fields as targets at once, without earlier observations."""
    algorithm, options = FROM_NOTHING[variant]
    return measured(tune(algorithm, options, scale, seed, num_iterations, num_fields))


def run_private(scale: str, variant: str, seed: int, num_iterations: int, num_fields: int) -> Arrays:
    """Run one variant of `dp-fts`; return best values, their means over the iterations, and epsilon."""
    algorithm, options = PRIVATE[variant]
    study = tune(algorithm, options, scale, seed, num_iterations, num_fields)
    spent = study.settings["runs"][0].get("privacy", {}).get("epsilon")
    found = measured(study)
    mean = {"best, mean over iterations": found["best"][:, 1:].mean(axis=1)}
    return {**found, **mean, "epsilon": np.array(np.nan if spent is None else spent)}


def measured(study: Study) -> Arrays:
    """Return the best values of a study and the bytes that were sent per agent."""
    down, up = runs.traffic(study)
    return {"best": curves_of(study), "bytes_down": np.array(down), "bytes_up": np.array(up)}


def tune(
    algorithm: str,
    options: Mapping[str, Any],
    scale: str,
    seed: int,
    num_iterations: int,
    num_fields: int,
    prior: Observations | None = None,
    **more: Any,
) -> Study:
    """Return a study of the first fields, from three starting points and from earlier observations."""
    problem = make_problem("landmine-svm", num_fields, seed, {"scale": scale})
    options = {"num_initial": NUM_INITIAL, **options}
    return runs.run(
        problem, algorithm, options, num_iterations + 1, seed, start=Start(observations=prior), **more
    )


def curves_of(study: Study) -> Array:
    """Return best values so far `(fields, iterations + 1)`, from the last starting point on."""
    _, best = incumbents(study.trials)
    return np.asarray(best[:, NUM_INITIAL - 1 :], dtype=np.float64)
