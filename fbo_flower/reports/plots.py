"""Draw a study as one figure: best values against evaluations, and the traffic that they cost.

A panel with the floats exchanged is added if an algorithm exchanges any.

Lines are means over agents, bands are one standard error to either side. If the optimum is known, the figure
shows simple regret (logarithmic) and cumulative regret, otherwise the best values so far; the axis then
starts near the end of the initial design, whose values are often very low.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.front_axes import draw_selections
from fbo_flower.reports.line_axes import (
    Line,
    Style,
    draw_lines,
    explain_bands,
    label_ends,
    mark_initial_design,
    use_logarithm,
    zoom,
)
from fbo_flower.reports.pictures import require_matplotlib
from fbo_flower.reports.styles import study_styles
from fbo_flower.reports.summary import agent_curves, mean_and_stderr, summarise, target_rows
from fbo_flower.reports.traffic_axes import draw_bytes, draw_communication, floats_by_round
from fbo_flower.storage.files import atomic_file
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_POINTS = 1000  # points of a line; bandits make 10^5 evaluations
_FORMATS = (".pdf", ".png", ".svg")


def plot_study(study: Study, path: str | os.PathLike[str], *, title: str | None = None) -> None:
    """Draw a study and write the picture; an error leaves no partial file.

    Parameters
    ----------
    study : with trials, regret or mean incumbents to show
    path : ends in .png, .pdf or .svg
    title : None: the problem and the number of agents

    Raises
    ------
    ConfigError
        If there is nothing to show, matplotlib is not installed, or the file cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise ConfigError(f"{path}: expected a name that ends in {', '.join(_FORMATS)}, got {suffix!r}")
    picture = io.BytesIO()
    figure(study, title=title).savefig(picture, format=suffix[1:], dpi=200)
    with atomic_file(path) as file:
        file.write(picture.getvalue())


def figure(study: Study, *, title: str | None = None) -> Figure:
    """Draw a study and return the figure, which the caller may change.

    Raises
    ------
    ConfigError
        If there is nothing to show or matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    styles = study_styles(study)
    if len(study.models):
        drawing = Figure(layout="constrained", facecolor="white")
        draw_selections(drawing, study, styles)
        _write_title(drawing, _title(study) if title is None else title)
        return drawing
    traffic = {row.algorithm: (row.bytes_down, row.bytes_up) for row in summarise(study)}
    has_traffic = any(down + up > 0 for down, up in traffic.values())
    has_regret = len(study.regret) > 0
    has_floats = any(total[-1] > 0 for _, total, _ in floats_by_round(study).values())

    num_lines = (2 if has_regret else 1) + has_floats
    widths = [4.3 if has_regret or has_floats else 5.2] * num_lines + [2.2] * has_traffic
    rows = 2 if len(widths) > 3 else 1  # four panels form a square
    widths = widths[:2] if rows == 2 else widths
    size = (sum(widths) + 0.8 * min(num_lines, len(widths)), 3.9 * rows)
    drawing = Figure(figsize=size, facecolor="white")
    drawing.set_layout_engine("constrained", h_pad=0.1 if rows == 2 else 0.04)
    axes = list(drawing.subplots(rows, len(widths), width_ratios=widths, squeeze=False).ravel())
    if has_regret:
        _draw_regret(axes.pop(0), axes.pop(0), study, styles)
    else:
        _draw_incumbents(axes.pop(0), study, styles)
    if has_floats:
        draw_communication(axes.pop(0), study, styles)
    if has_traffic:
        draw_bytes(axes.pop(0), traffic, styles)
    _write_title(drawing, _title(study) if title is None else title)
    return drawing


def _write_title(drawing: Figure, title: str) -> None:
    drawing.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", parse_math=False)


def _draw_incumbents(ax: Axes, study: Study, styles: Mapping[str, Style]) -> None:
    lines: dict[str, Line] = {}
    for algorithm in study.algorithms:
        _, curves = agent_curves(study, algorithm)
        x = np.arange(1.0, curves.shape[1] + 1)
        lines[algorithm] = (x, *mean_and_stderr(curves))
    unit = "Evaluations per agent"
    if not any(
        len(x) for x, _, _ in lines.values()
    ):  # agents disclosed no trials: use the means that the strategy saw
        unit = "Round"
        for algorithm in study.algorithms:
            rounds = study.rounds.where(algorithm=algorithm)
            mean = rounds["mean_incumbent"]
            lines[algorithm] = (rounds["round"].astype(float), mean, np.full(len(mean), np.nan))
    lines = {name: line for name, line in lines.items() if np.isfinite(line[1]).any()}
    if not lines:
        raise ConfigError("figure: expected a study with successful trials or mean incumbents, got none")
    draw_lines(ax, lines, styles)
    metrics = {str(run["metric"]) for run in study.settings["runs"] if run.get("metric")}
    name = metrics.pop() if len(metrics) == 1 else "value"
    ax.set_ylabel(f"Best {name} so far", parse_math=False)
    ax.set_xlabel(unit)
    num_initial = _num_initial(study) if unit != "Round" else 0
    minimize = any(study.minimizes(algorithm) for algorithm in lines)
    zoom(ax, lines, num_initial, minimize=minimize)
    explain_bands(ax, lines, at_top=minimize)
    mark_initial_design(ax, num_initial)
    label_ends(ax, lines, styles)


def _draw_regret(simple: Axes, cumulative: Axes, study: Study, styles: Mapping[str, Style]) -> None:
    for ax, column, name in (
        (simple, "simple", "Simple regret"),
        (cumulative, "cumulative", "Cumulative regret"),
    ):
        lines: dict[str, Line] = {}
        for algorithm in study.algorithms:
            rows = target_rows(study, study.regret, algorithm)
            if np.isfinite(rows[column]).any():
                x, curves = _steps(rows, column)
                lines[algorithm] = (x, *mean_and_stderr(curves))
        if not lines:
            raise ConfigError(f"figure: expected known values of {name.lower()}, got only NaN")
        if column == "simple":
            lines = use_logarithm(ax, lines)
        draw_lines(ax, lines, styles)
        explain_bands(ax, lines, at_top=column == "simple")
        ax.set_xlabel("Evaluations per agent")
        ax.set_ylabel(name)
        mark_initial_design(ax, _num_initial(study))
        label_ends(ax, lines, styles)


def _steps(rows: Table, column: str) -> tuple[Array, Array]:
    """Return all agents' curves on one grid of evaluations; a value holds until the agent's next row.

    Returns
    -------
    x : `(num_points,)`
    curves : `(n, num_points)`; NaN before an agent's first and after its last row
    """
    grid = np.unique(rows["evaluations"])
    if len(grid) > _MAX_POINTS:
        grid = grid[np.linspace(0, len(grid) - 1, _MAX_POINTS).round().astype(int)]
    agents, agent = np.unique(rows["agent"].astype(str), return_inverse=True)
    curves = np.full((len(agents), len(grid)), np.nan)
    order, ends = np.argsort(agent, kind="stable"), np.cumsum(np.bincount(agent, minlength=len(agents)))
    for i, own in enumerate(np.split(order, ends[:-1])):
        evaluations, values = rows["evaluations"][own], rows[column][own]
        last = np.searchsorted(evaluations, grid, side="right") - 1
        curves[i] = np.where((last >= 0) & (grid <= evaluations[-1]), values[last], np.nan)
    return grid.astype(np.float64), curves


def _num_initial(study: Study) -> int:
    """Return the size of the initial design if it is the same in all runs, else 0."""
    sizes = {int(run.get("num_initial") or 0) for run in study.settings["runs"]}
    return sizes.pop() if len(sizes) == 1 else 0


def _title(study: Study) -> str:
    runs = study.settings["runs"]
    problems = dict.fromkeys(str(run["problem"]) for run in runs if run.get("problem"))
    agents = dict.fromkeys(str(run["num_agents"]) for run in runs if run.get("num_agents"))
    name = ", ".join(problems) or str(study.settings.get("name", ""))
    if not agents:
        return name
    return f"{name}, {' or '.join(agents)} agent{'' if list(agents) == ['1'] else 's'}"
