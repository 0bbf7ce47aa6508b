"""`fbo-flower best`: print an agent's own best configuration, from its journal."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fbo_flower.cli.ledger import journal_files
from fbo_flower.errors import ConfigError, printable

if TYPE_CHECKING:
    from fbo_flower.clients.own_answer import StoredAnswer

EXAMPLE = "Example: fbo-flower best /srv/north.db --json"


def run_best(
    journals: Annotated[
        list[Path],
        typer.Argument(help="Journals of agents (`agent-NAME.db`), or directories that contain them."),
    ],
    study: Annotated[
        str | None, typer.Option(help="Id of the study; default: all studies in the journal.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of text.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Print the best configuration that an agent has evaluated, its value, and the number of evaluations.

    The answer is the agent's own and has not left its device. The journal may be in use.
    """
    from fbo_flower.clients.own_answer import read_answers

    found = [
        (path, stored)
        for path in journal_files(journals)
        for stored in read_answers(path)
        if study in {None, stored.answer.study}
    ]
    if study is not None and not found:
        raise ConfigError(f"--study: expected a study in the journal, got {study}; leave it out to see all")
    if as_json:
        typer.echo(json.dumps([_values(path, stored) for path, stored in found], indent=2))
        return
    if not found:
        typer.echo("The journal holds no study yet.")
    for path, stored in found:
        answer = stored.answer
        typer.secho(printable(f"Agent {answer.agent}"), bold=True, nl=False)
        typer.echo(printable(f", study {answer.study}, {answer.algorithm}, {path}"))
        if stored.unreadable:
            typer.echo(printable(f"  cannot be read: {stored.unreadable}"))
            continue
        if answer.config is None:
            typer.echo("  best value: none yet")
        else:
            noisy = ", the mean that the agent's model expects, because values are noisy"
            typer.echo(f"  best value: {answer.value:.6g}{noisy if answer.observed else ''}")
            for name, value in answer.config.items():
                typer.echo(printable(f"    {name}: {value}"))
        if answer.observed is not None:
            typer.echo(f"  best observed value: {answer.observed[1]:.6g}")
            for name, value in answer.observed[0].items():
                typer.echo(printable(f"    {name}: {value}"))
        failed = (
            f", {stored.num_failed} failed, the first with: {stored.failure}" if stored.num_failed else ""
        )
        typer.echo(printable(f"  evaluations: {answer.num_evaluations}{failed}"))


def _values(path: Path, stored: StoredAnswer) -> dict[str, Any]:
    answer = stored.answer
    return {
        "agent": answer.agent,
        "study": answer.study,
        "algorithm": answer.algorithm,
        "journal": str(path),
        "config": answer.config,
        "value": None if math.isnan(answer.value) else answer.value,
        "observed": answer.observed and {"config": answer.observed[0], "value": answer.observed[1]},
        "evaluations": answer.num_evaluations,
        "failed": stored.num_failed,
        "failure": stored.failure,
        "unreadable": stored.unreadable,
    }
