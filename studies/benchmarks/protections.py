"""Time an agent's answers with the protections that it enforces; run it in two checkouts to compare them.

    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.protections

Prints, for each setting, the median of the milliseconds of CPU per answer, and the bytes of its reports.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict

from fbo_flower import wire
from fbo_flower.algorithms import DPFTS, Algorithm, RandomSearch
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.clients import TuningAgent
from fbo_flower.numerics.surrogates import rff
from fbo_flower.space import Float, SearchSpace
from fbo_flower.wire.flower_records import count_bytes, to_records
from studies.benchmarks.bench import cpu_ms, say
from studies.report import head

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
SMALL = {"sampling_rate": 1.0, "num_candidates": 64, "num_path_features": 32}
SETTINGS: dict[str, tuple[Algorithm[Any], dict[str, Any]]] = {
    "random, a journal": (RandomSearch(), {}),
    "random, max_trials": (RandomSearch(), {"max_trials": 10_000}),
    "dp-fts, central noise": (DPFTS(**SMALL), {}),  # type: ignore[arg-type]
    "dp-fts, local noise": (DPFTS(noise="local", **SMALL), {}),  # type: ignore[arg-type]
    "dp-fts, local noise, max_epsilon": (
        DPFTS(noise="local", noise_multiplier=20.0, **SMALL),  # type: ignore[arg-type]
        {"max_epsilon": 50.0},
    ),
}
NUM_ANSWERS = 60


def measure(algorithm: Algorithm[Any], config: dict[str, Any], directory: Path) -> tuple[float, int]:
    """Return the median CPU milliseconds of one answer, and the bytes of the last report."""
    features = rff.draw_features(30, 0.5, 2, np.random.default_rng(0))
    arrays = {"frequencies": features.frequencies, "phases": features.phases}
    context = Context(1, 2, {"agent": "0", "journal": str(directory / "a.db"), **config}, RecordDict(), {})
    options = canonical_json(algorithm.options())
    envelope = wire.Envelope("study", "0", SPACE.digest, algorithm.name, options)
    asks = isinstance(algorithm, DPFTS)
    times, size = [], 0
    for i in range(NUM_ANSWERS):
        first, number = (0, 3) if i == 0 else (i + 2, 1)
        task = Task(
            Phase.TRAIN, i + 1, first, number, arrays if asks else {}, {"message": True} if asks else {}
        )
        message = wire.encode_task(task, envelope)
        taken, reply = cpu_ms(partial(answered, message, context), 1)
        times.append(taken)
        size = count_bytes(to_records(reply))
    return float(np.median(times)), size


def answered(message: wire.Packed, context: Context) -> wire.Packed:
    """Return the answer of an agent that is made for this message, as Flower does."""
    return TuningAgent(_objective, SPACE, context).answer(message)


def _objective(config: dict[str, Any], context: object) -> float:
    return -((float(config["x"]) - 0.3) ** 2)


if __name__ == "__main__":
    print(head(["setting", "ms of CPU per answer", "bytes of a report"]))
    for name, (algorithm, config) in SETTINGS.items():
        with TemporaryDirectory() as folder:
            milliseconds, size = measure(algorithm, config, Path(folder))
        say(name, f"{milliseconds:.1f}", size)
