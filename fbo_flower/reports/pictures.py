"""How pictures look, and their files; what is drawn on an axis: lines with bands, names, tables, messages.

Matplotlib is optional, and without it the error says what to install. The colours of algorithms are those of
Okabe and Ito, which most colour-blind readers can tell apart; line styles tell the algorithms apart in print.
Tuning alone is dashed. The colours of agents are dark enough for their names to be read in them.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from fbo_flower.algorithms import PlotStyle
from fbo_flower.algorithms.registry import lookup
from fbo_flower.errors import ConfigError, printable
from fbo_flower.lazy import required
from fbo_flower.numerics import finite
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.storage.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.figure import Figure

    from fbo_flower.study.study import Study


FORMATS = (".pdf", ".png", ".svg")
GREY = "#5f5f5f"  # colour of all that is not data
AGENTS = ("#1f6fb2", "#c2410c", "#0f766e", "#a21caf", "#8a5a00", "#4d7c0f", "#be123c", "#475569")
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a8a8a")
_SPARE = [PlotStyle(colour, line) for line in ("-", "-.", ":", "--") for colour in _COLOURS]
_STYLE: dict[Any, Any] = {  # what matplotlib reads when it makes axes and texts
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "text.parse_math": False,  # names may hold dollars
}


def require_matplotlib() -> None:
    """Raise ConfigError if matplotlib is not installed."""
    required("matplotlib.figure", "pictures", "matplotlib", "simulation")


@contextmanager
def report_style(more: Mapping[str, str] | None = None) -> Iterator[None]:
    """Draw in the style of reports, with texts as they are; raise ConfigError without matplotlib.

    Parameters
    ----------
    more : further settings of matplotlib
    """
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(_STYLE | dict(more or {})):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, which needs no display.

    Raises
    ------
    ConfigError
        If matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> Path:
    """Write a figure as PDF, PNG or SVG and return the path; an interrupted write leaves the old file.

    Raises
    ------
    ConfigError
        If the name has another ending, or the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: expected a name that ends in {', '.join(FORMATS)}, got {path.suffix!r}")
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix.lower()[1:], dpi=dpi)
    with atomic_file(path) as stream:
        stream.write(picture.getvalue())
    return path


def algorithm_style(name: str) -> PlotStyle:
    """Return the style of an algorithm's record; without one, a style that depends on the name alone.

    >>> algorithm_style("fts")
    PlotStyle(color='#0072B2', line='-')
    >>> algorithm_style("unheard-of") == algorithm_style("unheard-of")
    True
    """
    record = lookup(name)
    if record is None or record.style is None:
        return _SPARE[crc32(name.encode()) % len(_SPARE)]
    return record.style


def study_styles(study: Study) -> dict[str, PlotStyle]:
    """Return a style for every label: its algorithm's, or one of a free colour if another label has that."""
    styles: dict[str, PlotStyle] = {}
    for label in study.algorithms:
        style = algorithm_style(str(study.run(label).get("algorithm", label)))
        if style.color not in {other.color for other in styles.values()}:
            styles[label] = style
    for label in study.algorithms:
        if label not in styles:
            taken, colours = list(styles.values()), {style.color for style in styles.values()}
            free = [style for style in _SPARE if style not in taken]
            styles[label] = next((s for s in free if s.color not in colours), (free or _SPARE)[0])
    return {label: styles[label] for label in study.algorithms}


Line = tuple[Array, Array, Array]  # x, mean, stderr, each `(num_points,)`
Style = tuple[str, Any]  # colour, line style as matplotlib takes it

SMALL: dict[str, Any] = {"fontsize": 8, "color": GREY}
_LABEL_HEIGHT = 0.075  # height of a line of text, as a fraction of the axes
_MARGINS = 0.06, 0.05  # beyond the values, as a share of their range; around one value, of its size
_MOST_ZOOM = 25.0  # whole curves are drawn if their second half keeps this part of the height
_FAR = 1e6  # ranges of an axis beyond which nothing is drawn
_CELLS = 48, 32, 24, 16  # characters of a table's cell, the first with which the table has room
_CHARACTER = 0.0085  # width of a character as a fraction of a table's axes
_LINE = 120  # characters of a message


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


def use_logarithm(axis: XAxis | YAxis, unit: float = 1.0, *, whole: bool = False) -> None:
    """Make an axis logarithmic; its labels are plain numbers, since texts are not read as formulas.

    Parameters
    ----------
    unit : of the coordinates, see `AxisScale`
    whole : label whole numbers only
    """
    from matplotlib.ticker import LogFormatter, LogLocator

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            shown = super().__call__(x, pos) and (not whole or abs(x - round(x)) < 1e-9)
            return f"{float(x) * unit:g}" if shown else ""

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    if axis.axis_name == "x":
        axis.set_major_locator(LogLocator(numticks=5))  # labels of more decades would touch each other
    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain())


def draw_band(ax: Axes, x: Array, low: Array, high: Array, colour: str, *, steps: bool = False) -> None:
    """Fill the area between two lines palely."""
    style: dict[str, Any] = {"color": colour, "alpha": 0.13, "linewidth": 0, "zorder": 2}
    ax.fill_between(x, low, high, step="post" if steps else None, **style)


@dataclass(frozen=True)
class AxisScale:
    """The limits of an axis, and the unit of its coordinates.

    Matplotlib adds and subtracts coordinates, so it draws neither very large nor very small ones. Numbers
    near the ends of what a float can hold are drawn in another unit; the marks have the numbers themselves.

    Parameters
    ----------
    low, high : the limits, in units of the values
    log : whether the axis is logarithmic; its limits are positive
    """

    low: float
    high: float
    log: bool = False

    @staticmethod
    def of(values: Array, *, log: bool = False, margins: tuple[float, float] = (0.05, 0.05)) -> AxisScale:
        """Return a scale that shows finite values `(n,)`, those of a logarithmic one are positive.

        Parameters
        ----------
        margins : beyond the values, as a share of their range; around one value, of its size
        """
        if not len(values):
            return AxisScale(1.0, 10.0, log)
        low, high = float(values.min()), float(values.max())
        if not log:
            return AxisScale(*finite.span(low, high, *margins))
        low = max(low, high * 1e-300)  # what a picture can show
        low, high = finite.span(math.log10(low), math.log10(high), *margins)
        return AxisScale(10.0**low, 10.0**high if high < 308 else finite.LARGEST, log)

    @property
    def unit(self) -> float:
        """Return 1, or a power of ten if the limits are huge or tiny."""
        size = max(abs(self.low), abs(self.high))
        return (
            1.0
            if size == 0 or 1e-200 < size < 1e200
            else 10.0 ** min(max(math.floor(math.log10(size)), -300), 300)
        )

    def places(self, values: Array) -> Array:
        """Return values as coordinates; those far outside of the limits come nearer."""
        if self.log:
            return np.clip(values, self.low, self.high) / self.unit
        low, high = self.low / self.unit, self.high / self.unit
        with np.errstate(over="ignore"):
            return np.clip(values / self.unit, low - _FAR * (high - low), high + _FAR * (high - low))

    def line(self, line: Line) -> Line:
        """Return a line in coordinates."""
        x, mean, stderr = line
        size = (self.high / self.unit - self.low / self.unit) * _FAR
        with np.errstate(over="ignore"):
            return x, self.places(mean), np.minimum(stderr / self.unit, size)

    def limit(self, axis: XAxis | YAxis, *, whole: bool = False) -> None:
        """Set the limits of an axis, and marks with the values' numbers.

        Parameters
        ----------
        whole : label whole numbers only
        """
        unit = self.unit
        axis.axes.set(**{f"{axis.axis_name}lim": (self.low / unit, self.high / unit)})
        if self.log:
            use_logarithm(axis, unit, whole=whole)
        else:
            axis.set_major_formatter("{x:g}" if unit == 1.0 else lambda x, place: f"{float(x) * unit:g}")


def zoomed(lines: Iterable[Line], start: float, *, minimize: bool = False) -> AxisScale:
    """Return the scale of the whole curves, or of a part if their second half would become too flat.

    A part begins after the initial design.

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
            edges.append(finite.difference(mean, width)[known].min())
        return float(min(edges))

    high = max(float(np.nanmax(finite.difference(mean, -width))) for _, mean, width in bands)
    low, low_half = lowest(max(start, first)), lowest((first + last) / 2)
    if 0 < finite.difference(high, lowest(first)) / _MOST_ZOOM <= finite.difference(high, low_half):
        low = lowest(first)
    elif high > low_half:
        low = max(low, float(finite.difference(high, 4 * float(finite.difference(high, low_half)))))
    low, high = sorted(sign * edge for edge in finite.span(low, high, *_MARGINS))
    return AxisScale(low, high)


def _span(lines: Iterable[Line]) -> tuple[float, float]:
    ends = [(x[0], x[-1]) for x, _, _ in lines]
    return min(first for first, _ in ends), max(last for _, last in ends)


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
    same, exponent = finite.scaled(values)
    quarter = float(finite.unscaled(np.quantile(same, [0.25]), exponent)[0])
    if high > quarter:
        low = max(low, float(finite.difference(quarter, 3 * float(finite.difference(high, quarter)))))
    bottom, top = finite.span(low, high, *_MARGINS)
    return bottom, top, int((values < bottom).sum())


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


def explain_bands(ax: Axes, lines: Mapping[str, Line], *, at_top: bool) -> None:
    """Say what the bands are, if there are any."""
    if any(np.isfinite(stderr).any() for _, _, stderr in lines.values()):
        corner_note(ax, "mean over agents ± 1 s.e.", at_top=at_top)


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
    for most in _CELLS:
        lines = [[shorten(c, most) for c in line] for line in (cells, *zip(*cells.values(), strict=True))]
        widths = [max(map(len, column)) + 3 for column in zip(*lines, strict=True)]
        if sum(widths) * _CHARACTER <= 1:
            break
    lefts = np.cumsum([0, *widths[:-1]]) * min(_CHARACTER, 1 / sum(widths))
    for number, line in enumerate(lines):
        y, weight = 1 - (number + 0.5) / len(lines), "bold" if number == 0 else "normal"
        for cell, left in zip(line, lefts.tolist(), strict=True):
            ax.text(left, y, cell, transform=ax.transAxes, fontsize=9, va="center", fontweight=weight)


def draw_message(ax: Axes, text: str) -> None:
    """Write a message instead of a picture."""
    ax.set_axis_off()
    shown = "\n".join(textwrap.fill(printable(line), _LINE) for line in text.splitlines())
    ax.text(0.0, 0.5, shown, transform=ax.transAxes, fontsize=10, color=GREY, ha="left", va="center")


def evenly(count: int, most: int) -> IntArray:
    """Return at most `most` row numbers of `count`, evenly spaced, with the first and the last."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def shorten(text: str, width: int = 0) -> str:
    """Return a text on one line without control characters, cut to `width` characters; 0: not cut."""
    text = printable(" ".join(text.split()))
    return text if not width or len(text) <= width else text[: width - 1] + "…"
