"""The configuration of a new trial, by expected improvement or at random; and which trial is the best.

The surrogate and its priors are those of `ei`, and so is the maximisation of `log EI`. What is new is what it
observes: one value per trial, moved to the last rung, with a known variance of its own, which
comes from the clients that judged it and from the rounds that it lacks. A trial that runs, but has no value
yet, counts with the surrogate's own mean, so that trials side by side are not the same twice.

**Clients.** A trial is judged by clients that were drawn from the federation, and Kuo et al. show that
this noise alone reverses rankings [Kuo2023]. Its size is known from the clients' own numbers. The aggregated
metric is the ratio `m = sum_i w_i m_i / sum_i w_i` of a sample of `n` out of `N` clients, so

    Var m  ~  (1 - n / N)  n / (n - 1)  sum_i (w_i / sum_j w_j)^2 (m_i - m)^2

[Cochran1977, Eq. 6.13 with the sample's weights]. With equal weights that is the textbook
`(1 - n / N) s^2 / n`, which is unbiased.

A weighted median is judged in the same way, with two changes: the values' spread is `1.4826` times the median
of `|m_i - m|`, which a false value cannot raise, and the variance is `pi / 2` times that of the mean, as for
normal values.

**Rounds.** Most trials stop early. A trial that was stopped after round `r` is moved to the next rung `s` by
the mean gain `g` of the trials that have values at both, and to the end rung by rung. The gain is not the
same for all trials, so its variance between trials is added to the variance of the observation, and the
surrogate trusts a whole run more than one that it has seen only the start of. With `m` gains `d_j` and their
mean `g`

    variance between trials = (g^2 / 4 + sum_j (d_j - g)^2) / m,

where the first term stands for an assumed relative deviation of one half and loses its weight with `m`; the
mean itself adds a share of `1 / m`. Where no trial has gone on there is no gain to add, and all trials are
compared where they are.

References
----------
[Kuo2023] Kuo, Thaker, Khodak, Nguyen, Jiang, Talwalkar, Smith. On noisy evaluation in federated
hyperparameter tuning. MLSys 2023.
[Cochran1977] Cochran. Sampling techniques, third edition. Wiley 1977.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass

import numpy as np

from fbo_flower.algorithms.ei.local import KERNEL, PRIORS
from fbo_flower.algorithms.options import Settings, choice, integer
from fbo_flower.algorithms.records import Array
from fbo_flower.algorithms.search import farthest, search
from fbo_flower.federated.records import FederatedTrial
from fbo_flower.numerics.acquisition.guided import GuidedImprovement
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import fitting, gp
from fbo_flower.numerics.surrogates.transforms import all_equal, standardise, winsorise
from fbo_flower.space.space import SearchSpace

PROPOSALS = ("ei", "random")
MIN_DISTANCE, NUM_CANDIDATES = 1e-3, 256  # the defaults of `ei`


@dataclass(frozen=True)
class Proposals(Settings):
    """Proposes configurations.

    Parameters
    ----------
    space : the search space
    kind : "ei" or "random"
    num_initial : trials with random configurations before the first one by expected improvement
    seed : of the draws
    """

    space: SearchSpace
    kind: str = choice(MISSING, PROPOSALS)
    num_initial: int = integer(MISSING, 1)
    seed: int = integer(MISSING, 0)

    def propose(self, trials: Sequence[FederatedTrial], rungs: Sequence[int]) -> Array:
        """Return the point `(D,)` of the next trial.

        Parameters
        ----------
        rungs : rounds at which trials are compared
        """
        rng = generator(self.seed, "federation", "propose", len(trials))
        random: Array = self.space.snap(rng.random((1, self.space.dimension)))[0]
        if self.kind == "random" or len(trials) < self.num_initial:
            return random
        observed = self.observations(trials, rungs)
        if observed is None:
            return random
        x, y, variances = observed
        own = self.space.snap(np.array([trial.point for trial in trials]))
        if all_equal(y[np.isfinite(y)]):
            return np.asarray(farthest(self.space, own, rng)[0], dtype=np.float64)
        process = self.process(x, y, variances)
        incumbent = int(np.argmax(process.means))
        found: Array = search(
            GuidedImprovement(process, float(process.means[incumbent])),
            self.space,
            own,
            own[incumbent : incumbent + 1],
            NUM_CANDIDATES,
            MIN_DISTANCE,
            rng,
        )[0]
        return found

    def observations(
        self, trials: Sequence[FederatedTrial], rungs: Sequence[int]
    ) -> tuple[Array, Array, Array] | None:
        """Return features `(n, F)`, standardised values and their known variances `(n,)`; None: no value yet.

        A failed trial counts as the worst one. A trial without a value yet has NaN.
        """
        values, variances = final_values(trials, rungs)
        there = np.isfinite(values)
        if not there.any():
            return None
        failed = np.array([bool(trial.failure) for trial in trials])
        values = np.where(failed, values[there].min(), values)
        there |= failed
        raised = winsorise(values[there])
        spread = float(raised.std())
        y = np.full(len(trials), np.nan)
        y[there] = standardise(raised)
        scaled = variances / spread**2 if spread > 0.0 else np.zeros(len(trials))
        return self.space.features(np.array([trial.point for trial in trials])), y, scaled

    def process(self, x: Array, y: Array, variances: Array) -> gp.Posterior:
        """Return the surrogate; values that are NaN are replaced by its own mean."""
        there = np.isfinite(y)
        points, values, noise = x[there], y[there], variances[there]
        h = fitting.fit_one(points, values, KERNEL, priors=PRIORS, known=fitting.Known(np.diag(noise)))
        known = gp.posterior(points, values, h, noise)
        if there.all():
            return known
        filled = y.copy()
        filled[~there] = known.mean(x[~there])
        return gp.posterior(x, filled, h, np.where(there, variances, 0.0))


def ranking(
    trials: Sequence[FederatedTrial], proposals: Proposals | None = None, rungs: Sequence[int] = ()
) -> list[FederatedTrial]:
    """Return the trials that have a value from the best to the worst.

    Finalists that were judged by all clients come first, by that value.

    Parameters
    ----------
    proposals, rungs : whose surrogate smooths the values; None: by the values as they are
    """
    known = [trial for trial in trials if trial.has_value]
    values = {trial.number: trial.value for trial in known}
    if proposals is not None and proposals.kind == "ei" and len(trials) >= proposals.num_initial:
        observed = proposals.observations(trials, rungs)
        if observed is not None:
            means = proposals.process(*observed).means
            values = {trial.number: float(mean) for trial, mean in zip(trials, means, strict=True)}

    def key(trial: FederatedTrial) -> tuple[bool, float, int, float, int]:
        judged = trial.judged
        best_first = 0.0 if judged is None else -judged
        return judged is None, best_first, -trial.round, -values[trial.number], trial.number

    return sorted(known, key=key)


def sampling_variance(values: Array, weights: Array, population: int) -> float:
    """Return the variance of the weighted mean of sampled clients' values about that of all clients.

    Parameters
    ----------
    values, weights : `(n,)`, of the clients in the sample; weights are positive
    population : `N >= n`, number of clients in the federation

    Returns
    -------
    0 if all clients are in the sample. With a single client there is nothing to estimate from: NaN.
    """
    shares = weights / weights.sum()
    deviations = values - shares @ values
    return _of_sample(float(np.sum((shares * deviations) ** 2)), len(values), population)


def median_variance(values: Array, weights: Array, median: float, population: int) -> float:
    """Return the variance of the weighted median of sampled clients' values; see `sampling_variance`."""
    shares = weights / weights.sum()
    spread = 1.4826 * float(np.median(np.abs(values - median)))
    return _of_sample(np.pi / 2.0 * float(np.sum(shares**2)) * spread**2, len(values), population)


def _of_sample(variance: float, n: int, population: int) -> float:
    """Return a variance times `(1 - n / N) n / (n - 1)`; NaN for a single client."""
    if n >= population:
        return 0.0
    return variance * (1.0 - n / population) * n / (n - 1) if n > 1 else math.nan


def final_values(trials: Sequence[FederatedTrial], rungs: Sequence[int]) -> tuple[Array, Array]:
    """Return each trial's expected value at the last rung that any trial has reached, and its variance.

    Parameters
    ----------
    rungs : rounds at which trials may stop, in ascending order

    Returns
    -------
    Values and variances `(n,)`. A trial without any value, or with a failure, has NaN and 0.
    """
    values = np.array([trial.value for trial in trials])
    variances = np.array([trial.rounds[-1].variance if trial.rounds else 0.0 for trial in trials])
    for k, trial in enumerate(trials):
        at = trial.round
        while math.isfinite(values[k]) and (later := [rung for rung in rungs if rung > at]):
            gain, between = gain_of(trials, at, later[0])
            values[k] += gain
            variances[k] += between
            at = later[0]
    known = variances[np.isfinite(variances)]
    # the variance of a single client's value is unknown: it is at least that of others
    variances[~np.isfinite(variances)] = known.max(initial=0.0)
    return values, np.where(np.isfinite(values), variances, 0.0)


def gain_of(trials: Sequence[FederatedTrial], start: int, end: int) -> tuple[float, float]:
    """Return the mean gain between two rounds, and the variance of one trial's gain; 0, 0: unknown."""
    gains = np.array(
        [
            trial.value_at(end) - trial.value_at(start)
            for trial in trials
            if trial.round >= end and math.isfinite(trial.value_at(end))
        ]
    )
    m = len(gains)
    if start == 0 or not m:
        return 0.0, 0.0
    mean = float(gains.mean())
    between = (mean**2 / 4.0 + float(((gains - mean) ** 2).sum())) / m
    return mean, between * (1.0 + 1.0 / m)
