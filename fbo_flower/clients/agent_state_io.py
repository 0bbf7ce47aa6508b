"""Convert an agent's state and its reports to bytes and back, for its memory.

A memory that stays in its process keeps `LiveState` and `LiveReport`: the objects themselves, in the form in
which they would come back from bytes, so that results do not depend on whether they were packed.
"""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass, replace
from typing import Any, SupportsBytes, cast

import numpy as np
from flwr.app import ConfigRecord

from fbo_flower import wire
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, History, IntArray, Scalar
from fbo_flower.errors import JournalError, WireError
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.serialization import dumps, loads
from fbo_flower.wire.flower_records import entries_of, record_of


class LiveEntries(dict[str, Any]):
    """The entries of a record: `data`, which is packed when it is read, and `values`, as JSON.

    Parameters
    ----------
    live : bytes, or what `bytes()` packs; nobody changes it
    plain : JSON values; nobody changes them
    """

    def __init__(self, live: SupportsBytes, plain: Mapping[str, object]) -> None:
        super().__init__(data=None, values=None)
        self.live = live
        self.plain = plain

    def packed(self) -> dict[str, Any]:
        """Return the entries as Flower stores them."""
        return {"data": bytes(self.live), "values": json.dumps(dict(self.plain))}

    def __getitem__(self, key: str) -> Any:
        return self.packed()[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.packed().get(key, default)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # a view of a copy
        return self.packed().items()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return self.packed().values()

    def __iter__(self) -> Iterator[str]:
        return iter(("data", "values"))

    def __eq__(self, other: object) -> bool:
        return self.packed() == (other.packed() if isinstance(other, LiveEntries) else other)

    __hash__ = None  # as of every dict

    def __repr__(self) -> str:
        return repr(self.packed())

    def copy(self) -> dict[str, Any]:
        return self.packed()

    def __reduce__(self) -> tuple[type[LiveEntries], tuple[bytes, dict[str, object]]]:
        return LiveEntries, (bytes(self.live), dict(self.plain))


def live_record(live: SupportsBytes, plain: Mapping[str, object]) -> ConfigRecord:
    """Return a record with the entries `data` and `values`; see `LiveEntries`."""
    return record_of(ConfigRecord, LiveEntries(live, plain))


def read_record(record: ConfigRecord) -> tuple[SupportsBytes, dict[str, Any]]:
    """Return the data and the values of a record, live or not."""
    entries = entries_of(record)
    if isinstance(entries, LiveEntries):
        return entries.live, dict(entries.plain)
    return cast(bytes, record["data"]), dict(json.loads(str(record["values"])))


_LONGEST_ENTRY = 512  # bytes of an array's dtype and shape, or of a number, in JSON
_LONGEST_CHARACTER = 6  # bytes of a character in JSON
_HISTORY = ("points", "values", "trials")


def agent_state_to_bytes(agent_state: AgentState) -> bytes:
    """Convert an agent's state to bytes."""
    history = agent_state.history
    own = {f"history.{name}": getattr(history, name) for name in _HISTORY}
    values: dict[str, object] = {
        "space": agent_state.space.digest,
        "failures": {str(trial): reason for trial, reason in history.failures.items()},
        "passed": agent_state.passed,
    }
    if history.stopped:
        values["stopped"] = {str(trial): step for trial, step in history.stopped.items()}
    if history.predicted:
        values["predicted"] = {str(trial): value for trial, value in history.predicted.items()}
    return dumps({**agent_state.arrays, **own}, values)


@dataclass(frozen=True)
class LiveState:
    """An agent's state that is packed when its bytes are asked for; `LiveState.of` makes one."""

    agent_state: AgentState

    @staticmethod
    def of(agent_state: AgentState) -> LiveState:
        """Return a state whose arrays nobody else holds, and nobody can change."""
        history = agent_state.history
        points, values, trials = (_settled(getattr(history, name)) for name in _HISTORY)
        failures = {int(trial): reason for trial, reason in history.failures.items()}
        early = dict(history.stopped), dict(history.predicted)
        kept = History(cast(Array, points), cast(Array, values), cast(IntArray, trials), failures, *early)
        arrays = {name: _settled(array) for name, array in agent_state.arrays.items()}
        return LiveState(AgentState(agent_state.space, kept, arrays, agent_state.passed))

    def __bytes__(self) -> bytes:
        return agent_state_to_bytes(self.agent_state)


@dataclass(frozen=True)
class LiveReport:
    """A packed report whose bytes are made when they are asked for; `LiveReport.of` makes one."""

    packed: wire.Packed

    @staticmethod
    def of(packed: wire.Packed) -> LiveReport:
        """Return a report whose arrays nobody else holds, and nobody can change."""
        arrays = {name: _settled(array) for name, array in packed.arrays.items()}
        return LiveReport(wire.Packed(arrays, dict(packed.config)))

    @property
    def most_bytes(self) -> int:
        """The packed report has at most this many bytes."""
        arrays, config = self.packed
        names = sum(len(name) for name in (*arrays, *config))
        texts = sum(len(value) for value in config.values() if isinstance(value, str))
        others = _LONGEST_ENTRY * (len(arrays) + len(config) + 1)  # shapes, dtypes, numbers, punctuation
        return sum(array.nbytes for array in arrays.values()) + _LONGEST_CHARACTER * (names + texts) + others

    def __bytes__(self) -> bytes:
        return packed_to_bytes(self.packed)


def _settled(array: AnyArray) -> AnyArray:
    """Return an array with memory of its own, in C order, that cannot be written."""
    if array.flags.writeable or array.base is not None or not array.flags.c_contiguous:
        array = np.array(array, order="C")
        array.flags.writeable = False
    return array


def agent_state_from_bytes(data: SupportsBytes, space: SearchSpace) -> AgentState:
    """Undo `agent_state_to_bytes`, or return the state in a `LiveState`.

    Raises
    ------
    JournalError
        If the state is damaged or of another search space.
    """
    if isinstance(data, LiveState):
        if data.agent_state.space is space:
            return data.agent_state
        _check_space(data.agent_state.space.digest, space)
        return replace(data.agent_state, space=space)
    data = bytes(data)
    try:
        return _agent_state(data, space)
    except (WireError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise JournalError(
            f"journal: expected an agent's state, got {len(data)} bytes that cannot be read: {error}; the "
            "journal is damaged: restore a copy that was made after the agent's last answer, or remove the "
            "file: then the agent counts as a new one"
        ) from error


def _agent_state(data: bytes, space: SearchSpace) -> AgentState:
    arrays, values = loads(data)
    _check_space(values["space"], space)
    points, observed, trials = (arrays.pop(f"history.{name}") for name in _HISTORY)
    failures = {int(trial): reason for trial, reason in values["failures"].items()}
    stopped = {int(trial): int(step) for trial, step in values.get("stopped", {}).items()}
    predicted = {int(trial): float(value) for trial, value in values.get("predicted", {}).items()}
    early = stopped, predicted
    history = History(cast(Array, points), cast(Array, observed), cast(IntArray, trials), failures, *early)
    return AgentState(space, history, arrays, values["passed"])


def _check_space(digest: str, space: SearchSpace) -> None:
    if digest != space.digest:
        raise JournalError(
            f"space: expected digest {digest}, with which this study began, got {space.digest}; "
            "restore the search space, or start a new study"
        )


def packed_to_bytes(packed: wire.Packed) -> bytes:
    """Convert a packed report to bytes."""
    return dumps(packed.arrays, dict(packed.config))


def packed_from_bytes(data: SupportsBytes) -> wire.Packed:
    """Undo `packed_to_bytes`, or return the report in a `LiveReport`."""
    if isinstance(data, LiveReport):
        return data.packed
    arrays, config = loads(bytes(data))
    return wire.Packed(arrays, cast(dict[str, Scalar], config))
