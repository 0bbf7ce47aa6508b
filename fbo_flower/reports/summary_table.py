"""Show the rows of a summary as a table, for a terminal or in Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fbo_flower.errors import printable
from fbo_flower.reports.summary import MOST, AgentMean, SummaryRow

if TYPE_CHECKING:
    import rich.table


def render_table(rows: Sequence[SummaryRow]) -> rich.table.Table:
    """Return the summary as a table for a terminal, a column per algorithm; three fit into 80 characters."""
    return render_cells(summary_cells(rows))


def render_cells(cells: Mapping[str, Sequence[str]]) -> rich.table.Table:
    """Return cells as a table for a terminal; the cells of the first heading become the columns."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    (_, names), *others = cells.items()
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for name in names:
        table.add_column(
            Text(printable(name), style="bold"), justify="right", no_wrap=True
        )  # Text, so that brackets are not markup
    for name, values in others:
        table.add_row(*(Text(printable(text)) for text in (name, *values)))
    return table


def to_markdown(rows: Sequence[SummaryRow]) -> str:
    """Return the summary as a Markdown table."""
    return markdown_table(summary_cells(rows))


def markdown_table(cells: Mapping[str, Sequence[str]]) -> str:
    """Return cells, given by column, as a Markdown table."""
    lines = [list(cells), ["---" if number == 0 else "---:" for number in range(len(cells))]]
    lines += map(list, zip(*cells.values(), strict=True))
    lines = [[printable(" ".join(cell.split())).replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def format_bytes(num_bytes: float) -> str:
    """Return a number of bytes as text with a unit.

    Examples
    --------
    >>> format_bytes(42), format_bytes(4_250), format_bytes(7_300_000)
    ('42 B', '4.2 kB', '7.3 MB')
    """
    if math.isnan(num_bytes):
        return "-"
    unit = 0
    while num_bytes >= 999.5 and unit < 3:
        num_bytes, unit = num_bytes / 1000, unit + 1
    decimals = 0 if unit == 0 or num_bytes >= 99.95 else 1
    return f"{num_bytes:.{decimals}f} {('B', 'kB', 'MB', 'GB')[unit]}"


def summary_cells(rows: Sequence[SummaryRow]) -> dict[str, list[str]]:
    """Return the summary by quantity: heading -> one cell per algorithm."""
    reference = next((row.reference for row in rows if row.reference is not None), None)
    cells: dict[str, list[str]] = {
        "algorithm": [
            row.algorithm + (f" ({row.status})" if row.status not in {"", "finished"} else "") for row in rows
        ],
        "agents": [str(row.num_agents) for row in rows],
    }
    if any(row.replies and row.num_with_value != row.num_agents for row in rows):
        number = [row.num_with_value for row in rows]
        cells["agents with a value"] = ["not disclosed" if k is None else str(k) for k in number]
    cells["evaluations"] = [
        "not disclosed"
        if row.num_with_value is None
        else "-".join(map(str, sorted(set(row.num_evaluations))))
        for row in rows
    ]
    for k in rows[0].checkpoints if rows else ():
        cells[f"best at {k}"] = [str(row.checkpoints[k]) for row in rows]
    cells["best at end"] = ["not disclosed" if row.num_with_value is None else str(row.final) for row in rows]
    if reference is not None:
        for k in rows[0].differences:
            cells[f"gain on {reference} at {k}"] = [_signed(row.differences[k]) for row in rows]
        cells[f"gain on {reference} at end"] = [_signed(row.final_difference) for row in rows]
        cells["agents no worse"] = [
            "-" if math.isnan(row.share_no_worse) else f"{row.share_no_worse:.0%}" for row in rows
        ]
        cells["evaluations to match"] = [str(row.evaluations_to_reference or "not reached") for row in rows]
        cells[f"to {MOST:.0%} of its gain"] = [str(row.evaluations_to_most or "not reached") for row in rows]
    cells["down per agent-round"] = [format_bytes(row.bytes_down) for row in rows]
    cells["up per agent-round"] = [format_bytes(row.bytes_up) for row in rows]
    cells["floats per agent"] = [
        "-" if math.isnan(row.floats_per_agent) else f"{row.floats_per_agent:,.0f}" for row in rows
    ]
    cells["seconds"] = [f"{row.seconds:.{0 if row.seconds >= 10 else 1}f}" for row in rows]
    if any(row.evaluations_made is not None for row in rows):
        made = [row.evaluations_made for row in rows]
        cells["evaluations really made"] = ["all" if number is None else str(number) for number in made]
    if any(row.failed_evaluations for row in rows):
        cells["failed evaluations"] = [str(row.failed_evaluations) for row in rows]
    if any(row.num_with_value is None for row in rows):
        cells["replies"] = [str(row.replies) for row in rows]
        cells["disclosed"] = [row.disclosures or "unknown" for row in rows]
    if any(row.lost_replies for row in rows):
        cells["lost replies"] = [str(row.lost_replies) for row in rows]
    if any(row.refused_replies for row in rows):
        cells["refused replies"] = [str(row.refused_replies) for row in rows]
    for reason in sorted({reason for row in rows for reason in row.reasons}):
        cells[f"  {reason}"] = [str(row.reasons.get(reason, 0)) for row in rows]
    return cells


def _signed(difference: AgentMean) -> str:
    return f"+{difference}" if difference.mean > 0 else str(difference)
