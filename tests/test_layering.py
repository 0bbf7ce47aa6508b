"""Imports point upward only: the table of the house, read from the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "fbo_flower"
OUTSIDE = sys.stdlib_module_names | {"__future__"}

# room -> what it may import: rooms of the house, then libraries. A file that is named here is a room of its
# own; a directory is a room with all its files. Whoever adds a room adds its line.
ROOMS: dict[str, tuple[str, str]] = {
    "__init__": ("parameters space", ""),
    "errors": ("", ""),
    "parameters": ("errors", "numpy"),
    "space_json": ("errors parameters", "numpy"),
    "space": ("errors parameters space_json", "numpy"),
    "files": ("errors", ""),
    "table_cells": ("errors", "numpy"),
    "table": ("errors files table_cells", "numpy"),
    "study_schema": ("errors table", "numpy"),
    "table_columns": ("errors frozen table table_cells", "numpy"),
    "study_files": ("errors files table table_columns study_schema", ""),
    "ranking": ("errors table study_schema", "numpy"),
    "study": ("errors table study_schema study_files ranking", "numpy"),
    "configspace": ("errors parameters space", "ConfigSpace"),
    "numerics": ("errors", "numpy scipy threadpoolctl"),
    "secure": ("errors", "numpy cryptography flwr"),
    "algorithms": ("errors parameters space numerics secure", "numpy"),
    "frozen": ("errors", "numpy"),
    "kept": ("errors files frozen", "numpy"),
    "models": ("errors", "numpy sklearn skops"),
    "wire": ("errors algorithms", "numpy"),
    "flower_records": ("errors algorithms wire", "numpy flwr"),
    "journal": ("errors algorithms frozen", "numpy"),
    "strategies": (
        "__init__ errors space numerics table study_schema study algorithms wire flower_records journal kept",
        "numpy flwr",
    ),
    "clients": (
        "__init__ errors files space numerics secure algorithms frozen wire flower_records journal models",
        "numpy flwr",
    ),
    "simulation": (
        "errors parameters space files table study_schema ranking study numerics algorithms wire strategies "
        "clients models",
        "numpy scipy flwr sklearn ray moocore matplotlib rich",
    ),
    "app_config": ("errors algorithms", ""),
    "client_app": ("errors app_config algorithms clients simulation", "flwr"),
    "server_app": ("errors app_config algorithms strategies simulation", "flwr"),
    "cli_progress": ("strategies", "flwr rich"),
    "cli_plan": ("errors files algorithms simulation kept", ""),
    "cli_simulate": (
        "errors table study algorithms simulation strategies cli_progress cli_plan",
        "numpy typer rich",
    ),
    "scaffold": ("__init__ errors", ""),
    "flower_cli": ("__init__ errors", "packaging"),
    "diagnosis": ("__init__", ""),
    "cli_new": ("errors scaffold", "typer"),
    "cli_attack": ("algorithms simulation", "typer"),
    "cli_ledger": ("errors algorithms journal simulation", "typer"),
    "cli_run": ("errors cli_simulate flower_cli", "typer"),
    "cli_doctor": ("__init__ errors cli_simulate diagnosis flower_cli", "flwr tomli_w typer rich"),
    "cli_tabulate": ("__init__ errors algorithms simulation cli_plan cli_progress cli_simulate", "typer"),
    "cli": (
        "__init__ errors study algorithms simulation cli_simulate cli_progress cli_new cli_run cli_doctor "
        "cli_tabulate cli_attack cli_ledger",
        "click typer rich",
    ),
}
# never at import time
LATE = {"ray", "moocore", "matplotlib", "sklearn", "skops", "scipy.stats", "ConfigSpace"}


def room_of(module: str) -> str:
    """Return the room of `fbo_flower.x.y`; the package itself is the room `__init__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(source: str, module: str) -> Iterator[tuple[str, int]]:
    """Every module that a source imports, wherever the statement stands, but not for types alone."""
    tree = ast.parse(source)
    typing_only = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: line {node.lineno}: relative import"
            assert node.module is not None
            for alias in node.names:
                # `from fbo_flower import wire` imports a module, `from fbo_flower import Float` a name
                submodule = f"{node.module}.{alias.name}"
                yield (submodule if is_module(submodule) else node.module), node.lineno


def is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return name.startswith("fbo_flower.") and (path.is_dir() or path.with_suffix(".py").is_file())


def violations(source: str, module: str) -> list[str]:
    """Imports of a module's source that the table does not allow."""
    room = room_of(module)
    rooms, libraries = (set(text.split()) for text in ROOMS[room])
    found = []
    for name, line in imports(source, module):
        top = name.split(".")[0]
        if top == "fbo_flower":
            if room_of(name) not in rooms | {room}:
                found.append(f"{module}:{line}: {room} may not import {name}")
        elif top not in OUTSIDE and top not in libraries:
            found.append(f"{module}:{line}: {room} may not import {name}")
    return found


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def test_every_module_belongs_to_a_room() -> None:
    assert {room_of(module) for module, _ in modules()} <= set(ROOMS)


def test_rooms_can_be_ordered_so_that_imports_point_upward_only() -> None:
    allowed = {room: set(rooms.split()) & set(ROOMS) for room, (rooms, _) in ROOMS.items()}
    while allowed:
        bottom = {room for room, below in allowed.items() if not below & set(allowed)}
        assert bottom, f"a circle among {', '.join(allowed)}"
        allowed = {room: below for room, below in allowed.items() if room not in bottom}


@pytest.mark.parametrize(("module", "path"), [pytest.param(m, p, id=m) for m, p in modules()])
def test_a_module_imports_only_what_its_room_may(module: str, path: Path) -> None:
    assert violations(path.read_text(encoding="utf-8"), module) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fbo_flower.numerics.gp", "from fbo_flower.algorithms.records import Task"),
        ("fbo_flower.numerics.gp", "from fbo_flower import wire"),
        ("fbo_flower.numerics.gp", "import flwr.app"),
        ("fbo_flower.algorithms.fts", "def f():\n    import fbo_flower.strategies.base"),
        ("fbo_flower.clients.agent", "from fbo_flower.strategies import FTS"),
        ("fbo_flower.clients.agent", "import sklearn.svm"),
        ("fbo_flower.strategies.base", "from fbo_flower import clients"),
        ("fbo_flower.simulation.runner", "from fbo_flower.cli import main"),
        ("fbo_flower.errors", "import numpy"),
        ("fbo_flower.space", "from fbo_flower import SearchSpace"),
    ],
)
def test_an_import_that_points_down_is_found(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


def test_imports_for_types_alone_are_free() -> None:
    source = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fbo_flower.strategies import FTS\n"
    )
    assert violations(source, "fbo_flower.clients.agent") == []


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("fbo_flower", LATE | {"scipy", "flwr", "rich"}),
        ("fbo_flower.clients", LATE | {"pandas", "scipy", "sqlite3"}),
        ("fbo_flower.strategies", LATE | {"pandas"}),
        ("fbo_flower.client_app", LATE | {"pandas"}),
        ("fbo_flower.simulation", LATE | {"pandas"}),
        ("fbo_flower.cli", LATE | {"pandas", "scipy", "flwr"}),
    ],
)
def test_importing_a_side_stays_light(module: str, heavy: set[str]) -> None:
    assert loaded_by(f"import {module}") & heavy == set()


def test_a_device_imports_no_algorithm_before_it_is_asked_for_one() -> None:
    loaded = loaded_by("import fbo_flower.clients")
    assert "fbo_flower.algorithms.fts" not in loaded
    assert "fbo_flower.algorithms.co_kg" not in loaded
    assert "fbo_flower.algorithms.fts" in loaded_by("from fbo_flower.algorithms import FTS")


def test_the_first_tasks_of_an_agent_stay_light() -> None:
    code = (
        "from fbo_flower import Float, SearchSpace\n"
        "from fbo_flower.clients import client_app\n"
        "from fbo_flower.simulation.grids import InProcessGrid\n"
        "from fbo_flower.strategies import FTS\n"
        "app = client_app(lambda config, context: config['x'], SearchSpace({'x': Float(0, 1)}), seed=1)\n"
        "FTS(num_agents=2, seed=1).start(InProcessGrid(app, 2), 3)"
    )
    loaded = loaded_by(code)
    assert loaded & (LATE | {"pandas", "sqlite3"}) == set()
    assert "scipy.linalg" in loaded


def test_a_heavy_import_is_found() -> None:
    assert "sklearn" in loaded_by("import fbo_flower.clients, sklearn")


def loaded_by(code: str) -> set[str]:
    """Names of the modules that a fresh interpreter holds after running `code`."""
    names = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=PACKAGE.parent,
    ).stdout.split()
    return set(names)
