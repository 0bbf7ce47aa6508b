"""Draw the replays of RFMS: which method has the larger volume, and one run with its front."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.acquisition.hypervolume import non_dominated
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import new_figure, save_figure
from fbo_flower.reports.selection import PROTOCOLS
from studies.papers.rfms.outcomes import Outcomes
from studies.papers.rfms.replay import METHODS, Indices, ReplaySetting
from studies.papers.rfms.report import win_shares
from studies.papers.rfms.tables import Key

NAMES = tuple(METHODS)
EXAMPLES = ("lso", "rand_mo", "fmo")


def wins(path: Path, outcomes: Sequence[Outcomes]) -> Path:
    """Draw both protocols' win matrices: how often the row's method has the larger volume."""
    figure: Any = new_figure(9.6, 4.6)
    axes: Any = figure.subplots(1, len(PROTOCOLS), sharey=True)
    for protocol, axis in enumerate(axes):
        share, _ = win_shares(outcomes, protocol)
        image = axis.imshow(share, vmin=0, vmax=1, cmap="RdBu")
        axis.set_xticks(range(len(NAMES)), NAMES, rotation=45, ha="right", rotation_mode="anchor")
        axis.set_yticks(range(len(NAMES)), NAMES)
        axis.set_title(f"{PROTOCOLS[protocol]} protocol", loc="left", fontsize=11)
        for (i, j), value in np.ndenumerate(share):
            if np.isfinite(value):
                colour = "white" if abs(value - 0.5) > 0.3 else "black"
                axis.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
    axes[0].set_ylabel("method of the row")
    figure.colorbar(
        image,
        ax=list(axes),
        label="share of replications in which the row\nhas the larger volume, ties count half",
        shrink=0.8,
    )
    return save_figure(figure, path)


def front(path: Path, setting: ReplaySetting, key: Key, chosen: Indices) -> Path:
    """Draw the front of the table in `(J_l, J_r)`, and what three methods evaluated near it.

    Parameters
    ----------
    chosen : `(M, num_trials)`, evaluated configurations by method
    """
    losses = _losses(setting)
    known = np.flatnonzero(np.isfinite(losses).all(axis=1))
    edge = table_front(setting)
    span = np.maximum(np.ptp(edge, axis=0), 0.02)
    figure: Any = new_figure(4.2 * len(EXAMPLES), 3.9)
    axes: Any = figure.subplots(1, len(EXAMPLES), sharex=True, sharey=True)
    for axis, name in zip(axes, EXAMPLES, strict=True):
        taken = chosen[NAMES.index(name)]
        taken = taken[np.isin(taken, known)]
        _stairs(
            axis,
            losses[known],
            color="#999999",
            linestyle="--",
            label="front of all tabulated configurations",
        )
        axis.scatter(
            *losses[taken].T, s=16, color="#56B4E9", alpha=0.7, label="configurations evaluated in the run"
        )
        _stairs(axis, losses[taken], color="#D55E00", label="front of the run")
        best = losses[taken]
        best = best[non_dominated(-best)]
        axis.scatter(*best.T, s=26, color="#D55E00", zorder=3)
        axis.set_title(name, loc="left", fontsize=11)
        axis.set_xlabel("J_l: cross-validated loss at the\nopenbox, the site that trains")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_xlim(edge[:, 0].min() - 0.1 * span[0], edge[:, 0].max() + 0.4 * span[0])
    axes[0].set_ylim(edge[:, 1].min() - 0.1 * span[1], edge[:, 1].max() + 0.4 * span[1])
    axes[0].set_ylabel("J_r: mean loss at the curators,\nthe sites that judge")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    options = ", ".join(str(value) for value in key.options.values())
    sites = f"site {setting.openbox} trains (openbox), site {setting.lockbox} is held out (lockbox)"
    title = f"{key.problem}, {options}, seed {key.seed}: {sites}"
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    return save_figure(figure, path)


def table_front(setting: ReplaySetting) -> Array:
    """Return the losses `(k, 2)` that no configuration of the table dominates."""
    losses = _losses(setting)
    losses = losses[np.isfinite(losses).all(axis=1)]
    return losses[non_dominated(-losses)]


def _losses(setting: ReplaySetting) -> Array:
    return np.column_stack([setting.table.local, setting.table.remote(setting.curators)])


def _stairs(axis: Any, losses: Any, **style: Any) -> None:
    best = losses[non_dominated(-losses)]
    best = best[np.argsort(best[:, 0])]
    axis.step(best[:, 0], best[:, 1], where="post", linewidth=1.4, **style)
