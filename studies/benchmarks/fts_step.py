"""Measure the CPU time of one FTS agent step and of its parts.

    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.fts_step

A step is all that an agent does for one task with a free objective: check the task, propose
(draw and maximise), learn (refit on schedule), summarise (draw a message), remember, pack. Trials
grows from 45 to 55 observations, D = 2, M = 100, so that refits happen at their usual rate. In half
of the steps the agent uses another agent's weights, more than in any schedule after the first steps.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict

from fbo_flower import Float, SearchSpace, wire
from fbo_flower.algorithms import FTS
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.clients import TuningAgent
from fbo_flower.numerics.surrogates import rff
from fbo_flower.numerics.threads import single_thread

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
HISTORY, STEPS, REPEATS = 45, 10, 30


def objective(config: dict[str, Any], context: object) -> float:
    """Return the value of a smooth function with two hills."""
    x, y = config["x"], config["y"]
    hills = [(1.0, 8, 0.3, 0.6), (0.7, 20, 0.8, 0.2)]
    return float(sum(h * np.exp(-w * ((x - a) ** 2 + (y - b) ** 2)) for h, w, a, b in hills))


def main() -> None:
    """Print the table."""
    parts: dict[str, float] = defaultdict(float)
    for name in ("proposing", "learning", "summarising"):
        setattr(FTS, name, timed(getattr(FTS, name), name, parts))
    rng = np.random.default_rng(0)
    features = rff.draw_features(100, 0.5, 2, rng)
    total = 0.0
    with single_thread():
        for repeat in range(-1, REPEATS):  # repeat -1 loads SciPy and is not counted
            agent, envelope = new_agent(max(repeat, 0), rng)
            for trial in range(3 + STEPS):
                arrays: dict[str, Any] = {"frequencies": features.frequencies, "phases": features.phases}
                if trial % 2:
                    arrays["weights"] = rng.standard_normal(100)
                task = Task(Phase.TRAIN, trial + 1, trial, 1, arrays, {"message": True})
                packed = wire.encode_task(task, envelope)
                saved = dict(parts)
                started = time.process_time()
                agent.answer(packed)
                elapsed = time.process_time() - started
                if repeat < 0 or trial < 3:  # random starting points take no time
                    parts.update(saved | {name: 0.0 for name in parts if name not in saved})
                else:
                    total += elapsed
    steps = REPEATS * STEPS
    print(f"one FTS agent step, history 45-55, D = 2, M = 100: mean of {steps} steps, CPU ms")
    for name, seconds in parts.items():
        print(f"  {name:10s} {1000 * seconds / steps:6.2f}")
    print(f"  {'the rest':10s} {1000 * (total - sum(parts.values())) / steps:6.2f}  checks, memory, packing")
    print(f"  {'total':10s} {1000 * total / steps:6.2f}")


def new_agent(name: int, rng: np.random.Generator) -> tuple[TuningAgent, wire.Envelope]:
    """Return an agent that already holds observations."""
    points = rng.random((HISTORY - 3, 2))
    values = np.array([objective(SPACE.decode(point), None) for point in points])
    context = Context(1, 1, {"partition-id": name}, RecordDict(), {})
    agent = TuningAgent(objective, SPACE, context, seed=name, prior={str(name): (points, values)})
    return agent, wire.Envelope("bench", str(name), SPACE.digest, "fts", canonical_json(FTS().options()))


def timed(steps: Callable[..., Any], name: str, parts: dict[str, float]) -> Callable[..., Any]:
    """Return the steps with their CPU time added to `parts`, computations included."""

    def wrapped(*args: Any) -> Any:
        started = time.process_time()
        result = yield from steps(*args)
        parts[name] += time.process_time() - started
        return result

    return wrapped


if __name__ == "__main__":
    main()
