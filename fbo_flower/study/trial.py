"""`Trial`: one trial of an agent as the server knows it, and the trials of a study's tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fbo_flower.study.dataframe import FAILED, SUCCEEDED
from fbo_flower.study.table import Table

RUNNING = "running"


@dataclass(frozen=True)
class Trial:
    """One disclosed trial of an agent.

    Parameters
    ----------
    agent : its name
    trial : its number at this agent, from 0
    round : the round in which it was evaluated, from 1
    state : "running", "succeeded" or "failed"
    config : the configuration without inactive parameters; empty while the trial is running, because the
        agent chooses it
    value : as the user measures it; NaN unless it succeeded
    failure : why it failed; "" if it did not
    pulls : evaluations that `value` is the mean of
    started, ended : seconds since 1970 by the clock of the agent; NaN if unknown
    intermediate : step -> value that was reported during the evaluation
    """

    agent: str
    trial: int
    round: int
    state: str = RUNNING
    config: Mapping[str, Any] = field(default_factory=dict)
    value: float = math.nan
    failure: str = ""
    pulls: int = 1
    started: float = math.nan
    ended: float = math.nan
    intermediate: Mapping[int, float] = field(default_factory=dict)

    @staticmethod
    def of_row(row: Mapping[str, Any], times: tuple[float, float] | None) -> Trial:
        """Return the trial of a row of `trials.csv`; `times` are its start and end, None if unknown."""
        value = float(row["value"])
        started, ended = times or (math.nan, math.nan)
        return Trial(
            row["agent"], int(row["trial"]), int(row["round"]), SUCCEEDED if math.isfinite(value) else FAILED,
            row["config"], value, row["failure"], int(row["pulls"]), started, ended,
        )  # fmt: skip


def trials_of(trials: Table, times: Table) -> Iterator[Trial]:
    """Yield the trials of one algorithm, from tables with the columns `TRIALS` and `TIMES`."""
    known = {(row["agent"], row["trial"]): (row["started"], row["ended"]) for row in times}
    for row in trials:
        yield Trial.of_row(row, known.get((row["agent"], row["trial"])))
