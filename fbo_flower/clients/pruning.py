"""Stop evaluations early: the settings, the curve of one trial, and the completed curves of an agent.

An objective calls `context.report(step, value)` while it trains and asks `context.should_stop()`. The rule of
a trial is fixed when the trial begins. It is a table of medians, so a worker process judges its own trial,
and trials do not depend on the order in which others end. `CurveBook` makes the rule: the agent's state holds
its completed curves as arrays between two tasks, its journal the curve of every trial.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fbo_flower.algorithms.options import Settings, bounded, check_choice, checked, choice, integer
from fbo_flower.algorithms.records import AnyArray, Array, Trials
from fbo_flower.errors import ConfigError, ObjectiveError, kind_of
from fbo_flower.numerics import curves
from fbo_flower.numerics.curves import forecast, limit_of
from fbo_flower.space.checks import as_real, check_number
from fbo_flower.space.copies import copies
from fbo_flower.wire.codec import LEAST_CURVES, MAX_STEPS

OFF, MEDIAN, FEDERATED = "off", "median", "federated"
RULES = (OFF, MEDIAN, FEDERATED)
PREDICTED, LAST = "predicted", "last"
MAX_REPORTS = 10_000  # values that one trial may report
LATEST_STEP = 2**53  # so that a step is exact as a float64


@dataclass(frozen=True)
class Pruning(Settings):
    """When `context.should_stop()` is true.

    Parameters
    ----------
    rule : "median": the trial's best value so far is worse than the median of the agent's own completed
        trials at this step, as in Optuna's `MedianPruner`, and it is unlikely to become the best of them,
        see `margin`. "federated": the same, and while the agent has fewer than `min_trials`
        completed curves, the pooled medians of other agents stand in for its own. They are compared as they
        are, so this is for objectives that all agents measure on the same scale; a pooled median that no
        completed trial of the agent has reached is ignored. "off": never
    min_trials : completed trials with curves before the agent's own median is used; from then on pooled
        medians are ignored
    warmup_steps : steps below this number never stop a trial. Set it with `margin=None`, where early noise
        stops good trials otherwise
    max_stopped : largest share of the agent's trials in a study that pooled medians may have stopped
    learns : what algorithms learn of a stopped trial. "predicted": the value that it would have had, as the
        agent's completed curves predict it (`numerics.curves`); without one, the last value.
        "last": the last value that it reported. Tables, best values and disclosed trials hold the last value
        either way
    margin : a trial stops only if it is also predicted to end below the best of the agent's completed trials
        by this many standard deviations of what these gained from this step on. So early noise stops few
        trials: while curves do not tell good from bad, gains differ much. None: the medians alone decide, as
        in Optuna

    Raises
    ------
    ConfigError
        If a setting is out of bounds.
    """

    rule: str = checked(MEDIAN, lambda value: check_choice("pruning", value, RULES))
    min_trials: int = integer(5, 1)
    warmup_steps: int = integer(0, 0)
    max_stopped: float = bounded(0.5, 0, 1)
    learns: str = choice(PREDICTED, (PREDICTED, LAST))
    margin: float | None = checked(2.5, lambda v: None if v is None else check_number("margin", v, 0))

    @staticmethod
    def read(node_config: Mapping[str, Any], app: object) -> Pruning:
        """Return the app's settings, with the rule that the operator names as `pruning` in `node_config`.

        Parameters
        ----------
        app : a `Pruning`, the name of a rule, or None for the defaults

        Raises
        ------
        ConfigError
            If the operator or the app names no rule.
        """
        if app is None:
            app = Pruning()
        elif isinstance(app, str):
            app = Pruning(app)
        elif not isinstance(app, Pruning):
            raise ConfigError(
                f"pruning: expected Pruning(...) or one of {', '.join(RULES)}, got {kind_of(app)}"
            )
        if "pruning" not in node_config:
            return app
        return replace(app, rule=str(node_config["pruning"]))


@copies("steps", "values")
@dataclass
class Curve:
    """The values that a trial has reported so far.

    Parameters
    ----------
    limits : step -> the value below which the best one so far stops the trial; steps without one never do.
        None: the trial never stops, and nobody learns from it
    from_others : whether the limits are pooled medians of other agents
    is_loss : whether the objective reports a loss; `values` hold it with its sign changed
    steps, values : ascending steps, and the value at each
    stopped : whether `should_stop` was true; it stays true
    """

    limits: Mapping[int, float] | None = None
    from_others: bool = False
    is_loss: bool = False
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    stopped: bool = False

    def report(self, step: object, value: object) -> None:
        """Add a value.

        ObjectiveError if the step is not an integer above the last one, or the value not a finite number.
        """
        number = as_real(step)
        if not isinstance(number, int):
            raise ObjectiveError(f"report: step: expected an integer, got {kind_of(step)}")
        steps, values = vars(self)["steps"], vars(self)["values"]  # its own
        least = steps[-1] + 1 if steps else 0
        if not least <= number <= LATEST_STEP:
            raise ObjectiveError(
                f"report: step: expected an integer of at least {least}, got {number}; report each step "
                "once, in ascending order, beginning at 0 or later"
            )
        measured = as_real(value)
        if measured is None:
            raise ObjectiveError(f"report: value: expected a finite number, got {kind_of(value)}")
        if not math.isfinite(measured):
            raise ObjectiveError(
                f"report: value: expected a finite number at step {number}, got {measured}; if training "
                "has diverged, raise an exception or return the worst value of the metric"
            )
        if len(steps) >= MAX_REPORTS:
            raise ObjectiveError(
                f"report: expected at most {MAX_REPORTS} values of one trial; report every epoch, not every "
                "batch"
            )
        steps.append(number)
        values.append((-float(measured) if self.is_loss else float(measured)) + 0.0)  # no -0.0

    def should_stop(self) -> bool:
        """Return whether the trial should stop after the last reported step."""
        steps, values = vars(self)["steps"], vars(self)["values"]
        if not self.stopped and steps and self.limits:
            self.stopped = max(values) < self.limits.get(steps[-1], -math.inf)
        return self.stopped


BY_OTHERS = "stopped by pooled medians"  # a measure of a trial
_STEPS, _VALUES, _LENGTHS, _COUNTS = "curves.steps", "curves.values", "curves.lengths", "curves.counts"
_FINALS = "curves.finals"


def columns_of(curve: Curve) -> dict[str, Any]:
    """Return the columns in which a trial's row holds its curve; empty if there is nothing to learn from."""
    if curve.limits is None or not curve.steps:
        return {}
    columns: dict[str, Any] = {"curve": np.array([curve.steps, curve.values], dtype=np.float64)}
    if curve.stopped:
        columns["stopped"] = np.array(curve.steps[-1:])
        columns["measures"] = {BY_OTHERS: np.ones(1)} if curve.from_others else {}
    return columns


@dataclass
class CurveBook:
    """The values of completed trials by step.

    Parameters
    ----------
    pruning : the settings
    others : summary `(k, 3)` of other agents, see `numerics.curves`; None: there is none
    by_step : step -> values of the completed trials there, in the order of trials
    finals : step -> what the objective returned in these trials, in the same order
    num_curves : number of completed trials with a curve
    num_by_others : how many trials pooled medians have stopped
    """

    pruning: Pruning = field(default_factory=Pruning)
    others: Array | None = None
    by_step: dict[int, list[float]] = field(default_factory=dict)
    finals: dict[int, list[float]] = field(default_factory=dict)
    num_curves: int = 0
    num_by_others: int = 0
    _own: dict[int, float] | None = field(default=None, compare=False)  # limits, until the next own curve

    @staticmethod
    def read(arrays: Mapping[str, AnyArray], pruning: Pruning, others: Array | None = None) -> CurveBook:
        """Return the book in the arrays of an agent's state."""
        book = CurveBook(pruning, others)
        if _COUNTS not in arrays:
            return book
        steps, lengths, counts = (
            np.asarray(arrays[name], dtype=np.int64).tolist() for name in (_STEPS, _LENGTHS, _COUNTS)
        )
        book.num_curves, book.num_by_others = counts
        # without steps there is one empty part
        for name, columns in ((_VALUES, book.by_step), (_FINALS, book.finals)):
            parts = np.split(np.asarray(arrays[name], dtype=np.float64), np.cumsum(lengths)[:-1])
            columns.update(zip(steps, (part.tolist() for part in parts), strict=False))
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
            _COUNTS: np.array([self.num_curves, self.num_by_others], dtype=np.int64),
        }

    def add(self, row: Trials) -> Trials:
        """Note a trial with a curve that has ended, and return it; only completed ones count for medians.

        One that was stopped is returned with the value that it would have had, if that can be predicted.
        """
        if row.stopped is not None:
            self.num_by_others += BY_OTHERS in row.measures
            value = forecast(*self._at(int(row.stopped[0])), float(row.values[0]))
            if self.pruning.learns == PREDICTED and math.isfinite(value):
                return replace(row, predicted=np.array([value]))
        elif row.curve is not None and row.failures is None:
            self.num_curves += 1
            self._own = None
            for step, value in row.curve.T.tolist():
                self.by_step.setdefault(int(step), []).append(value)
                self.finals.setdefault(int(step), []).append(float(row.values[0]))
        return row

    def _at(self, step: int) -> tuple[Array, Array]:
        """Return the values `(n,)` of completed trials at a step, and their final ones."""
        values, finals = (np.array(d.get(step, ()), dtype=np.float64) for d in (self.by_step, self.finals))
        known = np.isfinite(finals)
        return values[known], finals[known]

    def _limited(self, medians: Mapping[int, float]) -> dict[int, float]:
        """Return step -> the value below which a trial stops: the median, or less because of the margin."""
        margin, first = self.pruning.margin, self.pruning.warmup_steps
        limits = {step: median for step, median in medians.items() if step >= first}
        if margin is not None:
            limits = {step: min(median, limit_of(*self._at(step), margin)) for step, median in limits.items()}
        return {step: limit for step, limit in limits.items() if limit > -math.inf}

    def rule(self, trial: int, pending: int = 0) -> tuple[Mapping[int, float], bool]:
        """Return the rule of a trial: its limits, see `Curve`, and whether they are from other agents.

        The agent's own curves come first, and they alone tell how sure a prediction is. A pooled median
        counts only where a completed trial of the agent has reached it: above that it is on another scale,
        or a lie. And pooled medians may stop a trial only if, with it, they have stopped no larger share of
        the trials than `max_stopped`.

        Parameters
        ----------
        pending : number of earlier trials under way, each of which pooled medians may stop as well
        """
        pruning = self.pruning
        if pruning.rule == OFF:
            return {}, False
        if self.num_curves >= pruning.min_trials:
            if self._own is None:
                self._own = self._limited(curves.medians_of(self.by_step))
            return self._own, False
        if pruning.rule != FEDERATED or self.others is None:
            return {}, False
        if self.num_by_others + pending + 1 > pruning.max_stopped * (trial + 1):
            return {}, False
        medians = {
            int(step): median
            for step, median in self.others[:, [curves.STEP, curves.MEDIAN]].tolist()
            if median <= max(self.by_step.get(int(step), ()), default=-math.inf)
        }
        return self._limited(medians), True

    def summary(self) -> Array:
        """Return the summary `(k, 3)` of the agent's own completed curves, which it may share."""
        return curves.summary_of(self.by_step, LEAST_CURVES, MAX_STEPS)
