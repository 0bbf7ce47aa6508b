"""What pages link or name exists: files, headings, modules, commands."""

import re
from functools import cache

import typer
from processes import ROOT

from fbo_flower.cli.main import app

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
    plain = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", "\n".join(re.findall(r"^#+ (.+)$", text, re.MULTILINE)))
    return {re.sub(r"[^\w\- ]", "", line.strip().lower()).replace(" ", "-") for line in plain.splitlines()}


def links(page):
    """Return the links of a page, without what stands in code."""
    return _LINK.findall(_CODE.sub("", _FENCED.sub("", page.read_text(encoding="utf-8"))))


def test_links_files_modules_and_commands_of_all_pages_exist():
    wrong = [f"{page.relative_to(ROOT)}: {fault}" for page in PAGES for fault in broken(page)]
    wrong += [f"{page.relative_to(ROOT)}: {fault}" for page in NAMING for fault in misnamed(page)]
    assert wrong == []


def broken(page):
    """Yield the links of a page that lead nowhere."""
    for link in links(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or not target.is_relative_to(ROOT):
            yield f"{link}: no such file in the repository"
        elif anchor and anchor not in anchors(target):
            yield f"{link}: no such heading"


def misnamed(page):
    """Yield the files, modules and commands that a page names and that do not exist."""
    text = page.read_text(encoding="utf-8")
    for name in _FILE.findall(text):
        if not (ROOT / name).is_file() and "/test_x." not in name:
            yield f"{name}: no such file"
    for name in _MODULE.findall(text):
        path = ROOT / name.replace(".", "/")
        if not path.is_dir() and not path.with_suffix(".py").is_file():
            yield f"{name}: no such module"
    yield from (f"{name}: no such command" for name in set(_COMMAND.findall(text)) - COMMANDS)


def test_who_follows_links_from_the_list_of_pages_reaches_every_page():
    seen, ahead = set(), {ROOT / "docs" / "README.md"}
    while ahead:
        seen |= ahead
        found = {(page.parent / link.partition("#")[0]).resolve() for page in ahead for link in links(page)}
        ahead = {page for page in found - seen if page.suffix == ".md" and page.is_file()}
    assert set((ROOT / "docs").rglob("*.md")) <= seen
