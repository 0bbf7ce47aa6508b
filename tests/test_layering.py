"""Imports point upward only: the table of the house, read from the source."""

import ast
import importlib
import re
import sys
import textwrap
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
    "space": ("errors numerics", "numpy ConfigSpace optuna"),
    "secure": ("errors space numerics algorithms", "numpy cryptography flwr"),
    "models": ("errors space", "numpy sklearn skops onnx onnxruntime xgboost lightgbm"),
    "algorithms": ("errors space numerics", "numpy greenlet"),
    "wire": ("errors algorithms", "numpy flwr"),
    "storage": ("errors algorithms", "numpy"),
    "study": ("errors space numerics storage", "numpy optuna"),
    "trackers": ("errors space storage study", "numpy optuna tensorboard mlflow wandb"),
    "reports": (
        "errors lazy space numerics algorithms storage study",
        "numpy jinja2 markdown_it markupsafe matplotlib plotly rich sklearn",
    ),
    "strategies": (
        "version errors space numerics secure algorithms wire storage study trackers",
        "numpy flwr",
    ),
    "federated": ("errors space numerics algorithms storage study trackers strategies", "numpy scipy flwr"),
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


def room_of(module):
    """Return the room of `fbo_flower.x.y`; the package itself is the room `__init__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(source, module):
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


def is_module(name):
    path = PACKAGE.parent.joinpath(*name.split("."))
    return name.startswith("fbo_flower.") and (path.is_dir() or path.with_suffix(".py").is_file())


def test_groups_of_numerics_import_only_what_the_table_allows():
    found = []
    for module, path in modules():
        group = group_of(module)
        for name, line in imports(path.read_text(encoding="utf-8"), module):
            other = group_of(name)
            if room_of(module) == "numerics" and other not in {"", group, *NUMERICS.get(group, "").split()}:
                found.append(f"{module}:{line}: {group or 'the ground'} may not import {name}")
    assert found == []


def group_of(module):
    """Return the group of `fbo_flower.numerics.group.x`; "" for files beside the groups."""
    _, room, group, *_ = [*module.split("."), "", ""]
    return group if room == "numerics" and group in NUMERICS else ""


def violations(source, module):
    """Imports of a module's source that the table does not allow."""
    room = room_of(module)
    rooms, libraries = (set(text.split()) for text in ROOMS[room])
    found = []
    for name, line in imports(source, module):
        top = name.split(".")[0]
        if top == "fbo_flower":
            downward = any((module, name[: len(to)]) == (own, to) for own, to in DOWNWARD)
            if room_of(name) not in rooms | {room} and not downward:
                found.append(f"{module}:{line}: {room} may not import {name}")
        elif top not in OUTSIDE and top not in libraries:
            found.append(f"{module}:{line}: {room} may not import {name}")
    return found


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def test_nothing_but_errors_lazy_imports_and_the_version_stands_at_the_top():
    found = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert found == {"__init__.py", "errors.py", "lazy.py", "py.typed", "version.py"}


def test_every_module_belongs_to_a_room():
    assert {room_of(module) for module, _ in modules()} <= set(ROOMS)


def test_rooms_can_be_ordered_so_that_imports_point_upward_only():
    allowed = {room: set(rooms.split()) & set(ROOMS) for room, (rooms, _) in ROOMS.items()}
    while allowed:
        bottom = {room for room, below in allowed.items() if not below & set(allowed)}
        assert bottom, f"a circle among {', '.join(allowed)}"
        allowed = {room: below for room, below in allowed.items() if room not in bottom}


def test_no_module_imports_itself_by_way_of_others():
    graph = {
        module: {name for name, _ in imports(path.read_text("utf-8"), module)} for module, path in modules()
    }
    graph = {module: (found & set(graph)) - {module} for module, found in graph.items()}
    assert list(TopologicalSorter(graph).static_order()), "a circle is a CycleError"


def test_a_module_imports_only_what_its_room_may():
    assert [line for m, path in modules() for line in violations(path.read_text("utf-8"), m)] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fbo_flower.numerics.surrogates.gp", "from fbo_flower.algorithms.records import Task"),
        ("fbo_flower.numerics.surrogates.gp", "from fbo_flower import wire"),
        ("fbo_flower.numerics.surrogates.gp", "import flwr.app"),
        ("fbo_flower.algorithms.fts.fts", "def f():\n    import fbo_flower.strategies.base"),
        ("fbo_flower.clients.agent", "from fbo_flower.strategies import FTS"),
        ("fbo_flower.clients.agent", "import sklearn.svm"),
        ("fbo_flower.strategies.base", "from fbo_flower import clients"),
        ("fbo_flower.simulation.runner", "from fbo_flower.cli import main"),
        ("fbo_flower.simulation.runner", "from studies.experiments import EXPERIMENTS"),
        ("fbo_flower.errors", "import numpy"),
        ("fbo_flower.space", "from fbo_flower import SearchSpace"),
    ],
)
def test_an_import_that_points_down_is_found(module, source):
    assert len(violations(source, module)) == 1


def test_imports_for_types_alone_are_free():
    source = "import typing\nif typing.TYPE_CHECKING:\n    from fbo_flower.strategies import FTS\n"
    assert violations(source, "fbo_flower.clients.agent") == []


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("fbo_flower", LATE | {"scipy", "flwr", "rich"}),
        ("fbo_flower.clients", LATE | {"pandas", "scipy", "sqlite3"}),
        ("fbo_flower.strategies", LATE | {"pandas"}),
        ("fbo_flower.app.client_app", LATE | {"pandas"}),
        ("fbo_flower.simulation.runner, fbo_flower.simulation.problems.digits", LATE | {"pandas"}),
        ("fbo_flower.cli.main", LATE | {"pandas", "scipy", "flwr"}),
    ],
)
def test_importing_a_side_stays_light(module, heavy):
    assert loaded_by(f"import {module}") & heavy == set()


def test_a_device_imports_no_algorithm_before_it_is_asked_for_one():
    loaded = loaded_by("import fbo_flower.clients")
    assert "fbo_flower.algorithms.fts.fts" not in loaded
    assert "fbo_flower.algorithms.co_kg.co_kg" not in loaded
    assert "fbo_flower.algorithms.fts.fts" in loaded_by("from fbo_flower.algorithms import FTS")


STUDY = """
from fbo_flower import Float, SearchSpace
from fbo_flower.clients import client_app
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import FTS
app = client_app(lambda config, context: config["x"], SearchSpace({"x": Float(0, 1)}), seed=1)
FTS(num_agents=2, seed=1).start(InProcessGrid(app, 2), num_rounds=3)
"""


def test_the_first_tasks_of_an_agent_stay_light():
    loaded = loaded_by(STUDY)
    assert loaded & (LATE | {"pandas", "sqlite3"}) == set()
    assert "scipy.linalg" in loaded


def test_a_heavy_import_is_found():
    assert "sklearn" in loaded_by("import fbo_flower.clients, sklearn")


def loaded_by(code):
    """Names of the modules that a fresh interpreter holds after running `code`."""
    return set(python("-c", f"{code}\nimport sys\nprint(*sys.modules)").stdout.split())


FAMILIES = {path.name for path in (PACKAGE / "algorithms").iterdir() if (path / "__init__.py").is_file()}
# what belongs to one family, outside its folder: the sites of RFMS, and proposals by expected improvement
BELONG = {
    "fbo_flower.clients.ei_sampler": "ei",
    "fbo_flower.clients.model_site": "rfms",
    "fbo_flower.clients.site_agent": "rfms",
    "fbo_flower.reports.selection": "rfms",
    "fbo_flower.federated.proposals": "ei",
}


def test_the_core_imports_no_family_of_algorithms():
    found = []
    for module, path in modules():
        own = module.split(".")[2] if module.startswith("fbo_flower.algorithms.") else ""
        for name, line in imports(path.read_text(encoding="utf-8"), module):
            family = [*name.split("."), ""][2] if name.startswith("fbo_flower.algorithms.") else ""
            if family in FAMILIES and own not in FAMILIES and BELONG.get(module) != family:
                found.append(f"{module}:{line}: the core may not import {name}")
    assert found == []


def test_what_the_wheel_does_not_have_is_called_a_part_of_the_repository():
    found = []
    for module, path in modules():
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"studies/[a-z]|(?<!self\.)\bstudies\.[a-z]+\.|-m studies", text):
            if "repository" not in text[max(0, match.start() - 60) : match.end() + 80]:
                found.append(f"{module}: {match.group()}")
    assert found == []


def test_no_class_repeats_what_it_inherits():
    found = []
    for module, _ in modules():
        for name, kind in vars(importlib.import_module(module)).items():
            if not isinstance(kind, type) or kind.__module__ != module:
                continue
            for attribute, value in vars(kind).items():
                inherited = next((vars(b)[attribute] for b in kind.__mro__[1:] if attribute in vars(b)), None)
                plain = isinstance(value, bool | int | float | str) and not attribute.startswith("_")
                option = getattr(kind, "__dataclass_fields__", {}).get(attribute)
                if option is not None and option.metadata:
                    continue  # with a check of its own
                if plain and (type(value), value) == (type(inherited), inherited):
                    found.append(f"{module}: {name}.{attribute} = {value!r}")
    assert found == []


def test_a_name_of_a_class_has_one_meaning():
    found: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(path.relative_to(PACKAGE).as_posix())
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_no_two_test_files_have_one_name():
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names)), "pytest leaves the second one out"


def public_names():
    """Lines that say, for each room, what other rooms of the package import from it."""
    names: dict[str, set[str]] = {}
    for module, path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
