"""Which trial may run on, and until which round: to the end, by halving, Hyperband, ASHA, or a population.

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
  no place ever waits. With `r = R` there is one rung, and every trial runs to its end.
- `Evolution` [Chen2025, FedPop-G]: `size` trials run side by side or in turn. After every `every` rounds they
  are compared, and the worst ones end. In the place of each, a new trial goes on from the model of one of the
  best, with a changed copy of its configuration. So a trial of the last generation has had several
  configurations, as in population-based training [Jaderberg2017], and no round is lost: every trial runs to
  the end or is replaced by one that does. A place is a trial's `bracket`.

The steps of a population, in the unit cube of the search space:

- `perturbed`: a number moves by `U(-width, width)`, in its own scale, logarithmic or not. A discrete
  parameter of few values stays or moves to a neighbouring value, each with probability 1/3; a category is
  drawn anew with probability 1/3;
- `exploit`: of `n` members the worst `ceil(quantile n)` each copy one of the best `ceil(quantile n)`, drawn
  at random. No member copies itself, so at most half are replaced.

References
----------
[Jamieson2016] Jamieson and Talwalkar. Non-stochastic best arm identification and hyperparameter optimization.
AISTATS 2016.
[Li2018] Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar. Hyperband: a novel bandit-based approach to
hyperparameter optimization. JMLR 18 (2018).
[Li2020] Li, Jamieson, Rostamizadeh, Gonina, Ben-tzur, Hardt, Recht, Talwalkar. A system for massively
parallel hyperparameter tuning. MLSys 2020.
[Chen2025] Chen, Krompass, Gu, Tresp. FedPop: federated population-based hyperparameter tuning. AAAI 2025.
[Jaderberg2017] Jaderberg and others. Population based training of neural networks. arXiv:1711.09846.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.options import Settings, bounded, choice, integer
from fbo_flower.errors import ConfigError, did_you_mean
from fbo_flower.federated.proposals import PROPOSALS
from fbo_flower.federated.records import FederatedTrial
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.checks import check_integer
from fbo_flower.space.parameters import Categorical, is_continuous
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True)
class NewTrial:
    """Start a new trial in a bracket and run it until a round."""

    bracket: int
    target: int
    parent: int = -1  # the trial whose model it goes on from; -1: it begins with the first model
    point: Array | None = None  # its own point `(D,)`; None: a configuration is proposed


@dataclass(frozen=True)
class GoOn:
    """Let a paused trial run until a later round."""

    trial: int
    target: int


@dataclass(frozen=True)
class Schedule(ABC):
    """Decides which trial gets a free place."""

    rounds: int  # `R`, of a whole run

    @abstractmethod
    def choose(self, trials: Sequence[FederatedTrial]) -> NewTrial | GoOn | None:
        """Return what to do with a free place; None: wait for the trials that run."""

    @abstractmethod
    def rungs_of(self, bracket: int) -> tuple[int, ...]:
        """Return the rounds at which the trials of a bracket are compared; the last one is `R`."""


@dataclass(frozen=True)
class Halving(Schedule):
    """Base of the schedules with rungs."""

    eta: int = 3  # reduction factor
    first: int = 1  # `r`, the first rung

    def __post_init__(self) -> None:
        check_integer("rounds", self.rounds, 1)
        check_integer("eta", self.eta, 2)
        check_integer("first_rung", self.first, 1, self.rounds)

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

    def choose(self, trials: Sequence[FederatedTrial]) -> NewTrial | GoOn:
        rungs = self.rungs_of(0)
        for rung, following in reversed(list(itertools.pairwise(rungs))):
            there = [t for t in trials if t.round >= rung or (t.failure and t.target >= rung)]
            best = ranked(there, rung)[: len(there) // self.eta]
            for trial in best:
                if trial.waits_at(rung):
                    return GoOn(trial.number, following)
        return NewTrial(0, rungs[0])


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

    def choose(self, trials: Sequence[FederatedTrial]) -> NewTrial | GoOn | None:
        bracket = max((trial.bracket for trial in trials), default=0)
        members = [trial for trial in trials if trial.bracket == bracket]
        rungs = self.rungs_of(bracket)
        if len(members) < self.num_trials(bracket):
            return NewTrial(bracket, rungs[0])
        size = len(members)
        for rung, following in itertools.pairwise(rungs):
            if any(trial.runs and trial.target == rung for trial in members):
                return None
            size //= self.eta
            for trial in ranked(members, rung)[:size]:
                if trial.waits_at(rung):
                    return GoOn(trial.number, following)
        if any(trial.runs for trial in members):
            return None
        return NewTrial(bracket + 1, self.rungs_of(bracket + 1)[0])


@dataclass(frozen=True)
class SuccessiveHalving(Hyperband):
    """Brackets of synchronous successive halving, all from the first rung."""

    def num_trials(self, bracket: int) -> int:
        return int(self.eta**self.most)

    def halvings(self, bracket: int) -> int:
        return self.most


def ranked(trials: Sequence[FederatedTrial], rung: int) -> list[FederatedTrial]:
    """Return trials from the best to the worst after `rung` rounds; those without a value come last."""

    def key(trial: FederatedTrial) -> tuple[bool, float, int]:
        value = trial.value_at(rung)
        there = math.isfinite(value)
        return not there, -value if there else 0.0, trial.number

    return sorted(trials, key=key)


@dataclass(frozen=True)
class Population(Settings):
    """The settings of FedPop-G, for `Search(schedule=...)`.

    Parameters
    ----------
    size : federations in the population
    every : `T_g`, rounds between two comparisons
    quantile : share of the worst, which copy as large a share of the best
    width : largest step of a change, in the unit cube of the search space; it falls to 0 with the rounds as a
        cosine does
    resample : probability that a new trial's configuration is drawn from the whole space
    """

    size: int = integer(8, 2)
    every: int = integer(4, 1)
    quantile: float = bounded(0.3, 0.0, 0.5)
    width: float = bounded(0.2, 0.0, 1.0)
    resample: float = bounded(0.1, 0.0, 1.0)


@dataclass(frozen=True)
class Search(Settings):
    """Which configurations are tried, and for how long.

    Parameters
    ----------
    num_trials : most trials; None: 20 without a budget, no limit with one
    schedule : "asha", "halving" (synchronous successive halving), "hyperband", or "none": every trial runs to
        its end; or a `Population`, whose worst trials take over the models of its best
    eta : at a rung, the best of every `eta` trials is promoted
    first_rung : least rounds of a trial before it is compared with others
    proposals : "ei": expected improvement, or "random"
    num_initial : random configurations before the first one by "ei"; None: twice the number of parameters,
        at least 4
    num_parallel : trials that run side by side, each on its own share of the clients
    """

    num_trials: int | None = integer(None, 1)
    schedule: str | Population = "asha"
    eta: int = integer(4, 2)
    first_rung: int = integer(1, 1)
    proposals: str = choice("ei", PROPOSALS)
    num_initial: int | None = integer(None, 1)
    num_parallel: int = integer(1, 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.schedule, Population) and self.num_trials is not None:
            raise ConfigError(
                f"num_trials: expected None with a Population, which has a size, got {self.num_trials}"
            )


@dataclass(frozen=True)
class Evolution(Schedule):
    """The schedule of a population."""

    population: Population
    space: SearchSpace
    seed: int

    def rungs_of(self, bracket: int) -> tuple[int, ...]:
        every = self.population.every
        return (*range(every, self.rounds, every), self.rounds)

    def choose(self, trials: Sequence[FederatedTrial]) -> NewTrial | GoOn | None:
        """Start the population; at each comparison, replace its worst members and let the others go on."""
        rungs = self.rungs_of(0)
        if len(trials) < self.population.size:
            return NewTrial(len(trials), rungs[0])
        for rung, following in itertools.pairwise(rungs):
            members = self._members(trials, rung)
            if any(trial.runs and trial.target == rung for trial in members):
                return None
            losses = np.array([-trial.value_at(rung) for trial in members])
            losses[np.isnan(losses)] = math.inf
            rng = generator(self.seed, "population", "exploit", rung)
            copies = exploit(losses, self.population.quantile, rng)
            # copies first: as long as they are made, their parents have not gone on
            for place in sorted(copies):
                if not any(t.bracket == place and t.born >= rung for t in trials):
                    parent = members[copies[place]]
                    return NewTrial(place, following, parent.number, self._changed(parent, place, rung))
            for place, trial in enumerate(members):
                if place not in copies and trial.waits_at(rung):
                    return GoOn(trial.number, following)
        return None

    def _members(self, trials: Sequence[FederatedTrial], rung: int) -> list[FederatedTrial]:
        """Return the trial of each place that was to reach a rung."""
        found: dict[int, FederatedTrial] = {}
        for trial in trials:
            if trial.born < rung:
                found[trial.bracket] = trial
        return [found[place] for place in range(self.population.size)]

    def _changed(self, parent: FederatedTrial, place: int, rung: int) -> Array:
        rng = generator(self.seed, "population", "change", rung, place)
        if rng.random() < self.population.resample:
            drawn: Array = self.space.snap(rng.random((1, self.space.dimension)))[0]
            return drawn
        return perturbed(self.space, parent.point, cooled(self.population.width, rung, self.rounds), rng)


def perturbed(space: SearchSpace, point: Array, width: float, rng: np.random.Generator) -> Array:
    """Return a changed copy of a point `(D,)`, snapped to the search space."""
    moved = np.clip(point + rng.uniform(-width, width, len(point)), 0.0, 1.0)
    choices = rng.random(len(point))
    for axis, parameter in enumerate(space.parameters.values()):
        if is_continuous(parameter) or parameter.num_values * width > 1.0:
            continue
        if isinstance(parameter, Categorical):
            moved[axis] = rng.random() if choices[axis] < 1.0 / 3.0 else point[axis]
            continue
        index = int(parameter.bin_of(point[axis : axis + 1])[0]) + int(choices[axis] * 3.0) - 1
        index = min(max(index, 0), parameter.num_values - 1)
        moved[axis] = float(parameter.centre_of(np.array([index]))[0])
    snapped: Array = space.snap(moved[None, :])[0]
    return snapped


def exploit(losses: Array, quantile: float, rng: np.random.Generator) -> dict[int, int]:
    """Return which member copies which: worst -> one of the best.

    Parameters
    ----------
    losses : `(n,)`; NaN: unknown, such a member stays and is not copied; `inf`: failed, it is always replaced
    """
    known = np.flatnonzero(~np.isnan(losses))
    order = known[np.argsort(losses[known], kind="stable")]
    count = min(math.ceil(quantile * len(order)), len(order) // 2)
    finite = [int(member) for member in order if math.isfinite(losses[member])]
    best = finite[: max(count, 1)]
    worst = [int(member) for member in order[len(order) - count :]]
    worst += [int(m) for m in order if not math.isfinite(losses[m]) and int(m) not in worst]
    worst = [member for member in worst if member not in best]
    return {member: best[int(rng.integers(len(best)))] for member in worst} if best else {}


def cooled(value: float, step: int, steps: int) -> float:
    """Return `value (1 + cos(pi step / steps)) / 2`, which falls from `value` to 0."""
    return value * 0.5 * (1.0 + math.cos(math.pi * min(step / steps, 1.0)))


SCHEDULES: dict[str, type[Halving]] = {"asha": ASHA, "hyperband": Hyperband, "halving": SuccessiveHalving}


def make_schedule(
    chosen: str | Population, rounds: int, eta: int, first_rung: int, space: SearchSpace, seed: int
) -> Schedule:
    """Return the schedule of a name or a population; ConfigError if there is none of this name."""
    if isinstance(chosen, Population):
        return Evolution(rounds, chosen, space, seed)
    if chosen == "none":
        return ASHA(rounds, 2, rounds)
    if chosen not in SCHEDULES:
        names = ["none", *SCHEDULES]
        raise ConfigError(
            f"schedule: expected one of {', '.join(names)}, got {chosen!r}{did_you_mean(chosen, names)}"
        )
    return SCHEDULES[chosen](rounds, eta, first_rung)
