"""What `fbo-flower watch` looks at: a server's journal, or the directory of a run."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from fbo_flower.cli.plan import JOURNALS, PLAN, read_plan
from fbo_flower.cli.watch_state import RunState, state_of_study
from fbo_flower.cli.watch_text import duration, state_lines
from fbo_flower.errors import ConfigError, FBOError, JournalError, printable
from fbo_flower.storage.study_journal import StudyJournalReader
from fbo_flower.study.directory import holds_study
from fbo_flower.study.study import Study

_NAME = "study.db"
_MOST_FILES = 1000  # databases in a directory that are looked at


class WatchedJournal:
    """A server's journal and the state that its events lead to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = StudyJournalReader(path)
        self.state = RunState()

    def look(self) -> None:
        """Read what was committed since the last look."""
        self.state.apply(self._reader.settings(), self._reader.new_events())

    def status(self) -> str:
        """Return whether the server's process runs, and when it wrote last."""
        if self.state.ended:
            return "ended"
        seconds = max(time.time() - last_write(self.path), 0.0)
        process = writer(self.path)
        if process is None:
            return f"last write {duration(seconds)} ago"
        if is_alive(process):
            return f"running (process {process}), last write {duration(seconds)} ago"
        return f"not running: process {process} has ended without finishing; resume it to go on"

    @property
    def has_died(self) -> bool:
        """Whether the server's process has ended without finishing."""
        process = writer(self.path)
        return not self.state.ended and process is not None and not is_alive(process)

    @property
    def is_open(self) -> bool:
        """Whether more may come."""
        return not self.state.ended


class WatchedRun:
    """A server's journal, or the directory of a run with the journals of several algorithms.

    Parameters
    ----------
    path : the journal, the directory of a run, or a directory that holds one journal of a server

    Raises
    ------
    ConfigError
        If there is nothing to watch.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._journals: dict[Path, WatchedJournal] = {}
        if path.is_dir():
            if not find_journals(path) and not holds_study(path) and not (path / PLAN).exists():
                raise ConfigError(
                    f"watch: expected the directory of a run or of a server's journal, got {path}, which "
                    "holds neither; a run can be watched if it writes a journal (fbo-flower simulate "
                    "--journal, or journal='/srv/study.db' in the run config)"
                )
        elif not path.is_file():
            raise ConfigError(
                f"watch: expected the directory of a run or a server's journal, got {path}, which does not "
                "exist; a journal appears when the run begins"
            )

    def look(self) -> None:
        """Read what is new."""
        for path in find_journals(self.path) if self.path.is_dir() else [self.path]:
            if path not in self._journals:
                self._journals[path] = WatchedJournal(path)
        for journal in self._journals.values():
            if journal.is_open:
                journal.look()

    def lines(self, now: datetime) -> Iterator[str]:
        """Yield the lines that show the run: several for an algorithm that runs, one if it has ended."""
        if not self._journals:
            yield from self._lines_without_journals(now)
            return
        journals = list(self._journals.values())
        labels = self._planned()
        if len(labels) > 1:
            ended = sum(not journal.is_open for journal in journals)
            yield printable(f"{ended} of {len(labels)} algorithms ended: {', '.join(labels)}")
        for number, journal in enumerate(journals):
            if journal.is_open or number == len(journals) - 1:
                yield from state_lines(journal.state, journal.status(), now, not journal.has_died)
            else:
                state = journal.state
                best = "not disclosed" if state.best is None else f"best {state.best:.6g}"
                yield printable(f"{state.label}: ended after {state.num_done} rounds, {best}")

    def _lines_without_journals(self, now: datetime) -> Iterator[str]:
        if not holds_study(self.path):
            yield f"{self.path}: no algorithm has begun yet"
            return
        study = Study.load(self.path)
        for algorithm in study.algorithms:
            status = str(study.run(algorithm).get("status") or "ended")
            yield from state_lines(state_of_study(study, algorithm), status, now)

    @property
    def may_change(self) -> bool:
        """Whether it makes sense to look again."""
        if not self._journals:
            return not holds_study(self.path)
        journals = list(self._journals.values())
        return any(journal.is_open for journal in journals) or len(journals) < len(self._planned())

    def progress(self) -> tuple[object, ...]:
        """Return what changes when a round or a run has ended, or agents went silent."""
        states = [journal.state for journal in self._journals.values()]
        return tuple((s.label, s.num_done, s.ended, len(s.silent)) for s in states)

    def _planned(self) -> list[str]:
        """Return the labels of the algorithms that the run consists of; empty if that is not written."""
        if not (self.path / PLAN).is_file():
            return []
        try:
            return [contestant.label for contestant in read_plan(self.path).contestants]
        except FBOError:
            return []  # of another version


def find_journals(directory: Path) -> list[Path]:
    """Return the servers' journals of a run's directory in the order of its algorithms, or the only one."""
    if (directory / JOURNALS).is_dir():
        directory = directory / JOURNALS
    found = [path for path in (directory / _NAME, *directory.glob(f"*/{_NAME}")) if path.is_file()]
    if found:
        return sorted(found, key=_order)
    others = [path for path in sorted(directory.glob("*.db"))[:_MOST_FILES] if _is_server_journal(path)]
    if len(others) > 1:
        names = ", ".join(path.name for path in others[:5])
        raise ConfigError(f"watch: expected one server's journal in {directory}, got {names}; pass the file")
    return others


def _order(path: Path) -> tuple[int, str]:
    """Return a key that sorts "prior" first and "2-ts" before "10-ei"."""
    match = re.match(r"([0-9]+)-", path.parent.name)
    return (int(match[1]) if match else 0), str(path)


def _is_server_journal(path: Path) -> bool:
    try:
        StudyJournalReader(path)
    except JournalError:
        return False
    return True


def last_write(path: Path) -> float:
    """Return when a journal was written last, in seconds since 1970."""
    times = []
    for name in (path, path.with_name(path.name + "-wal")):
        try:
            times.append(name.stat().st_mtime)
        except OSError:
            continue
    return max(times, default=time.time())


def writer(path: Path) -> int | None:
    """Return the id of the process that has opened a journal last; None if it is not known."""
    try:
        with open(path.with_name(path.name + ".lock"), encoding="utf-8", errors="replace") as stream:
            match = re.fullmatch(r"process ([0-9]{1,10})", stream.read(200).strip())
    except OSError:
        return None
    return int(match[1]) if match else None


def is_alive(process: int) -> bool:
    """Return whether a process of this machine runs; True if that cannot be found out."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it runs, as another user
    return True
