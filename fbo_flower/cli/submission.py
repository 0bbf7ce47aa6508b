"""Check and complete the settings of a run before Flower gets them.

Flower checks a run config on the server only, after the app was built, sent and started. What can be known
here is an error here: keys that the app does not have, values of another type, files that do not exist.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

from fbo_flower.cli.flower_cli import Connection
from fbo_flower.cli.own_function import data_files
from fbo_flower.errors import ConfigError, did_you_mean
from fbo_flower.study.directory import holds_study

PATHS = ("out", "journal")  # keys of a run config that name files of the server
DATA, NODES = "data", "num-supernodes"
NUMBERS = ("num-agents", "num-clients")  # keys of a run config that say how many nodes an app waits for
FEDERATION_KEYS = (
    "num-supernodes",
    "client-resources-num-cpus",
    "client-resources-num-gpus",
    "backend",
    "verbose",
    "init-args-num-cpus",
    "init-args-num-gpus",
    "init-args-logging-level",
    "init-args-log-to-driver",
)
_PAIR = re.compile(r"(\S+?)=('[^']*'|\"[^\"]*\"|\S+)")  # as in Flower's `parse_config_args`
_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text in quotes"}


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
    nodes = parse(federation_config, "--federation-config")
    for key in nodes:
        _check_key(key, FEDERATION_KEYS, "--federation-config", "Flower's simulation")
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
    extra_nodes = []
    if files:
        added[DATA] = dumps([str(path) for path in files]).replace("'", "\\u0027")
        if NODES not in nodes:
            extra_nodes.append(f"{NODES}={len(files)}")
            nodes = {**nodes, NODES: len(files)}
    number = next((key for key in NUMBERS if type(settings.get(key)) is int), NUMBERS[0])
    wanted = settings.get(number)
    if connection.is_background and NODES not in nodes and type(wanted) is int and wanted > 0:
        extra_nodes.append(f"{NODES}={wanted}")  # Flower's default is 2 nodes
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
    if added and len(texts) == 1 and texts[0].endswith(".toml"):  # Flower takes a file or pairs, not both
        texts = [f"{key}={_toml(key, value)}" for key, value in given.items() if key not in added]
    texts += [f"{key}={_toml(key, value)}" for key, value in added.items()]
    return Submission(tuple(texts), (*federation_config, *extra_nodes), files, results, journal)


def parse(texts: Sequence[str], option: str) -> dict[str, Any]:
    """Return the settings in the texts of `--run-config`, as Flower reads them.

    >>> parse(["num-rounds=3 out='a b'", "seed=1"], "--run-config")
    {'num-rounds': 3, 'out': 'a b', 'seed': 1}
    """
    if len(texts) == 1 and texts[0].endswith(".toml"):
        try:
            return _flat(tomllib.loads(Path(texts[0]).expanduser().read_text(encoding="utf-8")))
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
    path = Path(text).expanduser()
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
