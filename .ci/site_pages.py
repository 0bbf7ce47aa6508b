"""Hook of mkdocs: copy the repository's pages into build/pages, where the site is made from them.

The copy has the tree of the repository, so a link such as `../examples/own-objective/README.md` leads
somewhere on the site as in a repository browser. A link to something that only the repository has, such as a
folder of source code, becomes plain text on the site. The API reference gets a page per module.
"""

from __future__ import annotations

import csv
import dataclasses
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fbo_flower.algorithms.algorithm_record import AlgorithmRecord
from fbo_flower.algorithms.registry import BUILT_IN, find

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "examples/*/README.md", "containers/README.md")
# what only those need who work on the code: in the repository, not on the site
OFF_SITE = ("docs/adr/*.md", "docs/errata.md", "docs/compatibility.md")
NOTEBOOKS = "docs/tutorials/*.ipynb"  # each becomes a page
SHIM = ROOT / ".ci" / "iframe-worker.js"
FILES = ("docs/**/*.png", "CITATION.cff", "LICENSE")
# module -> names; empty: what its `__all__` lists
API: dict[str, tuple[str, ...]] = {
    "fbo_flower": (),
    "fbo_flower.simulation": (),
    "fbo_flower.study": (),
    "fbo_flower.trackers": (),
    "fbo_flower.strategies": ("TuningStrategy", "RoundProgress", "STRATEGIES"),
    "fbo_flower.algorithms": (),
    "fbo_flower.clients": (),
    "fbo_flower.federated": (),
    "fbo_flower.models": (),
    "fbo_flower.storage": (),
    "fbo_flower.errors": (),
}
EXAMPLE = """\
from fbo_flower import Float, SearchSpace, simulate
from fbo_flower.algorithms import {kind}


def score(config, centre):  # each site has an optimum of its own
    return -((config["x"] - centre) ** 2)


space = SearchSpace({{"x": Float(0, 1)}})
sites = {{"A": 0.2, "B": 0.3, "C": 0.4}}
study = simulate(score, space, sites, algorithm={kind}(), num_rounds=4, engine="inline")
print(study.best)
"""
SITES_EXAMPLE = """\
from fbo_flower import simulate
from fbo_flower.algorithms import {kind}

study = simulate("breast-cancer-5sites", algorithm={kind}(), num_rounds=4, engine="inline")
print(study.best)
"""
MOST_ROWS = 130  # of a table that is drawn; a longer one is a link to its file
TABLES = ROOT / "studies" / "results"
_TABLE = re.compile(r"^## (.+)$|^- \[(\S+\.csv)\]\(\S+\)(?:: |, )?((?:.+\n(?:  .*\n)*)?)", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Make the pages, and let mkdocs read them."""
    config["docs_dir"] = str(copy_pages(ROOT / "build" / "pages", run=True))
    return config


def copy_pages(target: Path, run: bool = False) -> Path:
    """Write all pages of the site into an empty folder and return it; `run`: with the tutorials' outputs."""
    shutil.rmtree(target, ignore_errors=True)
    for pattern in PAGES:
        for page in set(ROOT.glob(pattern)) - _off_site():
            text = site_text(page, page.read_text(encoding="utf-8"))
            _write(target / page.relative_to(ROOT), text + tables_of(page))
    for notebook in sorted(ROOT.glob(NOTEBOOKS)):
        page = (target / notebook.relative_to(ROOT)).with_suffix(".md")
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        _write(page, site_text(notebook, tutorial(cells, page.with_suffix("") if run else None)))
    for pattern in FILES:
        for file in ROOT.glob(pattern):
            copy = target / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    _write(target / "assets" / SHIM.name, SHIM.read_text(encoding="utf-8"))
    for module, names in API.items():
        _write(target / "docs" / "api" / f"{module}.md", api_page(module, names))
    for name in BUILT_IN:
        page = target / "docs" / "api" / f"{name}.md"
        text = algorithm_page(find(name)).replace("](docs/", "](../")
        _write(page, site_text(ROOT / "docs" / "api" / page.name, text))
    return target


def site_text(page: Path, text: str) -> str:
    """Return a page as the site needs it: links between pages of the site, code blocks without our tags."""
    text = re.sub(r"^```(\w+) \S+$", r"```\1", text, flags=re.MULTILINE)
    parts, last = [], 0
    for block in _FENCED.finditer(text):
        parts += [_LINK.sub(lambda link: _link(page, link), text[last : block.start()]), block[0]]
        last = block.end()
    return "".join([*parts, _LINK.sub(lambda link: _link(page, link), text[last:])])


def tables_of(page: Path) -> str:
    """Return the tables that belong to a page of results, folded, each with the words of its list."""
    listed = TABLES / page.stem / "README.md"
    if page.parent != ROOT / "docs" / "results" or not listed.exists():
        return ""
    parts = ["\n\n## Tables\n"]
    for heading, name, words in _TABLE.findall(listed.read_text(encoding="utf-8")):
        if heading:
            parts.append(f"### {heading}\n")
            continue
        title = html.escape(" ".join(words.split()).replace("`", "")) or name
        parts.append(f"<details><summary>{title}</summary>\n{table_of(listed.with_name(name))}</details>\n")
    filled = [part for part, after in zip(parts, [*parts[1:], "#"], strict=True) if _has_table(part, after)]
    return "\n".join(filled)


def _has_table(part: str, after: str) -> bool:
    return not part.startswith("###") or after.startswith("<details>")


def table_of(file: Path) -> str:
    """Return a CSV file as an HTML table; a column `x standard_error` joins `x`."""
    with file.open(encoding="utf-8", newline="") as stream:
        head, *rows = csv.reader(stream)
    if len(rows) > MOST_ROWS:
        return f"<p>{len(rows)} rows: <code>{file.relative_to(ROOT)}</code> of the repository.</p>\n"
    errors = {i for i, name in enumerate(head) if i and name == f"{head[i - 1]} standard_error"}

    def line(tag: str, cells: Sequence[str]) -> str:
        shown = [
            f"{cell} ± {cells[i + 1]}" if i + 1 in errors and tag == "td" and cells[i + 1] else cell
            for i, cell in enumerate(cells)
            if i not in errors
        ]
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in shown) + "</tr>\n"

    body = "".join(line("td", row) for row in rows)
    return f"<table><thead>{line('th', head)}</thead><tbody>\n{body}</tbody></table>\n"


def _off_site() -> set[Path]:
    return {page for pattern in OFF_SITE for page in ROOT.glob(pattern)}


def _link(page: Path, link: re.Match[str]) -> str:
    words, address = link.groups()
    if "://" in address or address.startswith(("#", "mailto:")):
        return link[0]
    target = (page.parent / address.partition("#")[0]).resolve()
    results = ROOT / "docs" / "results" / f"{target.parent.name}.md"
    if target.parent.parent == TABLES and results.exists():
        return f"[{words}]({os.path.relpath(results, page.parent)}#tables)"
    if target in ROOT.glob(NOTEBOOKS):
        return f"[{words}]({address.removesuffix('.ipynb')}.md)"
    if target.is_dir():
        return f"[{words}]({address.rstrip('/')}/README.md)" if (target / "README.md").exists() else words
    of_site = target not in _off_site() and any(target in ROOT.glob(p) for p in (*PAGES, *FILES))
    return link[0] if of_site or not target.exists() else words


def tutorial(cells: Sequence[dict[str, Any]], pictures: Path | None) -> str:
    """Return the page of a notebook: its texts, its code, and what each cell printed and drew.

    Parameters
    ----------
    pictures : folder for what the cells draw, a neighbour of the page; None: the cells are not run
    """
    sources = ["".join(cell["source"]) for cell in cells]
    is_code = [cell["cell_type"] == "code" for cell in cells]
    outputs: Iterator[tuple[str, list[str]]] = iter(())
    if pictures is not None:
        with tempfile.TemporaryDirectory() as folder:
            code = [source for source, runs in zip(sources, is_code, strict=True) if runs]
            outputs = iter(run_cells(code, Path(folder)))
            pictures.mkdir(parents=True, exist_ok=True)
            for picture in Path(folder).rglob("*.png"):
                shutil.copyfile(picture, pictures / picture.name)
    parts = []
    for source, runs in zip(sources, is_code, strict=True):
        parts.append(f"```python\n{source}\n```" if runs else source)
        printed, drawn = next(outputs, ("", [])) if runs else ("", [])
        parts += [f"```text\n{printed}\n```"] if printed else []
        parts += [f"![What this code drew]({pictures.name}/{picture})" for picture in drawn if pictures]
    return "\n\n".join(parts) + "\n"


def run_cells(code: Sequence[str], folder: Path) -> list[tuple[str, list[str]]]:
    """Run code cells in one process in a folder; return what each printed, and the pictures it drew."""
    end = "end of cell; pictures: "
    report = (
        "_new = {f.name for f in __import__('pathlib').Path().rglob('*.png')} - _drawn; "
        f"_drawn |= _new; print({end!r} + ' '.join(sorted(_new)), flush=True)"
    )
    script = folder / "cells.py"
    script.write_text(
        "_drawn = set()\n" + "".join(f"{cell}\n\n{report}\n" for cell in code), encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, timeout=1200, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    found: list[tuple[str, list[str]]] = []
    printed: list[str] = []
    for line in done.stdout.splitlines():
        if line.startswith(end):
            found.append(("\n".join(printed).strip("\n"), line.removeprefix(end).split()))
            printed = []
        else:
            printed.append(line)
    return found


def api_page(module: str, names: tuple[str, ...]) -> str:
    """Return the page of a module: directives of mkdocstrings."""
    members = "".join(f"\n        - {name}" for name in names)
    options = f"\n    options:\n      members:{members}" if names else ""
    return f"# {module}\n\n::: {module}{options}\n"


def algorithm_page(record: AlgorithmRecord) -> str:
    """Return the page of an algorithm's classes: options, an example that runs, what travels, its paper."""
    kind = record.load()
    meanings, defaults = kind.option_meanings(), kind.option_defaults()
    types = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    example = SITES_EXAMPLE if record.name == "rfms" else EXAMPLE
    lines = [
        f"# {record.class_name}",
        f"`{record.name}`: {record.summary}. {record.caution}",
        f"Simulate it with `simulate(..., algorithm=\"{record.name}\")`, or with options as below. Run it on "
        f"devices with the strategy `fbo_flower.strategies.{record.class_name}(num_agents=..., ...)`, which "
        "takes the same options; all strategies share their [other settings](fbo_flower.strategies.md).",
        "## Example",
        f"```python\n{example.format(kind=record.class_name)}```",
        "## Options",
        "\n".join([
            "| option | type | default | meaning |",
            "|---|---|---|---|",
            *(
                f"| `{name}` | {_cell(types[name])} | `{_cell(repr(default))}` | {_cell(meanings[name])} |"
                for name, default in defaults.items()
            ),
        ]),
        "## What travels",
        f"The server sends: {record.server_sends}.",
        f"An agent sends: {record.agent_sends}.",
        f"[The page on the algorithm](../../{record.page}) explains it; `fbo-flower algorithms {record.name} "
        "--cite` prints the BibTeX entries of its papers." if record.page else "",
    ]  # fmt: skip
    return "\n\n".join(filter(None, lines)) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
