"""One agent does one task, without a server."""

import numpy as np
from contract import SQUARE

from fbo_flower.algorithms.aims import NUMBER
from fbo_flower.algorithms.records import AgentState, Trials
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.numerics.seeding import generator


def draws(purpose, *keys):
    return generator(7, purpose, *keys)


def rows(points, first_trial, outputs):
    """Return trials with values `(n,)`, or with several outputs `(n, K)`, of which the first is the value."""
    several = outputs if outputs.ndim == 2 else None
    values = outputs if several is None else outputs[:, 0]
    return Trials(points, values, first_trial + np.arange(len(points)), outputs=several)


def observed(points, outputs, aims=NUMBER, space=SQUARE):
    """Return the state of an agent with these trials."""
    return AgentState(space, rows(points, 0, outputs), aims=aims)


def done(algorithm, task, state, function, at_once=1):
    """Do a task; return its result, and the batches of points at which the function was evaluated."""
    batches: list[np.ndarray] = []

    def evaluate(query, first_trial):
        batches.append(state.space.snap(query.points))
        return rows(batches[-1], first_trial, function(batches[-1]))

    return run_task(algorithm, task, state, evaluate, draws, at_once=at_once), batches
