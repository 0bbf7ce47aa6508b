"""The settings of one `fbo-flower simulate`, checked before it runs and saved so that it can be resumed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from fbo_flower.errors import ConfigError, did_you_mean
from fbo_flower.storage.files import atomic_file

if TYPE_CHECKING:
    from fbo_flower.simulation.problems import Problem

PLAN = "simulate.json"
RUNS, LATEST = Path("runs"), "latest"
JOURNALS = "journals"


_PLAN_KINDS: dict[str, tuple[type, ...]] = {
    "problem": (str,), "problem_options": (dict,), "agents": (int, NoneType), "seed": (int,),
    "contestants": (list,), "rounds": (int, NoneType), "engine": (str,), "prior_rounds": (int,),
    "prior_algorithm": (str,), "fraction": (int, float), "site_options": (dict,),
    "warm_start": (str, NoneType), "mode": (str,), "durations": (str, NoneType),
    "max_staleness": (int, NoneType), "exchange_seconds": (int, float), "quorum": (int, float),
    "optuna": (str, NoneType),
    "num_parallel": (int,), "trial_timeout": (int, float),
}  # fmt: skip
_CONTESTANT_KINDS: dict[str, tuple[type, ...]] = {"label": (str,), "algorithm": (str,), "options": (dict,)}


def _of_kinds(values: Any, kinds: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """Return an object from a JSON file; TypeError if a value has another type than expected."""
    if type(values) is not dict:
        raise TypeError(f"a {type(values).__name__} in place of an object")
    for name, value in values.items():
        if type(value) not in kinds.get(name, ()):
            raise TypeError(f"{name}: {value!r:.80}")
    return values


@dataclass(frozen=True)
class Contestant:
    """An algorithm with its options and the label that it gets in tables and pictures."""

    label: str
    algorithm: str
    options: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Contestant:
        """Parse the text of one `--compare`.

        >>> Contestant.parse("fts advice=portfolio label='fts portfolio'")
        Contestant(label='fts portfolio', algorithm='fts', options={'advice': 'portfolio'})
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ConfigError(f"--compare: {error}, got {text!r}") from error
        if not words:
            raise ConfigError(
                "--compare: expected the name of an algorithm and its options, got an empty text"
            )
        options = parse_options(words[1:], "--compare")
        return Contestant(str(options.pop("label", " ".join(words))), words[0], options)


@dataclass(frozen=True)
class SimulationPlan:
    """The settings of one `fbo-flower simulate`; all are JSON values."""

    problem: str
    problem_options: dict[str, Any]
    agents: int | None
    seed: int
    contestants: tuple[Contestant, ...]
    rounds: int | None
    engine: str
    prior_rounds: int
    prior_algorithm: str
    fraction: float
    site_options: dict[str, Any]
    warm_start: str | None = None
    mode: str = "sync"
    durations: str | None = None
    exchange_seconds: float = 0.0
    quorum: float = 1.0
    max_staleness: int | None = None
    optuna: str | None = None
    num_parallel: int = 1
    trial_timeout: float = 0.0

    def check(self) -> tuple[Problem, dict[str, int | None]]:
        """Return the problem and each contestant's number of rounds; ConfigError if a setting is wrong."""
        from fbo_flower.algorithms import make_algorithm
        from fbo_flower.algorithms.options import check_number
        from fbo_flower.simulation.agents import check_parallel
        from fbo_flower.simulation.clock import SimulatedClock
        from fbo_flower.simulation.engines import ENGINES
        from fbo_flower.simulation.problems import make_problem
        from fbo_flower.strategies.async_loop import check_staleness

        _check_labels(self.contestants)
        if self.rounds is not None:
            check_number("rounds", self.rounds, 1, integer=True)
        check_number("prior_rounds", self.prior_rounds, 0, integer=True)
        check_number("fraction", self.fraction, 1e-9, 1.0)
        check_number("quorum", self.quorum, 1e-9, 1.0)
        if self.engine not in ENGINES:
            raise ConfigError(
                f"engine: expected one of {', '.join(ENGINES)}, got {self.engine!r}"
                f"{did_you_mean(self.engine, ENGINES)}"
            )
        SimulatedClock(self.durations, self.seed, self.exchange_seconds, self.engine)  # checks its arguments
        check_staleness(self.max_staleness, self.mode)
        make_algorithm(self.prior_algorithm, {})
        problem = make_problem(self.problem, self.agents, self.seed, self.problem_options)
        problem.check_data()
        timed = self.durations is not None
        check_parallel(self.num_parallel, self.trial_timeout, problem, self.engine, timed)
        if self.warm_start is not None and not any(self.warm(c) for c in self.contestants):
            names = ", ".join(dict.fromkeys(c.algorithm for c in self.contestants))
            raise ConfigError(f"--warm-start: expected messages of {names} in {self.warm_start}, found none")
        return problem, {c.label: self._num_rounds(c, problem) for c in self.contestants}

    def warm(self, contestant: Contestant) -> str | None:
        """Return the directory with messages of the contestant's algorithm, from which it starts; or None."""
        from fbo_flower.storage.warm_start import WarmStart

        known = self.warm_start is not None and WarmStart.holds(self.warm_start, contestant.algorithm)
        return self.warm_start if known else None

    def directory(self) -> Path:
        """Return the default directory of the results, which no earlier run has."""
        return default_directory(self.problem, self.contestants, self.seed, datetime.now())

    def save(self, directory: Path) -> None:
        """Write the plan into `directory`, where `load` finds it."""
        with atomic_file(directory / PLAN, text=True) as stream:
            stream.write(json.dumps(asdict(self), indent=2) + "\n")

    @staticmethod
    def load(directory: Path) -> SimulationPlan:
        """Return the plan that `save` wrote; ConfigError if there is none."""
        path = directory / PLAN
        try:
            values = _of_kinds(json.loads(path.read_text(encoding="utf-8")), _PLAN_KINDS)
            contestants = [_of_kinds(c, _CONTESTANT_KINDS) for c in values.pop("contestants")]
            return SimulationPlan(contestants=tuple(Contestant(**c) for c in contestants), **values)
        except FileNotFoundError as error:
            raise ConfigError(
                f"--resume: expected the directory of a run with --journal, got {directory}"
            ) from error
        except (ValueError, TypeError, KeyError, OSError, RecursionError) as error:
            raise ConfigError(
                f"--resume: expected the settings of a run in {path}, got {type(error).__name__}: {error}; "
                "restore a copy of the file, or start a new study with another --out"
            ) from error

    def _num_rounds(self, contestant: Contestant, problem: Problem) -> int | None:
        """Return an algorithm's number of rounds; None: until the algorithm is finished."""
        from fbo_flower.algorithms import make_algorithm
        from fbo_flower.algorithms.protocol import DEFAULT_ROUNDS
        from fbo_flower.simulation.agents import check_roles
        from fbo_flower.strategies.async_loop import check_mode

        algorithm = make_algorithm(contestant.algorithm, contestant.options)
        algorithm.check(problem.space)
        check_mode(self.mode, algorithm.barrier, algorithm.name, self.fraction, self.quorum)
        check_roles(problem, algorithm, self.site_options)
        return self.rounds or (None if algorithm.finishes else DEFAULT_ROUNDS)


def parse_options(pairs: Iterable[str], source: str) -> dict[str, Any]:
    """Parse `key=value` pairs; a value that is not JSON is taken as text.

    >>> parse_options(["advice=portfolio", "num-features=50"], "--option")
    {'advice': 'portfolio', 'num_features': 50}
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{source}: expected key=value, got {pair!r}")
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = value
        options[key.strip().replace("-", "_")] = parsed
    return options


def default_directory(problem: str, contestants: Sequence[Contestant], seed: int, now: datetime) -> Path:
    """Return `runs/PROBLEM-ALGORITHMS-seedSEED-DATE-TIME`, with a number if that is taken."""
    names = "-".join(contestant.label for contestant in contestants)
    path = RUNS / f"{slug(f'{problem}-{names}')[:100]}-seed{seed}-{now:%Y%m%d-%H%M%S}"
    numbered = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(candidate for candidate in chain([path], numbered) if not candidate.exists())


def point_latest_at(directory: Path) -> None:
    """Let `latest`, beside a default directory, point at it; without effect where links are not allowed."""
    link, temporary = directory.with_name(LATEST), directory.with_name(f".{directory.name}.link")
    if link.exists() and not link.is_symlink():
        return  # somebody's own directory
    with suppress(OSError):
        temporary.symlink_to(directory.name, target_is_directory=True)
        temporary.replace(link)


def slug(text: str) -> str:
    """Return a text in a form that is safe in a file name."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")


def _check_labels(contestants: Sequence[Contestant]) -> None:
    labels = [contestant.label for contestant in contestants]
    twice = sorted({name for name in labels if labels.count(name) > 1})
    if twice:
        raise ConfigError(
            f"label: expected a different label for every algorithm, got {', '.join(twice)} twice; "
            "set them with --label and label=..."
        )
