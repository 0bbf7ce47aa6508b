"""Studies use public names of the package only, and every name that benchmarks and examples import exists."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
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
    "fbo_flower.federated.proposals", "fbo_flower.federated.records", "fbo_flower.federated.schedules",
    "fbo_flower.simulation.ray_grid", "fbo_flower.strategies.exchange",
}  # fmt: skip


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of what a source imports of the package and of the studies."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((a.name, "") for a in node.names if a.name.split(".")[0] == "fbo_flower")
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in ("fbo_flower", "studies"):
            yield from ((str(node.module), alias.name) for alias in node.names)


def public(module: str, name: str, allowed: set[str]) -> bool:
    if any(part.startswith("_") for part in (*module.split("."), name)):
        return False
    room, whole = module.split(".")[1] if "." in module else "", f"{module}.{name}"
    if module == "fbo_flower" and not name:
        return True
    if room in OPEN or {module, whole} & allowed or (not room and name in OPEN) or whole in ROOMS:
        return True
    return module in ROOMS and name in importlib.import_module(module).__all__


def hidden_names(source: str, allowed: set[str]) -> list[str]:
    pairs = [(m, n) for m, n in imported(source) if m.split(".")[0] == "fbo_flower"]
    return [f"{m}.{n}" for m, n in pairs if not public(m, n, allowed)]


def test_studies_import_public_names_only() -> None:
    files = [path for path in STUDIES.rglob("*.py") if "tests" not in path.relative_to(STUDIES).parts]
    assert len(files) > 40
    allowed = {path: MEASURED if path.parent.name == "benchmarks" else set() for path in files}
    found = {str(path): hidden_names(path.read_text("utf-8"), known) for path, known in allowed.items()}
    assert {path: names for path, names in found.items() if names} == {}, "a fault of the public interface"


@pytest.mark.parametrize("source", ["from fbo_flower.clients.agent import TuningAgent",
    "from fbo_flower.numerics.seeding import _derive", "import fbo_flower.strategies.base"])  # fmt: skip
def test_a_name_that_is_not_public_is_found(source: str) -> None:
    assert len(hidden_names(source, set())) == 1


def test_names_that_benchmarks_and_examples_import_exist() -> None:
    files = [*STUDIES.glob("benchmarks/*.py"), *STUDIES.parent.glob("examples/**/*.py")]
    missing = [
        f"{path}: {module}.{name}"
        for path in files
        for module, name in imported(path.read_text(encoding="utf-8"))
        if name
        and not hasattr(importlib.import_module(module), name)
        and importlib.util.find_spec(f"{module}.{name}") is None
    ]
    assert missing == []


def test_pyxab_makes_the_pulls_of_our_hct() -> None:
    pytest.importorskip("PyXAB")
    from studies.benchmarks.speed import hct_regret

    ours, theirs = (hct_regret(300, which, 0) for which in (True, False))
    assert ours == pytest.approx(theirs, abs=1e-6)
