"""Write the tables and the picture of `families`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms import PlotStyle
from fbo_flower.experiments import compare
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import new_figure, save_figure
from fbo_flower.reports.styles import algorithm_style
from fbo_flower.simulation.jobs import has_result, load_job
from fbo_flower.storage.files import atomic_file

REFERENCE = "ts"
# what the server knows at the end, apart from the numbers of trials and of failures
LEARNS = {
    "random": "nothing",
    "ts": "nothing",
    "fts": "noisy draws of every agent's surrogate",
    "fts portfolio": "noisy draws of every agent's surrogate, some points",
    "rgpe": "all points and standardised values, by linear algebra",
    "taf": "all points and standardised values, by linear algebra",
    "co-kg": "all points (it chooses them) and, by linear algebra, values",
    "co-kg product": "all points (it chooses them) and, by linear algebra, values",
    "no collaboration": "the maximiser of every agent's surrogate and the value there",
    "pf-pne": "cells of stage 1 with their means; nothing of stage 2",
    "pf-pne racing": "cells of stage 1 with their means; nothing of stage 2",
    "fed-pne": "cells and their means",
    "local-pne": "nothing",
    "hct": "nothing",
    "rfms": "configurations, models, one loss per model and site",
}
# no two lines of a panel look alike, also where bands hide the dashes
_VARIANTS = {
    "fts portfolio": PlotStyle("#56B4E9", "--"),
    "co-kg product": PlotStyle("#E69F00", "-."),
    "no collaboration": PlotStyle("#8a8a8a", "--"),
    "pf-pne racing": PlotStyle("#D55E00", "--"),
}
_COLUMNS = ("algorithms with a surrogate", "random search and bandits")
_WITHOUT_SURROGATE = ("random", "pf-pne", "pf-pne racing", "fed-pne", "local-pne", "hct")
_FIRST_DRAWN = 5  # the evaluation from which on everything fits between the picture's edges


def style(label: str) -> PlotStyle:
    """Return the style of a variant, else that of the algorithm whose name the label is."""
    return _VARIANTS.get(label) or algorithm_style(label)


def job_name(problem: str, label: str, seed: int) -> str:
    """Return the name of a job."""
    return f"{problem}-{label.replace(' ', '_')}-{seed}"


def report(
    directory: Path, problems: Sequence[str], labels: Sequence[str], num_seeds: int, budget: int
) -> list[Path]:
    """Write `results.md` and `families.png` from the jobs of the finished seeds."""
    checkpoints = [t for t in (5, 10, 20, 50) if t <= budget]
    text = [
        f"{budget} evaluations per agent, {num_seeds} seeds; means over agents, s.e. over seeds, differences "
        "paired by seed. Values without noise, larger is better.\n"
    ]
    panels: dict[str, dict[str, Array]] = {}
    for problem in problems:
        found = {label: stack(directory, problem, label, num_seeds, "best") for label in labels}
        panels[problem] = {label: found[label].mean(axis=1) for label in labels}  # (seeds, budget)
        optimum = stack(directory, problem, REFERENCE, num_seeds, "optimum").mean()
        text.append(f"## {problem}, {found[REFERENCE].shape[1]} agents, mean of the optima {optimum:.4f}\n")
        text.append(_table(directory, problem, panels[problem], num_seeds, checkpoints))
    results, picture = directory / "results.md", directory / "families.png"
    with atomic_file(results, text=True) as stream:
        stream.write("\n".join(text))
    draw(panels, picture)
    return [results, picture]


def stack(directory: Path, problem: str, label: str, num_seeds: int, key: str) -> Array:
    """Return one array of all seeds, stacked as `(seeds, ...)`."""
    return np.stack([load_job(directory, job_name(problem, label, s))[key] for s in range(num_seeds)])


def _table(
    directory: Path, problem: str, panel: dict[str, Array], num_seeds: int, checkpoints: Sequence[int]
) -> str:
    last = checkpoints[-1]
    level = panel[REFERENCE][:, last - 1].mean()
    by_chance = panel["random"][:, last - 1].mean()
    head = ["algorithm", *(f"best at {t}" for t in checkpoints), f"minus {REFERENCE} at {checkpoints[1]}"]
    head += [f"minus {REFERENCE} at {last}", "mean of all evaluations", "evaluations to random's level"]
    head += [f"to {REFERENCE}'s level", "floats down, up per agent", "kB down, up per agent", "CPU s"]
    head += ["the server learns"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for label, curves in panel.items():
        values = stack(directory, problem, label, num_seeds, "values").mean(axis=(1, 2))
        row = [label, *(f"{curves[:, t - 1].mean():.4f}" for t in checkpoints)]
        for t in (checkpoints[1], last):
            paired = compare.clustered((curves - panel[REFERENCE])[None, :, t - 1])
            row.append("-" if label == REFERENCE else str(paired))
        row += [f"{values.mean():.4f}", _reached(curves, by_chance), _reached(curves, level)]
        lines.append("| " + " | ".join([*row, *_costs(directory, problem, label, num_seeds)]) + " |")
    if has_result(directory, job_name(problem, "rfms", 0)):
        shipped = stack(directory, problem, "rfms", num_seeds, "best")[:, :, 0].mean(axis=1)
        paired = compare.clustered((shipped - panel[REFERENCE][:, last - 1])[None, :])
        row = [
            "rfms, shipped model",
            *["-"] * (len(checkpoints) - 1),
            f"{shipped.mean():.4f}",
            "-",
            str(paired),
        ]
        row += ["-", "-", "-", *_costs(directory, problem, "rfms", num_seeds)]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def _costs(directory: Path, problem: str, label: str, num_seeds: int) -> list[str]:
    costs = stack(directory, problem, label, num_seeds, "costs")
    down, up, bytes_down, bytes_up = costs[:, :4].mean(axis=0)
    return [
        f"{down:,.0f}, {up:,.0f}",
        f"{bytes_down / 1000:,.0f}, {bytes_up / 1000:,.0f}",
        f"{np.median(costs[:, 4]):.1f}",
        LEARNS[label],
    ]


def _reached(curves: Array, level: float) -> str:
    """Return the number of evaluations after which the mean of curves `(seeds, budget)` reaches a level."""
    reached = np.flatnonzero(curves.mean(axis=0) >= level - 1e-12)
    return str(int(reached[0]) + 1) if len(reached) else "not"


def draw(panels: dict[str, dict[str, Array]], path: Path) -> None:
    """Draw gains over tuning alone, a row per problem: algorithms with a surrogate left, all others right.

    Lines are means over agents and seeds, bands one standard error over seeds to either side, both of
    differences paired by seed. Algorithms that are identical on all problems share one line.
    """
    figure: Any = new_figure(9.4, 2.7 * len(panels) + 1.0)
    axes: Any = figure.subplots(len(panels), 2, squeeze=False, sharex=True)
    names = merged(panels)
    for row, (problem, panel) in zip(axes, panels.items(), strict=True):
        for axis, is_right, title in zip(row, (False, True), _COLUMNS, strict=True):
            shown = {
                text: panel[label] - panel[REFERENCE]
                for label, text in names.items()
                if label != REFERENCE and (label in _WITHOUT_SURROGATE) == is_right
            }
            styles = {text: style(label) for label, text in names.items()}
            _draw_gains(axis, shown, styles)
            axis.set_title(f"{problem}: {title}", loc="left", fontsize=10)
        row[0].set_ylabel(f"gain over {REFERENCE}")
    for axis in axes[-1]:
        axis.set_xlabel("evaluations per agent")
    handles = {h.get_label(): h for axis in axes[0] for h in axis.get_legend_handles_labels()[0]}
    if handles:
        figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, path, 120)


def merged(panels: dict[str, dict[str, Array]]) -> dict[str, str]:
    """Return label -> text of the legend; labels with the same curves on all problems are one entry.

    >>> one, two = np.zeros((2, 3)), np.ones((2, 3))
    >>> merged({"f1": {"ts": one, "pf-pne": two, "fed-pne": two}})
    {'ts': 'ts', 'pf-pne': 'pf-pne = fed-pne'}
    """
    texts: dict[str, str] = {}
    for label in next(iter(panels.values()), {}):
        same = (
            other
            for other in texts
            if all(np.array_equal(panel[label], panel[other], equal_nan=True) for panel in panels.values())
        )
        twin = next(same, None)
        if twin is None:
            texts[label] = label
        else:
            texts[twin] += f" = {label}"
    return texts


def _draw_gains(axis: Any, gains: dict[str, Array], styles: dict[str, PlotStyle]) -> None:
    """Draw paired differences `(seeds, budget)`; the axis leaves out the first evaluations, often awful."""
    axis.axhline(0.0, color="black", linewidth=1, linestyle="--")
    edges = [0.0]
    for text, gain in gains.items():
        mean = gain.mean(axis=0)
        stderr = gain.std(axis=0, ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.zeros_like(mean)
        x, (colour, line) = 1 + np.arange(len(mean)), styles[text]
        axis.plot(x, mean, linestyle=line, color=colour, label=text, linewidth=1.5)
        axis.fill_between(x, mean - stderr, mean + stderr, color=colour, alpha=0.13, linewidth=0)
        late = slice(min(_FIRST_DRAWN, len(mean)) - 1, None)
        edges += [*(mean - stderr)[late].tolist(), *(mean + stderr)[late].tolist()]
    low, high = min(edges), max(edges)
    margin = 0.05 * (high - low) or 1e-9
    axis.set_ylim(low - margin, high + margin)
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(x=0)
