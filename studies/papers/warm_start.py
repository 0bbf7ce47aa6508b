"""Measure what saved messages are worth to a new federation, on landmine fields that no earlier study had.

The fields are divided into five groups. The fields outside a group tune with FTS, and their server saves
their messages; then the fields of the group tune with these messages and without. No observation is passed
on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import Keep, Start
from fbo_flower.simulation.problems import Config
from studies import runs
from studies.jobs import Arrays, Directory, Job, OnJob, job, load, open_directory, run_jobs
from studies.papers import compare
from studies.papers.fts.landmine import NUM_FIELDS, NUM_INITIAL, curves_of
from studies.problems.landmine_svm import LandmineSVM
from studies.report import clustered, write_results

NUM_GROUPS = 5  # of five fields each; four fields are never held out
GROUP = 5
_PORTFOLIO: Mapping[str, Any] = {"advice": "portfolio", "schedule": "first-5"}
VARIANTS: dict[str, tuple[str, Mapping[str, Any], bool]] = {
    "ts": ("ts", {}, False),
    "fts cold": ("fts", {}, False),
    "fts warm": ("fts", {}, True),
    "portfolio cold": ("fts", _PORTFOLIO, False),
    "portfolio warm": ("fts", _PORTFOLIO, True),
}
CHECKPOINTS = (1, 2, 5, 10, 20)


@dataclass(frozen=True)
class SomeFields(LandmineSVM):
    """The landmine problem restricted to some of the fields."""

    fields: str = ""  # numbers of the fields, separated by commas

    name: ClassVar[str] = "landmine-some-fields"

    def true_value(self, config: Config, partition: int) -> float:
        return super().true_value(config, int(self.fields.split(",")[partition]))

    def check_partition(self, partition: int) -> None:
        if not 0 <= partition < NUM_FIELDS:
            super().check_partition(partition)


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and a picture, and return these files.

    Parameters
    ----------
    quick : True: 2 groups, 6 earlier fields and 5 iterations; False: 5, 24 and 20
    """
    size = (2, 6, 5) if quick else (NUM_GROUPS, NUM_FIELDS - GROUP, 20)
    names = ("num_groups", "num_earlier", "num_iterations")
    path = open_directory(directory, {"experiment": "warm-start", **dict(zip(names, size, strict=True))})
    run_jobs(jobs(*size), path, num_workers, on_job, "groups")
    return report(path, *size)


def jobs(num_groups: int, num_earlier: int, num_iterations: int) -> list[Job]:
    """Return one job per held-out group of fields."""
    common = {"num_earlier": num_earlier, "num_iterations": num_iterations}
    return [job(run_group, group, **common) for group in range(num_groups)]


def groups() -> list[list[int]]:
    """Return the fields of every group, from a fixed random permutation."""
    order = np.random.default_rng(0).permutation(NUM_FIELDS)
    return [sorted(order[GROUP * i : GROUP * (i + 1)].tolist()) for i in range(NUM_GROUPS)]


def run_group(group: int, num_earlier: int, num_iterations: int) -> Arrays:
    """Let the other fields tune, then the group with every variant; return curves `(5, iterations + 1)`."""
    held_out = groups()[group]
    others = [field for field in range(NUM_FIELDS) if field not in held_out][:num_earlier]
    found: Arrays = {}
    with tempfile.TemporaryDirectory() as earlier:
        kept = Keep(messages=earlier)
        _simulate("fts", {}, others, 40_000 + group, num_iterations + 1, keep=kept)
        for variant, (algorithm, options, is_warm) in VARIANTS.items():
            start = Start(warm_start=earlier if is_warm else None)
            study = _simulate(algorithm, options, held_out, 50_000 + group, num_iterations + 1, start=start)
            found[variant] = curves_of(study)
    return found


def _simulate(
    algorithm: str, options: Mapping[str, Any], fields: list[int], seed: int, num_rounds: int, **settings: Any
) -> Any:
    problem = SomeFields(len(fields), seed, scale="linear", fields=",".join(map(str, fields)))
    return runs.run(problem, algorithm, {"num_initial": NUM_INITIAL, **options}, num_rounds, seed, **settings)


def report(directory: Path, num_groups: int, num_earlier: int, num_iterations: int) -> list[Path]:
    """Write the table and the picture from the finished jobs."""
    found = [load(directory, run_group, i) for i in range(num_groups)]
    curves = {v: np.concatenate([result[v] for result in found])[None] for v in VARIANTS}
    checkpoints = [t for t in CHECKPOINTS if t <= num_iterations]
    pairs = {"fts warm": "fts cold", "portfolio warm": "portfolio cold"}
    text = [
        f"{GROUP * num_groups} fields held out, {GROUP} at a time, linear scale; the messages are those of "
        f"{num_earlier} other fields after {num_iterations} iterations; s.e. over fields.\n",
        compare.markdown_table(curves, pairs, checkpoints=checkpoints),
        *(saved(curves[warm], curves[other], warm, other) for warm, other in pairs.items()),
        *(saved(curves[warm], curves["ts"], warm, "ts") for warm in pairs),
    ]
    picture = directory / "warm-start.png"
    compare.draw({"Held-out fields": curves}, {}, picture, ylabel="gain in best AUC over ts")
    return [write_results(directory, text), picture]


def saved(warm: Array, cold: Array, name: str, other: str) -> str:
    """Return a line that says how many evaluations a warm start saves to reach the cold run's last value.

    Per field, the first `t` with `warm >= cold's last` is compared with the first `t` at which the cold run
    reaches that value; a field that never reaches it counts one more than the number of iterations.
    """
    last = cold[0, :, -1:]
    steps = cold.shape[2]

    def first(curves: Array) -> Array:
        reached = curves[0] >= last - 1e-12
        return np.asarray(np.where(reached.any(axis=1), reached.argmax(axis=1), steps), dtype=np.float64)

    difference = clustered((first(cold) - first(warm))[None])
    return f"Evaluations that {name} saves on {other}'s last value: {difference}\n"
