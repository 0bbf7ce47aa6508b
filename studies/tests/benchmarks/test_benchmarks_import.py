"""Names that benchmarks and examples import exist."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from studies.benchmarks import libraries

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


def test_pyxab_makes_the_pulls_of_our_hct() -> None:
    pytest.importorskip("PyXAB")
    ours, theirs = (libraries.hct_regret(300, which, 0) for which in (True, False))
    assert ours == pytest.approx(theirs, abs=1e-6)
