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

from fbo_flower.algorithms.records import AgentState, Trials
from fbo_flower.errors import ConfigError, JournalError, WireError
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage import AgentJournal
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
    """Return the path of a node's journal; None if its memory is in Flower's state. See `open_memory`."""
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
        self._known: dict[str, dict[str, Any]] = {}  # records that were read or written for this message
        self._parsed: tuple[str, dict[str, str]] = ("{}", {})  # the last text of answers, and what it says

    @property
    def incarnation(self) -> str:
        known = self._read("incarnation") or self._write("incarnation", id=token_hex(8))
        return str(known["id"])

    def study(self, study: str) -> tuple[int, bytes] | None:
        kept = self._kept(study)
        return (int(kept["entropy"]), kept["data"]) if kept else None

    def num_studies(self) -> int:
        return int("study" in self._read("memory"))

    def algorithm(self, study: str) -> str | None:
        return self._kept(study).get("algorithm") or None

    def begin(
        self, study: str, entropy: int, agent_state: bytes, algorithm: str = "", space: str = ""
    ) -> None:
        former = self._read("memory").get("study", study)
        if former != study:
            forgotten = cast(list[str], self.note("forgotten").get("studies", []))
            self.put_note("forgotten", {"studies": [*forgotten, former]})
        if former != study or not self.num_studies():
            kept = {"study": study, "entropy": str(entropy), "algorithm": algorithm}
            self._write("memory", **kept, answered="{}", data=agent_state)

    def answered(self, study: str, work: str) -> str | None:
        return self._answers(study).get(work)

    def report(self, study: str, task: str) -> bytes | None:
        kept = self._read("report")
        return kept["data"] if (kept.get("study"), kept.get("task")) == (study, task) else None

    def evaluations(self, study: str, task: str) -> list[Trials]:
        return []

    def append(self, study: str, task: str, row: Trials) -> None:
        return

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
        kept = self._kept(study)
        if kept:
            known = self._answers(study) | ({answered[0]: answered[1]} if answered[0] else {})
            latest = dict(list(known.items())[-MAX_STATE_ANSWERS:])
            self._write("memory", **{**kept, "data": agent_state, "answered": json.dumps(latest)})
        if len(report) <= MAX_STATE_REPORT:
            self._write("report", study=study, task=task, data=report)
        else:
            self._state.pop(f"{STATE_KEY}.report", None)

    def enter_sent(self, sent: Sequence[LedgerEntry]) -> None:
        return  # only a journal has a ledger

    def enter_registration(self, names: Sequence[str], disclosure: str = "") -> None:
        return

    def note(self, name: str) -> dict[str, object]:
        values = self._read(f"note.{name}").get("values")
        return dict(json.loads(values)) if values else {}

    def put_note(self, name: str, values: Mapping[str, object]) -> None:
        self._write(f"note.{name}", values=json.dumps(dict(values)))

    def close(self) -> None:
        return

    def _answers(self, study: str) -> dict[str, str]:
        """Return piece of work -> key of the task that was answered."""
        text = self._kept(study).get("answered", "{}")
        if text != self._parsed[0]:
            self._parsed = text, json.loads(text)
        return self._parsed[1]

    def _kept(self, study: str) -> dict[str, Any]:
        """Return what is known of a study; empty if it is not the last one."""
        kept = self._read("memory")
        return kept if kept.get("study") == study else {}

    def _read(self, name: str) -> dict[str, Any]:
        if name not in self._known:
            record = self._state.get(f"{STATE_KEY}.{name}")
            self._known[name] = dict(record.items()) if isinstance(record, ConfigRecord) else {}
        return self._known[name]

    def _write(self, name: str, **values: str | bytes) -> dict[str, Any]:
        self._state[f"{STATE_KEY}.{name}"] = record_of(ConfigRecord, dict(values))
        self._known[name] = values
        return values


# what an agent stores between messages: opened for one message and closed after it
Memory = AgentJournal | StateMemory


def agent_state_to_bytes(agent_state: AgentState) -> bytes:
    """Convert an agent's state to bytes."""
    values = {"space": agent_state.space.digest, "passed": agent_state.passed}
    return dumps({**agent_state.arrays, **agent_state.history.to_arrays(_HISTORY)}, values)


def agent_state_from_bytes(data: bytes, space: SearchSpace) -> AgentState:
    """Undo `agent_state_to_bytes`; JournalError if the state is damaged or of another search space."""
    try:
        arrays, values = loads(data)
        if values["space"] != space.digest:
            raise JournalError(
                f"space: expected digest {values['space']}, with which this study began, got {space.digest}; "
                "restore the search space, or start a new study"
            )
        history = Trials.from_arrays(arrays, _HISTORY)
        return AgentState(space, history, arrays, values["passed"])
    except (WireError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise JournalError(
            f"journal: expected an agent's state, got {len(data)} bytes that cannot be read: {error}; the "
            "journal is damaged: restore a copy that was made after the agent's last answer, or remove the "
            "file: then the agent counts as a new one"
        ) from error
