"""Several evaluations at once: propose a batch of points before any of their values is known.

The points of a batch are chosen one after the other. A point that is being evaluated counts as observed at
the posterior mean of the agent's model, the "Kriging believer" [Ginsbourger2010]: the model's mean stays, its
variance at the point shrinks [Desautels2014], so the next proposal goes elsewhere. Hyperparameters are not
fitted to such values. When all evaluations of a batch have ended, the agent learns their real values and
proposes the next batch. So a batch depends on the seed and on earlier values, and not on the order in which
evaluations end.

Algorithms need not know of it: each proposal is the first one of a session that begins with the points chosen
so far. An algorithm that models its observations says in `believing` what it expects at them.

[Ginsbourger2010] Ginsbourger, Le Riche, Carraro: Kriging is well-suited to parallelize optimization,
Computational Intelligence in Expensive Optimization Problems, 2010, Section 3.2.
[Desautels2014] Desautels, Krause, Burdick: Parallelizing exploration-exploitation tradeoffs in Gaussian
process bandit optimization, JMLR 15, 2014, Section 4.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import AgentState, Array, Outcome, Query, Task
from fbo_flower.algorithms.requests import Draws, Fit, Request, Session, Steps, relayed
from fbo_flower.algorithms.trials_per_round import TrialsPerRound
from fbo_flower.numerics.surrogates import gp

Fits = dict[tuple[object, ...], gp.Hyperparameters]  # the fits of a batch, by what they are fits of


def believed(means: Array, transformed: Array, values: Array) -> Array:
    """Return posterior means `(q,)` of transformed values on the objective's own scale.

    A transform is monotone, so it is inverted by linear interpolation between the observed values. That is
    exact for "standardise". A mean beyond all observations becomes the largest or smallest of them.

    Parameters
    ----------
    transformed, values : `(n,)`, observations after and before the transform
    """
    ordered, places = np.unique(transformed, return_index=True)
    return np.asarray(np.interp(means, ordered, values[places]), dtype=np.float64)


def session_at_once(
    algorithm: Algorithm[Any], task: Task, agent_state: AgentState, draws: Draws, at_once: int
) -> Session:
    """Return the session of a task whose queries hold up to `at_once` trials each.

    Algorithms that choose their own batches, as bandits do, keep them.
    """
    core = algorithm.inner
    if at_once == 1 or task.num_trials <= 1 or not isinstance(core, TrialsPerRound):
        return (yield from algorithm.session(task, agent_state, draws))
    while True:
        begin = agent_state.next_trial
        stop = min(max(begin, task.trial) + at_once, task.end)
        # a batch is a task that ends earlier: its first trial stays, because sessions compare with it
        part = replace(task, num_trials=stop - task.trial)
        agent_state = yield from _batch(algorithm, part, agent_state, draws)
        if agent_state.next_trial == begin or agent_state.next_trial >= task.end:
            return agent_state


def _batch(algorithm: Algorithm[Any], task: Task, agent_state: AgentState, draws: Draws) -> Session:
    """Propose all trials that a task has left, evaluate them at once, and learn."""
    session, fits = algorithm.session(task, agent_state, draws), Fits()
    asked = yield from to_query(session, fits)
    if not isinstance(asked, Query):
        return asked
    points, query, pending = [asked.points], asked, agent_state
    while _is_point(query) and pending.next_trial + 1 < task.end:
        pending = yield from _with_pending(algorithm, task, pending, query, fits)
        ahead = algorithm.session(task, pending, draws)
        following = yield from to_query(ahead, fits, held=True)
        ahead.close()
        if not isinstance(following, Query) or not _is_point(following):
            break
        query = following
        points.append(query.points)
    outcome = yield replace(asked, points=np.concatenate(points))
    return (yield from relayed(session, _asked, outcome))


def _asked(request: Query | Request) -> Generator[Query | Request, Any, Any]:
    return (yield request)


def _is_point(query: Query) -> bool:
    return len(query.points) == 1 and query.repeats is None and query.artifact is None


def _with_pending(
    algorithm: Algorithm[Any], task: Task, agent_state: AgentState, query: Query, fits: Fits
) -> Steps[AgentState]:
    """Return the agent's state as if a point had been evaluated, with the value that its model expects."""
    points = agent_state.space.snap(query.points)
    values = yield from relayed(
        algorithm.inner.believing(task, agent_state, points), partial(_answer, fits=fits, held=True)
    )
    trials, outputs = np.array([agent_state.next_trial], dtype=np.int64), None
    if values.ndim == 2:
        values, outputs = values[:, 0], values
    return agent_state.learn(Outcome(points, values, trials, outputs=outputs))


def to_query(
    session: Session, fits: Fits, *, held: bool = False, first: Outcome | None = None
) -> Steps[Query | AgentState]:
    """Drive a session to its next query, or to its end.

    Parameters
    ----------
    first : what the session is sent first; None: it begins
    held : whether hyperparameters that the batch has fitted are used again; otherwise they are noted
    """
    return (yield from relayed(session, partial(_answer, fits=fits, held=held), first, Query))


def _answer(request: Request, fits: Fits, held: bool) -> Steps[Any]:
    """Compute a request, unless it is a fit that the batch has made and holds."""
    if not isinstance(request, Fit):
        return (yield request)
    key = request.kernel, request.priors, request.x.shape[1], request.output
    if held and key in fits:
        return fits[key]
    fitted = yield request
    fits.setdefault(key, fitted)
    return fitted
