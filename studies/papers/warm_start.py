"""Measure what saved messages are worth to a new federation, on landmine fields that no earlier study had.

The fields are divided into five groups. The fields outside a group tune with FTS, and their server saves
their messages; then the fields of the group tune with these messages and without. No observation is passed
on. Standard errors are over all fields that were held out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fbo_flower.simulation import Keep, Start
from fbo_flower.simulation.problems import Config
from studies import experiment as runs
from studies.experiment import Arrays, Experiment, Part
from studies.papers.fts.landmine import NUM_FIELDS, NUM_INITIAL, curves_of
from studies.problems.landmine_svm import LandmineSVM

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


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: 2 groups, 6 earlier fields and 5 iterations."""
    size = {
        "num_earlier": 6 if quick else NUM_FIELDS - GROUP, "num_iterations": 5 if quick else 20,
    }  # fmt: skip
    return [
        Part(
            "warm start", run_group, ["linear"], list(VARIANTS), range(2 if quick else NUM_GROUPS), size,
            baseline="ts", pairs=[("fts warm", "fts cold"), ("portfolio warm", "portfolio cold")],
            at=(1, 2, 5, 10, 20), first=0, over="runs", joint=True, fixed=True, drawn="best",
        )
    ]  # fmt: skip


EXPERIMENT = Experiment("Landmine fields that start from the messages of other fields", parts)


def groups() -> list[list[int]]:
    """Return the fields of every group, from a fixed random permutation."""
    order = np.random.default_rng(0).permutation(NUM_FIELDS)
    return [sorted(order[GROUP * i : GROUP * (i + 1)].tolist()) for i in range(NUM_GROUPS)]


def run_group(scale: str, group: int, num_earlier: int, num_iterations: int) -> Arrays:
    """Let the other fields tune, then the group with every variant; return curves `(5, iterations + 1)`."""
    held_out = groups()[group]
    others = [field for field in range(NUM_FIELDS) if field not in held_out][:num_earlier]

    def tune(algorithm: str, options: Mapping[str, Any], fields: list[int], seed: int, **more: Any) -> Any:
        problem = SomeFields(len(fields), seed, scale="linear", fields=",".join(map(str, fields)))
        chosen = {"num_initial": NUM_INITIAL, **options}
        return runs.run(problem, algorithm, chosen, num_iterations + 1, seed, **more)

    found: Arrays = {}
    with tempfile.TemporaryDirectory() as earlier:
        tune("fts", {}, others, 40_000 + group, keep=Keep(messages=earlier))
        for variant, (algorithm, options, is_warm) in VARIANTS.items():
            start = Start(warm_start=earlier if is_warm else None)
            study = tune(algorithm, options, held_out, 50_000 + group, start=start)
            found[f"{variant}/best"] = curves_of(study)
    return found
