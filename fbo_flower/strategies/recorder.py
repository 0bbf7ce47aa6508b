"""What a strategy writes down while it runs: traffic, who answered, and what agents disclosed."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import numpy as np

from fbo_flower.space import SearchSpace
from fbo_flower.study import Study
from fbo_flower.study_schema import RECOMMENDATIONS, ROUNDS, SCHEMA, TRIALS
from fbo_flower.table import Table
from fbo_flower.wire import Disclosure

_COUNTS = ("tasks", "replies", "failures", "refused", "failed_trials", "bytes_down", "bytes_up")
_PACKAGES = ("fbo-flower", "flwr", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class RoundProgress:
    """One finished round, for a progress bar.

    Parameters
    ----------
    server_round, num_rounds : which of how many; None: until the algorithm is finished
    best, mean : of the agents' best values so far; NaN where none is disclosed
    replies, failures, refused : tasks answered, tasks without an answer, replies that were malformed
    failed_trials : evaluations that gave no value, at agents that answered
    seconds : duration of the round
    """

    server_round: int
    num_rounds: int | None
    best: float
    mean: float
    replies: int
    failures: int
    refused: int
    failed_trials: int
    seconds: float


@dataclass
class Recorder:
    """Rows of a study in the making."""

    label: str
    space: SearchSpace
    trials: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    incumbents: dict[str, float] = field(default_factory=dict)
    recommended: dict[str, dict[str, Any]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _started: float = 0.0

    def open_round(self) -> None:
        """Start counting."""
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._started = time.perf_counter()

    def count(self, **increments: int) -> None:
        """Add to the counts of this round."""
        for name, increment in increments.items():
            self._counts[name] += increment

    def disclose(self, agent: str, server_round: int, disclosure: Disclosure) -> None:
        """Write down what an agent let out beyond its report."""
        if disclosure.incumbent is not None and not math.isnan(disclosure.incumbent):
            self.incumbents[agent] = disclosure.incumbent
        if disclosure.recommendation is not None:
            self.recommended[agent] = {
                "algorithm": self.label,
                "agent": agent,
                "value": self.incumbents.get(agent, math.nan),
                "config": self.space.decode(disclosure.recommendation),
            }
        if disclosure.trials is None:
            return
        outcome = disclosure.trials
        rows = zip(outcome.points, outcome.values, outcome.trials, outcome.pulls, strict=True)
        for point, value, trial, pulls in rows:
            self.trials.append(
                {
                    "algorithm": self.label,
                    "agent": agent,
                    "round": server_round,
                    "trial": int(trial),
                    "pulls": int(pulls),
                    "config": self.space.decode(point),
                    "value": float(value),
                    "failure": outcome.failures.get(int(trial), ""),
                    "regret": math.nan,
                }
            )

    def close_round(self, server_round: int, num_rounds: int | None) -> RoundProgress:
        """Write the round down and return it."""
        seconds = time.perf_counter() - self._started
        best = list(self.incumbents.values())
        mean, top = (float(np.mean(best)), max(best)) if best else (math.nan, math.nan)
        self.rounds.append(
            {
                "algorithm": self.label,
                "round": server_round,
                "seconds": seconds,
                "mean_incumbent": mean,
                "best": top,
            }
            | self._counts
        )
        counts = self._counts
        return RoundProgress(
            server_round,
            num_rounds,
            top,
            mean,
            counts["replies"],
            counts["failures"],
            counts["refused"],
            counts["failed_trials"],
            seconds,
        )

    def study(self, run: Mapping[str, Any]) -> Study:
        """Return everything written down so far as a study."""
        settings = {
            "schema": SCHEMA,
            "name": self.label,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": _versions(),
            "runs": [dict(run)],
        }
        recommended = Table.from_rows(list(self.recommended.values()), RECOMMENDATIONS)
        return Study(
            settings,
            Table.from_rows(self.trials, TRIALS),
            Table.from_rows(self.rounds, ROUNDS),
            recommendations=recommended if self.recommended else None,
        )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a checkout, or a device without it
            continue
    return found
