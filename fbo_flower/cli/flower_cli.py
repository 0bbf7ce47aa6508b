"""Call Flower's command line `flwr`, and read the status of a run, which `flwr run` does not return."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from fbo_flower import __version__
from fbo_flower.errors import ConfigError

NO_INSTALLATION = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"
_START_OF_FLOWER = re.compile(
    r"(INFO|WARNING) : +(Starting logstream|Starting Flower Simulation|Since flwr |Federation `|"
    r"To change federation size|\tflwr federation|$)|Successfully installed "
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # ANSI codes
_CODE = "import sys; from flwr.cli.app import app; sys.argv[0] = 'flwr'; app()"


@dataclass(frozen=True)
class RunStatus:
    """The status of a run as the SuperLink reports it.

    Parameters
    ----------
    status : "finished:completed", "finished:failed", "finished:stopped", "running", ...
    details : the reason of a failure, as far as Flower knows it
    """

    status: str
    details: str

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
    """

    def __init__(self, connection: str | None = None, *, install_dependencies: bool = True) -> None:
        self._connection = [] if connection is None else [connection]
        scripts = str(Path(sys.executable).parent)
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([scripts, os.environ.get("PATH", "")]),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }
        if not install_dependencies:
            self._environment[NO_INSTALLATION] = "1"

    def submit(self, app: str, run_config: Sequence[str] = (), federation_config: Sequence[str] = ()) -> str:
        """Submit an app and return the run's id; ConfigError with Flower's reason if Flower refuses it."""
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
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
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
            self._command(*words), env=self._environment, capture_output=True, text=True, check=False
        )

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", _CODE, *words]


def read_app(app: str) -> Mapping[str, Any] | None:
    """Return the `pyproject.toml` of an app's directory; None for an app of Flower's hub (`@...`).

    Raises
    ------
    ConfigError
        If the directory holds no Flower app.
    """
    if app.startswith("@"):
        return None
    path = Path(app).expanduser() / "pyproject.toml"
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = "it holds no pyproject.toml" if isinstance(error, FileNotFoundError) else error
        raise ConfigError(
            f"app: expected a Flower app's directory, got {app}: {reason}; name it, as in "
            "fbo-flower run APP or fbo-flower doctor --app APP"
        ) from error
    if "app" not in project.get("tool", {}).get("flwr", {}):
        raise ConfigError(f"app: expected [tool.flwr.app] in {path}")
    return project


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
