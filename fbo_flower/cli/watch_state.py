"""How far a run is, from the events in a server's journal or from a finished study.

An agent's replies are read before the server has judged them. So all numbers of a round are those that the
server wrote when it closed the round; of the replies themselves only the senders count, and how many failed
evaluations an agent reports, if that is a sensible number.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fbo_flower.algorithms.records import natural_key
from fbo_flower.storage import Event
from fbo_flower.study.study import Study

_RECENT = 10  # rounds from which the next one's duration is expected
_LATE_ROUNDS = 2  # rounds under way after which an agent of an asynchronous run is silent
_MOST_FAILED = 10_000_000  # evaluations of a task


@dataclass
class RunState:
    """How far one run is.

    Parameters
    ----------
    label, mode, fraction : from the settings of the run
    num_rounds : as requested; None: until the algorithm is finished, or not recorded
    agents : ids of all agents that have registered
    present : agents that the server saw when it asked last
    waiting : agent -> round in which it got the task that it has not answered yet
    answered : agents that have answered in the open half-round
    silent : agent -> number of half-rounds that it has left unanswered in a row
    failed : agent -> failed evaluations that it reports
    seconds : durations of the finished rounds
    totals : sums of the numbers of the finished rounds
    best, mean : best and mean of the agents' best values so far; None if no agent disclosed one
    disclosed : whether an agent has disclosed values
    open_round : number of the open round; 0: none is open
    simulated : whether durations are those of a simulated clock
    ended : whether the server wrote that the study has ended
    """

    label: str = ""
    mode: str = "sync"
    fraction: float = 1.0
    num_rounds: int | None = None
    agents: set[str] = field(default_factory=set)
    present: set[str] = field(default_factory=set)
    waiting: dict[str, int] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    silent: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    best: float | None = None
    mean: float | None = None
    disclosed: bool = False
    open_round: int = 0
    simulated: bool = False
    ended: bool = False

    def apply(self, settings: Mapping[str, Any], events: Iterable[Event]) -> bool:
        """Apply new events of the journal; return whether there were any."""
        self.label = str(settings.get("label", self.label))
        self.mode = str(settings.get("mode", self.mode))
        self.fraction = float(settings.get("fraction", self.fraction))
        before = None
        for before in events:  # the last one tells whether there was one
            self._apply(before)
        return before is not None

    def _apply(self, event: Event) -> None:
        values = event.values
        self.simulated = self.simulated or "time" in values
        match event.kind:
            case "roll" | "agents":
                self.agents.update(map(str, _items(values.get("agents"))))
            case "open":
                self.open_round, self.ended = event.round, False
                number = values.get("num_rounds")
                self.num_rounds = number if isinstance(number, int) else self.num_rounds
            case "ask":
                self.present = set(map(str, _items(values.get("present"))))
                self.agents |= self.present
                asked = set(map(str, _items(values.get("asked", values.get("present")))))
                self.waiting |= dict.fromkeys(asked, event.round)
                self.answered = set()
            case "reply":
                self.answered.add(event.agent)
                self.waiting.pop(event.agent, None)
                self.silent.pop(event.agent, None)
                self._count_failed(event)
            case "tell":
                self._close(event.phase)
            case "round":
                self._end_round(event)
            case "end":
                self.ended, self.open_round = True, 0

    def _count_failed(self, event: Event) -> None:
        config = event.values.get("config")
        number = config.get("num-failed") if isinstance(config, dict) else None
        if type(number) is int and 0 < number <= _MOST_FAILED:
            self.failed[event.agent] += number

    def _close(self, phase: str) -> None:
        if self.mode == "async" and phase == "train":
            return  # its tasks stay under way
        for agent in self.waiting:
            self.silent[agent] += 1
        self.waiting = {}

    def _end_round(self, event: Event) -> None:
        seconds, progress = event.values.get("seconds"), event.values.get("progress")
        self.seconds.append(float(seconds) if isinstance(seconds, int | float) else 0.0)
        self.open_round = 0
        if self.mode == "async":
            late = [agent for agent, since in self.waiting.items() if event.round - since >= _LATE_ROUNDS]
            self.silent = Counter({agent: event.round - self.waiting[agent] for agent in late})
        if not isinstance(progress, dict):
            return
        self.best, self.mean = progress.get("best"), progress.get("mean")
        self.disclosed = bool(progress.get("disclosed"))
        for name in ("replies", "failures", "refused", "failed_trials", "evaluations"):
            self.totals[name] += int(progress.get(name) or 0)

    # -- what is shown -------------------------------------------------------------------------

    @property
    def num_done(self) -> int:
        """Number of finished rounds."""
        return len(self.seconds)

    @property
    def left(self) -> set[str]:
        """Agents that were not there when the server asked last, and had not been silent before."""
        if self.fraction < 1.0:
            return set()  # who was not drawn may be there
        return self.agents - self.present - set(self.silent) if self.present else set()

    @property
    def seconds_per_round(self) -> float | None:
        """Median duration of the latest rounds; None before the first has ended."""
        return statistics.median(self.seconds[-_RECENT:]) if self.seconds else None

    @property
    def seconds_left(self) -> float | None:
        """Expected duration of all rounds that are not finished; None if it is not known."""
        if self.ended or self.simulated or self.num_rounds is None or self.seconds_per_round is None:
            return None
        return max(self.num_rounds - self.num_done, 0) * self.seconds_per_round

    def worst(self, numbers: Mapping[str, int], most: int = 3) -> list[tuple[str, int]]:
        """Return the agents with the largest numbers."""
        return sorted(numbers.items(), key=lambda item: (-item[1], natural_key(item[0])))[:most]


def state_of_study(study: Study, algorithm: str) -> RunState:
    """Return the state of a run that is finished, from its study."""
    run, rounds = study.run(algorithm), study.rounds.where(algorithm=algorithm)
    trials = study.trials.where(algorithm=algorithm)
    failed = trials.take(~np.isfinite(trials["value"]))
    best, mean = (float(rounds[name][-1]) if len(rounds) else np.nan for name in ("best", "mean_incumbent"))
    found = study.recommendations.where(algorithm=algorithm)["value"]
    if not np.isfinite(best) and len(found):
        best = float(found.min() if study.minimizes(algorithm) else found.max())
        mean = float(found.mean())
    totals = {name: int(rounds[name].sum()) for name in ("replies", "failures", "refused", "failed_trials")}
    totals["evaluations"] = int(trials["pulls"].sum())
    number = int(run.get("num_agents") or len(set(trials["agent"].tolist())))
    agents = set(trials["agent"].tolist()) or {str(k) for k in range(number)}
    return RunState(
        label=algorithm,
        num_rounds=run.get("num_rounds"),
        agents=agents,
        present=agents,
        failed=Counter(failed["agent"].tolist()),
        seconds=rounds["seconds"].tolist(),
        totals=Counter(totals),
        best=best if np.isfinite(best) else None,
        mean=mean if np.isfinite(mean) else None,
        disclosed=bool(len(trials)) or bool(np.isfinite(best)),
        ended=run.get("status", "finished") == "finished",
    )


def _items(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | dict) else []
