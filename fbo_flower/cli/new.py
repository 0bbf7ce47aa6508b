"""`fbo-flower new`: create your own tuning app."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fbo_flower.cli.scaffold import new_app

EXAMPLE = "Example: fbo-flower new my-app && fbo-flower run my-app"


def run_new(
    directory: Annotated[
        Path, typer.Argument(help="Directory to write the app into; it must be new or empty.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the app; default: the name of the directory.")
    ] = None,
    publisher: Annotated[
        str, typer.Option(help="Publisher of the app; Flower makes it part of the app's id.")
    ] = "me",
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Write a Flower app in which each node tunes on its own CSV file.

    Nodes without a CSV file use a share of a public data set, so the app also runs in simulation.
    """
    for path in new_app(directory, name, publisher):
        typer.echo(str(path))
    typer.echo(f"Simulate it: fbo-flower run {directory}")
