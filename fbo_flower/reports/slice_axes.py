"""Draw the values of trials against one parameter, and the best configurations as a table."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.line_axes import GREY, Style
from fbo_flower.reports.slices import Slice
from fbo_flower.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_DOTS = 3000  # per algorithm; bandits have 10^5 trials
_MAX_CHOICES = 12  # labels on an axis
_LABEL = 12  # characters of a choice's label
_CELL = 16  # characters of a table's cell
_CHARACTER = 0.0085  # width of a character as a fraction of a table's axes


def draw_slice(ax: Axes, study: Study, slice_: Slice, styles: Mapping[str, Style]) -> None:
    """Draw values against a parameter: dots are trials, ringed dots each agent's best configuration."""
    from matplotlib.ticker import MaxNLocator

    shift = _shifts(study) if slice_.choices is not None else dict.fromkeys(study.algorithms, 0.0)
    for name in study.algorithms:
        trials = study.trials.where(algorithm=name)
        trials = trials.take(np.isfinite(trials["value"]))
        if len(trials) > _MAX_DOTS:
            trials = trials.take(np.linspace(0, len(trials) - 1, _MAX_DOTS).round().astype(int))
        best = study.recommendations.where(algorithm=name)
        colour = styles[name][0]
        for rows, style in (
            (trials, {"s": 9, "alpha": 0.35, "linewidths": 0}),
            (best, {"s": 20, "edgecolors": "black", "linewidths": 0.8, "zorder": 3}),
        ):
            if not len(rows):
                continue
            x = slice_.positions(rows["config"].tolist()) + shift[name]
            if slice_.choices is not None:
                x = x + _jitter(len(x)) * 0.6 / len(study.algorithms)
            ax.scatter(x, rows["value"], color=colour, rasterized=True, **style)
    if slice_.log:
        ax.set_xscale("log")
    elif slice_.choices is not None:
        _name_choices(ax, slice_.choices)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4))
        ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_xlabel(slice_.name + (f"  (if {slice_.condition})" if slice_.condition else ""), parse_math=False)
    ax.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(colors=GREY, labelcolor="black", labelsize=9)


def value_limits(values: Array, *, minimize: bool = False) -> tuple[float, float, int]:
    """Return lower and upper limit of an axis of values, and how many bad values lie outside of it.

    The lower limit leaves out awful values that would flatten the rest: those more than three times as far
    below the upper quarter's edge as the largest value is above the lower quarter's. With `minimize` the
    upper limit does, likewise.
    """
    if minimize:
        low, high, outside = value_limits(-values)
        return -high, -low, outside
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0, 0
    high = float(values.max())
    quarter = float(np.quantile(values, 0.25))
    low = max(float(values.min()), quarter - 3 * (high - quarter)) if high > quarter else float(values.min())
    margin = 0.06 * (high - low) if high > low else 0.05 * max(abs(high), 1e-12)
    return low - margin, high + margin, int((values < low).sum())


def draw_best(ax: Axes, study: Study, slices: Sequence[Slice], limit: int) -> None:
    """Draw a table of the agents' best configurations, the best values first."""
    minimize = study.any_minimizes
    best = sorted(study.best.items(), key=lambda item: item[1]["value"], reverse=not minimize)
    several = len(study.algorithms) > 1
    head = ["agent", "value", *(["algorithm"] if several else []), *(slice_.name for slice_ in slices)]
    rows = [
        [agent, f"{found['value']:.4g}", *([found["algorithm"]] if several else [])]
        + [_cell(found["config"][s.name]) if s.name in found["config"] else "-" for s in slices]
        for agent, found in best[:limit]
    ]
    hidden = len(best) - len(rows)
    note = f"; the other {hidden} are in best.json" if hidden > 0 else ""
    order = "smallest" if minimize else "largest"
    draw_table(ax, head, rows, f"Best configuration of each agent, {order} values first{note}")


def draw_table(ax: Axes, head: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    """Draw cells as left-aligned text, the head in bold, without lines."""
    ax.set_axis_off()
    ax.set_title(title, fontsize=10, loc="left", parse_math=False)
    lines = [[_shorten(cell, _CELL) for cell in line] for line in (head, *rows)]
    widths = [max(len(line[column]) for line in lines) + 3 for column in range(len(head))]
    character = min(_CHARACTER, 1 / sum(widths))
    for number, line in enumerate(lines):
        y = 1 - (number + 0.5) / len(lines)
        left = 0
        for cell, width in zip(line, widths, strict=True):
            weight = "bold" if number == 0 else "normal"
            style: dict[str, Any] = {"fontsize": 9, "va": "center", "fontweight": weight, "parse_math": False}
            ax.text(left * character, y, cell, transform=ax.transAxes, **style)
            left += width


def draw_message(ax: Axes, text: str) -> None:
    """Write a message instead of a picture."""
    ax.set_axis_off()
    shown = "\n".join(textwrap.fill(line, 90) for line in text.splitlines())
    style: dict[str, Any] = {"fontsize": 10, "color": GREY, "ha": "left", "va": "center", "parse_math": False}
    ax.text(0.0, 0.5, shown, transform=ax.transAxes, **style)


def _name_choices(ax: Axes, choices: Sequence[object]) -> None:
    shown = range(0, len(choices), -(-len(choices) // _MAX_CHOICES))
    labels = [_shorten(str(choices[number]), _LABEL) for number in shown]
    crowded = sum(map(len, labels)) > 24
    ax.set_xticks(list(shown), labels, rotation=30 if crowded else 0, ha="right" if crowded else "center")
    for label in ax.get_xticklabels():
        label.set_parse_math(False)
    ax.set_xlim(-0.5, len(choices) - 0.5)


def _shifts(study: Study) -> dict[str, float]:
    """Return the offset of each algorithm's dots beside a choice, so that algorithms do not cover another."""
    count = len(study.algorithms)
    return {name: 0.7 * ((number + 0.5) / count - 0.5) for number, name in enumerate(study.algorithms)}


def _jitter(count: int) -> Array:
    """Return numbers in [-0.5, 0.5) that look random and are always the same."""
    numbers: Array = np.arange(1.0, count + 1) * 0.6180339887498949
    return numbers % 1.0 - 0.5


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _shorten(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"
