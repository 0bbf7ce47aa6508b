"""`TrialRows`: the disclosed trials of a running study, in columns of numbers."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fbo_flower.algorithms.records import Array, Outcome
from fbo_flower.space.space import SearchSpace
from fbo_flower.study.schema import STOPPED, TIMES, TRIALS
from fbo_flower.study.table import Table
from fbo_flower.study.trial import Trial


def _integers() -> array[int]:
    return array("q")


def _reals() -> array[float]:
    return array("d")


@dataclass
class TrialRows:
    """The disclosed trials of a running study.

    A row takes 56 bytes, and 8 more per parameter, so that the memory of a study hardly grows with its
    rounds. Rows of Python objects take ten times as much. Configurations are decoded when they are needed.

    Parameters
    ----------
    label : name of the run in the tables
    space : the search space
    agents, rounds, trials, pulls, values : the columns of `study.schema.TRIALS`
    points : `D` numbers per row
    started, ended : the columns of `TIMES`; NaN if the agent did not disclose them
    failures : row -> why its evaluation failed
    stopped : row -> the last step of a trial that was stopped early
    """

    label: str
    space: SearchSpace
    agents: list[str] = field(default_factory=list)
    rounds: array[int] = field(default_factory=_integers)
    trials: array[int] = field(default_factory=_integers)
    pulls: array[int] = field(default_factory=_integers)
    values: array[float] = field(default_factory=_reals)
    points: array[float] = field(default_factory=_reals)
    started: array[float] = field(default_factory=_reals)
    ended: array[float] = field(default_factory=_reals)
    failures: dict[int, str] = field(default_factory=dict)
    stopped: dict[int, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.agents)

    def append(
        self, agent: str, server_round: int, outcome: Outcome, values: Array, times: Array | None
    ) -> None:
        """Append the rows of an outcome.

        Parameters
        ----------
        values : `(q,)`, as the user measures them
        times : `(q, 2)`, start and end of each row; None: not disclosed
        """
        count, trials = len(values), outcome.trials.tolist()
        if outcome.failures or outcome.stopped:
            for row, trial in enumerate(trials, start=len(self)):
                if trial in outcome.failures:
                    self.failures[row] = outcome.failures[trial]
                if trial in outcome.stopped:
                    self.stopped[row] = float(outcome.stopped[trial])
        self.agents.extend([agent] * count)
        self.rounds.extend([server_round] * count)
        self.trials.extend(trials)
        self.pulls.extend(outcome.pulls.tolist())
        self.values.extend(values.tolist())
        self.points.extend(outcome.points.ravel().tolist())
        started, ended = np.full((2, count), math.nan) if times is None else times.T
        self.started.extend(started.tolist())
        self.ended.extend(ended.tolist())

    def since(self, first: int) -> Iterator[Trial]:
        """Yield the trials from row `first` on."""
        for row in range(first, len(self)):
            cells = {
                "agent": self.agents[row],
                "trial": self.trials[row],
                "round": self.rounds[row],
                "pulls": self.pulls[row],
                "config": self._config(row),
                "value": self.values[row],
                "failure": self.failures.get(row, ""),
                "stopped_at": self.stopped.get(row, math.nan),
            }
            yield Trial.of_row(cells, (self.started[row], self.ended[row]))

    def table(self) -> Table:
        """Return the table of trials, with the column `stopped_at` if trials were stopped early."""
        rows = range(len(self))
        columns: dict[str, Any] = {
            "algorithm": [self.label] * len(self),
            "agent": self.agents,
            "round": np.array(self.rounds),
            "trial": np.array(self.trials),
            "pulls": np.array(self.pulls),
            "config": [self._config(row) for row in rows],
            "value": np.array(self.values),
            "failure": [self.failures.get(row, "") for row in rows],
            "regret": np.full(len(self), math.nan),
        }
        if not self.stopped:
            return Table(columns, TRIALS)
        return Table(
            {**columns, "stopped_at": [self.stopped.get(row, math.nan) for row in rows]}, TRIALS | STOPPED
        )

    def times(self) -> Table:
        """Return the table of the times that were disclosed."""
        columns: dict[str, Any] = {
            "algorithm": [self.label] * len(self),
            "agent": self.agents,
            "trial": np.array(self.trials),
            "started": np.array(self.started),
            "ended": np.array(self.ended),
        }
        known = ~np.isnan(columns["started"])
        return Table(columns, TIMES).take(known)

    def _config(self, row: int) -> dict[str, Any]:
        dimension = self.space.dimension
        return self.space.decode(np.array(self.points[row * dimension : (row + 1) * dimension]))
