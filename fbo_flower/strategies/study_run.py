"""`StudyRun`: the state of a running study, and the steps that change it.

Each step depends only on the state, on the replies and on the results of secret draws, and is written to the
journal. So `replay` restores an interrupted run by repeating the steps in its journal; no message is sent for
that. `rounds.Rounds` takes the steps while it exchanges messages with the agents.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from logging import DEBUG, INFO, WARNING
from typing import Any, cast

from flwr.app import Array as FlowerArray
from flwr.app import Message, RecordDict
from flwr.common.logger import log

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.aims import NUMBER
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.protocol import answers_in_part
from fbo_flower.algorithms.records import (
    AnyArray,
    Federation,
    Phase,
    Report,
    ServerResults,
    Task,
)
from fbo_flower.algorithms.server import Server, informed
from fbo_flower.errors import (
    HookError,
    JournalError,
    WireError,
    WrongTypeError,
)
from fbo_flower.numerics.discrete_noise import Uniform, uniform_from
from fbo_flower.numerics.seeding import generator
from fbo_flower.storage import Event, StudyJournal
from fbo_flower.strategies.exchange import SentAt
from fbo_flower.strategies.recorder import Recorder, RoundProgress, count_floats
from fbo_flower.strategies.registration import AgentRegistry
from fbo_flower.strategies.replies import (
    FAILED,
    NO_REPLY,
    CheckedReply,
    CurvePool,
    Reply,
    SentTask,
    answerable,
    from_event,
    read_reply,
    tasks_digest,
    to_event,
)
from fbo_flower.strategies.settings import ASYNC, StrategySettings
from fbo_flower.wire.flower_records import count_bytes, to_records


@dataclass
class StudyRun:
    """A running study.

    Parameters
    ----------
    server : the algorithm with its state, and with secure sums if its options say so
    settings, seed : of the study
    study : id of the study
    registry : the agents and their nodes
    recorder : collects the rows of the study's tables
    journal : stores every step; None: no step is stored
    clocked : whether the clock is simulated, so that a resumed run goes on at the time of its journal
    num_rounds : as requested; None: until the algorithm is finished, or the agents have made all evaluations
    repeatable : whether any secret draw came from the seed; then noise protects nobody who knows the seed
    present : the agents that were there when tasks were made last
    sent : agent -> its task in the open half-round; in an asynchronous run, its task under way
    unsent : agents whose tasks this process has not sent yet, in order
    replies : agent -> its reply in the open half-round, in the order in which they arrived
    had_tasks : whether any agent got a task in this round
    unanswered : agent and phase -> the last task that was not answered with a valid report
    open_round : number of the open round; 0: no round is open
    open_phase : of the open half-round, in which agents wait for each other; None: none is open
    idle_end : number of the final exchange for which there was no task; 0: there was none
    num_closed : number of half-rounds of the open round, or else of final exchanges, that had their end
    seconds_before : duration of the rounds before the run was resumed
    now : when a clocked run did its last step
    before : the tasks that a clocked run has sent in earlier processes, in order
    window, num_told : number of answers that close the open round of an asynchronous run, and how many came;
        those beyond the window count for the next one
    resting : agents without a valid answer in the open round of an asynchronous run: they wait for the next
    num_asked : how often an asynchronous run has made tasks
    num_answers : how many answers it has had
    replaying : whether the steps of a journal are repeated, so that the log has their lines already
    """

    server: Server
    settings: StrategySettings
    seed: int
    study: str
    registry: AgentRegistry
    recorder: Recorder
    journal: StudyJournal | None = None
    clocked: bool = False
    num_rounds: int | None = None
    repeatable: bool = False
    present: Sequence[str] = ()
    sent: dict[str, SentTask] = field(default_factory=dict)
    unsent: dict[str, None] = field(default_factory=dict)
    replies: dict[str, Reply] = field(default_factory=dict)
    had_tasks: bool = False
    unanswered: dict[tuple[str, Phase], SentTask] = field(default_factory=dict)
    open_round: int = 0
    open_phase: Phase | None = None
    num_closed: int = 0
    idle_end: int = 0
    seconds_before: float = 0.0
    now: float = 0.0
    before: list[SentAt] = field(default_factory=list)
    window: int = 0
    num_told: int = 0
    resting: set[str] = field(default_factory=set)
    num_asked: int = 0
    num_answers: int = 0
    replaying: bool = False

    def __post_init__(self) -> None:
        self.pool = CurvePool() if self.settings.pool_curves else None  # what agents share of their curves
        self.algorithm = self.server.algorithm
        self.options = canonical_json(self.algorithm.options())
        self.schema = self.server.report_schema()
        self.draws_in_secret = type(self.algorithm).secret_draws is not Algorithm.secret_draws
        self.asynchronous = self.settings.mode == ASYNC  # agents do not wait for each other

    def results(self) -> ServerResults | None:
        """Return the server's own results; with noise or samples drawn in secret, also where from."""
        results = self.server.results()
        if results is None or not self.draws_in_secret:
            return results
        source = "seed" if self.repeatable else "system"
        privacy = {"noise_from": source, **results.privacy}  # the algorithm knows if agents add the noise
        return replace(results, privacy=privacy)

    # -- steps -----------------------------------------------------------------------------------

    def note_agents(self) -> None:
        """Note what agents registered: objectives and limits, which the study shows as measured, and keys."""
        self.registry.aims = self.recorder.aims = self.registry.aims or NUMBER
        if self.algorithm.secure_sums:
            registered = self.registry.registrations.items()
            self.server.register_cards(
                self.study, {name: bytes.fromhex(one.key) for name, one in registered if one.key}
            )
        self.write(Event("agents", values=self.registry.for_journal()))

    def begin_round(self, server_round: int, window: int = 0) -> None:
        """Start to count messages and bytes.

        Parameters
        ----------
        window : number of answers that close the round; 0 in a synchronous run
        """
        self.recorder.open_round()
        self.open_round, self.had_tasks, self.num_closed = server_round, False, 0
        surplus = max(0, self.num_told - self.window)  # answers that came with the last one of a window
        self.window, self.num_told, self.resting = window, surplus, set()
        values: dict[str, object] = {"window": window} if window else {}
        values |= {"num_rounds": self.num_rounds} if self.num_rounds else {}
        self.write(Event("open", server_round, values=values))

    def ask(self, phase: Phase, server_round: int, present: Sequence[str]) -> list[str]:
        """Make the tasks of a half-round, and return the agents that got one.

        The tasks' checksum is in the journal before any is sent. The results of secret draws are in the same
        entry, so a draw is either recorded or nobody saw it.
        """
        seeded = self.settings.seed is not None
        draws: Mapping[str, AnyArray] = {}
        if self.draws_in_secret:
            uniform: Uniform = secrets.randbelow
            if seeded:
                uniform = uniform_from(generator(self.seed, "server", "secret", str(phase), server_round))
            draws = self.algorithm.secret_draws(self.server.state, phase, server_round, present, uniform)
        tasks = self._make_tasks(phase, server_round, present, draws, seeded)
        if self.journal is not None:
            values: dict[str, object] = {"present": list(present), "tasks": tasks_digest(tasks)}
            values |= {"seeded": seeded} if draws else {}
            values |= {"asked": sorted(tasks)} if tasks.keys() != set(present) else {}
            values |= {"num_trials": self.registry.num_trials} if self.registry.num_trials else {}
            self.write(Event("ask", server_round, phase, arrays=draws, values=values))
        for agent in tasks if self.clocked else ():
            self.sent[agent].sent_at = self.recorder.clock()
        return list(tasks)

    def encode(self, sent: SentTask, converted: dict[int, FlowerArray]) -> RecordDict:
        """Return the content of a task's message, whose bytes count once."""
        packed = wire.encode_task(sent.task, sent.envelope)
        if self.pool is not None and self.registry.agents[sent.agent].registration.curves:
            packed = self.pool.attach(packed, sent.task)
        content = to_records(packed, converted)
        if not sent.counted:
            self.recorder.count(bytes_down=count_bytes(content))
            sent.counted = True
        return content

    def on_replies(self, phase: Phase, server_round: int, answers: Mapping[str, Message | None]) -> None:
        """Write new replies to the journal, then check them, while other agents still work.

        What is given up counts at once only where nobody waits for the others, else when the half-round ends.
        """
        replies = dict[str, Reply]()
        for agent, message in answers.items():
            if message is not None:
                replies[agent] = read_reply(message)
            elif self.asynchronous and phase is Phase.TRAIN:
                replies[agent] = NO_REPLY
        if self.journal is not None and replies:
            self.write(*(to_event(reply, agent, phase, server_round) for agent, reply in replies.items()))
        for agent, reply in replies.items():
            sent, self.replies[agent] = self.sent[agent], reply
            sent.checked = None if reply.packed is None else self._check(sent, reply)

    def close(self, phase: Phase, server_round: int, missing: Reply = NO_REPLY) -> None:
        """Give the replies of a half-round to the algorithm.

        Parameters
        ----------
        missing : stands for every reply that did not arrive
        """
        goes_on = self.asynchronous and phase is Phase.TRAIN
        replies, self.replies = self.replies, {}
        closes = list(map(self.sent.pop, replies if goes_on else list(self.sent)))
        self.num_told += len(closes) if goes_on else 0
        limit = self.settings.max_staleness
        reports: dict[str, Report] = {}
        for sent in closes:
            agent, reply = self.registry.agents[sent.agent], replies.get(sent.agent)
            report = self._read(sent, server_round, reply or missing)
            self.unsent.pop(sent.agent, None)
            agent.note_silence(server_round, reply is None or reply.kind == NO_REPLY.kind)
            if report is None:
                self.resting.add(sent.agent)
                continue
            windows = server_round - sent.made_in
            used = not sent.late and (limit is None or windows <= limit)
            if goes_on:
                answers = self.num_answers - sent.made_after + len(reports)
                self.recorder.note_reply(sent.agent, server_round, report.trial, windows, answers, used)
            agent.trials = max(agent.trials, report.trial + report.num_trials)
            agent.answered = server_round
            reports[sent.agent] = report if used else replace(report, arrays={}, values={})
            self.unanswered.pop((sent.agent, phase), None)
        self.num_answers += len(reports) if goes_on else 0
        self.server.tell(phase, reports)
        self.open_phase, self.num_closed = None, self.num_closed + 1
        self.write(Event("tell", server_round, phase, values={"missing": missing.reason}))

    def end_round(self, server_round: int, seconds: float | None = None) -> RoundProgress:
        """Close the round, write it to the journal, and return its numbers."""
        registry = self.registry
        progress = replace(
            self.recorder.close_round(server_round, seconds),
            num_rounds=self.num_rounds,
            num_trials=registry.num_trials,
            trials=registry.fewest_trials,
        )
        self.open_round = self.num_closed = 0
        self.write(Event("round", server_round, values={"seconds": progress.seconds}))
        return progress

    # -- journal and resume ----------------------------------------------------------------------

    def write(self, *events: Event) -> None:
        """Write events to the journal, if there is one; those of a clocked run with their time."""
        if self.clocked and not self.replaying:
            self.now = self.recorder.clock()
            events = tuple(replace(event, values={**event.values, "time": self.now}) for event in events)
        if self.journal is not None:
            self.journal.write(events)

    def replay(self, events: Iterable[Event]) -> None:
        """Repeat the steps in a journal.

        Raises
        ------
        JournalError
            If the algorithm now makes other tasks than the journal holds.
        """
        journal, self.journal, self.replaying = self.journal, None, True
        for event in events:
            phase = Phase(event.phase) if event.phase else Phase.TRAIN
            self.now = float(cast(float, event.values.get("time", self.now)))
            if event.kind == "agents":
                self.registry.restore(event.values)
                self.note_agents()
            elif event.kind == "open":
                number = event.values.get("num_rounds")
                self.num_rounds = number if isinstance(number, int) else self.num_rounds
                self.begin_round(event.round, int(cast(int, event.values.get("window", 0))))
                if self.clocked:
                    self.recorder.round_started = self.now
            elif event.kind == "ask":
                self.registry.num_trials = cast(int | None, event.values.get("num_trials"))
                present, seeded = cast(list[str], event.values["present"]), event.values.get("seeded") is True
                tasks = self._make_tasks(phase, event.round, present, event.arrays, seeded)
                for sent in [self.sent[agent] for agent in tasks] if self.clocked else []:
                    sent.sent_at, task = self.now, sent.task
                    self.before.append(SentAt(self.now, sent.envelope.agent, task.trial, task.num_trials))
                if tasks_digest(tasks) != event.values["tasks"]:
                    raise JournalError(
                        f"resume: expected the same tasks in round {event.round} as in the journal, got "
                        "others; the journal was written by another version of the algorithm: resume with "
                        "that version, or start a new study"
                    )
                for agent in tasks:
                    self.encode(self.sent[agent], {})  # counts its bytes
            elif event.kind == "reply":
                self.replies[event.agent] = from_event(event)
            elif event.kind == "tell":
                self.close(phase, event.round, replace(NO_REPLY, reason=str(event.values["missing"])))
            elif event.kind == "round":
                seconds = float(cast(float, event.values["seconds"]))
                self.end_round(event.round, seconds)
                self.seconds_before += seconds
        self.journal, self.replaying = journal, False

    # -- one half-round -----------------------------------------------------------------------

    def _make_tasks(
        self,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        draws: Mapping[str, AnyArray],
        seeded: bool,
    ) -> Mapping[str, Task]:
        """Note the secret draws, and let the algorithm make the tasks of a half-round."""
        self.repeatable = self.repeatable or (seeded and bool(draws))
        goes_on, self.present = self.asynchronous and phase is Phase.TRAIN, present
        keys = (server_round, self.num_asked) if goes_on else (server_round,)
        rng = generator(self.seed, "server", "ask", str(phase), *keys)
        informing: dict[str, object] = {"drawn": draws} if self.draws_in_secret else {}
        if self.asynchronous:
            informing["under_way"] = {agent: sent.task for agent, sent in self.sent.items()}
        if informing:
            self.server.state = informed(self.server.state, **informing)
        asked = self.server.ask(phase, server_round, present, rng)
        tasks, floats = dict[str, Task](), 0.0
        most = self.registry.num_trials
        self.num_asked += goes_on
        if not goes_on:
            self.sent, self.unsent, self.replies = {}, {}, {}
        for agent in filter(asked.__contains__, present):
            task, known = asked[agent], self.registry.agents[agent]
            if most is not None and task.num_trials and task.end > most:  # the study has no more left
                if task.trial >= most or not answers_in_part(self.algorithm):
                    known.spent = True
                    continue
                task = replace(task, num_trials=most - task.trial)
            if task.num_trials and task.trial < known.trials:
                raise HookError(
                    f"{self.algorithm.name}: ask: expected a task for trial {known.trials} or "
                    f"later of agent {agent}, which has reported those before, got trial {task.trial}; count "
                    "trials in `tell`: progress=state.progress.advance(reports)"
                )
            own_name, tasks[agent] = known.registration.agent, task
            envelope = wire.Envelope(
                self.study, own_name, self.recorder.space.digest, self.algorithm.name, self.options
            )
            sent = SentTask(agent, task, envelope, False, server_round, self.num_answers)
            if (earlier := self.unanswered.get((agent, phase))) is not None:
                task = answerable(self.algorithm, earlier.task, task)
                if task is not tasks[agent]:
                    sent = SentTask(agent, task, envelope, True, earlier.made_in, earlier.made_after)
            floats += count_floats(task.arrays)
            self.sent[agent] = self.unanswered[agent, phase] = sent
            self.unsent[agent] = None
        self.recorder.count(tasks=len(tasks), floats_down=floats)
        self.had_tasks = self.had_tasks or bool(tasks)
        if not goes_on and tasks:
            self.open_phase = phase
        elif phase is Phase.FINISH:
            self.idle_end = server_round
        elif not goes_on:
            self.num_closed += 1
        return tasks

    # -- replies: here alone it is asked whether one is sound --------------------------------------

    def _check(self, sent: SentTask, reply: Reply) -> CheckedReply | WireError:
        """Return the report in a reply and what it discloses, or the error in it; nothing is recorded."""
        try:
            if reply.packed is None:
                raise WireError(reply.reason, reply.kind)
            task, number = sent.task, cast(Any, reply.packed.config.get("num-trials"))
            may_be_part = isinstance(number, int) and answers_in_part(self.algorithm)
            if may_be_part and 0 < number < task.num_trials:  # its operator allows only some
                task = replace(task, num_trials=number)
            dimension, aims = self.recorder.space.dimension, self.recorder.aims
            checked = wire.decode_report(reply.packed, task, sent.envelope, self.schema, dimension, aims)
            self.server.check_report(task, checked[0])
            return checked
        except WireError as error:
            return error.with_traceback(None)

    def _read(self, sent: SentTask, server_round: int, reply: Reply) -> Report | None:
        """Return an agent's valid report; None, counted and logged once, if there is none."""
        level = DEBUG if self.replaying else WARNING
        recorder, agent = self.recorder, self.registry.agents[sent.agent]
        if reply.packed is None and not reply.refused:
            later = bool(WrongTypeError.text_in(reply.reason))  # `_check_types` ends the study or logs it
            log(DEBUG if later else level, FAILED, server_round, sent.agent, reply.reason)
            recorder.count_unused("failures", reply.kind, reply.num_bytes)
            return None
        checked = sent.checked or self._check(sent, reply)
        declines = isinstance(checked, WireError) and wire.declines(reply.packed, sent.envelope)
        if isinstance(checked, WireError) and not declines:
            log(level, "Round %d, agent %s: refused: %s", server_round, sent.agent, checked)
            recorder.count_unused("refused", checked.reason, reply.num_bytes)
            return None
        if declines or (reply.packed is not None and reply.packed.config.get("spent") is True):
            if not agent.spent and not self.replaying:
                text = "Agent %s has used up its budget of evaluations (max_trials), or ended its search"
                log(INFO, text, sent.agent)
            agent.spent = True
        if isinstance(checked, WireError):
            recorder.count(bytes_up=reply.num_bytes)
            return None
        report, disclosure = checked
        if self.pool is not None:
            self.pool.add(sent.agent, disclosure)
        recorder.record(sent.agent, server_round, report, disclosure, reply.num_bytes)
        return report


def server_of(algorithm: Algorithm[Any], federation: Federation, seed: int) -> Server:
    """Return the server's half of a study, with secure sums if the algorithm's options say so."""
    kind = Server
    if algorithm.secure_sums:
        from fbo_flower.secure.server import SecureServer  # needs cryptography

        kind = SecureServer
    return kind(algorithm, federation, generator(seed, "server", "init"))
