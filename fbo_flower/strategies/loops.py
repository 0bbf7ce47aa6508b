"""The rounds of a study: choose the agents, send them their tasks, collect the replies, update the state.

A round is a generator of exchanges. Whoever has a grid drives it: our loop, or Flower's through the hooks of
the strategy. So both make the same trials. A `Notifier` tells callbacks what happens; an error of theirs
never ends a study.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from logging import DEBUG, INFO, WARNING
from typing import Any, TypeVar

import numpy as np
from flwr.app import Message
from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower.algorithms.records import Phase, natural_key
from fbo_flower.errors import ConfigError, kind_of, printable
from fbo_flower.numerics.seeding import generator
from fbo_flower.strategies.exchange import Clocked, UnderWay, send_and_receive
from fbo_flower.strategies.recorder import RoundProgress
from fbo_flower.strategies.replies import NO_REPLY, Reply, read_reply
from fbo_flower.strategies.settings import StrategySettings
from fbo_flower.strategies.start_and_end import check_evaluations
from fbo_flower.strategies.study_run import StudyRun
from fbo_flower.study.study import Study
from fbo_flower.study.trial import Trial
from fbo_flower.trackers.callback import Callback, RoundInfo, StudyInfo

_DISCLOSES_TRIALS = "trials"
_MAX_ERROR = 500  # characters


def check_callbacks(callbacks: Sequence[object]) -> None:
    """Raise ConfigError unless each callback is a `Callback` or a function."""
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise ConfigError(f"callbacks: expected a list of callbacks, got {kind_of(callbacks)}")
    for callback in callbacks:
        if isinstance(callback, type) or not (isinstance(callback, Callback) or callable(callback)):
            raise ConfigError(
                f"callbacks: expected functions, or objects of a class that inherits from "
                f"fbo_flower.trackers.Callback, got {kind_of(callback)}"
            )


@dataclass
class Notifier:
    """Tells the callbacks of one run.

    Parameters
    ----------
    callbacks : whom to tell; functions are called by the strategy
    run : the study; what its recorder holds is what callbacks learn
    """

    callbacks: Sequence[object]
    run: StudyRun
    _num_trials: int = 0  # rows of the recorder that were told
    _num_rounds: int = 0
    _said: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        run = self.run
        self._told = [callback for callback in self.callbacks if isinstance(callback, Callback)]
        self.info = StudyInfo(
            run.study,
            run.recorder.label,
            run.algorithm.name,
            run.algorithm.options(),
            run.recorder.space,
            run.recorder.aims.minimize,
            run.num_rounds,
            len(run.recorder.rounds),
            {name: direction for name, direction in run.recorder.aims.objectives if name},
            run.registry.num_trials,
        )

    def sent(self, agents: Iterable[str]) -> None:
        """Tell that tasks were sent to agents that disclose their trials: these trials are running."""
        if not self._told:
            return
        registry = self.run.registry
        for agent in agents:
            task = self.run.sent[agent].task
            if registry.agents[agent].registration.disclosure.startswith(_DISCLOSES_TRIALS):
                for number in range(task.trial, task.trial + task.num_trials):
                    self._call("on_trial", Trial(agent, number, task.round))

    def round_ended(self) -> None:
        """Tell the trials and rounds that are new since the last call."""
        if not self._told:
            return
        trials = list(self.run.recorder.trials.since(self._num_trials))
        self._num_trials += len(trials)
        for row in self.run.recorder.rounds[self._num_rounds :]:
            self._num_rounds += 1
            number = int(row["round"])
            for trial in trials:
                if trial.round <= number:
                    self._call("on_trial", trial)
            trials = [trial for trial in trials if trial.round > number]
            numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
            self._call("on_round", RoundInfo(number, {n: v for n, v in numbers.items() if n != "round"}))
        for trial in trials:  # of the final exchanges
            self._call("on_trial", trial)

    def finished(self, study: Study) -> None:
        """Tell what is left, and that the run has ended."""
        self.round_ended()
        self._call("on_finish", study)

    def _call(self, method: str, event: Any) -> None:
        for callback in self._told:
            try:
                getattr(callback, method)(self.info, event)
            except Exception as error:  # of any library behind a callback
                name = f"{type(callback).__name__}.{method}"
                reason = printable(f"{type(error).__name__}: {' '.join(str(error).split())}")[:_MAX_ERROR]
                again = f"{name} {type(error).__name__}" in self._said
                self._said.add(f"{name} {type(error).__name__}")
                log(DEBUG if again else WARNING, "%s failed, the study goes on: %s", name, reason)
                log(DEBUG, "%s", name, exc_info=error)


MAX_REGISTRATION_SECONDS = 30.0  # for nodes that connect during the study
_LONGEST_WAIT = 1.0  # seconds between two looks for agents that can work
_MOST_STALLED = 10  # rounds without an evaluation, although some are left
_FEWEST_FAILED = 3  # evaluations: if all of them failed, a study goes on no longer than this round
Driven = TypeVar("Driven")


@dataclass(frozen=True)
class Exchange:
    """Messages of one half-round, whose replies `StudyRun.on_replies` takes before the round goes on.

    Parameters
    ----------
    messages : one for each agent; an iterator makes them while they are read
    """

    phase: Phase
    server_round: int
    agents: Sequence[str]
    messages: Iterable[Message]


@dataclass(frozen=True)
class RoundLoop:
    """Runs the rounds of a study over a grid.

    Parameters
    ----------
    run : the study
    settings : of its strategy
    stop : ends the run when it is set
    tell : `tell(phase, server_round)` gives the replies of a half-round to the algorithm
    notifier : tells the callbacks
    on_round : called after every round
    """

    run: StudyRun
    settings: StrategySettings
    stop: threading.Event
    tell: Callable[[Phase, int], None]
    notifier: Notifier
    on_round: Callable[[RoundProgress], None]

    def run_rounds(self, grid: Grid) -> None:
        """Run the rounds that are left, and then the final exchanges."""
        run, last_work = self.run, time.monotonic()
        run.restore_clock(grid)
        server_round = len(run.recorder.rounds)
        ended = self.has_ended()
        idle_rounds = stalled = 0
        while run.open_round or not (
            ended or server_round == run.num_rounds or run.algorithm.finished(run.state)
        ):
            if not run.open_round and (run.registry.all_spent or self._has_no_work(grid, idle_rounds)):
                log(INFO, "%s", run.registry.end_line(server_round))
                break
            if self._has_stalled(stalled):
                break
            server_round += 1
            evaluated = self._drive(grid, self.round(grid, server_round)).evaluations
            idle_rounds = 0 if run.had_tasks else idle_rounds + 1
            stalled = 0 if evaluated else stalled + run.had_tasks
            last_work = self._wait_for_work(last_work, idle_rounds) if run.num_rounds is None else last_work
        self.run_final_exchanges(grid, server_round)

    def _has_stalled(self, num_rounds: int) -> bool:
        """Return whether evaluations are left that nobody has made for some rounds; warn of it."""
        stalled = self.run.registry.num_trials is not None and num_rounds >= _MOST_STALLED
        if stalled:
            log(WARNING, "%s", self.run.registry.stalled_line(num_rounds))
        return stalled

    def has_ended(self) -> bool:
        """Return whether the final exchanges had begun when the run was interrupted."""
        run = self.run
        finishing = run.interrupted is not None and run.interrupted[0] is Phase.FINISH
        return finishing or any(
            had_tasks for (phase, _), had_tasks in run.closed.items() if phase is Phase.FINISH
        )

    def _has_no_work(self, grid: Grid, idle_rounds: int) -> bool:
        """Return whether all agents that have a budget left are there, and got no task for some rounds."""
        registry, connected = self.run.registry, set(grid.get_node_ids())
        spent = {name for name in registry.nodes if registry.is_spent(name)}
        there = all(name in spent or node in connected for name, node in registry.nodes.items())
        return bool(spent) and there and idle_rounds >= registry.longest_pause

    def choose_agents(self, grid: Grid, phase: Phase, server_round: int) -> list[str]:
        """Return the agents of a round: all connected ones, or a fraction of them, drawn anew each round.

        Agents that have used up their budget, or that do not want tasks in this round, are left out. Agents
        that have not replied for some rounds rest, unless all agents do, or a quorum ends the rounds early.
        """
        registry, fraction = self.run.registry, self.settings.fraction
        present = registry.present(grid.get_node_ids())
        if fraction < 1.0 and present:
            rng = generator(self.run.seed, "server", "cohort", server_round)
            size = max(1, round(fraction * len(present)))
            if phase is not Phase.FINISH:  # those who had some left when the round began
                present = [agent for agent in present if not registry.is_spent(agent, server_round)]
            chosen = rng.choice(len(present), min(size, len(present)), replace=False) if present else ()
            present = [present[i] for i in np.sort(chosen)]
        present = registry.willing(present, phase, server_round, self.run.seed)
        due = registry.due(present, server_round) if self.settings.quorum == 1.0 else present
        return due or present

    def round(self, grid: Grid, server_round: int) -> Generator[Exchange, None, RoundProgress]:
        """Yield the exchanges of a round; continue when their replies are with `run`. Return its numbers."""
        run = self.run
        run.begin_round(server_round)
        self._register_late(grid)
        for phase in run.algorithm.phases:
            yield from self._half_round(grid, phase, server_round)
        return self._end_round(server_round)

    def _register_late(self, grid: Grid) -> None:
        seconds = min(MAX_REGISTRATION_SECONDS, self.settings.round_timeout)
        if self.run.registry.register_late(grid, sorted(grid.get_node_ids()), self.stop, seconds):
            self.run.write_agents()

    def _end_round(self, server_round: int) -> RoundProgress:
        progress = self.run.end_round(server_round)
        level = WARNING if progress.failed_trials else INFO
        log(level, "[round %s] %s", progress.so_far, progress)
        self.on_round(progress)
        self.notifier.round_ended()
        enough = self.run.recorder.totals["evaluations"] >= _FEWEST_FAILED
        if enough and not self.run.algorithm.roles:
            check_evaluations(self.settings.label, self.run.recorder)
        return progress

    def _wait_for_work(self, last_work: float, idle_rounds: int) -> float:
        """Pause if the last round had no tasks; raise ConfigError if that lasts longer than a round may.

        Returns
        -------
        The time of the last round that had tasks.
        """
        if self.run.had_tasks:
            return time.monotonic()
        registry = self.run.registry
        if registry.someone_rests and idle_rounds <= registry.longest_pause:
            return last_work  # agents that rest in this round may have work in the next
        timeout = self.settings.round_timeout
        if time.monotonic() - last_work > timeout:
            raise ConfigError(
                f"agents: expected one with evaluations left in its budget within {timeout:g} s, none was "
                "connected; restart the missing agents and resume the study, or set a larger round_timeout"
            )
        self.stop.wait(min(_LONGEST_WAIT, timeout))
        return last_work

    def run_final_exchanges(self, grid: Grid, server_round: int) -> None:
        """Run final exchanges until the algorithm has no more tasks; each has a round number of its own."""
        algorithm = self.run.algorithm
        most = algorithm.max_final_exchanges
        for number in range(1, most + 1):
            if not self._drive(grid, self._half_round(grid, Phase.FINISH, server_round + number)):
                return

    def _half_round(self, grid: Grid, phase: Phase, server_round: int) -> Generator[Exchange, None, bool]:
        """Yield the exchange of a half-round, if it has tasks and the journal does not hold it.

        Returns
        -------
        Whether it has tasks.
        """
        run = self.run
        if (phase, server_round) in run.closed:
            return run.closed[phase, server_round]
        if run.interrupted != (phase, server_round):
            run.ask(phase, server_round, self.choose_agents(grid, phase, server_round))
        if not run.sent:
            return False
        agents = run.waiting()
        self.notifier.sent(agents)
        messages = run.messages(agents, phase, server_round, self.settings.message_suffix)
        yield Exchange(phase, server_round, agents, messages)
        self.tell(phase, server_round)
        return True

    def _drive(self, grid: Grid, exchanges: Generator[Exchange, None, Driven]) -> Driven:
        """Send the messages of each exchange and pass on its replies; return what the generator returns."""
        while True:
            try:
                exchange = next(exchanges)
            except StopIteration as stop:
                found: Driven = stop.value
                return found
            self._send(grid, exchange)

    def _send(self, grid: Grid, exchange: Exchange) -> None:
        run, agents = self.run, exchange.agents
        quorum = max(int(np.ceil(self.settings.quorum * len(run.sent))) - len(run.replies), 0)

        def on_replies(replies: Mapping[int, Message]) -> None:
            named = {agents[position]: read_reply(reply) for position, reply in replies.items()}
            run.on_replies(exchange.phase, exchange.server_round, named)

        timeout = self.settings.round_timeout
        send_and_receive(grid, exchange.messages, timeout, self.stop, quorum, on_replies)


_LONGEST_LOOK = 1.0  # seconds between two looks for agents that may begin
_LISTS = 16  # how often in a window all connected agents are listed
_GONE = Reply(reason="its node has left", word="gone")


class AsyncLoop(RoundLoop):
    """Runs the rounds of an asynchronous study."""

    def run_rounds(self, grid: Grid) -> None:
        """Run the windows that are left; tasks under way at the end stay in their agents' journals."""
        run = self.run
        run.restore_clock(grid)
        if self.has_ended():
            self.run_final_exchanges(grid, len(run.recorder.rounds))
            return
        if run.replies:
            self.tell(Phase.TRAIN, run.open_round)
        clock = grid if isinstance(grid, Clocked) else None
        under_way = UnderWay[str](grid, self.settings.round_timeout, self.stop, clock)
        gone = self._send_tasks(under_way, run.waiting(), run.open_round)
        server_round = run.open_round or len(run.recorder.rounds)
        stalled = 0
        while run.open_round or not (server_round == run.num_rounds or run.algorithm.finished(run.state)):
            if not run.open_round and run.registry.all_spent:
                log(INFO, "%s", run.registry.end_line(server_round))
                break
            if self._has_stalled(stalled):
                break
            if not run.open_round:
                server_round += 1
                self._register_late(grid)
                run.begin_round(server_round, max(1, len(self._willing(grid, server_round))))
            self._run_window(grid, under_way, server_round, gone)
            gone = []
            stalled = 0 if self._end_round(server_round).evaluations else stalled + 1
        if under_way:
            text = "%d agents still work on their last task; what they find stays in their journals"
            log(INFO, text, len(under_way))
        self.run_final_exchanges(grid, server_round)

    def choose_agents(self, grid: Grid, phase: Phase, server_round: int) -> list[str]:
        """Return the agents that can be asked: those that work on a task are not waited for."""
        chosen = super().choose_agents(grid, phase, server_round)
        return [agent for agent in chosen if agent not in self.run.sent]

    def _willing(self, grid: Grid, server_round: int) -> list[str]:
        """Return the connected agents that may be asked, whether they are at work or not."""
        registry = self.run.registry
        present = registry.present(grid.get_node_ids())
        return registry.willing(present, Phase.TRAIN, server_round, self.run.seed)

    def _send_tasks(self, under_way: UnderWay[str], agents: Sequence[str], server_round: int) -> list[str]:
        """Send agents their tasks; return those whose tasks could not be sent."""
        messages = self.run.messages(agents, Phase.TRAIN, server_round, self.settings.message_suffix)
        gone = under_way.send(zip(agents, messages, strict=True), self.run.sent_before(agents))
        self.notifier.sent(agents)
        return gone

    def _run_window(
        self, grid: Grid, under_way: UnderWay[str], server_round: int, gone: Sequence[str]
    ) -> None:
        """Send tasks and collect answers until the window has its number of answers.

        Parameters
        ----------
        gone : agents whose tasks could not be sent
        """
        run, waiting = self.run, set[str]()  # agents for which there was no task since the last answer
        idle, listed_until = list[str](), run.num_told  # to list all agents takes as long as there are many
        while run.num_told < run.window:
            if run.num_told >= listed_until:
                idle = self._willing(grid, server_round)
                listed_until = run.num_told + math.ceil(run.window / _LISTS)
            idle = [agent for agent in idle if agent not in run.sent and agent not in run.resting]
            due = run.registry.due(idle, server_round) or ([] if run.sent else idle)
            if not waiting.issuperset(due) and not run.algorithm.finished(run.state):
                new = run.ask(Phase.TRAIN, server_round, due)
                waiting = set(due).difference(new)
                gone = [*gone, *self._send_tasks(under_way, new, server_round)]
            if not under_way and not gone:
                return  # nobody works, and nobody may begin before the next window
            replies, gone = dict.fromkeys(gone, _GONE), []
            for agent, found in under_way.receive(0.0 if replies else _LONGEST_LOOK).items():
                replies[agent] = NO_REPLY if found is None else read_reply(found)
            if replies:
                waiting = set()
                run.on_replies(Phase.TRAIN, server_round, replies)
                self.tell(Phase.TRAIN, server_round)
                idle = run.registry.willing(
                    sorted({*idle, *replies}, key=natural_key), Phase.TRAIN, server_round, run.seed
                )
            else:
                listed_until = run.num_told
