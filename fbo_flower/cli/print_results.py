"""Print the results of a study: the table of its runs, and the models that sites selected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.console import Console

if TYPE_CHECKING:
    from fbo_flower.reports.summary import SummaryRow
    from fbo_flower.study.study import Study


def print_table(rows: Sequence[SummaryRow], console: Console | None = None) -> None:
    """Print the result table, in several parts if it is wider than the terminal (a file has no width)."""
    from fbo_flower.reports.summary_table import render_table

    console, unbounded = console or Console(highlight=False), Console(width=10_000)
    if not console.is_terminal:
        console.width = unbounded.width
    start = 0
    while start < len(rows):
        stop = len(rows)
        while stop > start + 1 and unbounded.measure(render_table(rows[start:stop])).maximum > console.width:
            stop -= 1
        console.print(render_table(rows[start:stop]))
        start = stop


def print_selections(study: Study, *, markdown: bool = False) -> None:
    """Print the table of selected models, if any run exchanged models."""
    from fbo_flower.reports.selection import selection_cells, selections
    from fbo_flower.reports.summary_table import markdown_table, render_cells

    rows = selections(study)
    if rows and markdown:
        typer.echo("\n" + markdown_table(selection_cells(rows)), nl=False)
    elif rows:
        console = Console(highlight=False)
        console.width = console.width if console.is_terminal else 10_000
        console.print(render_cells(selection_cells(rows)))
