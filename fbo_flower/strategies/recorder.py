"""What a strategy writes down while it runs: traffic, who answered, and what agents disclosed."""

from __future__ import annotations

import math
import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import numpy as np

from fbo_flower.algorithms.capabilities import ServerResults
from fbo_flower.algorithms.records import AnyArray, Array
from fbo_flower.space.space import SearchSpace
from fbo_flower.study.schema import JUDGEMENTS, MODELS, RECOMMENDATIONS, ROUNDS, SCHEMA, TRIALS
from fbo_flower.study.study import Study
from fbo_flower.study.table import Kind, Table
from fbo_flower.wire.codec import Disclosure

_TRAFFIC = ("bytes_down", "bytes_up", "floats_down", "floats_up")
_COUNTS = ("tasks", "replies", "failures", "refused", "failed_trials", *_TRAFFIC)
_PACKAGES = ("fbo-flower", "flwr", "numpy", "scipy", "scikit-learn")


def count_floats(arrays: Mapping[str, AnyArray]) -> float:
    """Return the numbers in arrays, 8 bytes each; packed bytes count as the floats that they could hold.

    >>> count_floats({"means": np.zeros(3), "cells": np.arange(3), "model": np.zeros(20, dtype=np.uint8)})
    8.5
    """
    return sum(array.nbytes for array in arrays.values()) / 8


def tally(reasons: Mapping[str, int]) -> str:
    """Return counts by reason in one line.

    >>> tally({"shape": 2, "late": 1})
    'late:1 shape:2'
    """
    return " ".join(f"{reason}:{number}" for reason, number in sorted(reasons.items()))


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
    evaluations: dict[str, int] = field(default_factory=dict)  # really made, where agents reuse values
    recommended: dict[str, dict[str, Any]] = field(default_factory=dict)
    _counts: dict[str, int | float] = field(default_factory=dict)
    _reasons: Counter[str] = field(default_factory=Counter)
    _started: float = 0.0
    _open: bool = False

    def open_round(self) -> None:
        """Start counting."""
        self._counts = dict.fromkeys(_COUNTS, 0) | {"floats_down": 0.0, "floats_up": 0.0}
        self._reasons = Counter()
        self._started = time.perf_counter()
        self._open = True

    def count(self, **increments: int | float) -> None:
        """Add to the counts of this round; after the last one, to what its row says of traffic."""
        for name, increment in increments.items():
            if self._open:
                self._counts[name] += increment
            elif self.rounds and name in _TRAFFIC:
                self.rounds[-1][name] += increment

    def count_unused(self, column: str, reason: str) -> None:
        """Count a task without a reply ("failures") or a reply of no use ("refused"), and why, in one word.

        One of the last exchanges counts in the row of the last round.
        """
        self._reasons[reason] += 1
        if self._open:
            self._counts[column] += 1
        elif self.rounds:
            self.rounds[-1][column] += 1
            self.rounds[-1]["reasons"] = tally(self._reasons)

    def disclose(self, agent: str, server_round: int, disclosure: Disclosure) -> None:
        """Write down what an agent let out beyond its report."""
        if disclosure.incumbent is not None and not math.isnan(disclosure.incumbent):
            self.incumbents[agent] = disclosure.incumbent
        if disclosure.recommendation is not None:
            self._recommend(agent, disclosure.recommendation, self.incumbents.get(agent, math.nan))
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

    def close_round(
        self, server_round: int, num_rounds: int | None, seconds: float | None = None
    ) -> RoundProgress:
        """Write the round down and return it; `seconds` where it was held before this process began."""
        seconds = time.perf_counter() - self._started if seconds is None else seconds
        self._open = False
        best = list(self.incumbents.values())
        mean, top = (float(np.mean(best)), max(best)) if best else (math.nan, math.nan)
        self.rounds.append(
            {
                "algorithm": self.label,
                "round": server_round,
                "seconds": seconds,
                "mean_incumbent": mean,
                "best": top,
                "reasons": tally(self._reasons),
            }
            | self._counts
        )
        replies, failures, refused, failed_trials = (
            int(self._counts[name]) for name in ("replies", "failures", "refused", "failed_trials")
        )
        return RoundProgress(
            server_round, num_rounds, top, mean, replies, failures, refused, failed_trials, seconds
        )

    def study(self, run: Mapping[str, Any], findings: ServerResults | None = None) -> Study:
        """Return everything written down so far as a study, and what the server found out itself."""
        findings = findings or ServerResults()
        for agent, (point, value) in findings.recommendations.items():
            self._recommend(agent, point, value)
        settings = {
            "schema": SCHEMA,
            "name": self.label,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": _versions(),
            "runs": [dict(run) | ({"privacy": dict(findings.privacy)} if findings.privacy else {})],
        }
        recommended = Table.from_rows(list(self.recommended.values()), RECOMMENDATIONS)
        return Study(
            settings,
            Table.from_rows(self.trials, TRIALS),
            Table.from_rows(self.rounds, ROUNDS),
            recommendations=recommended if self.recommended else None,
            models=self._rows(findings.models, MODELS),
            judgements=self._rows(findings.judgements, JUDGEMENTS),
        )

    def _rows(self, rows: Sequence[Mapping[str, object]], columns: Mapping[str, Kind]) -> Table:
        return Table.from_rows([{"algorithm": self.label, **row} for row in rows], columns)

    def _recommend(self, agent: str, point: Array, value: float) -> None:
        self.recommended[agent] = {
            "algorithm": self.label,
            "agent": agent,
            "value": value,
            "config": self.space.decode(point),
        }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a checkout, or a device without it
            continue
    return found
