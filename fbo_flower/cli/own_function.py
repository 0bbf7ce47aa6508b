"""`fbo-flower simulate FILE.py:FUNCTION`: the code, the files and the search space of one's own function."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fbo_flower.errors import ConfigError, did_you_mean
from fbo_flower.study.ranking import natural_order

if TYPE_CHECKING:
    from fbo_flower import SearchSpace
    from fbo_flower.algorithms.aims import Aims
    from fbo_flower.simulation.agents import OwnObjective


def own_problem(function: str, data: str, space: str, seed: int, aims: Aims) -> OwnObjective:
    """Return the problem of "FILE.py:FUNCTION", `function(config, path)`, with one agent per data file.

    An agent has the name of its file; `data` is a pattern, `space` a TOML file, see `read_space`. ConfigError
    if one of the three cannot be found or read.
    """
    from fbo_flower.clients.node import names_of_files
    from fbo_flower.simulation.agents import own_objective

    files = data_files(data)
    agents = dict(zip(names_of_files(files), files, strict=True))
    return own_objective(load_function(function), read_space(Path(space)), agents, seed, aims, ())


def load_function(text: str) -> Callable[..., float]:
    """Return the function that "FILE.py:FUNCTION" names.

    The module is not registered under a name, so that Ray sends the function itself to its workers. Its
    folder stays on the path of this process and of those that it starts: it can import its neighbours.
    """
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise ConfigError(f"function: expected FILE.py:FUNCTION, such as score.py:score, got {text!r}")
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise ConfigError(f"function: expected a file {path}, found none")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"function: expected a Python file, got {path}")
    module = importlib.util.module_from_spec(spec)
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"function: {path} cannot be run ({type(error).__name__}: {error})") from error
    function = getattr(module, name, None)
    if not callable(function):
        known = [own for own, value in vars(module).items() if callable(value)]
        raise ConfigError(
            f"function: expected a function {name} in {path}, found none{did_you_mean(name, known)}"
        )
    return function  # type: ignore[no-any-return]  # what it returns is checked at every evaluation


def data_files(pattern: str) -> tuple[Path, ...]:
    """Return the files of a pattern, in natural order: `site-2` before `site-10`."""
    root = Path(pattern).expanduser()
    if root.is_dir():
        raise ConfigError(f"--data: expected a pattern of files, got a directory; try '{pattern}/*.csv'")
    found = [Path(path) for path in glob(str(root)) if Path(path).is_file()]
    if not found:
        raise ConfigError(
            f"--data: expected files, found none at {pattern!r}"
            + ("" if has_magic(pattern) else "; quote a pattern, as in --data 'dir/*.csv'")
        )
    return tuple(path.absolute() for path in sorted(found, key=lambda path: natural_order(str(path))))


def read_space(path: Path) -> SearchSpace:
    """Return the search space of a TOML file.

    A parameter is a list of choices, or a table with `low` and `high` (`log`, `active_when`) or `choices`. It
    is an integer if both ends are; `kind` says otherwise: "float", "int", "categorical" or "ordinal".
    """
    from fbo_flower import SearchSpace

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--space: {path} cannot be read ({error})") from error
    parameters = [{"name": name, **_parameter(name, table)} for name, table in tables.items()]
    try:
        return SearchSpace.from_json(json.dumps({"parameters": parameters}, sort_keys=True))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"--space: {path}: {error}") from error


def _parameter(name: str, table: Any) -> dict[str, Any]:
    if isinstance(table, list):
        return {"kind": "categorical", "choices": table}
    if not isinstance(table, Mapping):
        raise ConfigError(
            f"--space: {name}: expected a list of choices, or a table such as {{low = 0.1, high = 10}}, got "
            f"{table!r}"
        )
    own = dict(table)
    ends = own.get("low"), own.get("high")
    kind = "categorical" if "choices" in own else "int" if all(type(end) is int for end in ends) else "float"
    own.setdefault("kind", kind)
    if own["kind"] in {"float", "int"}:
        own.setdefault("log", False)
    if own["kind"] == "float":
        own |= {end: float(own[end]) for end in ("low", "high") if type(own.get(end)) is int}
    if isinstance(parents := own.get("active_when"), Mapping):
        own["active_when"] = {
            parent: values if isinstance(values, list) else [values] for parent, values in parents.items()
        }
    return own
