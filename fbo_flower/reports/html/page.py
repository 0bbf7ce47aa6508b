"""`html_page`: a study as one HTML page with its pictures, its style and its script inside.

The page asks no other host for anything, and a content security policy forbids it to. The policy allows only
the script that this module wrote, so a text of an agent could not run even if it were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import numpy as np

from fbo_flower.reports.html.curves import curve_figures
from fbo_flower.reports.html.markup import from_markdown, paragraph, section, text
from fbo_flower.reports.html.parameters import (
    LEVELS,
    contour_figures,
    importance_tables,
    slice_figures,
)
from fbo_flower.reports.html.style import SCRIPT, style
from fbo_flower.reports.html.tables import best_table, failure_tables, result_table, traffic_table
from fbo_flower.reports.importance import study_axes, study_importance
from fbo_flower.reports.privacy_page import privacy_page
from fbo_flower.reports.styles import study_styles
from fbo_flower.reports.summary import SummaryRow, summarise
from fbo_flower.reports.titles import metric_of, study_title
from fbo_flower.storage.files import atomic_file
from fbo_flower.study.study import Study

PAGE = "report.html"


def write_html_page(study: Study, path: Path, reference: str | None = None) -> None:
    """Write the page of a study; an interrupted write leaves the old file."""
    page = html_page(study, reference)
    with atomic_file(path, text=True) as stream:
        stream.write(page)


def html_page(study: Study, reference: str | None = None) -> str:
    """Return the page of a study.

    Parameters
    ----------
    reference : see `summarise`

    Raises
    ------
    ConfigError
        If the study has no run with the reference's label.
    """
    rows = summarise(study, reference)
    found = study_importance(study)
    axes = study_axes(study, study.trials["config"].tolist()) if len(study.recommendations) else []
    sections = [
        ("results", "Results", result_table(study, rows)),
        ("curves", "Best value so far", curve_figures(study)),
        ("best", "Best configurations", best_table(study)),
        ("importance", "Which parameters matter", importance_tables(found)),
        ("slices", "Value against each parameter", slice_figures(study, axes, found)),
        ("contours", "Two parameters at a time", contour_figures(found)),
        ("traffic", "Traffic", traffic_table(rows)),
        ("privacy", "What the server learned", from_markdown(privacy_page(study).partition("\n\n")[2])),
        ("failures", "Failures", failure_tables(study, rows)),
    ]
    links = " ".join(f'<a href="#{name}">{title}</a>' for name, title, _ in sections)
    body = "\n".join(section(name, title, part) for name, title, part in sections)
    title = text(study_title(study) or "Study")
    colours = [drawn.color for drawn in study_styles(study).values()]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{style(colours, LEVELS)}</style>\n</head>\n<body>\n"
        f"<header><h1>{title}</h1>{_facts(study, rows)}<nav>{links}</nav></header>\n"
        f"<main>\n{body}\n</main>\n{_footer(study)}\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _facts(study: Study, rows: list[SummaryRow]) -> str:
    """Return the few numbers that a reader looks for first."""
    values = study.recommendations["value"]
    if not len(values):
        values = study.rounds["best"][np.isfinite(study.rounds["best"])]
    best = (values.min() if study.any_minimizes else values.max()) if len(values) else None
    facts = {
        f"best {metric_of(study) or 'value'}": "not disclosed" if best is None else f"{best:.5g}",
        "agents": " or ".join(f"{k:,}" for k in sorted({row.num_agents for row in rows})),
        "rounds": " or ".join(f"{k:,}" for k in sorted(set(_num_rounds(study)))),
        "evaluations": f"{int(study.trials['pulls'].sum()):,}" if len(study.trials) else "not disclosed",
        "failed evaluations": f"{sum(row.failed_evaluations for row in rows):,}",
        "lost or refused replies": f"{sum(row.lost_replies + row.refused_replies for row in rows):,}",
    }
    items = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in facts.items()
    )
    return f"<dl>{items}</dl>"


def _num_rounds(study: Study) -> list[int]:
    return [len(set(study.rounds.where(algorithm=name)["round"].tolist())) for name in study.algorithms]


def _footer(study: Study) -> str:
    settings = study.settings
    versions = ", ".join(f"{name} {version}" for name, version in dict(settings.get("versions", {})).items())
    created = f"Study of {settings['created']}. " if settings.get("created") else ""
    return f"<footer>{paragraph(f'{created}Made with {versions}.' if versions else created)}</footer>"
