"""What an agent keeps on its own disk: every evaluation, every report it sent, and its own entropy.

An evaluation that was committed is never made again. A task that was answered is answered from here; one
that was interrupted goes on after its last committed evaluation. Evaluations are committed as soon as a
second has passed since the last commit, so expensive ones one by one and cheap ones many at a time: at most
one second of work is done again, with the same draws.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex

import numpy as np

from fbo_flower.algorithms.records import Array, Task
from fbo_flower.errors import JournalError
from fbo_flower.storage import ledger
from fbo_flower.storage.serialization import dumps
from fbo_flower.storage.store import Store

VERSION = 2  # since 2, a ledger of what was sent
COMMIT_SECONDS = 1.0
_TABLES = (
    """
CREATE TABLE studies (study TEXT PRIMARY KEY, entropy TEXT NOT NULL, memory BLOB NOT NULL) STRICT;
CREATE TABLE tasks (
  study TEXT NOT NULL, task TEXT NOT NULL, round INTEGER NOT NULL, report BLOB NOT NULL, sent REAL NOT NULL,
  PRIMARY KEY (study, task)
) STRICT;
CREATE TABLE evaluations (
  id INTEGER PRIMARY KEY, study TEXT NOT NULL, task TEXT NOT NULL, trial INTEGER NOT NULL,
  point TEXT NOT NULL, value REAL, count INTEGER NOT NULL, span INTEGER NOT NULL, square REAL NOT NULL,
  failure TEXT NOT NULL, measures TEXT NOT NULL, artifact BLOB
) STRICT;
CREATE INDEX evaluations_of_a_task ON evaluations (study, task);
"""
    + ledger.TABLE
)
_UPGRADES = {1: ledger.add_ledger}


@dataclass(frozen=True)
class Evaluation:
    """One row of an outcome, as it was evaluated.

    Parameters
    ----------
    trial : id of its first trial
    point : `(D,)` in the unit cube
    value : mean over the evaluations that succeeded; NaN where none did; SQLite keeps no sign of a zero
    count, span : evaluations that gave a value, and trials that the row stands for
    square : sum of the squared values
    failure : why the first failure failed; "" for none
    measures : what else was measured
    artifact : what the evaluation produced beside its value
    """

    trial: int
    point: Array
    value: float
    count: int = 1
    span: int = 1
    square: float = 0.0
    failure: str = ""
    measures: Mapping[str, float] = field(default_factory=dict)
    artifact: bytes | None = None


class AgentJournal:
    """The journal of one agent.

    Parameters
    ----------
    path : of the SQLite file; made when it is not there
    agent : the agent's stable id; a journal of another agent is refused
    wait_seconds : how long to wait while another process uses it
    clock : seconds, for the time between commits

    Raises
    ------
    JournalError
        If it is in use, not a journal, or another agent's.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        agent: str,
        *,
        wait_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = Store(path, "fbo-flower agent journal", VERSION, _TABLES, wait_seconds, _UPGRADES)
        owner = self._store.meta("agent")
        if owner is None:
            with self._store.transaction():
                self._store.put_meta("agent", agent)
                self._store.put_meta("incarnation", token_hex(8))
        elif owner != agent:
            self._store.close()
            raise JournalError(f"journal: expected that of agent {agent!r}, got {owner!r} in {path}")
        self.incarnation = str(self._store.meta("incarnation"))
        self._clock = clock
        self._pending: list[tuple[object, ...]] = []
        self._committed = clock()

    def __enter__(self) -> AgentJournal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Commit what is pending and let go of the file."""
        self.commit()
        self._store.close()

    # -- studies -------------------------------------------------------------------------------

    def begin(self, study: str, entropy: int, memory: bytes) -> None:
        """Enter a study before its first evaluation."""
        with self._store.transaction():
            self._store.connection.execute(
                "INSERT OR IGNORE INTO studies VALUES (?, ?, ?)", (study, str(entropy), memory)
            )

    def study(self, study: str) -> tuple[int, bytes] | None:
        """Return the agent's entropy and its memory after the last task it finished; None: never heard of."""
        row = self._store.connection.execute(
            "SELECT entropy, memory FROM studies WHERE study = ?", (study,)
        ).fetchone()
        return None if row is None else (int(row[0]), bytes(row[1]))

    # -- notes ---------------------------------------------------------------------------------

    def note(self, name: str) -> dict[str, object]:
        """Return what was noted last under a name, for all studies."""
        text = self._store.meta(f"note.{name}")
        return {} if text is None else dict(json.loads(text))

    def put_note(self, name: str, values: Mapping[str, object]) -> None:
        """Note values for all studies, in a commit of their own."""
        with self._store.transaction():
            self._store.put_meta(f"note.{name}", json.dumps(dict(values)))

    # -- tasks ---------------------------------------------------------------------------------

    def report(self, study: str, task: str) -> bytes | None:
        """Return what was answered to a task, None if it was not finished."""
        row = self._store.connection.execute(
            "SELECT report FROM tasks WHERE study = ? AND task = ?", (study, task)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def finish(
        self,
        study: str,
        task: str,
        server_round: int,
        memory: bytes,
        report: bytes,
        sent: Sequence[ledger.LedgerEntry] = (),
    ) -> None:
        """Keep a report, its rows in the ledger and the memory, in one commit with what is pending."""
        with self._store.transaction():
            self._write_pending()
            self._store.connection.execute("UPDATE studies SET memory = ? WHERE study = ?", (memory, study))
            self._store.connection.execute(
                "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?)",
                (study, task, server_round, report, time.time()),
            )
            ledger.insert(self._store.connection, sent)

    def enter_sent(self, sent: Sequence[ledger.LedgerEntry]) -> None:
        """Write what leaves without a task being done, in a commit of its own."""
        with self._store.transaction():
            ledger.insert(self._store.connection, sent)

    def enter_registration(self, names: Sequence[str]) -> None:
        """Store the names of the fields that the agent sends at registration, if they changed."""
        if self.note("roll-call") != {"names": list(names)}:
            self.put_note("roll-call", {"names": list(names)})

    # -- evaluations ---------------------------------------------------------------------------

    def append(self, study: str, task: str, evaluation: Evaluation) -> None:
        """Enter an evaluation; it is committed at once if the last commit is a second ago."""
        e = evaluation
        value = None if np.isnan(e.value) else e.value
        point, measures = json.dumps([float(x) for x in e.point]), json.dumps(dict(e.measures))
        counts = e.count, e.span, e.square
        self._pending.append((study, task, e.trial, point, value, *counts, e.failure, measures, e.artifact))
        if self._clock() - self._committed >= COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Make everything that was entered safe."""
        if self._pending:
            with self._store.transaction():
                self._write_pending()
        self._committed = self._clock()

    def evaluations(self, study: str, task: str | None = None) -> list[Evaluation]:
        """Return the evaluations of a study, or of one of its tasks, in the order they were made."""
        where, arguments = ("", (study,)) if task is None else (" AND task = ?", (study, task))
        rows = self._store.connection.execute(
            "SELECT trial, point, value, count, span, square, failure, measures, artifact FROM evaluations "
            f"WHERE study = ?{where} ORDER BY id",
            arguments,
        )
        return [
            Evaluation(
                int(trial), np.array(json.loads(point), dtype=np.float64),
                float("nan") if value is None else float(value), int(count), int(span), float(square),
                str(failure), json.loads(measures), None if artifact is None else bytes(artifact),
            )
            for trial, point, value, count, span, square, failure, measures, artifact in rows
        ]  # fmt: skip

    def _write_pending(self) -> None:
        self._store.connection.executemany(
            "INSERT INTO evaluations "
            "(study, task, trial, point, value, count, span, square, failure, measures, artifact) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            self._pending,
        )
        self._pending = []


def task_key(task: Task) -> str:
    """Return a digest of what a task asks for; the round in which it is asked is left out."""
    values: dict[str, object] = {
        "phase": str(task.phase),
        "trial": task.trial,
        "num_trials": task.num_trials,
        "values": dict(sorted(task.values.items())),
    }
    return hashlib.sha256(dumps(dict(sorted(task.arrays.items())), values)).hexdigest()
