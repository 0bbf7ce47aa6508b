"""Read an agent's journal: its ledger, its studies and its learning curves, also while the agent uses it.

Every function opens the file read-only and raises JournalError if it does not exist, is damaged, or is not an
agent's journal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fbo_flower.errors import JournalError
from fbo_flower.storage.agent_journal import KIND, STOPPED_AT, minimize_note
from fbo_flower.storage.ledger import Ledger, LedgerEntry
from fbo_flower.storage.store import Rows, opened


def read_ledger(path: Path) -> Ledger:
    """Return the ledger of an agent's journal."""
    with opened(path, KIND) as journal:
        meta = _texts(journal)
        said = json.loads(meta.get("note.roll-call", "{}"))
        sent = journal.select("sent", "ORDER BY id")
        rows = [LedgerEntry(*row[2:-1], *map(bool, row[-1:])) for row in sent]
        return Ledger(meta["agent"], rows, tuple(said.get("names", ())), said.get("disclosure", ""))


@dataclass(frozen=True)
class StoredStudy:
    """One study in an agent's journal.

    Parameters
    ----------
    study : id of the study
    memory : the agent's state after its last finished task
    algorithm : the algorithm with its options as text
    space : the search space as JSON
    failure : why the first failed evaluation failed; "" if none failed
    num_failed : number of evaluations that failed
    minimize : whether the values are losses with their sign changed
    """

    study: str
    memory: bytes
    algorithm: str
    space: str
    failure: str
    num_failed: int
    minimize: bool = False


def read_studies(path: Path) -> tuple[str, list[StoredStudy]]:
    """Return the agent's id and its studies, the latest one last."""
    with opened(path, KIND) as journal:
        meta = _texts(journal)
        failures: dict[str, str] = {}
        num_failed: dict[str, int] = {}
        for row in journal.select("evaluations", "ORDER BY id"):
            if row["failure"]:
                study = row["study"]
                failures.setdefault(study, row["failure"])
                num_failed[study] = num_failed.get(study, 0) + row["span"] - row["count"]
        return meta["agent"], [
            StoredStudy(
                study,
                memory,
                meta[f"algorithm.{study}"],
                meta[f"space.{study}"],
                failures.get(study, ""),
                num_failed.get(study, 0),
                f"note.{minimize_note(study)}" in meta,
            )
            for _, study, _, memory in journal.select("studies", "ORDER BY rowid")
        ]


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
    """Yield the curves in an agent's journal in the order in which they ended."""
    with opened(path, KIND) as journal:
        meta = _texts(journal)
        for row in journal.select("evaluations", "ORDER BY id"):
            data = row["artifact"]
            if data is None or not data.startswith(b'{"steps"'):  # none, or a site's model
                continue
            steps, values = curve_from_bytes(data)
            sign = -1.0 if f"note.{minimize_note(row['study'])}" in meta else 1.0
            yield StoredCurve(
                meta["agent"], row["study"], row["trial"], tuple(steps),
                tuple(sign * value + 0.0 for value in values),
                STOPPED_AT in json.loads(row["measures"]), row["failure"],
            )  # fmt: skip


def _texts(journal: Rows) -> dict[str, str]:
    return {row["key"]: row["value"] for row in journal.select("meta")}
