"""Where a run goes: Flower's connections, and the SuperLink that Flower keeps running on this computer.

For a connection with the address `:local:`, the default, Flower starts a SuperLink in the background, and
leaves it running. It runs apps with the Python that started it. So a SuperLink of another environment makes
every later run fail, although the environment in which the command is typed has all that the app needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fbo_flower.errors import ConfigError, did_you_mean

PORT = os.environ.get("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", "39091")  # as in Flower
_BACKGROUND = (":local:", ":local-in-memory:")
_DEFAULT = {"superlink": {"default": "local", "local": {"address": ":local:"}}}


@dataclass(frozen=True)
class Connection:
    """A connection in Flower's `config.toml`.

    Parameters
    ----------
    name : as typed; "" if none was typed and none is the default
    address : of the SuperLink; "" if unknown
    """

    name: str
    address: str

    @property
    def is_background(self) -> bool:
        """Whether it is the SuperLink that Flower itself starts on this computer, for simulations."""
        return self.address in _BACKGROUND

    @property
    def is_local(self) -> bool:
        """Whether the SuperLink runs on this computer."""
        host = self.address.removeprefix("http://").removeprefix("https://").rpartition(":")[0]
        return self.is_background or host in {"127.0.0.1", "localhost", "[::1]"}


def read_connection(name: str | None) -> Connection:
    """Return a connection; of an unknown or unreadable one only the name, since Flower says what is wrong.

    Raises
    ------
    ConfigError
        If no connection has this name, but one has a similar name.
    """
    path = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr").expanduser() / "config.toml"
    try:
        config: dict[str, Any] = (
            tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else _DEFAULT
        )
    except (OSError, ValueError):
        return Connection(name or "", "")
    connections = config.get("superlink", {})
    name = connections.get("default", "") if name is None else name
    found = connections.get(name)
    if not isinstance(found, dict):
        known = [key for key, value in connections.items() if isinstance(value, dict)]
        if close := did_you_mean(name, known):
            raise ConfigError(
                f"connection: expected one of {', '.join(known)} in {path}, got {name!r}{close}"
            )
        return Connection(str(name), "")
    # without an address but with options, an old form, Flower takes its local SuperLink
    return Connection(str(name), str(found.get("address") or (":local:" if "options" in found else "")))


def check_simulation(connection: Connection) -> None:
    """Raise ConfigError if a run would go to a background SuperLink that cannot run it.

    Raises
    ------
    ConfigError
        If Ray is not installed here, or the SuperLink that is running belongs to another environment.
    """
    if not connection.is_background:
        return
    if find_spec("ray") is None:
        raise ConfigError(
            f"simulation: expected Ray in the environment of {sys.executable}, found none; run pip install "
            "'fbo-flower[simulation]'"
        )
    for process, scripts in background_superlinks(running_processes()):
        if scripts != _scripts(sys.executable):
            raise ConfigError(
                f"SuperLink: expected the one in the background to run in {_scripts(sys.executable)}, got "
                f"process {process} in {scripts}, another environment; end it with: kill {process}"
            )


def background_superlinks(processes: Sequence[tuple[int, str]]) -> list[tuple[int, Path]]:
    """Return process id and directory of the programs, for every SuperLink that Flower started itself.

    >>> background_superlinks([(7, f"/a/bin/python /a/bin/flower-superlink --port {PORT} --simulation")])
    [(7, PosixPath('/a/bin'))]
    """
    found = []
    for process, command in processes:
        words = command.split()
        program = next((word for word in words[:3] if Path(word).name == "flower-superlink"), None)
        is_ours = "--simulation" in words and f"--port {PORT}" in command
        if program is not None and is_ours and Path(program).is_absolute():
            found.append((process, Path(program).parent.resolve()))
    return found


def running_processes() -> list[tuple[int, str]]:
    """Return id and command of this user's processes; none where `ps` is missing."""
    try:
        done = subprocess.run(
            ["ps", "-U", str(os.getuid()), "-ww", "-o", "pid=", "-o", "args="],
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except (OSError, AttributeError, subprocess.TimeoutExpired):  # Windows has neither
        return []
    rows = [line.split(None, 1) for line in done.stdout.splitlines()]
    return [(int(row[0]), row[1]) for row in rows if len(row) == 2 and row[0].isdigit()]


def _scripts(interpreter: str) -> Path:
    return Path(interpreter).parent.resolve()
