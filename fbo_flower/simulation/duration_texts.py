"""Durations as texts, for the command line: the name of a distribution and its numbers.

- `constant:SECONDS`: every evaluation takes the same time;
- `lognormal:MEDIAN,SIGMA`: log-normal; a third number is the spread of the agents' own medians;
- `heavy:SHORTEST,EXPONENT`: Pareto; the mean is infinite for an exponent up to 1;
- `table:FILE`: measured ones, from a CSV file with the columns `agent` and `seconds` and a row per trial in
  order, or from the `times.csv` of a study.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path

from fbo_flower.errors import ConfigError, did_you_mean
from fbo_flower.simulation.durations import Duration, constant, durations, heavy_tailed, log_normal
from fbo_flower.study.csv_cells import unguard

FORMS = "constant:SECONDS, lognormal:MEDIAN,SIGMA, heavy:SHORTEST,EXPONENT or table:FILE"
_KINDS: dict[str, tuple[Callable[..., Duration], int, int]] = {  # name -> function, fewest and most numbers
    "constant": (constant, 1, 1),
    "lognormal": (log_normal, 2, 3),
    "heavy": (heavy_tailed, 2, 2),
}


def parse_durations(text: str) -> Duration:
    """Return the durations in a text.

    Raises
    ------
    ConfigError
        If the text has another form, a number is out of bounds, or the file of a table cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> parse_durations("constant:2.5")("north", 0, np.random.default_rng(0))
    2.5
    """
    name, _, rest = text.partition(":")
    if name == "table" and rest:
        return durations(_read_table(Path(rest)))
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
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            names = set(rows.fieldnames or ())
            if not {"agent", "seconds"} <= names and not {"agent", "started", "ended"} <= names:
                raise ConfigError(
                    f"durations: {path}: expected the columns agent and seconds, or the times.csv of a "
                    f"study, got {', '.join(sorted(names)) or 'none'}"
                )
            for row in rows:
                measured = "seconds" not in names
                seconds = float(row["ended"]) - float(row["started"]) if measured else float(row["seconds"])
                found.setdefault(unguard(row["agent"]), []).append(seconds)
    except OSError as error:
        raise ConfigError(f"durations: {path}: cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, csv.Error) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"durations: {path}: expected a CSV file with numbers, {error}") from error
    return found
