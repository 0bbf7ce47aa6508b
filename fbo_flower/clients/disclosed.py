"""What an agent discloses with a report, as its operator allows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.records import Phase, Report, Task
from fbo_flower.algorithms.run_task import TaskResult
from fbo_flower.clients.trial_times import Times, disclosed_times


def consented(algorithm: Algorithm[Any], report: Report, disclose: str) -> Report:
    """Return the report without the arrays that the operator's setting `disclose` keeps at the agent."""
    consent = algorithm.inner.consent
    if not consent:
        return report
    kept = {n: a for n, a in report.arrays.items() if disclose in consent.get(n, (disclose,))}
    return replace(report, arrays=kept)


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
    best = algorithm.incumbent(result.agent_state)
    if task.phase in (Phase.EVALUATE, Phase.REVEAL):  # Flower returns no arrays in these half-rounds
        return wire.Disclosure(incumbent=best)
    all_trials = disclose == "trials" and outcome.num_trials == task.num_trials > 0
    point = algorithm.recommend(result.agent_state) if algorithm.finishes else None
    if not all_trials:
        return wire.Disclosure(None, best, point)
    believed = algorithm.best_mean(result.agent_state)
    point, expected = believed or (point, None)
    return wire.Disclosure(outcome, best, point, expected, disclosed_times(times, outcome.trials))
