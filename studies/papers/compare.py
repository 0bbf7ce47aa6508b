"""Tables and pictures of paired comparisons of variants that share targets and starting points.

Notation: `curves (R, K, T + 1)` are the best values so far of `R` repetitions on `K` targets after `0 .. T`
iterations. Repetitions on one target are not independent, so every standard error is computed from the means
of the `K` targets: s.d. / sqrt(K).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import save_figure
from studies.papers.panels import panels as grid
from studies.papers.tables import table

CHECKPOINTS = (5, 10, 20, 50)


@dataclass(frozen=True)
class Estimate:
    """A mean over targets and its standard error."""

    mean: float
    stderr: float

    @property
    def z(self) -> float:
        """Return the mean in standard errors; 0 if nothing varies."""
        return self.mean / self.stderr if self.stderr > 0 else 0.0

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.stderr:.4f}"


def clustered(values: Array) -> Estimate:
    """Return the mean over `(R, K)` and its standard error, from the means of the `K` targets."""
    targets = values.mean(axis=0)
    stderr = targets.std(ddof=1) / np.sqrt(len(targets)) if len(targets) > 1 else np.nan
    return Estimate(float(targets.mean()), float(stderr))


def gain(curves: Array, baseline: Array, iteration: int) -> Estimate:
    """Return the paired difference to a baseline after `iteration` iterations."""
    return clustered(curves[:, :, iteration] - baseline[:, :, iteration])


def iterations_to(curves: Array, level: float) -> int | None:
    """Return the number of iterations after which the mean curve reaches `level`; None: never."""
    reached = np.flatnonzero(curves.mean(axis=(0, 1)) >= level - 1e-12)  # tolerates rounding of the mean
    return int(reached[0]) if len(reached) else None


def clearly_worse(curves: Array, baseline: Array, iteration: int) -> float:
    """Return the share of targets whose paired difference is below -2 standard errors over repetitions."""
    difference = curves[:, :, iteration] - baseline[:, :, iteration]
    repetitions = len(difference)
    if repetitions < 2:
        return float("nan")
    mean = difference.mean(axis=0)
    stderr = difference.std(axis=0, ddof=1) / np.sqrt(repetitions)
    return float(np.mean((mean < -2 * stderr) & (mean < 0)))


def markdown_table(
    curves: Mapping[str, Array],
    baselines: Mapping[str, str],
    *,
    reference: str = "ts",
    checkpoints: Sequence[int] = CHECKPOINTS,
    traffic: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """Return the comparison as Markdown.

    Parameters
    ----------
    baselines : variant -> the variant it is paired with, if that is not `reference`
    traffic : variant -> bytes down and up per target in the whole run
    """
    last = checkpoints[-1]
    level = float(curves[reference][:, :, last].mean())
    head = ["variant", *(f"best at {t}" for t in checkpoints), "paired with"]
    head += [f"difference at {t}" for t in checkpoints]
    head += [f"{reference}'s level at {last} after", f"targets clearly worse at {last}"]
    head += ["KB down, up per target"] if traffic else []
    rows = []
    for name, mine in curves.items():
        other = baselines.get(name, reference)
        row = [name, *(f"{clustered(mine[:, :, t]).mean:.4f}" for t in checkpoints)]
        if name == other:
            row += ["-"] * (1 + len(checkpoints))
        else:
            gains = [gain(mine, curves[other], t) for t in checkpoints]
            row += [other, *(f"{estimate} (z {estimate.z:+.1f})" for estimate in gains)]
        after = iterations_to(mine, level)
        row += ["not reached" if after is None else str(after)]
        row += ["-" if name == other else f"{100 * clearly_worse(mine, curves[other], last):.0f} %"]
        if traffic:
            down, up = traffic.get(name, (float("nan"), float("nan")))
            row += ["-" if np.isnan(down) else f"{down / 1000:.0f}, {up / 1000:.0f}"]
        rows.append(row)
    return table(head, rows)


def draw(
    panels: Mapping[str, Mapping[str, Array]],
    baselines: Mapping[str, str],
    path: Path,
    *,
    reference: str = "ts",
    ylabel: str,
    hidden: Sequence[str] = (),
) -> None:
    """Draw paired differences to the baseline against iterations, one panel per setting, bands ± 1 s.e."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = grid(len(panels), 2 if len(panels) == 4 else 3, 6.2, 4.4)
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    palette = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C564B", "#999999"]
    drawn = [n for n in names if n != reference and n not in (*baselines.values(), *hidden)]
    colours = {name: palette[i % len(palette)] for i, name in enumerate(drawn)}
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        axis.axhline(0.0, color="black", linewidth=1, linestyle="--")
        for name in drawn:
            if name not in curves:
                continue
            other = curves[baselines.get(name, reference)]
            estimates = [gain(curves[name], other, t) for t in range(other.shape[2])]
            mean = np.array([e.mean for e in estimates])
            stderr = np.array([e.stderr for e in estimates])
            t = np.arange(len(mean))
            style = ":" if name.startswith(("control", "random")) else "-"
            paired = baselines.get(name, reference)
            label = name if paired == reference else f"{name} (against {paired})"
            axis.plot(t, mean, style, color=colours[name], label=label, linewidth=1.8)
            axis.fill_between(t, mean - stderr, mean + stderr, color=colours[name], alpha=0.15, linewidth=0)
        axis.set_title(title, loc="left", fontsize=11)
        axis.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
        axis.set_xlabel("iterations after the starting points")
        axis.set_ylabel(ylabel)
        axis.margins(x=0)
    handles = {h.get_label(): h for axis in axes for h in axis.get_legend_handles_labels()[0]}
    if handles:
        figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=3, frameon=False)
    save_figure(figure, path)
