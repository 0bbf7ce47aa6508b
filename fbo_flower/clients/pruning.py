"""Stop evaluations early: the operator's settings, the rule of one trial, and the curve that it reports.

An objective calls `context.report(step, value)` while it trains and asks `context.should_stop()`. The rule of
a trial is fixed when the trial begins. It is a table of medians, so a worker process judges its own trial,
and trials do not depend on the order in which others end.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fbo_flower.algorithms.options import check_number
from fbo_flower.errors import ConfigError, ObjectiveError, kind_of

OFF, MEDIAN, FEDERATED = "off", "median", "federated"
RULES = (OFF, MEDIAN, FEDERATED)
PREDICTED, LAST = "predicted", "last"
MAX_REPORTS = 10_000  # values that one trial may report
LATEST_STEP = 2**53  # so that a step is exact as a float64


@dataclass(frozen=True)
class Pruning:
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
        agent's completed curves predict it (`numerics.curve_forecast`); without one, the last value.
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

    rule: str = MEDIAN
    min_trials: int = 5
    warmup_steps: int = 0
    max_stopped: float = 0.5
    learns: str = PREDICTED
    margin: float | None = 2.5

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ConfigError(f"pruning: expected one of {', '.join(RULES)}, got {self.rule!r}")
        check_number("min_trials", self.min_trials, 1, integer=True)
        check_number("warmup_steps", self.warmup_steps, 0, integer=True)
        check_number("max_stopped", self.max_stopped, 0, 1)
        if self.learns not in (PREDICTED, LAST):
            raise ConfigError(f"learns: expected {PREDICTED!r} or {LAST!r}, got {self.learns!r}")
        if self.margin is not None:
            check_number("margin", self.margin, 0)

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


@dataclass(frozen=True)
class StopRule:
    """The rule of one trial.

    Parameters
    ----------
    medians : step -> the value below which a trial stops; steps without a median never stop it
    warmup_steps : see `Pruning`
    from_others : whether the medians are pooled ones of other agents
    """

    medians: Mapping[int, float] = field(default_factory=dict)
    warmup_steps: int = 0
    from_others: bool = False

    def stops(self, step: int, best: float) -> bool:
        """Return whether a trial stops whose best value up to `step` is `best`."""
        return step >= self.warmup_steps and best < self.medians.get(step, -math.inf)


_NEVER = StopRule()


@dataclass
class Curve:
    """The values that a trial has reported so far.

    Parameters
    ----------
    rule : when it stops
    is_loss : whether the objective reports a loss; `values` hold it with its sign changed
    steps, values : ascending steps, and the value at each
    stopped : whether `should_stop` was true; it stays true
    """

    rule: StopRule = _NEVER
    is_loss: bool = False
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    stopped: bool = False

    def report(self, step: object, value: object) -> None:
        """Add a value.

        Raises
        ------
        ObjectiveError
            If the step is not an integer above the last one, or the value not a finite number.
        """
        if isinstance(step, bool | np.bool_) or not isinstance(step, int | np.integer):
            raise ObjectiveError(f"report: step: expected an integer, got {kind_of(step)}")
        least = self.steps[-1] + 1 if self.steps else 0
        if not least <= step <= LATEST_STEP:
            raise ObjectiveError(
                f"report: step: expected an integer of at least {least}, got {step}; report each step once, "
                "in ascending order, beginning at 0 or later"
            )
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value.item()
        if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
            raise ObjectiveError(f"report: value: expected a finite number, got {kind_of(value)}")
        if not math.isfinite(value):
            raise ObjectiveError(
                f"report: value: expected a finite number at step {step}, got {float(value)}; if training "
                "has diverged, raise an exception or return the worst value of the metric"
            )
        if len(self.steps) >= MAX_REPORTS:
            raise ObjectiveError(
                f"report: expected at most {MAX_REPORTS} values of one trial; report every epoch, not every "
                "batch"
            )
        self.steps.append(int(step))
        self.values.append((-float(value) if self.is_loss else float(value)) + 0.0)  # no -0.0

    def should_stop(self) -> bool:
        """Return whether the trial should stop after the last reported step."""
        if not self.stopped and self.steps:
            self.stopped = self.rule.stops(self.steps[-1], max(self.values))
        return self.stopped
