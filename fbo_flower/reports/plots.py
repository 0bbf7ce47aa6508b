"""Draw a study as two pictures: `figure` shows what was found, `traffic_figure` what it cost.

The first has the best values so far, values against the parameters that matter most, and the agents' best
configurations. With one algorithm there is a faint line per agent and their mean. With several, there is one
line per algorithm, the mean over agents, with a band of one standard error to either side. If the optimum is
known, the figure shows simple regret (logarithmic) and cumulative regret instead of best values; otherwise
the axis starts near the end of the initial design, whose values are often very low. What agents did not
disclose is missing, and the picture says so. Best values can also be drawn against time, see `time_axes`.

The second has the floats exchanged by round, bytes per agent and round, and what left the agents.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.curve_axes import HOW_TO_DISCLOSE, draw_incumbents, draw_regret
from fbo_flower.reports.front_axes import draw_selections
from fbo_flower.reports.line_axes import GREY, Style
from fbo_flower.reports.pictures import require_matplotlib
from fbo_flower.reports.slice_axes import draw_best, draw_message, draw_slice, draw_table, value_limits
from fbo_flower.reports.slices import Slice, most_important, study_slices
from fbo_flower.reports.styles import study_styles
from fbo_flower.reports.summary import summarise
from fbo_flower.reports.time_axes import check_times, draw_by_time
from fbo_flower.reports.titles import metric_of, study_title, traffic_title
from fbo_flower.reports.traffic_axes import (
    draw_bytes,
    draw_communication,
    floats_by_round,
    privacy_cells,
)
from fbo_flower.storage.files import atomic_file
from fbo_flower.study.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

WIDTH = 10.0  # inches of a picture, so that its text is readable on a page
_MAX_SLICES = 6
_MAX_BEST = 5  # rows of the table of best configurations
_LINE_HEIGHT = 0.18  # inches of a table's row
AXES = ("evaluations", "time")  # what best values are drawn against
FORMATS = (".pdf", ".png", ".svg")


def plot_study(
    study: Study, path: str | os.PathLike[str], *, title: str | None = None, x: str = "evaluations"
) -> None:
    """Draw what a study found and write the picture; an error leaves no partial file.

    Parameters
    ----------
    study : with at least one run
    path : ends in .png, .pdf or .svg
    title : None: the problem, the metric and the number of agents
    x : one of `AXES`: what best values are drawn against

    Raises
    ------
    ConfigError
        If matplotlib is not installed, times are wanted and unknown, or the file cannot be written.
    """
    _write(path, lambda: figure(study, title=title, x=x))


def plot_traffic(study: Study, path: str | os.PathLike[str], *, title: str | None = None) -> None:
    """Draw what a study sent and write the picture; parameters and errors are those of `plot_study`."""
    _write(path, lambda: traffic_figure(study, title=title))


def has_traffic(study: Study) -> bool:
    """Return whether any bytes were counted."""
    return bool((study.rounds["bytes_down"] + study.rounds["bytes_up"]).sum() > 0)


def check_x(study: Study, x: str) -> None:
    """Raise ConfigError if best values cannot be drawn against `x`."""
    if x not in AXES:
        raise ConfigError(f"--x: expected {' or '.join(AXES)}, got {x!r}")
    if x == "time":
        check_times(study)


def figure(study: Study, *, title: str | None = None, x: str = "evaluations") -> Figure:
    """Draw what a study found and return the figure, which the caller may change.

    Parameters
    ----------
    x : "evaluations", or "time": best values as steps against seconds, also where the optimum is known

    Raises
    ------
    ConfigError
        If matplotlib is not installed, models were exchanged and none was judged, or times are wanted and
        unknown.
    """
    check_x(study, x)
    require_matplotlib()
    from matplotlib.figure import Figure

    styles = study_styles(study)
    title = study_title(study) if title is None else title
    if len(study.models):
        drawing = Figure(layout="constrained", facecolor="white")
        draw_selections(drawing, study, styles)
        _write_title(drawing, title)
        return drawing

    slices = study_slices(study) if len(study.recommendations) else []
    chosen = most_important(study, slices, _MAX_SLICES)
    num_rows = -(-len(chosen) // 3)
    num_best = min(len(study.best), _MAX_BEST)
    heights = [3.5, 2.5 * num_rows if chosen else 0.7]
    heights += [0.55 + _LINE_HEIGHT * (num_best + 1)] if num_best else []
    if not any(np.isfinite(values).any() for values in _values(study)):
        heights = [1.4]  # a message instead of all the rest
    drawing = Figure(figsize=(WIDTH, sum(heights)), layout="constrained", facecolor="white")
    parts = drawing.subfigures(len(heights), 1, height_ratios=heights, squeeze=False).ravel()
    if x == "time":
        draw_by_time(parts[0].subplots(), study, styles)
    elif len(study.regret):
        simple, cumulative = parts[0].subplots(1, 2)
        draw_regret(simple, cumulative, study, styles)
    else:
        draw_incumbents(parts[0].subplots(), study, styles)
    if len(heights) == 1:
        pass  # the curves' axes have said why there is nothing to draw
    elif chosen:
        _draw_slices(parts[1], study, chosen, len(slices), styles)
    else:
        draw_message(parts[1].subplots(), f"No configurations were disclosed; to see them, {HOW_TO_DISCLOSE}")
    if num_best:
        draw_best(parts[2].subplots(), study, chosen, _MAX_BEST)
    _write_title(parts[0], title)
    return drawing


def _values(study: Study) -> tuple[Array, ...]:
    known = study.rounds["mean_incumbent"], study.recommendations["value"], study.regret["simple"]
    return study.trials["value"], *known


def traffic_figure(study: Study, *, title: str | None = None) -> Figure:
    """Draw what a study sent and return the figure, which the caller may change.

    Raises
    ------
    ConfigError
        If no bytes were counted or matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    if not has_traffic(study):
        raise ConfigError("traffic: expected a study with counted bytes, got none")
    styles = study_styles(study)
    head, rows = privacy_cells(study)
    traffic = {row.algorithm: (row.bytes_down, row.bytes_up) for row in summarise(study)}
    heights = [max(3.4, 0.6 * len(traffic) + 1.0), 0.55 + _LINE_HEIGHT * (len(rows) + 1)]
    drawing = Figure(figsize=(WIDTH, sum(heights)), layout="constrained", facecolor="white")
    above, below = drawing.subfigures(2, 1, height_ratios=heights, squeeze=False).ravel()
    if any(total[-1] > 0 for _, total, _ in floats_by_round(study).values()):
        left, right = above.subplots(1, 2, width_ratios=[1.6, 1.0])
        draw_communication(left, study, styles)
    else:
        right = above.subplots()
    draw_bytes(right, traffic, styles)
    draw_table(below.subplots(), head, rows, "What left each agent")
    _write_title(above, traffic_title(study) if title is None else title)
    return drawing


def _draw_slices(
    part: SubFigure, study: Study, chosen: list[Slice], num_parameters: int, styles: Mapping[str, Style]
) -> None:
    columns = min(len(chosen), 3) if len(chosen) != 4 else 2
    axes = part.subplots(-(-len(chosen) // columns), columns, squeeze=False, sharey=True).ravel()
    disclosed = np.concatenate([study.trials["value"], study.recommendations["value"]])
    minimize = study.any_minimizes
    low, high, _ = value_limits(disclosed, minimize=minimize)
    values = study.trials["value"]
    hidden = int((values > high).sum() if minimize else (values < low).sum())
    for place, (ax, slice_) in enumerate(zip(axes, chosen, strict=False)):
        draw_slice(ax, study, slice_, styles)
        ax.set_ylim(low, high)
        if place % columns == 0:
            ax.set_ylabel((metric_of(study) or "value").capitalize(), parse_math=False)
    for ax in axes[len(chosen) :]:
        ax.set_visible(False)
    what = "Value against each parameter"
    if len(chosen) < num_parameters:
        what = f"Value against the {len(chosen)} parameters of {num_parameters} that explain most of it"
    axes[0].set_title(what, fontsize=10, loc="left")
    notes = ["ringed: best of each agent"] + (
        [f"{hidden} {'higher' if minimize else 'lower'} values not shown"] if hidden else []
    )
    axes[columns - 1].set_title("; ".join(notes), fontsize=8, color=GREY, loc="right")


def _write(path: str | os.PathLike[str], make: Callable[[], Figure]) -> None:
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ConfigError(f"{path}: expected a name that ends in {', '.join(FORMATS)}, got {suffix!r}")
    picture = io.BytesIO()
    make().savefig(picture, format=suffix[1:], dpi=200)
    with atomic_file(path) as file:
        file.write(picture.getvalue())


def _write_title(drawing: Figure | SubFigure, title: str) -> None:
    drawing.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", parse_math=False)
