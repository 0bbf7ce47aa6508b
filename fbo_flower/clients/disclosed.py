"""What an agent discloses with a report, as its operator allows."""

from __future__ import annotations

from typing import Any

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.capabilities import best_mean, incumbent
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.algorithms.run_task import TaskResult
from fbo_flower.clients.trial_times import Times, disclosed_times


def disclosure_of(
    disclose: str, algorithm: Algorithm[Any], task: Task, result: TaskResult, times: Times
) -> wire.Disclosure:
    """Return what leaves the agent besides its report.

    Parameters
    ----------
    disclose : the operator's setting
    """
    if disclose in ("none", "point"):  # the algorithm's report holds the point
        return wire.Disclosure()
    outcome = result.outcome
    best = incumbent(algorithm, result.agent_state)
    if task.phase in (Phase.EVALUATE, Phase.REVEAL):  # Flower returns no arrays in these half-rounds
        return wire.Disclosure(incumbent=best)
    all_trials = disclose == "trials" and outcome.num_trials == task.num_trials > 0
    point = algorithm.recommend(result.agent_state) if algorithm.finishes else None
    if not all_trials:
        return wire.Disclosure(None, best, point)
    believed = best_mean(algorithm, result.agent_state)
    point, expected = believed or (point, None)
    return wire.Disclosure(outcome, best, point, expected, disclosed_times(times, outcome.trials))
