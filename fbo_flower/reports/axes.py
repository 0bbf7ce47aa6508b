"""Draw on one axis: lines with bands, names at their ends, tables and messages; and limit its range."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.errors import printable
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.reports.pictures import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis

Line = tuple[Array, Array, Array]  # x, mean, stderr, each `(num_points,)`
Style = tuple[str, Any]  # colour, line style as matplotlib takes it

SMALL: dict[str, Any] = {"fontsize": 8, "color": GREY}
_LABEL_HEIGHT = 0.075  # height of a line of text, as a fraction of the axes
_CELL = 16  # characters of a table's cell
_CHARACTER = 0.0085  # width of a character as a fraction of a table's axes


def dress(ax: Axes) -> None:
    """Give the axes grid lines at the values, and grey marks with black labels."""
    ax.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    ax.tick_params(colors=GREY, labelcolor="black", labelsize=9)


def draw_lines(ax: Axes, lines: dict[str, Line], styles: Mapping[str, Style], *, steps: bool = False) -> None:
    """Draw means with bands of one standard error.

    Parameters
    ----------
    steps : whether a value holds until the next x, as over time; otherwise points are joined
    """
    from matplotlib.ticker import MaxNLocator

    for place, (name, (x, mean, stderr)) in enumerate(lines.items()):
        colour, style = styles[name]
        shape: dict[str, Any] = {"linestyle": style, "drawstyle": "steps-post" if steps else "default"}
        ax.plot(x, mean, color=colour, linewidth=1.8, label=name, zorder=3 + place, **shape)
        if np.isfinite(stderr).any():
            width = np.where(np.isfinite(mean), np.nan_to_num(stderr), np.nan)
            draw_band(ax, x, mean - width, mean + width, colour, steps=steps)
    first, last = _span(lines.values())
    ax.set_xlim(first, last if last > first else first + 1)
    dress(ax)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True))
    ax.xaxis.set_major_formatter("{x:,.0f}")


def use_logarithm(
    set_scale: Callable[..., None], axis: XAxis | YAxis, *, whole: bool = False, **options: str
) -> None:
    """Make an axis logarithmic; its labels are plain numbers, since texts are not read as formulas.

    Parameters
    ----------
    whole : label whole numbers only
    """
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            shown = super().__call__(x, pos) and (not whole or abs(x - round(x)) < 1e-9)
            return f"{x:g}" if shown else ""

    set_scale("log", **options)
    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain())


def draw_band(ax: Axes, x: Array, low: Array, high: Array, colour: str, *, steps: bool = False) -> None:
    """Fill the area between two lines palely."""
    style: dict[str, Any] = {"color": colour, "alpha": 0.13, "linewidth": 0, "zorder": 2}
    ax.fill_between(x, low, high, step="post" if steps else None, **style)


def zoom(ax: Axes, lines: Iterable[Line], start: float, *, minimize: bool = False) -> None:
    """Limit the axis to the values after the initial design, unless the second half would become too flat.

    Parameters
    ----------
    start : x at which the initial design ends
    minimize : whether smaller values are better
    """
    sign = -1.0 if minimize else 1.0
    bands = [(x, sign * mean, np.nan_to_num(stderr)) for x, mean, stderr in lines]
    first, last = _span(bands)

    def lowest(begin: float) -> float:  # edge of the bands from there on, or at the end of a shorter line
        edges = []
        for x, mean, width in bands:
            known = np.isfinite(mean)
            known &= x >= min(begin, x[known][-1])
            edges.append((mean - width)[known].min())
        return float(min(edges))

    high = max(float(np.nanmax(mean + width)) for _, mean, width in bands)
    low, low_half = lowest(max(start, first)), lowest((first + last) / 2)
    if high > low_half:
        low = max(low, high - 4 * (high - low_half))
    ax.set_ylim(*sorted(sign * edge for edge in _with_margin(low, high)))


def _span(lines: Iterable[Line]) -> tuple[float, float]:
    ends = [(x[0], x[-1]) for x, _, _ in lines]
    return min(first for first, _ in ends), max(last for _, last in ends)


def _with_margin(low: float, high: float) -> tuple[float, float]:
    margin = 0.06 * (high - low) if high > low else 0.05 * max(abs(high), 1e-12)
    return low - margin, high + margin


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
    high, low = float(values.max()), float(values.min())
    quarter = float(np.quantile(values, 0.25))
    if high > quarter:
        low = max(low, quarter - 3 * (high - quarter))
    bottom, top = _with_margin(low, high)
    return bottom, top, int((values < bottom).sum())


def scale_regret(ax: Axes, lines: dict[str, Line]) -> dict[str, Line]:
    """Make the axis logarithmic, and draw a regret of zero at its lower edge."""
    values = np.concatenate([mean for _, mean, _ in lines.values()])
    positive = values[values > 0] if (values > 0).any() else np.ones(1)
    use_logarithm(ax.set_yscale, ax.yaxis, nonpositive="clip")
    ax.set_ylim(positive.min() / 1.6, positive.max() * 1.4)
    lowest = ax.get_ylim()[0]
    return {name: (x, np.maximum(mean, lowest), stderr) for name, (x, mean, stderr) in lines.items()}


def mark_initial_design(ax: Axes, num_initial: int) -> None:
    """Shade the evaluations of the initial design."""
    first, last = ax.get_xlim()
    if first < num_initial < last:
        ax.axvspan(first, num_initial, color="#f3f3f3", zorder=0, linewidth=0)
        ax.text(first, 1.01, "initial design", transform=ax.get_xaxis_transform(), va="bottom", **SMALL)


def corner_note(ax: Axes, text: str, *, at_top: bool) -> None:
    """Write what lines and bands mean into the right-hand corner that the curves leave free."""
    height, va = (0.98, "top") if at_top else (0.02, "bottom")
    ax.text(0.99, height, text, transform=ax.transAxes, ha="right", va=va, **SMALL)


def label_ends(ax: Axes, lines: dict[str, Line], styles: Mapping[str, Style], width: int = 0) -> None:
    """Write each name to the right of its line, and move names apart that would overlap.

    Parameters
    ----------
    width : characters after which a name is cut; 0: it is not
    """
    last = [np.flatnonzero(np.isfinite(mean))[-1] for _, mean, _ in lines.values()]
    ends = [(x[place], mean[place]) for (x, mean, _), place in zip(lines.values(), last, strict=True)]
    wanted = ax.transAxes.inverted().transform(ax.transData.transform(ends))[:, 1]
    heights = spread(wanted, min(_LABEL_HEIGHT, 1.0 / len(ends)))
    for name, end, height in zip(lines, ends, heights.tolist(), strict=True):
        colour = styles[name][0]
        arrow = {"arrowstyle": "-", "color": colour, "linewidth": 0.8, "alpha": 0.6, "relpos": (0.0, 0.5)}
        ax.annotate(
            shorten(name, width),
            xy=end,
            xytext=(1.045, height),
            textcoords="axes fraction",
            color=colour,
            fontsize=10,
            fontweight="bold",
            va="center",
            annotation_clip=False,
            arrowprops=arrow | {"shrinkA": 3, "shrinkB": 0},
        )


def spread(heights: Array, distance: float) -> Array:
    """Return the heights in [0, 1] nearest to the given ones (least squares) that are `distance` apart.

    Subtracting `i * distance` turns this into isotonic regression with bounds: pool adjacent violators, then
    clip.
    """
    order = np.argsort(heights, kind="stable")
    pools: list[list[float]] = []
    for i, height in enumerate(heights[order].tolist()):
        pools.append([height - i * distance])
        while len(pools) > 1 and np.mean(pools[-2]) >= np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    level = np.concatenate([np.full(len(pool), np.mean(pool)) for pool in pools])
    level = np.clip(level, 0.0, 1.0 - distance * (len(heights) - 1))
    placed = np.empty(len(heights))
    placed[order] = level + distance * np.arange(len(heights))
    return placed


def draw_table(ax: Axes, cells: Mapping[str, Sequence[str]], title: str) -> None:
    """Draw cells, given by column, as left-aligned text, the head in bold, without lines."""
    ax.set_axis_off()
    ax.set_title(title)
    lines = [[shorten(cell, _CELL) for cell in line] for line in (cells, *zip(*cells.values(), strict=True))]
    widths = [max(map(len, column)) + 3 for column in zip(*lines, strict=True)]
    lefts = np.cumsum([0, *widths[:-1]]) * min(_CHARACTER, 1 / sum(widths))
    for number, line in enumerate(lines):
        y, weight = 1 - (number + 0.5) / len(lines), "bold" if number == 0 else "normal"
        for cell, left in zip(line, lefts.tolist(), strict=True):
            ax.text(left, y, cell, transform=ax.transAxes, fontsize=9, va="center", fontweight=weight)


def draw_message(ax: Axes, text: str) -> None:
    """Write a message instead of a picture."""
    ax.set_axis_off()
    shown = "\n".join(textwrap.fill(printable(line), 90) for line in text.splitlines())
    ax.text(0.0, 0.5, shown, transform=ax.transAxes, fontsize=10, color=GREY, ha="left", va="center")


def evenly(count: int, most: int) -> IntArray:
    """Return at most `most` row numbers of `count`, evenly spaced, with the first and the last."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def shorten(text: str, width: int = 0) -> str:
    """Return a text on one line without control characters, cut to `width` characters; 0: not cut."""
    text = printable(" ".join(text.split()))
    return text if not width or len(text) <= width else text[: width - 1] + "…"
