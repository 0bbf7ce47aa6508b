"""Studies use public names of the package only: what they cannot reach is a fault of the public interface."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[1]
# rooms whose names are those of `__all__` ...
ROOMS = {
    "fbo_flower", "fbo_flower.cli.main", "fbo_flower.clients", "fbo_flower.federated", "fbo_flower.models",
    "fbo_flower.simulation", "fbo_flower.simulation.partitioners.dirichlet",
    "fbo_flower.simulation.problems", "fbo_flower.space", "fbo_flower.storage",
    "fbo_flower.strategies", "fbo_flower.study", "fbo_flower.trackers", "fbo_flower.wire",
}  # fmt: skip
# ... and those for people who write algorithms: every name without an underscore, of every module
OPEN = ("errors", "algorithms", "numerics", "reports", "secure")
# what benchmarks take out of the middle of a run in order to measure it
MEASURED = {
    "fbo_flower.clients.pruning", "fbo_flower.federated.effects", "fbo_flower.federated.proposals",
    "fbo_flower.federated.records", "fbo_flower.federated.replies", "fbo_flower.federated.schedules",
    "fbo_flower.federated.step",
    "fbo_flower.simulation.engines", "fbo_flower.simulation.agents",
    "fbo_flower.simulation.ray_grid", "fbo_flower.strategies.exchange",
}  # fmt: skip
FILES = [path for path in sorted(STUDIES.rglob("*.py")) if "tests" not in path.relative_to(STUDIES).parts]


def hidden_names(source: str, allowed: set[str]) -> list[str]:
    """Names of the package that a source imports and that are not public."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            pairs = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            pairs = [(str(node.module), alias.name) for alias in node.names]
        else:
            continue
        found += [
            f"{m}.{n}" for m, n in pairs if m.split(".")[0] == "fbo_flower" and not public(m, n, allowed)
        ]
    return found


def public(module: str, name: str, allowed: set[str]) -> bool:
    if any(part.startswith("_") for part in (*module.split("."), name)):
        return False
    room = module.split(".")[1] if "." in module else ""
    if module == "fbo_flower" and not name:
        return True
    if room in OPEN or module in allowed or (not room and name in OPEN) or f"{module}.{name}" in ROOMS:
        return True
    if f"{module}.{name}" in allowed:
        return True
    return module in ROOMS and name in importlib.import_module(module).__all__


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(STUDIES)))
def test_studies_import_public_names_only(path: Path) -> None:
    allowed = MEASURED if path.parent.name == "benchmarks" else set()
    assert hidden_names(path.read_text(encoding="utf-8"), allowed) == []


@pytest.mark.parametrize(
    "source",
    [
        "from fbo_flower.clients.agent import TuningAgent",
        "from fbo_flower.numerics.seeding import _derive",
        "from fbo_flower.simulation import runner",
        "import fbo_flower.strategies.base",
    ],
)
def test_a_name_that_is_not_public_is_found(source: str) -> None:
    assert len(hidden_names(source, set())) == 1
