"""Replies to tasks before they are checked, and their entries in a study's journal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from flwr.app import Message

from fbo_flower import wire
from fbo_flower.algorithms.records import Scalar, Task
from fbo_flower.errors import WireError, printable
from fbo_flower.storage import Event
from fbo_flower.storage.agent_journal import task_key
from fbo_flower.wire.flower_records import count_bytes, from_records
from fbo_flower.wire.numpy_client import from_lists, to_lists


@dataclass(frozen=True)
class Reply:
    """An agent's reply to a task, not checked yet, or the reason why there is none.

    Parameters
    ----------
    packed : arrays and scalars with any content; None: no reply, or an unreadable one
    num_bytes : size of the reply
    reason : why `packed` is None
    word : the reason in one word, for the counts
    refused : whether a reply arrived that could not be read
    """

    packed: wire.Packed | None = None
    num_bytes: int = 0
    reason: str = ""
    refused: bool = False
    word: str = ""


NO_REPLY = Reply(reason="no reply in time", word="late")


def read_reply(message: Message) -> Reply:
    """Return the reply in a message, or the reason why the message holds none."""
    if message.has_error():
        reason = printable(str(message.error.reason))
        return Reply(reason=f"error {message.error.code}: {reason}", word="error")
    num_bytes = 0
    try:
        num_bytes = count_bytes(message.content)
        return Reply(from_records(message.content), num_bytes)
    except WireError as error:
        return Reply(None, num_bytes, str(error), refused=True, word=error.reason)


def to_event(reply: Reply, agent: str, phase: str, server_round: int) -> Event:
    """Return the journal's entry for a reply."""
    arrays, config = ([], None) if reply.packed is None else to_lists(reply.packed)
    values: dict[str, object] = {
        "config": config,
        "bytes": reply.num_bytes,
        "reason": reply.reason,
        "refused": reply.refused,
        "word": reply.word,
    }
    named = {str(i): array for i, array in enumerate(arrays)}
    return Event("reply", server_round, phase, agent, named, values)


def from_event(event: Event) -> Reply:
    """Undo `to_event`."""
    config = cast(Mapping[str, Scalar] | None, event.values["config"])
    arrays = [event.arrays[str(i)] for i in range(len(event.arrays))]
    packed = None if config is None else from_lists(arrays, config)
    values = event.values
    num_bytes, refused = int(cast(int, values["bytes"])), bool(values["refused"])
    return Reply(packed, num_bytes, str(values["reason"]), refused, str(values["word"]))


def tasks_digest(tasks: Mapping[str, Task]) -> str:
    """Return a checksum of the tasks of a half-round; replaying a journal must give the same one."""
    lines = [f"{agent} {task_key(task)}" for agent, task in sorted(tasks.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
