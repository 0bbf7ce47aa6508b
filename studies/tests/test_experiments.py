"""`python -m studies`: every experiment in its small version, the commands of pages, and its command line."""

from __future__ import annotations

import csv
import logging
import re
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

from fbo_flower.algorithms import ALGORITHMS, AlgorithmRecord, register, registry
from fbo_flower.algorithms.registry import find
from fbo_flower.cli.main import run
from fbo_flower.errors import ConfigError
from studies import attacks, commands  # noqa: F401  # adds its commands
from studies import experiment as harness
from studies.attacks import find as find_attack
from studies.benchmarks.speed import app
from studies.experiments import EXPERIMENTS, HOMES
from studies.peers.record import RECORDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("studies/results/**/README.md")]
COMMAND = re.compile(r"python -m\s+(studies(?:\.[a-z_]+)*(?: [^`#\n|]*)?)")
SLOW = {  # `--quick` takes more than ten seconds
    "asynchrony", "co-kg", "families", "federation", "fed-ei", "first-study", "fts-landmine",
    "fts-synthetic", "outputs", "peers", "pne", "rfms", "robustness",
}  # fmt: skip
BENCHMARKS = {  # command of a page -> arguments of its small version
    "cohort-rounds": "--agents 20 --rounds 1 --repeats 1 --only no-op --only fts",
    "libraries": "--quick",
    "secure-sums": "--quick",
    "trial-path": "--only random",
    "whole-runs": "--quick --limit 60",
}
SPEED: Any = get_command(app).commands  # type: ignore[attr-defined]  # of a group
LISTS: dict[str, Any] = {"experiment": EXPERIMENTS, "attack": attacks.ATTACKS}
SMALL = ["simulate", "--agents", "2", "--rounds", "2", "--engine", "inline", "--algorithm", "random"]


def listed() -> list[str]:
    """Return the commands of all pages without `python -m`."""
    found = set()
    for page in PAGES:
        for match in COMMAND.finditer(re.sub(r"\s*\\\n\s*", " ", page.read_text(encoding="utf-8"))):
            found.add(re.split(r" && |, then | --before$|\[--", match[1])[0].strip(" ;:,.)"))
    return sorted(command for command in found if "NAME" not in command)


def test_pages_have_commands_and_the_page_of_results_lists_all_experiments() -> None:
    assert len(listed()) > 20
    page = (ROOT / "docs" / "results" / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == set(EXPERIMENTS)
    speed = {command.split()[1] for command in listed() if command.startswith("studies.benchmarks.speed")}
    assert speed < set(BENCHMARKS) == set(SPEED)


def test_an_experiment_is_a_declaration_of_at_most_150_lines() -> None:
    files = {home: ROOT / "studies" / f"{home.replace('.', '/')}.py" for home in HOMES.values()}
    sizes = {home: len(file.read_text(encoding="utf-8").splitlines()) for home, file in files.items()}
    assert {home: size for home, size in sizes.items() if size > 150} == {}


@pytest.mark.parametrize("command", listed())
def test_a_command_on_a_page_is_accepted(command: str) -> None:
    module, kind, *rest = shlex.split(command)
    if module == "studies":
        assert not rest or kind not in LISTS or rest[0] in LISTS[kind]
        assert run([kind, "--help"]) == 0
    else:
        assert module == "studies.benchmarks.speed"
        SPEED[kind].make_context(kind, rest)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in EXPERIMENTS]
)
def test_an_experiment_runs_in_small_and_draws_what_it_wrote(name: str, tmp_path: Path) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    try:
        files = EXPERIMENTS[name].run(name, tmp_path, True, 1)
    except ConfigError as error:
        if "FBO_FLOWER_DATA" in str(error):
            pytest.skip("needs data that cannot be distributed")
        raise
    text, figures, *pictures = files
    assert (text.name, figures.name) == ("results.md", "results.csv")
    assert all(picture.read_bytes()[:4] == b"\x89PNG" for picture in pictures)
    rows = list(csv.DictReader(figures.open(encoding="utf-8")))
    assert [*rows[0]] == [column.name for column in fields(harness.Line)]
    for part in EXPERIMENTS[name].parts(True, tmp_path):
        mine = [row for row in rows if row["part"] == part.title]
        for problem in part.problems:
            told = {row["row"] for row in mine if row["problem"] == problem and row["mean"]}
            assert told == set(part.rows_of(problem)), f"{part.title}: rows with figures on {problem}"
        assert (tmp_path / part.picture in pictures) == bool(part.drawn), part.title
        assert f"# {part.title}\n" in text.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_small_version_of_a_benchmark_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    SPEED[name].main(BENCHMARKS[name].split(), standalone_mode=False)
    assert len(capsys.readouterr().out.splitlines()) > 2


# -- the command line ------------------------------------------------------------------------------


def test_help_and_lists_name_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"], "python -m studies") == 0
    shown = capsys.readouterr().out
    assert "Usage: python -m studies" in shown
    for command in ("experiment", "attack", "tabulate", "data", "simulate", "report"):
        assert f" {command} " in shown
    assert run(["experiment"]) == run(["problems"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{name}  {experiment.summary}" in shown for name, experiment in EXPERIMENTS.items())
    assert {record.name for record in RECORDS} <= set(ALGORITHMS)


def test_an_attack_of_another_package_is_found_by_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_LOCAL", {})
    texts = dict.fromkeys(("summary", "server_sends", "agent_sends", "inference"), "")
    register(AlgorithmRecord(name="attacked", home="a:A", attack=f"{__name__}:attack", **texts))
    assert find("attacked").attack_name == "attacked"
    assert list(find_attack("attacked").run(3)) == ["attacked with seed 3"]


def attack(seed):
    yield f"attacked with seed {seed}"


def test_without_matplotlib_an_experiment_says_what_to_install_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(["experiment", "families", "--quick", "--out", str(tmp_path / "x")]) == 2
    assert "pip install 'fbo-flower[simulation]'" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_the_landmine_file_is_made_from_the_users_own_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scipy.io import savemat

    monkeypatch.chdir(tmp_path)
    feature, label = np.empty(29, dtype=object), np.empty(29, dtype=object)
    for k, x in enumerate(np.random.default_rng(0).random((29, 8, 9))):
        feature[k], label[k] = x, np.array([[0], [1]] * 4)
    savemat("own.mat", {"feature": feature, "label": label})
    assert run(["data", "landmine", "own.mat", "--out", "made"]) == 0
    monkeypatch.setenv("FBO_FLOWER_DATA", "made")
    assert run([*SMALL, "--problem", "landmine-svm", "-q"]) == 0
    assert run(["data", "landmine", "nowhere.mat"]) == 2
