"""What pages link or name exists: files, headings, modules, commands."""

import re
from functools import cache
from pathlib import Path

import pytest
import typer

from fbo_flower.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")])
# the changelog names what there was
NAMING = [*(p for p in PAGES if p.name != "CHANGELOG.md"), *(ROOT / "studies").rglob("*.md")]
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FILE = re.compile(r"(?<![\w/.-])(?:fbo_flower|studies|tests|benchmarks)/[\w./-]*\w\.(?:py|csv|md)\b")
_MODULE = re.compile(r"\bpython -m (studies[\w.]*\w)")
_COMMAND = re.compile(r"(?:^    |`|\.\.\. )fbo-flower ([a-z]+)\b", re.MULTILINE)
COMMANDS = typer.main.get_command(app).commands.keys()


@cache
def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        number = 0
        while (name := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(name)
    return frozenset(found)


def links(page):
    """Return the links of a page, without what stands in code."""
    return _LINK.findall(_CODE.sub("", _FENCED.sub("", page.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page):
    for link in links(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{link}: no such file"
        assert target.is_relative_to(ROOT), f"{link}: outside of the repository"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


@pytest.mark.parametrize("page", NAMING, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_and_commands_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    for name in _FILE.findall(text):
        assert (ROOT / name).is_file() or "/test_x." in name, f"{name}: no such file"
    for name in _MODULE.findall(text):
        path = ROOT / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), f"{name}: no such module"
    assert set(_COMMAND.findall(text)) <= COMMANDS


def test_every_page_is_listed():
    """A reader who begins at the list of pages, and follows links, reaches every page."""
    seen, ahead = set(), [ROOT / "docs" / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if "://" not in link and target.is_file():
                ahead.append(target)
    assert set((ROOT / "docs").rglob("*.md")) <= seen
