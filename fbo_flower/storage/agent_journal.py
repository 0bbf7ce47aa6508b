"""An agent's journal on its own disk: its evaluations, the reports it sent, and its random entropy.

A restarted agent never repeats a committed evaluation. A task that was finished is answered from the journal;
an interrupted task resumes after its last committed evaluation. The journal commits an evaluation if the last
commit is at least one second ago. So expensive evaluations are committed one by one and cheap ones in
batches, and a crash loses at most about one second of work, which is repeated with the same random draws.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, SupportsBytes

import numpy as np

from fbo_flower.algorithms.records import Array, Task
from fbo_flower.errors import JournalError
from fbo_flower.storage import ledger
from fbo_flower.storage.journal_kind import JournalKind, decoding
from fbo_flower.storage.serialization import dumps
from fbo_flower.storage.store import Store

VERSION = 3  # version 2 added the ledger of sent data, version 3 the checksums
COMMIT_SECONDS = 1.0
SECONDS = "seconds"  # entry of `Evaluation.measures`: how long the evaluation took
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
KIND = JournalKind(
    "fbo-flower agent journal",
    VERSION,
    _TABLES,
    "restore a copy that was made after the agent's last answer, or remove the file: then the agent counts "
    "as a new one, and its counts for max_trials and max_epsilon start again at 0",
)


@dataclass(frozen=True)
class Evaluation:
    """One or several evaluations of the objective at one point.

    Parameters
    ----------
    trial : id of the first trial
    point : `(D,)` in the unit cube
    value : mean over the successful evaluations; NaN if all failed. SQLite does not keep the sign of a zero
    count, span : number of successful evaluations, and number of trials in this row
    square : sum of the squared deviations of the values from their mean
    failure : error message of the first failure; "" if none failed
    measures : additional metrics by name
    artifact : bytes that the evaluation returned beside its value, e.g. a model
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
    path : path of the SQLite file, which is created if it does not exist
    agent : the agent's stable id; the journal of another agent is refused
    wait_seconds : how long to wait while another process uses the file
    clock : returns seconds; used for the time between commits

    Raises
    ------
    JournalError
        If the file is in use, is damaged, is not an agent's journal, or belongs to another agent.
    """

    keeps_ledger = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        agent: str,
        *,
        wait_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = Store(path, KIND, wait_seconds)
        owner = self._store.meta("agent")
        if owner is None:
            with self._store.transaction():
                self._store.put_meta("agent", agent)
                self._store.put_meta("incarnation", token_hex(8))
        elif owner != agent:
            self._store.close()
            raise JournalError(
                f"journal: expected that of agent {agent!r}, got {owner!r} in {path}; pass the path of this "
                "agent's file"
            )
        self.incarnation = str(self._store.meta("incarnation"))
        self._clock = clock
        self._pending: list[tuple[object, ...]] = []
        self._committed = clock()

    def __enter__(self) -> AgentJournal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Commit pending evaluations and close the SQLite connection."""
        try:
            self.commit()
        finally:  # otherwise the agent could never open its journal again
            self._store.close()

    # -- studies -------------------------------------------------------------------------------

    def begin(self, study: str, entropy: int, memory: bytes, algorithm: str = "", space: str = "") -> None:
        """Record a new study: entropy, initial memory, algorithm with options, and search space as JSON.

        What is known already is left as it is.
        """
        if self.algorithm(study) is not None:
            return
        with self._store.transaction():
            if self.study(study) is None:
                self._store.put("studies", (study, str(entropy), memory))
            self._store.put_meta(f"algorithm.{study}", algorithm)
            self._store.put_meta(f"space.{study}", space)

    def algorithm(self, study: str) -> str | None:
        """Return the algorithm and options of a study as text; None if the study is unknown."""
        return self._store.meta(f"algorithm.{study}")

    def num_studies(self) -> int:
        """Return the number of studies."""
        return sum(1 for _ in self._store.select("studies"))

    def study(self, study: str) -> tuple[int, bytes] | None:
        """Return the entropy and the memory after the last finished task; None if the study is unknown."""
        for _, entropy, memory in self._store.select("studies", "WHERE study = ?", (study,)):
            with self._decoding(f"study {study}"):
                return int(str(entropy)), _bytes(memory)
        return None

    # -- notes ---------------------------------------------------------------------------------

    def note(self, name: str) -> dict[str, object]:
        """Return the values last stored under a name with `put_note`; an empty dict if there are none."""
        text = self._store.meta(f"note.{name}")
        with self._decoding(f"the note {name}"):
            return {} if text is None else dict(json.loads(text))

    def put_note(self, name: str, values: Mapping[str, object]) -> None:
        """Store values under a name, for all studies, in a separate commit."""
        with self._store.transaction():
            self._store.put_meta(f"note.{name}", json.dumps(dict(values)))

    # -- tasks ---------------------------------------------------------------------------------

    def report(self, study: str, task: str) -> bytes | None:
        """Return the report sent for a task; None if the task was not finished."""
        for _, _, _, report, _ in self._store.select("tasks", "WHERE study = ? AND task = ?", (study, task)):
            with self._decoding("a report"):
                return _bytes(report)
        return None

    def finish(
        self,
        study: str,
        task: str,
        server_round: int,
        memory: SupportsBytes,
        report: SupportsBytes,
        sent: Sequence[ledger.LedgerEntry] = (),
        answered: tuple[str, str] = ("", ""),
    ) -> None:
        """Commit a report, its ledger rows, the new memory and all pending evaluations together.

        `answered` is the name of the piece of work and the key of its task; "" for none.
        """
        known = self.study(study)
        with self._store.transaction():
            if answered[0]:
                self._store.put_meta(f"answer.{study}.{answered[0]}", answered[1])
            self._store.append("evaluations", self._pending)
            if known is not None:
                self._store.put("studies", (study, str(known[0]), bytes(memory)))
            self._store.put("tasks", (study, task, server_round, bytes(report), time.time()))
            self._store.append("sent", map(ledger.as_row, sent))
        self._pending = []

    def answered(self, study: str, work: str) -> str | None:
        """Return the key of the task with which a piece of work was answered; None if it was not."""
        return self._store.meta(f"answer.{study}.{work}")

    def enter_sent(self, sent: Sequence[ledger.LedgerEntry]) -> None:
        """Commit ledger rows of a message that no task produced, e.g. a repeated report."""
        with self._store.transaction():
            self._store.append("sent", map(ledger.as_row, sent))

    def enter_registration(self, names: Sequence[str], disclosure: str = "") -> None:
        """Store the fields that the agent sends at registration and what it discloses, if they changed."""
        values = {"names": list(names), "disclosure": disclosure}
        if self.note("roll-call") != values:
            self.put_note("roll-call", values)

    # -- evaluations ---------------------------------------------------------------------------

    def append(self, study: str, task: str, evaluation: Evaluation) -> None:
        """Add an evaluation.

        Commit all pending ones if the last commit is at least one second ago, or the evaluation took as long,
        beside others.
        """
        e = evaluation
        value = None if np.isnan(e.value) else e.value
        point, measures = json.dumps([float(x) for x in e.point]), json.dumps(dict(e.measures))
        counts = e.count, e.span, e.square
        self._pending.append((study, task, e.trial, point, value, *counts, e.failure, measures, e.artifact))
        long = e.measures.get(SECONDS, 0.0) >= COMMIT_SECONDS
        if long or self._clock() - self._committed >= COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Commit all pending evaluations."""
        if self._pending:
            with self._store.transaction():
                self._store.append("evaluations", self._pending)
            self._pending = []
        self._committed = self._clock()

    def evaluations(self, study: str, task: str | None = None) -> list[Evaluation]:
        """Return the evaluations of a study, or of one of its tasks, in the order they were added."""
        where, arguments = ("", (study,)) if task is None else (" AND task = ?", (study, task))
        rows = self._store.select("evaluations", f"WHERE study = ?{where} ORDER BY id", arguments)
        with self._decoding("an evaluation"):
            return [_evaluation(row) for row in rows]

    def _decoding(self, what: str) -> AbstractContextManager[None]:
        return decoding(self._store.path, KIND, what)


def _evaluation(row: Sequence[Any]) -> Evaluation:
    _, _, _, trial, point, value, count, span, square, failure, measures, artifact = row
    return Evaluation(
        int(trial), np.array(json.loads(point), dtype=np.float64),
        float("nan") if value is None else float(value), int(count), int(span), float(square),
        str(failure), dict(json.loads(measures)), None if artifact is None else _bytes(artifact),
    )  # fmt: skip


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"expected bytes, got {type(value).__name__}")
    return value


def task_key(task: Task) -> str:
    """Return the SHA-256 of a task's content without its round: a repeated task has the same key."""
    values: dict[str, object] = {
        "phase": str(task.phase),
        "trial": task.trial,
        "num_trials": task.num_trials,
        "values": dict(sorted(task.values.items())),
    }
    return hashlib.sha256(dumps(dict(sorted(task.arrays.items())), values)).hexdigest()
