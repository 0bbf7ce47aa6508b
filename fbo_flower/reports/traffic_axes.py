"""Draw what a study sent: floats by round as lines, bytes as bars, and a table of what left each agent."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fbo_flower.reports.line_axes import GREY, Line, Style, draw_lines, label_ends
from fbo_flower.reports.summary_table import format_bytes
from fbo_flower.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FAR_APART = 20.0  # totals with a larger ratio get a logarithmic axis
_FEW_ROUNDS = 40  # up to this many rounds, each gets a dot
_NOTE_WIDTH = 64  # characters per line


def floats_by_round(study: Study) -> dict[str, Line]:
    """Return the floats that all agents together have sent and received until the end of each round.

    Returns
    -------
    algorithm -> rounds, floats, and NaN as standard error (a count has none), each `(num_rounds,)`. Floats
    are 0 if an algorithm exchanges nothing; algorithms whose floats were not counted are left out.
    """
    lines: dict[str, Line] = {}
    for algorithm in study.algorithms:
        rounds = study.rounds.where(algorithm=algorithm)
        total = np.cumsum(rounds["floats_down"] + rounds["floats_up"])
        if len(total) and np.isfinite(total).all():
            lines[algorithm] = (rounds["round"].astype(np.float64), total, np.full(len(total), np.nan))
    return lines


def draw_communication(ax: Axes, study: Study, styles: Mapping[str, Style]) -> None:
    """Draw `floats_by_round` and list the algorithms without a line; at least one must have sent floats."""
    known = floats_by_round(study)
    lines = {name: line for name, line in known.items() if line[1][-1] > 0}
    totals = [float(total[-1]) for _, total, _ in lines.values()]
    logarithmic = max(totals) > _FAR_APART * min(totals)
    if logarithmic:
        ax.set_yscale("log")
        lines = {name: (x, np.where(y > 0, y, np.nan), error) for name, (x, y, error) in lines.items()}
    draw_lines(ax, lines, styles)
    for line in ax.lines:
        if len(np.asarray(line.get_xdata())) <= _FEW_ROUNDS:
            line.set_marker("o")
            line.set_markersize(3)
            line.set_clip_on(False)
    if not logarithmic:
        ax.set_ylim(0, 1.08 * max(totals))
        ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("Round")
    ax.set_ylabel("Floats exchanged, all agents")
    notes = {
        "nothing exchanged": [name for name, line in known.items() if line[1][-1] == 0],
        "not counted": [name for name in study.algorithms if name not in known],
    }
    text = [f"{note}: {', '.join(names)}" for note, names in notes.items() if names]
    if text:
        shown = "\n".join(textwrap.fill(line, _NOTE_WIDTH, break_on_hyphens=False) for line in text)
        place = {"transform": ax.transAxes, "ha": "left", "va": "bottom"}
        ax.text(0.0, 1.01, shown, fontsize=8, color=GREY, parse_math=False, **place)  # type: ignore[arg-type]
    label_ends(ax, lines, styles)


def draw_bytes(ax: Axes, traffic: dict[str, tuple[float, float]], styles: Mapping[str, Style]) -> None:
    """Draw bytes per agent and round as bars; `traffic` maps an algorithm to bytes to and from an agent."""
    names = list(traffic)
    down, up = np.nan_to_num([traffic[name] for name in names]).T
    place = np.arange(len(names))
    colours = [styles[name][0] for name in names]
    ax.barh(place, down, color=colours, height=0.5)
    ax.barh(place, up, left=down, color=colours, alpha=0.4, height=0.5)
    for y, name, total in zip(place.tolist(), names, (down + up).tolist(), strict=True):
        ax.text(0, y - 0.3, name, color=styles[name][0], fontsize=9, fontweight="bold", parse_math=False)
        ax.text(total, y, f" {format_bytes(total)}", va="center", fontsize=9)
    ax.set_ylim(max(len(names), 3) - 0.4, -0.7)
    ax.set_xlim(0, 1.35 * max((down + up).max(), 1.0))
    ax.set_title("Bytes per agent and round", fontsize=10, loc="left")
    ax.set_xlabel("full: to the agent, light: from it", fontsize=8, color=GREY, loc="left")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def privacy_cells(study: Study) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table that says what left each agent, a row per algorithm."""
    head = ["algorithm", "numbers sent", "bytes sent", "trials disclosed", "differential privacy"]
    rows = []
    for algorithm in study.algorithms:
        run, rounds = study.run(algorithm), study.rounds.where(algorithm=algorithm)
        trials = study.trials.where(algorithm=algorithm)
        num_agents = int(run.get("num_agents") or len(set(trials["agent"].tolist())) or 1)
        floats, sent = (float(rounds[f"{what}_up"].sum()) / num_agents for what in ("floats", "bytes"))
        counted = "not counted" if np.isnan(floats) else f"{floats:,.0f}"
        shown = f"{len(trials) / num_agents:.3g}" if len(trials) else "none"
        rows.append([algorithm, counted, format_bytes(sent), shown, _epsilon(study, algorithm)])
    return head, rows


def _epsilon(study: Study, algorithm: str) -> str:
    privacy = study.run(algorithm).get("privacy")
    spent = privacy.get("epsilon") if isinstance(privacy, Mapping) else None
    if spent is None:  # the noise of sites that judge models
        spent = float(np.max(study.judgements.where(algorithm=algorithm)["epsilon"], initial=0.0))
    return f"epsilon {spent:.3g}" if spent else "none"
