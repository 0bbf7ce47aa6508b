"""An agent's journal on its own disk: its evaluations, the reports it sent, and its random entropy.

A restarted agent never repeats a committed evaluation. A task that was finished is answered from the journal;
an interrupted task resumes after its last committed evaluation. The journal commits an evaluation if the last
commit is at least one second ago. So expensive evaluations are committed one by one and cheap ones in
batches, and a crash loses at most about one second of work, which is repeated with the same random draws.

The functions that begin with `read_` open the file read-only, also while the agent uses it, and raise
JournalError if it does not exist, is damaged, or is not an agent's journal.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from operator import attrgetter
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple, SupportsBytes

import numpy as np

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.records import Trials
from fbo_flower.errors import JournalError
from fbo_flower.storage import ledger
from fbo_flower.storage.files import dumps, loads
from fbo_flower.storage.store import JournalKind, Store, StoredRows, opened

if TYPE_CHECKING:
    import sqlite3

COMMIT_SECONDS = 1.0
KIND = JournalKind(
    "fbo-flower agent journal",
    5,
    {
        "studies": "study TEXT PRIMARY KEY, entropy TEXT NOT NULL, memory BLOB NOT NULL",
        "tasks": (
            "study TEXT NOT NULL, task TEXT NOT NULL, round INTEGER NOT NULL, report BLOB NOT NULL, "
            "sent REAL NOT NULL, PRIMARY KEY (study, task)"
        ),
        "evaluations": (
            "id INTEGER PRIMARY KEY, study TEXT NOT NULL, task TEXT NOT NULL, trials BLOB NOT NULL, "
            "UNIQUE (study, task, id)"
        ),
        "sent": ledger.COLUMNS,
    },
    "restore a copy that was made after the agent's last answer, or remove the file: then the agent counts "
    "as a new one, and its counts for max_trials and max_epsilon start again at 0",
)


class StudyMemory(NamedTuple):
    """What an agent keeps of a study.

    Parameters
    ----------
    entropy : seed of the agent's random numbers in this study
    state : the agent's state after the last finished task
    algorithm : name and options of the first task, as text
    aims : the agent's objectives and limits as JSON, with bounds; "": one number, larger is better
    """

    entropy: int
    state: bytes
    algorithm: str = ""
    aims: str = ""


class AgentJournal(Store):
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

    def __init__(
        self,
        path: str | os.PathLike[str],
        agent: str,
        *,
        wait_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(path, KIND, wait_seconds)
        self._clock = clock
        self._pending: list[tuple[object, ...]] = []
        self._committed = clock()
        owner = self.meta("agent")
        if owner is None:
            with self.transaction():
                self.put_meta("agent", agent)
                self.put_meta("incarnation", token_hex(8))
        elif owner != agent:
            self.close()
            raise JournalError(
                f"journal: expected that of agent {agent!r}, got {owner!r} in {path}; pass the path of this "
                "agent's file"
            )
        self.incarnation = str(self.meta("incarnation"))

    def close(self) -> None:
        """Commit pending evaluations and close the SQLite connection."""
        try:
            self.commit()
        finally:  # otherwise the agent could never open its journal again
            super().close()

    # -- studies -------------------------------------------------------------------------------

    def begin(
        self, study: str, entropy: int, memory: bytes, algorithm: str = "", space: str = "", aims: str = ""
    ) -> None:
        """Record a new study: entropy, initial memory, algorithm with options, search space, and aims.

        Space and aims are JSON; "" for aims: one number, larger is better. What is known already stays.
        """
        if self.study(study) is not None:
            return
        with self.transaction():
            self.put("studies", (study, str(entropy), memory))
            self.put_meta(f"algorithm.{study}", algorithm)
            self.put_meta(f"space.{study}", space)
            if aims:
                self.put_meta(f"note.{aims_note(study)}", json.dumps({"aims": aims}))

    def num_studies(self) -> int:
        """Return the number of studies."""
        return self.count("studies")

    def study(self, study: str) -> StudyMemory | None:
        """Return what the agent keeps of a study; None if it is unknown."""
        row = self.row("studies", "WHERE study = ?", (study,))
        if row is None:
            return None
        algorithm, aims = self.meta(f"algorithm.{study}"), self.note(aims_note(study)).get("aims", "")
        return StudyMemory(int(row["entropy"]), row["memory"], algorithm or "", str(aims))

    # -- notes ---------------------------------------------------------------------------------

    def note(self, name: str) -> dict[str, object]:
        """Return the values last stored under a name with `put_note`; an empty dict if there are none."""
        return dict(json.loads(self.meta(f"note.{name}") or "{}"))

    def put_note(self, name: str, values: Mapping[str, object]) -> None:
        """Store values under a name, for all studies, in a separate commit."""
        with self.transaction():
            self.put_meta(f"note.{name}", json.dumps(dict(values)))

    # -- tasks ---------------------------------------------------------------------------------

    def report(self, study: str, task: str) -> bytes | None:
        """Return the report sent for a task; None if the task was not finished."""
        row = self.row("tasks", "WHERE study = ? AND task = ?", (study, task))
        return None if row is None else row["report"]

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
        known = self.row("studies", "WHERE study = ?", (study,))
        with self.transaction():
            if answered[0]:
                self.put_meta(f"answer.{study}.{answered[0]}", answered[1])
            self.insert("evaluations", self._pending)
            if known is not None:
                self.put("studies", (study, known["entropy"], bytes(memory)))
            self.put("tasks", (study, task, server_round, bytes(report), time.time()))
            self.insert("sent", map(astuple, sent))
        self._pending = []

    def answered(self, study: str, work: str) -> str | None:
        """Return the key of the task with which a piece of work was answered; None if it was not."""
        return self.meta(f"answer.{study}.{work}")

    def enter_sent(self, sent: Sequence[ledger.LedgerEntry]) -> None:
        """Commit ledger rows of a message that no task produced, e.g. a repeated report."""
        with self.transaction():
            self.insert("sent", map(astuple, sent))

    def enter_registration(self, names: Sequence[str], disclosure: str = "") -> None:
        """Store the fields that the agent sends at registration and what it discloses, if they changed."""
        values = {"names": list(names), "disclosure": disclosure}
        if self.note("roll-call") != values:
            self.put_note("roll-call", values)

    # -- evaluations ---------------------------------------------------------------------------

    def append(self, study: str, task: str, row: Trials) -> None:
        """Add the evaluation of a row.

        Commit all pending ones if the last commit is at least one second ago, or the evaluation took as long,
        beside others.
        """
        self._pending.append((study, task, dumps(row.to_arrays(), {})))
        long = row.times is not None and bool((np.diff(row.times) >= COMMIT_SECONDS).any())
        if long or self._clock() - self._committed >= COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Commit all pending evaluations."""
        if self._pending:
            with self.transaction():
                self.insert("evaluations", self._pending)
            self._pending = []
        self._committed = self._clock()

    def evaluations(self, study: str, task: str | None = None) -> list[Trials]:
        """Return the evaluated rows of a study in the order they were added, or of a task by their trials."""
        where, arguments = ("", (study,)) if task is None else (" AND task = ?", (study, task))
        rows = self.select("evaluations", f"WHERE study = ?{where} ORDER BY id", arguments)
        found = [_trials(row) for row in rows]  # what is evaluated at once ends in any order
        return found if task is None else sorted(found, key=attrgetter("next_trial"))


def _trials(row: sqlite3.Row) -> Trials:
    return Trials.from_arrays(loads(row["trials"])[0])


def aims_note(study: str) -> str:
    """Return the name of the note with the agent's objectives and limits in a study, bounds included."""
    return f"aims.{study}"


def read_ledger(path: Path) -> ledger.Ledger:
    """Return the ledger of an agent's journal."""
    with opened(path, KIND) as journal:
        meta = _texts(journal)
        last = json.loads(meta.get("note.roll-call", "{}"))
        sent = journal.select("sent", "ORDER BY id")
        rows = [ledger.LedgerEntry(*row[2:-1], *map(bool, row[-1:])) for row in sent]
        return ledger.Ledger(meta["agent"], rows, tuple(last.get("names", ())), last.get("disclosure", ""))


class StoredStudy(NamedTuple):
    """One study in an agent's journal.

    `memory` is the agent's state after its last finished task; `algorithm` holds the options too, and with
    `space` and `aims` is text or JSON; `failure` is why the first failed evaluation failed, "" if none did.
    """

    study: str
    memory: bytes
    algorithm: str
    space: str
    failure: str
    num_failed: int
    aims: str


def read_studies(path: Path) -> tuple[str, list[StoredStudy]]:
    """Return the agent's id and its studies, the latest one last."""
    with opened(path, KIND) as journal:
        meta = _texts(journal)
        failures: dict[str, str] = {}
        num_failed: Counter[str] = Counter()
        for row in journal.select("evaluations", "ORDER BY id"):
            trials = _trials(row)
            for reason in trials.reasons.values():
                failures.setdefault(row["study"], reason)
                num_failed[row["study"]] += trials.num_trials - trials.num_succeeded
        return meta["agent"], [
            StoredStudy(
                study := row["study"], row["memory"], meta[f"algorithm.{study}"], meta[f"space.{study}"],
                failures.get(study, ""), num_failed[study], _aims_in(meta, study),
            )
            for row in journal.select("studies", "ORDER BY rowid")
        ]  # fmt: skip


class StoredCurve(NamedTuple):
    """What one trial has reported: losses, if the objective is a loss; `failure` is "" if it did not fail."""

    agent: str
    study: str
    trial: int
    steps: tuple[int, ...]
    values: tuple[float, ...]
    stopped: bool
    failure: str


def read_curves(path: Path) -> Iterator[StoredCurve]:
    """Yield the curves in an agent's journal in the order in which they ended."""
    with opened(path, KIND) as journal:
        meta = _texts(journal)
        for row in journal.select("evaluations", "ORDER BY id"):
            made = _trials(row)
            if made.curve is None:
                continue
            steps, values = made.curve.tolist()
            sign = -1.0 if Aims.from_json(_aims_in(meta, row["study"])).minimize else 1.0
            yield StoredCurve(
                meta["agent"], row["study"], int(made.trials[0]), tuple(map(int, steps)),
                tuple(sign * value + 0.0 for value in values),
                made.stopped is not None, "".join(made.reasons.values()),
            )  # fmt: skip


def _aims_in(meta: Mapping[str, str], study: str) -> str:
    return str(json.loads(meta.get(f"note.{aims_note(study)}", "{}")).get("aims", NUMBER.to_json()))


def _texts(journal: StoredRows) -> dict[str, str]:
    return {row["key"]: row["value"] for row in journal.select("meta")}
