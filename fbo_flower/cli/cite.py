"""`fbo-flower cite`: the BibTeX entries of an algorithm's papers and of this software.

`papers.bib` beside this file holds the papers. The entry of the software has the facts of `CITATION.cff`.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

import typer

EXAMPLE = "Example: fbo-flower cite fts"
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


def run_cite(
    algorithm: Annotated[
        str | None,
        typer.Argument(help="Cite the papers of this algorithm too; default: only the software."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Print BibTeX entries of this software and of the papers that an algorithm follows."""
    from fbo_flower.algorithms.registry import find

    entries = [software()]
    if algorithm is not None:
        record = find(algorithm)
        papers = read_papers()
        keys = PAPERS.get(algorithm, ())
        if not keys:
            package = record.home.partition(".")[0].partition(":")[0]
            typer.echo(
                f"note: {algorithm!r} comes from the package {package}; its authors say which paper to cite",
                err=True,
            )
        entries.extend(papers[key] for key in keys)
    typer.echo("\n\n".join(entries))


def software() -> str:
    """Return the entry of this software in the installed version."""
    from fbo_flower import __version__

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
