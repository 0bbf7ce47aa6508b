"""What the benchmarks share: their command line, and lines of tables."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies.experiment import row

ROOT = Path(__file__).parents[2]


def options(
    doc: str | None, *positional: str, arguments: Sequence[str] | None = None, **defaults: Any
) -> argparse.Namespace:
    """Return the options of the command line, each of the type of its default; Flower logs errors only.

    Parameters
    ----------
    positional : names of arguments that are paths
    arguments : None: those of this process
    defaults : option -> default. False: a flag; a list: one or several of its entries; a tuple: one of them,
        the first by default; None: a path
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in positional:
        parser.add_argument(name, type=Path)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, list):
            parser.add_argument(flag, nargs="+", default=default, choices=default)
        elif isinstance(default, tuple):
            parser.add_argument(flag, default=default[0], choices=default)
        else:
            parser.add_argument(flag, default=default, type=Path if default is None else type(default))
    logging.getLogger("flwr").setLevel(logging.ERROR)
    return parser.parse_args(arguments)


def say(*cells: object) -> None:
    """Print a line of a Markdown table at once."""
    print(row(cells), flush=True)
