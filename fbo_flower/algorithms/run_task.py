"""Do one task at one agent: drive its session, have everything evaluated, and write the report.

The work is steps, so that the computations of many agents can be stacked; `requests.alone` does those of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import AgentState, AnyArray, Outcome, Query, Report, Task
from fbo_flower.algorithms.requests import Draws, Request, Steps, relayed, stepping
from fbo_flower.algorithms.several_at_once import session_at_once
from fbo_flower.numerics.discrete_noise import Uniform, uniform_from


def joined(outcomes: list[Outcome]) -> Outcome:
    """Merge the outcomes of one task into one, with a row per point, in the order of first evaluations.

    A bandit may evaluate the same cell several times in one task; these evaluations become one row.
    """
    points = np.concatenate([o.points for o in outcomes])
    seen: dict[bytes, int] = {}  # a point -> its row
    place = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in points + 0.0])  # no -0.0
    first = np.full(len(seen), len(place))
    np.minimum.at(first, place, np.arange(len(place)))
    spans = np.bincount(place, weights=np.concatenate([o.pulls for o in outcomes])).astype(np.int64)
    each = [np.isfinite(o.values).astype(np.int64) if o.counts is None else o.counts for o in outcomes]
    weights = np.concatenate(each)
    counts = np.bincount(place, weights=weights).astype(np.int64)
    values = np.nan_to_num(np.concatenate([o.values for o in outcomes]))
    with np.errstate(over="ignore", invalid="ignore"):  # huge values
        means = np.bincount(place, weights=values * weights) / np.where(counts > 0, counts, np.nan)
    trials = outcomes[0].trials[0] + np.cumsum(spans) - spans
    failures: dict[int, str] = {}
    if any(o.failures for o in outcomes):
        reasons = {t: text for o in outcomes for t, text in o.failures.items()}
        every = np.concatenate([o.trials for o in outcomes])
        at = {int(t): int(p) for t, p in zip(every, place, strict=True)}
        failures = {int(trials[at[t]]): reasons[t] for t in sorted(reasons, reverse=True)}  # the first stays
    return Outcome(points[first], means, trials, failures, counts, spans)


def num_succeeded(outcome: Outcome) -> int:
    """Return the number of successful evaluations."""
    counts = np.isfinite(outcome.values) if outcome.counts is None else outcome.counts
    return int(np.sum(counts))


def seen_by(agent_state: AgentState) -> str:
    """Return the number of an agent's evaluations so far as text, for its ledger."""
    before = int(np.count_nonzero(agent_state.history.trials < 0))
    earlier = f" and {before} from before the study" if before else ""
    return f"{agent_state.next_trial} evaluations{earlier}"


Evaluate = Callable[[Query, int], Outcome]  # a query and the id of its first trial -> its outcome


@dataclass(frozen=True)
class TaskResult:
    """The result of an agent's work on one task."""

    agent_state: AgentState  # after the task
    report: Report  # what the agent sends to the server
    outcome: Outcome  # all evaluations of the task, a row per point


def run_task(
    algorithm: Algorithm[Any],
    task: Task,
    agent_state: AgentState,
    evaluate: Evaluate,
    draws: Draws,
    extra: Callable[[], Mapping[str, AnyArray]] = dict,
    uniform: Uniform | None = None,
    at_once: int = 1,
) -> Steps[TaskResult]:
    """Run the session of a task, evaluate every query that it yields, and write the report.

    Agents, contract tests, experiments and all engines call this function; nothing else drives a session. It
    has no side effects except those of `evaluate`, and yields the computations that the session asks for.

    Parameters
    ----------
    task : a verified task, addressed to this agent
    evaluate : `evaluate(query, first_trial)` returns the outcome of a query
    draws : the task's random generators
    extra : called after the last evaluation; returns further arrays to store in the agent's state, such as
        an evaluation cache
    uniform : source of the noise that protects the report; None: derived from `draws`, which repeats it
    at_once : trials that a query may hold, see `several_at_once`
    """
    if task.num_trials and task.trial > agent_state.next_trial:
        agent_state = agent_state.passed_to(task.trial)
    outcomes: list[Outcome] = []

    def answer(asked: Query | Request) -> Steps[Any]:
        if not isinstance(asked, Query):
            return (yield asked)
        outcomes.append(evaluate(asked, outcomes[-1].end if outcomes else agent_state.next_trial))
        return outcomes[-1]

    if at_once == 1:
        session = algorithm.session(task, agent_state, draws)
    else:
        session = session_at_once(algorithm, task, agent_state, draws, at_once)
    agent_state = yield from relayed(session, answer)
    if arrays := extra():
        agent_state = agent_state.write(**arrays)
    rng = partial(draws, "summarise", task.trial, task.num_trials)
    payload = yield from stepping(algorithm.summarise(task, agent_state, rng))
    uniform = uniform or uniform_from(draws("noise", task.trial, task.num_trials))
    payload = algorithm.protect(task, agent_state, payload, uniform)
    known = agent_state.history.select(task.trial, task.end)
    outcome = known if len(known.trials) or not outcomes else joined(outcomes)
    num_failed = outcome.num_trials - num_succeeded(outcome) if task.num_trials else 0
    report = Report(task.trial, task.num_trials, num_failed, payload.arrays, payload.values)
    return TaskResult(agent_state, report, outcome)
