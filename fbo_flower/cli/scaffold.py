"""`new_app`: write a Flower app that is ready to run into an empty directory.

It copies the files in `templates` and fills in the app's name. It downloads nothing.
"""

from __future__ import annotations

import keyword
import os
import re
import sys
from importlib.resources import files
from pathlib import Path
from string import Template

from fbo_flower import __version__
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


def new_app(directory: str | os.PathLike[str], name: str | None = None, publisher: str = "me") -> list[Path]:
    """Write an app and return its files.

    Parameters
    ----------
    directory : created if it does not exist; it must be empty
    name : name of the app: lower-case letters, digits and hyphens; None: the name of the directory
    publisher : part of the app's id; the same characters are allowed

    Raises
    ------
    ConfigError
        If the directory is not empty or cannot be written, or if Flower would refuse the name.
    """
    root = Path(directory).expanduser().absolute()
    name = root.name if name is None else name
    _check_name("name", name)
    _check_name("publisher", publisher)
    package = name.replace("-", "_")
    if package in _TAKEN or keyword.iskeyword(package) or package in sys.stdlib_module_names:
        raise ConfigError(f"name: expected a name that is no Python package or keyword, got {name!r}")
    values = {"name": name, "package": package, "publisher": publisher, "version": __version__}
    written = []
    try:
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise ConfigError(f"directory: expected a new or an empty directory, got {root}")
        (root / package).mkdir(parents=True)
        for source, target in _FILES.items():
            template = (
                files("fbo_flower.cli").joinpath("templates", f"{source}.txt").read_text(encoding="utf-8")
            )
            path = root / target.format(package=package)
            path.write_text(Template(template).substitute(values), encoding="utf-8")
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
