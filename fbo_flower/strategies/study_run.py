"""`StudyRun`: the state of a running study, and the steps that change it.

Each step depends only on the state, on the replies and on the results of secret draws. So an interrupted run
is restored by repeating the steps with the replies and results in the journal; no message is sent for that.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from flwr.app import Array as FlowerArray
from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.definition import results_of, returned_state, tasks_of
from fbo_flower.algorithms.options import answers_in_part, canonical_json
from fbo_flower.algorithms.records import AnyArray, Phase, Report, ServerResults, Task, natural_key
from fbo_flower.errors import HookError, JournalError
from fbo_flower.numerics.discrete_noise import Uniform, uniform_from
from fbo_flower.numerics.seeding import generator
from fbo_flower.storage import Event, StudyJournal
from fbo_flower.strategies.exchange import Clocked, SentAt
from fbo_flower.strategies.recorder import Recorder, RoundProgress, count_floats, plain_progress
from fbo_flower.strategies.registration import AgentRegistry
from fbo_flower.strategies.replies import (
    NO_REPLY,
    CurvePool,
    Reply,
    ReportReader,
    SentTask,
    answerable,
    from_event,
    tasks_digest,
    to_event,
)
from fbo_flower.wire.flower_records import count_bytes, to_records

_MESSAGE_TYPES = {
    Phase.TRAIN: MessageType.TRAIN,
    Phase.EVALUATE: MessageType.EVALUATE,
    Phase.REVEAL: MessageType.EVALUATE,
    Phase.FINISH: MessageType.TRAIN,
}


@dataclass
class StudyRun:
    """A running study.

    Parameters
    ----------
    algorithm, seed : of the study
    study : id of the study
    registry : the agents and their nodes
    recorder : collects the rows of the study's tables
    state : the algorithm's server state
    journal : stores every step; None: no step is stored
    seeded : whether secret draws come from the seed, so that the study can be repeated, and not from the
        operating system
    repeatable : whether any secret draw came from the seed; then noise protects nobody who knows the seed
    sent : agent -> its task in the open half-round
    replies : agent -> its reply in the open half-round, in the order in which they arrived
    had_tasks : whether any agent got a task in this round
    unanswered : agent and phase -> the last task that was not answered with a valid report, the round in
        which it was made, and the number of answers then
    closed : half-round that has ended -> whether it had tasks
    interrupted : the half-round in which the run was interrupted; None: it was between two
    open_round : number of the open round; 0: no round is open
    seconds_before : duration of the rounds before the run was resumed
    clocked : whether the clock is simulated, so that a resumed run goes on at the time of its journal
    now : when a clocked run did its last step
    before : the tasks that a clocked run has sent in earlier processes, in order
    asynchronous : whether agents do not wait for each other: `sent` then holds the tasks under way
    window, num_told : number of answers that close the open round of an asynchronous run, and how many came;
        those beyond the window count for the next one
    resting : agents without a valid answer in the open round of an asynchronous run: they wait for the next
    num_asked : how often an asynchronous run has made tasks
    num_answers : how many answers it has had
    num_rounds : as requested; None: until the algorithm is finished, or the agents have made all evaluations
    max_staleness : rounds that may have passed between a task and its answer in an asynchronous run; of the
        report of an older one the algorithm gets the numbers of trials only. None: any number
    pool : the medians of learning curves that agents share; None: they are not pooled
    """

    algorithm: Algorithm[Any]
    seed: int
    study: str
    registry: AgentRegistry
    recorder: Recorder
    state: Any
    journal: StudyJournal | None = None
    seeded: bool = True
    repeatable: bool = False
    sent: dict[str, SentTask] = field(default_factory=dict)
    replies: dict[str, Reply] = field(default_factory=dict)
    had_tasks: bool = False
    unanswered: dict[tuple[str, Phase], tuple[Task, int, int]] = field(default_factory=dict)
    closed: dict[tuple[Phase, int], bool] = field(default_factory=dict)
    interrupted: tuple[Phase, int] | None = None
    open_round: int = 0
    seconds_before: float = 0.0
    clocked: bool = False
    asynchronous: bool = False
    window: int = 0
    num_told: int = 0
    resting: set[str] = field(default_factory=set)
    num_asked: int = 0
    num_answers: int = 0
    num_rounds: int | None = None
    max_staleness: int | None = None
    pool: CurvePool | None = None
    now: float = 0.0
    before: list[SentAt] = field(default_factory=list)

    def results(self) -> ServerResults | None:
        """Return the server's own results; with noise or samples drawn in secret, also where from."""
        results = results_of(self.algorithm, self.state)
        if results is None or not self.algorithm.inner.draws_in_secret:
            return results
        source = "seed" if self.repeatable else "system"
        privacy = {"noise_from": source, **results.privacy}  # the algorithm knows if agents add the noise
        return replace(results, privacy=privacy)

    # -- steps ---------------------------------------------------------------------------------

    def begin_round(self, server_round: int, window: int = 0) -> None:
        """Start to count messages and bytes, unless the run was interrupted in this round.

        Parameters
        ----------
        window : number of answers that close the round; 0 in a synchronous run
        """
        if self.open_round == server_round:
            return
        self.recorder.open_round()
        self.open_round, self.had_tasks = server_round, False
        surplus = max(0, self.num_told - self.window)  # answers that came with the last one of a window
        self.window, self.num_told, self.resting = window, surplus, set()
        values: dict[str, object] = {"window": window} if window else {}
        values |= {"num_rounds": self.num_rounds} if self.num_rounds else {}
        self._write(Event("open", server_round, values=values | self._note_time()))

    def ask(self, phase: Phase, server_round: int, present: Sequence[str]) -> list[str]:
        """Make the tasks of a half-round, and return the agents that got one.

        The tasks' checksum is in the journal before any is sent. The results of secret draws are in the same
        entry, so a draw is either recorded or nobody saw it.
        """
        uniform: Uniform = secrets.randbelow
        if self.seeded:
            uniform = uniform_from(generator(self.seed, "server", "secret", str(phase), server_round))
        draws = self.algorithm.secret_draws(self.state, phase, server_round, present, uniform)
        self._apply_draws(draws, self.seeded)
        tasks = self._make_tasks(phase, server_round, present)
        times = self._note_time()
        for agent in tasks:
            self.sent[agent].sent_at = self.now
        if self.journal is not None:
            values: dict[str, object] = {"present": list(present), "tasks": tasks_digest(tasks)}
            values |= {"seeded": self.seeded} if draws else {}
            values |= {"asked": sorted(tasks)} if tasks.keys() != set(present) else {}
            values |= {"num_trials": self.registry.num_trials} if self.registry.num_trials else {}
            values |= times
            self._write(Event("ask", server_round, phase, arrays=draws, values=values))
        return sorted(tasks, key=natural_key)

    def waiting(self) -> list[str]:
        """Return the agents that have a node, and have not replied to their task."""
        agents = self.registry.agents
        return [a for a in self.sent if a not in self.replies and agents[a].node is not None]

    def messages(
        self, agents: Iterable[str], phase: Phase, server_round: int, suffix: str
    ) -> Iterator[Message]:
        """Yield the messages with the tasks of agents."""
        kind = _MESSAGE_TYPES[phase] + suffix
        for agent, content in zip(agents, self._contents(agents), strict=True):
            node = self.registry.agents[agent].node
            assert node is not None, "it has connected"
            yield Message(content, node, kind, group_id=str(server_round))

    def _contents(self, agents: Iterable[str]) -> Iterator[RecordDict]:
        """Encode the tasks of agents, and count their bytes once."""
        converted: dict[int, FlowerArray] = {}
        for sent in map(self.sent.__getitem__, agents):
            packed = wire.encode_task(sent.task, sent.envelope)
            if self.pool is not None and self.registry.agents[sent.agent].registration.curves:
                packed = self.pool.attach(packed, sent.task)
            content = to_records(packed, converted)
            if not sent.counted:
                self.recorder.count(bytes_down=count_bytes(content))
                sent.counted = True
            yield content

    def on_replies(self, phase: Phase, server_round: int, replies: Mapping[str, Reply]) -> None:
        """Write new replies to the journal, then check them, while other agents still work."""
        times = self._note_time()
        if self.journal is not None:
            events = [to_event(reply, agent, phase, server_round) for agent, reply in replies.items()]
            self.journal.write([replace(event, values={**event.values, **times}) for event in events])
        for agent, reply in replies.items():
            sent, self.replies[agent] = self.sent[agent], reply
            sent.checked = None if reply.packed is None else self._reader.check(sent, reply)

    def tell(self, phase: Phase, server_round: int, missing: Reply) -> None:
        """Give the valid reports to the algorithm, and close the half-round.

        Parameters
        ----------
        missing : stands for every reply that did not arrive
        """
        goes_on = self._goes_on(phase)
        replies, self.replies = self.replies, {}
        closes = [self.sent.pop(agent) for agent in (replies if goes_on else list(self.sent))]
        self.num_told += len(closes) if goes_on else 0
        limit = self.max_staleness if self.asynchronous else None
        replayed = self.journal is None and self.interrupted is not None
        reports: dict[str, Report] = {}
        for sent in closes:
            reply = replies.get(sent.agent)
            report = self._reader.read(sent, server_round, reply or missing, quiet=replayed)
            silent = reply is None or reply.word == NO_REPLY.word
            self.registry.agents[sent.agent].note_silence(server_round, silent)
            if report is None:
                self.resting.add(sent.agent)
                continue
            windows = server_round - sent.made_in
            used = not sent.late and (limit is None or windows <= limit)
            if goes_on:
                answers = self.num_answers - sent.made_after + len(reports)
                self.recorder.note_reply(sent.agent, server_round, report.trial, windows, answers, used)
            agent = self.registry.agents[sent.agent]
            agent.trials = max(agent.trials, report.trial + report.num_trials)
            agent.answered = server_round
            reports[sent.agent] = report if used else replace(report, arrays={}, values={})
            self.unanswered.pop((sent.agent, phase), None)
        self.num_answers += len(reports) if goes_on else 0
        state = self.algorithm.tell(self.state, phase, reports)
        self.state = returned_state(self.algorithm, "tell", self.state, state)
        self.closed[phase, server_round] = True
        self.interrupted = None
        values = {"missing": missing.reason, **self._note_time()}
        self._write(Event("tell", server_round, phase, values=values))

    def end_round(self, server_round: int, seconds: float | None = None) -> RoundProgress:
        """Close the round, write it to the journal, and return its numbers."""
        progress = self.recorder.close_round(server_round, seconds)
        registry = self.registry
        progress = replace(
            progress,
            num_rounds=self.num_rounds,
            num_trials=registry.num_trials,
            trials=registry.fewest_trials,
        )
        self.open_round = 0
        values = {"seconds": progress.seconds, "progress": plain_progress(progress)}
        self._write(Event("round", server_round, values=values))
        return progress

    def note_end(self) -> None:
        """Write to the journal that the study has ended."""
        self._write(Event("end"))

    def _goes_on(self, phase: Phase) -> bool:
        """Whether tasks of a half-round stay under way when others of it are answered."""
        return self.asynchronous and phase is Phase.TRAIN

    # -- journal and resume ----------------------------------------------------------------------

    def write_agents(self) -> None:
        """Write the agents to the journal."""
        self._write(Event("agents", values=self.registry.for_journal()))

    def note_aims(self, aims: Aims) -> None:
        """Note the objectives and limits that the agents named, which the study shows as measured."""
        self.registry.aims = self.recorder.aims = aims

    def replay(self, events: Iterable[Event]) -> None:
        """Repeat the steps in a journal.

        Raises
        ------
        JournalError
            If the algorithm now makes other tasks than the journal holds.
        """
        journal, self.journal = self.journal, None
        for event in events:
            phase = Phase(event.phase) if event.phase else Phase.TRAIN
            if event.kind == "agents":
                self.registry.restore(event.values)
                self.note_aims(self.registry.aims or NUMBER)
            elif event.kind == "open":
                self.begin_round(event.round, int(cast(int, event.values.get("window", 0))))
                self._replay_time(event)
                if self.clocked:
                    self.recorder.round_started = self.now
            elif event.kind == "ask":
                self._apply_draws(event.arrays, event.values.get("seeded") is True)
                self.registry.num_trials = cast(int | None, event.values.get("num_trials"))
                tasks = self._make_tasks(phase, event.round, cast(list[str], event.values["present"]))
                self._replay_time(event)
                for sent in [self.sent[agent] for agent in tasks] if self.clocked else []:
                    sent.sent_at, task = self.now, sent.task
                    self.before.append(SentAt(self.now, sent.envelope.agent, task.trial, task.num_trials))
                if tasks_digest(tasks) != event.values["tasks"]:
                    raise JournalError(
                        f"resume: expected the same tasks in round {event.round} as in the journal, got "
                        "others; the journal was written by another version of the algorithm: resume with "
                        "that version, or start a new study"
                    )
                deque(self._contents(tasks), maxlen=0)
                self.interrupted = (phase, event.round) if tasks else None
            elif event.kind == "reply":
                self._replay_time(event)
                self.replies[event.agent] = from_event(event)
            elif event.kind == "tell":
                self.tell(phase, event.round, replace(NO_REPLY, reason=str(event.values["missing"])))
                self._replay_time(event)  # after `tell`, which notes the time of this process
            elif event.kind == "round":
                self.end_round(event.round, float(cast(float, event.values["seconds"])))
        self.journal = journal

    def restore_clock(self, grid: Grid) -> None:
        """Set a simulated clock to where it was when the run was interrupted."""
        if self.clocked and isinstance(grid, Clocked) and self.before:
            grid.restore(self.now, self.before)

    def sent_before(self, agents: Iterable[str]) -> dict[str, float]:
        """Return when agents' tasks were sent by a simulated clock, by agent; empty without one."""
        return {agent: self.sent[agent].sent_at for agent in agents} if self.clocked else {}

    def _note_time(self) -> dict[str, object]:
        """Note the time of a step, and return it for the journal."""
        if not self.clocked:
            return {}
        self.now = self.recorder.clock()
        return {"time": self.now}

    def _replay_time(self, event: Event) -> None:
        """Note the time of a step in the journal, if the entry holds it."""
        if "time" in event.values:
            self.now = float(cast(float, event.values["time"]))

    # -- one half-round -----------------------------------------------------------------------

    def _apply_draws(self, draws: Mapping[str, AnyArray], seeded: bool) -> None:
        self.repeatable = self.repeatable or (seeded and bool(draws))
        self.state = self.algorithm.with_draws(self.state, draws)

    def _make_tasks(self, phase: Phase, server_round: int, present: Sequence[str]) -> Mapping[str, Task]:
        goes_on = self._goes_on(phase)
        keys = (server_round, self.num_asked) if goes_on else (server_round,)
        rng = generator(self.seed, "server", "ask", str(phase), *keys)
        if self.algorithm.sums_securely:
            said = {name: agent.registration for name, agent in self.registry.agents.items()}
            cards = {name: bytes.fromhex(one.key) for name, one in said.items() if one.key}
            self.state = self.algorithm.register_cards(self.state, self.study, cards)
        if self.asynchronous and self.algorithm.sees_tasks_under_way:
            under_way = {agent: sent.task for agent, sent in self.sent.items()}
            self.state = self.algorithm.with_under_way(self.state, under_way)
        self.state, tasks = tasks_of(self.algorithm, self.state, phase, server_round, present, rng)
        parts = {agent: self._within_budget(agent, task) for agent, task in tasks.items()}
        tasks = {agent: task for agent, task in parts.items() if task is not None}
        options, digest = canonical_json(self.algorithm.options()), self.recorder.space.digest
        self.num_asked += goes_on
        if not goes_on:
            self.sent, self.replies = {}, {}
        for agent in sorted(tasks, key=natural_key):
            said_by = self.registry.agents[agent].registration
            envelope = wire.Envelope(self.study, said_by.agent, digest, self.algorithm.name, options)
            task = tasks[agent]
            if task.num_trials and task.trial < (ended := self.registry.agents[agent].trials):
                raise HookError(
                    f"{self.algorithm.name}: ask: expected a task for trial {ended} or "
                    f"later of agent {agent}, which has reported those before, got trial {task.trial}; count "
                    "trials in `tell`: progress=state.progress.advance(reports)"
                )
            earlier, made_in, made_after = self.unanswered.get((agent, phase), (task, 0, 0))
            task = answerable(self.algorithm, earlier, task)
            late = task is not tasks[agent]
            if not late:
                made_in, made_after = server_round, self.num_answers
            self.unanswered[agent, phase] = task, made_in, made_after
            self.recorder.count(tasks=1, floats_down=count_floats(task.arrays))
            self.sent[agent] = SentTask(agent, task, envelope, late, made_in, made_after)
        self.had_tasks = self.had_tasks or bool(tasks)
        if not tasks and not goes_on:
            self.closed[phase, server_round] = False
        return tasks

    def _within_budget(self, agent: str, task: Task) -> Task | None:
        """Return the part of a task for which the study has evaluations left; None if there is none."""
        most = self.registry.num_trials
        if most is None or not task.num_trials or task.end <= most:
            return task
        if task.trial < most and answers_in_part(self.algorithm.inner):
            return replace(task, num_trials=most - task.trial)
        self.registry.agents[agent].spent = True
        return None

    @cached_property
    def _reader(self) -> ReportReader:
        return ReportReader(self.algorithm, self.registry, self.recorder, self.pool)

    def _write(self, event: Event) -> None:
        if self.journal is not None:
            self.journal.write([event])
