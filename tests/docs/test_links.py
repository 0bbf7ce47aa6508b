"""What pages link or name exists; what is made from the code is up to date; algorithms have their papers."""

import re
from functools import cache
from pathlib import Path

import pytest
import reference
import site_pages
import typer
from processes import ROOT, python

from fbo_flower import __version__
from fbo_flower.algorithms import ALGORITHMS
from fbo_flower.algorithms.registry import BUILT_IN, find
from fbo_flower.app.config import AppConfig
from fbo_flower.cli import catalogue
from fbo_flower.cli.main import app, run
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import PROBLEMS

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


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_holds_the_tables_of_today(name):
    text, blocks = (ROOT / "docs" / name).read_text(encoding="utf-8"), reference.PAGES[name]()
    assert reference.renewed(text, blocks) == text, "run python .ci/reference.py"
    emptied = re.sub(r"(:begin -->\n).*?(<!--)", r"\1\2", text, flags=re.DOTALL)
    assert reference.renewed(emptied, blocks) == text
    with pytest.raises(ConfigError, match="expected the comments"):
        reference.renewed("no place", blocks)


def test_every_command_and_every_key_has_a_meaning():
    blocks = reference.reference_blocks()
    for name, command in typer.main.get_command(app).commands.items():  # a group
        assert f"### `fbo-flower {name}" in blocks["commands"]
        for parameter in getattr(command, "params", ()):
            named = [option for option in parameter.opts if option.startswith("--")]
            assert all(f"`{option}`" in blocks["commands"] for option in named)
    assert not re.search(r": *$", blocks["commands"], re.MULTILINE)
    keys = re.findall(r"^- `([\w-]+)`", blocks["run-config"], re.MULTILINE)
    assert {key.replace("-", "_") for key in keys} == set(AppConfig.__annotations__)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    return Path(site_pages.copy_pages(tmp_path_factory.mktemp("site") / "pages"))


def test_every_page_is_in_the_navigation_and_the_other_way_round(pages):
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == {str(page.relative_to(pages)) for page in pages.rglob("*.md")}
    for hidden in ("adr", "errata.md", "compatibility.md"):  # for work on the code
        assert not (pages / "docs" / hidden).exists()


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_page_of_an_algorithm_lists_its_options_and_its_example_runs(pages, name, capsys):
    text = (pages / "docs" / "api" / f"{name}.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)`", text, re.MULTILINE) == list(find(name).load().option_defaults())
    assert not re.search(r"\|\s+\|$", text, re.MULTILINE), "every option has a meaning"
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    if name not in {"fed-ei", "rfms"}:  # one of each kind in full, of the others the first round
        example = example.replace("num_rounds=4", "num_rounds=1")
    exec(example, {})
    assert "value" in capsys.readouterr().out


def test_links_of_the_site_lead_to_files_of_the_site(pages):
    for page in pages.rglob("*.md"):
        text = re.sub(r"^```.*?^```$|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" not in link and not link.startswith("#"):
                assert (page.parent / link.partition("#")[0]).is_file(), f"{page}: {link}"


def test_a_page_of_results_shows_the_tables_behind_it_and_some_page_every_picture(pages):
    for listed in (ROOT / "studies" / "results").glob("*/README.md"):
        page = pages / "docs" / "results" / f"{listed.parent.name}.md"
        if page.exists():
            text = page.read_text(encoding="utf-8")
            assert text.count("<details>") == len(list(listed.parent.glob("*.csv"))), page.name
    text = (pages / "docs" / "results" / "fts.md").read_text(encoding="utf-8")
    assert "<td>-0.0341 ± 0.0065</td>" in text
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in files)
    shown = {Path(link).name for link in re.findall(r"!\[[^\]]+\]\(([^)\s]+\.png)\)", text)}
    assert shown >= {file.name for file in (ROOT / "docs").rglob("*.png")}


@pytest.mark.slow
def test_the_site_builds_strictly_and_asks_no_other_host(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    pytest.importorskip("material", reason="needs the extra docs")
    done = python("-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path)
    assert (tmp_path / "search" / "search_index.js").is_file(), "search without a server"
    assert "anchor" not in done.stderr
    page = (tmp_path / "docs" / "api" / "fbo_flower.simulation.html").read_text(encoding="utf-8")
    assert 'id="fbo_flower.simulation.simulate"' in page
    assert not re.search(r'<(script|link)[^>]+(src|href)="https?:', page), "no request to another host"


PAPERS = catalogue.read_papers()


def field(entry, name):
    """Return a field of an entry without its protective braces."""
    (found,) = re.findall(rf"^  {name} = \{{(.*)\}},$", entry, re.MULTILINE)
    return re.sub(r"[{}]", "", found)


def test_every_algorithm_has_its_papers_and_every_paper_its_algorithm():
    assert set(catalogue.PAPERS) == set(BUILT_IN)
    assert {key for keys in catalogue.PAPERS.values() for key in keys} == set(PAPERS)


def test_all_algorithms_and_problems_are_listed_with_their_options(capsys):
    assert run(["problems"]) == 0
    out = capsys.readouterr().out
    for name, problem in PROBLEMS.items():
        assert all(word in out for word in (name, *problem.options()))
    assert run(["algorithms"]) == 0
    out = capsys.readouterr().out
    assert all(f"{name}  " in out for name in ALGORITHMS)
    assert out.count(" (default)") == 1
    assert run(["algorithms", "fts"]) == 0
    out = capsys.readouterr().out
    assert all(f" {option}" in out for option in ALGORITHMS["fts"].option_defaults())


def test_the_papers_are_those_of_the_summary():
    """A summary such as "(Dai et al. 2020)" names the first author and the year of a cited paper."""
    for record in BUILT_IN.values():
        for author, year in re.findall(r"\((\w+) et al\. (\d{4})", record.summary):
            assert f"{author.lower()}{year}" in catalogue.PAPERS[record.name]


def test_the_software_has_the_facts_of_the_citation_file():
    facts = dict(re.findall(r'^(\w+): "?(.*?)"?$', (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    entry = catalogue.software()
    assert field(entry, "title") == facts["title"]
    assert field(entry, "version") == facts["version"] == __version__
    assert field(entry, "license") == facts["license"]
    assert f'- name: "{field(entry, "author")}"' in (ROOT / "CITATION.cff").read_text()


def test_the_command_prints_the_software_and_the_papers(capsys):
    assert run(["algorithms", "--cite"]) == 0
    assert capsys.readouterr().out.strip() == catalogue.software()
    assert run(["algorithms", "fed-ei", "--cite"]) == 0
    found = re.findall(r"^@\w+\{([\w-]+),$", capsys.readouterr().out, re.MULTILINE)
    assert found == ["fbo-flower", *catalogue.PAPERS["fed-ei"]]
