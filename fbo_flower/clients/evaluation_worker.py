"""A process that evaluates an objective; `worker_pool` starts it and sends it one trial after the other.

It inherits one end of a pipe. The first message is the pickled objective. Each further one is a pickled
trial, and the answer to it is JSON, so that the agent unpickles nothing. A thread reads the pipe: when the
agent's process ends, however it ends, the pipe closes and this process ends too, even within an evaluation.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import signal
import threading
import time
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

from fbo_flower.clients.objective import Objective, evaluate, evaluate_repeatedly
from fbo_flower.clients.tracebacks import ErrorTexts
from fbo_flower.errors import ObjectiveError, WrongTypeError
from fbo_flower.numerics.threads import single_thread

MAX_REASON = 500  # characters of the reason why an objective cannot be loaded


def main(descriptor: int) -> None:
    """Load the objective, then evaluate trials until the agent closes the pipe."""
    pipe = Connection(descriptor)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(pipe, tasks), daemon=True).start()
    try:
        objective = pickle.loads(tasks.get())  # of this device's own agent
    except BaseException as error:
        _send(pipe, {"refused": f"{type(error).__name__}: {error}"[:MAX_REASON]})
        return
    _send(pipe, {"ready": True})
    while True:
        _send(pipe, _evaluated(objective, *pickle.loads(tasks.get())))


def _read(pipe: Connection, tasks: queue.SimpleQueue[bytes]) -> None:
    """Pass messages on; end the process when there will be no more."""
    try:
        while True:
            tasks.put(pipe.recv_bytes())
    except (EOFError, OSError):
        os.killpg(os.getpgrp(), signal.SIGKILL)  # with the processes that the objective has started


def _send(pipe: Connection, answer: dict[str, Any]) -> None:
    pipe.send_bytes(json.dumps(answer).encode())


def _evaluated(objective: Objective, config: dict[str, Any], context: Any, repeats: int) -> dict[str, Any]:
    """Return the values of a trial, or why it failed, with its start and its duration.

    Parameters
    ----------
    repeats : how many evaluations one call of `repeated` makes; 0: call the objective itself
    """
    started, before = time.time(), time.perf_counter()
    answer: dict[str, Any] = {}
    try:
        with single_thread():
            if repeats:
                answer["values"] = evaluate_repeatedly(objective, config, context, repeats).tolist()
            else:
                answer["values"] = [evaluate(objective, config, context)]
    except WrongTypeError as error:
        answer = {"wrong_type": [error.kind, error.shown]}
    except ObjectiveError as error:
        cause = error.__cause__
        answer = {"failure": str(error), "error": None if cause is None else asdict(ErrorTexts.of(cause))}
    curve = context.curve
    if curve.steps:
        answer["curve"] = {"steps": curve.steps, "values": curve.values, "stopped": curve.stopped}
    return {**answer, "started": started, "seconds": time.perf_counter() - before}
