"""`fbo-flower algorithms` and `problems`: what they list, and that every algorithm has its papers."""

import re

import pytest
from processes import ROOT

from fbo_flower import __version__
from fbo_flower.algorithms import ALGORITHMS
from fbo_flower.algorithms.algorithm_record import AlgorithmRecord
from fbo_flower.algorithms.registry import BUILT_IN
from fbo_flower.cli import catalogue
from fbo_flower.cli.main import run
from fbo_flower.simulation import PROBLEMS

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
    for option in ALGORITHMS["fts"].option_defaults():
        assert f"\n    {option} : " in out or f", {option}" in out


@pytest.mark.parametrize("entry", PAPERS.values(), ids=PAPERS)
def test_an_entry_is_valid_bibtex(entry):
    kind, *fields, end = entry.splitlines()
    assert end == "}"
    assert all(re.fullmatch(r"  [a-z]+ = \{.+\},", line) for line in fields)
    assert entry.count("{") == entry.count("}")
    named = re.fullmatch(r"@(article|inproceedings|misc)\{([a-z]+\d{4}),", kind).group(2)
    assert named == field(entry, "author").partition(",")[0].lower() + field(entry, "year")
    assert field(entry, "title")


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


def test_an_algorithm_of_another_package_is_left_to_its_authors(capsys, monkeypatch):
    said = dict.fromkeys(("summary", "server_sends", "agent_sends", "inference"), "s")
    record = AlgorithmRecord(name="gossip", home="own_algorithm.gossip:Gossip", meanings={}, **said)
    monkeypatch.setitem(BUILT_IN, "gossip", record)
    assert run(["algorithms", "gossip", "--cite"]) == 0
    printed = capsys.readouterr()
    assert "the package own_algorithm" in printed.err
    assert printed.out.strip() == catalogue.software()
