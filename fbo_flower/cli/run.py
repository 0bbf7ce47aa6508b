"""`fbo-flower run`: run a Flower app and exit with the status of the run; `flwr run` only submits it.

Flower checks a run config on the server only, after the app was built, sent and started, and a mistake in the
app ends in Flower's tracebacks. What can be known here is an error here: keys that the app does not have,
values of another type, files that do not exist, components that cannot be imported. That import runs in a
process of its own, because an app may do anything.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import subprocess
import sys
import time
import tomllib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from fbo_flower.cli.flower_cli import (
    NO_INSTALLATION,
    Connection,
    FlowerCLI,
    RunStatus,
    check_simulation,
    missing_dependencies,
    read_app,
    read_connection,
)
from fbo_flower.cli.interruption import in_order
from fbo_flower.cli.plan import data_files
from fbo_flower.errors import ConfigError, FBOError, did_you_mean, kind_of
from fbo_flower.storage.paths import path_of, read_text
from fbo_flower.study.directory import holds_study

PATHS = ("out", "journal")  # keys of a run config that name files of the server
DATA, NODES = "data", "num-supernodes"
NUMBERS = ("num-agents", "num-clients")  # keys of a run config that say how many nodes an app waits for
FEDERATION_KEYS = (
    "num-supernodes", "client-resources-num-cpus", "client-resources-num-gpus", "backend", "verbose",
    "init-args-num-cpus", "init-args-num-gpus", "init-args-logging-level", "init-args-log-to-driver",
)  # fmt: skip
_PAIR = re.compile(r"(\S+?)=('[^']*'|\"[^\"]*\"|\S+)")  # as in Flower's `parse_config_args`
_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text in quotes"}
_PAUSE = 2.0  # seconds between two queries for the status, once the log has ended
_ERROR = re.compile(r"fbo_flower\.errors\.(\w+Error): (.+)")  # the last line of a traceback
_MAX_REASON = 500  # characters
_ATTEMPTS = 3  # queries without an answer, after which the SuperLink counts as lost
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
    directory = path_of(app, "app").absolute()
    command = [sys.executable, "-m", __name__, str(directory), json.dumps(components)]
    # a path may be relative, and the process starts in the app's directory, as an import in it would
    path = os.pathsep.join([str(Path(entry).absolute()) for entry in sys.path if entry])
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": path},
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
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


@dataclass(frozen=True)
class Submission:
    """The settings that go to Flower."""

    run_config: tuple[str, ...]  # texts for `--run-config`
    federation_config: tuple[str, ...]  # texts for `--federation-config`
    files: tuple[Path, ...] = ()  # data file of each simulated node
    results: Path | None = None  # None if the app keeps none, or chooses the directory itself
    journal: bool = False  # whether the same command resumes a run that died


def prepare(
    project: Mapping[str, Any] | None,
    connection: Connection,
    run_config: Sequence[str],
    federation_config: Sequence[str],
    data: str | None,
) -> Submission:
    """Return the settings that go to Flower: paths are absolute, and every simulated node has a data file.

    A simulation in the background has `num-agents` or `num-clients` nodes, whichever key the app has, unless
    files or `num-supernodes` say otherwise.

    Parameters
    ----------
    project : the app's `pyproject.toml`; None: an app of Flower's hub, whose keys are unknown here
    data : pattern of the data files of the simulated nodes; None: none

    Raises
    ------
    ConfigError
        If a key is unknown, a value has the wrong type, or files and nodes do not match.
    """
    given = parse(run_config, "--run-config")
    typed = parse(federation_config, "--federation-config")
    for key in typed:
        _check_key(key, FEDERATION_KEYS, "--federation-config", "Flower's simulation")
    options = {  # of which Flower uses none if it gets a federation config
        key.replace("backend.name", "backend").removeprefix("backend.").replace(".", "-"): value
        for key, value in _flat(connection.options).items()
    }
    nodes = {**options, **typed}
    known = None if project is None else _flat(project["tool"]["flwr"]["app"].get("config", {}))
    for key, value in given.items():
        if known is not None:
            _check_key(
                key, tuple(known), "--run-config", "[tool.flwr.app.config] in the app's pyproject.toml"
            )
            default = known[key]
            is_number = type(value) is int and type(default) is float
            if type(value) is not type(default) and not is_number:
                expected = _KINDS.get(type(default), "another type")
                raise ConfigError(f"--run-config: {key}: expected {expected}, got {value!r}")
    added, settings = {}, {**(known or {}), **given}
    for key in PATHS:
        if isinstance(settings.get(key), str) and settings[key]:
            added[key] = str(_absolute(key, settings[key], connection))
    files = _files(data, settings, nodes, known, connection) if data is not None else ()
    if files:
        added[DATA] = json.dumps([str(path) for path in files]).replace("'", "\\u0027")
        nodes.setdefault(NODES, len(files))
    number = next((key for key in NUMBERS if type(settings.get(key)) is int), NUMBERS[0])
    wanted = settings.get(number)
    if connection.is_background and NODES not in nodes and type(wanted) is int and wanted > 0:
        nodes[NODES] = wanted  # Flower's default is 2 nodes
    _check_nodes(number, wanted, nodes.get(NODES))
    settings |= added
    results = Path(settings["out"]) if added.get("out") else None
    journal = bool(settings.get("journal"))
    replaces = journal or settings.get("overwrite")
    if results is not None and connection.is_local and not replaces and holds_study(results):
        remedy = ", or pass -c overwrite=true" if "overwrite" in (known or {}) else ""
        raise ConfigError(
            f"out: expected a directory without a study, got {results}, which holds one; choose another "
            f"directory{remedy}"
        )
    texts = list(run_config)
    if len(texts) == 1 and texts[0].endswith(".toml"):
        texts = [str(path_of(texts[0]))]
        has_mark = Path(texts[0]).read_bytes().startswith(codecs.BOM_UTF8)  # which Flower cannot read
        if added or has_mark:  # Flower takes a file or pairs, not both
            texts = [f"{key}={_toml(key, value)}" for key, value in given.items() if key not in added]
    texts += [f"{key}={_toml(key, value)}" for key, value in added.items()]
    pairs = [f"{key}={_toml(key, value)}" for key, value in nodes.items()]
    as_typed = nodes in (typed, options)
    return Submission(tuple(texts), tuple(federation_config if as_typed else pairs), files, results, journal)


def parse(texts: Sequence[str], option: str) -> dict[str, Any]:
    """Return the settings in the texts of `--run-config`, as Flower reads them.

    >>> parse(["num-rounds=3 out='a b'", "seed=1"], "--run-config")
    {'num-rounds': 3, 'out': 'a b', 'seed': 1}
    """
    if len(texts) == 1 and texts[0].endswith(".toml"):
        try:
            return _flat(tomllib.loads(read_text(path_of(texts[0]))))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{option}: expected a TOML file, got {texts[0]}: {error}") from error
    values: dict[str, Any] = {}
    for text in texts:
        rest = _PAIR.sub("", text).strip()
        if rest or not text.strip():
            raise ConfigError(
                f"{option}: expected key=value pairs as in 'num-rounds=3', got {rest or text!r}"
            )
        for key, value in _PAIR.findall(text):
            try:
                values |= _flat(tomllib.loads(f"{key} = {value}"))
            except ValueError as error:
                raise ConfigError(
                    f"{option}: {key}: expected a number, true, false, or a text in quotes, as in "
                    f"{key}='{value.strip(chr(39))}' within double quotes, got {value}"
                ) from error
    return values


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _check_key(key: str, known: Sequence[str], option: str, where: str) -> None:
    if key not in known:
        hint = did_you_mean(key, known) or f"; known are {', '.join(known) or 'none'}"
        raise ConfigError(f"{option}: {key}: expected a key of {where}, got an unknown one{hint}")


def _absolute(key: str, text: str, connection: Connection) -> Path:
    """Return an absolute path; a relative one begins where the command was typed, not where Flower runs."""
    path = path_of(text, key)
    if path.is_absolute():
        return path
    if not connection.is_local:
        raise ConfigError(
            f"{key}: expected an absolute path, because the server runs on another computer, got {text!r}"
        )
    return path.absolute()


def _files(
    pattern: str,
    settings: Mapping[str, Any],
    nodes: Mapping[str, Any],
    known: Mapping[str, Any] | None,
    connection: Connection,
) -> tuple[Path, ...]:
    """Return the files of the simulated nodes, in natural order: `site-2` before `site-10`."""
    if known is not None and DATA not in known:
        raise ConfigError(
            f'--data: expected an app that reads it, got one without the key "{DATA}"; add {DATA} = "" to '
            "[tool.flwr.app.config] and read the file with fbo_flower.clients.data_file"
        )
    if not connection.is_local:
        raise ConfigError(
            "--data: expected a simulation on this computer, got a connection to another one; on real "
            'devices the operator sets data="PATH" in node_config'
        )
    files = data_files(pattern)
    wanted = nodes.get(NODES, len(files))
    if isinstance(wanted, int) and wanted > len(files):
        raise ConfigError(f"--data: expected a file for each of {wanted} nodes, got {len(files)} files")
    return files


def _check_nodes(name: str, wanted: object, nodes: object) -> None:
    if isinstance(wanted, int) and isinstance(nodes, int) and wanted > nodes:
        raise ConfigError(
            f"{name}: expected at most {nodes}, the number of simulated nodes, got {wanted}; add "
            f"--federation-config {NODES}={wanted}"
        )


def _toml(key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    quote = next((quote for quote in ("'", '"') if quote not in value), None)
    if quote is None:
        raise ConfigError(f"{key}: expected a text without both kinds of quotes, got {value!r}")
    if quote == '"' and "\\" in value:
        raise ConfigError(f"{key}: expected a path without backslash and single quote, got {value!r}")
    return f"{quote}{value}{quote}"


def run_app(
    app: str = ".",
    connection: str | None = None,
    *,
    run_config: list[str] | None = None,
    federation_config: list[str] | None = None,
    data: str | None = None,
    debug: bool = False,
    quiet: bool = False,
) -> None:
    """Run a Flower app and show its log.

    The exit status is 0 only if the run succeeded. It is 2 if a setting cannot be used, and 1 after any other
    error.

    Example: fbo-flower run my-app deploy -c 'num-agents=3'

    Parameters
    ----------
    app : Directory of the Flower app.
    connection : Name of a SuperLink in Flower's config.toml; default: the one that config.toml names.
    run_config : Settings of the app, passed to flwr: 'key=value ...'; repeatable.
    federation_config : Settings of the simulation, passed to flwr: 'num-supernodes=4'; repeatable.
    data : Files of the simulated nodes, one each, in natural order: 'dir/*.csv'. They decide the number of
        nodes.
    """
    if data is not None and connection is not None and Path(connection).is_file():
        raise ConfigError("--data: expected a pattern in quotes, as in --data 'dir/*.csv', got several files")
    project = read_app(app)
    target = read_connection(connection)
    settings = prepare(project, target, run_config or (), federation_config or (), data)
    environment = check_simulation(target)
    missing = [] if project is None else missing_dependencies(project)
    if project is not None and not missing:
        check_app(app, project, runs_here=target.is_background)
    flower = FlowerCLI(connection, install_dependencies=bool(missing), environment=environment)
    if missing and not quiet:
        typer.echo(
            f"Not installed here, Flower needs an index for them: {', '.join(missing)}",
            err=True,
        )
    run_id, where = "", "" if connection is None else f" {connection}"

    def said() -> str:
        if not run_id:
            return f"flwr list{where} shows whether the run was submitted"
        return f"run {run_id} is still running; flwr stop {run_id}{where} ends it"

    with in_order(said):
        run_id = flower.submit(app, settings.run_config, settings.federation_config)
        if not quiet:
            _announce(run_id, settings)
            if target.is_background:
                typer.echo("Starting Ray, which takes some seconds", err=True)
            flower.stream(run_id, everything=debug)
        while not (status := _status(flower, run_id, settings.journal)).is_over:
            time.sleep(_PAUSE)
            if not quiet:
                flower.stream(run_id, everything=debug)
    if not status.succeeded:
        reason = " ".join(status.details.split()) or "see flwr log for the reason"
        hint = (
            f"; the SuperLink installs dependencies itself unless it was started with {NO_INSTALLATION}=1 or "
            "--disable-runtime-dependency-installation"
            if not missing and any(word in reason.lower() for word in ("dependenc", "uv sync"))
            else ""
        )
        kind, found = _error_in(flower.log(run_id))
        raise kind(f"run {run_id} {status.status}: {found or reason}{hint}")
    if not quiet:
        typer.echo(f"Run {run_id} {status.status}", err=True)
        if settings.results is not None:
            typer.echo(f"Results: {settings.results}", err=True)


def _error_in(log: str) -> tuple[type[FBOError], str]:
    r"""Return the kind and the text of the last error of this package in a run's log; "" if there is none.

    An agent's error reaches the server as text, and the status of a run may say only that the run failed.

    >>> _error_in("Traceback ...\\nfbo_flower.errors.ConfigError: space: expected a SearchSpace, got a dict")
    (<class 'fbo_flower.errors.ConfigError'>, 'space: expected a SearchSpace, got a dict')
    """
    found = _ERROR.findall(log)
    if not found:
        return FBOError, ""
    name, text = found[-1]
    return (ConfigError if name == "ConfigError" else FBOError), text.strip()[:_MAX_REASON]


def _announce(run_id: str, settings: Submission) -> None:
    from fbo_flower.clients.operator import names_of_files

    typer.echo(f"Run {run_id}", err=True)
    if settings.results is not None:
        typer.echo(f"Results will be in {settings.results}", err=True)
    for name, path in zip(names_of_files(settings.files), settings.files, strict=True):
        typer.echo(f"Agent {name}: {path}", err=True)


def _status(flower: FlowerCLI, run_id: str, journal: bool) -> RunStatus:
    """Return the status of a run; FBOError if the SuperLink cannot be reached any more."""
    for attempt in range(_ATTEMPTS):
        try:
            return flower.status(run_id)
        except ConfigError as error:
            reason = error
            if attempt < _ATTEMPTS - 1:
                time.sleep(_PAUSE)
    remedy = (
        "run the same command again to resume"
        if journal
        else "run the same command again; with journal='FILE' in --run-config it would resume"
    )
    raise FBOError(f"run {run_id}: the SuperLink cannot be reached any more; {remedy} ({reason})") from reason


if __name__ == "__main__":
    answer = mistake_in(Path(sys.argv[1]), json.loads(sys.argv[2]))
    print("\n" + json.dumps(answer), flush=True)
    os._exit(0)  # threads that the app has started must not keep this process alive
