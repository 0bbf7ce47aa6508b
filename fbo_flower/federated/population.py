"""A population of federations: the worst take over models and settings of the best [Chen2025, FedPop-G].

`size` trials run side by side or in turn. After every `every` rounds they are compared, and the worst ones
end. In the place of each, a new trial goes on from the model of one of the best, with a changed copy of its
configuration. So a trial of the last generation has had several configurations, as in population-based
training [Jaderberg2017], and no round is lost: every trial runs to the end or is replaced by one that does.

The steps, in the unit cube of the search space:

- `perturbed`: a number moves by `U(-width, width)`, in its own scale, logarithmic or not. A discrete
  parameter of few values stays or moves to a neighbouring value, each with probability 1/3; a category is
  drawn anew with probability 1/3;
- `exploit`: of `n` members the worst `ceil(quantile n)` each copy one of the best `ceil(quantile n)`, drawn
  at random. No member copies itself, so at most half are replaced.

A place is a trial's `bracket`. `Population.choose` is a pure function of the trials, like that of all
schedules; what is random depends on the seed, the place and the round.

[Chen2025] Chen, Krompass, Gu, Tresp. FedPop: federated population-based hyperparameter tuning. AAAI 2025.
[Jaderberg2017] Jaderberg and others. Population based training of neural networks. arXiv:1711.09846.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.options import check_number
from fbo_flower.federated.records import Trial
from fbo_flower.federated.schedules import Copy, GoOn, Schedule, Start
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.space import Categorical, Float, SearchSpace


@dataclass(frozen=True)
class Population:
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

    size: int = 8
    every: int = 4
    quantile: float = 0.3
    width: float = 0.2
    resample: float = 0.1

    def __post_init__(self) -> None:
        check_number("size", self.size, 2, integer=True)
        check_number("every", self.every, 1, integer=True)
        check_number("quantile", self.quantile, 0.0, 0.5)
        check_number("width", self.width, 0.0, 1.0)
        check_number("resample", self.resample, 0.0, 1.0)


@dataclass(frozen=True)
class Evolution(Schedule):
    """The schedule of a population.

    Parameters
    ----------
    population : its settings
    space : the search space
    seed : of the draws
    """

    population: Population
    space: SearchSpace
    seed: int

    def rungs_of(self, bracket: int) -> tuple[int, ...]:
        every = self.population.every
        return (*range(every, self.rounds, every), self.rounds)

    def choose(self, trials: Sequence[Trial]) -> Start | GoOn | Copy | None:
        """Start the population; at each comparison, replace its worst members and let the others go on."""
        rungs = self.rungs_of(0)
        if len(trials) < self.population.size:
            return Start(len(trials), rungs[0])
        for rung, following in itertools.pairwise(rungs):
            members = self._members(trials, rung)
            if any(trial.runs and trial.target == rung for trial in members):
                return None
            copies = self._copies(members, rung)
            # copies first: as long as they are made, their parents have not gone on
            for place in sorted(copies):
                if not any(t.bracket == place and t.born >= rung for t in trials):
                    parent = members[copies[place]]
                    return Copy(place, parent.number, self._changed(parent, place, rung), following)
            for place, trial in enumerate(members):
                going = trial.round == trial.target == rung and not trial.failure
                if place not in copies and going:
                    return GoOn(trial.number, following)
        return None

    def _members(self, trials: Sequence[Trial], rung: int) -> list[Trial]:
        """Return the trial of each place that was to reach a rung."""
        found: dict[int, Trial] = {}
        for trial in trials:
            if trial.born < rung:
                found[trial.bracket] = trial
        return [found[place] for place in range(self.population.size)]

    def _copies(self, members: Sequence[Trial], rung: int) -> dict[int, int]:
        """Return place -> the place whose trial it takes over."""
        losses = np.array([-trial.value_at(rung) for trial in members])
        losses[np.isnan(losses)] = math.inf
        return exploit(losses, self.population.quantile, generator(self.seed, "population", "exploit", rung))

    def _changed(self, parent: Trial, place: int, rung: int) -> Array:
        """Return the point of a new trial."""
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
        if isinstance(parameter, Float) or parameter.num_values * width > 1.0:
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
