"""The commands beside figures exist, accept their arguments, and run in a small size."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from fbo_flower.cli.main import run
from fbo_flower.errors import ConfigError
from studies import attacks, commands  # noqa: F401  # adds its commands
from studies.experiments import EXPERIMENTS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("studies/results/**/README.md")]
COMMAND = re.compile(r"python -m\s+(studies(?:\.[a-z_]+)*(?: [^`#\n|]*)?)")
SLOW = {  # `--quick` takes more than ten seconds
    "co-kg", "exchanges", "families", "federation", "fed-ei", "first-study", "fts-landmine", "fts-messages",
    "fts-options", "fts-related", "fts-synthetic", "outputs", "peers", "pne", "pne-budgets", "pruning",
    "rfms", "robustness",
}  # fmt: skip
BENCHMARKS = {  # command of a page -> arguments of its small version
    "cohort_rounds": "--agents 20 --rounds 1 --repeats 1 --only no-op fts",
    "libraries": "--quick",
    "secure_sums": "--quick",
    "trial_path": "random",
    "whole_runs": "--quick --no-libraries --limit 20",
}


def listed() -> list[str]:
    """Return the commands of all pages without `python -m`."""
    found = set()
    for page in PAGES:
        for match in COMMAND.finditer(re.sub(r"\s*\\\n\s*", " ", page.read_text(encoding="utf-8"))):
            found.add(re.split(r" && |, then | --before$|\[--", match[1])[0].strip(" ;:,.)"))
    return sorted(command for command in found if "NAME" not in command)


def test_pages_have_commands_and_the_page_of_results_lists_all_experiments() -> None:
    assert len(listed()) > 30
    page = (ROOT / "docs" / "results" / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == set(EXPERIMENTS)
    modules = {command.split()[0].rpartition(".")[2] for command in listed() if ".benchmarks." in command}
    assert modules <= set(BENCHMARKS)


class ParsedError(Exception):
    """The arguments were accepted."""


def accepted(self: argparse.ArgumentParser, arguments: Any = None) -> None:
    known, unknown = self.parse_known_args(arguments)
    assert not unknown, f"{known}: unknown {unknown}"
    raise ParsedError


@pytest.mark.parametrize("command", listed())
def test_a_command_on_a_page_is_accepted(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, *arguments = shlex.split(command)
    if module == "studies":
        kind, *rest = arguments
        if kind in {"experiment", "attack"} and rest:
            assert rest[0] in (EXPERIMENTS if kind == "experiment" else attacks.ATTACKS)
        assert run([kind, "--help"]) == 0
        return
    assert importlib.util.find_spec(module) is not None, f"no module {module}"
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", accepted)
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ParsedError):
        runpy.run_module(module, run_name="__main__")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in EXPERIMENTS]
)
def test_the_small_version_of_an_experiment_writes_its_tables_and_pictures(name: str, tmp_path: Path) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    try:
        files = EXPERIMENTS[name].run(name, tmp_path, True, 1)
    except ConfigError as error:
        if "FBO_FLOWER_DATA" in str(error):
            pytest.skip("needs data that cannot be distributed")
        raise
    text, figures, *pictures = files
    assert (text.name, figures.name) == ("results.md", "results.csv")
    assert len(figures.read_text(encoding="utf-8").splitlines()) > 2
    assert all(picture.read_bytes()[:4] == b"\x89PNG" for picture in pictures)


@pytest.mark.slow
@pytest.mark.parametrize("module", BENCHMARKS)
def test_the_small_version_of_a_benchmark_runs(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["--out", str(tmp_path)] if module == "whole_runs" else []
    monkeypatch.setattr(sys, "argv", [module, *BENCHMARKS[module].split(), *more])
    monkeypatch.delitem(sys.modules, f"studies.benchmarks.{module}", raising=False)
    runpy.run_module(f"studies.benchmarks.{module}", run_name="__main__")
