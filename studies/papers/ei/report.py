"""Write the tables and pictures of `fed-ei`: gains over the best optimiser that an agent can run alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import save_figure
from fbo_flower.storage import atomic_file
from studies.jobs import has_result, load_job
from studies.papers.panels import panels

BASELINE = "ei"
CHECKPOINTS = (3, 5, 10, 20, 50)
LATE_CHECKPOINTS = (1, 2, 3, 5, 10)
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73")
_FIRST_DRAWN = 3  # the last of the common starting points

Pair = tuple[Array, Array]  # of a variant and of the baseline, `(seeds, evaluations)`, means over agents


def write(
    directory: Path,
    seeds: Sequence[int],
    variants: Sequence[str],
    labels: Sequence[str],
    late: Sequence[str],
) -> list[Path]:
    """Write `results.md`, `gains.png` and `late.png` from the finished jobs, and return these files.

    Parameters
    ----------
    variants : what is compared with `BASELINE`
    labels, late : the problems, and those of the late joiners
    """
    lines = [f"Seeds {seeds[0]} to {seeds[-1]}."]
    gains: dict[str, dict[str, Array]] = {label: {} for label in labels}
    for variant in variants:
        found = {label: _curves(directory, label, variant, seeds) for label in labels}
        found = {label: pairs for label, pairs in found.items() if pairs}
        lines += ["", f"## {variant} minus {BASELINE}", "", *_table(found)]
        for label, pairs in found.items():
            gains[label][variant] = np.array([(f - e).mean(axis=0) for f, e in pairs])
    joined = {label: _late(directory, label, seeds) for label in late}
    lines += ["", f"## Late joiners: fed-ei minus {BASELINE}", "", *_late_table(joined)]
    files = [directory / name for name in ("results.md", "gains.png", "late.png")]
    with atomic_file(files[0], text=True) as stream:
        stream.write("\n".join(lines) + "\n")
    draw_gains(gains, files[1])
    draw_late(joined, files[2])
    return files


def _curves(directory: Path, label: str, variant: str, seeds: Sequence[int]) -> list[Pair]:
    """Return the best values so far of a variant and of the baseline, both `(agents, budget)`, by seed."""
    pairs = []
    for seed in seeds:
        names = [f"{label}-{name}-{seed}" for name in (variant, BASELINE)]
        if all(has_result(directory, name) for name in names):
            mine, alone = (load_job(directory, name)["best"] for name in names)
            pairs.append((mine, alone[:, : mine.shape[1]]))
    return pairs


def _late(directory: Path, label: str, seeds: Sequence[int]) -> Pair:
    """Return the best values so far of late joiners with `fed-ei` and alone."""
    names = [f"late-{label}-{seed}" for seed in seeds]
    found = [load_job(directory, name) for name in names if has_result(directory, name)]
    fed, alone = (np.array([f[name].mean(axis=0) for f in found]) for name in ("fed-ei", BASELINE))
    return fed, alone


def _table(found: Mapping[str, Sequence[Pair]]) -> list[str]:
    """Return the rows of a table; problems may have different budgets."""
    longest = max((f.shape[1] for pairs in found.values() for f, _ in pairs), default=0)
    checkpoints = [at for at in CHECKPOINTS if at <= longest]
    rows = _head(["problem", "seeds", *(f"at {at}" for at in checkpoints), "agents worse at the end"])
    for label, pairs in found.items():
        difference = np.array([(f - e).mean(axis=0) for f, e in pairs])
        worse = np.mean([(f - e)[:, -1] < -1e-9 for f, e in pairs])
        cells = [_shown(difference[:, at - 1]) if at <= difference.shape[1] else "-" for at in checkpoints]
        rows.append("| " + " | ".join([label, str(len(pairs)), *cells, f"{100 * worse:.0f} %"]) + " |")
    return rows


def _late_table(joined: Mapping[str, Pair]) -> list[str]:
    budget = min(fed.shape[1] for fed, _ in joined.values())
    at = [n for n in LATE_CHECKPOINTS if n <= budget]
    rows = _head(["problem", "seeds", *(f"at {n}" for n in at), "fed-ei at 2", f"{BASELINE} at {at[-1]}"])
    for label, (fed, alone) in joined.items():
        row = [label, str(len(fed)), *(_shown((fed - alone)[:, n - 1]) for n in at)]
        row += [f"{fed[:, 1].mean():.3f}", f"{alone[:, at[-1] - 1].mean():.3f}"]
        rows.append("| " + " | ".join(row) + " |")
    return rows


def _shown(differences: Array) -> str:
    count = len(differences)
    error = differences.std(ddof=1) / np.sqrt(count) if count > 1 else np.nan
    return f"{differences.mean():+.3f} ± {error:.3f}"


def _head(columns: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]


# -- pictures ----------------------------------------------------------------------------------


def draw_gains(gains: Mapping[str, Mapping[str, Array]], path: Path) -> None:
    """Draw the variants' gains over the baseline `(seeds, evaluations)`, a panel per problem."""
    figure, axes = panels(len(gains), 3, 3.6, 2.6)
    for place, (axis, (label, found)) in enumerate(zip(axes, gains.items(), strict=True)):
        axis.axhline(0.0, color="black", linewidth=1, linestyle="--")
        for colour, (variant, curves) in zip(COLOURS, found.items(), strict=False):
            _line(
                axis,
                np.arange(_FIRST_DRAWN, curves.shape[1] + 1),
                curves[:, _FIRST_DRAWN - 1 :],
                colour,
                variant,
            )
        axis.set_title(label, loc="left", fontsize=10)
        axis.set_xlabel("evaluations per agent")
        if place % 3 == 0:
            axis.set_ylabel(f"gain over {BASELINE}")
        axis.margins(x=0)
    _legend(figure, axes)
    save_figure(figure, path, 120)


def draw_late(joined: Mapping[str, Pair], path: Path) -> None:
    """Draw the best values so far of agents that join late, with `fed-ei` and alone."""
    figure, axes = panels(len(joined), 3, 3.8, 3.0)
    for place, (axis, (label, (fed, alone))) in enumerate(zip(axes, joined.items(), strict=True)):
        for curves, colour, text in (
            (fed, COLOURS[0], "joins a federation with fed-ei"),
            (alone, COLOURS[2], f"begins alone with {BASELINE}"),
        ):
            _line(axis, 1.0 + np.arange(curves.shape[1]), curves, colour, text)
        axis.set_title(label, loc="left", fontsize=10)
        axis.set_xlabel("evaluations of the new agent")
        if place == 0:
            axis.set_ylabel("best value so far")
        axis.margins(x=0)
    _legend(figure, axes)
    save_figure(figure, path, 120)


def _line(axis: Any, x: Any, curves: Array, colour: str, text: str) -> None:
    """Draw the mean over seeds, with a band of one standard error to either side."""
    mean = curves.mean(axis=0)
    error = curves.std(axis=0, ddof=1) / np.sqrt(len(curves)) if len(curves) > 1 else np.zeros_like(mean)
    axis.plot(x, mean, color=colour, label=text, linewidth=1.6)
    axis.fill_between(x, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)


def _legend(figure: Any, axes: Sequence[Any]) -> None:
    handles = {
        text: handle for axis in axes for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=min(3, len(axes)), frameon=False
    )
