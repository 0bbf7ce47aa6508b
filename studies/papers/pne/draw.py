"""Draw the PF-PNE experiment: cumulative regret against pulls, floats exchanged against rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import algorithm_style, save_figure
from studies.jobs import Arrays
from studies.papers.panels import panels as grid

_NAMED = ("pf-pne", "fed-pne", "local-pne", "hct", "fed1-ucb")
COLOURS = {name: algorithm_style(name).color for name in _NAMED} | {
    "racing": "#0072B2",
    "racing-local": "#CC79A7",
}
COMMUNICATING = {
    "fed-pne": ".-",
    "pf-pne": "o--",
    "fed1-ucb": ".-",
    "racing": "s-",
}  # algorithm -> line style

Panels = Mapping[str, Sequence[Arrays]]  # title -> results of the jobs of its seeds


def regret(panels: Panels, path: Path) -> None:
    """Draw mean cumulative regret per client, bands ± 1 standard deviation over seeds, log scale."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = grid(len(panels), 3, 4.6, 3.5)
    for axis, (title, runs) in zip(axes, panels.items(), strict=True):
        for name, colour in COLOURS.items():
            times = runs[0][f"{name}/times"][1:]
            curves = np.array([run[f"{name}/curve"] for run in runs])[:, 1:]
            mean, low, high = band(curves)
            axis.plot(times, mean, color=colour, label=name, linewidth=1.6)
            axis.fill_between(times, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.xaxis.set_major_locator(MaxNLocator(nbins=5))
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.set_xlabel("evaluations per client")
        axis.set_ylabel("cumulative regret per client")
        _finish(axis, title)
    _save(figure, axes, path)


def communication(panels: Panels, path: Path) -> None:
    """Draw floats exchanged by all clients so far against rounds, mean over seeds, log scales."""
    figure, axes = grid(len(panels), 3, 4.6, 3.5)
    for axis, (title, runs) in zip(axes, panels.items(), strict=True):
        for name, line in COMMUNICATING.items():
            mean = padded([run[f"{name}/exchanged"].sum(axis=1).cumsum() for run in runs]).mean(axis=0)
            rounds = np.arange(1, len(mean) + 1)
            axis.plot(rounds, mean, line, color=COLOURS[name], label=name, linewidth=1.4, markersize=5)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
        axis.set_xlabel("communication rounds")
        axis.set_ylabel("floats exchanged")
        _finish(axis, title)
        axis.margins(x=0.05)
    _save(figure, axes, path)


def band(curves: Array) -> tuple[Array, Array, Array]:
    """Return the mean over seeds `(R, g)` and mean ± 1 standard deviation; one seed has no band."""
    mean = curves.mean(axis=0)
    stddev = curves.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros_like(mean)
    return mean, np.maximum(mean - stddev, 1e-3), mean + stddev


def padded(curves: Sequence[Array]) -> Array:
    """Return curves of different lengths as rows; short curves repeat their last value.

    >>> padded([np.array([1.0, 2.0]), np.array([3.0])]).tolist()
    [[1.0, 2.0], [3.0, 3.0]]
    """
    longest = max(len(curve) for curve in curves)
    return np.array(
        [np.pad(c, (0, longest - len(c)), "edge") if len(c) else np.zeros(longest) for c in curves]
    )


def _finish(axis: Any, title: str) -> None:
    axis.set_yscale("log")
    axis.set_title(title, loc="left", fontsize=11)
    axis.margins(x=0)
    axis.spines[["top", "right"]].set_visible(False)


def _save(figure: Any, axes: Sequence[Any], path: Path) -> None:
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, path, 130)
