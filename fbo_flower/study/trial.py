"""`Trial`: one trial of an agent as the server knows it, and the trials of a study's tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fbo_flower.study.dataframe import FAILED, STOPPED_EARLY, SUCCEEDED
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
    state : "running", "succeeded", "failed" or "stopped early"
    config : the configuration without inactive parameters; empty while the trial is running, because the
        agent chooses it
    value : as the user measures it, of a stopped trial the last one that it reported; NaN if it failed or is
        running
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
        value, last = float(row["value"]), float(row.get("stopped_at", math.nan))
        state = SUCCEEDED if math.isfinite(value) else FAILED
        stopped = not math.isnan(last)
        started, ended = times or (math.nan, math.nan)
        return Trial(
            row["agent"], int(row["trial"]), int(row["round"]), STOPPED_EARLY if stopped else state,
            row["config"], value, row["failure"], int(row["pulls"]), started, ended,
            {int(last): value} if stopped else {},
        )  # fmt: skip


def trials_of(trials: Table, times: Table) -> Iterator[Trial]:
    """Yield the trials of one algorithm, from tables with the columns `TRIALS` and `TIMES`."""
    known = {(row["agent"], row["trial"]): (row["started"], row["ended"]) for row in times}
    for row in trials:
        yield Trial.of_row(row, known.get((row["agent"], row["trial"])))
