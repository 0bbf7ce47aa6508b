"""Hook of mkdocs: copy the repository's pages into build/pages, where the site is made from them.

The copy has the tree of the repository, so a link such as `../examples/own-objective/README.md` leads
somewhere on the site as in a repository browser. A link to something that only the repository has, such as a
folder of source code, becomes plain text on the site. The API reference gets a page per module.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

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
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Make the pages, and let mkdocs read them."""
    config["docs_dir"] = str(copy_pages(ROOT / "build" / "pages"))
    return config


def copy_pages(target: Path) -> Path:
    """Write all pages of the site into an empty folder and return it."""
    shutil.rmtree(target, ignore_errors=True)
    for pattern in PAGES:
        for page in set(ROOT.glob(pattern)) - _off_site():
            text = site_text(page, page.read_text(encoding="utf-8"))
            _write(target / page.relative_to(ROOT), text)
    for notebook in ROOT.glob(NOTEBOOKS):
        text = site_text(notebook, notebook_text(notebook.read_text(encoding="utf-8")))
        _write(target / notebook.relative_to(ROOT).with_suffix(".md"), text)
    for pattern in FILES:
        for file in ROOT.glob(pattern):
            copy = target / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    _write(target / "assets" / SHIM.name, SHIM.read_text(encoding="utf-8"))
    for module, names in API.items():
        _write(target / "docs" / "api" / f"{module}.md", api_page(module, names))
    return target


def site_text(page: Path, text: str) -> str:
    """Return a page as the site needs it: links between pages of the site, code blocks without our tags."""
    text = re.sub(r"^```(\w+) \S+$", r"```\1", text, flags=re.MULTILINE)
    parts, last = [], 0
    for block in _FENCED.finditer(text):
        parts += [_LINK.sub(lambda link: _link(page, link), text[last : block.start()]), block[0]]
        last = block.end()
    return "".join([*parts, _LINK.sub(lambda link: _link(page, link), text[last:])])


def _off_site() -> set[Path]:
    return {page for pattern in OFF_SITE for page in ROOT.glob(pattern)}


def _link(page: Path, link: re.Match[str]) -> str:
    words, address = link.groups()
    if "://" in address or address.startswith(("#", "mailto:")):
        return link[0]
    target = (page.parent / address.partition("#")[0]).resolve()
    if target in ROOT.glob(NOTEBOOKS):
        return f"[{words}]({address.removesuffix('.ipynb')}.md)"
    if target.is_dir():
        return f"[{words}]({address.rstrip('/')}/README.md)" if (target / "README.md").exists() else words
    of_site = target not in _off_site() and any(target in ROOT.glob(p) for p in (*PAGES, *FILES))
    return link[0] if of_site or not target.exists() else words


def notebook_text(source: str) -> str:
    """Return the cells of a notebook as Markdown: its texts, and its code in blocks."""
    parts = []
    for cell in json.loads(source)["cells"]:
        text = "".join(cell["source"])
        parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
    return "\n\n".join(parts) + "\n"


def api_page(module: str, names: tuple[str, ...]) -> str:
    """Return the page of a module: directives of mkdocstrings."""
    members = "".join(f"\n        - {name}" for name in names)
    options = f"\n    options:\n      members:{members}" if names else ""
    return f"# {module}\n\n::: {module}{options}\n"


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
