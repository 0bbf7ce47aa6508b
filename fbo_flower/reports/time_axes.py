"""Draw best values so far against time: seconds since the first evaluation of a run began.

Times are those of `study.times`, by the simulated clock if the run had one, otherwise by the clocks of the
agents. Only trials with a disclosed time count. An agent's value changes when a trial ends and holds until
its next better one, to the end of the run. An agent counts from the end of its first trial with a value;
before that, the mean is over the other agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.curve_axes import (
    HOW_TO_DISCLOSE,
    MAX_POINTS,
    draw_values,
    initial_design,
    nothing_to_draw,
)
from fbo_flower.reports.line_axes import Line, Style, label_ends
from fbo_flower.reports.slice_axes import draw_message
from fbo_flower.reports.summary import mean_and_stderr, target_rows
from fbo_flower.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def check_times(study: Study) -> None:
    """Raise ConfigError if there are no curves against time, or a run has no times."""
    if len(study.models):
        raise ConfigError("--x time: expected a study of best values, got one that selected models")
    missing = [name for name in study.algorithms if not len(study.times.where(algorithm=name))]
    if missing:
        raise ConfigError(
            f"--x time: expected times of trials, got none of {', '.join(missing)}; agents send them with "
            f"their trials: {HOW_TO_DISCLOSE}"
        )


def best_by_time(study: Study, algorithm: str) -> tuple[Array, Array]:
    """Return the target agents' best values so far on one grid of times.

    Returns
    -------
    seconds : `(num_times,)`, ascending times at which a trial of any of them ended
    curves : `(n, num_times)`; NaN before an agent's first success
    """
    ends, seconds, curves = study.times.where(algorithm=algorithm), {}, []
    origin = float(ends["started"].min(initial=np.inf))
    rows = zip(ends["agent"].tolist(), ends["trial"].tolist(), ends["ended"].tolist(), strict=True)
    for agent, trial, ended in rows:
        seconds[agent, trial] = ended - origin
    found: dict[str, list[tuple[float, float]]] = {}
    trials = target_rows(study, study.trials, algorithm)
    values = zip(trials["agent"].tolist(), trials["trial"].tolist(), trials["value"].tolist(), strict=True)
    for agent, trial, value in values:
        if (agent, trial) in seconds:
            found.setdefault(agent, []).append((seconds[agent, trial], value))
    grid = np.unique([time for own in found.values() for time, _ in own])
    better = np.fmin if study.minimizes(algorithm) else np.fmax  # they ignore NaN where they can
    for own in found.values():
        times, best = np.array(sorted(own)).T
        best = np.concatenate([[np.nan], better.accumulate(best)])
        curves.append(best[np.searchsorted(times, grid, side="right")])
    return grid, np.array(curves).reshape(len(found), len(grid))


def draw_by_time(ax: Axes, study: Study, styles: Mapping[str, Style]) -> None:
    """Draw the mean best value so far per algorithm against time, as steps.

    Raises
    ------
    ConfigError
        If the times of an algorithm's trials are unknown, see `check_times`.
    """
    from matplotlib.ticker import MaxNLocator

    check_times(study)
    lines: dict[str, Line] = {}
    own = np.empty((0, 0))
    for algorithm in study.algorithms:
        x, own = best_by_time(study, algorithm)
        points = np.linspace(0, len(x) - 1, min(len(x), MAX_POINTS)).round().astype(int)
        x, own = x[points], own[:, points]
        if np.isfinite(own).any():
            lines[algorithm] = (x, *mean_and_stderr(own))
    if not lines:
        draw_message(ax, nothing_to_draw(study))
        return
    draw_values(ax, study, styles, lines, own, _end_of_initial_design(study), steps=True)
    ax.set_xlim(left=0.0)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter("{x:,g}")
    ax.set_xlabel("Seconds since the first evaluation began; an agent counts from its first value")
    label_ends(ax, lines, styles)


def _end_of_initial_design(study: Study) -> float:
    """Return when the median agent of the fastest algorithm has ended its initial design; 0 without one."""
    number, ends = initial_design(study), [np.inf]
    for algorithm in study.algorithms if number else ():
        times = study.times.where(algorithm=algorithm)
        begin = times["started"].min()
        groups = [np.sort(times["ended"][times["agent"] == agent]) for agent in set(times["agent"].tolist())]
        ends.append(float(np.median([own[min(number, len(own)) - 1] for own in groups]) - begin))
    return min(ends) if number else 0.0
