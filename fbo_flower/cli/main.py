"""`fbo-flower`: the root command and its small commands; the others have a module each in this folder.

Every error is one line on stderr that names the setting, the expectation and the value. The exit status is 0
for success, 2 for a setting that cannot be used, 1 for any other error and 130 after Ctrl-C. `--debug` shows
the traceback. The commands import what they need when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.console import Console
from rich.text import Text

from fbo_flower import __version__
from fbo_flower.cli.algorithms import EXAMPLE as ALGORITHMS_EXAMPLE
from fbo_flower.cli.algorithms import option_lines, run_algorithms
from fbo_flower.cli.best import EXAMPLE as BEST_EXAMPLE
from fbo_flower.cli.best import run_best
from fbo_flower.cli.cite import EXAMPLE as CITE_EXAMPLE
from fbo_flower.cli.cite import run_cite
from fbo_flower.cli.curves import EXAMPLE as CURVES_EXAMPLE
from fbo_flower.cli.curves import run_curves
from fbo_flower.cli.doctor import EXAMPLE as DOCTOR_EXAMPLE
from fbo_flower.cli.doctor import run_doctor
from fbo_flower.cli.export import EXAMPLE as EXPORT_EXAMPLE
from fbo_flower.cli.export import run_export
from fbo_flower.cli.key import EXAMPLE as KEY_EXAMPLE
from fbo_flower.cli.key import run_key
from fbo_flower.cli.ledger import EXAMPLE as LEDGER_EXAMPLE
from fbo_flower.cli.ledger import run_ledger
from fbo_flower.cli.new import EXAMPLE as NEW_EXAMPLE
from fbo_flower.cli.new import run_new
from fbo_flower.cli.plan import parse_options
from fbo_flower.cli.run import EXAMPLE as RUN_EXAMPLE
from fbo_flower.cli.run import run_app
from fbo_flower.cli.run_plan import Interrupted
from fbo_flower.cli.simulate import EXAMPLES, Debug, Quiet, run_simulate
from fbo_flower.cli.watch import EXAMPLE as WATCH_EXAMPLE
from fbo_flower.cli.watch import run_watch
from fbo_flower.errors import ConfigError, FBOError, printable

app = typer.Typer(
    name="fbo-flower",
    help="Federated black-box optimisation on Flower.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_TUNE, _LOOK, _DEVICES, _CHOOSE = "Tune", "Look at results", "Devices and privacy", "Algorithms and problems"
app.command("simulate", epilog=EXAMPLES, rich_help_panel=_TUNE)(run_simulate)
app.command("new", epilog=NEW_EXAMPLE, rich_help_panel=_TUNE)(run_new)
app.command("run", epilog=RUN_EXAMPLE, rich_help_panel=_TUNE)(run_app)
app.command("watch", epilog=WATCH_EXAMPLE, rich_help_panel=_LOOK)(run_watch)
app.command("best", epilog=BEST_EXAMPLE, rich_help_panel=_LOOK)(run_best)
app.command("curves", epilog=CURVES_EXAMPLE, rich_help_panel=_LOOK)(run_curves)
app.command("export", epilog=EXPORT_EXAMPLE, rich_help_panel=_LOOK)(run_export)
app.command("doctor", epilog=DOCTOR_EXAMPLE, rich_help_panel=_DEVICES)(run_doctor)
app.command("ledger", epilog=LEDGER_EXAMPLE, rich_help_panel=_DEVICES)(run_ledger)
app.command("key", epilog=KEY_EXAMPLE, rich_help_panel=_DEVICES)(run_key)
app.command("algorithms", epilog=ALGORITHMS_EXAMPLE, rich_help_panel=_CHOOSE)(run_algorithms)
app.command("cite", epilog=CITE_EXAMPLE, rich_help_panel=_CHOOSE)(run_cite)


_HELP_WAS_SHOWN = getattr(
    click.exceptions, "NoArgsIsHelpError", ()
)  # click 8.1 has no such error: it returns


def main() -> None:
    """Run the command line of this process and exit with its status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str], program: str = "fbo-flower") -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    arguments : what stands behind the program's name
    program : its name in usage lines; another package may add commands to `app` and run them under its own
    """
    # flwr reads these variables when it is imported
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        status = app(list(arguments), prog_name=program, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except _HELP_WAS_SHOWN:
        return 2
    except Interrupted as interruption:
        errors.print(Text(printable(f"interrupted; {interruption}")))
        return 130
    except (FBOError, click.ClickException) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        status = 2 if isinstance(error, ConfigError | click.UsageError) else 1
        return _fail(errors, error, message, status, arguments)
    except Exception as error:  # a bug of ours or of a library: also one line
        message = f"unexpected {type(error).__name__}: {error} (use --debug to see where)"
        return _fail(errors, error, message, 1, arguments)


def _fail(errors: Console, error: Exception, message: str, status: int, arguments: Sequence[str]) -> int:
    if "--debug" in arguments:
        errors.print(Text("\n".join(map(printable, "".join(traceback.format_exception(error)).split("\n")))))
    note = "".join(f"; {note}" for note in getattr(error, "__notes__", []))
    errors.print(Text(printable(" ".join(f"error: {message}{note}".split()))))
    return status


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"fbo-flower {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: fbo-flower report runs/latest", rich_help_panel=_LOOK)
def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="Directories of studies, or servers' journals; several are merged into one report."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File of the picture (.png, .pdf, .svg), or of the page (.html); default: report.png or "
            "report.html in DIR, or here for several."
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="Label of the algorithm to compare with; default: tuning alone, if any."),
    ] = None,
    x: Annotated[
        str,
        typer.Option(
            "--x",
            help="What best values are drawn against: evaluations, or time (seconds since the first "
            "evaluation began; an agent counts from its first value).",
        ),
    ] = "evaluations",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    as_page: Annotated[
        bool,
        typer.Option(
            "--html",
            help="Write report.html instead of the pictures: one page with curves, parameters, best "
            "configurations, traffic, privacy and failures, which needs no network.",
        ),
    ] = False,
    debug: Debug = False,
    quiet: Quiet = False,
) -> None:
    """Print the result table of one or several studies and draw their pictures.

    report.png shows best values, values against parameters and the best configurations. traffic.png
    shows what was sent. privacy.md lists what the server learned about the agents.
    """
    from fbo_flower.cli.load_study import load_study
    from fbo_flower.cli.print_results import print_selections, print_table
    from fbo_flower.reports.figures import PICTURE, check_x, draw, traffic_path
    from fbo_flower.reports.privacy_page import PAGE, write_privacy_page
    from fbo_flower.reports.summary import summarise
    from fbo_flower.reports.summary_table import to_markdown

    if as_page and out is not None and out.suffix.lower() != ".html":
        raise ConfigError(f"--out: expected a name that ends in .html with --html, got {out}")
    study = _merged([(directory, load_study(directory)) for directory in directories])
    check_x(study, x)
    rows = summarise(study, reference)
    if markdown:
        typer.echo(to_markdown(rows), nl=False)
        print_selections(study, markdown=True)
    elif not quiet:
        print_table(rows)
        print_selections(study)
    place = directories[0] if len(directories) == 1 and directories[0].is_dir() else Path()
    if as_page:
        from fbo_flower.reports.page import PAGE as HTML_PAGE
        from fbo_flower.reports.page import write_html_page

        written = place / HTML_PAGE if out is None else out
        write_html_page(study, written, reference)
        if not quiet and not markdown:
            typer.echo(f"Page: {written}")
        return
    path = out if out is not None else place / PICTURE
    page = path.with_name(PAGE)
    write_privacy_page(study, page)
    no_picture = draw(study, path, x)
    if no_picture and out is not None:
        raise ConfigError(no_picture)
    if not quiet and not markdown:
        pictures = [path, *(other for other in [traffic_path(path)] if other.exists())]
        shown = f"Picture{'s' if len(pictures) > 1 else ''}: {', '.join(map(str, pictures))}"
        typer.echo(f"No picture: {no_picture}" if no_picture else shown)
        typer.echo(f"What the server learned: {page}")


def _merged(studies: Sequence[tuple[Path, Any]]) -> Any:
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


@app.command(epilog="Example: fbo-flower problems", rich_help_panel=_CHOOSE)
def problems(debug: Debug = False) -> None:
    """List the bundled problems with their options and defaults."""
    from fbo_flower.simulation.problems import PROBLEMS

    for name, problem in PROBLEMS.items():
        most = "" if problem.max_agents is None else f", at most {problem.max_agents}"
        lines = [
            f"{problem.metric}; {problem.default_agents} agents by default{most}",
            *option_lines(problem.options()),
        ]
        _show(name, _first_line(problem), lines)


def _first_line(thing: type[Any]) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]


def _show(name: str, summary: str, lines: Sequence[str]) -> None:
    typer.secho(name, bold=True, nl=False)
    typer.echo(f"  {summary}")
    for line in lines:
        typer.echo(f"    {line}".rstrip())


def _filled(text: str) -> str:
    """Return a text whose paragraphs have no line breaks: typer keeps those of all but the first."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


for _command in app.registered_commands:
    _command.help = _filled(inspect.getdoc(_command.callback) or "")

__all__ = ["Debug", "Interrupted", "Quiet", "app", "main", "parse_options", "run"]
