"""`StudyRun`: the state of a running study, the steps that change it, and the generator of its exchanges.

`StudyRun.exchanges` yields the messages of every half-round and is sent the replies. Our loop (`drive`) and
the four hooks of Flower's loop drive it, so both make the same trials. Each step depends only on the state,
on the replies and on the results of secret draws. So `replay` restores an interrupted run by repeating the
steps in the journal; no message is sent for that, and the generator goes on where the journal ends.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from logging import DEBUG, INFO, WARNING
from typing import Any, cast

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.protocol import answers_in_part
from fbo_flower.algorithms.records import (
    AnyArray,
    Federation,
    Phase,
    Report,
    ServerResults,
    Task,
    natural_key,
)
from fbo_flower.algorithms.server import Server, informed
from fbo_flower.errors import (
    ConfigError,
    HookError,
    JournalError,
    ObjectiveError,
    WireError,
    WrongTypeError,
    printable,
)
from fbo_flower.numerics.discrete_noise import Uniform, uniform_from
from fbo_flower.numerics.seeding import generator
from fbo_flower.storage import Event, StudyJournal
from fbo_flower.strategies.exchange import Clocked, Exchange, Exchanges, SentAt
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
from fbo_flower.strategies.settings import ASYNC, Notifier, StrategySettings, TuningResult, half_of
from fbo_flower.trackers.callback import StudyInfo
from fbo_flower.wire.flower_records import count_bytes, to_records

_MESSAGE_TYPES = {
    Phase.TRAIN: MessageType.TRAIN,
    Phase.EVALUATE: MessageType.EVALUATE,
    Phase.REVEAL: MessageType.EVALUATE,
    Phase.FINISH: MessageType.TRAIN,
}


_MAX_REGISTRATION_SECONDS = 30.0  # for nodes that connect during the study
_MAX_WAIT = 1.0  # seconds between two looks for agents that can work
_MAX_STALLED = 10  # rounds without an evaluation, although some are left
_MIN_FAILED = 3  # evaluations: if all of them failed, a study goes on no longer than this round
_MAX_FINAL = 10_000  # final exchanges of an algorithm whose `ask` does not end them
_LISTS = 16  # how often in a window all connected agents are listed


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
    grid : knows which nodes are connected; None: a journal is only read
    stop : ends the waits for agents that can work when it is set
    journal : stores every step; None: no step is stored
    result : gets the numbers of every half-round
    on_round : called after every round
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
    wrong_types : agent -> what its objective returned, and no number
    replaying : whether the steps of a journal are repeated, so that the log has their lines already
    """

    server: Server
    settings: StrategySettings
    seed: int
    study: str
    registry: AgentRegistry
    recorder: Recorder
    grid: Grid | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    journal: StudyJournal | None = None
    result: TuningResult = field(default_factory=TuningResult)
    on_round: Callable[[RoundProgress], None] = lambda progress: None
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
    wrong_types: dict[str, str] = field(default_factory=dict)
    replaying: bool = False

    def __post_init__(self) -> None:
        self.pool = CurvePool() if self.settings.pool_curves else None  # what agents share of their curves
        self.algorithm = self.server.algorithm
        self.schema = self.server.report_schema()
        self.asynchronous = self.settings.mode == ASYNC  # agents do not wait for each other
        self._logged: Any = None  # the algorithm's state of which the log has the progress

    def results(self) -> ServerResults | None:
        """Return the server's own results; with noise or samples drawn in secret, also where from."""
        results = self.server.results()
        if results is None or type(self.algorithm).secret_draws is Algorithm.secret_draws:
            return results
        source = "seed" if self.repeatable else "system"
        privacy = {"noise_from": source, **results.privacy}  # the algorithm knows if agents add the noise
        return replace(results, privacy=privacy)

    @cached_property
    def notifier(self) -> Notifier:
        """Tells the callbacks; it is made when the agents have registered."""
        aims = self.recorder.aims
        info = StudyInfo(
            self.study,
            self.recorder.label,
            self.algorithm.name,
            self.algorithm.options(),
            self.recorder.space,
            aims.minimize,
            self.num_rounds,
            len(self.recorder.rounds),
            {name: direction for name, direction in aims.objectives if name},
            self.registry.num_trials,
        )
        return Notifier(self.settings.callbacks, info, self.recorder)

    # -- exchanges -------------------------------------------------------------------------------

    def exchanges(self) -> Exchanges[None]:
        """Yield the exchanges of the rounds that are left, and then the final ones."""
        if self.clocked and isinstance(self.grid, Clocked) and self.before:
            self.grid.restore(self.now, self.before)  # where it was when the run was interrupted
        registry, rounds = self.registry, self.recorder.rounds
        last_work, idle_rounds, stalled = time.monotonic(), 0, 0
        finishing = self.open_phase is Phase.FINISH or bool(self.num_closed and not self.open_round)
        while self.open_round or not (finishing or len(rounds) == self.num_rounds or self.server.finished):
            if not self.open_round and (
                registry.all_spent or (idle_rounds and self._has_no_work(idle_rounds))
            ):
                log(INFO, "%s", registry.end_line(len(rounds)))
                break
            if registry.num_trials is not None and stalled >= _MAX_STALLED:
                log(WARNING, "%s", registry.stalled_line(stalled))
                break
            progress = yield from self.round()
            idle_rounds = 0 if self.had_tasks or self.asynchronous else idle_rounds + 1
            stalled = 0 if progress.evaluations else stalled + (self.had_tasks or self.asynchronous)
            if not idle_rounds:
                last_work = time.monotonic()
            elif self.num_rounds is None:
                self._wait_for_work(last_work, idle_rounds)
        if self.asynchronous and (num_working := len(self.sent) - len(self.unsent)):
            text = "%d agents still work on their last task; what they find stays in their journals"
            log(INFO, text, num_working)
        yield from self.final_exchanges()

    def round(self) -> Exchanges[RoundProgress]:
        """Yield the exchanges of the open round, or else of the next one; return its numbers."""
        server_round = len(self.recorder.rounds) + 1
        if not self.open_round:
            seconds = min(_MAX_REGISTRATION_SECONDS, self.settings.round_timeout)
            if (yield from self.registry.register_late(self._connected(), seconds)):
                self.write(Event("agents", values=self.registry.for_journal()))
            window = max(1, len(self._willing(server_round))) if self.asynchronous else 0
            self.begin_round(server_round, window)
        if self.asynchronous:
            yield from self._window(server_round)
        else:
            for phase in self.server.phases[self.num_closed :]:
                yield from self._half_round(phase, server_round)
        progress = self.end_round(server_round)
        log(WARNING if progress.failed_trials else INFO, "[round %s] %s", progress.so_far, progress)
        self.on_round(progress)
        self.notifier.round_ended()
        if self.recorder.totals["evaluations"] >= _MIN_FAILED and not self.algorithm.roles:
            self.recorder.check_evaluations()
        return progress

    def final_exchanges(self) -> Exchanges[None]:
        """Yield exchanges until the algorithm has no more tasks; each has a round number of its own."""
        server_round = len(self.recorder.rounds)
        for number in range(self.num_closed + 1, _MAX_FINAL + 1):
            if not (yield from self._half_round(Phase.FINISH, server_round + number)):
                return

    def _half_round(self, phase: Phase, server_round: int) -> Exchanges[bool]:
        """Yield the exchange of a half-round, if it has tasks; return whether it has."""
        if self.open_phase is None and not (phase is Phase.FINISH and self.idle_end == server_round):
            self.ask(phase, server_round, self.choose_agents(phase, server_round))
        if self.open_phase is None:
            return False
        quorum, unsent = math.ceil(self.settings.quorum * len(self.sent)), set(self.unsent)
        exchange = self._exchange(phase, server_round)
        missing = unsent - self.unsent.keys() - self.replies.keys()
        answers = yield exchange
        while True:
            self.on_replies(phase, server_round, answers)
            missing -= answers.keys()
            if not missing or len(self.replies) >= quorum:
                break
            answers = yield replace(exchange, messages=(), goes_on=True)
        self.close(phase, server_round)
        return True

    def _window(self, server_round: int) -> Exchanges[None]:
        """Exchange tasks and answers until an asynchronous round has its number of answers."""
        phase, waiting = Phase.TRAIN, set[str]()  # agents for which there was no task since the last answer
        if self.replies:  # the run was interrupted before they were told
            self.close(phase, server_round)
        idle, listed_until = list[str](), self.num_told  # to list all takes as long as there are many
        while self.num_told < self.window:
            if self.num_told >= listed_until:
                idle = self._willing(server_round)
                listed_until = self.num_told + math.ceil(self.window / _LISTS)
            idle = [agent for agent in idle if agent not in self.sent and agent not in self.resting]
            due = self.registry.due(idle, server_round) or ([] if self.sent else idle)
            if not waiting.issuperset(due) and not self.server.finished:
                waiting = set(due).difference(self.ask(phase, server_round, due))
            answers = yield self._exchange(phase, server_round, goes_on=True)
            if answers:
                waiting = set()
                self.on_replies(phase, server_round, answers)
                self.close(phase, server_round)
                idle = self._willing(server_round, sorted({*idle, *answers}, key=natural_key))
            elif len(self.sent) == len(self.unsent):
                return  # nobody works, and nobody may begin before the next window
            else:
                listed_until = self.num_told

    def _exchange(self, phase: Phase, server_round: int, goes_on: bool = False) -> Exchange[str]:
        """Return the exchange of the tasks that this process has not sent yet, and tell the callbacks.

        Tasks of agents without a node stay unsent. Messages are made while they are read.
        """
        registry, nodes = self.registry, dict[str, int]()
        times, trials = dict[str, float](), list[tuple[str, Task]]()
        for agent in [*self.unsent]:
            if (node := registry.nodes.get(agent)) is None:
                continue
            del self.unsent[agent]
            if agent in self.replies:
                continue
            nodes[agent] = node
            if self.clocked and goes_on:
                times[agent] = self.sent[agent].sent_at
            if registry.agents[agent].registration.disclosure.startswith("trials"):
                trials.append((agent, self.sent[agent].task))
        self.notifier.sent(trials)
        messages = self._messages(nodes, _MESSAGE_TYPES[phase] + self.settings.message_suffix, server_round)
        return Exchange(messages, self.settings.round_timeout, phase, goes_on, times)

    def _messages(
        self, nodes: Mapping[str, int], kind: str, server_round: int
    ) -> Iterator[tuple[str, Message]]:
        """Make the messages to agents while they are read."""
        converted: dict[int, FlowerArray] = {}
        for agent, node in nodes.items():
            content = self._encode(self.sent[agent], converted)
            yield agent, Message(content, node, kind, group_id=str(server_round))

    def _connected(self) -> list[int]:
        assert self.grid is not None, "a journal that is only read has no exchanges"
        return sorted(self.grid.get_node_ids())

    def _willing(self, server_round: int, agents: Sequence[str] | None = None) -> list[str]:
        """Return those of the agents, or else of the connected ones, that may be asked to evaluate."""
        agents = self.registry.present(self._connected()) if agents is None else agents
        return self.registry.willing(agents, Phase.TRAIN, server_round, self.seed)

    def choose_agents(self, phase: Phase, server_round: int) -> list[str]:
        """Return the agents of a round: all connected ones, or a fraction of them, drawn anew each round.

        Agents that have used up their budget, that do not want tasks in this round, or that still work on
        another one are left out. Agents that have not replied for some rounds rest, unless all agents do, or
        a quorum ends the rounds early.
        """
        registry, fraction = self.registry, self.settings.fraction
        present = registry.present(self._connected())
        if fraction < 1.0 and present:
            rng = generator(self.seed, "server", "cohort", server_round)
            size = max(1, round(fraction * len(present)))
            if phase is not Phase.FINISH:  # those who had some left when the round began
                present = [agent for agent in present if not registry.is_spent(agent, server_round)]
            chosen = rng.choice(len(present), min(size, len(present)), replace=False) if present else ()
            present = [present[i] for i in np.sort(chosen)]
        present = registry.willing(present, phase, server_round, self.seed)
        due = registry.due(present, server_round) if self.settings.quorum == 1.0 else present
        return [agent for agent in due or present if agent not in self.sent]

    def _has_no_work(self, idle_rounds: int) -> bool:
        """Return whether all agents that have a budget left are there, and got no task for some rounds."""
        if idle_rounds < self.registry.longest_pause:
            return False
        connected, nodes = set(self._connected()), self.registry.nodes
        spent = {name for name in nodes if self.registry.is_spent(name)}
        return bool(spent) and all(name in spent or node in connected for name, node in nodes.items())

    def _wait_for_work(self, last_work: float, idle_rounds: int) -> None:
        """Pause because the last round had no tasks; ConfigError if that lasts longer than a round may."""
        if self.registry.someone_rests and idle_rounds <= self.registry.longest_pause:
            return  # agents that rest in this round may have work in the next
        timeout = self.settings.round_timeout
        if time.monotonic() - last_work > timeout:
            raise ConfigError(
                f"agents: expected one with evaluations left in its budget within {timeout:g} s, none was "
                "connected; restart the missing agents and resume the study, or set a larger round_timeout"
            )
        self.stop.wait(min(_MAX_WAIT, timeout))

    # -- steps -----------------------------------------------------------------------------------

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
        self.write(Event("open", server_round, values=values | self._note_time()))

    def ask(self, phase: Phase, server_round: int, present: Sequence[str]) -> list[str]:
        """Make the tasks of a half-round, and return the agents that got one.

        The tasks' checksum is in the journal before any is sent. The results of secret draws are in the same
        entry, so a draw is either recorded or nobody saw it.
        """
        uniform: Uniform = secrets.randbelow
        seeded = self.settings.seed is not None
        if seeded:
            uniform = uniform_from(generator(self.seed, "server", "secret", str(phase), server_round))
        draws = self.algorithm.secret_draws(self.server.state, phase, server_round, present, uniform)
        tasks = self._make_tasks(phase, server_round, present, draws, seeded)
        times = self._note_time()
        for agent in tasks:
            self.sent[agent].sent_at = self.now
        if self.journal is not None:
            values: dict[str, object] = {"present": list(present), "tasks": tasks_digest(tasks)}
            values |= {"seeded": seeded} if draws else {}
            values |= {"asked": sorted(tasks)} if tasks.keys() != set(present) else {}
            values |= {"num_trials": self.registry.num_trials} if self.registry.num_trials else {}
            values |= times
            self.write(Event("ask", server_round, phase, arrays=draws, values=values))
        return list(tasks)

    def _encode(self, sent: SentTask, converted: dict[int, FlowerArray]) -> RecordDict:
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
        times = self._note_time() if replies else {}
        if self.journal is not None and replies:
            events = [to_event(reply, agent, phase, server_round) for agent, reply in replies.items()]
            self.journal.write([replace(event, values={**event.values, **times}) for event in events])
        for agent, reply in replies.items():
            sent, self.replies[agent] = self.sent[agent], reply
            sent.checked = None if reply.packed is None else self._check(sent, reply)

    def close(self, phase: Phase, server_round: int, missing: Reply = NO_REPLY) -> None:
        """Give the replies of a half-round to the algorithm, log its progress, and note who failed.

        Parameters
        ----------
        missing : stands for every reply that did not arrive
        """
        before, counted = self.server.state, Counter(self.recorder.totals)
        goes_on = self.asynchronous and phase is Phase.TRAIN
        asked, replies, self.replies = list(self.sent), self.replies, {}
        closes = list(map(self.sent.pop, replies if goes_on else asked))
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
        values = {"missing": missing.reason, **self._note_time()}
        self.write(Event("tell", server_round, phase, values=values))
        if self.replaying:
            return
        self._logged, logged = self.server.state, before if self._logged is None else self._logged
        for line in self.algorithm.progress_lines(self._logged, logged):
            log(INFO, "%s", printable(line))
        failed = {agent: r.reason for agent, r in replies.items() if r.packed is None and not r.refused}
        if failed:
            self.registry.suspects |= failed.keys()
            self._check_types(server_round, asked, failed)
        if phase is not Phase.FINISH:
            self.result.note(half_of(phase), server_round, self.recorder.numbers_since(counted))

    def _check_types(self, server_round: int, asked: Collection[str], failed: Mapping[str, str]) -> None:
        """Raise ObjectiveError if no objective returns a number, HookError if the algorithm is to blame.

        If only some agents' objectives return none, they are logged.

        Parameters
        ----------
        asked, failed : agents of this half-round, and why those of them failed that did
        """
        hooks = [HookError.text_in(failed.get(agent, "")) for agent in asked]
        if all(hooks):
            raise HookError(hooks[0])
        texts = {agent: text for agent, why in failed.items() if (text := WrongTypeError.text_in(why))}
        self.wrong_types |= texts
        wrong = self.wrong_types.keys() >= self.registry.nodes.keys()
        everybody = wrong and not self.recorder.totals["replies"]
        if texts and (everybody or texts.keys() >= set(asked)):
            raise ObjectiveError(f"{self.recorder.label}: {next(iter(self.wrong_types.values()))}")
        for agent, text in texts.items():
            log(WARNING, FAILED, server_round, agent, text)

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

    def write(self, event: Event) -> None:
        """Write an event to the journal, if there is one."""
        if self.journal is not None:
            self.journal.write([event])

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
        journal, self.journal, self.replaying = self.journal, None, True
        for event in events:
            phase = Phase(event.phase) if event.phase else Phase.TRAIN
            if event.kind == "agents":
                self.registry.restore(event.values)
                self.note_aims(self.registry.aims or NUMBER)
            elif event.kind == "open":
                number = event.values.get("num_rounds")
                self.num_rounds = number if isinstance(number, int) else self.num_rounds
                self.begin_round(event.round, int(cast(int, event.values.get("window", 0))))
                self._replay_time(event)
                if self.clocked:
                    self.recorder.round_started = self.now
            elif event.kind == "ask":
                self.registry.num_trials = cast(int | None, event.values.get("num_trials"))
                present, seeded = cast(list[str], event.values["present"]), event.values.get("seeded") is True
                tasks = self._make_tasks(phase, event.round, present, event.arrays, seeded)
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
                for agent in tasks:
                    self._encode(self.sent[agent], {})  # counts its bytes
            elif event.kind == "reply":
                self._replay_time(event)
                self.replies[event.agent] = from_event(event)
            elif event.kind == "tell":
                self.close(phase, event.round, replace(NO_REPLY, reason=str(event.values["missing"])))
                self._replay_time(event)  # after `close`, which notes the time of this process
            elif event.kind == "round":
                seconds = float(cast(float, event.values["seconds"]))
                self.end_round(event.round, seconds)
                self.seconds_before += seconds
        self.journal, self.replaying = journal, False

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
        self.server.state = informed(self.server.state, drawn=draws)
        goes_on, self.present = self.asynchronous and phase is Phase.TRAIN, present
        keys = (server_round, self.num_asked) if goes_on else (server_round,)
        rng = generator(self.seed, "server", "ask", str(phase), *keys)
        if self.algorithm.secure_sums:
            registered = self.registry.registrations.items()
            self.server.register_cards(
                self.study, {name: bytes.fromhex(one.key) for name, one in registered if one.key}
            )
        if self.asynchronous:
            under_way = {agent: sent.task for agent, sent in self.sent.items()}
            self.server.state = informed(self.server.state, under_way=under_way)
        asked = self.server.ask(phase, server_round, present, rng)
        tasks, floats = dict[str, Task](), 0.0
        options, digest = canonical_json(self.algorithm.options()), self.recorder.space.digest
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
            envelope = wire.Envelope(self.study, own_name, digest, self.algorithm.name, options)
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
