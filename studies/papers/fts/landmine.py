"""Run FTS on landmine detection, the paper's setting on all 29 fields [Dai2020, section 5.2].

Each field in turn is the target: 3 random starting points, then 50 iterations. The other 28 fields hold 50
observations from Thompson sampling alone and send one message. Every variant starts from the same points. In
a second part all 29 fields tune at once without earlier observations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import Start, make_problem
from fbo_flower.study import Study, incumbents
from studies import runs
from studies.jobs import Arrays, Directory, Job, OnJob, job, load, open_directory, run_jobs, stack
from studies.papers import compare
from studies.report import clustered, write_results

Observations = Mapping[str, tuple[Array, Array]]  # agent -> points and values

NUM_FIELDS = 29
NUM_INITIAL = 3
PRIOR_OBSERVATIONS = 50
SCALES = ("linear", "log")


@dataclass(frozen=True)
class Variant:
    """One variant of an algorithm, a line of the table.

    Parameters
    ----------
    algorithm, options : as `simulate` takes them
    local : whether agents tune alone, so that all fields run in one study
    """

    algorithm: str
    options: Mapping[str, Any] = field(default_factory=dict)
    local: bool = False


_ONCE = {"communication": "once"}
_CLIP = {"y_transform": "clip"}
VARIANTS: dict[str, Variant] = {
    "random": Variant("random", local=True),
    "ts": Variant("ts", local=True),
    "ts repeating": Variant("ts", {"min_distance": 0.0}, local=True),
    "ts clip": Variant("ts", _CLIP, local=True),
    "fts single": Variant("fts", _ONCE),
    "fts single 1-1/t^2": Variant("fts", _ONCE | {"schedule": "1-1/t^2"}),
    "fts mixture": Variant("fts", _ONCE | {"advice": "mixture"}),
    "fts portfolio": Variant("fts", _ONCE | {"advice": "portfolio", "schedule": "first-5"}),
    "fts portfolio clip": Variant("fts", _ONCE | _CLIP | {"advice": "portfolio", "schedule": "first-5"}),
    "control single": Variant("fts", {"advice": "random"}),
    "control portfolio": Variant("fts", {"advice": "random", "schedule": "first-5"}),
    "control portfolio clip": Variant("fts", _CLIP | {"advice": "random", "schedule": "first-5"}),
}
FROM_NOTHING: dict[str, Variant] = {
    "random": Variant("random"),
    "ts": Variant("ts"),
    "ts clip": Variant("ts", _CLIP),
    "fts single": Variant("fts"),
    "fts mixture": Variant("fts", {"advice": "mixture"}),
    "fts portfolio": Variant("fts", {"advice": "portfolio"}),
    "fts portfolio clip": Variant("fts", _CLIP | {"advice": "portfolio"}),
    "control": Variant("fts", {"advice": "random"}),
    "control clip": Variant("fts", _CLIP | {"advice": "random"}),
}
HIDDEN = ("random", "ts repeating", "fts single 1-1/t^2")  # shown in the table, not in the picture
BASELINES = {"fts portfolio clip": "ts clip", "control portfolio clip": "ts clip", "control clip": "ts clip"}


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and two pictures, and return these files.

    Parameters
    ----------
    quick : True: 2 starts, 4 fields and 10 iterations, a minute; False: 8, 29 and 50, an hour
    """
    size = (2, 2, 10, 4) if quick else (8, 5, 50, NUM_FIELDS)
    names = ("num_starts", "num_seeds", "num_iterations", "num_fields")
    path = open_directory(directory, {"experiment": "fts-landmine", **dict(zip(names, size, strict=True))})
    for stage, work in zip(("prior observations", "variants"), jobs(path, *size), strict=True):
        run_jobs(work, path, num_workers, on_job, stage)
    return report(path, *size)


def report(
    directory: Path, num_starts: int, num_seeds: int, num_iterations: int, num_fields: int
) -> list[Path]:
    """Write the tables and pictures from the finished jobs."""
    checkpoints = [t for t in compare.CHECKPOINTS if t <= num_iterations]
    text = [f"{num_fields} fields, {num_iterations} iterations after {NUM_INITIAL} starting points; AUC.\n"]
    files = []
    for part, function, variants, repeats, title in (
        ("paper", run_targets, VARIANTS, range(num_starts),
         "Each field in turn is the target, the others hold 50 observations"),
        ("nothing", run_together, FROM_NOTHING, range(num_seeds),
         "All fields at once, without earlier observations"),
    ):  # fmt: skip
        panels = {
            s: {v: stack(directory, "curves", repeats, function, v, s) for v in variants} for s in SCALES
        }
        for scale, panel in panels.items():
            text.append(f"## {title}, {scale} scale, {len(repeats)} starts\n")
            sent = {}
            for name in variants:
                loaded = [load(directory, function, name, scale, i) for i in repeats]
                if all("bytes" in arrays for arrays in loaded):
                    down, up = np.mean([arrays["bytes"] for arrays in loaded], axis=0)
                    sent[name] = (float(down), float(up))
            text.append(compare.markdown_table(panel, BASELINES, checkpoints=checkpoints, traffic=sent))
            text.append(_against_ts(panel, checkpoints))
        if part == "paper" and num_fields == NUM_FIELDS:
            text.append(_published(panels["linear"], num_iterations))
        picture = directory / f"{part}.png"
        shown = {f"{title}, {s} scale": panel for s, panel in panels.items()}
        compare.draw(shown, BASELINES, picture, ylabel="gain in best AUC over the baseline", hidden=HIDDEN)
        files.append(picture)
    return [write_results(directory, text), *files]


def _against_ts(panel: Mapping[str, Array], checkpoints: list[int]) -> str:
    """Return a line with the differences to plain `ts` of variants that are paired with another baseline."""
    lines = [
        f"{name} - ts at {', '.join(map(str, checkpoints))}: "
        + ", ".join(str(compare.gain(panel[name], panel["ts"], t)) for t in checkpoints)
        for name in BASELINES
        if name in panel
    ]
    return "\n\n".join(lines) + "\n"


def _published(panel: Mapping[str, Array], iteration: int) -> str:
    """Return a line with our results on the six targets of the published code."""
    single, alone = panel["fts single"][:, :6], panel["ts"][:, :6]
    means = [clustered(c[:, :, iteration]).mean for c in (single, alone)]
    return (
        f"Fields 1-6 at {iteration}, linear: fts single {means[0]:.4f}, ts {means[1]:.4f}, difference "
        f"{compare.gain(single, alone, iteration)}. Published code, same fields: FTS .8270, TS .8213, "
        "difference .0058 ± .0063.\n"
    )


def jobs(
    directory: Path, num_starts: int, num_seeds: int, num_iterations: int, num_fields: int
) -> list[list[Job]]:
    """Return the jobs in two stages: the other fields' earlier observations, then all runs."""
    common = {"num_iterations": num_iterations, "num_fields": num_fields}
    prior = [job(observe, s, start, num_fields=num_fields) for s in SCALES for start in range(num_starts)]
    paper = [
        job(run_targets, name, scale, start, directory=str(directory), **common)
        for start in range(num_starts)
        for scale in SCALES
        for name in VARIANTS
    ]
    nothing = [
        job(run_together, name, scale, seed, **common)
        for seed in range(num_seeds)
        for scale in SCALES
        for name in FROM_NOTHING
    ]
    return [prior, paper + nothing]


# -- jobs --------------------------------------------------------------------------------------


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
    variant: str, scale: str, start: int, directory: str, num_iterations: int, num_fields: int
) -> Arrays:
    """Run one variant with every field as the target; return best values `(fields, iterations + 1)`."""
    chosen = VARIANTS[variant]
    if chosen.local:
        study = tune(chosen.algorithm, chosen.options, scale, start, num_iterations, num_fields)
        return {"curves": curves_of(study)}
    known = held(directory, scale, start, num_fields)
    rows, sent = [], np.zeros(2)
    for target in range(num_fields):
        options = {**chosen.options, "targets": (str(target),)}
        own = {agent: seen for agent, seen in known.items() if agent != str(target)}
        study = tune(chosen.algorithm, options, scale, start, num_iterations, num_fields, own)
        rows.append(curves_of(study)[0])
        sent += [float(np.sum(study.rounds[name])) for name in runs.BYTES]
    return {"curves": np.array(rows), "bytes": sent / num_fields}


def run_together(variant: str, scale: str, seed: int, num_iterations: int, num_fields: int) -> Arrays:
    """Run one variant with all fields as targets at once, without earlier observations."""
    chosen = FROM_NOTHING[variant]
    study = tune(chosen.algorithm, chosen.options, scale, 20_000 + seed, num_iterations, num_fields)
    return {"curves": curves_of(study), "bytes": runs.traffic(study)}


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
