"""Write the tables and the pictures of `families`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms import PlotStyle
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import algorithm_style, new_figure, save_figure
from studies.jobs import Arrays
from studies.report import band, clustered, legend, panels, table, write_results

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
    "fed-ei": "points and standardised values, of each that it is of a member of a sum",
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


def report(directory: Path, found: Mapping[str, Mapping[str, Arrays]], budget: int) -> list[Path]:
    """Write `results.md` and the pictures.

    Parameters
    ----------
    found : problem -> label -> arrays `(seeds, ...)` of `families.run_one`
    """
    num_seeds = len(next(iter(found.values()))[REFERENCE]["best"])
    text = [
        f"{budget} evaluations per agent, {num_seeds} seeds; means over agents, s.e. over seeds, differences "
        "paired by seed. Values without noise, larger is better.\n"
    ]
    curves: dict[str, dict[str, Array]] = {}
    for problem, results in found.items():
        best = {label: a["best"] for label, a in results.items() if label not in ("gpsampler", "rfms")}
        curves[problem] = {label: values.mean(axis=1) for label, values in best.items()}  # (seeds, budget)
        optimum = results[REFERENCE]["optimum"].mean()
        known = f", mean of the optima {optimum:.4f}" if np.isfinite(optimum) else ""
        text.append(f"## {problem}, {best[REFERENCE].shape[1]} agents{known}\n")
        text.append(_differences(results, best, budget))
        text.append(_costs(results))
    files = [write_results(directory, text)]
    few = {problem: panel for problem, panel in curves.items() if "hct" in panel}
    rest = {problem: panel for problem, panel in curves.items() if problem not in few}
    for name, drawn, function in (("families.png", few, draw), ("families-broad.png", rest, draw_broad)):
        if drawn:
            function(drawn, directory / name)
            files.append(directory / name)
    return files


def _differences(results: Mapping[str, Arrays], found: Mapping[str, Array], budget: int) -> str:
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
    if "gpsampler" in results:
        slow = results["gpsampler"]["best"]
        gains = slow - found[REFERENCE][:, : slow.shape[1], : slow.shape[2]]
        row = [f"gpsampler, {slow.shape[1]} agents", "-"]
        row += [_paired(gains[:, :, t - 1]) if t <= slow.shape[2] else "-" for t in checkpoints]
        rows.append([*row, "-", "-"])
    if "rfms" in results:
        shipped = results["rfms"]["best"][:, :, 0]
        row = ["rfms, shipped model", f"{shipped.mean():.4f}", *["-"] * (len(checkpoints) - 1)]
        rows.append([*row, _paired(shipped - found[REFERENCE][:, :, last - 1]), "-", "-"])
    return table(head, rows)


def _paired(differences: Array) -> str:
    """Return the mean of differences `(seeds, agents)`, with the standard error over seeds."""
    return str(clustered(differences.mean(axis=1)[None, :]))


def _costs(results: Mapping[str, Arrays]) -> str:
    """Return the table of what was sent, what it took and what the server learns."""
    rows = []
    for label, arrays in results.items():
        down, up, bytes_down, bytes_up = arrays["costs"][:, :4].mean(axis=0)
        sent = [f"{down:,.0f}, {up:,.0f}", f"{bytes_down / 1000:,.0f}, {bytes_up / 1000:,.0f}"]
        rows.append([label, *sent, f"{np.median(arrays['costs'][:, 4]):.1f}", LEARNS[label]])
    sent_by = ["floats down, up per agent", "kB down, up per agent"]
    return table(["algorithm", *sent_by, "CPU s", "the server learns"], rows)


def _reached(curves: Array, level: float) -> str:
    """Return the number of evaluations after which the mean of curves `(seeds, budget)` reaches a level."""
    reached = np.flatnonzero(curves.mean(axis=0) >= level - 1e-12)
    return str(int(reached[0]) + 1) if len(reached) else "not"


def draw(found: dict[str, dict[str, Array]], path: Path) -> None:
    """Draw gains over tuning alone, a row per problem: algorithms with a surrogate left, all others right.

    Lines are means over agents and seeds, bands one standard error over seeds to either side, both of
    differences paired by seed. Algorithms that are identical on all problems share one line.
    """
    figure: Any = new_figure(9.4, 2.7 * len(found) + 1.0)
    axes: Any = figure.subplots(len(found), 2, squeeze=False, sharex=True)
    names = merged(found)
    styles = {text: style(label) for label, text in names.items()}
    for row, (problem, panel) in zip(axes, found.items(), strict=True):
        for axis, is_right, title in zip(row, (False, True), _COLUMNS, strict=True):
            shown = {
                text: panel[label] - panel[REFERENCE]
                for label, text in names.items()
                if label != REFERENCE and (label in _WITHOUT_SURROGATE) == is_right
            }
            _draw_gains(axis, shown, styles, f"{problem}: {title}")
        row[0].set_ylabel(f"gain over {REFERENCE}")
    for axis in axes[-1]:
        axis.set_xlabel("evaluations per agent")
    legend(figure, axes[0], 4)
    save_figure(figure, path, 120)


def draw_broad(found: dict[str, dict[str, Array]], path: Path) -> None:
    """Draw gains over tuning alone, one panel per problem, as `draw` does."""
    figure, axes = panels(len(found), 2, 4.7, 2.9)
    labels = [label for label in next(iter(found.values())) if label != REFERENCE]
    styles = {label: style(label) for label in labels}
    for axis, (problem, panel) in zip(axes, found.items(), strict=True):
        gains = {label: panel[label] - panel[REFERENCE] for label in labels if label in panel}
        _draw_gains(axis, gains, styles, problem)
        axis.set_ylabel(f"gain over {REFERENCE}")
        axis.set_xlabel("evaluations per agent")
    legend(figure, axes[:1], 4)
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


def _draw_gains(axis: Any, gains: dict[str, Array], styles: dict[str, PlotStyle], title: str) -> None:
    """Draw paired differences `(seeds, budget)`; the axis leaves out the first evaluations, often awful."""
    axis.axhline(0.0, color="black", linewidth=1, linestyle="--")
    edges = [0.0]
    for text, gain in gains.items():
        colour, line = styles[text]
        low, high = band(axis, 1 + np.arange(gain.shape[1]), gain, text, colour, line, 1.5)
        late = slice(min(_FIRST_DRAWN, len(low)) - 1, None)
        edges += [*low[late].tolist(), *high[late].tolist()]
    margin = 0.05 * (max(edges) - min(edges)) or 1e-9
    axis.set_ylim(min(edges) - margin, max(edges) + margin)
    axis.set_title(title, loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(x=0)
