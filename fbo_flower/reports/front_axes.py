"""Draw selections of models: losses at the openbox and elsewhere, shipped models, and win matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.line_axes import GREY, Style
from fbo_flower.reports.selection import OUTBAG, selections, volume_matrix, win_matrix
from fbo_flower.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PLACES = ("openbox\n(trains)", "curators\n(judge)", "lockbox\n(held out)")


def draw_selections(drawing: Figure, study: Study, styles: Mapping[str, Style]) -> None:
    """Draw a study's models: fronts, the shipped models' losses and the win matrices.

    The fronts are in the losses that the search has seen, the shipped models' losses on other rows. Win
    matrices need several contestants.

    Raises
    ------
    ConfigError
        If no model was judged.
    """
    rows = selections(study)
    known = np.isfinite(study.models["local_loss"]) & np.isfinite(study.models["remote_loss"])
    if not known.any():
        raise ConfigError("figure: expected a study with judged models, got none")
    several = len({row.contestant for row in rows}) > 1
    widths = [4.4, 3.6] + [2.9, 2.9] * several
    drawing.set_size_inches(sum(widths) + 0.6, 4.2)
    axes = drawing.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0]
    _draw_front(axes[0], study, styles)
    _draw_shipped(axes[1], study, styles)
    if several:
        for ax, protocol in zip(axes[2:], ("paper", "fair"), strict=True):
            names, volumes = volume_matrix(rows, protocol)
            _draw_wins(ax, names, win_matrix(volumes), protocol, len(volumes))


def _draw_front(ax: Axes, study: Study, styles: Mapping[str, Style]) -> None:
    """Draw all configurations as dots, the non-dominated ones as a staircase, the shipped one as a star."""
    for name in study.algorithms:
        rows = study.models.where(algorithm=name)
        losses = np.array([rows["local_loss"], rows["remote_loss"]]).T.reshape(-1, 2)
        known = np.isfinite(losses).all(axis=1)
        if not known.any():
            continue
        colour = styles[name][0]
        ax.scatter(losses[known, 0], losses[known, 1], s=12, color=colour, alpha=0.35, linewidths=0)
        front = losses[known & rows["on_front"]]
        front = front[np.argsort(front[:, 0])]
        label = f"{name}: front of {len(front)}"
        ax.step(
            front[:, 0],
            front[:, 1],
            where="post",
            color=colour,
            linestyle=styles[name][1],
            linewidth=1.6,
            label=label,
        )
        ax.scatter(front[:, 0], front[:, 1], s=26, color=colour, zorder=3)
        shipped = losses[known & rows["shipped"]]
        ax.scatter(
            shipped[:, 0], shipped[:, 1], s=190, marker="*", color=colour, edgecolors="white", zorder=4
        )
    _zoom(ax, study)
    ax.set_xlabel("Cross-validated loss at the openbox, which trains")
    ax.set_ylabel("Loss at the curators, who judge")
    ax.set_title("Configurations; stars are shipped", fontsize=10, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    legend = ax.legend(frameon=False, fontsize=8, loc="upper right")
    for text in legend.get_texts():
        text.set_parse_math(False)


def _zoom(ax: Axes, study: Study) -> None:
    """Limit the axes to the region of the fronts, since many configurations are as bad as a constant."""
    losses = np.array([study.models["local_loss"], study.models["remote_loss"]]).T
    known = np.isfinite(losses).all(axis=1)
    front = losses[known & (study.models["on_front"] | study.models["shipped"])]
    low, high = front.min(axis=0), front.max(axis=0)
    margin = np.maximum(high - low, 0.05)
    low, high = low - 0.2 * margin, np.minimum(high + margin, losses[known].max(axis=0) + 0.2 * margin)
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])
    beyond = int((losses[known] > high).any(axis=1).sum())
    if beyond:
        note = f"{beyond} of {len(losses)} not shown"
        ax.text(0.99, 0.01, note, transform=ax.transAxes, ha="right", fontsize=8, color=GREY)


def _draw_shipped(ax: Axes, study: Study, styles: Mapping[str, Style]) -> None:
    """Draw the shipped models' losses on rows unseen by the search, and those of the front as ticks."""
    names = [name for name in study.algorithms if len(study.models.where(algorithm=name))]
    for place, column in enumerate(OUTBAG):
        for number, name in enumerate(names):
            rows = study.models.where(algorithm=name)
            x = place + 0.7 * ((number + 0.5) / len(names) - 0.5)
            front, shipped = rows[column][rows["on_front"]], rows[column][rows["shipped"]]
            colour = styles[name][0]
            ax.scatter(np.full(len(front), x), front, marker="_", s=60, color=colour, alpha=0.6)
            ax.scatter(np.full(len(shipped), x), shipped, marker="*", s=110, color=colour, zorder=3)
    ax.set_xticks(range(len(OUTBAG)), _PLACES)
    ax.set_xlim(-0.5, len(OUTBAG) - 0.5)
    ax.set_ylim(bottom=0.0)
    ax.set_title("Loss on held-out rows", fontsize=10, loc="left")
    ax.set_xlabel("dashes: the models of the front", fontsize=8, color=GREY, loc="left")
    ax.spines[["top", "right"]].set_visible(False)


def _draw_wins(ax: Axes, names: list[str], wins: Array, protocol: str, replications: int) -> None:
    """Draw a win matrix: how often the contestant of the row beats that of the column."""
    ax.imshow(wins, vmin=-0.6, vmax=1.6, cmap="PRGn")  # pale enough for figures
    for (i, j), share in np.ndenumerate(wins):
        if np.isfinite(share):
            ax.text(j, i, f"{share:.2f}", ha="center", va="center", fontsize=8)
    ax.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    runs = f"{replications} replication{'' if replications == 1 else 's'}"
    ax.set_title(f"Row beats column by volume,\n{protocol} protocol, {runs}", fontsize=9, loc="left")
