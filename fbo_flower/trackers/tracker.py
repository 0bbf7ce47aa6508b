"""What the trackers of TensorBoard, MLflow and Weights & Biases share: best values so far, and numbers."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping

from fbo_flower.errors import ConfigError
from fbo_flower.study.trial import RUNNING, SUCCEEDED, Trial
from fbo_flower.trackers.callback import Callback, StudyInfo


class Tracker(Callback):
    """Follows one study after the other, and knows each agent's best trial so far.

    Parameters
    ----------
    title, package : what is tracked with, for people and for pip

    Raises
    ------
    ConfigError
        If the package is not installed; the message says what to install.
    """

    def __init__(self, title: str, package: str) -> None:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise ConfigError(
                f"{type(self).__name__}: {title} is not installed; run pip install 'fbo-flower[{package}]'"
            ) from error
        self._study, self._minimize = "", False
        self._best: dict[str, Trial] = {}  # agent -> its best trial so far
        self._reset()

    def _reset(self) -> None:
        """Forget the study before."""

    def _keep(self, trial: Trial, best: float) -> None:
        """Keep a finished trial, and its agent's best value so far, until the end of its round."""

    def _begin(self, study: StudyInfo) -> None:
        if study.study != self._study:  # one tracker may be told of several studies, one after the other
            self._study, self._minimize, self._best = study.study, study.minimize, {}
            self._reset()

    def on_trial(self, study: StudyInfo, trial: Trial) -> None:
        """Keep the numbers of a finished trial until the end of its round."""
        self._begin(study)
        if trial.state == RUNNING:
            return
        sign = -1.0 if self._minimize else 1.0
        best = self._best.get(trial.agent)
        if trial.state == SUCCEEDED and (best is None or sign * (trial.value - best.value) > 0):
            best = self._best[trial.agent] = trial
        self._keep(trial, math.nan if best is None else best.value)


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
