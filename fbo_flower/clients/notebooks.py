"""An agent's notebook and its reports as bytes, for its memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fbo_flower import wire
from fbo_flower.algorithms.records import Array, History, IntArray, Notebook, Scalar
from fbo_flower.errors import JournalError
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.serialization import freeze, thaw

_HISTORY = ("points", "values", "trials")


def notebook_to_bytes(notebook: Notebook) -> bytes:
    """Return a notebook as bytes."""
    history = notebook.history
    own = {f"history.{name}": getattr(history, name) for name in _HISTORY}
    values = {
        "space": notebook.space.digest,
        "failures": {str(trial): reason for trial, reason in history.failures.items()},
        "passed": notebook.passed,
    }
    return freeze({**notebook.arrays, **own}, values)


def notebook_from_bytes(data: bytes, space: SearchSpace) -> Notebook:
    """Undo `notebook_to_bytes`.

    Raises
    ------
    JournalError
        If the study had another search space.
    """
    arrays, values = thaw(data)
    if values["space"] != space.digest:
        raise JournalError(
            f"space: expected digest {values['space']}, which this study began with, got {space.digest}"
        )
    points, observed, trials = (arrays.pop(f"history.{name}") for name in _HISTORY)
    failures = {int(trial): reason for trial, reason in values["failures"].items()}
    history = History(cast(Array, points), cast(Array, observed), cast(IntArray, trials), failures)
    return Notebook(space, history, arrays, values["passed"])


def packed_to_bytes(packed: wire.Packed) -> bytes:
    """Return a packed report as bytes."""
    arrays, config = packed
    return freeze({str(i): array for i, array in enumerate(arrays)}, dict(config))


def packed_from_bytes(data: bytes) -> wire.Packed:
    """Undo `packed_to_bytes`."""
    arrays, config = thaw(data)
    return [arrays[str(i)] for i in range(len(arrays))], dict(cast(Mapping[str, Scalar], config))
