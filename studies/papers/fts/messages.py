"""Compare messages of FTS, RGPE and TAF on landmine detection: size, time and gain [Dai2020, Figs. 2-5].

Fields 1 to 6 in turn are the target, as in the published figures, with messages of 50 to 200 features; with
100 features all 29 fields are. The other fields hold 50 observations from Thompson sampling alone and send
one message. In a second part the others continue to tune, so that their observations grow (Fig. 4). A third
part measures time against the number of agents (Fig. 3d). Variants share targets and starting points. Seconds
are CPU seconds of the server, the target and the other agents together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import Start, make_problem, simulate
from fbo_flower.study import incumbents
from studies.jobs import Arrays, Directory, Job, OnJob, load_job, open_directory, run_jobs
from studies.papers.fts import messages_report
from studies.papers.fts.landmine import NUM_FIELDS, NUM_INITIAL, Variant, observe
from studies.papers.fts.messages_report import ALL_TARGETS, NUM_FEATURES, Size

SCALE = "linear"
_ONCE = {"communication": "once"}
VARIANTS: dict[str, Variant] = {
    "fts": Variant("fts", _ONCE | {"schedule": "1-1/t^2"}),
    "fts 1-1/sqrt(t)": Variant("fts", _ONCE),
    "fts portfolio": Variant("fts", _ONCE | {"advice": "portfolio", "schedule": "first-5"}),
    "rgpe": Variant("rgpe", _ONCE),
    "taf": Variant("taf", _ONCE),
    "taf seen": Variant("taf", _ONCE | {"improvement_over": "seen"}),
}
LOCAL = Variant("ts", local=True)
ONE_SIZE = ("fts 1-1/sqrt(t)", "fts portfolio")  # these run with 100 features only
GENERAL = ("fts 1-1/sqrt(t)",)
COUNTS = (3, 6, 12, 20, 28)  # numbers of other agents


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and two pictures, and return these files.

    The files are rewritten after every start, so a stopped run leaves those of its finished starts.

    Parameters
    ----------
    quick : True: 2 starts, 2 targets among 4 fields, 8 iterations; False: 10 starts with 6 targets, and 3
        starts with all 29 fields as targets
    """
    size = Size(8, 4, 2) if quick else Size(50, NUM_FIELDS, 6)
    num_starts, num_all_starts = (2, 1) if quick else (10, 3)
    path = open_directory(directory, {"experiment": "fts-messages", **asdict(size)})
    kinds = (tuple(VARIANTS), GENERAL, counts(size.num_fields))
    files: list[Path] = []
    for start in range(num_starts):
        for stage, work in jobs(path, size, start).items():
            run_jobs(work, path, num_workers, partial(on_job, f"{stage} {start}"))
        files = messages_report.report(path, size, start + 1, 0, *kinds)
    for start in range(num_all_starts):
        work = all_targets(path, size, start)
        run_jobs(work, path, num_workers, partial(on_job, f"all fields {start}"))
        files = messages_report.report(path, size, num_starts, start + 1, *kinds)
    return files


def counts(num_fields: int) -> tuple[int, ...]:
    """Return the numbers of other agents for which time is measured."""
    return tuple(c for c in COUNTS if c < num_fields)


def jobs(directory: Path, size: Size, start: int) -> dict[str, list[Job]]:
    """Return the jobs of one start, by stage."""
    name = messages_report.job_name
    known = {"directory": str(directory), "start": start}
    common = {**known, "num_iterations": size.num_iterations, "num_fields": size.num_fields}
    targets = {"num_targets": size.num_targets}
    prior = {"scale": SCALE, "start": start, "num_fields": size.num_fields}
    return {
        "prior": [Job(f"prior-{SCALE}-{start}", observe, prior)],
        "runs": [
            Job(f"ts-{start}", run_alone, common),
            *(
                Job(name(v, m, start), run_targets, {"variant": v, "num_features": m, **targets, **common})
                for m in NUM_FEATURES
                for v in VARIANTS
                if m == ALL_TARGETS or v not in ONE_SIZE
            ),
            *(
                Job(
                    f"growing-{name(v, ALL_TARGETS, start)}", run_growing, {"variant": v, **targets, **common}
                )
                for v in GENERAL
            ),
            *(
                Job(
                    f"agents-{count}-{name(v, ALL_TARGETS, start)}",
                    run_few,
                    {"variant": v, "count": count, **common},
                )
                for count in counts(size.num_fields)
                for v in messages_report.TIMED
            ),
        ],
    }


def all_targets(directory: Path, size: Size, start: int) -> list[Job]:
    """Return the jobs of one start with every field as a target."""
    common = {"directory": str(directory), "start": start, "num_features": ALL_TARGETS}
    common |= {"num_iterations": size.num_iterations, "num_fields": size.num_fields}
    return [
        Job(
            f"all-{messages_report.job_name(v, ALL_TARGETS, start)}",
            run_targets,
            {"variant": v, "num_targets": size.num_fields, **common},
        )
        for v in VARIANTS
    ]


# -- jobs --------------------------------------------------------------------------------------


def run_alone(start: int, directory: str, num_iterations: int, num_fields: int) -> Arrays:
    """Run Thompson sampling for every field alone."""
    curves, seconds, _ = _study(LOCAL, {}, start, num_iterations, num_fields, None, None)
    return {"curves": curves, "seconds": seconds / num_fields}


def run_targets(
    variant: str,
    num_features: int,
    start: int,
    num_targets: int,
    directory: str,
    num_iterations: int,
    num_fields: int,
) -> Arrays:
    """Run one variant with the first fields as targets, one after the other."""
    held = _held(directory, start, num_fields)
    found = [
        _study(
            VARIANTS[variant],
            {"num_features": num_features, "targets": (str(target),)},
            start,
            num_iterations,
            num_fields,
            held,
            target,
        )
        for target in range(num_targets)
    ]
    return _stacked(found)


def run_growing(
    variant: str, start: int, num_targets: int, directory: str, num_iterations: int, num_fields: int
) -> Arrays:
    """Run a target without observations among others that hold 50 observations and continue to tune."""
    held = _held(directory, start, num_fields)
    options = {"communication": "every-round", "num_features": ALL_TARGETS}
    found = [
        _study(VARIANTS[variant], options, start, num_iterations, num_fields, held, target)
        for target in range(num_targets)
    ]
    return _stacked(found)


def run_few(
    variant: str, start: int, count: int, directory: str, num_iterations: int, num_fields: int
) -> Arrays:
    """Run field 1 as the target among `count` other fields."""
    held = _held(directory, start, num_fields)
    options = {"num_features": ALL_TARGETS, "targets": ("0",)}
    return _stacked([_study(VARIANTS[variant], options, start, num_iterations, count + 1, held, 0)])


def _held(directory: str, start: int, num_fields: int) -> dict[str, tuple[Array, Array]]:
    prior = load_job(Path(directory), f"prior-{SCALE}-{start}")
    rows = {str(agent): prior["agent"] == agent for agent in range(num_fields)}
    return {agent: (prior["points"][r], prior["values"][r]) for agent, r in rows.items()}


def _stacked(found: Sequence[tuple[Array, Array, Array]]) -> Arrays:
    curves, seconds, floats = (np.array(part) for part in zip(*found, strict=True))
    return {"curves": curves, "seconds": seconds, "floats": floats}


def _study(
    variant: Variant,
    options: Mapping[str, Any],
    start: int,
    num_iterations: int,
    num_fields: int,
    held: Mapping[str, tuple[Array, Array]] | None,
    target: int | None,
) -> tuple[Array, Array, Array]:
    """Return a target's best values and CPU seconds so far, each `(T + 1,)`, and floats down and up `(2,)`.

    If `target` is None, the best values are those of all fields.
    """
    taken: list[float] = []
    agents = {str(agent) for agent in range(num_fields)} - {str(target)}
    begin = time.process_time()
    study = simulate(
        make_problem("landmine-svm", num_fields, start, {"scale": SCALE}),
        algorithm=make_algorithm(
            variant.algorithm, {"num_initial": NUM_INITIAL, **variant.options, **options}
        ),
        num_rounds=num_iterations + 1,
        seed=start,
        engine="inline",
        start=Start(observations={agent: seen for agent, seen in (held or {}).items() if agent in agents}),
        callbacks=[lambda progress: taken.append(time.process_time() - begin)],
    )
    names, best = incumbents(study.trials)
    curves = np.asarray(best[:, NUM_INITIAL - 1 :], dtype=np.float64)
    floats = np.array([float(np.sum(study.rounds[name])) for name in ("floats_down", "floats_up")])
    if target is None:
        return curves, np.array(taken), floats
    return curves[list(names).index(str(target))], np.array(taken), floats
