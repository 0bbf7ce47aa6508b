"""Settings of the bundled Flower app, which its server and its agents read from the run config.

Flower passes flat, kebab-case keys with plain values; `pyproject.toml` declares each key with its default and
a comment. Options of the algorithm and of the problem are JSON objects in a string.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from fbo_flower.algorithms import Algorithm, make_algorithm
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.problems import Problem, make_problem
from fbo_flower.simulation.settings import Sync
from fbo_flower.space.checks import check_flag, check_integer, check_number
from fbo_flower.storage.paths import path_of
from fbo_flower.strategies import TuningStrategy
from fbo_flower.strategies.settings import check_extent
from fbo_flower.study.directory import Keep
from fbo_flower.trackers import OptunaTracker

Options = Mapping[str, Any]


@dataclass(frozen=True)
class AppConfig:
    """The run config of the bundled app; the comments in `pyproject.toml` say what each key means."""

    problem: str
    problem_options: Options
    objectives: str
    limits: str
    algorithm: str
    options: Options
    num_agents: int
    num_rounds: int
    num_trials: int
    seed: int
    fraction: float
    wait_seconds: float
    round_timeout: float
    quorum: float
    mode: str
    max_staleness: int
    label: str
    out: Path | None
    overwrite: bool
    optuna: str
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
        whole, number = partial(check_integer, low=-1), partial(check_number, low=0.0)
        readers: dict[str, Callable[[str, Any], object]] = {
            "str": _text,
            "int": whole,
            "float": number,
            "bool": check_flag,
            "Path | None": _path,
        }
        found: dict[str, Any] = {}
        for field in fields(AppConfig):
            key = field.name.replace("_", "-")
            if key not in run_config:
                raise ConfigError(
                    f"{key}: expected in [tool.flwr.app.config] of pyproject.toml, but it is missing; add it "
                    "there"
                )
            found[field.name] = readers.get(str(field.type), _options)(key, run_config[key])
        return AppConfig(**found)

    def __post_init__(self) -> None:
        # what the strategy's settings and `Keep` check is checked there
        Sync(self.fraction, self.quorum)
        Keep(self.out, self.journal and self.journal.parent, self.resume)
        for name in ("num-agents", "num-rounds", "num-trials", "seed", "max-staleness"):
            check_integer(name, getattr(self, name.replace("-", "_")), -1 if name == "max-staleness" else 0)
        check_extent(self.num_rounds or None, self.num_trials or None)
        file = self.optuna.removeprefix("sqlite:///")
        if file and "://" not in file and not path_of(file, "optuna").is_absolute():
            raise ConfigError(
                "optuna: expected a URL such as 'sqlite:////srv/study.db' with an absolute file, because the "
                f"app runs in another directory than `flwr run`, got {self.optuna!r}"
            )

    def made(self) -> Algorithm[Any]:
        """Return the algorithm with its options."""
        return make_algorithm(self.algorithm, self.options)

    def problem_of(self, num_agents: int | None) -> Problem:
        """Return the problem for a number of agents; None: its own number."""
        aims = {name: text for name in ("objectives", "limits") if (text := getattr(self, name))}
        return make_problem(self.problem, num_agents or None, self.seed, {**self.problem_options, **aims})

    def strategy(self) -> TuningStrategy:
        """Return the strategy."""
        return TuningStrategy(
            self.made(),
            num_agents=self.num_agents or None,
            seed=self.seed,
            fraction=self.fraction,
            wait_seconds=self.wait_seconds,
            round_timeout=self.round_timeout,
            quorum=self.quorum,
            label=self.label or None,
            callbacks=[OptunaTracker(self.optuna)] if self.optuna else [],
        )

    def how_to_start(self) -> dict[str, Any]:
        """Return the arguments of the strategy's `start`."""
        staleness = None if self.max_staleness < 0 else self.max_staleness
        return {
            "num_rounds": self.num_rounds or None, "num_trials": self.num_trials or None,
            "journal": self.journal, "resume": self.resume, "mode": self.mode, "max_staleness": staleness,
        }  # fmt: skip

    def directory(self, run_id: int) -> Path:
        """Return the directory of the results: `out`, or a directory for this run under `data_home()`."""
        if self.out is not None:
            return self.out
        return data_home() / "fbo-flower" / f"{self.problem}-{self.algorithm}-seed{self.seed}-{run_id}"


def data_home() -> Path:
    """Return the directory in which this platform keeps a user's application data."""
    if xdg := os.environ.get("XDG_DATA_HOME"):
        return path_of(xdg, "XDG_DATA_HOME").absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path.home() / ".local" / "share"


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{key}: expected text in quotes, got {value!r}")
    return value


def _path(key: str, value: Any) -> Path | None:
    text = _text(key, value)
    path = path_of(text, key) if text else None
    if path is not None and not path.is_absolute():
        raise ConfigError(
            f"{key}: expected an absolute path, because the app runs in another directory than `flwr run`, "
            f"got {text!r}"
        )
    return path


def _options(key: str, value: Any) -> Options:
    text = _text(key, value)
    try:
        options = json.loads(text or "{}")
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise ConfigError(f'{key}: expected a JSON object such as {{"num_initial": 5}}, got {text[:80]!r}')
    return {name.replace("-", "_"): value for name, value in options.items()}
