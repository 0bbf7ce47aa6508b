"""The settings of one `fbo-flower simulate`, checked before it runs and saved so that it can be resumed.

`FILE.py:FUNCTION` names a user's function; its data files are agents, and a TOML file is its search space.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from glob import glob, has_magic
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fbo_flower.errors import ConfigError, did_you_mean
from fbo_flower.simulation.durations import Clock
from fbo_flower.simulation.settings import Agents, Async, Start, Sync
from fbo_flower.storage.files import atomic_file
from fbo_flower.storage.paths import file_name, path_of, read_text
from fbo_flower.study.ranking import natural_order

if TYPE_CHECKING:
    from fbo_flower.algorithms import Algorithm
    from fbo_flower.simulation.problems import Problem
    from fbo_flower.space import SearchSpace
    from fbo_flower.study.study import Study


def load_function(text: str) -> Callable[..., float]:
    """Return the function that "FILE.py:FUNCTION" names.

    The module is not registered under a name, so that Ray sends the function itself to its workers. Its
    folder stays on the path of this process and of those that it starts: it can import its neighbours.
    """
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise ConfigError(f"function: expected FILE.py:FUNCTION, such as score.py:score, got {text!r}")
    file = path_of(path, "function").resolve()
    if not file.is_file():
        raise ConfigError(f"function: expected a file {path}, found none")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"function: expected a Python file, got {path}")
    module = importlib.util.module_from_spec(spec)
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"function: {path} cannot be run ({type(error).__name__}: {error})") from error
    function = getattr(module, name, None)
    if not callable(function):
        known = [own for own, value in vars(module).items() if callable(value)]
        raise ConfigError(
            f"function: expected a function {name} in {path}, found none{did_you_mean(name, known)}"
        )
    return function  # type: ignore[no-any-return]  # what it returns is checked at every evaluation


def data_files(pattern: str) -> tuple[Path, ...]:
    """Return the files of a pattern, in natural order: `site-2` before `site-10`."""
    root = path_of(pattern, "--data")
    if root.is_dir():
        raise ConfigError(f"--data: expected a pattern of files, got a directory; try '{pattern}/*.csv'")
    found = [Path(path) for path in glob(str(root)) if Path(path).is_file()]
    if not found:
        raise ConfigError(
            f"--data: expected files, found none at {pattern!r}"
            + ("" if has_magic(pattern) else "; quote a pattern, as in --data 'dir/*.csv'")
        )
    return tuple(path.absolute() for path in sorted(found, key=lambda path: natural_order(str(path))))


def read_space(path: Path) -> SearchSpace:
    """Return the search space of a TOML file.

    A parameter is a list of choices, or a table with `low` and `high` (`log`, `active_when`) or `choices`. It
    is an integer if both ends are; `kind` says otherwise: "float", "int", "categorical" or "ordinal".
    """
    from fbo_flower.space import SearchSpace

    try:
        tables = tomllib.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--space: {path} cannot be read ({error})") from error
    parameters = [{"name": name, **_parameter(name, table)} for name, table in tables.items()]
    try:
        return SearchSpace.from_json(json.dumps({"parameters": parameters}, sort_keys=True))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"--space: {path}: {error}") from error


def _parameter(name: str, table: Any) -> dict[str, Any]:
    if isinstance(table, list):
        return {"kind": "categorical", "choices": table}
    if not isinstance(table, Mapping):
        raise ConfigError(
            f"--space: {name}: expected a list of choices, or a table such as {{low = 0.1, high = 10}}, got "
            f"{table!r}"
        )
    own = dict(table)
    ends = own.get("low"), own.get("high")
    kind = "categorical" if "choices" in own else "int" if all(type(end) is int for end in ends) else "float"
    own.setdefault("kind", kind)
    if own["kind"] in {"float", "int"}:
        own.setdefault("log", False)
    if own["kind"] == "float":
        own |= {end: float(own[end]) for end in ("low", "high") if type(own.get(end)) is int}
    if isinstance(parents := own.get("active_when"), Mapping):
        own["active_when"] = {
            parent: values if isinstance(values, list) else [values] for parent, values in parents.items()
        }
    return own


PLAN = "simulate.json"
RUNS, LATEST = Path("runs"), "latest"
JOURNALS = "journals"
_DAMAGED = (
    AttributeError, ValueError, TypeError, KeyError, OSError, RecursionError, click.BadParameter,
)  # fmt: skip


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

    def make(self) -> Algorithm[Any]:
        """Return the algorithm with its options."""
        from fbo_flower.algorithms import make_algorithm

        return make_algorithm(self.algorithm, self.options)


@dataclass(frozen=True)
class SimulationPlan:
    """The settings of one `fbo-flower simulate`; its files have absolute paths, so that it can be resumed."""

    given: Mapping[str, Any]  # the options of the command, as JSON values, which `save` writes
    contestants: tuple[Contestant, ...]
    agents: Agents
    rounds: Sync | Async
    start: Start

    @staticmethod
    def of(given: Mapping[str, Any]) -> SimulationPlan:
        """Return the plan of the command's options; ConfigError if two contradict each other."""
        durations = given["durations"]
        if durations is not None and durations.startswith("table:"):
            durations = f"table:{_absolute(durations.removeprefix('table:'))}"
        absolute = {"warm_start": _absolute(given["warm_start"]), "optuna": _storage(given["optuna"])}
        function, data, space = given["function"], given["data"], given["space"]
        if function is None:
            if extra := [name for name in ("data", "space", "minimize") if given[name]]:
                raise ConfigError(f"--{extra[0]}: expected FILE.py:FUNCTION as well, got a bundled problem")
        else:
            for name, value in {"--data": data, "--space": space}.items():
                if value is None:
                    remedy = "see fbo-flower simulate --help"
                    raise ConfigError(f"{name}: expected with {function}, got none; {remedy}")
            if given["agents"] is not None or given["problem_option"]:
                raise ConfigError(
                    "--agents, --problem-option: expected with a bundled problem only; files are agents"
                )
            file, colon, own = function.rpartition(":")
            absolute["function"] = f"{_absolute(file)}{colon}{own}" if file else function
            absolute |= {"data": str(path_of(data, "--data").absolute()), "space": _absolute(space)}
        given = {**given, **absolute, "durations": durations}
        sites = parse_options(given["site_option"] or (), "--site-option")
        algorithm, options = given["algorithm"], parse_options(given["option_"] or (), "--option")
        first = Contestant(given["label"] or algorithm, algorithm, options)
        parallel = {name: given[name] for name in ("num_parallel", "trial_timeout")}
        return SimulationPlan(
            given,
            (first, *map(Contestant.parse, given["compare"] or ())),
            Agents(limits=_limits(given["limits"])[1], site_options=sites, **parallel),
            _rounds(given),
            Start((), given["prior_rounds"], given["prior_algorithm"], None, given["warm_start"]),
        )

    def check(self) -> Problem:
        """Return the problem; ConfigError if a setting is wrong."""
        from fbo_flower.algorithms.aims import Aims
        from fbo_flower.clients.operator import names_of_files
        from fbo_flower.simulation.agents import own_objective
        from fbo_flower.simulation.durations import duration_of
        from fbo_flower.simulation.engines import engine_name
        from fbo_flower.simulation.problems import make_problem
        from fbo_flower.space.checks import check_integer

        given = self.given
        options = parse_options(given["problem_option"] or (), "--problem-option")
        labels = [contestant.label for contestant in self.contestants]
        if twice := sorted({name for name in labels if labels.count(name) > 1}):
            raise ConfigError(
                f"label: expected a different label for every algorithm, got {', '.join(twice)} twice; "
                "set them with --label and label=..."
            )
        for name in ("rounds", "trials"):
            if given[name] is not None:
                check_integer(name, given[name], 1)
        if given["rounds"] is not None and given["trials"] is not None:
            raise ConfigError("--trials: expected either --rounds or --trials, got both; leave one out")
        engine_name(given["engine"])
        duration_of(self.rounds.clock, given["engine"])  # checks its arguments
        aims = {"objectives": given["objectives"], "limits": _limits(given["limits"])[0]}
        problem: Problem
        if given["function"] is None:
            options |= {name: text for name, text in aims.items() if text is not None}
            problem = make_problem(given["problem"], given["agents"], given["seed"], options)
        else:
            files = data_files(given["data"])  # each is the data of an agent of its name
            agents = dict(zip(names_of_files(files), files, strict=True))
            function, space = load_function(given["function"]), read_space(Path(given["space"]))
            own = Aims.of(given["minimize"], **aims)
            problem = own_objective(function, space, agents, given["seed"], own, ())
        problem.check_data()
        warm = self.start.warm_start
        if warm is not None and not any(self.warm(contestant) for contestant in self.contestants):
            names = ", ".join(dict.fromkeys(contestant.algorithm for contestant in self.contestants))
            raise ConfigError(f"--warm-start: expected messages of {names} in {warm}, found none")
        for contestant in self.contestants:
            self._check(contestant, problem)
        return problem

    def warm(self, contestant: Contestant) -> str | None:
        """Return the directory with messages of the contestant's algorithm, from which it starts; or None."""
        from fbo_flower.storage.warm_start import WarmStart

        directory = self.start.warm_start
        if directory is None or not WarmStart.holds(directory, contestant.algorithm):
            return None
        return str(directory)

    def directory(self) -> Path:
        """Return the default directory of the results, which no earlier run has."""
        function = self.given["function"]
        problem = self.given["problem"] if function is None else function.rpartition(":")[2]
        return default_directory(problem, self.contestants, self.given["seed"], datetime.now())

    def save(self, directory: Path) -> None:
        """Write the options into `directory`, where `read_plan` finds them."""
        with atomic_file(directory / PLAN, text=True) as stream:
            stream.write(json.dumps(self.given, indent=2) + "\n")

    def extent(self, contestant: Contestant, first: Study | None) -> tuple[int | None, int | None]:
        """Return an algorithm's `num_rounds` and `num_trials`, as `simulate` takes them.

        All algorithms get the same evaluations: `--trials`, or those of the first algorithm, whose rounds or
        whose own budget count. An algorithm that names a budget of its own keeps it, without `--trials`.

        Parameters
        ----------
        first : the study of the first algorithm, once it has ended
        """
        from fbo_flower.algorithms.protocol import DEFAULT_TRIALS
        from fbo_flower.reports.summary import evaluations_of

        rounds, trials = self.given["rounds"], self.given["trials"]
        leader, own = self.contestants[0].make(), contestant.make()
        keeps = own.roles or leader.roles or own.budget_option in contestant.options
        if trials is None and not keeps:
            if contestant is not self.contestants[0] and isinstance(self.rounds, Sync) and rounds:
                made = evaluations_of(first, first.algorithms[0]) if first else {}
                trials = max(made.values(), default=None)
            elif rounds is None:
                trials = leader.options().get(leader.budget_option, DEFAULT_TRIALS)
        return None if trials else rounds, trials

    def _check(self, contestant: Contestant, problem: Problem) -> None:
        """Raise ConfigError if an algorithm cannot run with these settings."""
        from fbo_flower.algorithms.protocol import with_budget
        from fbo_flower.simulation.agents import check_agents
        from fbo_flower.strategies.settings import StrategySettings

        algorithm = contestant.make()
        with_budget(algorithm, self.extent(contestant, None)[1])
        algorithm.check(problem.space)
        given = {name: self.given[name] for name in ("fraction", "quorum", "mode", "max_staleness")}
        StrategySettings(label=contestant.label, **given).check_algorithm(algorithm)
        check_agents(problem, algorithm, self.agents, self.given["engine"], self.rounds.clock is not None)


def read_plan(directory: Path, command: click.Command | None = None) -> SimulationPlan:
    """Return the plan that `save` wrote; ConfigError if there is none, or `command` takes no such options."""
    path = path_of(directory) / PLAN
    try:
        given = json.loads(read_text(path))
        for option in () if command is None else command.params:
            if option.name in given:
                option.type_cast_value(click.Context(command or click.Command("")), given[option.name])
        return SimulationPlan.of(given)
    except FileNotFoundError as error:
        raise ConfigError(
            f"--resume: expected the directory of a run with --journal, got {directory}"
        ) from error
    except _DAMAGED as error:
        raise ConfigError(
            f"--resume: expected the settings of a run in {path}, got {type(error).__name__}: {error}; "
            "restore a copy of the file, or start a new study with another --out"
        ) from error


def _limits(texts: Sequence[str] | None) -> tuple[str | None, dict[str, str] | None]:
    """Return the limits of all agents, and each agent's own: "north: size <= 5"."""
    parts = [text.rpartition(": ") for text in texts or ()]
    found = {owner: ", ".join(own for agent, _, own in parts if agent == owner) for owner, _, _ in parts}
    return found.pop("", None), found or None


def _rounds(given: Mapping[str, Any]) -> Sync | Async:
    """Return the rounds of `--mode`; `check` compares it with the other options."""
    seconds = given["exchange_seconds"]
    if given["durations"] is None and seconds:
        raise ConfigError("exchange_seconds: expected durations as well, got none")
    clock = None if given["durations"] is None else Clock(given["durations"], seconds)
    if given["mode"] == "async":
        return Async(given["max_staleness"], clock)
    return Sync(given["fraction"], given["quorum"], clock)


def _absolute(path: str | Path | None) -> str | None:
    return None if path is None else str(path_of(path).resolve())


def _storage(optuna: str | None) -> str | None:
    if optuna is None:
        return None
    from fbo_flower.study.optuna import SQLITE, storage_name

    name = str(storage_name(optuna))
    if "://" in name and not name.startswith(SQLITE):
        return name
    prefix = SQLITE if name.startswith(SQLITE) else ""
    return f"{prefix}{_absolute(name.removeprefix(prefix))}"


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
    name = file_name(f"{problem}-{names}".lower().replace(" ", "-"))
    path = RUNS / f"{name}-seed{seed}-{now:%Y%m%d-%H%M%S}"
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
