"""Read the studies in an agent's journal, also while the agent uses it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fbo_flower.storage.checksums import verified_rows
from fbo_flower.storage.read_ledger import opened, read_meta

EVALUATION_COLUMNS = (  # all columns, because a row has one checksum
    "id", "study", "task", "trial", "point", "value", "count", "span", "square", "failure", "measures",
    "artifact",
)  # fmt: skip
_USED = ("study", "count", "span", "failure")


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


def minimize_note(study: str) -> str:
    """Return the name of the note that says that a study's objective is a loss."""
    return f"minimize.{study}"


def read_studies(path: Path) -> tuple[str, list[StoredStudy]]:
    """Return the agent's id and its studies, the latest one last; opens the file read-only.

    Raises
    ------
    JournalError
        If the file does not exist or is not an agent's journal.
    """
    with opened(path, "the studies") as (connection, _):
        meta = read_meta(connection)
        found = list(verified_rows(connection, "studies", ("study", "entropy", "memory"), "ORDER BY rowid"))
        failed: dict[str, list[tuple[int, str]]] = {}
        for row in verified_rows(connection, "evaluations", EVALUATION_COLUMNS, "ORDER BY id"):
            study, count, span, failure = (row[EVALUATION_COLUMNS.index(name)] for name in _USED)
            if failure:
                failed.setdefault(str(study), []).append((int(span) - int(count), str(failure)))
    return meta["agent"], [
        StoredStudy(
            str(study),
            bytes(memory),
            meta[f"algorithm.{study}"],
            meta[f"space.{study}"],
            failed[study][0][1] if study in failed else "",
            sum(number for number, _ in failed.get(study, [])),
            f"note.{minimize_note(str(study))}" in meta,
        )
        for study, _, memory in found
    ]
