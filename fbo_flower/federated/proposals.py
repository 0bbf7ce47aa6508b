"""The configuration of a new trial, by expected improvement or at random; and which trial is the best.

The surrogate and its priors are those of `ei`, and so is the maximisation of `log EI`. What is new is what it
observes: one value per trial, moved to the last rung, with a known variance of its own, which
comes from the clients that judged it and from the rounds that it lacks (`values`). A trial that runs, but has
no value yet, counts with the surrogate's own mean, so that trials side by side are not the same twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.ei.local import KERNEL, PRIORS
from fbo_flower.algorithms.options import check_choice, check_number
from fbo_flower.algorithms.records import Array
from fbo_flower.algorithms.requests import alone
from fbo_flower.algorithms.search import searching
from fbo_flower.federated.records import Trial
from fbo_flower.federated.values import final_values
from fbo_flower.numerics.acquisition.guided import GuidedImprovement
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import fitting, gp
from fbo_flower.numerics.surrogates.transforms import standardise, winsorise
from fbo_flower.space.space import SearchSpace

PROPOSALS = ("ei", "random")
MIN_DISTANCE, NUM_CANDIDATES = 1e-3, 256  # the defaults of `ei`


@dataclass(frozen=True)
class Proposals:
    """Proposes configurations.

    Parameters
    ----------
    space : the search space
    kind : "ei" or "random"
    num_initial : trials with random configurations before the first one by expected improvement
    seed : of the draws
    """

    space: SearchSpace
    kind: str
    num_initial: int
    seed: int

    def __post_init__(self) -> None:
        check_choice("proposals", self.kind, PROPOSALS)
        check_number("num_initial", self.num_initial, 1, integer=True)

    def propose(self, trials: Sequence[Trial], rungs: Sequence[int]) -> Array:
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
        process = self.process(x, y, variances)
        incumbent = int(np.argmax(process.means))
        own = self.space.snap(np.array([trial.point for trial in trials]))
        steps = searching(
            GuidedImprovement(process, float(process.means[incumbent])),
            self.space,
            own,
            own[incumbent : incumbent + 1],
            NUM_CANDIDATES,
            MIN_DISTANCE,
            rng,
        )
        found: Array = alone(steps)[0]
        return found

    def observations(
        self, trials: Sequence[Trial], rungs: Sequence[int]
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
    trials: Sequence[Trial], proposals: Proposals | None = None, rungs: Sequence[int] = ()
) -> list[Trial]:
    """Return the trials that have a value from the best to the worst.

    Finalists that were judged by all clients come first, by that value.

    Parameters
    ----------
    proposals, rungs : whose surrogate smooths the values; None: by the values as they are
    """
    known = [trial for trial in trials if trial.rounds and not trial.failure]
    values = {trial.number: trial.value for trial in known}
    if proposals is not None:
        values |= smoothed(trials, proposals, rungs)

    def key(trial: Trial) -> tuple[bool, float, int, float, int]:
        judged = trial.judged
        return (
            judged is None,
            0.0 if judged is None else -judged,
            -trial.round,
            -values[trial.number],
            trial.number,
        )

    return sorted(known, key=key)


def smoothed(trials: Sequence[Trial], proposals: Proposals, rungs: Sequence[int]) -> dict[int, float]:
    """Return the posterior mean at each trial; nothing if there is no surrogate yet."""
    if proposals.kind != "ei" or len(trials) < proposals.num_initial:
        return {}
    observed = proposals.observations(trials, rungs)
    if observed is None:
        return {}
    means = proposals.process(*observed).means
    return {trial.number: float(mean) for trial, mean in zip(trials, means, strict=True)}
