"""Settings of the bundled Flower app, which its server and its agents read from the run config.

Flower passes flat, kebab-case keys with plain values; `pyproject.toml` declares each key with its default and
a comment. Options of the algorithm and of the problem are JSON objects in a string.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fbo_flower.algorithms import Algorithm, make_algorithm
from fbo_flower.algorithms.options import check_number
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.problems import Problem, make_problem
from fbo_flower.strategies import TuningStrategy
from fbo_flower.trackers import OptunaTracker


@dataclass(frozen=True)
class AppConfig:
    """The run config of the bundled app; the comments in `pyproject.toml` say what each key means."""

    problem: str
    problem_options: Mapping[str, Any]
    algorithm: str
    options: Mapping[str, Any]
    num_agents: int | None
    num_rounds: int
    seed: int
    fraction: float
    wait_seconds: float
    round_timeout: float
    quorum: float
    mode: str
    max_staleness: int | None
    label: str | None
    out: Path | None
    overwrite: bool
    optuna: str | None
    journal: Path | None
    resume: bool

    @staticmethod
    def read(run_config: Mapping[str, Any]) -> AppConfig:
        """Check the run config and return its settings.

        Raises
        ------
        ConfigError
            If a key is missing or a value has the wrong type or is out of bounds.
        """
        num_agents = _number(run_config, "num-agents", 0, integer=True)
        max_staleness = int(_number(run_config, "max-staleness", -1, integer=True))
        resume, journal = _flag(run_config, "resume"), _path(run_config, "journal", "file")
        if resume and journal is None:
            raise ConfigError("resume: expected `journal` to name the file to resume from, got journal = ''")
        return AppConfig(
            problem=_text(run_config, "problem"),
            problem_options=_options(run_config, "problem-options"),
            algorithm=_text(run_config, "algorithm"),
            options=_options(run_config, "options"),
            num_agents=int(num_agents) or None,
            num_rounds=int(_number(run_config, "num-rounds", 1, integer=True)),
            seed=int(_number(run_config, "seed", 0, integer=True)),
            fraction=_number(run_config, "fraction", 1e-9, 1.0),
            wait_seconds=_number(run_config, "wait-seconds", 0.0),
            round_timeout=_number(run_config, "round-timeout", 0.0),
            quorum=_number(run_config, "quorum", 1e-9, 1.0),
            mode=_text(run_config, "mode"),
            max_staleness=max_staleness if max_staleness >= 0 else None,
            label=_text(run_config, "label") or None,
            out=_path(run_config, "out", "directory"),
            overwrite=_flag(run_config, "overwrite"),
            optuna=_storage(run_config, "optuna"),
            journal=journal,
            resume=resume,
        )

    def made(self) -> Algorithm[Any]:
        """Return the algorithm with its options."""
        return make_algorithm(self.algorithm, self.options)

    def problem_of(self, num_agents: int | None) -> Problem:
        """Return the problem for a number of agents; None: its own number."""
        return make_problem(self.problem, num_agents, self.seed, self.problem_options)

    def strategy(self) -> TuningStrategy:
        """Return the strategy."""
        return TuningStrategy(
            self.made().inner,
            num_agents=self.num_agents,
            seed=self.seed,
            fraction=self.fraction,
            wait_seconds=self.wait_seconds,
            round_timeout=self.round_timeout,
            quorum=self.quorum,
            label=self.label,
            callbacks=[] if self.optuna is None else [OptunaTracker(self.optuna)],
        )

    def how_to_start(self) -> dict[str, Any]:
        """Return the arguments of the strategy's `start` that Flower's own does not have."""
        names = "journal", "resume", "mode", "max_staleness"
        return {name: getattr(self, name) for name in names}

    def directory(self, run_id: int) -> Path:
        """Return the directory of the results: `out`, or a directory for this run under `data_home()`."""
        if self.out is not None:
            return self.out
        return data_home() / "fbo-flower" / f"{self.problem}-{self.algorithm}-seed{self.seed}-{run_id}"


def data_home() -> Path:
    """Return the directory in which this platform keeps a user's application data."""
    if xdg := os.environ.get("XDG_DATA_HOME"):
        return Path(xdg).expanduser().absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path.home() / ".local" / "share"


def _get(run_config: Mapping[str, Any], key: str) -> Any:
    if key not in run_config:
        raise ConfigError(
            f"{key}: expected in [tool.flwr.app.config] of pyproject.toml, but it is missing; add it there"
        )
    return run_config[key]


def _text(run_config: Mapping[str, Any], key: str) -> str:
    value = _get(run_config, key)
    if not isinstance(value, str):
        raise ConfigError(f"{key}: expected text in quotes, got {value!r}")
    return value


def _path(run_config: Mapping[str, Any], key: str, kind: str) -> Path | None:
    text = _text(run_config, key)
    path = Path(text).expanduser() if text else None
    if path is not None and not path.is_absolute():
        raise ConfigError(
            f"{key}: expected an absolute {kind}, because the app runs in another directory than `flwr run`, "
            f"got {text!r}"
        )
    return path


def _storage(run_config: Mapping[str, Any], key: str) -> str | None:
    """Return an Optuna storage: a URL, or an absolute file."""
    text = _text(run_config, key)
    if "://" not in text or text.startswith("sqlite:///"):
        file = text.removeprefix("sqlite:///")
        if file and not Path(file).expanduser().is_absolute():
            raise ConfigError(
                f"{key}: expected a URL such as 'sqlite:////srv/study.db' with an absolute file, because the "
                f"app runs in another directory than `flwr run`, got {text!r}"
            )
    return text or None


def _flag(run_config: Mapping[str, Any], key: str) -> bool:
    value = _get(run_config, key)
    if not isinstance(value, bool):
        raise ConfigError(f"{key}: expected true or false, got {value!r}")
    return value


def _number(
    run_config: Mapping[str, Any], key: str, low: float, high: float = float("inf"), *, integer: bool = False
) -> float:
    value = _get(run_config, key)
    check_number(key, value, low, high, integer=integer)
    return value if integer else float(value)


def _options(run_config: Mapping[str, Any], key: str) -> dict[str, Any]:
    text = _text(run_config, key)
    try:
        options = json.loads(text or "{}")
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise ConfigError(f'{key}: expected a JSON object such as {{"num_initial": 5}}, got {text[:80]!r}')
    return {name.replace("-", "_"): value for name, value in options.items()}
