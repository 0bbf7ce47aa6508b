"""The server of comparators whose agents tell something in a report and are told something in a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fbo_flower.algorithms.ei.local import LocalEI
from fbo_flower.algorithms.messages import Content, Replies
from fbo_flower.algorithms.protocol import Progress
from fbo_flower.algorithms.records import Federation, Phase, Task
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
