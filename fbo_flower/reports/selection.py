"""Summarise and draw selections of models: losses of the shipped model, volumes, and win matrices.

The volume of a set of models lies between their losses (openbox outbag, curators' outbag, lockbox) and the
reference (1, 1, 1) [Sun2019, Eq. 1]; without a lockbox it is an area. There are two protocols. The paper's
protocol takes what each method returns: a set for methods with two objectives and for random search, one
configuration for "lso" and "fso". Since volumes reward sets, this says little about single models. The fair
protocol takes, for every method, the models that no other dominates in `(J_l, J_r)`. Volumes are
those of `numerics.acquisition.hypervolume`, of minus the losses.

[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.algorithms.rfms.state import WITHHELD
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition.hypervolume import hypervolume
from fbo_flower.numerics.arrays import Array, BoolArray
from fbo_flower.reports.pictures import SMALL, Style, corner_note, shorten
from fbo_flower.study.schema import label
from fbo_flower.study.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fbo_flower.study.study import Study

PROTOCOLS = ("paper", "fair")
OUTBAG = ("openbox_outbag", "curators_outbag", "lockbox")
LOSSES = ("local_loss", "remote_loss", *OUTBAG)
_SINGLE = ("lso", "fso")  # methods that return one configuration
_PLACES = ("openbox\n(trains)", "curators\n(judge)", "lockbox\n(held out)")


@dataclass(frozen=True)
class Selection:
    """The result of one run that selected models.

    Parameters
    ----------
    label : label of the run
    contestant : name under which runs are compared: the method and its options
    replication : the problem and the seed, which are the same for all runs that are compared
    num_trials, num_failed, num_front : number of configurations, of failed ones, and of models on the front
    shipped : losses of the shipped model by name in `LOSSES`; NaN if unknown
    volumes : protocol -> dominated volume; NaN if every reported model lacks a loss
    num_withheld : number of answers that sites refused because their query budgets were used up
    epsilon : the largest privacy loss of a site on the same rows; 0 without noise
    """

    label: str
    contestant: str
    replication: str
    num_trials: int
    num_failed: int
    num_front: int
    shipped: dict[str, float]
    volumes: dict[str, float]
    num_withheld: int = 0
    epsilon: float = 0.0


def selections(study: Study) -> list[Selection]:
    """Return one row per run that exchanged models."""
    found = []
    for run in study.settings["runs"]:
        rows = study.models.where(algorithm=label(run))
        if not len(rows):
            continue
        options = run.get("options", {})
        parts = [str(options.get("method", label(run)))]
        parts += [f"{options.get('alpha', 0.5):g}"] if parts[0] == "fso" else []
        parts += [f"ship {options['ship']}"] if options.get("ship", "own") != "own" else []
        shipped = rows.take(rows["shipped"])
        front = rows.take(rows["on_front"])
        answers = study.judgements.where(algorithm=label(run))
        reported = {"paper": shipped if options.get("method") in _SINGLE else front, "fair": front}
        found.append(
            Selection(
                label(run),
                " ".join(parts),
                json.dumps([run.get(key) for key in ("problem", "problem_options", "seed")], sort_keys=True),
                len(rows),
                int(np.count_nonzero(rows["failure"] != "")),
                len(front),
                {name: float(shipped[name][0]) if len(shipped) else math.nan for name in LOSSES},
                {protocol: volume(reported[protocol]) for protocol in PROTOCOLS},
                sum(str(reason).startswith(WITHHELD) for reason in answers["failure"]),
                float(np.max(answers["epsilon"], initial=0.0)),
            )
        )
    return found


def volume(models: Table) -> float:
    """Return the volume that models dominate; NaN if no model has all its losses.

    Parameters
    ----------
    models : rows of `study.models`; a loss that all of them lack (no lockbox) is left out
    """
    losses = np.array([models[name] for name in OUTBAG]).T.reshape(-1, len(OUTBAG))
    losses = losses[:, np.isfinite(losses).any(axis=0)]
    losses = losses[np.isfinite(losses).all(axis=1)]
    if losses.size == 0:
        return math.nan
    return hypervolume(-losses, -np.ones(losses.shape[1]))


def volume_matrix(rows: list[Selection], protocol: str) -> tuple[list[str], Array]:
    """Return the contestants `(M,)` and their volumes by replication, `(R, M)`; NaN for a missing run."""
    names = list(dict.fromkeys(row.contestant for row in rows))
    keys = list(dict.fromkeys(row.replication for row in rows))
    values = np.full((len(keys), len(names)), np.nan)
    for row in rows:
        values[keys.index(row.replication), names.index(row.contestant)] = row.volumes[protocol]
    return names, values


def win_matrix(volumes: Array, tolerance: float = 1e-12) -> Array:
    """Return in which share of the replications each contestant beats each other, `(M, M)`.

    Parameters
    ----------
    volumes : `(R, M)`; a replication counts for a pair if both are finite
    tolerance : smaller differences are ties, which count half

    Returns
    -------
    Entry `[i, j]`: share of wins of `i` over `j`; NaN on the diagonal and without a common replication.

    Examples
    --------
    >>> win_matrix(np.array([[0.5, 0.4], [0.5, 0.5]]))
    array([[ nan, 0.75],
           [0.25,  nan]])
    """
    difference = volumes[:, :, None] - volumes[:, None, :]  # (R, M, M)
    score = np.where(difference > tolerance, 1.0, np.where(difference < -tolerance, 0.0, 0.5))
    known = np.isfinite(difference)
    count = known.sum(axis=0)
    share = np.where(known, score, 0.0).sum(axis=0) / np.where(count > 0, count, np.nan)
    np.fill_diagonal(share, np.nan)
    return np.asarray(share, dtype=np.float64)


def selection_cells(rows: list[Selection]) -> dict[str, list[str]]:
    """Return the table's columns: heading -> one cell per run."""
    cells = {
        "algorithm": [row.label for row in rows],
        "models": [str(row.num_trials) for row in rows],
        "failed": [str(row.num_failed) for row in rows],
        "on front": [str(row.num_front) for row in rows],
    }
    names = ("J_l", "J_r", "openbox", "curators", "lockbox")
    pairs = zip(names, LOSSES, strict=True)
    numbers = {f"shipped: {name}": [row.shipped[key] for row in rows] for name, key in pairs}
    numbers |= {f"volume ({protocol})": [row.volumes[protocol] for row in rows] for protocol in PROTOCOLS}
    cells |= {key: ["-" if math.isnan(x) else f"{x:.3f}" for x in own] for key, own in numbers.items()}
    if any(row.num_withheld for row in rows):
        cells["answers withheld"] = [str(row.num_withheld) for row in rows]
    if any(row.epsilon for row in rows):
        cells["epsilon spent"] = [f"{row.epsilon:g}" if row.epsilon else "no noise" for row in rows]
    return cells


# -- pictures ---------------------------------------------------------------------------------------------


def draw_models(drawing: Figure, study: Study, styles: Mapping[str, Style]) -> None:
    """Draw fronts, losses of shipped models and, of several contestants, win matrices into a figure.

    Raises
    ------
    ConfigError
        If no model was judged.
    """
    if not judged(study).any():
        raise ConfigError("figure: expected a study with judged models, got none")
    rows = selections(study)
    protocols = PROTOCOLS if len({row.contestant for row in rows}) > 1 else ()
    widths = [4.4, 3.6] + [2.9] * len(protocols)
    drawing.set_size_inches(sum(widths) + 0.6, 4.2)
    axes = drawing.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0]
    draw_front(axes[0], study, styles)
    draw_shipped(axes[1], study, styles)
    for ax, protocol in zip(axes[2:], protocols, strict=True):
        draw_wins(ax, rows, protocol)


def judged(study: Study) -> BoolArray:
    """Return which models have both losses that the search sees."""
    return np.isfinite(study.models["local_loss"]) & np.isfinite(study.models["remote_loss"])


def draw_front(ax: Axes, study: Study, styles: Mapping[str, Style]) -> None:
    """Draw models as dots, the non-dominated ones as a staircase, the shipped one as a star.

    The axes are limited to the region of the fronts, since many configurations are as bad as a constant.
    """
    models, known = study.models, judged(study)
    losses = np.array([models["local_loss"], models["remote_loss"]]).T
    chosen = losses[known & (models["on_front"] | models["shipped"])]
    low, high = chosen.min(axis=0), chosen.max(axis=0)
    margin = np.maximum(high - low, 0.05)
    low, high = low - 0.2 * margin, np.minimum(high + margin, losses[known].max(axis=0) + 0.2 * margin)
    inside = known & (losses <= high).all(axis=1)
    for name in study.algorithms:
        colour, line = styles[name]
        own = inside & (models["algorithm"] == name)
        front = losses[own & models["on_front"]]
        front = front[np.argsort(front[:, 0])]
        shape: dict[str, Any] = {"color": colour, "linestyle": line, "linewidth": 1.6}
        ax.step(front[:, 0], front[:, 1], where="post", label=f"{name}: front of {len(front)}", **shape)
        dot: dict[str, Any] = {"alpha": 0.35, "linewidths": 0}
        star: dict[str, Any] = {"marker": "*", "edgecolors": "white", "zorder": 4}
        on_front, shipped = own & models["on_front"], own & models["shipped"]
        for which, size, look in ((own, 12, dot), (on_front, 26, {"zorder": 3}), (shipped, 190, star)):
            if which.any():
                gid = f"models {' '.join(map(str, np.flatnonzero(which).tolist()))}"
                ax.scatter(losses[which, 0], losses[which, 1], s=size, color=colour, gid=gid, **look)
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])
    ax.set_xlabel("Cross-validated loss at the openbox, which trains")
    ax.set_ylabel("Loss at the curators, who judge")
    ax.set_title("Configurations; stars are shipped")
    ax.legend(frameon=False, fontsize=8, loc="upper right")
    if beyond := int((known & ~inside).sum()):
        corner_note(ax, f"{beyond} of {len(losses)} not shown", at_top=False)


def draw_shipped(ax: Axes, study: Study, styles: Mapping[str, Style]) -> None:
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
    ax.set_title("Loss on held-out rows")
    ax.set_xlabel("dashes: the models of the front", loc="left", **SMALL)


def draw_wins(ax: Axes, rows: list[Selection], protocol: str) -> None:
    """Draw a win matrix: how often the contestant of the row beats that of the column."""
    names, volumes = volume_matrix(rows, protocol)
    names = [shorten(name, 20) for name in names]
    wins = win_matrix(volumes)
    ax.pcolormesh(wins, vmin=-0.6, vmax=1.6, cmap="PRGn")  # pale enough for figures; no bitmap in SVG
    ax.set_aspect("equal")
    ax.invert_yaxis()
    ax.spines[:].set_visible(True)
    for (i, j), share in np.ndenumerate(wins):
        if np.isfinite(share):
            ax.text(j + 0.5, i + 0.5, f"{share:.2f}", ha="center", va="center", fontsize=8)
    ax.set_xticks(np.arange(len(names)) + 0.5, names, rotation=45, ha="right", fontsize=8)
    ax.set_yticks(np.arange(len(names)) + 0.5, names, fontsize=8)
    runs = f"{len(volumes)} replication{'' if len(volumes) == 1 else 's'}"
    ax.set_title(f"Row beats column by volume,\n{protocol} protocol, {runs}", fontsize=9)
