"""Draw lines with bands on one axis, limit its range, and label the lines at their ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.numerics.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Line = tuple[Array, Array, Array]  # x, mean, stderr, each `(num_points,)`
Style = tuple[str, Any]  # colour, line style as matplotlib takes it

GREY = "#5f5f5f"  # colour of all that is not data
_LABEL_HEIGHT = 0.075  # height of a line of text, as a fraction of the axes


def draw_lines(ax: Axes, lines: dict[str, Line], styles: Mapping[str, Style], *, steps: bool = False) -> None:
    """Draw means with bands of one standard error.

    Parameters
    ----------
    steps : whether a value holds until the next x, as over time; otherwise points are joined
    """
    from matplotlib.ticker import MaxNLocator

    for place, (name, (x, mean, stderr)) in enumerate(lines.items()):
        colour, style = styles[name]
        known = np.isfinite(mean)
        shape: dict[str, Any] = {"linestyle": style, "drawstyle": "steps-post" if steps else "default"}
        ax.plot(x, mean, color=colour, linewidth=1.8, label=name, zorder=3 + place, **shape)
        if np.isfinite(stderr).any():
            width = np.where(known, np.nan_to_num(stderr), np.nan)
            band: dict[str, Any] = {"color": colour, "alpha": 0.13, "linewidth": 0, "zorder": 2}
            ax.fill_between(x, mean - width, mean + width, step="post" if steps else None, **band)
    first, last = min(x[0] for x, _, _ in lines.values()), max(x[-1] for x, _, _ in lines.values())
    ax.set_xlim(first, last if last > first else first + 1)
    ax.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(colors=GREY, labelcolor="black", labelsize=9)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True))
    ax.xaxis.set_major_formatter("{x:,.0f}")


def zoom(ax: Axes, lines: dict[str, Line], start: float, *, minimize: bool = False) -> None:
    """Limit the axis to the values after the initial design, unless the second half would become too flat.

    Parameters
    ----------
    start : x at which the initial design ends
    minimize : whether smaller values are better
    """
    if minimize:
        zoom(ax, {name: (x, -mean, stderr) for name, (x, mean, stderr) in lines.items()}, start)
        low, high = ax.get_ylim()
        ax.set_ylim(-high, -low)
        return
    high = max(np.nanmax(mean + np.nan_to_num(stderr)) for _, mean, stderr in lines.values())
    first, last = min(x[0] for x, _, _ in lines.values()), max(x[-1] for x, _, _ in lines.values())
    low, low_half = (_lowest(lines, edge) for edge in (max(start, first), (first + last) / 2))
    if high > low_half:
        low = max(low, high - 4 * (high - low_half))
    margin = 0.06 * (high - low) if high > low else 0.05 * max(abs(high), 1e-12)
    ax.set_ylim(low - margin, high + margin)


def _lowest(lines: dict[str, Line], start: float) -> float:
    """Return the lowest edge of the bands from `start` on, or at the end of a line that ends before."""
    edges = []
    for x, mean, stderr in lines.values():
        known = np.isfinite(mean)
        known &= x >= min(start, x[known][-1])
        edges.append((mean - np.nan_to_num(stderr))[known].min())
    return float(min(edges))


def use_logarithm(ax: Axes, lines: dict[str, Line]) -> dict[str, Line]:
    """Make the axis logarithmic, and draw a regret of zero at its lower edge."""
    positive = [mean[mean > 0] for _, mean, _ in lines.values()]
    smallest = min((values.min() for values in positive if len(values)), default=1.0)
    largest = max((values.max() for values in positive if len(values)), default=1.0)
    ax.set_yscale("log", nonpositive="clip")
    ax.set_ylim(smallest / 1.6, largest * 1.4)
    lowest = ax.get_ylim()[0]
    return {name: (x, np.maximum(mean, lowest), stderr) for name, (x, mean, stderr) in lines.items()}


def mark_initial_design(ax: Axes, num_initial: int) -> None:
    """Shade the evaluations of the initial design."""
    first, last = ax.get_xlim()
    if not first < num_initial < last:
        return
    ax.axvspan(first, num_initial, color="#f3f3f3", zorder=0, linewidth=0)
    at = (first, 1.01)
    ax.text(*at, "initial design", transform=ax.get_xaxis_transform(), va="bottom", fontsize=8, color=GREY)


def explain_bands(ax: Axes, lines: dict[str, Line], *, at_top: bool) -> None:
    """Write what lines and bands mean into the right-hand corner that the curves leave free."""
    if any(np.isfinite(stderr).any() for _, _, stderr in lines.values()):
        height, va = (0.98, "top") if at_top else (0.02, "bottom")
        style: dict[str, Any] = {"fontsize": 8, "color": GREY, "ha": "right", "va": va}
        ax.text(0.99, height, "mean over agents ± 1 s.e.", transform=ax.transAxes, **style)


def label_ends(ax: Axes, lines: dict[str, Line], styles: Mapping[str, Style]) -> None:
    """Write each name to the right of its line, and move names apart that would overlap."""
    ends = []
    for name, (x, mean, _) in lines.items():
        last = np.flatnonzero(np.isfinite(mean))[-1]
        ends.append((name, (x[last], mean[last])))
    wanted = ax.transAxes.inverted().transform(ax.transData.transform([end for _, end in ends]))[:, 1]
    heights = _spread(wanted, min(_LABEL_HEIGHT, 1.0 / len(ends)))
    for (name, end), height in zip(ends, heights.tolist(), strict=True):
        colour = styles[name][0]
        ax.annotate(
            name,
            xy=end,
            xytext=(1.045, height),
            textcoords="axes fraction",
            color=colour,
            fontsize=10,
            fontweight="bold",
            va="center",
            annotation_clip=False,
            parse_math=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.8,
                "alpha": 0.6,
                "relpos": (0.0, 0.5),
                "shrinkA": 3,
                "shrinkB": 0,
            },
        )


def _spread(heights: Array, distance: float) -> Array:
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
    spread = np.empty(len(heights))
    spread[order] = level + distance * np.arange(len(heights))
    return spread
