"""Tasks under way and their replies, as they arrive and as the journal holds them.

If the strategy pools learning curves, agents may also send medians of theirs (`CurvePool`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from flwr.app import Message

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.messages import without_sum
from fbo_flower.algorithms.records import Array, Phase, Report, Scalar, Task
from fbo_flower.errors import WireError, printable
from fbo_flower.numerics.curves import pooled
from fbo_flower.storage import Event
from fbo_flower.storage.files import task_key
from fbo_flower.wire.codec import LEAST_AGENTS, MAX_STEPS, POOLED, Disclosure
from fbo_flower.wire.flower_records import count_bytes, from_records


@dataclass(frozen=True)
class Reply:
    """An agent's reply to a task, not checked yet, or the reason why there is none.

    Parameters
    ----------
    packed : arrays and scalars with any content; None: no reply, or an unreadable one
    num_bytes : size of the reply
    reason : why `packed` is None
    kind : the reason in one word, for the counts
    refused : whether a reply arrived that could not be read
    """

    packed: wire.Packed | None = None
    num_bytes: int = 0
    reason: str = ""
    refused: bool = False
    kind: str = ""


FAILED = "Round %d, agent %s: %s"  # in the log
NO_REPLY = Reply(reason="no reply in time", kind="late")


def read_reply(message: Message) -> Reply:
    """Return the reply in a message, or the reason why the message holds none."""
    if message.has_error():
        reason = printable(str(message.error.reason))
        return Reply(reason=f"error {message.error.code}: {reason}", kind="error")
    try:
        packed = from_records(message.content)
    except WireError as error:  # to count what is too large would cost what its refusal saves
        num_bytes = 0 if error.reason == "size" else count_bytes(message.content)
        return Reply(None, num_bytes, str(error), refused=True, kind=error.reason)
    return Reply(packed, count_bytes(message.content))


def to_event(reply: Reply, agent: str, phase: str, server_round: int) -> Event:
    """Return the journal's entry for a reply."""
    values: dict[str, object] = {
        "config": None if reply.packed is None else reply.packed.config,
        "bytes": reply.num_bytes,
        "reason": reply.reason,
        "refused": reply.refused,
        "kind": reply.kind,
    }
    arrays = {} if reply.packed is None else reply.packed.arrays
    return Event("reply", server_round, phase, agent, arrays, values)


def from_event(event: Event) -> Reply:
    """Undo `to_event`."""
    values = event.values
    config = cast(dict[str, Scalar] | None, values["config"])
    packed = None if config is None else wire.Packed(event.arrays, config)
    num_bytes, refused = int(cast(int, values["bytes"])), bool(values["refused"])
    return Reply(packed, num_bytes, str(values["reason"]), refused, str(values["kind"]))


def tasks_digest(tasks: Mapping[str, Task]) -> str:
    """Return a checksum of the tasks of a half-round; replaying a journal must give the same one."""
    lines = [f"{agent} {task_key(task)}" for agent, task in sorted(tasks.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@dataclass
class CurvePool:
    """The latest summary of each agent's curves, see `wire.codec.checked_summary`.

    Parameters
    ----------
    summaries : agent -> `(k, 3)`
    """

    summaries: dict[str, Array] = field(default_factory=dict)
    _pooled: Array | None = None  # of `summaries`, until one changes

    def add(self, agent: str, disclosure: Disclosure) -> None:
        """Note what an agent has sent, if it has sent a summary."""
        if disclosure.curves is not None:
            self.summaries[agent] = disclosure.curves
            self._pooled = None

    def attach(self, packed: wire.Packed, task: Task) -> wire.Packed:
        """Return an encoded task with the pooled summary, if it asks for trials.

        The summary may have no rows yet. It also asks the agent for its own.
        """
        if task.phase is not Phase.TRAIN or not task.num_trials:
            return packed
        if self._pooled is None:
            self._pooled = pooled(list(self.summaries.values()), LEAST_AGENTS, MAX_STEPS)
        return packed._replace(arrays={**packed.arrays, POOLED: self._pooled})


CheckedReply = tuple[Report, Disclosure]


@dataclass
class SentTask:
    """A task under way.

    Parameters
    ----------
    late : whether this is an earlier task that was not answered, instead of the one that the algorithm made
        now. Of its report the algorithm gets the numbers of trials only
    made_in, made_after : the round in which the task was made, and how many answers the run had told then
    sent_at : when it was sent, by the clock of a simulation
    counted : whether the bytes of its message have been counted
    checked : the decoded report of its reply, or the error in it; None: no reply, or one without a report
    """

    agent: str
    task: Task
    envelope: wire.Envelope
    late: bool = False
    made_in: int = 0
    made_after: int = 0
    sent_at: float = 0.0
    counted: bool = False
    checked: CheckedReply | WireError | None = None


def answerable(algorithm: Algorithm[Any], earlier: Task, task: Task) -> Task:
    """Return a task, or the earlier one about the same work that the agent has not answered yet.

    An agent answers each piece of work once. It may have answered the earlier task, or begun to: then it
    refuses another one, and what it has evaluated already is not evaluated again.
    """
    if earlier is task or (earlier.trial, earlier.num_trials > 0) != (task.trial, task.num_trials > 0):
        return task
    content = algorithm.task_content
    if not task.num_trials and content.report_kind(task) != content.report_kind(earlier):
        return task
    if task.phase not in {Phase.TRAIN, Phase.FINISH} and algorithm.secure_sums:
        return task  # an exchange within a secure sum
    before = content.for_evaluations(without_sum(earlier))
    if task_key(before) == task_key(content.for_evaluations(without_sum(task))):
        return task
    return replace(before, round=task.round)
