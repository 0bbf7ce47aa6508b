"""The rows of a running study's tables: traffic, replies and disclosed trials, and the numbers of a round.

A replayed journal makes the same rows from the stored replies.
"""

from __future__ import annotations

import math
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.records import NUM_EVALUATIONS, AnyArray, Array, Report, ServerResults, Trials
from fbo_flower.errors import ObjectiveError, number_text, printable
from fbo_flower.numerics import finite
from fbo_flower.space.space import SearchSpace
from fbo_flower.study.ranking import best_rows
from fbo_flower.study.schema import (
    JUDGEMENTS,
    MODELS,
    RECOMMENDATIONS,
    REPLIES,
    ROUNDS,
    SCHEMA,
    TIMES,
    trial_columns,
)
from fbo_flower.study.study import Study
from fbo_flower.study.table import Kind, Table
from fbo_flower.study.trial import Trial
from fbo_flower.wire.codec import Disclosure

_LATE = ("bytes_down", "bytes_up", "floats_down", "floats_up", "failures", "refused")  # counted after rounds
_COUNTS = ("tasks", "replies", "failed_trials", *_LATE)
MAX_REASON = 300  # characters of a reason in the log
_ROWS = 500  # at least in a table of disclosed trials, because each takes a kilobyte besides
_PACKAGES = ("fbo-flower", "flwr", "numpy", "scipy", "scikit-learn")


def count_floats(arrays: Mapping[str, AnyArray]) -> float:
    """Return the size of arrays in floats of 8 bytes; 20 packed bytes count as 2.5 floats.

    >>> count_floats({"means": np.zeros(3), "cells": np.arange(3), "model": np.zeros(20, dtype=np.uint8)})
    8.5
    """
    return float(sum(map(attrgetter("nbytes"), arrays.values())) / 8)


def tally(reasons: Mapping[str, int]) -> str:
    """Return the counts of all reasons in one line, sorted by reason.

    >>> tally({"shape": 2, "late": 1})
    'late:1 shape:2'
    """
    return " ".join(f"{reason}:{number}" for reason, number in sorted(reasons.items()))


@dataclass(frozen=True)
class RoundProgress:
    """The numbers of one finished round, for progress bars and logs.

    Parameters
    ----------
    server_round : number of the round, from 1
    best, mean : best and mean of the agents' best values so far; NaN if no agent disclosed one
    replies : number of valid replies
    failures : number of lost replies: nothing came in time, or an error of the agent
    refused : number of refused replies: something came that cannot be used
    failed_trials : number of failed evaluations, at agents whose replies are valid
    seconds : duration of the round
    evaluations : number of evaluations, failed ones included
    reason : why the first failed evaluation failed; "" if none failed or no agent disclosed it
    disclosed : whether an agent has disclosed values, in this round or before
    feasible : with several objectives, which have no best value: number of disclosed trials so far that hold
        the limits; None: there is one objective
    limited : whether agents have limits, without which every trial counts
    num_rounds, num_trials : rounds of the study, or evaluations of each agent; None: not limited
    trials : how many evaluations each agent has made, at least
    """

    server_round: int
    best: float
    mean: float
    replies: int
    failures: int
    refused: int
    failed_trials: int
    seconds: float
    evaluations: int = 0
    reason: str = ""
    disclosed: bool = True
    feasible: int | None = None
    limited: bool = False
    num_rounds: int | None = None
    num_trials: int | None = None
    trials: int = 0

    @property
    def done(self) -> tuple[int, int | None]:
        """How far the study is, and its end: evaluations of each agent if they end it, else rounds."""
        if self.num_trials is not None:
            return self.trials, self.num_trials
        return self.server_round, self.num_rounds

    @property
    def so_far(self) -> str:
        """How far the study is: "3/25", or "3, 4/10 evaluations"."""
        done, total = self.done
        if self.num_trials is not None:
            return f"{self.server_round}, {done}/{total} evaluations"
        return f"{done}/{total or '?'}"

    def __str__(self) -> str:
        if self.disclosed and self.limited and not self.feasible and math.isnan(self.best):
            values = "no trial holds the limits yet"
        elif self.disclosed and self.feasible is not None:
            values = f"{self.feasible} feasible trials"
        elif math.isnan(self.best):
            values = "no value yet" if self.disclosed or not self.replies else "values not disclosed"
        else:
            values = f"best {number_text(self.best)}, mean {number_text(self.mean)}"
        text = f"{values}, {self.replies} replies, {self.failures} lost, {self.refused} refused"
        return text + failures_text(self.failed_trials, self.evaluations, self.reason)


def failures_text(num_failed: int, num_evaluations: int, reason: str) -> str:
    """Return the end of a line that says how many evaluations failed, and why; "" if none did.

    >>> failures_text(12, 20, "ImportError: no torch"), failures_text(1, 1, ""), failures_text(0, 20, "")
    ('; 12 of 20 evaluations failed, the first with: ImportError: no torch', '; 1 of 1 evaluations failed, \
the reason is in the log of the agent', '')
    """
    if not num_failed:
        return ""
    why = f"the first with: {reason}" if reason else "the reason is in the log of the agent"
    return f"; {num_failed} of {num_evaluations} evaluations failed, {why}"


class DisclosedTrials(NamedTuple):
    """Trials that agents disclosed, larger is better, with what the study knows of each row besides.

    A row takes less than a hundred bytes with two parameters, so that the memory of a study hardly grows with
    its rounds. Rows of Python objects take ten times as much. Configurations are decoded when needed.

    Parameters
    ----------
    agents, rounds : of each row
    bests : value of the agent's best after each row; NaN: it is the best value so far
    """

    trials: Trials
    agents: list[str]
    rounds: list[int]
    bests: list[float]


@dataclass
class Recorder:
    """Collects the rows of a running study.

    Parameters
    ----------
    aims : the agents' objectives and limits; agents send values of which larger is better, the rows hold
        them as measured
    clock : the time in seconds; a simulation may have a clock of its own
    """

    label: str
    space: SearchSpace
    aims: Aims = NUMBER
    clock: Callable[[], float] = time.perf_counter
    rounds: list[dict[str, Any]] = field(default_factory=list)
    replies: list[dict[str, Any]] = field(default_factory=list)
    incumbents: dict[str, float] = field(default_factory=dict)
    expected: dict[str, float] = field(default_factory=dict)  # their means where values are noisy, else they
    evaluations: dict[str, int] = field(default_factory=dict)  # made by each agent, if agents reuse values
    recommended: dict[str, dict[str, Any]] = field(default_factory=dict)
    disclosed: bool = False  # whether an agent has disclosed values
    round_started: float = 0.0  # when the open round began, by the clock
    failed: Counter[str] = field(default_factory=Counter)  # agent -> its failed evaluations
    totals: Counter[str] = field(default_factory=Counter)  # counts of the whole run
    reasons: Counter[str] = field(default_factory=Counter)  # of lost and refused replies of the whole run
    reason: str = ""  # why the first evaluation failed; "" if none did or no agent disclosed it
    trials: list[DisclosedTrials] = field(default_factory=list)
    _before: Counter[str] | None = None  # totals when the open round began
    _reasons: Counter[str] = field(default_factory=Counter)
    _reason: str = ""  # of the open round

    def open_round(self) -> None:
        """Set the counts of a new round to 0."""
        self._before = Counter(self.totals)
        self._reasons, self._reason = Counter(), ""
        self.round_started = self.clock()

    def count(self, **increments: int | float) -> None:
        """Add to the counts; after the last round, also to what its row counts then."""
        for name, increment in increments.items():
            self.totals[name] += increment  # type: ignore[assignment]  # floats are multiples of 1/8
            if self._before is None and self.rounds and name in _LATE:
                self.rounds[-1][name] += increment

    def count_unused(self, column: str, reason: str, num_bytes: int) -> None:
        """Count a lost reply (column "failures") or a refused one (column "refused").

        Tasks of the final exchanges count in the row of the last round.

        Parameters
        ----------
        reason : one word
        num_bytes : size of the reply
        """
        self.reasons[reason] += 1
        self._reasons[reason] += 1
        self.count(**{column: 1}, bytes_up=num_bytes)
        if self._before is None and self.rounds:
            self.rounds[-1]["reasons"] = tally(self._reasons)

    def record(
        self, agent: str, server_round: int, report: Report, disclosure: Disclosure, num_bytes: int = 0
    ) -> None:
        """Record a valid report, the size of its message, and what the agent disclosed beside it."""
        failed, trials = report.num_failed, disclosure.trials
        self.failed[agent] += failed
        floats = count_floats(report.arrays)
        self.count(replies=1, failed_trials=failed, floats_up=floats, bytes_up=num_bytes)
        self.totals["evaluations"] += report.num_trials
        if isinstance(num_evaluations := report.values.get(NUM_EVALUATIONS), int):
            self.evaluations[agent] = num_evaluations
        self.disclosed = self.disclosed or disclosure.incumbent is not None or trials is not None
        if disclosure.incumbent is not None and not math.isnan(disclosure.incumbent):
            self.incumbents[agent] = self._shown(disclosure.incumbent)
        before, value = self.recommended.get(agent), self.incumbents.get(agent, math.nan)
        if disclosure.recommendation is not None:
            mean = math.nan if disclosure.expected is None else self._shown(disclosure.expected)
            self._recommend(agent, disclosure.recommendation, value, mean)
        elif trials is not None:  # the best trial is the best again
            self.recommended.pop(agent, None)
        if agent in self.incumbents:
            mean = self.recommended.get(agent, {}).get("mean", math.nan)
            self.expected[agent] = mean if math.isfinite(mean) else value
        if trials is None:
            return
        if trials.failures is not None and not self._reason:
            self._reason = printable(next(iter(trials.reasons.values()), ""))[:MAX_REASON]
            self.reason = self.reason or self._reason
        number = len(trials)
        bests = [math.nan if before is None else before["value"]] * number
        if number:
            bests[-1] = math.nan if disclosure.recommendation is None else value
        self.trials.append(DisclosedTrials(trials, [agent] * number, [server_round] * number, bests))

    def note_reply(
        self, agent: str, server_round: int, trial: int, windows_old: int, answers_old: int, used: bool
    ) -> None:
        """Record a valid answer of an asynchronous run, see `study.schema.REPLIES`."""
        row = {"algorithm": self.label, "agent": agent, "round": server_round, "trial": trial}
        self.replies.append(row | {"windows_old": windows_old, "answers_old": answers_old, "used": used})

    def numbers_since(self, before: Counter[str]) -> dict[str, float]:
        """Return the replies and evaluations since earlier totals, and the agents' best values so far."""
        counts, (_, best, mean) = self.totals - before, self.best()
        named = {"replies": counts["replies"], "evaluations": counts["evaluations"]}
        return {**named, "failed": counts["failed_trials"], "best": best, "mean": mean}

    def best(self) -> tuple[str, float, float]:
        """Return the agent whose best value is the best, its value, and the mean of the agents' best values.

        They are compared as in `Study.best_value`; "" and NaN if no agent disclosed one.
        """
        if not self.incumbents:
            return "", math.nan, math.nan
        agent = (min if self.aims.minimize else max)(self.expected, key=self.expected.__getitem__)
        return agent, self.incumbents[agent], finite.mean(np.array([*self.incumbents.values()]))

    def close_round(self, server_round: int, seconds: float | None = None) -> RoundProgress:
        """Add the row of the round and return its numbers.

        Parameters
        ----------
        seconds : duration of the round, if an earlier process ran it; None: measure it
        """
        seconds = self.clock() - self.round_started if seconds is None else seconds
        small = next((k for k, t in enumerate(self.trials) if len(t.agents) < _ROWS), len(self.trials))
        self.trials[small:] = [self._joined(self.trials[small:])]
        counts, self._before = self.totals - (self._before or Counter()), None
        _, best, mean = self.best()
        row = {"algorithm": self.label, "round": server_round, "seconds": seconds, "mean_incumbent": mean}
        row |= {"best": best, "reasons": tally(self._reasons)}
        self.rounds.append(row | {name: counts[name] for name in _COUNTS})
        feasible = None
        if len(self.aims.objectives) > 1:
            feasible = sum(
                int(np.count_nonzero(np.isfinite(t.values) if t.feasible is None else t.feasible))
                for t, *_ in self.trials
            )
        return RoundProgress(
            server_round, best, mean, counts["replies"], counts["failures"], counts["refused"],
            counts["failed_trials"], seconds, counts["evaluations"], self._reason, self.disclosed,
            feasible, bool(self.aims.limits),
        )  # fmt: skip

    def check_evaluations(self) -> None:
        """Raise ObjectiveError if every evaluation so far failed; asked after rounds and at the end."""
        totals = self.totals
        if totals["evaluations"] and totals["failed_trials"] == totals["evaluations"]:
            why = f"the first with: {self.reason}" if self.reason else "the reasons are in the agents' logs"
            raise ObjectiveError(f"{self.label}: all of {totals['evaluations']} evaluations failed, {why}")

    def check_results(self) -> None:
        """Raise ObjectiveError if every evaluation failed, or not one valid reply came."""
        self.check_evaluations()
        number = self.totals["tasks"]
        if number and not self.totals["replies"]:
            raise ObjectiveError(
                f"{self.label}: expected a valid reply to one of {number} tasks, got none "
                f"({tally(self.reasons)}); the log above names each agent's reason"
            )

    def study(self, run: Mapping[str, Any], results: ServerResults | None = None) -> Study:
        """Return the rows so far as a study.

        Parameters
        ----------
        run : settings of the run, see `settings.study_settings`
        results : the server's own results, such as recommendations and models
        """
        results = results or ServerResults()
        for agent, best in results.recommendations.items():
            self._recommend(agent, best.point, self._shown(best.value), self._shown(best.mean))
        settings = {
            "schema": SCHEMA,
            "name": self.label,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": _versions(),
            "runs": [dict(run) | ({"privacy": dict(results.privacy)} if results.privacy else {})],
        }
        rows = self._joined(self.trials)
        trials = self._trials_table(rows)
        return Study(
            settings,
            trials,
            Table.from_rows(self.rounds, ROUNDS),
            recommendations=self._recommendations(trials),
            models=self._rows(results.models, MODELS),
            judgements=self._rows(results.judgements, JUDGEMENTS),
            times=self._times(rows),
            replies=Table.from_rows(self.replies, REPLIES),
        )

    def _joined(self, parts: Sequence[DisclosedTrials], first: int = 0) -> DisclosedTrials:
        """Return the rows of all parts, from row `first` on."""
        none = DisclosedTrials(Trials.empty(self.space.dimension), [], [], [])
        tables, agents, rounds, bests = zip(*parts or [none], strict=True)
        if any(table.pulls is not None for table in tables):  # others leave out that it is one in each row
            tables = tuple(replace(table, pulls=table.spans) for table in tables)
        trials = tables[0].concat(*tables[1:]).rows(slice(first, None))
        return DisclosedTrials(
            trials, [*chain(*agents)][first:], [*chain(*rounds)][first:], [*chain(*bests)][first:]
        )

    def trials_since(self, first: int) -> Iterator[Trial]:
        """Return the disclosed trials from row `first` on, as callbacks get them."""
        ends = np.cumsum([0, *(len(part.agents) for part in self.trials)])
        at = int(np.searchsorted(ends, first, side="right")) - 1
        rows = self._joined(self.trials[at:], first - int(ends[at]))
        return map(Trial.of_row, self._trials_table(rows), _times_of(rows.trials).tolist())

    def _trials_table(self, rows: DisclosedTrials) -> Table:
        """Return the table of trials, with the columns of `OPTIONAL` that it needs."""
        trials = rows.trials
        columns: dict[str, Any] = {
            "algorithm": [self.label] * len(trials),
            "agent": rows.agents,
            "round": np.array(rows.rounds, dtype=np.int64),
            "trial": trials.trials,
            "pulls": trials.spans,
            "config": [*map(self.space.decode, trials.points)],
            "value": 0.0 - trials.values if self.aims.minimize else trials.values,
            "failure": [""] * len(trials) if trials.failures is None else trials.failures,
            "regret": np.full(len(trials), math.nan),
        }
        if trials.stopped is not None:
            columns["stopped_at"] = np.where(trials.stopped >= 0, trials.stopped, math.nan)
        if any(map(math.isfinite, rows.bests)):
            columns["best"] = rows.bests
        if trials.outputs is not None:
            columns["outputs"] = [*map(self.aims.measured, trials.outputs)]
        if trials.feasible is not None:
            columns["feasible"] = trials.feasible
        return Table(columns, trial_columns(columns))

    def _times(self, rows: DisclosedTrials) -> Table:
        """Return the table of the times that were disclosed."""
        started, ended = _times_of(rows.trials).T
        columns: dict[str, Any] = {
            "algorithm": [self.label] * len(started),
            "agent": rows.agents,
            "trial": rows.trials.trials,
            "started": started,
            "ended": ended,
        }
        return Table(columns, TIMES).take(~np.isnan(started))

    def _recommendations(self, trials: Table) -> Any:  # as `Study` takes it
        """Return the recommendations, and the best trials of the agents without one; None: only those."""
        if not self.recommended:
            return None
        found = Table.from_rows(list(self.recommended.values()), RECOMMENDATIONS)
        best = best_rows(trials, {self.label} if self.aims.minimize else ())
        others = np.array([agent not in self.recommended for agent in best["agent"].tolist()], dtype=bool)
        return Table.concatenate([found, best.take(others)])

    def _shown(self, value: float) -> float:
        """Return a value as the user measures it: a loss gets its sign back."""
        return 0.0 - value if self.aims.minimize else value

    def _rows(self, rows: Sequence[Mapping[str, object]], columns: Mapping[str, Kind]) -> Table:
        return Table.from_rows([{"algorithm": self.label, **row} for row in rows], columns)

    def _recommend(self, agent: str, point: Array, value: float, mean: float) -> None:
        self.recommended[agent] = {
            "algorithm": self.label,
            "agent": agent,
            "value": value,
            "mean": mean,
            "config": self.space.decode(point),
        }


def _times_of(trials: Trials) -> Array:
    """Return start and end of each row `(n, 2)`; NaN where they are not known."""
    return np.full((len(trials), 2), math.nan) if trials.times is None else trials.times


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # not installed
            continue
    return versions
