"""Imports point upward only: the table of the house, read from the source."""

import ast
import re
import sys
import textwrap
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from processes import python

PACKAGE = Path(__file__).parents[1] / "fbo_flower"
PUBLIC = Path(__file__).parent / "golden" / "public_names.txt"
OUTSIDE = sys.stdlib_module_names | {"__future__"}

# room -> what it may import: rooms, then libraries. A folder is a room with all that is in it.
ROOMS: dict[str, tuple[str, str]] = {
    "__init__": ("lazy version", ""),  # its names are imported when they are used
    "errors": ("", ""),
    "lazy": ("errors", ""),
    "version": ("", ""),
    "numerics": ("errors", "numpy scipy threadpoolctl dp_accounting moocore"),
    "space": ("errors lazy numerics", "numpy ConfigSpace optuna"),
    "secure": ("errors space numerics algorithms", "numpy cryptography flwr"),
    "models": ("errors space", "numpy sklearn skops onnx onnxruntime xgboost lightgbm"),
    "algorithms": ("errors space numerics", "numpy greenlet"),
    "wire": ("errors algorithms", "numpy flwr"),
    "storage": ("errors algorithms", "numpy"),
    "study": ("errors lazy space numerics storage", "numpy optuna"),
    "trackers": ("errors lazy space storage study", "numpy optuna tensorboard mlflow wandb"),
    "reports": (
        "errors lazy space numerics algorithms storage study",
        "numpy jinja2 markdown_it markupsafe matplotlib plotly rich sklearn",
    ),
    "strategies": (
        "version errors space numerics secure algorithms wire storage study trackers",
        "numpy flwr",
    ),
    "federated": (
        "errors lazy space numerics algorithms storage study trackers strategies",
        "numpy scipy flwr",
    ),
    "clients": (
        "version errors space numerics secure models algorithms wire storage",
        "numpy flwr cloudpickle optuna",
    ),
    "simulation": (
        "errors lazy space numerics algorithms storage study trackers reports strategies clients",
        "numpy scipy flwr sklearn ray",
    ),
    "app": ("errors space algorithms strategies clients simulation reports storage study trackers", "flwr"),
    "cli": (
        "version errors lazy space algorithms storage study trackers reports strategies clients simulation",
        "numpy flwr click typer rich packaging tomli_w",
    ),
}
# the only imports that point down, when a method is called: `Study.plot` and `Study.report` draw. The
# drawings know the class for types alone, so that there is no circle
DOWNWARD = {("fbo_flower.study.study", "fbo_flower.reports")}
# within `numerics`: group -> the groups that it may import; files beside them are the ground
NUMERICS: dict[str, str] = {
    "surrogates": "",
    "optim": "surrogates",
    "acquisition": "surrogates optim",
    "aggregation": "surrogates optim",
    "bandits": "aggregation optim",
}
# never at import time
LATE = {
    "onnx", "onnxruntime", "xgboost", "lightgbm", "ray", "moocore", "matplotlib", "sklearn", "skops",
    "scipy.stats", "ConfigSpace", "optuna", "tensorboard", "mlflow", "wandb", "dp_accounting", "plotly",
}  # fmt: skip


FAMILIES = {path.name for path in (PACKAGE / "algorithms").iterdir() if (path / "__init__.py").is_file()}
# what belongs to one family, outside its folder: the sites of RFMS, and proposals by expected improvement
BELONG = {
    "fbo_flower.clients.ei_sampler": "ei",
    "fbo_flower.clients.model_site": "rfms",
    "fbo_flower.clients.site_agent": "rfms",
    "fbo_flower.reports.selection": "rfms",
    "fbo_flower.federated.proposals": "ei",
}


def room_of(module):
    """Return the room of `fbo_flower.x.y`; the package itself is the room `__init__`."""
    return [*module.split("."), "__init__"][1]


def part_of(module, room, parts):
    """Return the part of a room in which a module is; "" for files beside the parts."""
    found = [*module.split("."), "", ""]
    return found[2] if found[1] == room and found[2] in parts else ""


@cache
def imports(source):
    """Every module that a source imports, wherever the statement stands, but not for types alone."""
    tree = ast.parse(source)
    typing_only = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and id(node) not in typing_only:
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and id(node) not in typing_only:
            assert node.level == 0, f"line {node.lineno}: relative import"
            # `from fbo_flower import wire` imports a module, `from fbo_flower import Float` a name
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [submodule if is_module(submodule) else node.module for submodule in inner]
    return found


@cache
def is_module(name):
    path = PACKAGE.parent.joinpath(*name.split("."))
    return name.startswith("fbo_flower.") and (path.is_dir() or path.with_suffix(".py").is_file())


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path.read_text(encoding="utf-8")


def is_allowed(module, name):
    """Return whether the tables let a module import another one."""
    room = room_of(module)
    rooms, libraries = (set(text.split()) for text in ROOMS[room])
    if name.split(".")[0] != "fbo_flower":
        return name.split(".")[0] in OUTSIDE | libraries
    group, other = (part_of(each, "numerics", NUMERICS) for each in (module, name))
    if room == "numerics" and other not in {"", group, *NUMERICS.get(group, "").split()}:
        return False
    own, family = (part_of(each, "algorithms", FAMILIES) for each in (module, name))
    if family and not own and BELONG.get(module) != family:
        return False  # the core imports no family
    downward = any((module, name[: len(to)]) == (own, to) for own, to in DOWNWARD)
    return room_of(name) in rooms | {room} or downward


def test_a_module_imports_only_what_its_room_may():
    assert [(m, name) for m, text in modules() for name in imports(text) if not is_allowed(m, name)] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fbo_flower.numerics.surrogates.gp", "from fbo_flower import wire"),
        ("fbo_flower.numerics.surrogates.gp", "import fbo_flower.numerics.bandits.hct"),
        ("fbo_flower.algorithms.requests", "def f():\n    import fbo_flower.algorithms.fts.fts"),
        ("fbo_flower.clients.agent", "from fbo_flower.strategies import FTS"),
        ("fbo_flower.clients.agent", "import sklearn.svm"),
        ("fbo_flower.space", "from fbo_flower import SearchSpace"),
    ],
)
def test_an_import_that_points_down_is_found(module, source):
    assert not any(is_allowed(module, name) for name in imports(source))
    hidden = f"import typing\nif typing.TYPE_CHECKING:\n    {source.splitlines()[-1]}"
    assert imports(hidden) == ["typing"]


def test_rooms_and_modules_can_be_ordered_so_that_imports_point_upward_only():
    graph = {module: set(imports(text)) - {module} for module, text in modules()}
    assert {room_of(module) for module in graph} <= set(ROOMS)
    graph = {module: found & set(graph) for module, found in graph.items()}
    for edges in (graph, {room: rooms.split() for room, (rooms, _) in ROOMS.items()}):
        assert list(TopologicalSorter(edges).static_order()), "a circle is a CycleError"
    found = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert found == {"__init__.py", "errors.py", "lazy.py", "py.typed", "version.py"}


STUDY = """
from fbo_flower import Float, SearchSpace
from fbo_flower.clients import client_app
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import FTS
app = client_app(lambda config, context: config["x"], SearchSpace({"x": Float(0, 1)}), seed=1)
FTS(num_agents=2, seed=1).start(InProcessGrid(app, 2), num_rounds=3)
"""


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import fbo_flower", LATE | {"scipy", "flwr", "rich"}),
        ("import fbo_flower.app.client_app", LATE | {"scipy", "sqlite3", "fbo_flower.algorithms.fts.fts"}),
        ("import fbo_flower.simulation.runner, fbo_flower.simulation.problems.digits", LATE),
        ("import fbo_flower.cli.main", LATE | {"scipy", "flwr"}),
        (STUDY, LATE | {"sqlite3"}),
    ],
    ids=["package", "device", "simulation", "command", "first tasks"],
)
def test_importing_a_side_and_the_first_tasks_of_an_agent_stay_light(code, heavy):
    loaded = set(python("-c", f"{code}\nimport sys\nprint(*sys.modules)").stdout.split())
    assert loaded & (heavy | {"pandas"}) == set()
    assert "fbo_flower" in loaded


def test_a_name_of_a_class_or_of_a_test_file_has_one_meaning():
    classes = [
        node.name for _, text in modules() for node in ast.parse(text).body if isinstance(node, ast.ClassDef)
    ]
    files = [
        path.name for path in Path(__file__).parent.rglob("test_*.py")
    ]  # pytest leaves the second one out
    assert [name for name, number in Counter(classes + files).items() if number > 1] == []


def public_names():
    """Lines that say, for each room, what other rooms of the package import from it."""
    names: dict[str, set[str]] = {}
    for module, text in modules():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fbo_flower."):
                room = room_of(node.module or "")
                if room != room_of(module):
                    names.setdefault(room, set()).update(alias.name for alias in node.names)
    return "".join(
        textwrap.fill(f"{room}: {' '.join(sorted(found))}", 110, subsequent_indent="    ") + "\n"
        for room, found in sorted(names.items())
    )


def test_what_rooms_show_to_each_other_is_listed_and_grows_only_on_purpose():
    """Renew the list with `PYTHONPATH=tests/helpers python tests/test_layering.py`; the commit says why."""
    names = public_names()
    assert names == PUBLIC.read_text(encoding="utf-8")
    assert not re.search(r"\b_[^\W_]", names), "a private name is imported by another room"


if __name__ == "__main__":
    PUBLIC.write_text(public_names(), encoding="utf-8")
