"""`fbo-flower cite`: every algorithm has its papers, and they agree with the rest of the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fbo_flower import __version__
from fbo_flower.algorithms.algorithm_record import AlgorithmRecord
from fbo_flower.algorithms.registry import BUILT_IN
from fbo_flower.cli import cite
from fbo_flower.cli.main import run

ROOT = Path(__file__).parents[2]
PAPERS = cite.read_papers()
# papers whose title is on the page of their algorithm; the other pages name author and year
QUOTED = ("dai2020", "dai2021", "feurer2018", "wistuba2018", "li2024", "zhan2025", "sun2019")


def field(entry: str, name: str) -> str:
    """Return a field of an entry without its protective braces."""
    (found,) = re.findall(rf"^  {name} = \{{(.*)\}},$", entry, re.MULTILINE)
    return re.sub(r"[{}]", "", found)


def test_every_algorithm_has_its_papers_and_every_paper_its_algorithm() -> None:
    assert set(cite.PAPERS) == set(BUILT_IN)
    assert {key for keys in cite.PAPERS.values() for key in keys} == set(PAPERS)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_command_prints_the_software_and_the_papers(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cite", name]) == 0
    printed = capsys.readouterr().out
    assert re.findall(r"^@\w+\{([\w-]+),$", printed, re.MULTILINE) == ["fbo-flower", *cite.PAPERS[name]]


@pytest.mark.parametrize("entry", PAPERS.values(), ids=PAPERS)
def test_an_entry_is_valid_bibtex(entry: str) -> None:
    kind, *fields, end = entry.splitlines()
    assert re.fullmatch(r"@(article|inproceedings|misc)\{[a-z]+\d{4},", kind)
    assert end == "}"
    assert all(re.fullmatch(r"  [a-z]+ = \{.+\},", line) for line in fields)
    assert entry.count("{") == entry.count("}")
    first = field(entry, "author").partition(",")[0].lower()
    assert kind.partition("{")[2] == f"{first}{field(entry, 'year')},", "the key is author and year"
    assert field(entry, "title")
    venue = {"article": "journal", "inproceedings": "booktitle"}.get(kind[1:].partition("{")[0])
    assert venue is None or field(entry, venue)


@pytest.mark.parametrize("record", BUILT_IN.values(), ids=BUILT_IN)
def test_the_papers_are_those_of_the_summary(record: AlgorithmRecord) -> None:
    """A summary such as "(Dai et al. 2020)" names the first author and the year of a cited paper."""
    cited = [PAPERS[key] for key in cite.PAPERS[record.name]]
    for author, year in re.findall(r"\((\w+) et al\. (\d{4})", record.summary):
        assert (author, year) in [
            (field(entry, "author").partition(",")[0], field(entry, "year")) for entry in cited
        ]


@pytest.mark.parametrize("key", QUOTED)
def test_the_pages_name_the_same_title(key: str) -> None:
    pages = " ".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "papers").glob("*.md"))
    assert field(PAPERS[key], "title").lower() in " ".join(pages.split()).lower()


def test_the_software_has_the_facts_of_the_citation_file() -> None:
    facts = dict(re.findall(r'^(\w+): "?(.*?)"?$', (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    entry = cite.software()
    assert field(entry, "title") == facts["title"]
    assert field(entry, "version") == facts["version"] == __version__
    assert field(entry, "license") == facts["license"]
    assert f'- name: "{field(entry, "author")}"' in (ROOT / "CITATION.cff").read_text()


def test_the_software_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cite"]) == 0
    assert capsys.readouterr().out.strip() == cite.software()


def test_an_unknown_algorithm_is_an_error_that_suggests_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cite", "ftss"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: algorithm: expected one of random, ts, fts")
    assert "did you mean fts?" in error


def test_an_algorithm_of_another_package_is_left_to_its_authors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = AlgorithmRecord(
        name="gossip",
        home="own_algorithm.gossip:Gossip",
        summary="s",
        server_sends="s",
        agent_sends="s",
        meanings={},
        inference="s",
    )
    monkeypatch.setitem(BUILT_IN, "gossip", record)
    assert run(["cite", "gossip"]) == 0
    printed = capsys.readouterr()
    assert "the package own_algorithm" in printed.err
    assert printed.out.strip() == cite.software()
