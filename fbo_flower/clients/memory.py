"""What an agent remembers between two messages: in a journal on its own disk, or in Flower's state.

Flower keeps a node's state in memory: it is lost when a SuperNode ends, and every run begins with an empty
one. A journal outlives both. Whoever has lost its memory is another incarnation, and the server takes it for
a new agent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Protocol, cast
from urllib.parse import quote

from flwr.app import ConfigRecord, Context, RecordDict

from fbo_flower.storage import AgentJournal
from fbo_flower.storage.agent_journal import Evaluation
from fbo_flower.storage.ledger import LedgerEntry

STATE_KEY = "fbo-flower"
LARGEST_REPORT = 2**16  # bytes that are worth to travel with every simulated message
JOURNAL_WAIT = 30.0  # seconds for another process to be done with the journal


class Memory(Protocol):
    """What an agent remembers; every method is called within one message."""

    @property
    def incarnation(self) -> str:
        """Token of this memory: whoever has lost it has another."""

    def study(self, study: str) -> tuple[int, bytes] | None:
        """Return the agent's entropy and its state after the last finished task; None: a new study."""

    def begin(self, study: str, entropy: int, agent_state: bytes) -> None:
        """Enter a study before its first evaluation."""

    def report(self, study: str, task: str) -> bytes | None:
        """Return what was answered to a task; None if that is not remembered."""

    def evaluations(self, study: str, task: str) -> list[Evaluation]:
        """Return what was evaluated for a task before the agent was cut off."""

    def append(self, study: str, task: str, evaluation: Evaluation) -> None:
        """Enter an evaluation."""

    def finish(
        self,
        study: str,
        task: str,
        server_round: int,
        agent_state: bytes,
        report: bytes,
        sent: Sequence[LedgerEntry] = (),
    ) -> None:
        """Keep what follows from a finished task, and write into the ledger what leaves."""

    def enter_sent(self, sent: Sequence[LedgerEntry]) -> None:
        """Write into the ledger what leaves a second time."""

    def enter_roll_call(self, names: Sequence[str]) -> None:
        """Write into the ledger what the agent says of itself."""

    def note(self, name: str) -> Mapping[str, object]:
        """Return what was noted last under a name, for all studies."""

    def put_note(self, name: str, values: Mapping[str, object]) -> None:
        """Note values for all studies; they are safe when this returns."""

    def close(self) -> None:
        """Let go of it."""


def open_memory(context: Context, agent: str, directory: str | os.PathLike[str] | None = None) -> Memory:
    """Return the memory of a node: the journal at `journal` in its `node_config`, else Flower's state.

    Parameters
    ----------
    directory : where an agent whose operator names no journal keeps one; None: nowhere

    Raises
    ------
    JournalError
        If the journal is in use, damaged or another agent's.
    """
    path = str(context.node_config.get("journal", ""))
    if not path and directory is not None:
        path = str(Path(directory) / f"agent-{quote(agent, safe='')}.db")
    if not path:
        return StateMemory(context.state)
    return AgentJournal(path, agent, wait_seconds=JOURNAL_WAIT)


class StateMemory:
    """Memory in the state of a Flower node: one study, its state and its last report."""

    def __init__(self, state: RecordDict) -> None:
        self._state = state

    @property
    def incarnation(self) -> str:
        found = self._read("incarnation")
        if "id" not in found:
            found = {"id": token_hex(8)}
            self._write("incarnation", b"", found)
        return str(found["id"])

    def study(self, study: str) -> tuple[int, bytes] | None:
        values = self._read("memory")
        if values.get("study") != study:
            return None
        record = cast(ConfigRecord, self._state[f"{STATE_KEY}.memory"])
        return int(str(values["entropy"])), cast(bytes, record["data"])

    def begin(self, study: str, entropy: int, agent_state: bytes) -> None:
        if self._read("memory").get("study") != study:
            self._write("memory", agent_state, {"study": study, "entropy": str(entropy)})

    def report(self, study: str, task: str) -> bytes | None:
        values = self._read("report")
        if (values.get("study"), values.get("task")) != (study, task):
            return None
        return cast(bytes, cast(ConfigRecord, self._state[f"{STATE_KEY}.report"])["data"])

    def evaluations(self, study: str, task: str) -> list[Evaluation]:
        return []

    def append(self, study: str, task: str, evaluation: Evaluation) -> None:
        return

    def finish(
        self,
        study: str,
        task: str,
        server_round: int,
        agent_state: bytes,
        report: bytes,
        sent: Sequence[LedgerEntry] = (),
    ) -> None:
        self._write("memory", agent_state, self._read("memory"))
        if len(report) <= LARGEST_REPORT:
            self._write("report", report, {"study": study, "task": task})
        else:
            self._state.pop(f"{STATE_KEY}.report", None)

    def enter_sent(self, sent: Sequence[LedgerEntry]) -> None:
        return  # a ledger needs a journal

    def enter_roll_call(self, names: Sequence[str]) -> None:
        return

    def note(self, name: str) -> Mapping[str, object]:
        return self._read(f"note.{name}")

    def put_note(self, name: str, values: Mapping[str, object]) -> None:
        self._write(f"note.{name}", b"", values)

    def close(self) -> None:
        return

    def _read(self, name: str) -> dict[str, object]:
        record = self._state.get(f"{STATE_KEY}.{name}")
        return dict(json.loads(str(record["values"]))) if isinstance(record, ConfigRecord) else {}

    def _write(self, name: str, data: bytes, values: Mapping[str, object]) -> None:
        record = ConfigRecord({"data": data, "values": json.dumps(dict(values))})
        self._state[f"{STATE_KEY}.{name}"] = record


__all__ = ["Memory", "StateMemory", "open_memory"]
