"""Read the learning curves in an agent's journal, also while the agent uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fbo_flower.errors import JournalError
from fbo_flower.storage.answers import EVALUATION_COLUMNS, minimize_note
from fbo_flower.storage.checksums import verified_rows
from fbo_flower.storage.read_ledger import opened, read_meta

STOPPED_AT = "stopped at step"  # entry of `Evaluation.measures` of a trial that was stopped early


@dataclass(frozen=True)
class StoredCurve:
    """What one trial has reported.

    Parameters
    ----------
    agent, study, trial : whose it is
    steps, values : as the objective reported them: losses, if it is a loss
    stopped : whether the trial was stopped early
    failure : why the trial failed; "" if it did not
    """

    agent: str
    study: str
    trial: int
    steps: tuple[int, ...]
    values: tuple[float, ...]
    stopped: bool
    failure: str


def curve_from_bytes(data: bytes) -> tuple[list[int], list[float]]:
    """Return steps and values of a curve in a journal; JournalError if it is something else."""
    try:
        found = json.loads(data)
        return [int(step) for step in found["steps"]], [float(value) for value in found["values"]]
    except (ValueError, TypeError, LookupError) as error:
        raise JournalError(f"journal: expected a curve, got {len(data)} other bytes: {error}") from error


def read_curves(path: Path) -> Iterator[StoredCurve]:
    """Yield the curves in an agent's journal in the order in which they ended; opens the file read-only.

    Raises
    ------
    JournalError
        If the file does not exist or is not an agent's journal.
    """
    with opened(path, "the curves") as (connection, _):
        meta = read_meta(connection)
        for row in verified_rows(connection, "evaluations", EVALUATION_COLUMNS, "ORDER BY id"):
            named = dict(zip(EVALUATION_COLUMNS, row, strict=True))
            data = named["artifact"]
            if not isinstance(data, bytes) or not data.startswith(b'{"steps"'):  # none, or a site's model
                continue
            steps, values = curve_from_bytes(data)
            study = str(named["study"])
            sign = -1.0 if f"note.{minimize_note(study)}" in meta else 1.0
            yield StoredCurve(
                meta["agent"], study, int(str(named["trial"])), tuple(steps),
                tuple(sign * value + 0.0 for value in values),
                STOPPED_AT in json.loads(str(named["measures"])), str(named["failure"]),
            )  # fmt: skip
