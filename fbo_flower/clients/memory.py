"""`Memory`: what an agent stores between two messages, in a journal on its disk or in Flower's state.

Flower keeps a node's state in RAM: it is lost when the SuperNode stops, and every run begins with an empty
state. A journal survives both. An agent that has lost its memory gets a new incarnation token, and the server
treats it as a new agent. Both memories keep an agent's state in a study and its reports as bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any, cast

from flwr.app import ConfigRecord, Context, RecordDict

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.records import AgentState, Trials
from fbo_flower.errors import ConfigError, JournalError, WireError
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.agent_journal import AgentJournal, StudyMemory
from fbo_flower.storage.files import dumps, loads
from fbo_flower.storage.ledger import LedgerEntry
from fbo_flower.storage.paths import file_name, path_of
from fbo_flower.wire.flower_records import record_of

STATE_KEY = "fbo-flower"
MAX_STATE_REPORT = 2**16  # bytes; Flower sends the state with every simulated message
MAX_STATE_ANSWERS = 8  # pieces of work; a journal remembers all
JOURNAL_WAIT = 30.0  # seconds to wait until another process closes the journal
_HISTORY = "history."  # and the name of a column


def journal_path(context: Context, agent: str, directory: str | os.PathLike[str] | None = None) -> str | None:
    """Return the path of a node's journal: `journal` in its `node_config`, else a file in `directory`.

    None, if there is neither: then its memory is in Flower's state.
    """
    if path := str(context.node_config.get("journal", "")):
        return str(path_of(path, "journal"))
    return None if directory is None else str(path_of(directory) / f"agent-{file_name(agent)}.db")


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


def open_memory(context: Context, agent: str, journal: str | None) -> Memory:
    """Open the memory of a node: its journal at `journal_path`, or Flower's state if that is None.

    Raises
    ------
    JournalError
        If another process uses the journal, it is damaged, or it belongs to another agent.
    """
    if journal is None:
        return StateMemory(context.state)
    return AgentJournal(journal, agent, wait_seconds=JOURNAL_WAIT)


class StateMemory:
    """Memory in the state of a Flower node: the last study, the agent's state in it, its last report.

    It has the methods of an `AgentJournal`, where they are described, except those about a ledger and
    evaluations, which it does not keep.
    """

    def __init__(self, state: RecordDict) -> None:
        self._state = state
        self._last = self._read("memory")  # what is kept of the last study
        self._answered: dict[str, str] = json.loads(self._last.get("answered", "{}"))  # work -> task

    @property
    def incarnation(self) -> str:
        if not (known := self._read("incarnation")):
            self._write("incarnation", known := {"id": token_hex(8)})
        return str(known["id"])

    def study(self, study: str) -> StudyMemory | None:
        last = self._last
        if last.get("study") != study:
            return None
        return StudyMemory(int(last["entropy"]), last["data"], last["algorithm"], str(last.get("aims", "")))

    def num_studies(self) -> int:
        return int("study" in self._last)

    def begin(
        self, study: str, entropy: int, memory: bytes, algorithm: str = "", space: str = "", aims: str = ""
    ) -> None:
        former = self._last.get("study")
        if former == study:
            return
        if former is not None:
            forgotten = cast(list[str], self.note("forgotten").get("studies", []))
            self.put_note("forgotten", {"studies": [*forgotten, former]})
        self._last = {"study": study, "entropy": str(entropy), "algorithm": algorithm, "aims": aims}
        self._last["data"] = memory
        self._answered = {}
        self._write("memory", self._last)

    def answered(self, study: str, work: str) -> str | None:
        return self._answered.get(work) if self._last.get("study") == study else None

    def report(self, study: str, task: str) -> bytes | None:
        kept = self._read("report")
        return kept["data"] if (kept.get("study"), kept.get("task")) == (study, task) else None

    def finish(
        self,
        study: str,
        task: str,
        server_round: int,
        agent_state: bytes,
        report: bytes,
        sent: Sequence[LedgerEntry] = (),
        answered: tuple[str, str] = ("", ""),
    ) -> None:
        work, key = answered
        if self._last.get("study") == study:
            if work:
                self._answered[work] = key
                self._answered = dict(list(self._answered.items())[-MAX_STATE_ANSWERS:])
            self._last |= {"data": agent_state, "answered": json.dumps(self._answered)}
            self._write("memory", self._last)
        if len(report) <= MAX_STATE_REPORT:
            self._write("report", {"study": study, "task": task, "data": report})
        else:
            self._state.pop(f"{STATE_KEY}.report", None)

    def note(self, name: str) -> dict[str, object]:
        values = self._read(f"note.{name}").get("values")
        return dict(json.loads(values)) if values else {}

    def put_note(self, name: str, values: Mapping[str, object]) -> None:
        self._write(f"note.{name}", {"values": json.dumps(dict(values))})

    def close(self) -> None:
        return

    def _read(self, name: str) -> dict[str, Any]:
        record = self._state.get(f"{STATE_KEY}.{name}")
        return dict(record.items()) if isinstance(record, ConfigRecord) else {}

    def _write(self, name: str, values: dict[str, Any]) -> None:
        self._state[f"{STATE_KEY}.{name}"] = record_of(ConfigRecord, values)


# what an agent stores between messages: opened for one message and closed after it
Memory = AgentJournal | StateMemory


def agent_state_to_bytes(agent_state: AgentState) -> bytes:
    """Convert an agent's state to bytes."""
    values = {"space": agent_state.space.digest, "passed": agent_state.passed}
    return dumps({**agent_state.arrays, **agent_state.history.to_arrays(_HISTORY)}, values)


def agent_state_from_bytes(data: bytes, space: SearchSpace, aims: Aims = NUMBER) -> AgentState:
    """Undo `agent_state_to_bytes`; JournalError if the state is damaged or of another search space.

    Parameters
    ----------
    aims : the agent's objectives and limits, which are not stored with its state
    """
    try:
        arrays, values = loads(data)
        if values["space"] != space.digest:
            raise JournalError(
                f"space: expected digest {values['space']}, with which this study began, got {space.digest}; "
                "restore the search space, or start a new study"
            )
        history = Trials.from_arrays(arrays, _HISTORY)
        return AgentState(space, history, arrays, values["passed"], aims)
    except (WireError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise JournalError(
            f"journal: expected an agent's state, got {len(data)} bytes that cannot be read: {error}; the "
            "journal is damaged: restore a copy that was made after the agent's last answer, or remove the "
            "file: then the agent counts as a new one"
        ) from error
