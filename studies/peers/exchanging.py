"""The servers of comparators whose agents tell something after each trial, or once for one configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np

from fbo_flower.algorithms.bandits.base import MAX_MISSED, Attendance
from fbo_flower.algorithms.ei.local import LocalEI
from fbo_flower.algorithms.messages import Content, Replies
from fbo_flower.algorithms.protocol import Progress
from fbo_flower.algorithms.records import Array, Federation, Phase, Task, floats, natural_key
from fbo_flower.algorithms.senders import once_per_trial
from fbo_flower.space import SearchSpace

Write = Callable[[str, int], Content]  # the content of an agent's task for its next trial


@dataclass(frozen=True)
class Told:
    """The server's state.

    Parameters
    ----------
    space, seed : the search space; of public draws, which agents repeat
    progress : every agent's next trial
    messages : agent -> the trial that followed its last whole message, and this message
    sent : agent -> trial and content of its last task, so that a lost task is sent again unchanged
    """

    space: SearchSpace
    seed: int
    progress: Progress = field(default_factory=Progress)
    messages: Mapping[str, tuple[int, Any]] = field(default_factory=dict)
    sent: Mapping[str, tuple[int, Content]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Exchanging(LocalEI[Told]):
    """Agents tune by `ei`; after each trial they may tell something, and before the next they are told."""

    def writer(self, state: Told, trials: Mapping[str, int], rng: np.random.Generator) -> Write:
        """Return what writes the content of tasks.

        Parameters
        ----------
        trials : agent -> its next trial, of all that are present
        """
        raise NotImplementedError

    def init(self, federation: Federation, rng: np.random.Generator) -> Told:
        return Told(federation.space, int(rng.integers(2**31)))

    def ask(
        self, state: Told, phase: Phase, server_round: int, present: Sequence[str], rng: np.random.Generator
    ) -> tuple[Told, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        trials = {agent: state.progress.of(agent) for agent in present}
        write, sent, tasks = self.writer(state, trials, rng), dict(state.sent), {}
        for agent, trial in trials.items():
            content = once_per_trial(sent, agent, trial, partial(write, agent, trial))
            tasks[agent] = content.task(phase, server_round, trial, 1 if trial else self.num_initial)
        return replace(state, sent=sent), tasks

    def tell(self, state: Told, phase: Phase, reports: Replies) -> Told:
        messages = dict(state.messages)
        for agent, report in reports.items():
            content = self.report_content.of(report)
            if all(value is not None for value in vars(content).values()):
                messages[agent] = report.trial + report.num_trials, content
        return replace(state, progress=state.progress.advance(reports), messages=messages)


@dataclass(frozen=True)
class Gathered:
    """The server's state of comparators that give all agents one configuration after one exchange.

    Parameters
    ----------
    space, agents : the search space; agents of the registration
    progress, attendance : every agent's next trial; which agents answer
    told, total : agent -> arrays of its report; with secure sums only their total
    answered : whether an agent that was asked for them has replied, with or without them
    closed : whether the exchange failed, so that there will be no configuration
    """

    space: SearchSpace
    agents: tuple[str, ...]
    progress: Progress = field(default_factory=Progress)
    attendance: Attendance = field(default_factory=Attendance)
    told: Mapping[str, tuple[Array, ...]] = field(default_factory=dict)
    total: tuple[Array, ...] | None = None
    answered: bool = False
    closed: bool = False

    def hear(self, replies: Replies, names: Sequence[str], answered: bool) -> Self:
        """Return the state after replies with arrays of these names; `answered` is of these replies."""
        new = {
            agent: tuple(floats(report.arrays[name]) for name in names)
            for agent, report in replies.items()
            if report.arrays.keys() >= set(names)
        }
        summed = bool(replies.groups)
        return replace(
            self,
            progress=self.progress.advance(replies),
            attendance=self.attendance.tell(replies),
            told={**self.told, **new},
            total=tuple(replies.sums[name] for name in names) if summed else self.total,
            answered=self.answered or answered,
            closed=self.closed or replies.failed,
        )

    @property
    def parts(self) -> list[tuple[Array, ...]]:
        """Return the total, or what each agent told in their order, on which sums of floats depend."""
        each = [self.told[agent] for agent in sorted(self.told, key=natural_key)]
        return each if self.total is None else [self.total]

    def waits_for(self, done: Collection[str]) -> bool:
        """Return whether an agent that has not fallen silent for good is not done."""
        missed = self.attendance.missed
        known = {*self.agents, *self.progress.next_trial}
        return any(agent not in done and missed.get(agent, 0) < MAX_MISSED for agent in known)
