"""One run of a strategy: everything that changes, and the steps that change it.

Each step is a function of what was heard, so a run that was cut off is brought back by taking the same steps
again with what the journal holds, without a message being sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from logging import WARNING
from typing import Any, cast

from flwr.app import Array as FlowerArray
from flwr.app import Message, MessageType, RecordDict
from flwr.common.logger import log

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.bandits.base import NUM_EVALUATIONS
from fbo_flower.algorithms.capabilities import SecureRounds
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import Federation, Phase, Report, Task, natural_key
from fbo_flower.errors import JournalError, WireError
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage import Event, StudyJournal
from fbo_flower.strategies.recorder import Recorder, RoundProgress, count_floats
from fbo_flower.strategies.registration import AgentRegistry
from fbo_flower.strategies.replies import NO_REPLY, Reply, from_event, tasks_digest, to_event
from fbo_flower.wire.flower_records import count_bytes, to_records

_MESSAGE_TYPES = {
    Phase.TRAIN: MessageType.TRAIN,
    Phase.EVALUATE: MessageType.EVALUATE,
    Phase.FINISH: MessageType.TRAIN,
}


Checked = tuple[Report, wire.Disclosure]


@dataclass(frozen=True)
class SentTask:
    """A task on its way."""

    agent: str
    task: Task
    envelope: wire.Envelope
    content: RecordDict


@dataclass
class StudyRun:
    """A study in the making.

    Parameters
    ----------
    algorithm, seed : of the study
    study : its id
    registry : who is there
    recorder : what is written down
    state : the algorithm's own
    journal : where every step is kept; None: nowhere
    sent : tasks of the half-round that is open
    busy : whether anybody was asked for anything in this round
    known : agent -> its answer in the open half-round, as far as it came
    checked : agent -> what its answer says, or what is wrong with it; found while others are still at work
    past : half-rounds that are over, and whether anything was asked in them
    reopened : the half-round in which the run was cut off
    open_round : the round in which it was cut off; 0: between two
    seconds_before : of the rounds before the run was resumed
    """

    algorithm: Algorithm[Any]
    seed: int
    study: str
    registry: AgentRegistry
    recorder: Recorder
    state: Any
    journal: StudyJournal | None = None
    sent: list[SentTask] = field(default_factory=list)
    busy: bool = False
    known: dict[str, Reply] = field(default_factory=dict)
    checked: dict[str, Checked | WireError] = field(default_factory=dict)
    past: dict[tuple[Phase, int], bool] = field(default_factory=dict)
    reopened: tuple[Phase, int] | None = None
    open_round: int = 0
    seconds_before: float = 0.0
    _sent_to: dict[str, SentTask] = field(default_factory=dict)

    # -- steps ---------------------------------------------------------------------------------

    def begin_round(self, server_round: int) -> None:
        """Start counting, unless the run was cut off in this very round."""
        if self.open_round == server_round:
            return
        self.recorder.open_round()
        self.open_round, self.busy = server_round, False
        self._write(Event("open", server_round))

    def ask(self, phase: Phase, server_round: int, present: Sequence[str]) -> None:
        """Let the algorithm make the tasks of a half-round; they are safe before anything is sent."""
        tasks = self._make_tasks(phase, server_round, present)
        values = {"present": list(present), "tasks": tasks_digest(tasks)}
        self._write(Event("ask", server_round, phase, values=values))

    def messages(self, phase: Phase, server_round: int, suffix: str) -> dict[str, Message]:
        """Return agent -> message, for all tasks without an answer whose agents have a node."""
        kind = _MESSAGE_TYPES[phase] + suffix
        return {
            s.agent: Message(s.content, self.registry.nodes[s.agent], kind, group_id=str(server_round))
            for s in self.sent
            if s.agent not in self.known and s.agent in self.registry.nodes
        }

    def hear(self, phase: Phase, server_round: int, answers: Mapping[str, Reply]) -> None:
        """Keep answers as they come, before anything is made of them."""
        self.known.update(answers)
        if self.journal is not None:
            self.journal.write([to_event(a, agent, phase, server_round) for agent, a in answers.items()])
        for agent, answer in answers.items():
            if answer.packed is not None and agent in self._sent_to:
                self.checked[agent] = self._check(self._sent_to[agent], answer)

    def tell(self, phase: Phase, server_round: int, missing: Reply) -> None:
        """Check the answers and tell the algorithm; `missing` stands for those that did not come."""
        reports: dict[str, Report] = {}
        for sent in self.sent:
            report = self._read(sent, server_round, self.known.get(sent.agent, missing))
            if report is not None:
                reports[sent.agent] = report
        self.state = self.algorithm.tell(self.state, phase, reports)
        self.past[phase, server_round] = True
        self.known, self.checked, self.reopened = {}, {}, None
        self._write(Event("tell", server_round, phase, values={"missing": missing.reason}))

    def end_round(
        self, server_round: int, num_rounds: int | None, seconds: float | None = None
    ) -> RoundProgress:
        """Write the round down and return it."""
        progress = self.recorder.close_round(server_round, num_rounds, seconds)
        self.open_round = 0
        self._write(Event("round", server_round, values={"seconds": progress.seconds}))
        return progress

    # -- the way back --------------------------------------------------------------------------

    def write_agents(self) -> None:
        """Keep who is who, so that a resumed run knows an agent that has lost its memory."""
        values = {"incarnations": self.registry.incarnations, "own_names": self.registry.own_names}
        keys = {"keys": self.registry.keys} if self.registry.keys else {}
        self._write(Event("agents", values=values | keys))

    def replay(self, events: Iterable[Event]) -> None:
        """Take the steps of a journal again.

        Raises
        ------
        JournalError
            If the algorithm now asks for something else than it did.
        """
        journal, self.journal = self.journal, None
        for event in events:
            phase = Phase(event.phase) if event.phase else Phase.TRAIN
            if event.kind == "agents":
                self.registry.incarnations.update(_texts(event.values["incarnations"]))
                self.registry.own_names.update(_texts(event.values["own_names"]))
                self.registry.keys.update(_texts(event.values.get("keys", {})))
            elif event.kind == "open":
                self.begin_round(event.round)
            elif event.kind == "ask":
                tasks = self._make_tasks(phase, event.round, cast(list[str], event.values["present"]))
                if tasks_digest(tasks) != event.values["tasks"]:
                    raise JournalError(
                        f"resume: expected the tasks of round {event.round} as they were sent, got others; "
                        "the journal was written by another version of the algorithm"
                    )
                self.reopened = (phase, event.round) if tasks else None
            elif event.kind == "reply":
                self.known[event.agent] = from_event(event)
            elif event.kind == "tell":
                self.tell(phase, event.round, replace(NO_REPLY, reason=str(event.values["missing"])))
            elif event.kind == "round":
                self.end_round(event.round, None, float(cast(float, event.values["seconds"])))
        self.journal = journal

    # -- inside --------------------------------------------------------------------------------

    def _make_tasks(self, phase: Phase, server_round: int, present: Sequence[str]) -> Mapping[str, Task]:
        rng = generator(self.seed, "server", "ask", str(phase), server_round)
        if isinstance(self.algorithm, SecureRounds):
            keys = {agent: bytes.fromhex(key) for agent, key in self.registry.keys.items()}
            self.state = self.algorithm.register_public_keys(self.state, keys)
        self.state, tasks = self.algorithm.ask(self.state, phase, server_round, present, rng)
        options, digest = canonical_json(self.algorithm.options()), self.recorder.space.digest
        self.sent = []
        seen: dict[int, FlowerArray] = {}
        for agent in sorted(tasks, key=natural_key):
            own_name = self.registry.own_names.get(agent, agent)
            envelope = wire.Envelope(self.study, own_name, digest, self.algorithm.name, options)
            content = to_records(wire.encode_task(tasks[agent], envelope), seen)
            floats = count_floats(tasks[agent].arrays)
            self.recorder.count(tasks=1, bytes_down=count_bytes(content), floats_down=floats)
            self.sent.append(SentTask(agent, tasks[agent], envelope, content))
        self._sent_to = {sent.agent: sent for sent in self.sent}
        self.busy = self.busy or bool(tasks)
        if not tasks:
            self.past[phase, server_round] = False
        return tasks

    def _read(self, sent: SentTask, server_round: int, answer: Reply) -> Report | None:
        """Return an agent's report; None, counted and logged once, if there is none to trust."""
        replayed = self.journal is None and self.reopened is not None
        self.recorder.count(bytes_up=answer.num_bytes)
        if answer.packed is None and not answer.refused:
            if not replayed:
                log(WARNING, "Round %d, agent %s: %s", server_round, sent.agent, answer.reason)
            self.recorder.count_unused("failures", answer.word)
            return None
        found = self.checked.get(sent.agent) or self._check(sent, answer)
        if isinstance(found, WireError):
            if not replayed:
                log(WARNING, "Round %d, agent %s: refused: %s", server_round, sent.agent, found)
            self.recorder.count_unused("refused", found.reason)
            return None
        report, disclosure = found
        floats = count_floats(report.arrays)
        self.recorder.count(replies=1, failed_trials=report.num_failed, floats_up=floats)
        self.recorder.disclose(sent.agent, server_round, disclosure)
        if isinstance(made := report.values.get(NUM_EVALUATIONS), int):
            self.recorder.evaluations[sent.agent] = made
        return report

    def _check(self, sent: SentTask, answer: Reply) -> Checked | WireError:
        try:
            if answer.packed is None:
                raise WireError(answer.reason, answer.word)
            schema, dimension = (
                self.algorithm.report_schema(self.recorder.space),
                self.recorder.space.dimension,
            )
            found = wire.decode_report(answer.packed, sent.task, sent.envelope, schema, dimension)
            self.algorithm.check_report(sent.task, found[0])
            return found
        except WireError as error:
            return error.with_traceback(None)

    def _write(self, event: Event) -> None:
        if self.journal is not None:
            self.journal.write([event])


def first_event(study: str, federation: Federation) -> Event:
    """Return the journal's entry for the roll-call: who takes part from the beginning."""
    values = {
        "study": study,
        "space": federation.space.to_json(),
        "agents": list(federation.agents),
        "roles": dict(federation.roles),
    }
    return Event("roll", values=values)


def from_first_event(event: Event) -> tuple[str, Federation]:
    """Return the study's id and federation."""
    values = event.values
    space = SearchSpace.from_json(str(values["space"]))
    agents = tuple(cast(list[str], values["agents"]))
    return str(values["study"]), Federation(space, agents, _texts(values["roles"]))


def _texts(value: object) -> dict[str, str]:
    return {str(k): str(v) for k, v in cast(Mapping[str, object], value).items()}
