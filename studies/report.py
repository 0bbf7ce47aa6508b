"""Numbers, tables and pictures of experiments: means with standard errors, Markdown, panels of curves."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import new_figure
from fbo_flower.storage import atomic_file


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error, NaN where a single value is known."""

    mean: float
    stderr: float

    @property
    def z(self) -> float:
        """Return the mean in standard errors; 0 if nothing varies."""
        return self.mean / self.stderr if self.stderr > 0 else 0.0

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.stderr:.4f}"


def mean_and_error(values: Array) -> tuple[Array, Array]:
    """Return the mean over the first axis and its standard error; NaN for a single repetition."""
    mean = np.asarray(values.mean(axis=0))
    if len(values) < 2:
        return mean, np.full_like(mean, np.nan)
    return mean, np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))


def clustered(values: Array) -> Estimate:
    """Return the mean over `(R, K)` and its standard error, from the means of the `K` targets."""
    mean, error = mean_and_error(values.mean(axis=0))
    return Estimate(float(mean), float(error))


def shown(values: Array, digits: int = 4, sign: str = "") -> str:
    """Return the mean of values with its standard error as text; of a single value the value alone.

    >>> shown(np.array([1.0, 2.0, 3.0]), 2), shown(np.array([0.5]), 1, "+")
    ('2.00 ± 0.58', '+0.5')
    """
    mean, error = mean_and_error(np.asarray(values))
    return f"{mean:{sign}.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")


def row(cells: Iterable[object]) -> str:
    """Return cells as a line of a Markdown table.

    >>> row(["a", 1])
    '| a | 1 |'
    """
    return f"| {' | '.join(map(str, cells))} |"


def head(cells: Sequence[object]) -> str:
    """Return the first two lines of a Markdown table."""
    return f"{row(cells)}\n{'|---' * len(cells)}|"


def table(columns: Sequence[object], rows: Iterable[Iterable[object]]) -> str:
    """Return rows of cells as a Markdown table.

    >>> print(table(["agent", "best"], [["0", "0.5"]]), end="")
    | agent | best |
    |---|---|
    | 0 | 0.5 |
    """
    return "\n".join([head(columns), *map(row, rows)]) + "\n"


def write_results(directory: Path, text: Iterable[str]) -> Path:
    """Write the parts of a text, one after the other, into `results.md` and return this file."""
    path = directory / "results.md"
    with atomic_file(path, text=True) as stream:
        stream.write("\n".join(text))
    return path


def write_csv(path: Path, columns: Sequence[object], rows: Iterable[Iterable[object]]) -> Path:
    """Write a table as CSV and return the file."""
    with atomic_file(path, text=True) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def panels(count: int, columns: int, width: float, height: float, **shared: Any) -> tuple[Any, list[Any]]:
    """Return a figure and `count` axes, row by row; the rest of the last row stays empty.

    Parameters
    ----------
    columns : largest number of panels in a row
    width, height : size of a panel in inches
    shared : "sharex" and "sharey", as `Figure.subplots` takes them
    """
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure: Any = new_figure(width * columns, height * rows)
    axes: list[Any] = list(figure.subplots(rows, columns, squeeze=False, **shared).ravel())
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[count:]:
        axis.set_visible(False)
    return figure, axes[:count]


def band(
    axis: Any, x: Any, curves: Array, label: str, colour: str, line: str = "-", width: float = 1.6
) -> tuple[Array, Array]:
    """Draw the mean of curves `(R, n)` with a band of one standard error; return the edges of the band."""
    mean, error = mean_and_error(curves)
    low, high = mean - np.nan_to_num(error), mean + np.nan_to_num(error)
    axis.plot(x, mean, linestyle=line, color=colour, label=label, linewidth=width)
    axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    return low, high


def legend(figure: Any, axes: Iterable[Any], columns: int) -> None:
    """Draw one legend below all panels, with each label once."""
    handles = {text: h for axis in axes for h, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    if handles:
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=min(columns, len(handles)),
            frameon=False,
        )
