"""The documentation site: its pages, its navigation and, where mkdocs is installed, the strict build.

mkdocs is in the extra `docs`; CI installs it and runs `make docs` too.
"""

import re
from pathlib import Path

import pytest
import site_pages
from processes import ROOT, python

from fbo_flower.algorithms.registry import BUILT_IN, find


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


def test_a_page_of_results_shows_the_tables_behind_it(pages):
    for listed in (ROOT / "studies" / "results").glob("*/README.md"):
        page = pages / "docs" / "results" / f"{listed.parent.name}.md"
        if page.exists():
            text = page.read_text(encoding="utf-8")
            assert text.count("<details>") == len(list(listed.parent.glob("*.csv"))), page.name
    text = (pages / "docs" / "results" / "fts.md").read_text(encoding="utf-8")
    assert "<td>ts</td><td>0.4875 ± 0.0720</td>" in text
    assert "[tables](fts.md#tables)" in text


def test_every_picture_is_shown_on_a_page():
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    pages = "".join(page.read_text(encoding="utf-8") for page in files)
    shown = {Path(link).name for link in re.findall(r"!\[[^\]]+\]\(([^)\s]+\.png)\)", pages)}
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
