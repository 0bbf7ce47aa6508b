"""Which trial may run on, and until which round: to the end, successive halving, Hyperband, ASHA.

A schedule is a pure function of the trials. It is asked whenever a place is free, and answers with a paused
trial that may go on, with a new trial, or with nothing, if the free place has to wait for running trials.

With reduction factor `eta`, first rung `r` and last round `R`, the rungs are `r eta^k` and `R`. The
trials of a rung are ranked by their values after exactly that many rounds.

- `SuccessiveHalving` [Jamieson2016]: brackets of `n = eta^K` trials, one after the other. When all trials of
  a rung are there, the best `floor(n / eta)` go on.
- `Hyperband` [Li2018, Alg. 1]: brackets `s = s_max .. 0` in turn, of
  `ceil((s_max + 1) eta^s / (s + 1))` trials, whose first rung is `R eta^-s`.
- `ASHA` [Li2020, Alg. 2]: from the highest rung down, promote a trial that is among the best
  `floor(n / eta)` of the `n` that have reached its rung and that has not gone on; else start a new trial. So
  no place ever waits.

References
----------
[Jamieson2016] Jamieson and Talwalkar. Non-stochastic best arm identification and hyperparameter optimization.
AISTATS 2016.
[Li2018] Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar. Hyperband: a novel bandit-based approach to
hyperparameter optimization. JMLR 18 (2018).
[Li2020] Li, Jamieson, Rostamizadeh, Gonina, Ben-tzur, Hardt, Recht, Talwalkar. A system for massively
parallel hyperparameter tuning. MLSys 2020.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from fbo_flower.algorithms.options import check_number
from fbo_flower.errors import ConfigError, did_you_mean
from fbo_flower.federated.records import Trial
from fbo_flower.numerics.arrays import Array


@dataclass(frozen=True)
class Start:
    """Start a new trial in a bracket and run it until a round."""

    bracket: int
    target: int


@dataclass(frozen=True)
class GoOn:
    """Let a paused trial run until a later round."""

    trial: int
    target: int


@dataclass(frozen=True)
class Copy:
    """Start a new trial with a configuration `point` from the model that another trial has now."""

    bracket: int
    trial: int
    point: Array
    target: int


@dataclass(frozen=True)
class Schedule(ABC):
    """Decides which trial gets a free place.

    Parameters
    ----------
    rounds : `R`, rounds of a whole run
    """

    rounds: int

    @abstractmethod
    def choose(self, trials: Sequence[Trial]) -> Start | GoOn | Copy | None:
        """Return what to do with a free place; None: wait for the trials that run."""

    @abstractmethod
    def rungs_of(self, bracket: int) -> tuple[int, ...]:
        """Return the rounds at which the trials of a bracket are compared; the last one is `R`."""


@dataclass(frozen=True)
class ToTheEnd(Schedule):
    """Every trial runs until its last round."""

    def choose(self, trials: Sequence[Trial]) -> Start:
        return Start(0, self.rounds)

    def rungs_of(self, bracket: int) -> tuple[int, ...]:
        return (self.rounds,)


@dataclass(frozen=True)
class Halving(Schedule):
    """Base of the schedules with rungs.

    Parameters
    ----------
    eta : reduction factor
    first : `r`, the first rung
    """

    eta: int = 3
    first: int = 1

    def __post_init__(self) -> None:
        check_number("rounds", self.rounds, 1, integer=True)
        check_number("eta", self.eta, 2, integer=True)
        check_number("first_rung", self.first, 1, self.rounds, integer=True)

    @property
    def most(self) -> int:
        """`s_max`: number of rungs below the last one."""
        rung, count = self.first, 0
        while rung * self.eta <= self.rounds:
            rung, count = rung * self.eta, count + 1
        return count

    def rungs_from(self, halvings: int) -> tuple[int, ...]:
        """Return the rungs of a bracket with `s = halvings`: `R eta^-s .. R`, rounded down."""
        rungs = [max(self.rounds // self.eta**left, 1) for left in range(halvings, -1, -1)]
        return tuple(sorted(set(rungs)))


@dataclass(frozen=True)
class ASHA(Halving):
    """Asynchronous successive halving."""

    def rungs_of(self, bracket: int) -> tuple[int, ...]:
        return self.rungs_from(self.most)

    def choose(self, trials: Sequence[Trial]) -> Start | GoOn:
        rungs = self.rungs_of(0)
        for rung, following in reversed(list(itertools.pairwise(rungs))):
            there = [t for t in trials if t.round >= rung or (t.failure and t.target >= rung)]
            best = ranked(there, rung)[: len(there) // self.eta]
            for trial in best:
                if trial.round == trial.target == rung and not trial.failure:
                    return GoOn(trial.number, following)
        return Start(0, rungs[0])


@dataclass(frozen=True)
class Hyperband(Halving):
    """Brackets of synchronous successive halving, from many short runs to few whole ones."""

    def num_trials(self, bracket: int) -> int:
        """Return `n` of a bracket."""
        s = self.halvings(bracket)
        return math.ceil((self.most + 1) * float(self.eta) ** s / (s + 1))

    def halvings(self, bracket: int) -> int:
        """Return `s` of a bracket."""
        return self.most - bracket % (self.most + 1)

    def rungs_of(self, bracket: int) -> tuple[int, ...]:
        return self.rungs_from(self.halvings(bracket))

    def choose(self, trials: Sequence[Trial]) -> Start | GoOn | None:
        bracket = max((trial.bracket for trial in trials), default=0)
        members = [trial for trial in trials if trial.bracket == bracket]
        rungs = self.rungs_of(bracket)
        if len(members) < self.num_trials(bracket):
            return Start(bracket, rungs[0])
        size = len(members)
        for rung, following in itertools.pairwise(rungs):
            if any(trial.runs and trial.target == rung for trial in members):
                return None
            size //= self.eta
            for trial in ranked(members, rung)[:size]:
                if trial.round == trial.target == rung and not trial.failure:
                    return GoOn(trial.number, following)
        if any(trial.runs for trial in members):
            return None
        return Start(bracket + 1, self.rungs_of(bracket + 1)[0])


@dataclass(frozen=True)
class SuccessiveHalving(Hyperband):
    """Brackets of synchronous successive halving, all from the first rung."""

    def num_trials(self, bracket: int) -> int:
        return int(self.eta**self.most)

    def halvings(self, bracket: int) -> int:
        return self.most


SCHEDULES: dict[str, type[Halving]] = {"asha": ASHA, "hyperband": Hyperband, "halving": SuccessiveHalving}


def make_schedule(name: str, rounds: int, eta: int, first_rung: int) -> Schedule:
    """Return the schedule of a name; ConfigError if there is none."""
    if name == "none":
        return ToTheEnd(rounds)
    if name not in SCHEDULES:
        names = ["none", *SCHEDULES]
        raise ConfigError(
            f"schedule: expected one of {', '.join(names)}, got {name!r}{did_you_mean(name, names)}"
        )
    return SCHEDULES[name](rounds, eta, first_rung)


def ranked(trials: Sequence[Trial], rung: int) -> list[Trial]:
    """Return trials from the best to the worst after `rung` rounds; those without a value come last."""

    def key(trial: Trial) -> tuple[bool, float, int]:
        value = trial.value_at(rung)
        there = math.isfinite(value)
        return not there, -value if there else 0.0, trial.number

    return sorted(trials, key=key)
