"""What a study sent, drawn and as a table; and a page per algorithm on what its server learned of it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.algorithms.algorithm_record import NOTHING
from fbo_flower.algorithms.registry import inference, lookup, meanings
from fbo_flower.reports.pictures import SMALL, Line, Style, draw_lines, label_ends, use_logarithm
from fbo_flower.reports.summary import disclosures_text, format_bytes
from fbo_flower.storage.files import atomic_file

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
        use_logarithm(ax.yaxis)
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


PAGE = "privacy.md"


def write_privacy_page(study: Study, path: Path) -> None:
    """Write the pages of all algorithms of a study into the file `path`."""
    with atomic_file(path, text=True) as stream:
        stream.write(privacy_page(study))


def privacy_page(study: Study) -> str:
    """Return the pages of all algorithms of a study as Markdown."""
    paragraphs = [text for label in study.algorithms for text in _section(study, label)]
    return "\n\n".join(["# What the server learned", *paragraphs]) + "\n"


def _section(study: Study, label: str) -> Iterator[str]:
    """Yield the paragraphs about one run."""
    run, rounds = study.run(label), study.rounds.where(algorithm=label)
    algorithm = str(run["algorithm"])
    yield f"## {label}" + (f" ({algorithm})" if label != algorithm else "")
    turns = int(run.get("num_agents") or 0) * len(set(rounds["round"].tolist()))
    up, down = (
        f"{_mean(rounds[f'floats_{way}'], turns)} numbers and "
        f"{format_bytes(float(rounds[f'bytes_{way}'].sum()) / turns) if turns else '-'} {way}"
        for way in ("up", "down")
    )
    yield f"Per agent and round: {up}, {down}, headers are included in the bytes."
    least = int(run.get("options", {}).get("secure_sums") or 0)
    names = meanings(algorithm, least)
    table = ["| what may leave an agent | made from | discloses by design |", "|---|---|---|"]
    for name, meaning in (names or {}).items():
        table.append(f"| `{name}`: {meaning.text} | {meaning.source} | {meaning.discloses} |")
    if names is None:
        table.append("| not described by what is installed here | unknown | unknown |")
    elif not names:
        table.append(f"| the number of evaluations that failed | the task | {NOTHING} |")
    if trials := len(study.trials.where(algorithm=label)):
        what = f"disclosed beside the algorithm's messages: {trials:,} rows of points and values"
        table.append(f"| {what} | the tasks | points and values |")
    yield "\n".join(table)
    if chosen := disclosures_text(run):
        yield f"What agents disclose beside the algorithm's messages, and who chose it: {chosen}."
    record = lookup(algorithm)
    attack = "secure-sums" if least else None if record is None else record.attack_name
    measured = f" Measured by `python -m studies attack {attack}` of the repository." if attack else ""
    yield f"What an honest-but-curious server can infer: {inference(algorithm, least)}{measured}"
    privacy = run.get("privacy")
    if isinstance(privacy, dict) and "sums_made" in privacy:
        made = f"{privacy['sums_made']} made of {privacy['sums_asked_for']} asked for"
        yield f"Secure sums of at least {privacy['sums_of_at_least']} agents: {made}."
    yield _spent(privacy, bool(trials))


def _spent(privacy: object, disclosed: bool) -> str:
    if not isinstance(privacy, dict) or "delta" not in privacy:
        return "Noise for differential privacy: none, so no epsilon bounds what is learned."
    what = next((key for key in ("releases", "messages") if key in privacy), "releases")
    count = f"{privacy.get(what)} {what}{' of one agent' if what == 'messages' else ''}"
    if privacy.get("epsilon") is None:
        return f"Noise for differential privacy: none was added in {count}, so no epsilon bounds anything."
    simulated = " Simulated: the noise is drawn from the study's seed and protects nobody."
    simulated *= privacy.get("noise_from") == "seed"
    caveat = " It bounds what the algorithm sends; it does not cover trials that agents disclose beside it."
    return (
        f"Differential privacy, {privacy['noise']} noise: epsilon {privacy['epsilon']:.3g} at delta "
        f"{privacy['delta']:g} after {count}.{simulated}{caveat if disclosed else ''}"
    )


def _mean(column: object, turns: int) -> str:
    values = np.asarray(column, dtype=np.float64)
    if not turns or np.isnan(values).all():
        return "-"
    mean = float(np.nansum(values)) / turns
    return f"{mean:,.0f}" if mean >= 10 or math.isclose(mean, round(mean)) else f"{mean:.1f}"
