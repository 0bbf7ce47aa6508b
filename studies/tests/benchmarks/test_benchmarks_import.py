"""Names that benchmarks and examples import exist; recorded steps can be repeated."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from studies.benchmarks import replay

ROOT = Path(__file__).parents[3]
FILES = sorted([*ROOT.glob("studies/benchmarks/*.py"), *ROOT.glob("examples/**/*.py")])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imported_names_exist(path: Path) -> None:
    missing = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in ("fbo_flower", "studies"):
            module = importlib.import_module(str(node.module))
            missing += [
                f"{node.module}.{alias.name}"
                for alias in node.names
                if not hasattr(module, alias.name)
                and importlib.util.find_spec(f"{node.module}.{alias.name}") is None
            ]
    assert missing == []


# -- the steps that `make bench` repeats are recorded from real runs; no other test r ------------


@pytest.mark.parametrize("algorithm", ["random", "fts", "pf-pne"])
def test_recorded_steps_of_agents_and_server_can_be_repeated(algorithm: str) -> None:
    found = replay.scene(algorithm, 3, 2, 4)
    replies = [step() for step in found.agent_steps()]
    assert len(replies) == 4 * replay.NUM_STEPS
    assert all(reply.has_content() for reply in replies)
    states = [step() for step in found.server_steps()]
    assert len(states) == replay.NUM_STEPS
