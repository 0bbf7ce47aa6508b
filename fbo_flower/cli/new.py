"""`fbo-flower new`: write a Flower app that is ready to run, from the files in `templates`."""

from __future__ import annotations

import keyword
import os
import re
import sys
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from fbo_flower import __version__
from fbo_flower.algorithms.registry import RECOMMENDED, find
from fbo_flower.cli.common import Debug
from fbo_flower.errors import ConfigError

MAX_NAME = 32  # characters; Flower refuses longer names
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TAKEN = {"fbo_flower", "flwr", "numpy", "scipy", "sklearn", "tests"}
_FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "client_app.py": "{package}/client_app.py",
    "server_app.py": "{package}/server_app.py",
}


def new(
    directory: Annotated[
        Path, typer.Argument(help="Directory to write the app into; it must be new or empty.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the app; default: the name of the directory.")
    ] = None,
    publisher: Annotated[
        str, typer.Option(help="Publisher of the app; Flower makes it part of the app's id.")
    ] = "me",
    debug: Debug = False,
) -> None:
    """Write a Flower app in which each node tunes on its own CSV file.

    Nodes without a CSV file use a share of a public data set, so the app also runs in simulation.

    Example: fbo-flower new my-app && fbo-flower run my-app
    """
    for path in new_app(directory, name, publisher):
        typer.echo(str(path))
    typer.echo(f"Simulate it: fbo-flower run {directory}")


def new_app(directory: str | os.PathLike[str], name: str | None = None, publisher: str = "me") -> list[Path]:
    """Write an app into a new or empty directory, after which it is named by default; return its files.

    ConfigError if the directory is not empty or cannot be written, or if Flower would refuse a name.
    """
    root = Path(directory).expanduser().absolute()
    name = root.name if name is None else name
    _check_name("name", name)
    _check_name("publisher", publisher)
    package = name.replace("-", "_")
    if package in _TAKEN or keyword.iskeyword(package) or package in sys.stdlib_module_names:
        raise ConfigError(f"name: expected a name that is no Python package or keyword, got {name!r}")
    values = {"name": name, "package": package, "publisher": publisher, "version": __version__}
    values |= {"algorithm": RECOMMENDED, "strategy": find(RECOMMENDED).class_name}
    written = []
    try:
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise ConfigError(f"directory: expected a new or an empty directory, got {root}")
        (root / package).mkdir(parents=True)
        for source, target in _FILES.items():
            template = files("fbo_flower.cli").joinpath("templates", f"{source}.txt")
            path = root / target.format(package=package)
            text = Template(template.read_text(encoding="utf-8")).substitute(values)
            path.write_text(text, encoding="utf-8")
            written.append(path)
        (root / package / "__init__.py").touch()
    except OSError as error:
        raise ConfigError(
            f"directory: expected a directory that can be written, got {root} ({error.strerror})"
        ) from error
    return [*written, root / package / "__init__.py"]


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        close = (
            re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")[:MAX_NAME].strip("-") or "my-app"
        )
        raise ConfigError(
            f"{what}: expected at most {MAX_NAME} lower-case letters, digits and hyphens that begin with a "
            f"letter, which Flower requires, got {name!r}; try {close!r}"
        )
