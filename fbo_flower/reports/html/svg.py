"""Axes and shapes of pictures in SVG, whose colours are those of the page's style.

A picture is 360 units wide, about as wide as a telephone, and grows with the window. Positions on an axis are
numbers in [0, 1] from left to right and from bottom to top.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.html.markup import text

WIDTH, HEIGHT = 360.0, 240.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 10.0, 12.0, 42.0
_LABEL = 10  # characters of a tick's label


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: its position in [0, 1] and its label."""

    position: float
    label: str


@dataclass(frozen=True)
class Scale:
    """A linear axis from `low` to `high`."""

    low: float
    high: float

    def __call__(self, values: Array) -> Array:
        """Return positions `(n,)`; values beyond the ends stand at the ends."""
        return np.clip((np.asarray(values) - self.low) / (self.high - self.low), 0.0, 1.0)

    @property
    def ticks(self) -> list[Tick]:
        """About four marks at round numbers."""
        return [
            Tick((value - self.low) / (self.high - self.low), label)
            for value, label in round_numbers(self.low, self.high)
        ]


def short(number: float) -> str:
    """Return a number in few characters.

    >>> short(0.0001), short(0.25), short(1e6), short(1000.0)
    ('1e-4', '0.25', '1e6', '1000')
    """
    label = f"{number:.3g}" if 0 < abs(number) < 0.00095 else f"{number:.5g}"
    return label.replace("0.0001", "1e-4").replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def round_numbers(low: float, high: float, most: int = 5) -> list[tuple[float, str]]:
    """Return at most `most` round numbers in an interval, with their texts.

    >>> round_numbers(0.0, 1.0)
    [(0.0, '0'), (0.25, '0.25'), (0.5, '0.5'), (0.75, '0.75'), (1.0, '1')]
    """
    if not high > low:
        return [(low, f"{low:.4g}")]
    smallest = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(smallest))
    step = next(
        size * power for size in (1, 2, 2.5, 5, 10, 20) if size * power >= smallest * (1 - 1e-9)
    )  # 20 covers rounding
    numbers = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1) * step
    digits = max(4, math.ceil(math.log10(max(abs(low), abs(high)) / step)) + 2)
    return [(float(number), f"{number:.{digits}g}") for number in numbers]


def x_of(position: Array) -> Array:
    """Return x in the picture of positions on the horizontal axis."""
    return LEFT + np.asarray(position) * (WIDTH - LEFT - RIGHT)


def y_of(position: Array) -> Array:
    """Return y in the picture of positions on the vertical axis."""
    return HEIGHT - BOTTOM - np.asarray(position) * (HEIGHT - TOP - BOTTOM)


def step_path(x: Array, y: Array) -> str:
    """Return the path of a line that holds its value until the next x; only changes are written."""
    known = np.isfinite(y)
    x, y = np.round(x[known], 1), np.round(y[known], 1)
    if not len(x):
        return ""
    changes = np.flatnonzero(np.diff(y)) + 1
    steps = "".join(f"H{x[i]:g}V{y[i]:g}" for i in changes)
    return f"M{x[0]:g} {y[0]:g}{steps}H{x[-1]:g}"


def line_path(x: Array, y: Array) -> str:
    """Return the path of a line with straight parts."""
    known = np.isfinite(y)
    points = [f"{a:.1f} {b:.1f}" for a, b in zip(x[known], y[known], strict=True)]
    return f"M{'L'.join(points)}" if points else ""


def band_path(x: Array, low: Array, high: Array) -> str:
    """Return the outline of the band between two lines."""
    there = [f"{a:.1f} {b:.1f}" for a, b in zip(x, high, strict=True)]
    back = [f"{a:.1f} {b:.1f}" for a, b in zip(x[::-1], low[::-1], strict=True)]
    return f"M{'L'.join(there + back)}Z" if there else ""


def axes(x_ticks: Sequence[Tick], y_ticks: Sequence[Tick], x_label: str, y_label: str) -> str:
    """Return grid lines, marks and labels; the labels are texts that are not escaped yet."""
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for tick in y_ticks:
        y = float(y_of(np.array(tick.position)))
        parts.append(f'<path class="grid" d="M{LEFT:g} {y:.1f}H{right:g}"/>')
        parts.append(
            f'<text x="{LEFT - 5:g}" y="{y + 3.5:.1f}" class="end">{text(tick.label, _LABEL)}</text>'
        )
    crowded = sum(min(len(tick.label), _LABEL) for tick in x_ticks) > 44
    for number, tick in enumerate(x_ticks):
        x = float(x_of(np.array(tick.position)))
        place = "last" if tick.position > 0.97 else "middle"
        y = bottom + 13 + (10 if crowded and number % 2 else 0)  # two rows of labels
        parts.append(f'<path class="tick" d="M{x:.1f} {bottom:g}v3"/>')
        parts.append(f'<text x="{x:.1f}" y="{y:g}" class="{place}">{text(tick.label, _LABEL)}</text>')
    parts.append(f'<path class="axis" d="M{LEFT:g} {bottom:g}H{right:g}"/>')
    middle = (LEFT + right) / 2
    parts.append(
        f'<text x="{middle:g}" y="{HEIGHT - 6:g}" class="middle label">{text(x_label, 44)}</text>'
        f'<text transform="translate(11 {(TOP + bottom) / 2:g}) rotate(-90)" class="middle label">'
        f"{text(y_label, 34)}</text>"
    )
    return "".join(parts)


def figure(shapes: str, caption: str, description: str, height: float = HEIGHT) -> str:
    """Return a picture with its caption, and a description for those who do not see it."""
    return (
        f'<figure><svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{text(description)}">'
        f"{shapes}</svg><figcaption>{text(caption)}</figcaption></figure>"
    )
