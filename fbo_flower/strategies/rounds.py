"""`Rounds`: the exchanges of a running study with its agents.

`Rounds.exchanges` yields the messages of every half-round and is sent the replies. Our loop (`drive`) and the
four hooks of Flower's loop drive it, so both make the same trials. It decides who is asked, waits where
nobody can be, and tells the log and the callbacks; what changes in the study is a step of `StudyRun`.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import Message, MessageType
from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower.algorithms.records import Phase, Task, natural_key
from fbo_flower.errors import ConfigError, HookError, ObjectiveError, WrongTypeError, printable
from fbo_flower.numerics.seeding import generator
from fbo_flower.strategies.exchange import Exchange, Exchanges
from fbo_flower.strategies.recorder import RoundProgress
from fbo_flower.strategies.replies import FAILED
from fbo_flower.strategies.settings import Notifier, TuningResult, half_of
from fbo_flower.strategies.study_run import StudyRun
from fbo_flower.trackers.callback import StudyInfo

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
class Rounds:
    """The rounds of a study that are left, and its final exchanges.

    Parameters
    ----------
    run : the study
    grid : knows which nodes are connected
    stop : ends the waits for agents that can work when it is set
    result : gets the numbers of every half-round
    on_round : called after every round
    wrong_types : agent -> what its objective returned, and no number
    """

    run: StudyRun
    grid: Grid
    stop: threading.Event
    result: TuningResult = field(default_factory=TuningResult)
    on_round: Callable[[RoundProgress], None] = lambda progress: None
    wrong_types: dict[str, str] = field(default_factory=dict)
    _logged: Any = None  # the algorithm's state of which the log has the progress

    def __post_init__(self) -> None:
        self.registry, self.settings = self.run.registry, self.run.settings

    @cached_property
    def notifier(self) -> Notifier:
        """Tells the callbacks; it is made when the agents have registered."""
        run, recorder = self.run, self.run.recorder
        info = StudyInfo(
            run.study,
            recorder.label,
            run.algorithm.name,
            run.algorithm.options(),
            recorder.space,
            recorder.aims.minimize,
            run.num_rounds,
            len(recorder.rounds),
            {name: direction for name, direction in recorder.aims.objectives if name},
            self.registry.num_trials,
        )
        return Notifier(self.settings.callbacks, info, recorder)

    def exchanges(self) -> Exchanges[None]:
        """Yield the exchanges of the rounds that are left, and then the final ones."""
        run, registry, rounds = self.run, self.registry, self.run.recorder.rounds
        last_work, idle_rounds, stalled = time.monotonic(), 0, 0
        finishing = run.open_phase is Phase.FINISH or bool(run.num_closed and not run.open_round)
        while run.open_round or not (finishing or len(rounds) == run.num_rounds or run.server.finished):
            if not run.open_round and (
                registry.all_spent or (idle_rounds and self._has_no_work(idle_rounds))
            ):
                log(INFO, "%s", registry.end_line(len(rounds)))
                break
            if registry.num_trials is not None and stalled >= _MAX_STALLED:
                log(WARNING, "%s", registry.stalled_line(stalled))
                break
            progress = yield from self.round()
            idle_rounds = 0 if run.had_tasks or run.asynchronous else idle_rounds + 1
            stalled = 0 if progress.evaluations else stalled + (run.had_tasks or run.asynchronous)
            if not idle_rounds:
                last_work = time.monotonic()
            elif run.num_rounds is None:
                self._wait_for_work(last_work, idle_rounds)
        if run.asynchronous and (num_working := len(run.sent) - len(run.unsent)):
            text = "%d agents still work on their last task; what they find stays in their journals"
            log(INFO, text, num_working)
        yield from self.final_exchanges()

    def round(self) -> Exchanges[RoundProgress]:
        """Yield the exchanges of the open round, or else of the next one; return its numbers."""
        run = self.run
        server_round = len(run.recorder.rounds) + 1
        if not run.open_round:
            seconds = min(_MAX_REGISTRATION_SECONDS, self.settings.round_timeout)
            if (yield from self.registry.register_late(self.grid.get_node_ids(), seconds)):
                run.note_agents()
            window = max(1, len(self._willing(server_round))) if run.asynchronous else 0
            run.begin_round(server_round, window)
        if run.asynchronous:
            yield from self._window(server_round)
        else:
            for phase in run.server.phases[run.num_closed :]:
                yield from self._half_round(phase, server_round)
        progress = run.end_round(server_round)
        log(WARNING if progress.failed_trials else INFO, "[round %s] %s", progress.so_far, progress)
        self.on_round(progress)
        self.notifier.round_ended()
        if run.recorder.totals["evaluations"] >= _MIN_FAILED and not run.algorithm.roles:
            run.recorder.check_evaluations()
        return progress

    def final_exchanges(self) -> Exchanges[None]:
        """Yield exchanges until the algorithm has no more tasks; each has a round number of its own."""
        server_round = len(self.run.recorder.rounds)
        for number in range(self.run.num_closed + 1, _MAX_FINAL + 1):
            if not (yield from self._half_round(Phase.FINISH, server_round + number)):
                return

    def _half_round(self, phase: Phase, server_round: int) -> Exchanges[bool]:
        """Yield the exchange of a half-round, if it has tasks; return whether it has."""
        run = self.run
        if run.open_phase is None and not (phase is Phase.FINISH and run.idle_end == server_round):
            run.ask(phase, server_round, self.choose_agents(phase, server_round))
        if run.open_phase is None:
            return False
        quorum, unsent = math.ceil(self.settings.quorum * len(run.sent)), set(run.unsent)
        exchange = self._exchange(phase, server_round)
        missing = unsent - run.unsent.keys() - run.replies.keys()
        answers = yield exchange
        while True:
            run.on_replies(phase, server_round, answers)
            missing -= answers.keys()
            if not missing or len(run.replies) >= quorum:
                break
            answers = yield replace(exchange, messages=(), goes_on=True)
        self._close(phase, server_round)
        return True

    def _window(self, server_round: int) -> Exchanges[None]:
        """Exchange tasks and answers until an asynchronous round has its number of answers."""
        run, phase = self.run, Phase.TRAIN
        if run.replies:  # the run was interrupted before they were told
            self._close(phase, server_round)
        waiting = set[str]()  # agents for which there was no task since the last answer
        idle, listed_until = list[str](), run.num_told  # to list all takes as long as there are many
        while run.num_told < run.window:
            if run.num_told >= listed_until:
                idle = self._willing(server_round)
                listed_until = run.num_told + math.ceil(run.window / _LISTS)
            idle = [agent for agent in idle if agent not in run.sent and agent not in run.resting]
            due = self.registry.due(idle, server_round) or ([] if run.sent else idle)
            if not waiting.issuperset(due) and not run.server.finished:
                waiting = set(due).difference(run.ask(phase, server_round, due))
            answers = yield self._exchange(phase, server_round, goes_on=True)
            if answers:
                waiting = set()
                run.on_replies(phase, server_round, answers)
                self._close(phase, server_round)
                idle = self._willing(server_round, sorted({*idle, *answers}, key=natural_key))
            elif len(run.sent) == len(run.unsent):
                return  # nobody works, and nobody may begin before the next window
            else:
                listed_until = run.num_told

    def _exchange(self, phase: Phase, server_round: int, goes_on: bool = False) -> Exchange[str]:
        """Return the exchange of the tasks that this process has not sent yet, and tell the callbacks.

        Tasks of agents without a node stay unsent. Messages are made while they are read.
        """
        run, nodes = self.run, dict[str, int]()
        times, trials = dict[str, float](), list[tuple[str, Task]]()
        for agent in [*run.unsent]:
            if (node := self.registry.nodes.get(agent)) is None:
                continue
            del run.unsent[agent]
            if agent in run.replies:
                continue
            nodes[agent] = node
            if run.clocked and goes_on:
                times[agent] = run.sent[agent].sent_at
            if self.registry.agents[agent].registration.disclosure.startswith("trials"):
                trials.append((agent, run.sent[agent].task))
        self.notifier.sent(trials)
        messages = self._messages(nodes, phase, server_round)
        return Exchange(messages, self.settings.round_timeout, phase, goes_on, times)

    def _messages(
        self, nodes: Mapping[str, int], phase: Phase, server_round: int
    ) -> Iterator[tuple[str, Message]]:
        """Make the messages to agents while they are read."""
        kind = _MESSAGE_TYPES[phase] + self.registry.message_suffix
        converted: dict[int, FlowerArray] = {}
        for agent, node in nodes.items():
            content = self.run.encode(self.run.sent[agent], converted)
            yield agent, Message(content, node, kind, group_id=str(server_round))

    def _close(self, phase: Phase, server_round: int) -> None:
        """Close a half-round, log its progress, and note who failed."""
        run, failed = self.run, dict[str, str]()
        for agent, reply in run.replies.items():
            if reply.packed is None and not reply.refused:
                failed[agent] = reply.reason
        asked, before, counted = list(run.sent), run.server.state, Counter(run.recorder.totals)
        run.close(phase, server_round)
        self._logged, logged = run.server.state, before if self._logged is None else self._logged
        for line in run.algorithm.progress_lines(self._logged, logged):
            log(INFO, "%s", printable(line))
        if failed:
            self.registry.suspects |= failed.keys()
            self._check_types(server_round, asked, failed)
        if phase is not Phase.FINISH:
            self.result.note(half_of(phase), server_round, run.recorder.numbers_since(counted))

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
        everybody = wrong and not self.run.recorder.totals["replies"]
        if texts and (everybody or texts.keys() >= set(asked)):
            raise ObjectiveError(f"{self.run.recorder.label}: {next(iter(self.wrong_types.values()))}")
        for agent, text in texts.items():
            log(WARNING, FAILED, server_round, agent, text)

    # -- who is asked, and the waits ---------------------------------------------------------------

    def _willing(self, server_round: int, agents: Sequence[str] | None = None) -> list[str]:
        """Return those of the agents, or else of the connected ones, that may be asked to evaluate."""
        agents = self.registry.present(self.grid.get_node_ids()) if agents is None else agents
        return self.registry.willing(agents, Phase.TRAIN, server_round, self.run.seed)

    def choose_agents(self, phase: Phase, server_round: int) -> list[str]:
        """Return the agents of a round: all connected ones, or a fraction of them, drawn anew each round.

        Agents that have used up their budget, that do not want tasks in this round, or that still work on
        another one are left out. Agents that have not replied for some rounds rest, unless all agents do, or
        a quorum ends the rounds early.
        """
        registry, fraction = self.registry, self.settings.fraction
        present = registry.present(self.grid.get_node_ids())
        if fraction < 1.0 and present:
            rng = generator(self.run.seed, "server", "cohort", server_round)
            size = max(1, round(fraction * len(present)))
            if phase is not Phase.FINISH:  # those who had some left when the round began
                present = [agent for agent in present if not registry.is_spent(agent, server_round)]
            chosen = rng.choice(len(present), min(size, len(present)), replace=False) if present else ()
            present = [present[i] for i in np.sort(chosen)]
        present = registry.willing(present, phase, server_round, self.run.seed)
        due = registry.due(present, server_round) if self.settings.quorum == 1.0 else present
        return [agent for agent in due or present if agent not in self.run.sent]

    def _has_no_work(self, idle_rounds: int) -> bool:
        """Return whether all agents that have a budget left are there, and got no task for some rounds."""
        if idle_rounds < self.registry.longest_pause:
            return False
        connected, nodes = set(self.grid.get_node_ids()), self.registry.nodes
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
