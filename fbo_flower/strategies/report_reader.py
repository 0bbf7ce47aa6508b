"""`ReportReader`: check the reply to a task, and record what a valid one says, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from logging import INFO, WARNING
from typing import Any

from flwr.common.logger import log

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.bandits.base import NUM_EVALUATIONS
from fbo_flower.algorithms.records import Report, Task
from fbo_flower.algorithms.schema import Schema
from fbo_flower.algorithms.trials_per_round import answers_in_part
from fbo_flower.errors import WireError, printable
from fbo_flower.strategies.curve_pool import CurvePool
from fbo_flower.strategies.recorder import Recorder, count_floats
from fbo_flower.strategies.registration import AgentRegistry
from fbo_flower.strategies.replies import Reply
from fbo_flower.strategies.sent_tasks import SentTask

MAX_REASON = 300  # characters of a reason in the log

CheckedReply = tuple[Report, wire.Disclosure]


@dataclass(frozen=True)
class ReportReader:
    """Reads the replies of a run.

    Parameters
    ----------
    algorithm : says which reports are valid
    registry : learns whose budget is used up
    recorder : gets the numbers and the disclosed trials
    pool : gets the medians of learning curves; None: they are not pooled
    """

    algorithm: Algorithm[Any]
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
            checked = wire.decode_report(reply.packed, task, sent.envelope, schema, space.dimension)
            self.algorithm.check_report(task, checked[0])
            return checked
        except WireError as error:
            return error.with_traceback(None)

    def read(
        self,
        sent: SentTask,
        server_round: int,
        reply: Reply,
        checked: CheckedReply | WireError | None,
        *,
        quiet: bool,
    ) -> Report | None:
        """Return an agent's valid report; None, counted and logged once, if there is none.

        Parameters
        ----------
        checked : what `check` has returned for this reply; None: it is checked now
        quiet : whether the log has it already, because a journal is replayed
        """
        self.recorder.count(bytes_up=reply.num_bytes)
        if reply.packed is None and not reply.refused:
            if not quiet:
                log(WARNING, "Round %d, agent %s: %s", server_round, sent.agent, reply.reason)
            self.recorder.count_unused("failures", reply.word)
            return None
        if reply.packed is not None and wire.declines(reply.packed, sent.envelope):
            self._note_spent(sent.agent, quiet)
            return None
        checked = checked or self.check(sent, reply)
        if isinstance(checked, WireError):
            if not quiet:
                log(WARNING, "Round %d, agent %s: refused: %s", server_round, sent.agent, checked)
            self.recorder.count_unused("refused", checked.reason)
            return None
        report, disclosure = checked
        if reply.packed is not None and wire.says_spent(reply.packed):
            self._note_spent(sent.agent, quiet)
        self._record(sent.agent, server_round, report, disclosure)
        return report

    def _record(self, agent: str, server_round: int, report: Report, disclosure: wire.Disclosure) -> None:
        floats = count_floats(report.arrays)
        self.recorder.count(replies=1, failed_trials=report.num_failed, floats_up=floats)
        failures = {} if disclosure.trials is None else disclosure.trials.failures
        reason = printable(failures[min(failures)])[:MAX_REASON] if failures else ""
        self.recorder.count_evaluations(report.num_trials, report.num_failed, reason)
        self.recorder.disclose(agent, server_round, disclosure)
        if self.pool is not None:
            self.pool.add(agent, disclosure)
        if isinstance(num_evaluations := report.values.get(NUM_EVALUATIONS), int):
            self.recorder.evaluations[agent] = num_evaluations

    def _note_spent(self, agent: str, quiet: bool) -> None:
        """Ask an agent for no more evaluations, because its budget is used up."""
        if agent not in self.registry.spent:
            self.registry.spent.add(agent)
            if not quiet:
                log(INFO, "Agent %s has used up its budget of evaluations (max_trials)", agent)

    def _answered_part(self, task: Task, packed: wire.Packed) -> Task:
        """Return a task with the trials that the agent has made, if its operator may allow only some."""
        number = packed.config.get("num-trials")
        if not isinstance(number, int) or not 0 < number < task.num_trials:
            return task
        return replace(task, num_trials=number) if answers_in_part(self.algorithm.inner) else task

    @cached_property
    def _schema(self) -> Schema:
        return self.algorithm.report_schema(self.recorder.space)
