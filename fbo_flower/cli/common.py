"""What several commands share: their options, options of groups of settings, numbers with a noun."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and Flower's own log.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but warnings and errors.")]
Wide = Annotated[
    bool,
    typer.Option(
        "--wide",
        help="Print all rows of the table; draw values against parameters and the best configurations, which "
        "a picture of several algorithms leaves out.",
    ),
]
Directories = Annotated[list[Path], typer.Argument(help="Directories of studies.")]
Journals = Annotated[
    list[Path], typer.Argument(help="Journals of agents (`agent-NAME.db`), or directories that contain them.")
]
Connected = Annotated[
    str | None,
    typer.Argument(
        help="Name of a SuperLink in Flower's config.toml; default: the one that config.toml names."
    ),
]


def texts_of(group: Any) -> dict[str, str]:
    """Return parameter -> description, from the section "Parameters" of a docstring."""
    section = (inspect.getdoc(group) or "").partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    texts: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", section):
        names, _, text = entry.partition(" : ")
        for name in names.split(", "):
            texts[name] = " ".join(textwrap.dedent(text).split())
    return texts


def option(group: type, name: str, *flags: str, **more: Any) -> Any:
    """Return the option for one field of a group of settings, with the field's description as help."""
    text = texts_of(group)[name]
    return typer.Option(*flags, help=f"{text[0].upper()}{text[1:]}.", **more)


def plural(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "round"), plural(2, "round")
    ('1 round', '2 rounds')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"
