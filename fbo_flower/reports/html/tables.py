"""The tables of the page: results, best configurations, traffic, and failures."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np

from fbo_flower.reports.html.markup import from_markdown, paragraph, table, text
from fbo_flower.reports.selection import selection_cells, selections
from fbo_flower.reports.summary import SummaryRow
from fbo_flower.reports.summary_table import format_bytes, markdown_table, summary_cells
from fbo_flower.study.study import Study

MAX_BEST = 100
_MAX_REASONS, _MAX_REASON = 10, 300
_MAX_AGENTS = 10  # agents that are named as the ones with most failures


def result_table(study: Study, rows: list[SummaryRow]) -> str:
    """Return the table that `fbo-flower report` prints, with a row per quantity and a column per run."""
    names, *others = summary_cells(rows).items()
    columns = {"": [text(heading) for heading, _ in others]}
    for number, name in enumerate(names[1]):
        columns[text(name, 60)] = [text(cells[number]) for _, cells in others]
    models = selections(study)
    return table(columns, numeric=list(columns)[1:]) + (
        from_markdown(markdown_table(selection_cells(models))) if models else ""
    )


def best_table(study: Study) -> str:
    """Return each agent's best configuration with a button that copies it as JSON, the best values first."""
    best = sorted(study.best.items(), key=lambda item: item[1]["value"], reverse=not study.any_minimizes)
    if not best:
        return paragraph(
            "No agent disclosed a configuration. On each device, fbo-flower best JOURNAL prints the agent's "
            "own.",
            "note",
        )
    shown = best[:MAX_BEST]
    cells = {"agent": [text(agent, 60) for agent, _ in shown]}
    cells["value"] = [f"{found['value']:.6g}" for _, found in shown]
    if len(study.algorithms) > 1:
        cells["algorithm"] = [text(found["algorithm"], 40) for _, found in shown]
    cells["configuration"] = [_copyable(found["config"]) for _, found in shown]
    hidden = len(best) - len(shown)
    more = paragraph(f"The best {MAX_BEST} of {len(best):,} agents; all are in best.json.", "note")
    return table(cells, numeric=["value"]) + (more if hidden else "")


def _copyable(config: dict[str, object]) -> str:
    shown = text(json.dumps(config, ensure_ascii=False, default=str))
    return f'<span class="copy"><code>{shown}</code><button type="button">Copy</button></span>'


def traffic_table(rows: list[SummaryRow]) -> str:
    """Return bytes and numbers that were sent, per algorithm."""
    most = max((row.bytes_down + row.bytes_up for row in rows if np.isfinite(row.bytes_down)), default=0.0)
    if not most:
        return paragraph("No bytes were counted.", "note")

    def bar(row: SummaryRow) -> str:
        down, up = (100 * np.nan_to_num(size) / most for size in (row.bytes_down, row.bytes_up))
        return (
            f'<span class="bar" style="width:{down:.0f}%"></span>'
            f'<span class="bar light" style="width:{up:.0f}%"></span>'
        )

    return table(
        {
            "algorithm": [text(row.algorithm, 60) for row in rows],
            "to an agent and round": [format_bytes(row.bytes_down) for row in rows],
            "from an agent and round": [format_bytes(row.bytes_up) for row in rows],
            "numbers per agent": [
                "-" if np.isnan(row.floats_per_agent) else f"{row.floats_per_agent:,.0f}" for row in rows
            ],
            "full: to the agent, light: from it": [bar(row) for row in rows],
        },
        numeric=["to an agent and round", "from an agent and round", "numbers per agent"],
    )


def failure_tables(study: Study, rows: list[SummaryRow]) -> str:
    """Return lost and refused replies and failed evaluations: how many, why, and at which agents most."""
    if not any(row.lost_replies or row.refused_replies or row.failed_evaluations for row in rows):
        return paragraph("None: every reply came and could be used, and every evaluation succeeded.")
    numbers = {
        "algorithm": [text(row.algorithm, 60) for row in rows],
        "lost replies": [f"{row.lost_replies:,}" for row in rows],
        "refused replies": [f"{row.refused_replies:,}" for row in rows],
        "why": [text(", ".join(f"{why}: {k:,}" for why, k in row.reasons.items())) or "-" for row in rows],
        "failed evaluations": [f"{row.failed_evaluations:,}" for row in rows],
    }
    parts = [table(numbers, numeric=["lost replies", "refused replies", "failed evaluations"])]
    failed = study.trials.take(study.trials["failure"] != "")
    if len(failed):
        reasons = Counter(" ".join(reason.split())[:_MAX_REASON] for reason in failed["failure"].tolist())
        common = reasons.most_common(_MAX_REASONS)
        parts.append(
            table(
                {
                    "times": [f"{number:,}" for _, number in common],
                    "why evaluations failed": [text(reason) for reason, _ in common],
                },
                numeric=["times"],
            )
        )
        agents = Counter(failed["agent"].tolist()).most_common(_MAX_AGENTS)
        named = ", ".join(f"{agent[:60]} ({number:,})" for agent, number in agents)
        parts.append(paragraph(f"Agents with most failed evaluations: {named}."))
    return "".join(parts)
