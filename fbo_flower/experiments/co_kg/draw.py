"""Draw the Co-KG experiment: differences to the optimum against evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.experiments.co_kg.runs import NUM_AGENTS, NUM_INITIAL
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import new_figure, save_figure
from fbo_flower.reports.styles import algorithm_style

METRICS = {"recommended": "what the server would return", "best": "best configuration tried"}
LOWEST = 1e-4  # smaller differences are drawn here, because a logarithmic axis has no 0
COLOURS = {
    "co-kg": algorithm_style("co-kg").color,
    "co-ei": "#56B4E9", "co-es": "#CC79A7", "barycenter-qkg": "#D55E00",
    "no-collaboration": "#E69F00", "data-communication": "#0072B2", "product": "#000000",
    "random": algorithm_style("random").color,
}  # fmt: skip
DASHED = {"product": "--", "random": ":", "barycenter-qkg": "-."}


def draw(panels: Mapping[str, Mapping[str, Mapping[str, Array]]], path: Path, *, logarithmic: bool) -> None:
    """Draw one column per problem and one row per metric, means with bands of ± 1 s.e.

    Parameters
    ----------
    panels : problem -> metric -> framework -> curves `(seeds, rounds)`; frameworks without a colour are not
        drawn
    """
    figure: Any = new_figure(5.0 * len(panels), 7.4)
    axes: Any = figure.subplots(len(METRICS), len(panels), squeeze=False, sharex="col")
    for column, (title, metrics) in enumerate(panels.items()):
        for row, (metric, meaning) in enumerate(METRICS.items()):
            axis = axes[row, column]
            for name, colour in COLOURS.items():
                if name in metrics[metric]:
                    _line(axis, metrics[metric][name], name, colour, logarithmic)
            if logarithmic:
                axis.set_yscale("log")
                axis.set_ylim(bottom=0.7 * LOWEST)
            axis.spines[["top", "right"]].set_visible(False)
            axis.margins(x=0)
            if row == 0:
                axis.set_title(title, loc="left", fontsize=11)
            if column == 0:
                axis.set_ylabel(f"{meaning}:\n{'difference to the optimum' if logarithmic else 'loss'}")
        axes[-1, column].set_xlabel("evaluations of all agents")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, path, 130)


def _line(axis: Any, curves: Array, name: str, colour: str, logarithmic: bool) -> None:
    told = ~np.isnan(curves).any(axis=0)
    curves = curves[:, told]
    evaluations = NUM_AGENTS * (NUM_INITIAL + np.flatnonzero(told))
    mean = curves.mean(axis=0)
    stderr = curves.std(axis=0, ddof=1) / np.sqrt(len(curves)) if len(curves) > 1 else np.zeros_like(mean)
    lowest = LOWEST if logarithmic else -np.inf
    low, mean, high = (np.maximum(v, lowest) for v in (mean - stderr, mean, mean + stderr))
    axis.plot(evaluations, mean, DASHED.get(name, "-"), color=colour, label=name, linewidth=1.7)
    axis.fill_between(evaluations, low, high, color=colour, alpha=0.13, linewidth=0)
