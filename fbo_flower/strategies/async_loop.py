"""Rounds without a barrier: each agent gets its next task as soon as it has answered.

A round is a window of as many answers as agents were connected when it opened. It has a row in the study's
tables, and its number is what algorithms see as the round. No agent waits for another one: the state is
updated with every answer, and the next task of the agent that answered is made from it.
"""

from __future__ import annotations

from logging import INFO

from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.records import Phase
from fbo_flower.errors import ConfigError
from fbo_flower.strategies.round_loop import RoundLoop
from fbo_flower.strategies.settings import ASYNC, SYNC
from fbo_flower.strategies.under_way import UnderWay
from fbo_flower.strategies.unequal_agents import all_spent, end_line, willing

_LONGEST_WAIT = 1.0  # seconds between two looks for agents that may begin


class AsyncLoop(RoundLoop):
    """Runs the rounds of an asynchronous study."""

    def run_rounds(self, grid: Grid, num_rounds: int | None) -> None:
        """Run the windows that are left; tasks under way at the end stay in their agents' journals."""
        run = self.run
        run.restore_clock(grid)
        if self.has_ended():
            self.run_final_exchanges(grid, len(run.recorder.rounds))
            return
        if run.replies:
            self.tell(Phase.TRAIN, run.open_round)
        under_way = UnderWay(grid, self.settings.round_timeout, self.stop)
        messages = run.messages(Phase.TRAIN, run.open_round, self.settings.message_suffix)
        under_way.send(messages, run.sent_before())
        self.notifier.sent(messages)
        server_round = run.open_round or len(run.recorder.rounds)
        while run.open_round or not (server_round == num_rounds or run.algorithm.finished(run.state)):
            if not run.open_round and all_spent(run.registry):
                log(INFO, "%s", end_line(run.registry, server_round))
                break
            if not run.open_round:
                server_round += 1
                self._open_window(grid, server_round)
            self._run_window(grid, under_way, server_round)
            self._end_round(server_round, num_rounds)
        if under_way:
            text = "%d agents still work on their last task; what they find stays in their journals"
            log(INFO, text, len(under_way))
        self.run_final_exchanges(grid, server_round)

    def choose_agents(self, grid: Grid, phase: Phase, server_round: int) -> list[str]:
        """Return the agents that can be asked: those that work on a task are not waited for."""
        busy = {sent.agent for sent in self.run.sent}
        return [a for a in super().choose_agents(grid, phase, server_round) if a not in busy]

    def _open_window(self, grid: Grid, server_round: int) -> None:
        run = self.run
        self._register_late(grid)
        present = run.registry.present(grid.get_node_ids())
        present = willing(run.registry, present, Phase.TRAIN, server_round, run.seed)
        run.begin_round(server_round, max(1, len(present)))

    def _run_window(self, grid: Grid, under_way: UnderWay, server_round: int) -> None:
        """Send tasks and collect answers until the window has its number of answers."""
        run, waiting = self.run, set[str]()  # agents for which there was no task since the last answer
        while run.num_told < run.window:
            present = run.registry.present(grid.get_node_ids())
            present = willing(run.registry, present, Phase.TRAIN, server_round, run.seed)
            busy = {sent.agent for sent in run.sent}
            idle = [agent for agent in present if agent not in busy | run.resting]
            due = run.silence.due(idle, server_round) or ([] if busy else idle)
            if not waiting.issuperset(due) and not run.algorithm.finished(run.state):
                run.ask(Phase.TRAIN, server_round, due)
                waiting = set(due) - {sent.agent for sent in run.sent}
                messages = run.messages(Phase.TRAIN, server_round, self.settings.message_suffix)
                new = {agent: m for agent, m in messages.items() if agent not in busy}
                under_way.send(new)
                self.notifier.sent(new)
            if not under_way:
                return  # nobody works, and nobody may begin before the next window
            replies = under_way.receive(_LONGEST_WAIT)
            if replies:
                waiting = set()
                run.on_replies(Phase.TRAIN, server_round, replies)
                self.tell(Phase.TRAIN, server_round)


def check_mode(mode: str, barrier: str, name: str, fraction: float, quorum: float) -> None:
    """Raise ConfigError unless the study can run in this mode.

    Parameters
    ----------
    mode : "sync" or "async"
    barrier : why the algorithm needs all answers of a round at once; "" if it does not
    """
    if mode not in (SYNC, ASYNC):
        raise ConfigError(f"mode: expected 'sync' or 'async', got {mode!r}")
    if mode == SYNC:
        return
    if barrier:
        raise ConfigError(f"mode: expected 'sync' for {name}, because {barrier}")
    if fraction < 1.0 or quorum < 1.0:
        raise ConfigError(
            f"mode: expected no fraction and no quorum in an asynchronous study, got {fraction:g} and "
            f"{quorum:g}; no agent waits for another one there"
        )


def check_staleness(max_staleness: int | None, mode: str) -> None:
    """Raise ConfigError unless the largest age of an answer fits the mode."""
    if max_staleness is None:
        return
    check_number("max_staleness", max_staleness, 0, integer=True)
    if mode != ASYNC:
        raise ConfigError(
            f"max_staleness: expected the mode 'async', got {mode!r}, in which no answer is older than its "
            "round; leave max_staleness out"
        )
