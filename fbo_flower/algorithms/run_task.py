"""Do one task at one agent: have everything evaluated that its session asks for, and write the report.

**Several evaluations at once.** An agent then proposes a batch of points before any of their values is known.
The points of a batch are chosen one after the other. A point that is being evaluated counts as observed at
the posterior mean of the agent's model, the "Kriging believer" [Ginsbourger2010]: the model's mean stays, its
variance at the point shrinks [Desautels2014], so the next proposal goes elsewhere. Hyperparameters are not
fitted to such values. When all evaluations of a batch have ended, the agent learns their real values and
proposes the next batch. So a batch depends on the seed and on earlier values, and not on the order in which
evaluations end.

Algorithms need not know of it: each proposal is the first one of a session that begins with the points chosen
so far. An algorithm that models its observations says in `expected_values` what it expects at them.

[Desautels2014] Desautels, Krause, Burdick: Parallelizing exploration-exploitation tradeoffs in Gaussian
process bandit optimization, JMLR 15, 2014, Section 4.
[Ginsbourger2010] Ginsbourger, Le Riche, Carraro: Kriging is well-suited to parallelize optimization,
Computational Intelligence in Expensive Optimization Problems, 2010, Section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from fbo_flower.algorithms.messages import Content
from fbo_flower.algorithms.protocol import Algorithm, TrialsPerRound
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Report, Task, Trials
from fbo_flower.algorithms.requests import Answer, Draws, Evaluation, Fit, Request, answered_by, outside
from fbo_flower.errors import HookError, kind_of
from fbo_flower.numerics import finite
from fbo_flower.numerics.discrete_noise import Uniform, uniform_from
from fbo_flower.numerics.surrogates import gp


def seen_by(agent_state: AgentState) -> str:
    """Return the number of an agent's evaluations so far as text, for its ledger."""
    before = int(np.count_nonzero(agent_state.history.trials < 0))
    earlier = f" and {before} from before the study" if before else ""
    return f"{agent_state.next_trial} evaluations{earlier}"


class Guard(Protocol):
    """Protects what leaves an agent."""

    def answer(self, task: Task, agent_state: AgentState) -> Report | None:
        """Return the report of a task that only the guard knows; None: the algorithm does the task."""
        ...

    def release(self, task: Task, agent_state: AgentState, report: Report) -> Report:
        """Return what leaves instead of a report of the algorithm."""
        ...


@dataclass(frozen=True)
class TaskResult:
    """The result of an agent's work on one task."""

    agent_state: AgentState  # after the task
    report: Report  # what the agent sends to the server
    outcome: Trials  # all evaluations of the task, a row per point


def run_task(
    algorithm: Algorithm[Any],
    task: Task,
    agent_state: AgentState,
    evaluate: Callable[[Trials, int], Trials],
    draws: Draws,
    extra: Callable[[], Mapping[str, AnyArray]] = dict,
    uniform: Uniform | None = None,
    at_once: int = 1,
    guard: Guard | None = None,
) -> TaskResult:
    """Run the session of a task, evaluate every query of it, and write the report.

    Agents, contract tests, experiments and all engines call this function. It has no side effects except
    those of `evaluate`.

    Parameters
    ----------
    task : a verified task, addressed to this agent
    evaluate : `evaluate(query, first_trial)` returns the outcome of a query
    draws : the task's random generators
    extra : called after the last evaluation; returns further arrays to store in the agent's state, such as
        an evaluation cache
    uniform : source of the noise that protects the report: on devices the operating system's generator, which
        nobody can seed or repeat. None: derived from `draws`, which repeats it
    at_once : trials that a query may hold, see `in_batches`
    guard : of the report; None: it leaves as the algorithm wrote it
    """
    if guard is not None and (report := guard.answer(task, agent_state)) is not None:
        return TaskResult(agent_state, report, agent_state.history.select(0, 0))
    if task.num_trials and task.trial > agent_state.next_trial:
        agent_state = agent_state.passed_to(task.trial)
    outcomes: list[Trials] = []

    def outcome_of(query: Trials) -> Trials:
        check_query(algorithm.name, query, agent_state.space.dimension)
        first = outcomes[-1].next_trial if outcomes else agent_state.next_trial
        outcomes.append(outside(partial(evaluate, query, first)))
        return outcomes[-1]

    work = algorithm.session if at_once == 1 else partial(in_batches, algorithm, at_once=at_once)
    agent_state = work(task, agent_state, draws, outcome_of)
    if isinstance(agent_state, AgentState) and (arrays := extra()):
        agent_state = agent_state.write(**arrays)
    rng = partial(draws, "summarise", task.trial, task.num_trials)
    content = algorithm.summarise(task, agent_state, rng)
    check_answer(algorithm, agent_state, content)
    if type(algorithm).protect is not Algorithm.protect:
        uniform = uniform or uniform_from(draws("noise", task.trial, task.num_trials))
        content = algorithm.protect(task, agent_state, content, uniform)
    known = agent_state.history.select(task.trial, task.end)
    outcome = known if len(known) or not outcomes else outcomes[0].concat(*outcomes[1:]).merged()
    num_failed = outcome.num_trials - outcome.num_succeeded if task.num_trials else 0
    report = Report(task.trial, task.num_trials, num_failed, content.arrays, content.values)
    if guard is not None:
        report = guard.release(task, agent_state, report)
    return TaskResult(agent_state, report, outcome)


def check_query(algorithm: str, query: object, dimension: int) -> None:
    """Raise HookError unless an agent's session asks for points of the unit cube."""
    where = f"{algorithm}: propose"
    if not isinstance(query, Trials):
        raise HookError(f"{where}: expected Trials, got {kind_of(query)}; return Trials(points)")
    points, expected = query.points, f"{where}: expected points (q, {dimension}) of float64 between 0 and 1"
    if not isinstance(points, np.ndarray) or points.dtype != np.float64:
        got = points.dtype if isinstance(points, np.ndarray) else kind_of(points)
        raise HookError(f"{expected}, got {got}; return Trials(np.array(points, dtype=np.float64))")
    if points.ndim != 2 or points.shape[1] != dimension or not len(points):
        raise HookError(f"{expected}, got {points.shape}; of one point return Trials(point[None])")
    if not (np.minimum.reduce(points, axis=None) >= 0.0 and np.maximum.reduce(points, axis=None) <= 1.0):
        outside = points[~((points >= 0.0) & (points <= 1.0))]  # NaN, too
        raise HookError(f"{expected}, got {outside[0]:g}; return Trials(np.clip(points, 0, 1))")
    if query.pulls is not None and (query.pulls.shape != points.shape[:1] or (query.pulls < 1).any()):
        raise HookError(f"{where}: expected pulls ({len(points)},) from 1 on, got {query.pulls}")


def check_answer(algorithm: Algorithm[Any], agent_state: object, content: object) -> None:
    """Raise HookError unless a session's state can be stored, and what `summarise` returned can be sent."""
    if not isinstance(agent_state, AgentState):
        raise HookError(
            f"{algorithm.name}: session: expected an AgentState, got {kind_of(agent_state)}; "
            "return agent_state"
        )
    kind = algorithm.report_content
    if not isinstance(content, Content) or not issubclass(kind, type(content)):
        raise HookError(
            f"{algorithm.name}: summarise: expected a {kind.__name__}, its report_content, got "
            f"{kind_of(content)}; return {kind.__name__}(...)"
        )
    for hook, arrays in (("write", agent_state.arrays), ("summarise", content.arrays)):
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
                got = array.dtype if isinstance(array, np.ndarray) else kind_of(array)
                raise HookError(
                    f"{algorithm.name}: {hook}: expected an array of numbers as {name}, got {got}; give "
                    "np.array(..., dtype=np.float64)"
                )
    for name, value in content.values.items():
        if type(value) not in (bool, int, float, str):
            raise HookError(
                f"{algorithm.name}: summarise: expected bool, int, float or str as {name}, got "
                f"{type(value).__name__}; NumPy's scalars have .item()"
            )


Fits = dict[tuple[object, ...], gp.Hyperparameters]  # the fits of a batch, by what they are fits of


def as_measured(means: Array, transformed: Array, values: Array) -> Array:
    """Return posterior means `(q,)` of transformed values on the objective's own scale.

    A transform is monotone, so it is inverted by linear interpolation between the observed values. That is
    exact for "standardise". A mean beyond all observations becomes the largest or smallest of them.

    Parameters
    ----------
    transformed, values : `(n,)`, observations after and before the transform
    """
    ordered, places = np.unique(transformed, return_index=True)
    scaled, exponents = finite.scaled(values[places])
    return finite.unscaled(np.interp(means, ordered, scaled), exponents)


def in_batches(
    algorithm: Algorithm[Any],
    task: Task,
    agent_state: AgentState,
    draws: Draws,
    evaluate: Evaluation,
    *,
    at_once: int,
) -> AgentState:
    """Do the session of a task whose queries hold up to `at_once` trials each.

    Algorithms that choose their own batches, as bandits do, keep them.
    """
    if task.num_trials <= 1 or not isinstance(algorithm, TrialsPerRound):
        return algorithm.session(task, agent_state, draws, evaluate)
    while True:
        begin = agent_state.next_trial
        stop = min(max(begin, task.trial) + at_once, task.end)
        # a batch is a task that ends earlier: its first trial stays, because sessions compare with it
        part = replace(task, num_trials=stop - task.trial)
        agent_state = _batch(algorithm, part, agent_state, draws, evaluate)
        if agent_state.next_trial == begin or agent_state.next_trial >= task.end:
            return agent_state


def _batch(
    algorithm: Algorithm[Any], task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation
) -> AgentState:
    """Propose all trials that a task has left, evaluate them at once, and learn."""
    fits, begins = Fits(), True

    def evaluate_all(query: Trials) -> Trials:
        nonlocal begins
        points = [query.points]
        if begins:
            with answered_by(partial(_held, fits)):
                points += _further(algorithm, task, agent_state, draws, query)
        begins = False
        return evaluate(replace(query, points=np.concatenate(points)))

    with answered_by(partial(_noted, fits)):
        return algorithm.session(task, agent_state, draws, evaluate_all)


def _further(
    algorithm: Algorithm[Any], task: Task, agent_state: AgentState, draws: Draws, query: Trials | AgentState
) -> list[Array]:
    """Return the points of a batch that follow those of its first query."""
    points: list[Array] = []
    while isinstance(query, Trials) and _is_point(query) and agent_state.next_trial + 1 < task.end:
        agent_state = _with_pending(algorithm, task, agent_state, query)
        query = up_to_query(algorithm, task, agent_state, draws)
        if isinstance(query, Trials) and _is_point(query):
            points.append(query.points)
    return points


def _is_point(query: Trials) -> bool:
    return len(query.points) == 1 and query.pulls is None and query.artifact is None


def _with_pending(
    algorithm: Algorithm[Any], task: Task, agent_state: AgentState, query: Trials
) -> AgentState:
    """Return the agent's state as if a point had been evaluated, with the value that its model expects."""
    points = agent_state.space.snap(query.points)
    values = algorithm.expected_values(task, agent_state, points)
    trials, outputs = np.array([agent_state.next_trial], dtype=np.int64), None
    if values.ndim == 2:
        values, outputs = values[:, 0], values
    return agent_state.learn(Trials(points, values, trials, outputs=outputs))


def _key(fit: Fit) -> tuple[object, ...]:
    return fit.kernel, fit.priors, fit.x.shape[1], fit.output


def _noted(fits: Fits, compute: Answer, request: Request[Any]) -> Any:
    """Compute a request, and note the first fit of each kind."""
    answer = compute(request)
    if isinstance(request, Fit):
        fits.setdefault(_key(request), answer)
    return answer


def _held(fits: Fits, compute: Answer, request: Request[Any]) -> Any:
    """Compute a request, unless it is a fit that the batch has made."""
    found = fits.get(_key(request)) if isinstance(request, Fit) else None
    return _noted(fits, compute, request) if found is None else found


class _Query(BaseException):
    """A session has asked for an evaluation that there is not yet."""


def up_to_query(
    algorithm: Algorithm[Any], task: Task, agent_state: AgentState, draws: Draws, *outcomes: Trials
) -> Trials | AgentState:
    """Do a session up to the first query whose outcome is not given; return this query, or the state."""
    given = iter(outcomes)

    def evaluate(query: Trials) -> Trials:
        if (outcome := next(given, None)) is None:
            raise _Query(query)
        return outcome

    try:
        return algorithm.session(task, agent_state, draws, evaluate)
    except _Query as asked:
        query: Trials = asked.args[0]
        return query
