"""Tasks that were sent and their replies: read, journalled, checked and recorded.

This is the one place that asks whether a reply is sound. If the strategy pools learning curves, agents may
also send medians of theirs (`CurvePool`). A replayed journal makes the same pool from the stored replies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from logging import DEBUG, INFO, WARNING
from typing import Any, cast

from flwr.app import Message
from flwr.common.logger import log

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.messages import Schema, without_sum
from fbo_flower.algorithms.options import answers_in_part
from fbo_flower.algorithms.records import NUM_EVALUATIONS, Array, Phase, Report, Scalar, Task
from fbo_flower.algorithms.server import Server
from fbo_flower.errors import WireError, WrongTypeError, printable
from fbo_flower.numerics.curves import pooled
from fbo_flower.storage import Event
from fbo_flower.storage.agent_journal import task_key
from fbo_flower.strategies.recorder import Recorder, count_floats
from fbo_flower.strategies.registration import AgentRegistry
from fbo_flower.wire.codec import LEAST_AGENTS, MAX_STEPS, POOLED
from fbo_flower.wire.flower_records import count_bytes, from_records


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


FAILED = "Round %d, agent %s: %s"  # in the log
NO_REPLY = Reply(reason="no reply in time", word="late")


def read_reply(message: Message) -> Reply:
    """Return the reply in a message, or the reason why the message holds none."""
    if message.has_error():
        reason = printable(str(message.error.reason))
        return Reply(reason=f"error {message.error.code}: {reason}", word="error")
    try:
        packed = from_records(message.content)
    except WireError as error:  # to count what is too large would cost what its refusal saves
        num_bytes = 0 if error.reason == "size" else count_bytes(message.content)
        return Reply(None, num_bytes, str(error), refused=True, word=error.reason)
    return Reply(packed, count_bytes(message.content))


def to_event(reply: Reply, agent: str, phase: str, server_round: int) -> Event:
    """Return the journal's entry for a reply."""
    values: dict[str, object] = {
        "config": None if reply.packed is None else reply.packed.config,
        "bytes": reply.num_bytes,
        "reason": reply.reason,
        "refused": reply.refused,
        "word": reply.word,
    }
    arrays = {} if reply.packed is None else reply.packed.arrays
    return Event("reply", server_round, phase, agent, arrays, values)


def from_event(event: Event) -> Reply:
    """Undo `to_event`."""
    values = event.values
    config = cast(dict[str, Scalar] | None, values["config"])
    packed = None if config is None else wire.Packed(event.arrays, config)
    num_bytes, refused = int(cast(int, values["bytes"])), bool(values["refused"])
    return Reply(packed, num_bytes, str(values["reason"]), refused, str(values["word"]))


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

    def add(self, agent: str, disclosure: wire.Disclosure) -> None:
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


CheckedReply = tuple[Report, wire.Disclosure]


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
    if not task.num_trials and algorithm.report_kind(task) != algorithm.report_kind(earlier):
        return task
    if task.phase not in {Phase.TRAIN, Phase.FINISH} and algorithm.secure_sums:
        return task  # an exchange within a secure sum
    before = algorithm.evaluation_task(without_sum(earlier))
    if task_key(before) == task_key(algorithm.evaluation_task(without_sum(task))):
        return task
    return replace(before, round=task.round)


MAX_REASON = 300  # characters of a reason in the log


@dataclass(frozen=True)
class ReportReader:
    """Reads the replies of a run.

    Parameters
    ----------
    server : says which reports are valid
    registry : learns whose budget is used up
    recorder : gets the numbers and the disclosed trials
    pool : gets the medians of learning curves; None: they are not pooled
    """

    server: Server
    registry: AgentRegistry
    recorder: Recorder
    pool: CurvePool | None

    def check(self, sent: SentTask, reply: Reply) -> CheckedReply | WireError:
        """Return the report in a reply and what it discloses, or the error in it; nothing is recorded."""
        try:
            if reply.packed is None:
                raise WireError(reply.reason, reply.word)
            task = self._answered_part(sent.task, reply.packed)
            space, schema = self.recorder.space, self._schema
            checked = wire.decode_report(
                reply.packed, task, sent.envelope, schema, space.dimension, self.recorder.aims
            )
            self.server.check_report(task, checked[0])
            return checked
        except WireError as error:
            return error.with_traceback(None)

    def read(self, sent: SentTask, server_round: int, reply: Reply, *, quiet: bool) -> Report | None:
        """Return an agent's valid report; None, counted and logged once, if there is none.

        Parameters
        ----------
        reply : of the task, or what stands for a missing one
        quiet : whether the log has it already, because a journal is replayed
        """
        level = DEBUG if quiet else WARNING
        self.recorder.count(bytes_up=reply.num_bytes)
        if reply.packed is None and not reply.refused:
            later = bool(WrongTypeError.text_in(reply.reason))  # `check_types` ends the study or logs it
            log(DEBUG if later else level, FAILED, server_round, sent.agent, reply.reason)
            self.recorder.count_unused("failures", reply.word)
            return None
        if reply.packed is not None and wire.declines(reply.packed, sent.envelope):
            self._note_spent(sent.agent, quiet)
            return None
        checked = sent.checked or self.check(sent, reply)
        if isinstance(checked, WireError):
            log(level, "Round %d, agent %s: refused: %s", server_round, sent.agent, checked)
            self.recorder.count_unused("refused", checked.reason)
            return None
        report, disclosure = checked
        if reply.packed is not None and reply.packed.config.get("spent") is True:
            self._note_spent(sent.agent, quiet)
        self._record(sent.agent, server_round, report, disclosure)
        return report

    def _record(self, agent: str, server_round: int, report: Report, disclosure: wire.Disclosure) -> None:
        floats = count_floats(report.arrays)
        self.recorder.count(replies=1, failed_trials=report.num_failed, floats_up=floats)
        failures = {} if disclosure.trials is None else disclosure.trials.failures
        reason = printable(failures[min(failures)])[:MAX_REASON] if failures else ""
        self.recorder.count_evaluations(report.num_trials, reason)
        self.recorder.disclose(agent, server_round, disclosure)
        if self.pool is not None:
            self.pool.add(agent, disclosure)
        if isinstance(num_evaluations := report.values.get(NUM_EVALUATIONS), int):
            self.recorder.evaluations[agent] = num_evaluations

    def _note_spent(self, agent: str, quiet: bool) -> None:
        """Ask an agent for no more evaluations, because its budget is used up."""
        if not self.registry.agents[agent].spent:
            self.registry.agents[agent].spent = True
            if not quiet:
                log(
                    INFO,
                    "Agent %s has used up its budget of evaluations (max_trials), or ended its search",
                    agent,
                )

    def _answered_part(self, task: Task, packed: wire.Packed) -> Task:
        """Return a task with the trials that the agent has made, if its operator may allow only some."""
        number = packed.config.get("num-trials")
        if not isinstance(number, int) or not 0 < number < task.num_trials:
            return task
        return replace(task, num_trials=number) if answers_in_part(self.server.algorithm) else task

    @cached_property
    def _schema(self) -> Schema:
        return self.server.report_schema()
