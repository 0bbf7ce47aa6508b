"""`fbo-flower algorithms`: the algorithms with their messages and options, and the tables of their page."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fbo_flower.errors import ConfigError

if TYPE_CHECKING:
    from fbo_flower.algorithms import AlgorithmRecord

EXAMPLE = "Example: fbo-flower algorithms fts"
_LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")


def run_algorithms(
    name: Annotated[str | None, typer.Argument(help="Explain this one with its options.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the tables of docs/algorithms.md.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """List the algorithms with their options and defaults, those of other packages too."""
    from fbo_flower.algorithms.registry import BUILT_IN, find, records

    if markdown:
        chosen = list(BUILT_IN.values()) if name is None else [find(name)]
        typer.echo("\n".join(page_blocks(chosen).values()), nl=False)
        return
    if name is not None:
        _show(find(name).name, _plain(find(name).summary), _details(find(name)))
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = records()
    for record in found.values():
        try:
            options = option_lines(record.load().option_defaults())
        except ConfigError as error:
            typer.echo(f"warning: {error}", err=True)
            continue
        _show(record.name, _plain(record.summary), options)
    sys.stdout.flush()  # before the warnings, where both go to one terminal
    for warning in caught:
        typer.echo(f"warning: {warning.message}", err=True)


def _details(record: AlgorithmRecord) -> Iterator[str]:
    kind = record.load()
    yield f"class: {record.home}"
    if record.page:
        yield f"page: {record.page}"
    yield ""
    yield f"The server sends: {_plain(record.server_sends)}."
    yield f"An agent sends: {_plain(record.agent_sends)}."
    yield f"A curious server can infer: {_plain(record.inference)}"
    if record.attack_name is not None:
        yield f"Measure it: python -m studies attack {record.attack_name}"
    if record.caution:
        yield f"Caution: {_plain(record.caution)}"
    yield ""
    yield f"defaults: {', '.join(option_lines(kind.option_defaults()))}"
    yield ""
    yield from kind.option_texts()


def option_lines(options: dict[str, object]) -> list[str]:
    """Return `name = default` of every option."""
    return [f"{name} = {default!r}" for name, default in options.items()]


def _plain(text: str) -> str:
    """Return Markdown as plain text: no quotes of code, and links as their address in brackets."""
    return _LINK.sub(r"\1 (\2)", text).replace("`", "")


def _show(name: str, summary: str, lines: Iterable[str]) -> None:
    typer.secho(name, bold=True, nl=False)
    typer.echo(f"  {summary}")
    for line in lines:
        typer.echo(f"    {line}".rstrip())


# -- the tables of docs/algorithms.md ----------------------------------------------------------


def page_blocks(records: Sequence[AlgorithmRecord]) -> dict[str, str]:
    """Return the two tables of `docs/algorithms.md` by the name of their place, between its two comments.

    A record names pages from the root of the repository; the tables link them from `docs/`.
    """
    tables = {"messages": _message_table(records), "algorithms": _algorithm_table(records)}
    return {
        place: "\n".join([f"<!-- {place}:begin -->", *_from_docs(lines), f"<!-- {place}:end -->", ""])
        for place, lines in tables.items()
    }


def _from_docs(lines: Iterable[str]) -> Iterator[str]:
    return (line.replace("](docs/", "](") for line in lines)


def _message_table(records: Sequence[AlgorithmRecord]) -> Iterator[str]:
    """Yield what travels; algorithms with the same messages share a row."""
    yield "| | from the server | from an agent |"
    yield "|---|---|---|"
    for sent in dict.fromkeys((record.server_sends, record.agent_sends) for record in records):
        names = [f"`{r.name}`" for r in records if (r.server_sends, r.agent_sends) == sent]
        yield f"| {', '.join(names)} | {' | '.join(sent)} |"


def _algorithm_table(records: Sequence[AlgorithmRecord]) -> Iterator[str]:
    yield "| name | strategy | what it does |"
    yield "|---|---|---|"
    for record in records:
        name = f"[`{record.name}`]({record.page})" if record.page else f"`{record.name}`"
        yield f"| {name} | `{record.class_name}` | {record.summary} |"
