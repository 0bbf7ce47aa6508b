"""Flower's command line `flwr`: the status of a run, the app, and where a run goes.

For a connection with the address `:local:`, the default, Flower starts a SuperLink in the background, and
leaves it running. It runs apps with the Python that started it. So a run on a SuperLink of
another environment, or of another user, fails or does not see its files: it gets one of its own.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fbo_flower.errors import ConfigError, did_you_mean
from fbo_flower.storage.paths import path_of, read_text
from fbo_flower.version import __version__

_PORT_NAME, _CONTROL_NAME = "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", "FLWR_LOCAL_CONTROL_API_PORT"
PORT, CONTROL_PORT = os.environ.get(_PORT_NAME, "39091"), os.environ.get(_CONTROL_NAME, "39093")  # Flower's
_BACKGROUND = (":local:", ":local-in-memory:")
_DEFAULT = {"superlink": {"default": "local", "local": {"address": ":local:"}}}
NO_INSTALLATION = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"
_START_OF_FLOWER = re.compile(
    r"(INFO|WARNING) : +(Starting logstream|Starting Flower Simulation|Since flwr |Federation `|"
    r"To change federation size|\tflwr federation|$)|Successfully installed |.*Manually terminating \w+"
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # ANSI codes
_TEXT: Any = {"encoding": "utf-8", "errors": "backslashreplace"}  # of what other processes print
_CODE = """
import sys
from flwr.cli import local_superlink
from flwr.cli.app import app
local_superlink.LOCAL_SUPERLINK_STARTUP_TIMEOUT = 120.0  # seconds; 15 are too few on a busy computer
sys.argv[0] = "flwr"
app()
"""


@dataclass(frozen=True)
class RunStatus:
    """The status of a run as the SuperLink reports it."""

    status: str  # "finished:completed", "finished:failed", "finished:stopped", "running", ...
    details: str  # the reason of a failure, as far as Flower knows it

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.status.startswith("finished")

    @property
    def succeeded(self) -> bool:
        """Whether the ServerApp ended without an error."""
        return self.status == "finished:completed"


class FlowerCLI:
    """The command `flwr` that belongs to this Python, also if its environment is not active.

    Parameters
    ----------
    connection : name of a SuperLink in Flower's `config.toml`; None: its default
    install_dependencies : whether a SuperLink that this command starts may install the app's dependencies
    environment : further environment variables, see `check_simulation`
    """

    def __init__(
        self,
        connection: str | None = None,
        *,
        install_dependencies: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._connection = [] if connection is None else [connection]
        scripts = str(Path(sys.executable).parent)
        self._environment = {
            **os.environ,
            "PYTHONIOENCODING": "utf-8",  # of Flower's output, which is read here
            "PATH": os.pathsep.join([scripts, os.environ.get("PATH", "")]),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            **(environment or {}),
        }
        if not install_dependencies:
            self._environment[NO_INSTALLATION] = "1"

    def submit(self, app: str, run_config: Sequence[str] = (), federation_config: Sequence[str] = ()) -> str:
        """Submit an app and return the run's id; ConfigError with Flower's reason if Flower refuses it."""
        check_mark(app)
        words = ["run", app, *self._connection]
        words += [word for text in run_config for word in ("--run-config", text)]
        words += [word for text in federation_config for word in ("--federation-config", text)]
        return str(self._json(*words)["run-id"])

    def stream(self, run_id: str, everything: bool = False) -> None:
        """Print the run's log until the run ends or the connection is lost; colours only in a terminal.

        What Flower tells of its own start is left out, unless `everything` is wanted.
        """
        command = self._command("log", run_id, *self._connection, "--stream")
        with subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **_TEXT
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                text = _COLOURS.sub("", line)
                if everything or not _START_OF_FLOWER.match(text):
                    print(line if sys.stdout.isatty() else text, end="", flush=True)

    def log(self, run_id: str) -> str:
        """Return the run's log so far."""
        done = self._run("log", run_id, *self._connection, "--show")
        return _COLOURS.sub("", done.stdout)

    def status(self, run_id: str) -> RunStatus:
        """Return the status of a run."""
        rows = self._json("list", *self._connection, "--run-id", run_id)["runs"]
        details = rows[0].get("status-details", "")
        return RunStatus(str(rows[0]["status"]), "" if details == "N/A" else str(details))

    def wait(self, run_id: str, seconds: float) -> RunStatus:
        """Wait until the run is over, at most `seconds`, and return its status."""
        deadline = time.monotonic() + seconds
        while not (status := self.status(run_id)).is_over and time.monotonic() < deadline:
            time.sleep(1.0)
        return status

    def stop(self, run_id: str) -> None:
        """Stop a run."""
        self._run("stop", run_id, *self._connection)

    def nodes(self) -> list[dict[str, Any]]:
        """Return the SuperNodes that the SuperLink knows."""
        return list(self._json("supernode", "list", *self._connection)["nodes"])

    def _json(self, *words: str) -> dict[str, Any]:
        done = self._run(*words, "--format", "json")
        answer = _last_object(done.stdout)
        if done.returncode or not answer.get("success", True) or not answer:
            reason = answer.get("error-message") or done.stderr.strip() or done.stdout.strip()
            raise ConfigError(f"flwr {' '.join(words)}: {' '.join(str(reason).split())[:500]}")
        return answer

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*words), env=self._environment, capture_output=True, check=False, **_TEXT
        )

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", _CODE, *words]


def read_app(app: str) -> Mapping[str, Any] | None:
    """Return the `pyproject.toml` of an app, or ConfigError; None for an app of Flower's hub (`@...`)."""
    if app.startswith("@"):
        return None
    path = path_of(app, "app") / "pyproject.toml"
    try:
        project = tomllib.loads(read_text(path))
    except (OSError, ValueError) as error:
        reason = "it holds no pyproject.toml" if isinstance(error, FileNotFoundError) else error
        raise ConfigError(
            f"app: expected a Flower app's directory, got {app}: {reason}; name it, as in "
            "fbo-flower run APP or fbo-flower doctor --app APP"
        ) from error
    if "app" not in project.get("tool", {}).get("flwr", {}):
        raise ConfigError(f"app: expected [tool.flwr.app] in {path}")
    return project


def check_mark(app: str) -> None:
    """Raise ConfigError if an app's `pyproject.toml` begins with a mark that Flower cannot read."""
    path = path_of(app, "app") / "pyproject.toml"
    if path.is_file() and path.read_bytes().startswith(codecs.BOM_UTF8):
        raise ConfigError(
            f"app: expected UTF-8 without a byte order mark in {path}, because Flower cannot read one, got "
            "one; save the file without it"
        )


def missing_dependencies(project: Mapping[str, Any]) -> list[str]:
    """Return the requirements in `project.dependencies` that this environment does not meet."""
    from packaging.requirements import InvalidRequirement, Requirement

    missing = []
    for text in project.get("project", {}).get("dependencies", []):
        try:
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate():
                continue
            own = (
                requirement.name == "fbo-flower"
            )  # it is running, perhaps from a checkout that is not installed
            version = __version__ if own else metadata.version(requirement.name)
            met = requirement.specifier.contains(version, prereleases=True)
        except (InvalidRequirement, metadata.PackageNotFoundError):
            met = False
        if not met:
            missing.append(str(text))
    return missing


def _last_object(text: str) -> dict[str, Any]:
    """Return the JSON object at the end of an output, after any other text; {} if there is none."""
    start = text.find("{")
    while start >= 0:
        try:
            found = json.loads(text[start:])
        except ValueError:
            start = text.find("{", start + 1)
            continue
        return found if isinstance(found, dict) else {}
    return {}


@dataclass(frozen=True)
class Connection:
    """A connection in Flower's `config.toml`."""

    name: str  # as typed; "" if none was typed and none is the default
    address: str  # of the SuperLink; "" if unknown
    options: Mapping[str, Any] = field(default_factory=dict)  # of its simulation, an old form

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
    """Return a connection; ConfigError if none has this name, but one has a similar name.

    Of an unknown or unreadable one only the name is returned, since Flower says what is wrong.
    """
    path = path_of(os.environ.get("FLWR_HOME") or "~/.flwr", "FLWR_HOME") / "config.toml"
    try:
        config: dict[str, Any] = tomllib.loads(read_text(path)) if path.exists() else _DEFAULT
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
    options = found["options"] if isinstance(found.get("options"), dict) else {}
    return Connection(str(name), str(found.get("address") or (":local:" if options else "")), options)


def check_simulation(connection: Connection) -> dict[str, str]:
    """Return the environment in which Flower finds, or starts, a SuperLink of this Python for simulations.

    It is empty where Flower's usual port is free, or has a SuperLink of this environment. If another user's
    or another environment's process has the port, the SuperLink gets free ports and a directory of its own.

    Raises
    ------
    ConfigError
        If Ray is not installed here.
    """
    if not connection.is_background:
        return {}
    if find_spec("ray") is None:
        raise ConfigError(
            f"simulation: expected Ray in the environment of {sys.executable}, found none; run pip install "
            "'fbo-flower[simulation]'"
        )
    here = _scripts(sys.executable)
    own = [ports for scripts, ports in background_superlinks(running_processes()) if scripts == here]
    if any(port == PORT for port, _ in own) or (not own and _is_free(PORT) and _is_free(CONTROL_PORT)):
        return {}
    port, control = own[0] if own else _free_ports()
    home = path_of(os.environ.get("FLWR_HOME") or "~/.flwr", "FLWR_HOME")
    place = home / "fbo-flower" / hashlib.sha256(str(here).encode()).hexdigest()[:12]
    place.mkdir(parents=True, exist_ok=True)
    if (home / "config.toml").exists():
        shutil.copyfile(home / "config.toml", place / "config.toml")
    return {_PORT_NAME: port, _CONTROL_NAME: control, "FLWR_HOME": str(place)}


def _is_free(port: str) -> bool:
    """Return whether nobody listens on a port of this computer."""
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", int(port))) != 0


def _free_ports() -> tuple[str, str]:
    with socket.socket() as one, socket.socket() as two:
        for found in (one, two):
            found.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1]), str(two.getsockname()[1])


def background_superlinks(processes: Sequence[tuple[int, str]]) -> list[tuple[Path, tuple[str, str]]]:
    """Return directory of the programs and both ports, for every SuperLink that Flower started itself.

    >>> of = "--simulation --control-api-address 127.0.0.1:3 --port 1 --log-file local-superlink/x"
    >>> background_superlinks([(7, f"/a/bin/python /a/bin/flower-superlink {of}")])
    [(PosixPath('/a/bin'), ('1', '3'))]
    """
    found = []
    for _, command in processes:
        words = command.split()
        program = next((word for word in words[:3] if Path(word).name == "flower-superlink"), "")
        ports = re.search(r"--control-api-address \S+:(\d+) .*--port (\d+) .*local-superlink", command)
        if "--simulation" in words and ports is not None and Path(program).is_absolute():
            found.append((Path(program).parent.resolve(), (ports[2], ports[1])))
    return found


def running_processes() -> list[tuple[int, str]]:
    """Return id and command of this user's processes; none where `ps` is missing."""
    try:
        done = subprocess.run(
            ["ps", "-U", str(os.getuid()), "-ww", "-o", "pid=", "-o", "args="],
            capture_output=True,
            check=False,
            timeout=10,
            **_TEXT,
        )
    except (OSError, AttributeError, subprocess.TimeoutExpired):  # Windows has neither
        return []
    rows = [line.split(None, 1) for line in done.stdout.splitlines()]
    return [(int(row[0]), row[1]) for row in rows if len(row) == 2 and row[0].isdigit()]


def _scripts(interpreter: str) -> Path:
    return Path(interpreter).parent.resolve()
