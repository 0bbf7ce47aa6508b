"""`CurveBook`: an agent's completed curves of a study, and the rule that they make for the next trial.

The agent's state holds them as arrays between two tasks, its journal holds the curve of every trial.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fbo_flower.algorithms.records import AnyArray, Array
from fbo_flower.clients.pruning import FEDERATED, OFF, PREDICTED, Curve, Pruning, StopRule
from fbo_flower.numerics.curve_forecast import forecast, limit_of
from fbo_flower.numerics.median_rule import MEDIAN, STEP, medians_of, summary_of
from fbo_flower.storage.agent_journal import Evaluation
from fbo_flower.storage.read_curves import STOPPED_AT, curve_from_bytes
from fbo_flower.wire.curves import LEAST_CURVES, MAX_STEPS

BY_OTHERS = "stopped by pooled medians"  # with `STOPPED_AT` an entry of `Evaluation.measures`
_STEPS, _VALUES, _LENGTHS, _COUNTS = "curves.steps", "curves.values", "curves.lengths", "curves.counts"
_FINALS = "curves.finals"


def measures_of_curve(curve: Curve | None) -> dict[str, float]:
    """Return what the journal holds of a trial that was stopped early; empty if it was not."""
    if curve is None or not curve.stopped:
        return {}
    by_others = {BY_OTHERS: 1.0} if curve.rule.from_others else {}
    return {STOPPED_AT: float(curve.steps[-1]), **by_others}


def curve_to_bytes(curve: Curve | None) -> bytes | None:
    """Return the reported values of a trial as JSON, for the journal; None if it reported none."""
    if curve is None or not curve.steps:
        return None
    return json.dumps({"steps": curve.steps, "values": curve.values}).encode()


def stopped_at(evaluation: Evaluation) -> int | None:
    """Return the last step of a trial that was stopped early; None if it was not."""
    step = evaluation.measures.get(STOPPED_AT)
    return None if step is None else int(step)


@dataclass
class CurveBook:
    """The values of completed trials by step.

    Parameters
    ----------
    pruning : the settings
    others : summary `(k, 3)` of other agents, see `numerics.median_rule`; None: there is none
    by_step : step -> values of the completed trials there, in the order of trials
    finals : step -> what the objective returned in these trials, in the same order
    predicted : id of a trial that was stopped early -> the value that it would have had; only of trials that
        were added to this object
    num_curves : number of completed trials with a curve
    num_trials, num_by_others : trials so far, and how many of them pooled medians have stopped
    """

    pruning: Pruning = field(default_factory=Pruning)
    others: Array | None = None
    by_step: dict[int, list[float]] = field(default_factory=dict)
    finals: dict[int, list[float]] = field(default_factory=dict)
    predicted: dict[int, float] = field(default_factory=dict, compare=False)
    num_curves: int = 0
    num_trials: int = 0
    num_by_others: int = 0
    _own: dict[int, float] | None = field(
        default=None, compare=False
    )  # limits by own curves, until the next one

    @staticmethod
    def read(arrays: Mapping[str, AnyArray], pruning: Pruning, others: Array | None = None) -> CurveBook:
        """Return the book in the arrays of an agent's state."""
        book = CurveBook(pruning, others)
        if _COUNTS not in arrays:
            return book
        steps, lengths = (np.asarray(arrays[n], dtype=np.int64).tolist() for n in (_STEPS, _LENGTHS))
        values = np.asarray(arrays[_VALUES], dtype=np.float64)
        finals = np.asarray(arrays[_FINALS], dtype=np.float64)
        book.by_step, book.finals = (_by_step(steps, lengths, column) for column in (values, finals))
        counts = np.asarray(arrays[_COUNTS], dtype=np.int64).tolist()
        book.num_curves, book.num_trials, book.num_by_others = counts
        return book

    def arrays(self) -> dict[str, AnyArray]:
        """Return the book as arrays for the agent's state; none if no trial has reported anything."""
        if not self.by_step and not self.num_by_others:
            return {}
        values, finals = (
            np.array([value for column in columns.values() for value in column], dtype=np.float64)
            for columns in (self.by_step, self.finals)
        )
        return {
            _STEPS: np.array(list(self.by_step), dtype=np.int64),
            _VALUES: values,
            _FINALS: finals,
            _LENGTHS: np.array([len(column) for column in self.by_step.values()], dtype=np.int64),
            _COUNTS: np.array([self.num_curves, self.num_trials, self.num_by_others], dtype=np.int64),
        }

    def add(self, evaluation: Evaluation) -> None:
        """Note a trial that has ended; only completed ones count for the medians."""
        self.num_trials += 1
        if (step := stopped_at(evaluation)) is not None:
            self.num_by_others += BY_OTHERS in evaluation.measures
            self._predict(evaluation, step)
        elif evaluation.artifact is not None and not evaluation.failure:
            self.num_curves += 1
            self._own = None
            for step, value in zip(*curve_from_bytes(evaluation.artifact), strict=True):
                self.by_step.setdefault(step, []).append(value)
                self.finals.setdefault(step, []).append(evaluation.value)

    def _predict(self, evaluation: Evaluation, step: int) -> None:
        """Note the value that a stopped trial would have had, if completed trials tell it."""
        if self.pruning.learns != PREDICTED:
            return
        value = forecast(*self._at(step), evaluation.value)
        if math.isfinite(value):
            self.predicted[evaluation.trial] = value

    def _at(self, step: int) -> tuple[Array, Array]:
        """Return the values `(n,)` of completed trials at a step, and their final ones."""
        values, finals = (np.array(d.get(step, ()), dtype=np.float64) for d in (self.by_step, self.finals))
        known = np.isfinite(finals)
        return values[known], finals[known]

    def _limited(self, medians: Mapping[int, float]) -> dict[int, float]:
        """Return step -> the value below which a trial stops: the median, or less because of the margin."""
        margin, first = self.pruning.margin, self.pruning.warmup_steps
        if margin is None:
            return dict(medians)
        limits = {s: min(m, limit_of(*self._at(s), margin)) for s, m in medians.items() if s >= first}
        return {step: limit for step, limit in limits.items() if limit > -math.inf}

    def rule(self, pending: int = 0) -> StopRule:
        """Return the rule of the next trial.

        The agent's own curves come first, and they alone tell how sure a prediction is. A pooled median
        counts only where a completed trial of the agent has reached it: above that it is on another scale,
        or a lie. And pooled medians may stop a trial only if, with it, they have stopped no larger share of
        the trials than `max_stopped`.

        Parameters
        ----------
        pending : number of trials under way, each of which pooled medians may stop as well
        """
        pruning = self.pruning
        if pruning.rule == OFF:
            return StopRule()
        if self.num_curves >= pruning.min_trials:
            if self._own is None:
                self._own = self._limited(medians_of(self.by_step))
            return StopRule(self._own, pruning.warmup_steps)
        if pruning.rule != FEDERATED or self.others is None:
            return StopRule()
        begun = self.num_trials + pending + 1
        if self.num_by_others + pending + 1 > pruning.max_stopped * begun:
            return StopRule()
        medians = {
            int(step): median
            for step, median in self.others[:, [STEP, MEDIAN]].tolist()
            if median <= max(self.by_step.get(int(step), ()), default=-math.inf)
        }
        return StopRule(self._limited(medians), pruning.warmup_steps, from_others=True)

    def summary(self) -> Array:
        """Return the summary `(k, 3)` of the agent's own completed curves, which it may share."""
        return summary_of(self.by_step, LEAST_CURVES, MAX_STEPS)


def _by_step(steps: list[int], lengths: list[int], column: Array) -> dict[int, list[float]]:
    values = iter(column.tolist())
    return {step: [next(values) for _ in range(length)] for step, length in zip(steps, lengths, strict=True)}
