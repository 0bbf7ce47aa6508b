"""`python -m studies data`: prepare data files that cannot be distributed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fbo_flower.cli.main import Debug

EXAMPLE = "Example: python -m studies data landmine LandmineData.mat --out data"


def run_landmine(
    file: Annotated[
        Path, typer.Argument(help="The file LandmineData.mat, with the cell arrays feature and label.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Directory for the result; default: $FBO_FLOWER_DATA, or data.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Convert LandmineData.mat for the problem landmine-svm.

    Splits each of the 29 fields into a training and a test half, as the authors of FTS did.
    """
    from fbo_flower.storage import writable_directory
    from studies.problems.data import DATA_VARIABLE, convert_landmine

    directory = writable_directory(out or os.environ.get(DATA_VARIABLE) or "data")
    path = convert_landmine(file, directory)
    typer.echo(f"Wrote {path}")
    if os.environ.get(DATA_VARIABLE) != str(directory):
        typer.echo(f"Set {DATA_VARIABLE}={directory.resolve()} to use it")
