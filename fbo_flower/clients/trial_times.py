"""When an agent evaluated its trials: measured at the agent, kept in its journal, sent with disclosed trials.

No algorithm sees the times, and `trials.csv` does not hold them, because the same seed gives the same trials.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.records import Array
from fbo_flower.storage.agent_journal import SECONDS, Evaluation
from fbo_flower.wire.disclosure import LATEST_TIME

STARTED = "started"  # with `SECONDS` an entry of `Evaluation.measures`
Times = dict[int, tuple[float, float]]  # first trial of a row -> start and end, seconds since 1970


@dataclass(frozen=True)
class Watch:
    """A watch that was started with an evaluation.

    Parameters
    ----------
    started : seconds since 1970
    before : the monotonic clock at the start, since the other one may be set while an evaluation runs
    """

    started: float
    before: float

    @staticmethod
    def start() -> Watch:
        """Return a watch that starts now."""
        return Watch(time.time(), time.perf_counter())

    def measures(self) -> dict[str, float]:
        """Return start and duration, as `Evaluation.measures` of the journal holds them."""
        return {STARTED: self.started, SECONDS: time.perf_counter() - self.before}


def measures_of(started: float, ended: float) -> dict[str, float]:
    """Return start and duration, as `Evaluation.measures` of the journal holds them."""
    return {STARTED: started, SECONDS: ended - started}


def times_of(evaluation: Evaluation) -> Times:
    """Return the times of a row."""
    measures = evaluation.measures
    return {evaluation.trial: (measures[STARTED], measures[STARTED] + measures[SECONDS])}


def without_times(measures: Mapping[str, float]) -> dict[str, float]:
    """Return the measures that an algorithm sees."""
    return {name: value for name, value in measures.items() if name not in {STARTED, SECONDS}}


def disclosed_times(times: Times, trials: Iterable[int]) -> Array | None:
    """Return start and end of rows, `(k, 2)`; None if one is unknown, or a clock is wrong by centuries."""
    known = [times.get(int(trial), (np.nan, np.nan)) for trial in trials]
    array = np.array(known, dtype=np.float64).reshape(-1, 2)
    return array if ((array >= 0) & (array <= LATEST_TIME)).all() else None
