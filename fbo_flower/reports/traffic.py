"""What a study sent: totals by round, drawn, and a table per agent in the whole run."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.reports.axes import SMALL, Line, Style, draw_lines, label_ends, use_logarithm
from fbo_flower.reports.summary import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fbo_flower.study.study import Study

_FAR_APART = 20.0  # totals with a larger ratio get a logarithmic axis
_FEW_ROUNDS = 40  # up to this many rounds, each gets a dot


def has_traffic(study: Study) -> bool:
    """Return whether any bytes were counted."""
    return bool((study.rounds["bytes_down"] + study.rounds["bytes_up"]).sum() > 0)


def sent_by_round(study: Study, unit: str) -> tuple[dict[str, Line], str]:
    """Return what all agents together have sent and received by the end of each round.

    Parameters
    ----------
    unit : "bytes" or "floats"

    Returns
    -------
    lines : algorithm -> rounds, totals, and NaN as standard error (a count has none)
    note : the algorithms without a line, and why
    """
    lines: dict[str, Line] = {}
    missing: dict[str, list[str]] = {}
    for algorithm in study.algorithms:
        rounds = study.rounds.where(algorithm=algorithm)
        total = np.cumsum(rounds[f"{unit}_down"] + rounds[f"{unit}_up"]).astype(np.float64)
        if not len(total) or not np.isfinite(total).all():
            missing.setdefault("not counted", []).append(algorithm)
        elif total[-1] == 0:
            missing.setdefault("nothing exchanged", []).append(algorithm)
        else:
            lines[algorithm] = (rounds["round"].astype(np.float64), total, np.full(len(total), np.nan))
    return lines, "; ".join(f"{why}: {', '.join(names)}" for why, names in missing.items())


def draw_sent(ax: Axes, study: Study, styles: Mapping[str, Style], unit: str, names: int = 0) -> None:
    """Draw `sent_by_round`; at least one algorithm must have sent something.

    Parameters
    ----------
    names : characters after which a name beside a line is cut; 0: it is not
    """
    lines, note = sent_by_round(study, unit)
    totals = [float(total[-1]) for _, total, _ in lines.values()]
    logarithmic = max(totals) > _FAR_APART * min(totals)
    if logarithmic:
        use_logarithm(ax.set_yscale, ax.yaxis)
        lines = {name: (x, np.where(y > 0, y, np.nan), error) for name, (x, y, error) in lines.items()}
    draw_lines(ax, lines, styles)
    for line in ax.lines:
        if len(np.asarray(line.get_xdata())) <= _FEW_ROUNDS:
            line.set(marker="o", markersize=3, clip_on=False)
    if not logarithmic:
        ax.set_ylim(0, 1.08 * max(totals))
    show: Any = (lambda x, _: format_bytes(x)) if unit == "bytes" else "{x:,.0f}"
    ax.yaxis.set_major_formatter(show)
    ax.set_xlabel("Round")
    ax.set_ylabel(f"{'Numbers' if unit == 'floats' else 'Bytes'} exchanged, all agents")
    shown = textwrap.fill(note, 48, break_on_hyphens=False)
    ax.text(0.0, 1.01, shown, transform=ax.transAxes, ha="left", va="bottom", **SMALL)
    label_ends(ax, lines, styles, names)


def traffic_cells(study: Study) -> dict[str, list[str]]:
    """Return what an agent received, sent and disclosed in the whole run: heading -> a cell per algorithm."""
    rows: list[dict[str, str]] = []
    for algorithm in study.algorithms:
        run, rounds = study.run(algorithm), study.rounds.where(algorithm=algorithm)
        trials = study.trials.where(algorithm=algorithm)
        num_agents = int(run.get("num_agents") or len(set(trials["agent"].tolist())) or 1)
        each = {
            name: float(rounds[name].sum()) / num_agents for name in ("bytes_down", "bytes_up", "floats_up")
        }
        privacy = run.get("privacy")
        spent = privacy.get("epsilon") if isinstance(privacy, Mapping) else None
        if spent is None:  # the noise of sites that judge models
            spent = float(np.max(study.judgements.where(algorithm=algorithm)["epsilon"], initial=0.0))
        floats = each["floats_up"]
        rows.append(
            {
                "algorithm": algorithm,
                "bytes received": format_bytes(each["bytes_down"]),
                "bytes sent": format_bytes(each["bytes_up"]),
                "numbers sent": "not counted" if math.isnan(floats) else f"{floats:,.0f}",
                "trials disclosed": f"{len(trials) / num_agents:.3g}" if len(trials) else "none",
                "differential privacy": f"epsilon {spent:.3g}" if spent else "none",
            }
        )
    return {name: [row[name] for row in rows] for name in rows[0]}
