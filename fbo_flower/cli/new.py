"""`fbo-flower new`: write a Flower app that is ready to run, from the files in `templates`."""

from __future__ import annotations

import json
import keyword
import os
import re
import sys
from importlib.metadata import requires
from importlib.resources import files
from pathlib import Path
from string import Template
from textwrap import indent

import typer
from packaging.requirements import Requirement

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.registry import RECOMMENDED, find
from fbo_flower.errors import ConfigError
from fbo_flower.storage.paths import path_of
from fbo_flower.version import __version__

MAX_NAME = 32  # characters; Flower refuses longer names
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TAKEN = {"fbo_flower", "flwr", "numpy", "scipy", "sklearn", "tests"}
_FILES = {
    "pyproject.toml": "pyproject.toml",
    "LICENSE": "LICENSE",  # which a bundle of Flower's format 1 has to have
    "README.md": "README.md",
    "client_app.py": "{package}/client_app.py",
    "server_app.py": "{package}/server_app.py",
}
_MEASURED = {  # output -> how the app measures it, and its value
    "error": (
        "model = new_model(config, x)\n"
        'error = -cross_val_score(model, x, y, cv=3, scoring="neg_mean_absolute_error").mean()',
        "error",
    ),
    "kilobytes": (
        "vectors = new_model(config, x).fit(x, y).steps[-1][1].support_vectors_",
        "vectors.nbytes / 1024",
    ),
}
_BEST = """\
    for agent, best in study.best.items():  # of agents whose operators disclose their values
        print(f"agent {agent}: {best.get('value', best.get('mean')):.4f} with {best['config']}")"""
_FRONT = """\
    for agent in dict.fromkeys(study.trials["agent"]):  # whose operators disclose their values
        front = study.front(agent)
        for values, found in zip(front.values, front.configs, strict=True):
            print(f"agent {agent}: {values} with {found}")"""
_LIMITS = """\
An operator may set other bounds in `--node-config`, which do not leave the node:
`limits="{}"`.

"""


def new(
    directory: Path,
    *,
    name: str | None = None,
    publisher: str = "me",
    objectives: str | None = None,
    limits: str | None = None,
) -> None:
    """Write a Flower app in which each node tunes on its own CSV file.

    Nodes without a CSV file use a share of a public data set, so the app also runs in simulation.

    Example: fbo-flower new my-app && fbo-flower run my-app

    Parameters
    ----------
    directory : Directory to write the app into; it must be new or empty.
    name : Name of the app; default: the name of the directory.
    publisher : Publisher of the app; Flower makes it part of the app's id.
    objectives : Return numbers by name: 'error min, kilobytes min', which the app measures, or your
        own.
    limits : Limits of the numbers: 'kilobytes <= 40'.
    """
    for path in new_app(directory, name, publisher, Aims.of(False, objectives, limits)):
        typer.echo(str(path))
    typer.echo(f"Simulate it: fbo-flower run {directory}")


def new_app(
    directory: str | os.PathLike[str], name: str | None = None, publisher: str = "me", aims: Aims = NUMBER
) -> list[Path]:
    """Write an app into a new or empty directory, after which it is named by default; return its files.

    ConfigError if the directory is not empty or cannot be written, or if Flower would refuse a name.
    """
    root = path_of(directory, "directory").absolute()
    name = root.name if name is None else name
    _check_name("name", name)
    _check_name("publisher", publisher)
    package = name.replace("-", "_")
    if package in _TAKEN or keyword.iskeyword(package) or package in sys.stdlib_module_names:
        raise ConfigError(f"name: expected a name that is no Python package or keyword, got {name!r}")
    values = {"name": name, "package": package, "publisher": publisher, "version": __version__}
    own = next(r for r in map(Requirement, requires("fbo-flower") or ()) if r.name == "flwr")
    values["flower"] = next(part.version for part in own.specifier if part.operator == ">=")
    values |= {"algorithm": RECOMMENDED, "strategy": find(RECOMMENDED).class_name, **_of_aims(aims)}
    written = []
    try:
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise ConfigError(f"directory: expected a new or an empty directory, got {root}")
        (root / package).mkdir(parents=True)
        for source, target in _FILES.items():
            template = files("fbo_flower.cli").joinpath("templates", f"{source}.txt")
            path = root / target.format(package=package)
            text = Template(template.read_text(encoding="utf-8")).substitute(values)
            written.append(path)
            path.write_text(text, encoding="utf-8")
        (root / package / "__init__.py").touch()
    except OSError as error:
        raise ConfigError(
            f"directory: expected a directory that can be written, got {root} ({error.strerror})"
        ) from error
    except KeyboardInterrupt:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    return [*written, root / package / "__init__.py"]


def _of_aims(aims: Aims) -> dict[str, str]:
    names = aims.names or ("error",)
    ways = {name: _MEASURED[name] for name in names if name in _MEASURED}
    values = {name: f"{ways[name][1]}," if name in ways else "None,  # measure it here" for name in names}
    entries = [f"    {json.dumps(name)}: {value}" for name, value in values.items()]
    returned = ["return {", *entries, "}"] if aims.names else ["return error"]
    lines = [line for line, _ in ways.values()] + returned
    limits = {name: f"{side} {bound:g}" for name, side, bound in aims.limits}
    written = {"objectives": dict(aims.objectives), "limits": limits} if aims.names else {}
    own = ", ".join(f"{name} {limit}" for name, limit in limits.items())
    return {
        "what": ", ".join(aims.names) or "the mean absolute error",
        "then": "change `objectives`" if aims.names else "leave out `minimize`",
        "measured": indent("\n".join(lines), " " * 4),
        "aims": "".join(f"{name} = {json.dumps(value)}\n" for name, value in written.items()),
        "wider": ', "epsilon": Float(1, 100, log=True)' if "kilobytes" in names else "",
        "arguments": "objectives=objectives, limits=limits" if aims.names else "minimize=True",
        "shown": _FRONT if len(aims.objectives) > 1 else _BEST,
        "limits": _LIMITS.format(own) if own else "",
    }


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        close = (
            re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")[:MAX_NAME].strip("-") or "my-app"
        )
        raise ConfigError(
            f"{what}: expected at most {MAX_NAME} lower-case letters, digits and hyphens that begin with a "
            f"letter, which Flower requires, got {name!r}; try {close!r}"
        )
