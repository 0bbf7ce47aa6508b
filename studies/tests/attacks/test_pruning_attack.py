"""A server that sends absurd medians of curves, to stop every trial of an agent.

The attack succeeds against an agent without the two bounds, the control: a pooled median counts only where a
completed trial of the agent has reached it, and only until the agent has curves of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fbo_flower import wire
from fbo_flower.algorithms import RandomSearch
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.clients import Pruning, TuningAgent
from fbo_flower.clients.pruning import CurveBook
from fbo_flower.errors import WireError
from fbo_flower.space import Float, SearchSpace
from fbo_flower.wire.codec import POOLED

SPACE = SearchSpace({"x": Float(0.0, 1.0)})
NUM_TRIALS = 60


def objective(config: Any, context: Any) -> float:
    for step in range(4):
        context.report(step, config["x"] * (step + 1))
        if context.should_stop():
            break
    return float(config["x"] * 4)


def attacked(medians: Callable[[int], float], pruning: Pruning) -> list[int]:
    """Return the trials that stopped before the agent had curves of its own.

    Parameters
    ----------
    medians : `medians(trial)` is what the server claims at all steps
    """
    context = Context(1, 2, {"partition-id": 3}, RecordDict(), {})
    agent = TuningAgent(objective, SPACE, context, seed=1, disclose="trials", pruning=pruning)
    options, found, completed = canonical_json(RandomSearch().options()), [], 0
    for trial in range(NUM_TRIALS):
        task = Task(Phase.TRAIN, 1 + trial, trial, 1)
        packed = wire.encode_task(task, wire.Envelope("s", "3", SPACE.digest, "random", options))
        lie = np.array([[step, 1e6, medians(trial)] for step in range(4)], dtype=np.float64)
        reply = agent.answer(packed._replace(arrays={**packed.arrays, POOLED: lie}))
        if "disclosed.stopped" not in reply.arrays:
            completed += 1
        elif completed < pruning.min_trials:
            found.append(trial)
    return found


@pytest.mark.parametrize(
    ("lie", "pruning", "most"),
    [
        (lambda trial: 1e300, Pruning("federated", min_trials=5, max_stopped=0.5), 0),
        # s <= .5 (s + c) with c < 5 completed curves
        (lambda trial: 0.9, Pruning("federated", min_trials=5, max_stopped=0.5), 5),
        (lambda trial: 0.01 * trial, Pruning("federated", min_trials=5, max_stopped=0.5), 5),
        (lambda trial: 0.9, Pruning(), 0),
        (lambda trial: 0.9, Pruning("federated", max_stopped=0.0), 0),
    ],
    ids=["absurd", "just possible", "growing", "own curves only", "none may be stopped"],
)
def test_a_lying_server_stops_no_more_trials_than_it_may(
    lie: Callable[[int], float], pruning: Pruning, most: int
) -> None:
    assert len(attacked(lie, pruning)) <= most


def test_the_attack_succeeds_against_an_agent_without_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def believing(book: CurveBook, *_: int) -> tuple[dict[int, float], bool]:
        others = np.empty((0, 3)) if book.others is None else book.others
        return {int(step): median for step, _, median in others.tolist()}, True

    monkeypatch.setattr(CurveBook, "rule", believing)
    assert attacked(lambda trial: 1e300, Pruning("federated")) == list(range(NUM_TRIALS))


def test_medians_that_are_not_finite_are_refused() -> None:
    with pytest.raises(WireError, match="finite"):
        attacked(lambda trial: float("nan"), Pruning("federated"))
