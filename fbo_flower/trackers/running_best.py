"""What trackers derive from trials: the best value so far, and names of series."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fbo_flower.errors import ConfigError
from fbo_flower.study.dataframe import SUCCEEDED
from fbo_flower.study.trial import Trial


@dataclass
class RunningBest:
    """Each agent's best trial so far.

    Parameters
    ----------
    minimize : whether smaller values are better
    """

    minimize: bool = False
    best: dict[str, Trial] = field(default_factory=dict)

    def take(self, trial: Trial) -> float:
        """Note a finished trial and return its agent's best value so far; NaN if none succeeded."""
        sign = -1.0 if self.minimize else 1.0
        before = self.best.get(trial.agent)
        if trial.state == SUCCEEDED and (before is None or sign * (trial.value - before.value) > 0):
            self.best[trial.agent] = trial
        found = self.best.get(trial.agent)
        return math.nan if found is None else found.value


def scalars_of(trial: Trial, best: float) -> dict[str, float]:
    """Return the numbers of a finished trial by name: its value, the best so far, numeric parameters."""
    numbers = {"value": trial.value, "best": best, "failed": float(bool(math.isnan(trial.value)))}
    numbers |= {
        f"config/{name}": float(value)
        for name, value in trial.config.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return finite(numbers)


def finite(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers that are known, that is finite."""
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def missing(tracker: str, package: str, extra: str) -> ConfigError:
    """Return the error that says what to install for a tracker."""
    return ConfigError(f"{tracker}: {package} is not installed; run pip install 'fbo-flower[{extra}]'")
