"""`fbo-flower new`: begin an app of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fbo_flower.cli.scaffold import new_app

EXAMPLE = "Example: fbo-flower new my-app && fbo-flower run my-app"


def run_new(
    directory: Annotated[Path, typer.Argument(help="A new or an empty directory.")],
    name: Annotated[str | None, typer.Option(help="Of the app; default: the directory's.")] = None,
    publisher: Annotated[str, typer.Option(help="Part of the app's id.")] = "me",
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Write a Flower app that tunes on a CSV file at each node, and simulates without one."""
    for path in new_app(directory, name, publisher):
        typer.echo(str(path))
    typer.echo(f"Simulate it: fbo-flower run {directory}")
