"""Improvement of one to three objectives under limits: `log EI` or `log EHVI`, plus log probabilities.

Every output of an agent's evaluations, objective or limited, has a process of its own, and they count as
independent. In the units of the models larger is better: an objective to minimise, and an output that must
stay below a bound, are modelled with their sign turned. So a limit is a least value `b_c`, and

    log a(x) = log E[improvement of the objectives at x] + sum_c log Phi((m_c(x) - b_c) / s_c(x)),

the constrained expected improvement of [Gardner2014] in logarithms [Ament2023]. A limit is for the function,
not for a noisy value of it. The improvement is over the points that hold every limit by their posterior
means, which noise does not exaggerate: over the best of them, or over their front (`hypervolume`). As long as
there is no such point, only the probabilities are maximised [Gelbart2014]. An objective may have a limit too;
its two factors are multiplied like all others, as in Optuna and BoTorch.

Notation: `O` outputs, `n` own points, `m` candidates of each of `B` functions, `F` features.

**When a search has nothing left to gain** [Makarova2022]. With a high probability the function lies within
`m(x) +- sqrt(beta) s(x)` for all `x`. So what is left to gain over the evaluated points `X` is at most

    max_x [m(x) + sqrt(beta) s(x)] - max_(x in X) [m(x) - sqrt(beta) s(x)].

As in the paper, and in Optuna's `RegretBoundEvaluator`, `beta` is a fifth of the theory's, and the first
maximum is over sampled points.

References
----------
[Ament2023] Ament, Daulton, Eriksson, Balandat, Bakshy. Unexpected improvements to expected improvement for
Bayesian optimization. NeurIPS 2023.
[Gardner2014] Gardner, Kusner, Xu, Weinberger, Cunningham. Bayesian optimization with inequality constraints.
ICML 2014.
[Gelbart2014] Gelbart, Snoek, Adams. Bayesian optimization with unknown constraints. UAI 2014.
[Makarova2022] Makarova, Shen, Perrone, Klein, Faddoul, Krause, Seeger, Archambeau. Automatic termination for
hyperparameter optimization. AutoML 2022.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition.expected_improvement import HIGH, log_cdf, mills
from fbo_flower.numerics.acquisition.guided import LEAST_GAIN, GuidedImprovement, GuidedStack, Pull
from fbo_flower.numerics.acquisition.hypervolume import (
    free_boxes,
    log_improvement,
    non_dominated,
    reference_point,
)
from fbo_flower.numerics.arrays import Array, BoolArray, IntArray
from fbo_flower.numerics.optim.functions import Stack, Stackable
from fbo_flower.numerics.surrogates.transforms import FENCE, winsorise

DELTA = 0.1  # probability that the bound of what is left to gain does not hold
FARTHEST = 1e6  # of a limit from the values, in their standard deviations
LIKELY = float(np.log(0.5))  # probability that every limit holds, of a point that is taken for feasible


@dataclass(frozen=True)
class Goal:
    """What a search wants from its outputs; `Goal.of` makes it from what is known at an agent's points.

    Parameters
    ----------
    objectives : indices of one to three outputs
    least : `(O,)`, the limits; `-inf` for an output without one
    boxes : lower and upper corners `(J, K)` of where the objectives improve; None: no point holds every limit
    """

    objectives: tuple[int, ...]
    least: Array
    boxes: tuple[Array, Array] | None

    @staticmethod
    def of(means: Array, objectives: Sequence[int], least: Array, reference: Array | None = None) -> Goal:
        """Return the goal that improves on own points.

        Parameters
        ----------
        means : `(O, n)`, posterior means at them; without any, the prior mean 0 is to be improved on
        objectives : indices of one to three outputs
        least : `(O,)`
        reference : `(K,)`, the values from which improvement counts; NaN or None: see `hypervolume`
        """
        if (
            means.ndim != 2
            or least.shape != (len(means),)
            or np.isnan(least).any()
            or (least == np.inf).any()
        ):
            raise ConfigError(f"limits: expected a number below inf for each output, got {least.tolist()}")
        if not objectives or len({*objectives} & {*range(len(means))}) != len(objectives):
            raise ConfigError(f"objectives: expected some of {len(means)} outputs, got {list(objectives)}")
        values = means[list(objectives)].T[feasible(means, least)]
        if len(values):
            usual = reference_point(values[non_dominated(values)])
            start = usual if reference is None else np.where(np.isnan(reference), usual, reference)
            boxes = free_boxes(values, start)
        elif means.shape[1] or np.isfinite(least).any():
            return Goal(tuple(objectives), least, None)
        else:
            boxes = free_boxes(values, np.zeros(len(objectives)))
        return Goal(tuple(objectives), least, boxes)

    def __call__(self, mean: Array, stddev: Array) -> tuple[Array, Array, Array]:
        """Return values `(m,)` and slopes `(O, m)` in means and deviations, both `(O, m)`."""
        limited = np.flatnonzero(np.isfinite(self.least))
        value, in_mean, in_stddev = np.zeros(mean.shape[1]), np.zeros(mean.shape), np.zeros(mean.shape)
        for output in limited:
            z = (mean[output] - self.least[output]) / stddev[output]
            value += log_cdf(z)
            # d log Phi = phi / Phi dz, the inverse of Mills' ratio
            in_mean[output] = 1.0 / (mills(np.minimum(z, HIGH)) * stddev[output])
            in_stddev[output] = -z * in_mean[output]
        if self.boxes is not None:
            which = list(self.objectives)
            improvement, by_mean, by_stddev = log_improvement(mean[which], stddev[which], *self.boxes)
            value += improvement
            in_mean[which] += by_mean
            in_stddev[which] += by_stddev
        return value, in_mean, in_stddev

    def liked(self, mean: Array, stddev: Array) -> Array:
        """Return how good candidates are by their means, `(m,)`, -inf unless they are likely feasible.

        Several objectives count by the volume that they add. Without a point that holds every limit this
        begins at the worst of the candidates. If no candidate is likely feasible, the likeliest is the best.

        Parameters
        ----------
        mean, stddev : `(O, m)`
        """
        likely, _, _ = Goal(self.objectives, self.least, None)(mean, stddev)
        if likely.max() < LIKELY:
            return likely
        values = mean[list(self.objectives)]
        boxes = self.boxes or free_boxes(np.empty((0, len(values))), values.min(axis=1) - 1.0)
        return np.where(
            likely < LIKELY, -np.inf, log_improvement(values, np.full_like(values, 0.01), *boxes)[0]
        )


def feasible(values: Array, least: Array) -> BoolArray:
    """Return which columns of `values (O, n)` hold the limits `least (O,)`, `(n,)`."""
    return np.asarray((values >= least[:, None]).all(axis=0), dtype=np.bool_)


def in_units(values: Array, bound: float) -> tuple[Array, float]:
    """Return an output, larger is better, and its least value in the units of the models.

    Values that are far worse than the others are raised to a fence (`winsorise`). Where that would lift some
    across the limit, these are raised to one spread below the fence only, and the limit stands between both.

    Parameters
    ----------
    values : `(n,)`, finite
    bound : the limit, in the units of the values

    Returns
    -------
    Values `(n,)` of mean 0 and standard deviation 1, and the limit.

    Examples
    --------
    >>> in_units(np.array([10.0, 30.0]), 20.0)
    (array([-1.,  1.]), 0.0)
    """
    if not len(values):
        return values, 0.0
    raised = winsorise(values)
    exponent = np.frexp(np.abs(raised).max())[1]  # a power of two: exact, and no square overflows
    with np.errstate(over="ignore"):
        y, raised, limit = (np.ldexp(a, -exponent) for a in (values, raised, bound))
        broken = y < limit
        if (broken & (raised >= limit)).any():
            fence = raised.min()
            spread = (raised.max() - fence) / (1.0 + FENCE)
            raised = np.where(broken, np.maximum(y, fence - spread), raised)
            limit = max(limit, fence - 0.5 * spread)
        centre, scale = raised.mean(), raised.std()
        if scale <= 1e-12 * np.abs(raised).max():  # all are equal: there is no unit but the way to the limit
            return np.zeros(len(y)), float(np.sign(limit - centre))
        distance = np.clip((limit - centre) / scale, -FARTHEST, FARTHEST)
    return (raised - centre) / scale, float(distance)


@dataclass(frozen=True)
class FeasibleImprovement(Stackable):
    """A goal's function of the posteriors of all outputs, a `Differentiable`.

    Parameters
    ----------
    processes : one per output; their `best` is not used
    goal : what their means and deviations are worth
    """

    processes: tuple[GuidedImprovement, ...]
    goal: Goal

    @property
    def shape(self) -> tuple[object, ...]:
        return tuple(process.shape for process in self.processes)

    def moments(self, z: Array) -> tuple[Array, Array]:
        """Return means and standard deviations `(O, m)` at points `z (m, F)`."""
        mean, stddev, _ = self.stacked([self]).moments(z[None])
        return mean[0], stddev[0]

    def liked(self, z: Array) -> Array:
        """Return `Goal.liked` of points `z (m, F)`, `(m,)`."""
        return self.goal.liked(*self.moments(z))

    @staticmethod
    def stacked(functions: Sequence[FeasibleImprovement]) -> FeasibleStack:
        """Stack functions of one shape."""
        outputs = zip(*(function.processes for function in functions), strict=True)
        stacks = [processes[0].stacked(processes) for processes in outputs]
        return FeasibleStack(stacks, [function.goal for function in functions])


@dataclass(frozen=True)
class FeasibleStack(Stack):
    """`FeasibleImprovement`s of one shape.

    The processes of one output are computed together for all functions. Goals are not: their fronts differ in
    size.

    Parameters
    ----------
    processes : for each output those of the `B` functions
    goals : `B`
    """

    processes: Sequence[GuidedStack]
    goals: Sequence[Goal]
    value_tolerance: ClassVar[float] = LEAST_GAIN

    def values(self, z: Array, /) -> Array:
        """Return values `(B, m)` at `z (B, m, F)`."""
        values: Array = self._worth(z)[0]
        return values

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(B, m)` and gradients `(B, m, F)`."""
        values, in_means, in_stddevs, pulls = self._worth(z)
        gradients = np.zeros(z.shape)
        for output, pull in enumerate(pulls):
            gradients += pull(in_means[:, output], in_stddevs[:, output])
        return values, gradients

    def take(self, rows: IntArray, /) -> FeasibleStack:
        return FeasibleStack([p.take(rows) for p in self.processes], [self.goals[row] for row in rows])

    def _worth(self, z: Array) -> tuple[Array, Array, Array, Sequence[Pull]]:
        """Return values `(B, m)`, their slopes in means and deviations `(B, O, m)`, and the pulls."""
        means, stddevs, pulls = self.moments(z)
        parts = [goal(mean, stddev) for goal, mean, stddev in zip(self.goals, means, stddevs, strict=True)]
        values, in_means, in_stddevs = (np.array(part) for part in zip(*parts, strict=True))
        return values, in_means, in_stddevs, pulls

    def moments(self, z: Array) -> tuple[Array, Array, Sequence[Pull]]:
        """Return means and deviations `(B, O, m)` of all outputs, and the pulls."""
        means, stddevs, pulls = zip(*(process.moments(z) for process in self.processes), strict=True)
        return np.stack(means, axis=1), np.stack(stddevs, axis=1), pulls


def confidence(num_points: int, dimension: int) -> float:
    """Return `sqrt(beta)` after a number of evaluations, in a space of some dimension."""
    return math.sqrt(0.4 * math.log(dimension * num_points**2 * math.pi**2 / (6.0 * DELTA)))


def left_to_gain(mean: Array, stddev: Array, num_own: int, least: Array, factor: float) -> float:
    """Return the bound for the first output, inf if no own point holds every limit by its means.

    Where a limit may hold, a point counts as feasible for the first maximum.

    Parameters
    ----------
    mean, stddev : `(O, m)`, of outputs at sampled points and, the last `num_own`, at own points
    least : `(O,)`, the limits, -inf for an output without one
    factor : `confidence`
    """
    holds = feasible(mean[:, -num_own:], least)
    if not holds.any():
        return math.inf
    upper, lower = mean + factor * stddev, mean - factor * stddev
    highest = np.where(feasible(upper, least), upper[0], -np.inf).max()
    return float(highest - lower[0, -num_own:][holds].max())
