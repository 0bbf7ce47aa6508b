"""Command-line options for the groups of settings that `simulate` takes; docstrings are their help."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import typer


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
    """Return the option for one field of a group, with the first sentences of its description as help."""
    text = texts_of(group)[name]
    return typer.Option(*flags, help=f"{text[0].upper()}{text[1:]}.", **more)
