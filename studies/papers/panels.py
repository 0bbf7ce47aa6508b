"""Make a figure of several panels that is readable on a page, with few panels in a row."""

from __future__ import annotations

import math
from typing import Any

from fbo_flower.reports.pictures import new_figure


def panels(count: int, columns: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """Return a figure and `count` axes, row by row; the rest of the last row stays empty.

    Parameters
    ----------
    columns : largest number of panels in a row
    width, height : size of a panel in inches
    """
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure: Any = new_figure(width * columns, height * rows)
    axes: list[Any] = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[count:]:
        axis.set_visible(False)
    return figure, axes[:count]
