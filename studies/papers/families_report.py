"""Write the tables and the pictures of `families`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms import PlotStyle
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import algorithm_style, new_figure, save_figure
from studies.jobs import has_result, load_job
from studies.papers import compare
from studies.papers.panels import panels as grid
from studies.papers.tables import table, write_results

REFERENCE = "ei"  # the best optimiser of ours that an agent can run alone
CHECKPOINTS = (3, 5, 10, 20, 50)
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
    "ei": "nothing",
    "fed-ei": "all points and standardised values, but not whose they are",
    "tpe": "nothing",
    "gpsampler": "nothing",
    "rfms": "configurations, models, one loss per model and site",
}
# no two lines of a panel look alike, also where bands hide the dashes
_VARIANTS = {
    "fts portfolio": PlotStyle("#56B4E9", "--"),
    "co-kg product": PlotStyle("#E69F00", "-."),
    "no collaboration": PlotStyle("#B0B0B0", "--"),
    "ts": PlotStyle("#4D4D4D", ":"),
    "fed-ei": PlotStyle("#000000", "-"),
    "tpe": PlotStyle("#8C564B", "-."),
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


def report(directory: Path, problems: Mapping[str, Sequence[str]], num_seeds: int, budget: int) -> list[Path]:
    """Write `results.md` and the pictures from the jobs of the finished seeds.

    Parameters
    ----------
    problems : problem -> labels of its algorithms
    """
    text = [
        f"{budget} evaluations per agent, {num_seeds} seeds; means over agents, s.e. over seeds, differences "
        "paired by seed. Values without noise, larger is better.\n"
    ]
    panels: dict[str, dict[str, Array]] = {}
    for problem, labels in problems.items():
        found = {label: stack(directory, problem, label, num_seeds, "best") for label in labels}
        if all(has_result(directory, job_name(problem, "tpe", seed)) for seed in range(num_seeds)):
            found["tpe"] = stack(directory, problem, "tpe", num_seeds, "best")
        panels[problem] = {label: best.mean(axis=1) for label, best in found.items()}  # (seeds, budget)
        optimum = stack(directory, problem, REFERENCE, num_seeds, "optimum").mean()
        known = f", mean of the optima {optimum:.4f}" if np.isfinite(optimum) else ""
        text.append(f"## {problem}, {found[REFERENCE].shape[1]} agents{known}\n")
        text.append(_differences(directory, problem, found, num_seeds, budget))
        text.append(_costs(directory, problem, list(found), num_seeds))
    results = write_results(directory, text)
    picture, broad = directory / "families.png", directory / "families-broad.png"
    few = {problem: panel for problem, panel in panels.items() if "hct" in panel}
    rest = {problem: panel for problem, panel in panels.items() if problem not in few}
    files = [results]
    for file, drawn, function in ((picture, few, draw), (broad, rest, draw_broad)):
        if drawn:
            function(drawn, file)
            files.append(file)
    return files


def stack(directory: Path, problem: str, label: str, num_seeds: int, key: str) -> Array:
    """Return one array of all seeds, stacked as `(seeds, ...)`."""
    return np.stack([load_job(directory, job_name(problem, label, s))[key] for s in range(num_seeds)])


def _differences(
    directory: Path, problem: str, found: Mapping[str, Array], num_seeds: int, budget: int
) -> str:
    """Return the table of values and of differences to `REFERENCE`.

    Parameters
    ----------
    found : label -> best values so far, `(seeds, agents, budget)`
    """
    checkpoints = [t for t in CHECKPOINTS if t <= budget]
    last = checkpoints[-1]
    by_chance = found["random"].mean(axis=(0, 1))[last - 1]
    head = ["algorithm", f"best at {last}", *(f"minus {REFERENCE} at {t}" for t in checkpoints)]
    head += [f"agents worse than with {REFERENCE} at {last}", "evaluations to random's level"]
    rows = []
    for label, best in found.items():
        gains = best - found[REFERENCE]
        row = [label, f"{best[:, :, last - 1].mean():.4f}"]
        if label == REFERENCE:
            row += ["-"] * (len(checkpoints) + 1)
        else:
            row += [_paired(gains[:, :, t - 1]) for t in checkpoints]
            row += [f"{100 * (gains[:, :, last - 1] < 0).mean():.0f} %"]
        rows.append([*row, _reached(best.mean(axis=1), by_chance)])
    if all(has_result(directory, job_name(problem, "gpsampler", seed)) for seed in range(num_seeds)):
        slow = stack(directory, problem, "gpsampler", num_seeds, "best")
        gains = slow - found[REFERENCE][:, : slow.shape[1], : slow.shape[2]]
        row = [f"gpsampler, {slow.shape[1]} agents", "-"]
        row += [_paired(gains[:, :, t - 1]) if t <= slow.shape[2] else "-" for t in checkpoints]
        rows.append([*row, "-", "-"])
    if has_result(directory, job_name(problem, "rfms", 0)):
        shipped = stack(directory, problem, "rfms", num_seeds, "best")[:, :, 0]
        row = ["rfms, shipped model", f"{shipped.mean():.4f}", *["-"] * (len(checkpoints) - 1)]
        rows.append([*row, _paired(shipped - found[REFERENCE][:, :, last - 1]), "-", "-"])
    return table(head, rows)


def _paired(differences: Array) -> str:
    """Return the mean of differences `(seeds, agents)`, with the standard error over seeds."""
    return str(compare.clustered(differences.mean(axis=1)[None, :]))


def _costs(directory: Path, problem: str, labels: Sequence[str], num_seeds: int) -> str:
    """Return the table of what was sent, what it took and what the server learns."""
    lines = [
        "| algorithm | floats down, up per agent | kB down, up per agent | CPU s | the server learns |",
        "|---|---|---|---|---|",
    ]
    slower = [
        label
        for label in ("gpsampler", "rfms")
        if has_result(directory, job_name(problem, label, num_seeds - 1))
    ]
    for label in (*labels, *slower):
        costs = stack(directory, problem, label, num_seeds, "costs")
        down, up, bytes_down, bytes_up = costs[:, :4].mean(axis=0)
        row = [label, f"{down:,.0f}, {up:,.0f}", f"{bytes_down / 1000:,.0f}, {bytes_up / 1000:,.0f}"]
        lines.append("| " + " | ".join([*row, f"{np.median(costs[:, 4]):.1f}", LEARNS[label]]) + " |")
    return "\n".join(lines) + "\n"


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


def draw_broad(panels: dict[str, dict[str, Array]], path: Path) -> None:
    """Draw gains over tuning alone, one panel per problem, as `draw` does."""
    figure, axes = grid(len(panels), 2, 4.7, 2.9)
    labels = [label for label in next(iter(panels.values())) if label != REFERENCE]
    styles = {label: style(label) for label in labels}
    for axis, (problem, panel) in zip(axes, panels.items(), strict=True):
        _draw_gains(
            axis, {label: panel[label] - panel[REFERENCE] for label in labels if label in panel}, styles
        )
        axis.set_title(problem, loc="left", fontsize=10)
        axis.set_ylabel(f"gain over {REFERENCE}")
        axis.set_xlabel("evaluations per agent")
    handles, texts = axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, texts, loc="outside lower center", ncols=4, frameon=False)
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
