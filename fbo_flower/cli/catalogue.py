"""`fbo-flower algorithms` and `problems`: what there is, with options and defaults, and which papers to cite.

`papers.bib` beside this file holds the papers. The entry of the software has the facts of `CITATION.cff`.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import typer

from fbo_flower.errors import ConfigError
from fbo_flower.version import __version__

_LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")
TITLE = "fbo-flower: federated black-box optimisation on Flower"
AUTHOR = "fbo-flower contributors"
LICENCE = "Apache-2.0"
_EI = ("jones1998", "ament2023", "hvarfner2024")
_PNE = ("li2024",)
# algorithm -> the papers that it follows, the most important one first
PAPERS: dict[str, tuple[str, ...]] = {
    "random": ("bergstra2012",),
    "ts": ("thompson1933",),
    "fts": ("dai2020",),
    "dp-fts": ("dai2021",),
    "ei": _EI,
    "fed-ei": (*_EI, "bonilla2008", "bonawitz2017"),
    "rgpe": ("feurer2018", "dai2020"),
    "taf": ("wistuba2018", "dai2020"),
    "pf-pne": _PNE,
    "fed-pne": _PNE,
    "local-pne": _PNE,
    "hct": ("azar2014",),
    "fed1-ucb": ("shi2021",),
    "fn-ucb": ("dai2023",),
    "co-kg": ("zhan2025",),
    "rfms": ("sun2019",),
}


def algorithms(name: str | None = None, *, cite: bool = False) -> None:
    """List the algorithms with their options and defaults, also those of other packages.

    Example: fbo-flower algorithms fts

    Parameters
    ----------
    name : Explain this one with its options.
    cite : Print BibTeX entries instead: of this software, and of the algorithm's papers.
    """
    from fbo_flower.algorithms.registry import RECOMMENDED, find, inference, records

    if cite:
        record = None if name is None else find(name)
        keys = () if record is None else PAPERS.get(record.name, ())
        if record is not None and not keys:
            package = record.home.partition(".")[0].partition(":")[0]
            known = f"{record.name!r} comes from the package {package}"
            typer.echo(f"note: {known}; its authors say which paper to cite", err=True)
        papers = read_papers() if keys else {}
        typer.echo("\n\n".join([software(), *(papers[key] for key in keys)]))
        return
    if name is not None:
        record = find(name)
        kind: Any = record.load()
        defaults = kind.option_defaults()
        lines = [f"class: {record.home}", *([f"page: {record.page}"] if record.page else []), ""]
        lines.append(f"The server sends: {_plain(record.server_sends)}.")
        lines.append(f"An agent sends: {_plain(record.agent_sends)}.")
        inferred = inference(record.name, defaults.get("secure_sums", 0))
        lines.append(f"A curious server can infer: {_plain(inferred)}")
        if attack := record.attack_name:
            lines.append(f"Measure it, in a clone of the repository: python -m studies attack {attack}")
        lines += [f"Caution: {_plain(record.caution)}"] if record.caution else []
        lines += ["", f"defaults: {', '.join(option_lines(defaults))}", "", *kind.option_texts()]
        _show(record.name, _plain(record.summary), lines)
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
        default = " (default)" if record.name == RECOMMENDED else ""
        _show(record.name, _plain(record.summary) + default, options)
    sys.stdout.flush()  # before the warnings, where both go to one terminal
    for warning in caught:
        typer.echo(f"warning: {warning.message}", err=True)


def problems() -> None:
    """List the bundled problems with their options and defaults."""
    from fbo_flower.simulation.problems import PROBLEMS

    for name, problem in PROBLEMS.items():
        most = "" if problem.max_agents is None else f", at most {problem.max_agents}"
        agents = f"{problem.metric}; {problem.default_agents} agents by default{most}"
        summary = (problem.__doc__ or "").strip().splitlines()[0]
        _show(name, summary, [agents, *option_lines(problem.options())])


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


def software() -> str:
    """Return the entry of this software in the installed version."""
    lines = [
        f"  author = {{{{{AUTHOR}}}}},",  # double braces: the name of a group
        f"  title = {{{TITLE}}},",
        f"  version = {{{__version__}}},",
        f"  license = {{{LICENCE}}},",
    ]
    return "\n".join(["@software{fbo-flower,", *lines, "}"])


def read_papers() -> dict[str, str]:
    """Return the entries of `papers.bib` by their key."""
    text = files("fbo_flower.cli").joinpath("papers.bib").read_text(encoding="utf-8")
    entries = [block.strip() for block in text.split("\n\n") if block.startswith("@")]
    return {entry.partition("{")[2].partition(",")[0]: entry for entry in entries}
