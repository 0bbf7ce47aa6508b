"""Draw values against a parameter, and the predicted rank against two.

In the SVG of a slice, a group's `gid` says what is in it: `trials 3 7` are two dots, of rows 3 and 7 of
`study.trials`, and `best 0` is a ring, of row 0 of `study.recommendations`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.numerics.arrays import Array, BoolArray, IntArray
from fbo_flower.reports.axes import SMALL, Style, dress, evenly, shorten, use_logarithm, value_limits
from fbo_flower.reports.curves import metric_of, named_agents
from fbo_flower.reports.importance import Axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

    from fbo_flower.study.study import Study

_MAX_CHOICES = 12  # labels on an axis
_GRID = 36  # cells of an axis of a contour
_LEVELS = 8
_CONTOUR = "#0072b2"


def draw_slices(
    part: SubFigure, study: Study, chosen: list[Axis], why: str, styles: Mapping[str, Style]
) -> None:
    columns = min(len(chosen), 3) if len(chosen) != 4 else 2
    axes = part.subplots(-(-len(chosen) // columns), columns, squeeze=False, sharey=True).ravel()
    for ax, axis in zip(axes, chosen, strict=False):
        draw_slice(ax, study, axis, styles)
    for ax in set(axes) - set(axes[::columns]):
        ax.set_ylabel("")
    for ax in axes[len(chosen) :]:
        ax.set_visible(False)
    axes[0].set_title(f"Value against {why}")
    hidden = shown_values(study)[2]
    worse = f"; {hidden} {'higher' if study.any_minimizes else 'lower'} values not shown" if hidden else ""
    axes[columns - 1].set_title(f"ringed: best of each agent{worse}", loc="right", **SMALL)


def shown_values(study: Study) -> tuple[float, float, int]:
    """Return the limits of the axis of disclosed values, and how many are so bad that they lie outside."""
    disclosed = np.concatenate([study.trials["value"], study.recommendations["value"]])
    return value_limits(disclosed, minimize=study.any_minimizes)


def draw_slice(
    ax: Axes,
    study: Study,
    axis: Axis,
    styles: Mapping[str, Style],
    *,
    dots: int = 3000,
    rasterized: bool = True,
) -> None:
    """Draw values against a parameter: dots are trials, ringed dots each agent's best configuration.

    Of one algorithm with few agents the dots have the colours of the agents' lines. The range of the axis is
    that of the dots; whole numbers have whole marks.

    Parameters
    ----------
    dots : the largest number of trials of an algorithm
    rasterized : whether trials are a bitmap in a vector format
    """
    from matplotlib.ticker import MaxNLocator

    dress(ax)
    if axis.log:
        use_logarithm(ax.set_xscale, ax.xaxis, whole=axis.whole)
    elif axis.choices is not None:
        _name_choices(ax, axis.choices)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=axis.whole, min_n_ticks=1))
        ax.xaxis.set_major_formatter("{x:g}")
    low, high, _ = shown_values(study)
    hues, count = named_agents(study), len(study.algorithms)
    ring: dict[str, Any] = {"s": 20, "edgecolors": "k", "linewidths": 0.8, "zorder": 3}
    dot: dict[str, Any] = {"s": 12 if hues else 9, "alpha": 0.7 if hues else 0.35, "linewidths": 0}
    dot["rasterized"] = rasterized
    for kind, table, look in (("trials", study.trials, dot), ("best", study.recommendations, ring)):
        place = axis.positions(table["config"].tolist())
        drawn = np.isfinite(place) & (table["value"] >= low) & (table["value"] <= high)
        for number, name in enumerate(study.algorithms):
            rows = sampled(drawn & (table["algorithm"] == name), dots)
            x = place[rows]
            if axis.choices is not None:  # beside those of the other algorithms, and a little apart
                jitter = (rows + 1) * 0.6180339887498949 % 1.0 - 0.5  # looks random, always the same
                x = x + 0.7 * ((number + 0.5) / count - 0.5) + jitter * 0.6 / count
            owners = table["agent"][rows]
            for owner, colour in hues.items() if hues else [("", styles[name][0])]:
                own = (owners == owner) if hues else np.ones(len(rows), dtype=bool)
                if own.any():
                    gid = f"{kind} {' '.join(map(str, rows[own].tolist()))}"
                    ax.scatter(x[own], table["value"][rows[own]], color=colour, gid=gid, **look)
    ax.yaxis.set_major_formatter("{x:g}")
    condition = f" (if {axis.condition})" if axis.condition else ""
    ax.set_xlabel(shorten(f"{axis.name}{condition}"))
    ax.set_ylabel((shorten(metric_of(study)) or "value").capitalize())
    ax.set_ylim(low, high)


def sampled(mask: BoolArray, most: int) -> IntArray:
    """Return the numbers of the rows that a mask selects, evenly chosen if they are more than `most`."""
    rows = np.flatnonzero(mask)
    return rows[evenly(len(rows), most)]


def _name_choices(ax: Axes, choices: Sequence[object]) -> None:
    shown = range(0, len(choices), -(-len(choices) // _MAX_CHOICES))
    labels = [shorten(str(choices[number]), 12) for number in shown]
    crowded = sum(map(len, labels)) > 24
    ax.set_xticks(list(shown), labels, rotation=30 if crowded else 0, ha="right" if crowded else "center")
    ax.set_xlim(-0.5, len(choices) - 0.5)


def num_cells(axis: Axis) -> int:
    if axis.choices is not None:
        return len(axis.choices)
    return min(axis.integer.num_values, _GRID) if axis.integer and not axis.log else _GRID


def draw_contour(ax: Axes, axes: Sequence[Axis], surface: Array) -> None:
    """Draw the levels of a surface whose cells have the same size, each cell in one colour."""
    from matplotlib.colors import to_rgba

    low, high = float(surface.min()), float(surface.max())
    edges = [np.repeat(np.arange(n + 1) / n, 2)[1:-1] for n in surface.shape]
    cells = np.repeat(np.repeat(surface, 2, axis=0), 2, axis=1)
    levels = np.linspace(low, max(high, low + 1e-12), _LEVELS + 1)
    colours = [to_rgba(_CONTOUR, 0.06 + 0.86 * level / (_LEVELS - 1)) for level in range(_LEVELS)]
    ax.contourf(*edges, cells.T, levels=levels, colors=colours)
    dress(ax)
    ax.grid(visible=False)
    for parameter, axis in zip(axes, (ax.xaxis, ax.yaxis), strict=True):
        axis.set_ticks(*_ticks(parameter))
        logarithmic = " (logarithmic)" if parameter.log else ""
        axis.set_label_text(shorten(parameter.name, 34) + logarithmic)


def _ticks(axis: Axis) -> tuple[Array, list[str]]:
    """Return the marks of a parameter's axis in [0, 1], at most about eight, and their labels."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    if axis.choices is not None:
        shown = range(0, len(axis.choices), -(-len(axis.choices) // 8))
        return axis.unit(np.array(shown)), [shorten(str(axis.choices[k]), 10) for k in shown]
    logarithmic = axis.log and axis.high >= 100 * axis.low
    locator = LogLocator(numticks=6) if logarithmic else MaxNLocator(4, integer=axis.whole)
    values = np.asarray(locator.tick_values(axis.low, axis.high))
    values = values[(values >= axis.low) & (values <= axis.high)]
    return axis.unit(values), [f"{value:.4g}" for value in values]
