"""Tables in Markdown, and the file that an experiment writes them into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fbo_flower.storage import atomic_file


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of cells as a Markdown table.

    >>> print(table(["agent", "best"], [["0", "0.5"]]), end="")
    | agent | best |
    |---|---|
    | 0 | 0.5 |
    """
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def write_results(directory: Path, text: Iterable[str]) -> Path:
    """Write the parts of a text, one after the other, into `results.md` and return this file."""
    path = directory / "results.md"
    with atomic_file(path, text=True) as stream:
        stream.write("\n".join(text))
    return path
