"""The agent's work on one task as a conversation: a session asks for evaluations and is sent their outcomes.

A session is a generator that reads from top to bottom like the paper's algorithm. It yields a `Query` (points
to evaluate), is sent the `Outcome`, and returns the agent's state after the task.

It may also yield a `Request` for a computation (`requests.py`), and is sent its result. The requests of
agents that advance together are computed at once; a session that yields none stays as it is. `run_task.py`
drives sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from fbo_flower.algorithms.records import AgentState, Query
from fbo_flower.algorithms.requests import Request

Session = Generator[Query | Request, Any, AgentState]

# `draws(purpose, *keys)` returns a random generator: the same purpose and keys always give the same numbers
Draws = Callable[..., np.random.Generator]
