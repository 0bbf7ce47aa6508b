"""A server's journal: registrations, tasks and replies in order, so that a study can be resumed.

The server's part of an algorithm is a pure function of the replies, and its random draws depend only on the
seed and the round. So the journal stores no state: it stores the registered agents, the tasks (before they
are sent) and the replies as received. To resume, the strategy computes the state from them again. If a
recomputed task differs from the recorded one, the code or the settings have changed, and resuming fails.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fbo_flower.algorithms.records import AnyArray
from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.storage.files import dumps, loads
from fbo_flower.storage.paths import path_of
from fbo_flower.storage.store import JournalKind, Store, opened

if TYPE_CHECKING:
    import sqlite3


KIND = JournalKind(
    "fbo-flower study journal",
    6,
    {
        "events": (
            "id INTEGER PRIMARY KEY, kind TEXT NOT NULL, round INTEGER NOT NULL, phase TEXT NOT NULL, "
            "agent TEXT NOT NULL, data BLOB NOT NULL"
        )
    },
    "restore a copy (agents answer again what it does not hold), or start a new study with another file",
)


@dataclass(frozen=True)
class Event:
    """One event of a run.

    Parameters
    ----------
    kind : kind of event, defined by the strategy
    round, phase, agent : round, phase and agent it belongs to; 0 and "" if it has none
    arrays, values : content: numeric arrays and JSON values
    """

    kind: str
    round: int = 0
    phase: str = ""
    agent: str = ""
    arrays: Mapping[str, AnyArray] = field(default_factory=dict)
    values: Mapping[str, object] = field(default_factory=dict)


class StudyJournal(Store):
    """The journal of one study.

    Parameters
    ----------
    path : path of the SQLite file, which is created if it does not exist
    wait_seconds : how long to wait while another process uses the file

    Raises
    ------
    JournalError
        If the file is in use, is damaged, or is not a study's journal.
    """

    def __init__(self, path: str | os.PathLike[str], *, wait_seconds: float = 5.0) -> None:
        super().__init__(path, KIND, wait_seconds)

    @property
    def settings(self) -> dict[str, object] | None:
        """Settings the study was started with; None for a new journal."""
        text = self.meta("settings")
        return None if text is None else dict(json.loads(text))

    def begin(self, settings: Mapping[str, object], limits: Mapping[str, int | None] | None = None) -> None:
        """Store the settings of a new study, or check that a resumed study has the stored ones.

        Parameters
        ----------
        limits : how far the study may go, such as its number of rounds; None: without end. A resumed study
            may have larger ones

        Raises
        ------
        JournalError
            If the settings differ, or a limit is smaller than before; the message lists the differences.
        """
        text = json.dumps(dict(settings), sort_keys=True)
        before, now = self.settings, dict(json.loads(text))
        if before is None:
            with self.transaction():
                self.put_meta("settings", text)
        elif before != now:
            raise JournalError(
                f"resume: expected the settings of {self.path}, got others: "
                f"{'; '.join(_differences(before, now))}; use those again, or start a new study"
            )
        former = json.loads(self.meta("limits") or "{}")
        lowered = [
            f"{name} was {'without end' if former[name] is None else former[name]} and is {limit}"
            for name, limit in (limits or {}).items()
            if name in former and limit is not None and (former[name] is None or limit < former[name])
        ]
        if lowered:
            raise JournalError(
                f"resume: expected limits that are not smaller than those in {self.path}, got others: "
                f"{'; '.join(lowered)}; to end a study earlier, press Ctrl-C"
            )
        if limits and former != limits:
            with self.transaction():
                self.put_meta("limits", json.dumps(dict(limits)))

    def write(self, events: Sequence[Event]) -> None:
        """Append events in one commit."""
        rows = [(e.kind, e.round, e.phase, e.agent, dumps(e.arrays, e.values)) for e in events]
        with self.transaction():
            self.insert("events", rows)

    def events(self) -> Iterator[Event]:
        """Yield all committed events in order."""
        yield from map(_event, self.select("events", "ORDER BY id"))

    def begun(self, resume: bool) -> list[Event]:
        """Return the events so far; raise ConfigError if there are any that are not to be resumed."""
        events = list(self.events())
        if events and not resume:
            raise ConfigError(
                f"journal: expected a new file, got {self.path}, which holds a study; pass resume=True to "
                "continue that study"
            )
        return events

    def __len__(self) -> int:
        return self.count("events")


_OF_AN_ALGORITHM = ("options", "label")


class StudyJournalReader:
    """Reads a server's journal again and again while the server writes it, without holding it up.

    Parameters
    ----------
    path : path of the SQLite file
    check : whether the whole file is checked at the first look; every row that is read is checked anyway

    Raises
    ------
    JournalError
        If the file does not exist, is damaged, or is not a server's journal.
    """

    def __init__(self, path: str | os.PathLike[str], *, check: bool = False) -> None:
        self.path = path = path_of(path, "journal")
        self._last = 0  # id of the last event that was read
        with opened(path, KIND, check=check):
            pass

    def settings(self) -> dict[str, Any]:
        """Return the settings of the study; empty if it has not begun."""
        with opened(self.path, KIND, check=False) as journal:
            return dict(json.loads(journal.meta("settings") or "{}"))

    def new_events(self) -> Iterator[Event]:
        """Yield the events that were committed since the last call."""
        with opened(self.path, KIND, check=False) as journal:
            for row in journal.select("events", "WHERE id > ? ORDER BY id", (self._last,)):
                self._last = row["id"]
                yield _event(row)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was and is, option by option; another algorithm has other options, which are left out."""
    if before.get("algorithm") != now.get("algorithm"):
        before, now = ({k: v for k, v in each.items() if k not in _OF_AN_ALGORITHM} for each in (before, now))
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new)
        elif old != new:
            yield f"{name} was {json.dumps(old)} and is {json.dumps(new)}"


def _event(row: sqlite3.Row) -> Event:
    arrays, values = loads(row["data"])
    return Event(row["kind"], row["round"], row["phase"], row["agent"], arrays, values)
