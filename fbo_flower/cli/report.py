"""`fbo-flower report` and `export`: tables, pictures and pages of studies; trials for other tools."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer
from rich.console import Console

from fbo_flower.cli.common import plural
from fbo_flower.errors import ConfigError
from fbo_flower.storage.paths import path_of

if TYPE_CHECKING:
    from fbo_flower.reports.summary import SummaryRow
    from fbo_flower.study.study import Study

CURVES = ("agent", "study", "trial", "step", "value", "state")  # columns of a file of learning curves


def report(
    directories: list[Path],
    *,
    out: Path | None = None,
    reference: str | None = None,
    x: str = "evaluations",
    wide: bool = False,
    markdown: bool = False,
    as_html: bool = False,
    quiet: bool = False,
) -> None:
    """Print the result table of one or several studies and draw their pictures.

    report.png shows best values and, of one algorithm, values against parameters and the best
    configurations. traffic.png shows what was sent. privacy.md lists what the server learned about the
    agents.

    Example: fbo-flower report runs/latest

    Parameters
    ----------
    directories : Directories of studies, or servers' journals; several are merged into one report.
    out : File of the picture (.png, .pdf, .svg), or of the page (.html); default: report.png or report.html
        in DIR, or here for several.
    reference : Label of the algorithm to compare with; default: tuning alone, if any.
    x : What best values are drawn against: evaluations, or time (seconds since the first evaluation began; an
        agent counts from its first value).
    markdown : Print the table as Markdown.
    as_html : Write report.html instead of the pictures: one page with curves, parameters, best
        configurations, traffic, privacy and failures, which needs no network.
    """
    from fbo_flower.reports.figures import PICTURE, check_x, draw, traffic_path
    from fbo_flower.reports.page import PAGE as HTML_PAGE
    from fbo_flower.reports.page import write_html_page
    from fbo_flower.reports.summary import summarise, to_markdown
    from fbo_flower.reports.traffic import PAGE, write_privacy_page

    if as_html and out is not None and out.suffix.lower() != ".html":
        raise ConfigError(f"--out: expected a name that ends in .html with --html, got {out}")
    directories = [path_of(directory) for directory in directories]
    study = _merged([(directory, load_study(directory)) for directory in directories])
    check_x(study, x)
    rows = summarise(study, reference)
    if markdown:
        typer.echo(to_markdown(rows, wide=wide), nl=False)
        print_selections(study, markdown=True)
        quiet = True
    elif not quiet:
        print_table(rows, wide=wide)
        print_selections(study)
    place = directories[0] if len(directories) == 1 and directories[0].is_dir() else Path()
    path = path_of(out) if out is not None else place / (HTML_PAGE if as_html else PICTURE)
    if as_html:
        write_html_page(study, path, reference)
        lines = [f"Page: {path}"]
    else:
        page = path.with_name(PAGE)
        no_picture = draw(study, path, x, wide=wide or None)
        if no_picture and out is not None:
            raise ConfigError(no_picture)
        write_privacy_page(study, page)
        pictures = [path, *(other for other in [traffic_path(path)] if other.exists())]
        shown = f"Picture{'s' if len(pictures) > 1 else ''}: {', '.join(map(str, pictures))}"
        lines = [f"No picture: {no_picture}" if no_picture else shown, f"What the server learned: {page}"]
    if not quiet:
        typer.echo("\n".join(lines))


def export(
    paths: list[Path], *, optuna: str | None = None, one_study: bool = False, curves: str | None = None
) -> None:
    """Write the disclosed trials of studies for Optuna, or the learning curves in agents' journals as CSV.

    For a study that is still running use `fbo-flower simulate --optuna`, or the run-config key `optuna`.

    The column `state` of the curves says how a trial ended: completed, stopped early, or failed. They have
    not left the device, whose journal may be in use.

    Example: fbo-flower export runs/latest --optuna sqlite:///study.db

    Parameters
    ----------
    paths : Directories of studies.
    optuna : `STORAGE`: Optuna storage: sqlite:///study.db or another URL, or a file that ends in .db or .log.
        Trials that it holds are not written again.
    one_study : Write the trials of all agents into one Optuna study, with the agent as a user attribute;
        otherwise each agent has its own.
    curves : `FILE`: CSV file for what objectives have reported with `context.report`, a row per step; -:
        print it. The paths are then journals of agents, or directories that contain them.
    """
    if (optuna is None) == (curves is None):
        raise ConfigError("export: expected --optuna STORAGE or --curves FILE, got neither or both")
    if curves is not None:
        _export_curves(paths, curves)
        return
    from fbo_flower.study.study import Study

    studies = [Study.load(directory) for directory in paths]  # finds every mistake before it writes
    names = [own.study_name for study in studies for own in study.to_optuna(str(optuna), one_study=one_study)]
    typer.echo(f"Optuna studies in {optuna}: {', '.join(names) or 'none, because no trial was disclosed'}")
    typer.echo(f"Look at them: optuna-dashboard {optuna}")


def _export_curves(paths: Sequence[Path], out: str) -> None:
    from fbo_flower.cli.journals import journal_files
    from fbo_flower.storage.agent_journal import read_curves
    from fbo_flower.storage.files import atomic_file

    found = [curve for path in journal_files(paths) for curve in read_curves(path)]

    def write(file: IO[Any]) -> None:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CURVES)
        for curve in found:
            state = "stopped early" if curve.stopped else "failed" if curve.failure else "completed"
            for step, value in zip(curve.steps, curve.values, strict=True):
                writer.writerow((curve.agent, curve.study, curve.trial, step, repr(value), state))

    if out == "-":
        write(sys.stdout)
        return
    with atomic_file(out, text=True) as stream:
        write(stream)
    typer.echo(f"{plural(len(found), 'curve')}: {out}")


def load_study(path: Path) -> Study:
    """Return a saved study; without one, what the journals of its server hold so far.

    Raises
    ------
    ConfigError
        If there is neither, or a file is malformed.
    JournalError
        If a journal cannot be read.
    """
    from fbo_flower.cli.watch import find_journals
    from fbo_flower.strategies.start_and_end import study_of_journal
    from fbo_flower.study.directory import holds_study
    from fbo_flower.study.study import Study

    if path.is_file():
        return study_of_journal(path)
    if holds_study(path) or not path.is_dir():
        return Study.load(path)
    journals = [journal for journal in find_journals(path) if journal.parent.name != "prior"]
    if not journals:
        raise ConfigError(
            f"{path}: expected a study (study.json) or a server's journal (study.db), got neither; if the "
            "run goes on, wait until its first algorithm has ended"
        )
    return Study.merge([study_of_journal(journal) for journal in journals], name=path.resolve().name)


def _merged(studies: Sequence[tuple[Path, Study]]) -> Study:
    """Merge studies; an algorithm that occurs in several gets the directory's name added to its label."""
    from fbo_flower.study.study import Study

    labels = [label for _, study in studies for label in study.algorithms]
    distinct = []
    for directory, study in studies:
        for label in study.algorithms:
            if labels.count(label) > 1:
                study = study.relabel(label, f"{label} ({directory.resolve().name})")  # noqa: PLW2901
        distinct.append(study)
    return Study.merge(distinct)


def print_table(rows: Sequence[SummaryRow], console: Console | None = None, *, wide: bool = False) -> None:
    """Print the result table, in several parts if it is wider than the terminal (a file has no width).

    What the first algorithm gains on tuning alone follows in a sentence.
    """
    from fbo_flower.reports.summary import gain_line, render_table

    console, unbounded = console or Console(highlight=False), Console(width=10_000)
    if not console.is_terminal:
        console.width = unbounded.width
    start = 0
    while start < len(rows):
        stop = len(rows)
        table = render_table(rows[start:stop], wide=wide)
        while stop > start + 1 and unbounded.measure(table).maximum > console.width:
            stop -= 1
            table = render_table(rows[start:stop], wide=wide)
        console.print(table)
        start = stop
    if line := gain_line(rows):
        console.print(line, soft_wrap=True, markup=False)


def print_selections(study: Study, *, markdown: bool = False) -> None:
    """Print the table of selected models, if any run exchanged models, and who holds no limits."""
    from fbo_flower.reports.pictures import shorten
    from fbo_flower.reports.selection import selection_cells, selections
    from fbo_flower.reports.summary import markdown_table, render_cells

    if study.infeasible:
        typer.echo(f"No configuration holds the limits of {shorten(', '.join(study.infeasible), 200)}.")
    rows = selections(study)
    if rows and markdown:
        typer.echo("\n" + markdown_table(selection_cells(rows)), nl=False)
    elif rows:
        console = Console(highlight=False)
        console.width = console.width if console.is_terminal else 10_000
        console.print(render_cells(selection_cells(rows)))
