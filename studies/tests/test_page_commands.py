"""The commands beside figures exist and accept their arguments. The experiments themselves are not run."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import re
import runpy
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fbo_flower.cli.main import run
from studies import attacks, commands  # noqa: F401  # adds its commands
from studies.papers import EXPERIMENTS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("studies/results/**/README.md")]
COMMAND = re.compile(
    r"python -m (studies(?:\.[a-z_]+)*(?: [^`#\n|]*)?)|studies/(benchmarks/[a-z_]+)\.py( [a-z-]+)?"
)
OWN_TESTS = ("tabulate", "data")  # tests/problems and test_commands.py run these


def listed() -> list[str]:
    """Return the commands of all pages without `python -m`."""
    found = set()
    for page in PAGES:
        for match in COMMAND.finditer(re.sub(r"\s*\\\n\s*", " ", page.read_text(encoding="utf-8"))):
            text = match[1] or f"studies.{match[2].replace('/', '.')}{match[3] or ''}"
            found.add(re.split(r" && |, then | --before$|\[--", text)[0].strip(" ;:,.)"))
    return sorted(command for command in found if "NAME" not in command)


class ParsedError(Exception):
    """The arguments were accepted."""


def accepted(self: argparse.ArgumentParser, arguments: Any = None) -> None:
    known, unknown = self.parse_known_args(arguments)
    assert not unknown, f"{known}: unknown {unknown}"
    raise ParsedError


def test_pages_have_commands() -> None:
    assert len(listed()) > 40
    assert {f"studies experiment {name}" for name in EXPERIMENTS} <= set(listed())


@pytest.mark.parametrize("command", listed())
def test_a_command_on_a_page_is_accepted(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, *arguments = shlex.split(command)
    if module != "studies":
        spec = importlib.util.find_spec(module)
        assert spec is not None, f"no module {module}"
        assert spec.origin is not None
        source = Path(spec.origin).read_text(encoding="utf-8")
        if "options(__doc__" in source or "argparse.ArgumentParser(" in source:
            monkeypatch.setattr(argparse.ArgumentParser, "parse_args", accepted)
            monkeypatch.setattr(sys, "argv", [module, *arguments])
            monkeypatch.delitem(sys.modules, module, raising=False)
            with pytest.raises(ParsedError):
                runpy.run_module(module, run_name="__main__")
        else:
            assert all(f'"{name}"' in source for name in arguments), f"{module}: an unknown argument"
    elif arguments and arguments[0] not in OWN_TESTS:
        ran: list[Any] = []
        for name, experiment in EXPERIMENTS.items():
            run_it = lambda *given: ran.append(given) or []  # noqa: E731
            monkeypatch.setitem(EXPERIMENTS, name, dataclasses.replace(experiment, run=run_it))
        find = attacks.find  # an unknown name is still refused
        stub = SimpleNamespace(run=lambda seed: ran.append(seed) or [])
        monkeypatch.setattr(attacks, "find", lambda name: find(name) and stub)
        assert run(arguments) == 0
        assert ran or len(arguments) == 1
