"""`fbo-flower curves`: write the learning curves in agents' journals as CSV."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from fbo_flower.cli.ledger import journal_files

if TYPE_CHECKING:
    from fbo_flower.storage.read_agent_journal import StoredCurve

EXAMPLE = "Example: fbo-flower curves /srv/north.db --out curves.csv"
HEADER = ("agent", "study", "trial", "step", "value", "state")


def run_curves(
    journals: Annotated[
        list[Path],
        typer.Argument(help="Journals of agents (`agent-NAME.db`), or directories that contain them."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; default: print to the terminal.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Write what objectives have reported with `context.report`, a row per step, as CSV.

    The column `state` says how the trial ended: completed, stopped early, or failed. The curves have not left
    the device. The journal may be in use.
    """
    from fbo_flower.storage.files import atomic_file
    from fbo_flower.storage.read_agent_journal import read_curves

    found = [curve for path in journal_files(journals) for curve in read_curves(path)]
    if out is None:
        _write(sys.stdout, found)
        return
    with atomic_file(out, text=True) as file:
        _write(file, found)
    typer.echo(f"{len(found)} curve{'' if len(found) == 1 else 's'}: {out}")


def _write(file: IO[Any], curves: list[StoredCurve]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(HEADER)
    for curve in curves:
        state = "stopped early" if curve.stopped else "failed" if curve.failure else "completed"
        for step, value in zip(curve.steps, curve.values, strict=True):
            writer.writerow((curve.agent, curve.study, curve.trial, step, repr(value), state))
