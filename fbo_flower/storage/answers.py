"""Read the studies in an agent's journal, also while the agent uses it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fbo_flower.errors import JournalError


@dataclass(frozen=True)
class StoredStudy:
    """One study in an agent's journal.

    Parameters
    ----------
    study : id of the study
    memory : the agent's state after its last finished task
    algorithm : the algorithm with its options as text; "" if an earlier version began the study
    space : the search space as JSON; "" if an earlier version began the study
    failure : why the first failed evaluation failed; "" if none failed
    num_failed : number of evaluations that failed
    """

    study: str
    memory: bytes
    algorithm: str
    space: str
    failure: str
    num_failed: int


def read_studies(path: Path) -> tuple[str, list[StoredStudy]]:
    """Return the agent's id and its studies, in the order in which they began; opens the file read-only.

    Raises
    ------
    JournalError
        If the file does not exist or is not an agent's journal.
    """
    import sqlite3  # imported here: agents without a journal do not need it

    if not path.is_file():
        raise JournalError(f"journal: expected the file of an agent's journal, got {path}")
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            meta = {str(k): str(v) for k, v in connection.execute("SELECT key, value FROM meta")}
            if meta.get("application") != "fbo-flower agent journal":
                raise JournalError(
                    f"journal: expected an agent's, got {path} of {meta.get('application', 'something else')}"
                )
            found = connection.execute("SELECT study, memory FROM studies ORDER BY rowid").fetchall()
            failures = {
                str(study): (str(failure), int(number))
                for study, failure, number, _ in connection.execute(
                    # SQLite takes `failure` from the row that has the smallest id
                    "SELECT study, failure, SUM(span - count), MIN(id) FROM evaluations WHERE failure != '' "
                    "GROUP BY study"
                )
            }
        finally:
            connection.close()
    except (sqlite3.DatabaseError, ValueError) as error:
        raise JournalError(f"journal: expected an agent's, got {path}: {error}") from error
    return meta["agent"], [
        StoredStudy(
            str(study),
            bytes(memory),
            meta.get(f"algorithm.{study}", ""),
            meta.get(f"space.{study}", ""),
            *failures.get(str(study), ("", 0)),
        )
        for study, memory in found
    ]
