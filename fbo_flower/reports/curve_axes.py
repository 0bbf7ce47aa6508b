"""Draw best values so far, or regret where the optimum is known, against evaluations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.line_axes import (
    GREY,
    Line,
    Style,
    draw_lines,
    explain_bands,
    label_ends,
    mark_initial_design,
    use_logarithm,
    zoom,
)
from fbo_flower.reports.slice_axes import draw_message
from fbo_flower.reports.summary import agent_curves, mean_and_stderr, target_rows
from fbo_flower.reports.titles import metric_of
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 1000  # points of a line; bandits make 10^5 evaluations
_MAX_AGENTS = 200  # faint lines
DrawStyle = Literal["default", "steps-post"]
HOW_TO_DISCLOSE = 'set disclose = "trials" in the node_config of the agents that may show them.'


def draw_incumbents(ax: Axes, study: Study, styles: Mapping[str, Style]) -> None:
    """Draw the mean best value so far per algorithm; for one algorithm also a faint line per agent.

    Without disclosed trials the means that the server saw are drawn against rounds; without these, the axes
    say why there is nothing to draw.
    """
    lines: dict[str, Line] = {}
    unit = "Evaluations per agent"
    own = np.empty((0, 0))
    for algorithm in study.algorithms:
        _, own = agent_curves(study, algorithm)
        x = np.arange(1.0, own.shape[1] + 1)
        lines[algorithm] = (x, *mean_and_stderr(own))
    if not any(len(x) for x, _, _ in lines.values()):  # no trials disclosed
        unit = "Round"
        for algorithm in study.algorithms:
            rounds = study.rounds.where(algorithm=algorithm)
            mean = rounds["mean_incumbent"]
            lines[algorithm] = (rounds["round"].astype(float), mean, np.full(len(mean), np.nan))
    lines = {name: line for name, line in lines.items() if np.isfinite(line[1]).any()}
    if not lines:
        draw_message(ax, nothing_to_draw(study))
        return
    num_initial = initial_design(study) if unit != "Round" else 0
    draw_values(ax, study, styles, lines, own, num_initial)
    ax.set_xlabel(unit)
    mark_initial_design(ax, num_initial)
    label_ends(ax, lines, styles)


def draw_values(
    ax: Axes,
    study: Study,
    styles: Mapping[str, Style],
    lines: dict[str, Line],
    own: Array,
    start: float,
    *,
    steps: bool = False,
) -> None:
    """Draw the mean best value so far per algorithm; for one algorithm also a faint line per agent.

    Parameters
    ----------
    lines : means and standard errors by algorithm
    own : `(n, num_points)`, curves of the agents of the last algorithm
    start : x at which the initial design ends
    steps : whether a value holds until the next x
    """
    minimize = study.any_minimizes
    agents = own[np.isfinite(own).any(axis=1)] if len(study.algorithms) == 1 else own[:0]
    if len(agents) > 1:
        (name, (x, mean, stderr)), *_ = lines.items()
        draw_lines(ax, {name: (x, mean, np.full(len(stderr), np.nan))}, styles, steps=steps)
        _draw_agents(ax, x, agents, styles[name][0], "steps-post" if steps else "default")
        nothing = np.full(len(x), np.nan)
        curves: dict[str, Line] = {str(k): (x, curve, nothing) for k, curve in enumerate(agents)}
        zoom(ax, curves, start, minimize=minimize)
        shown = f"{_MAX_AGENTS} of {len(agents)} agents" if len(agents) > _MAX_AGENTS else "one agent each"
        y, align = (0.98, "top") if minimize else (0.02, "bottom")
        text = f"bold: mean, faint: {shown}"
        ax.text(0.99, y, text, fontsize=8, color=GREY, transform=ax.transAxes, ha="right", va=align)
    else:
        draw_lines(ax, lines, styles, steps=steps)
        zoom(ax, lines, start, minimize=minimize)
        explain_bands(ax, lines, at_top=minimize)
    ax.set_ylabel(f"Best {metric_of(study) or 'value'} so far", parse_math=False)
    ax.yaxis.set_major_formatter("{x:g}")  # no exponent beside the axis, where the next label is


def _draw_agents(ax: Axes, x: Array, curves: Array, colour: str, shape: DrawStyle) -> None:
    rows = np.linspace(0, len(curves) - 1, min(len(curves), _MAX_AGENTS)).round().astype(int)
    points = np.linspace(0, len(x) - 1, min(len(x), MAX_POINTS)).round().astype(int)
    for curve in curves[rows]:
        ax.plot(x[points], curve[points], color=colour, drawstyle=shape, linewidth=0.7, alpha=0.35, zorder=2)


def nothing_to_draw(study: Study) -> str:
    """Return why a study has no curve of values, and what to do."""
    reasons = Counter(" ".join(text.split()) for text in study.trials["failure"].tolist())
    if len(study.trials):
        reason = reasons.most_common(1)[0][0] or "no reason was given"
        return f"All {len(study.trials)} disclosed evaluations failed. Most common reason: {reason}"
    if not len(study.rounds):
        return "The study has no finished round."
    return (
        "The agents disclosed no values: nothing is wrong, they keep them on their devices.\n"
        'To see a curve here, set disclose = "incumbent" or "trials" in the node_config of the agents that\n'
        "may show them."
    )


def draw_regret(simple: Axes, cumulative: Axes, study: Study, styles: Mapping[str, Style]) -> None:
    """Draw simple regret on a logarithmic axis and cumulative regret, means with bands of one s.e."""
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
        mark_initial_design(ax, initial_design(study))
        label_ends(ax, lines, styles)


def _steps(rows: Table, column: str) -> tuple[Array, Array]:
    """Return all agents' curves on one grid of evaluations; a value holds until the agent's next row.

    Returns
    -------
    x : `(num_points,)`
    curves : `(n, num_points)`; NaN before an agent's first and after its last row
    """
    grid = np.unique(rows["evaluations"])
    if len(grid) > MAX_POINTS:
        grid = grid[np.linspace(0, len(grid) - 1, MAX_POINTS).round().astype(int)]
    agents, agent = np.unique(rows["agent"].astype(str), return_inverse=True)
    curves = np.full((len(agents), len(grid)), np.nan)
    order, ends = np.argsort(agent, kind="stable"), np.cumsum(np.bincount(agent, minlength=len(agents)))
    for i, own in enumerate(np.split(order, ends[:-1])):
        evaluations, values = rows["evaluations"][own], rows[column][own]
        last = np.searchsorted(evaluations, grid, side="right") - 1
        curves[i] = np.where((last >= 0) & (grid <= evaluations[-1]), values[last], np.nan)
    return grid.astype(np.float64), curves


def initial_design(study: Study) -> int:
    """Return the size of the initial design if it is the same in all runs, else 0."""
    sizes = {int(run.get("num_initial") or 0) for run in study.settings["runs"]}
    return sizes.pop() if len(sizes) == 1 else 0
