"""`Memory`: what an agent stores between two messages, in a journal on its disk or in Flower's state.

Flower keeps a node's state in RAM: it is lost when the SuperNode stops, and every run begins with an empty
state. A journal survives both. An agent that has lost its memory gets a new incarnation token, and the server
treats it as a new agent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import SupportsBytes, cast
from urllib.parse import quote

from flwr.app import ConfigRecord, Context, RecordDict

from fbo_flower.clients.agent_state_io import LiveReport, live_record, read_record
from fbo_flower.errors import ConfigError
from fbo_flower.storage import AgentJournal
from fbo_flower.storage.agent_journal import Evaluation
from fbo_flower.storage.ledger import LedgerEntry

STATE_KEY = "fbo-flower"
MAX_STATE_REPORT = 2**16  # bytes; Flower sends the state with every simulated message
MAX_STATE_ANSWERS = 8  # pieces of work; a journal remembers all
JOURNAL_WAIT = 30.0  # seconds to wait until another process closes the journal


def journal_path(context: Context, agent: str, directory: str | os.PathLike[str] | None = None) -> str | None:
    """Return the path of a node's journal; None if its memory is in Flower's state. See `open_memory`."""
    path = str(context.node_config.get("journal", ""))
    if not path and directory is not None:
        path = str(Path(directory) / f"agent-{quote(agent, safe='')}.db")
    return path or None


def check_journal(durable: bool, purpose: str) -> None:
    """Raise ConfigError if a protection needs a memory that outlives the process, and there is none.

    Parameters
    ----------
    durable : whether the agent keeps a journal, or is simulated
    purpose : the protection
    """
    if not durable:
        raise ConfigError(
            f"journal: expected a file in node_config, because {purpose} must not be forgotten when the "
            'SuperNode stops, got none; set journal="PATH" there (in a simulation, pass a seed to the app)'
        )


def open_memory(context: Context, agent: str, directory: str | os.PathLike[str] | None = None) -> Memory:
    """Open the memory of a node: the journal at `journal` in its `node_config`, else Flower's state.

    Parameters
    ----------
    directory : where to create a journal for an agent without `journal` in `node_config`; None: use
        Flower's state

    Raises
    ------
    JournalError
        If another process uses the journal, it is damaged, or it belongs to another agent.
    """
    path = journal_path(context, agent, directory)
    if path is None:
        return StateMemory(context.state)
    return AgentJournal(path, agent, wait_seconds=JOURNAL_WAIT)


class StateMemory:
    """Memory in the state of a Flower node: the last study, the agent's state in it, its last report.

    It has the methods of an `AgentJournal`, where they are described. It keeps no ledger and no evaluations.
    """

    keeps_ledger = False

    def __init__(self, state: RecordDict) -> None:
        self._state = state
        self._values: dict[str, dict[str, object]] = {}  # records read or written for this message

    @property
    def incarnation(self) -> str:
        values = self._read("incarnation")
        if "id" not in values:
            values = {"id": token_hex(8)}
            self._write("incarnation", b"", values)
        return str(values["id"])

    def study(self, study: str) -> tuple[int, SupportsBytes] | None:
        values = self._read("memory")
        if values.get("study") != study:
            return None
        return int(str(values["entropy"])), self._data("memory")

    def num_studies(self) -> int:
        return int("study" in self._read("memory"))

    def algorithm(self, study: str) -> str | None:
        values = self._read("memory")
        return str(values.get("algorithm", "")) or None if values.get("study") == study else None

    def begin(
        self, study: str, entropy: int, agent_state: bytes, algorithm: str = "", space: str = ""
    ) -> None:
        former = self._read("memory").get("study")
        if former != study:
            if former is not None:
                forgotten = cast(list[str], self.note("forgotten").get("studies", []))
                self.put_note("forgotten", {"studies": [*forgotten, str(former)]})
            values = {"study": study, "entropy": str(entropy), "algorithm": algorithm}
            self._write("memory", agent_state, values)

    def answered(self, study: str, work: str) -> str | None:
        values = self._read("memory")
        if values.get("study") != study:
            return None
        return cast(dict[str, str], values.get("answered", {})).get(work)

    def report(self, study: str, task: str) -> SupportsBytes | None:
        values = self._read("report")
        if (values.get("study"), values.get("task")) != (study, task):
            return None
        return self._data("report")

    def evaluations(self, study: str, task: str) -> list[Evaluation]:
        return []

    def append(self, study: str, task: str, evaluation: Evaluation) -> None:
        return

    def finish(
        self,
        study: str,
        task: str,
        server_round: int,
        agent_state: SupportsBytes,
        report: SupportsBytes,
        sent: Sequence[LedgerEntry] = (),
        answered: tuple[str, str] = ("", ""),
    ) -> None:
        values = self._read("memory")
        if answered[0]:
            known = cast(dict[str, str], values.get("answered", {}))
            latest = list({**known, answered[0]: answered[1]}.items())[-MAX_STATE_ANSWERS:]
            values["answered"] = dict(latest)
        self._put("memory", agent_state, values)
        small = isinstance(report, LiveReport) and report.most_bytes <= MAX_STATE_REPORT
        if small or len(bytes(report)) <= MAX_STATE_REPORT:
            self._put("report", report, {"study": study, "task": task})
        else:
            self._state.pop(f"{STATE_KEY}.report", None)

    def enter_sent(self, sent: Sequence[LedgerEntry]) -> None:
        return  # only a journal has a ledger

    def enter_registration(self, names: Sequence[str], disclosure: str = "") -> None:
        return

    def note(self, name: str) -> Mapping[str, object]:
        return self._read(f"note.{name}")

    def put_note(self, name: str, values: Mapping[str, object]) -> None:
        self._write(f"note.{name}", b"", values)

    def close(self) -> None:
        return

    def _read(self, name: str) -> dict[str, object]:
        if name not in self._values:
            record = self._state.get(f"{STATE_KEY}.{name}")
            self._values[name] = read_record(record)[1] if isinstance(record, ConfigRecord) else {}
        return dict(self._values[name])

    def _data(self, name: str) -> SupportsBytes:
        return read_record(cast(ConfigRecord, self._state[f"{STATE_KEY}.{name}"]))[0]

    def _write(self, name: str, data: bytes, values: Mapping[str, object]) -> None:
        self._put(name, data, json.loads(json.dumps(dict(values))))  # a copy, and JSON or an error

    def _put(self, name: str, data: SupportsBytes, values: Mapping[str, object]) -> None:
        """Store data that is packed when it leaves this process; nobody changes it or the values."""
        self._state[f"{STATE_KEY}.{name}"] = live_record(data, values)
        self._values.pop(name, None)


# what an agent stores between messages: opened for one message and closed after it
Memory = AgentJournal | StateMemory

__all__ = ["Memory", "StateMemory", "check_journal", "journal_path", "open_memory"]
