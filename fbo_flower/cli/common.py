"""What commands share: their options, from their docstrings; numbers with a noun."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Annotated, Any

import typer

from fbo_flower.cli.interruption import in_order

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and Flower's own log.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but warnings and errors.")]
_COMMON = {
    "wide": "Print all rows of the table; draw values against parameters and the best configurations, which "
    "a picture of several algorithms leaves out.",
    "connection": "Name of a SuperLink in Flower's config.toml; default: the one that config.toml names.",
    "journal": "The agent's journal, as in `journal` of its node_config.",
}
_SHORT = {"run_config": ("-c",)}
_REPEAT = "every file is whole or as it was before; run the same command again"


def texts_of(group: Any) -> dict[str, str]:
    """Return parameter -> description, from the section "Parameters" of a docstring."""
    section = (inspect.getdoc(group) or "").partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    texts: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", section):
        names, _, text = entry.partition(" : ")
        for name in names.split(", "):
            texts[name] = " ".join(textwrap.dedent(text).split())
    return texts


def described(function: Callable[..., Any], groups: tuple[type, ...], repeatable: bool) -> Callable[..., Any]:
    """Return a command for Typer that takes the help of its parameters from the function's docstring.

    A parameter before `*` is an argument, one behind it an option. A word in backticks and a colon before a
    text stand for the value. What the docstring does not describe is an option of many commands, or a field
    of a group of settings, whose docstring describes it.

    Parameters
    ----------
    groups : of settings
    repeatable : whether a signal ends the command in order, because it writes each of its files as a whole
    """
    fields = {name: text for group in groups for name, text in texts_of(group).items()}
    texts = {name: f"{text[0].upper()}{text[1:]}." for name, text in fields.items()} | _COMMON
    own, parameters = texts_of(function), []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        name, kind = parameter.name, parameter.annotation
        shown = re.match(r"`(\S+)`: ?", text := own.get(name, ""))
        text, metavar = text[shown.end() :] if shown else text, shown and shown[1]
        text = text or texts.get(name, "")
        if name in {"debug", "quiet"}:
            kind = {"debug": Debug, "quiet": Quiet}[name]
        elif parameter.kind is parameter.KEYWORD_ONLY:
            flags = [f"--{name.removeprefix('as_').strip('_').replace('_', '-')}", *_SHORT.get(name, ())]
            kind = Annotated[kind, typer.Option(*flags, help=text, metavar=metavar)]
        elif kind is not typer.Context:
            kind = Annotated[kind, typer.Argument(help=text, metavar=metavar)]
        parameters.append(parameter.replace(annotation=kind))
    if takes_debug := "debug" not in {parameter.name for parameter in parameters}:
        debug = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug)
        parameters.append(debug)

    @wraps(function)
    def command(**given: Any) -> Any:
        if takes_debug:
            del given["debug"]  # `main` looks at it
        with in_order(lambda: _REPEAT) if repeatable else nullcontext():
            return function(**given)

    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(command)["__signature__"] = inspect.Signature(parameters)
    return command


def plural(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "round"), plural(2, "round")
    ('1 round', '2 rounds')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"
