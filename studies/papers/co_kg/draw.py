"""Draw the Co-KG experiment: differences to the optimum, or gains over no collaboration, by evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import algorithm_style, new_figure, save_figure
from studies.papers.co_kg.runs import NUM_AGENTS, NUM_INITIAL

METRICS = {"recommended": "what the server would return", "best": "best configuration tried"}
BASELINE = "no-collaboration"
LOWEST = 1e-4  # smaller differences are drawn here, because a logarithmic axis has no 0
COLOURS = {
    "co-kg": algorithm_style("co-kg").color,
    "co-ei": "#56B4E9", "co-es": "#CC79A7", "barycenter-qkg": "#D55E00",
    "no-collaboration": "#E69F00", "data-communication": "#0072B2", "product": "#000000",
    "random": algorithm_style("random").color,
}  # fmt: skip
_FAR = 2.5  # a framework this many times farther from 0 than all others leaves the panel
DASHED = {"product": "--", "random": ":", "barycenter-qkg": "-."}


def draw(panels: Mapping[str, Mapping[str, Mapping[str, Array]]], path: Path, *, paired: bool) -> None:
    """Draw one column per problem and one row per metric, means with bands of ± 1 s.e.

    Networks differ more by seed than by framework. So they are drawn paired: as the loss that each seed has
    with `BASELINE` minus that of the framework. Differences to an optimum are drawn as they are, on a
    logarithmic axis.

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
            curves = metrics[metric]
            if paired:
                curves = {n: curves[BASELINE] - c for n, c in curves.items() if n != BASELINE}
                axis.axhline(0.0, color="black", linewidth=0.8)
            for name, colour in COLOURS.items():
                if name in curves:
                    _line(axis, curves[name], name, colour, logarithmic=not paired)
            if paired:
                _limit(axis, {name: curves[name] for name in COLOURS if name in curves})
            else:
                axis.set_yscale("log")
                axis.set_ylim(bottom=0.7 * LOWEST)
            axis.spines[["top", "right"]].set_visible(False)
            axis.margins(x=0)
            if row == 0:
                axis.set_title(title, loc="left", fontsize=11)
            if column == 0:
                what = f"loss saved against\n{BASELINE}" if paired else "difference to the optimum"
                axis.set_ylabel(f"{meaning}:\n{what}")
        axes[-1, column].set_xlabel("evaluations of all agents")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, path, 130)


def _limit(axis: Any, curves: Mapping[str, Array]) -> None:
    """Limit the axis to all frameworks but one if that one alone is far away, and say so."""
    reach = {name: float(np.nanmax(np.abs(c.mean(axis=0)), initial=0.0)) for name, c in curves.items()}
    ranked = sorted(reach, key=reach.__getitem__)
    if len(ranked) < 3 or not 0 < _FAR * reach[ranked[-2]] < reach[ranked[-1]]:
        return
    far, limit = ranked[-1], 1.8 * reach[ranked[-2]]
    axis.set_ylim(-limit, limit)
    note = f"{far} reaches {reach[far]:.2g} and leaves the panel"
    axis.text(0.01, 0.01, note, transform=axis.transAxes, fontsize=8, color="#5f5f5f")


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
