"""Tables and pictures of paired comparisons of variants that share targets and starting points.

Notation: `curves (R, K, T + 1)` are the best values so far of `R` repetitions on `K` targets after `0 .. T`
iterations. Repetitions on one target are not independent, so every standard error is computed from the means
of the `K` targets: s.d. / sqrt(K).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import save_figure
from studies.report import Estimate, band, clustered, legend, mean_and_error, panels, table

CHECKPOINTS = (5, 10, 20, 50)
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C564B", "#999999")


def gain(curves: Array, baseline: Array, iteration: int) -> Estimate:
    """Return the paired difference to a baseline after `iteration` iterations."""
    return clustered(curves[:, :, iteration] - baseline[:, :, iteration])


def iterations_to(curves: Array, level: float) -> int | None:
    """Return the number of iterations after which the mean curve reaches `level`; None: never."""
    reached = np.flatnonzero(curves.mean(axis=(0, 1)) >= level - 1e-12)  # tolerates rounding of the mean
    return int(reached[0]) if len(reached) else None


def clearly_worse(curves: Array, baseline: Array, iteration: int) -> float:
    """Return the share of targets whose paired difference is below -2 standard errors over repetitions."""
    mean, error = mean_and_error(curves[:, :, iteration] - baseline[:, :, iteration])
    return float("nan") if np.isnan(error).any() else float(np.mean((mean < -2 * error) & (mean < 0)))


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
    shown: Mapping[str, Mapping[str, Array]],
    baselines: Mapping[str, str],
    path: Path,
    *,
    reference: str = "ts",
    ylabel: str,
    hidden: Sequence[str] = (),
) -> None:
    """Draw paired differences to the baseline against iterations, one panel per setting, bands ± 1 s.e."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = panels(len(shown), 2 if len(shown) == 4 else 3, 6.2, 4.4)
    names = list(dict.fromkeys(name for panel in shown.values() for name in panel))
    drawn = [n for n in names if n != reference and n not in (*baselines.values(), *hidden)]
    for axis, (title, curves) in zip(axes, shown.items(), strict=True):
        axis.axhline(0.0, color="black", linewidth=1, linestyle="--")
        for place, name in enumerate(drawn):
            if name not in curves:
                continue
            paired = baselines.get(name, reference)
            by_target = (curves[name] - curves[paired]).mean(axis=0)
            label = name if paired == reference else f"{name} (against {paired})"
            style = ":" if name.startswith(("control", "random")) else "-"
            band(axis, range(by_target.shape[1]), by_target, label, PALETTE[place % len(PALETTE)], style, 1.8)
        axis.set_title(title, loc="left", fontsize=11)
        axis.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
        axis.set_xlabel("iterations after the starting points")
        axis.set_ylabel(ylabel)
        axis.margins(x=0)
    legend(figure, axes, 3)
    save_figure(figure, path)
