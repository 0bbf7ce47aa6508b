"""Import an app's components before Flower gets them, so that a mistake in them is one line.

On Flower's runtime the same mistake ends in Flower's tracebacks, after the app was built, sent and started.
The import runs in a process of its own, because an app may do anything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from fbo_flower.errors import ConfigError, FBOError, kind_of

_SECONDS = 120  # an import that takes longer is left to Flower
_MAKERS = {
    "serverapp": ("ServerApp", "app = ServerApp() with a function under @app.main()"),
    "clientapp": ("ClientApp", "app = client_app(objective, space)"),
}


def check_app(app: str, project: Mapping[str, Any], *, runs_here: bool) -> None:
    """Raise ConfigError if a component of an app cannot be used.

    If the app does not run in this environment, only mistakes are errors that do not depend on it.
    """
    found = project["tool"]["flwr"]["app"].get("components", {})
    components = {kind: found[kind] for kind in _MAKERS if isinstance(found.get(kind), str)}
    directory = Path(app).expanduser().absolute()
    command = [sys.executable, "-m", __name__, str(directory), json.dumps(components)]
    # a path may be relative, and the process starts in the app's directory, as an import in it would
    path = os.pathsep.join([str(Path(entry).absolute()) for entry in sys.path if entry])
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        reason, everywhere = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, LookupError, ValueError):  # the app ended the process, or printed last
        return
    if reason and (runs_here or everywhere):
        raise ConfigError(reason)


def mistake_in(directory: Path, components: Mapping[str, str]) -> tuple[str, bool]:
    """Import the components; return the first mistake or "", and whether it is one in every environment."""
    sys.path.insert(0, str(directory))
    for kind, reference in components.items():
        module, _, name = reference.partition(":")
        try:
            component = getattr(import_module(module), name)
        except FBOError as error:
            return f"{kind} {reference}: {error}", True
        except Exception as error:  # the app's code may raise anything
            return f"{kind} {reference}: {type(error).__name__}: {error}{_place(error, directory)}", False
        expected, example = _MAKERS[kind]
        if not any(base.__name__ == expected for base in type(component).__mro__):
            text = f"expected a {expected}, as in {example}, got {kind_of(component)}"
            return f"{kind} {reference}: {text}", True
    return "", True


def _place(error: Exception, directory: Path) -> str:
    """Return the app's line in which an error was raised, as the end of a sentence; "" if it is not there."""
    lines = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(directory)
    ]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append((error.filename, error.lineno))
    return f" ({Path(lines[-1][0]).name}, line {lines[-1][1]})" if lines else ""


if __name__ == "__main__":
    answer = mistake_in(Path(sys.argv[1]), json.loads(sys.argv[2]))
    print("\n" + json.dumps(answer), flush=True)
    os._exit(0)  # threads that the app has started must not keep this process alive
