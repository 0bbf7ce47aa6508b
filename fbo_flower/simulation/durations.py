"""How long simulated evaluations take: the same, log-normal, heavy-tailed, or measured ones.

A duration is a function of the agent, its trial and a random generator, so it does not depend on when or
where the trial runs, and a simulation repeats exactly. On the command line it is a text:

- `constant:SECONDS`: every evaluation takes the same time;
- `lognormal:MEDIAN,SIGMA`: log-normal; a third number is the spread of the agents' own medians;
- `heavy:SHORTEST,EXPONENT`: Pareto; the mean is infinite for an exponent up to 1;
- `table:FILE`: measured ones, from a CSV file with the columns `agent` and `seconds` and a row per trial in
  order, or from the `times.csv` of a study.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms.options import Settings, bounded
from fbo_flower.errors import ConfigError, did_you_mean, kind_of
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.checks import as_real, check_integer, check_number
from fbo_flower.space.copies import copies
from fbo_flower.storage.paths import open_text, path_of
from fbo_flower.study.table import unguard

Duration = Callable[[str, int, np.random.Generator], float]  # (agent, trial, rng) -> seconds
Durations = float | Mapping[str, float | Sequence[float]] | Duration


def constant(seconds: float) -> Duration:
    """Return a duration that is always the same."""
    number = float(check_number("seconds", seconds, 0.0))
    return lambda agent, trial, rng: number


def log_normal(median: float = 1.0, sigma: float = 1.0, of_agents: float = 0.0, seed: int = 0) -> Duration:
    """Return log-normal durations.

    Parameters
    ----------
    median : seconds
    sigma : standard deviation of the logarithm, over an agent's trials
    of_agents : standard deviation of the logarithm of the agents' own medians
    seed : of the agents' medians
    """
    median, sigma = check_number("median", median, 0.0), check_number("sigma", sigma, 0.0)
    of_agents, seed = check_number("of_agents", of_agents, 0.0), check_integer("seed", seed, 0)

    def seconds(agent: str, trial: int, rng: np.random.Generator) -> float:
        own = of_agents * generator(seed, "speed", agent).standard_normal() if of_agents else 0.0
        return median * math.exp(own + sigma * rng.standard_normal())

    return seconds


def heavy_tailed(shortest: float = 1.0, exponent: float = 1.5) -> Duration:
    """Return Pareto durations: `P(T > t) = (shortest / t) ** exponent`.

    Parameters
    ----------
    exponent : the mean is infinite up to 1, the variance up to 2
    """
    shortest, exponent = check_number("shortest", shortest, 0.0), check_number("exponent", exponent, 1e-3)
    return lambda agent, trial, rng: float(shortest * (1.0 + rng.pareto(exponent)))


def slower(duration: Duration, factors: Mapping[str, float]) -> Duration:
    """Return a duration that is `factors[agent]` times as long, once for agents that are not named."""
    duration = durations(duration)
    if not isinstance(factors, Mapping):
        raise ConfigError(f"factors: expected a mapping of agents to numbers, got {kind_of(factors)}")
    scales = {agent: check_number(f"factors: {agent}", factor, 0.0) for agent, factor in factors.items()}
    return lambda agent, trial, rng: scales.get(agent, 1.0) * duration(agent, trial, rng)


def durations(given: Durations) -> Duration:
    """Return the duration that a user means by a number, a mapping or a function.

    Parameters
    ----------
    given : seconds of every evaluation; or agent -> seconds, or a table of them, of which trial t takes
        entry t, and begins again after the last; or a function `(agent, trial, rng) -> seconds`
    """
    if isinstance(given, Mapping):
        table = {str(agent): _seconds(agent, value) for agent, value in given.items()}

        def listed(agent: str, trial: int, rng: np.random.Generator) -> float:
            if agent not in table:
                raise ConfigError(f"durations: expected seconds for every agent, got none for {agent!r}")
            return table[agent][trial % len(table[agent])]

        return listed
    if callable(given):
        return given
    if (number := as_real(given)) is not None:
        return constant(number)
    raise ConfigError(f"durations: expected seconds, a mapping or a function, got {kind_of(given)}")


def _seconds(agent: object, value: Any) -> list[float]:
    listed = list(value) if isinstance(value, Sequence | np.ndarray) else [value]
    numbers = [as_real(seconds) for seconds in listed]
    found = [float(number) for number in numbers if number is not None and 0 <= number < math.inf]
    if not found or len(found) < len(listed):
        raise ConfigError(f"durations: expected seconds for {agent!r}, not negative, got {value!r}")
    return found


FORMS = "constant:SECONDS, lognormal:MEDIAN,SIGMA, heavy:SHORTEST,EXPONENT or table:FILE"
_KINDS: dict[str, tuple[Callable[..., Duration], int, int]] = {  # name -> function, fewest and most numbers
    "constant": (constant, 1, 1),
    "lognormal": (log_normal, 2, 3),
    "heavy": (heavy_tailed, 2, 2),
}


def parse_durations(text: str) -> Duration:
    """Return the durations in a text.

    Examples
    --------
    >>> import numpy as np
    >>> parse_durations("constant:2.5")("north", 0, np.random.default_rng(0))
    2.5
    """
    name, _, rest = text.partition(":")
    if name == "table" and rest:
        return durations(_read_table(path_of(rest, "durations")))
    if name not in _KINDS:
        known = (*_KINDS, "table")
        raise ConfigError(f"durations: expected {FORMS}, got {text!r}{did_you_mean(name, known)}")
    make, fewest, most = _KINDS[name]
    try:
        numbers = [float(word) for word in rest.split(",")]
    except ValueError:
        numbers = []
    if not fewest <= len(numbers) <= most or not all(map(math.isfinite, numbers)):
        raise ConfigError(f"durations: expected {FORMS}, with numbers, got {text!r}")
    return make(*numbers)


def _read_table(path: Path) -> dict[str, list[float]]:
    """Return agent -> seconds of its trials, in the order of the rows."""
    found: dict[str, list[float]] = {}
    try:
        with open_text(path) as file:
            rows = csv.DictReader(file)
            names = set(rows.fieldnames or ())
            if not {"agent", "seconds"} <= names and not {"agent", "started", "ended"} <= names:
                raise ConfigError(
                    "expected the columns agent and seconds, or the times.csv of a study, got "
                    f"{', '.join(sorted(names)) or 'none'}"
                )
            for row in rows:
                measured = "seconds" not in names
                seconds = float(row["ended"]) - float(row["started"]) if measured else float(row["seconds"])
                found.setdefault(unguard(row["agent"]), []).append(seconds)
    except OSError as error:
        raise ConfigError(f"durations: {path}: cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, csv.Error) as error:  # ConfigError is a ValueError
        expected = "" if isinstance(error, ConfigError) else "expected a CSV file with numbers, "
        raise ConfigError(f"durations: {path}: {expected}{error}") from error
    return found


@copies("durations")
@dataclass(frozen=True)
class Clock(Settings):
    """A simulated clock, which costs no time; the study's times are then simulated seconds.

    Parameters
    ----------
    durations : how long evaluations take: seconds, agent -> seconds (or a list, one per trial), a function
        `(agent, trial, rng) -> seconds`, or a text: constant:SECONDS, lognormal:MEDIAN,SIGMA,
        heavy:SHORTEST,EXPONENT, or table:FILE (CSV of agents and seconds, such as a times.csv)
    exchange_seconds : how long a task and its reply are on their way together
    """

    durations: Durations | str
    exchange_seconds: float = bounded(0.0, 0.0)


def duration_of(clock: Clock | None, engine: str) -> Duration | None:
    """Return how long the evaluations of a simulation take, or ConfigError; None: there is no clock."""
    if clock is None:
        return None
    if engine == "flower":
        raise ConfigError("clock: expected engine 'inline' or 'ray', got 'flower', which has a real clock")
    return (
        parse_durations(clock.durations) if isinstance(clock.durations, str) else durations(clock.durations)
    )
