"""Convert an agent's state and its reports to bytes and back, for its memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fbo_flower import wire
from fbo_flower.algorithms.records import AgentState, Array, History, IntArray, Scalar
from fbo_flower.errors import JournalError, WireError
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.serialization import dumps, loads
from fbo_flower.wire.numpy_client import from_lists, to_lists

_HISTORY = ("points", "values", "trials")


def agent_state_to_bytes(agent_state: AgentState) -> bytes:
    """Convert an agent's state to bytes."""
    history = agent_state.history
    own = {f"history.{name}": getattr(history, name) for name in _HISTORY}
    values = {
        "space": agent_state.space.digest,
        "failures": {str(trial): reason for trial, reason in history.failures.items()},
        "passed": agent_state.passed,
    }
    return dumps({**agent_state.arrays, **own}, values)


def agent_state_from_bytes(data: bytes, space: SearchSpace) -> AgentState:
    """Undo `agent_state_to_bytes`.

    Raises
    ------
    JournalError
        If the state is damaged or of another search space.
    """
    try:
        return _agent_state(data, space)
    except (WireError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise JournalError(
            f"journal: expected an agent's state, got {len(data)} bytes that cannot be read: {error}; the "
            "journal is damaged: restore a copy that was made after the agent's last answer, or remove the "
            "file: then the agent counts as a new one"
        ) from error


def _agent_state(data: bytes, space: SearchSpace) -> AgentState:
    arrays, values = loads(data)
    if values["space"] != space.digest:
        raise JournalError(
            f"space: expected digest {values['space']}, with which this study began, got {space.digest}; "
            "restore the search space, or start a new study"
        )
    points, observed, trials = (arrays.pop(f"history.{name}") for name in _HISTORY)
    failures = {int(trial): reason for trial, reason in values["failures"].items()}
    history = History(cast(Array, points), cast(Array, observed), cast(IntArray, trials), failures)
    return AgentState(space, history, arrays, values["passed"])


def packed_to_bytes(packed: wire.Packed) -> bytes:
    """Convert a packed report to bytes."""
    arrays, config = to_lists(packed)  # older journals hold lists, too
    return dumps({str(i): array for i, array in enumerate(arrays)}, dict(config))


def packed_from_bytes(data: bytes) -> wire.Packed:
    """Undo `packed_to_bytes`."""
    arrays, config = loads(data)
    return from_lists([arrays[str(i)] for i in range(len(arrays))], cast(Mapping[str, Scalar], config))
