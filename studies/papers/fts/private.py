"""Differential privacy on landmine: gain at several noise levels.

All 29 fields tune at once, without earlier observations. The control has so much noise that its sums contain
nothing of the agents' messages: what it gains comes from exploration. Standard errors are over fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from studies.experiment import Arrays, Experiment, Part
from studies.papers.fts.landmine import NUM_FIELDS, Variants, measured, tune

CONTROL = 1e6  # noise multiplier at which the messages are lost in noise
_OURS: Mapping[str, Any] = {"num_regions": 4, "sampling_rate": 1.0}
PRIVATE: Variants = {
    "ts": ("ts", {}),
    "fts": ("fts", {}),
    **{f"dp-fts z={z:g}": ("dp-fts", {**_OURS, "noise_multiplier": z}) for z in (0, 1, 2, 4, 8, CONTROL)},
    "local z=2": ("dp-fts", {**_OURS, "noise": "local", "noise_multiplier": 2.0}),
}


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: 1 seed, 6 fields and 5 iterations."""
    control = f"dp-fts z={CONTROL:g}"
    pairs = [(name, control) for name in PRIVATE if name not in {"ts", "fts"}]
    return [
        Part(
            "dp-fts", run_private, ["linear"], list(PRIVATE), range(30_000, 30_001 if quick else 30_006),
            {"num_iterations": 5 if quick else 20, "num_fields": 6 if quick else NUM_FIELDS}, "ts",
            pairs=pairs, at=(1, 2, 5, 10, 20), first=0, over="agents",
            drawn="best, mean over iterations", against="epsilon",
        )
    ]  # fmt: skip


EXPERIMENT = Experiment("Differential privacy on landmine: gain at several noise levels", parts)


def run_private(scale: str, variant: str, seed: int, num_iterations: int, num_fields: int) -> Arrays:
    """Run one variant of `dp-fts`; return best values, their means over the iterations, and epsilon."""
    algorithm, options = PRIVATE[variant]
    study = tune(algorithm, options, scale, seed, num_iterations, num_fields)
    spent = study.settings["runs"][0].get("privacy", {}).get("epsilon")
    found = measured(study)
    mean = {"best, mean over iterations": found["best"][:, 1:].mean(axis=1)}
    return {**found, **mean, "epsilon": np.array(np.nan if spent is None else spent)}
