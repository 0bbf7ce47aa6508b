"""`fbo-flower ledger`: explain in plain words what an agent has sent, from its journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fbo_flower.errors import ConfigError, printable

if TYPE_CHECKING:
    from fbo_flower.storage.ledger import Ledger, LedgerEntry

EXAMPLE = "Example: fbo-flower ledger runs/mine/journals/1-fts/agents --rounds"


def run_ledger(
    journals: Annotated[
        list[Path],
        typer.Argument(help="Journals of agents (`agent-NAME.db`), or directories that contain them."),
    ],
    rounds: Annotated[
        bool, typer.Option("--rounds", help="Also print a table with the size of each round's message.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Print what agents have sent: every array and number, what it is, and what it discloses by design."""
    from fbo_flower.storage.read_agent_journal import read_ledger

    for path in journal_files(journals):
        ledger = read_ledger(path)
        typer.secho(printable(f"Agent {ledger.agent}"), bold=True, nl=False)
        typer.echo(printable(f", {path}"))
        for line in describe(ledger, rounds):
            typer.echo(printable(line))


def describe(ledger: Ledger, rounds: bool = False) -> Iterator[str]:
    """Yield the lines that describe what an agent has sent, study by study."""
    if ledger.roll_call:
        yield f"  At every registration: {', '.join(ledger.roll_call)}."
    if ledger.disclosure:
        yield f"  Discloses beyond the algorithm's messages: {ledger.disclosure}."
    if not ledger.rows:
        yield "  has sent nothing."
    for study in dict.fromkeys(row.study for row in ledger.rows):
        rows = [row for row in ledger.rows if row.study == study]
        algorithm = next((row.algorithm for row in rows if row.algorithm), "")
        times = sum(row.name == "header" for row in rows)
        named = algorithm or "algorithm not recorded in the journal"
        yield f"  Study {study}, {named}: {_plural(times, 'message')}, {_bytes(rows)}"
        for name in dict.fromkeys(row.name for row in rows):
            yield from _one_name(name, [row for row in rows if row.name == name])
        if rounds:
            yield from _by_round(rows)
        yield from _by_design(rows)


def _one_name(name: str, rows: Sequence[LedgerEntry]) -> Iterator[str]:
    from fbo_flower.algorithms.disclosure import meaning

    what = meaning(rows[0].algorithm, name)
    shapes = list(dict.fromkeys(row.shape for row in rows))
    shape = f" of shape {shapes[0]}" if len(shapes) == 1 and shapes[0] else ""
    repeated = sum(row.again for row in rows)
    again = f", {repeated} of them repeated" if repeated else ""
    numbers = sum(row.num_numbers for row in rows)
    amount = f"{numbers:,} numbers, " if numbers else ""
    yield f"    {name}: {_plural(len(rows), 'time')}{shape}{again}; {amount}{_bytes(rows)}"
    yield f"      what: {what.text}"
    if name != "header":
        first, last = rows[0].made_from, rows[-1].made_from
        yield f"      made from: {what.source}; {first if first == last else f'{first} .. {last}'}"
        yield f"      discloses by design: {what.discloses}"
        chosen = ", ".join(dict.fromkeys(row.chosen_by for row in rows if row.chosen_by))
        if name.startswith("disclosed."):
            yield f"      chosen by: {chosen or 'not recorded'}"


def _by_round(rows: Sequence[LedgerEntry]) -> Iterator[str]:
    yield "    round  phase     numbers      bytes  names"
    for number, phase in dict.fromkeys((row.round, row.phase) for row in rows):
        here = [row for row in rows if (row.round, row.phase) == (number, phase)]
        names = ", ".join(dict.fromkeys(row.name for row in here if row.name != "header")) or "header only"
        numbers, size = sum(row.num_numbers for row in here), sum(row.num_bytes for row in here)
        yield f"    {number:5d}  {phase:8s}{numbers:9,d}  {size:9,d}  {names}"


def _by_design(rows: Sequence[LedgerEntry]) -> Iterator[str]:
    """Yield, for points, values and rows of data, a line that names the messages which disclosed them."""
    from fbo_flower.algorithms.algorithm_record import BOTH, POINTS, ROWS, UNKNOWN, VALUES
    from fbo_flower.algorithms.disclosure import inference, meaning

    said = {row.name: meaning(row.algorithm, row.name).discloses for row in rows}
    for thing, kinds in (("Points", (POINTS, BOTH)), ("Values", (VALUES, BOTH)), ("Rows of data", (ROWS,))):
        by = [name for name, discloses in said.items() if discloses in kinds]
        yield f"    {thing}: {'sent by design, in ' + ', '.join(by) if by else 'not sent by design'}."
    unknown = [name for name, discloses in said.items() if discloses == UNKNOWN]
    if unknown:
        yield f"    Not known here: {', '.join(unknown)}."
    yield f"    What can be inferred: {inference(rows[-1].algorithm)}"


def journal_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the journals of agents: the files in `paths`, and those in its directories."""
    for path in paths:
        if path.is_dir():
            found = sorted(path.rglob("agent*.db"), key=lambda p: (p.parent, len(p.name), p.name))
            if not found:
                raise ConfigError(f"journal: expected agents' journals (agent*.db) in {path}, found none")
            yield from found
        else:
            yield path


def _bytes(rows: Sequence[LedgerEntry]) -> str:
    from fbo_flower.reports.summary_table import format_bytes

    return format_bytes(sum(row.num_bytes for row in rows))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
