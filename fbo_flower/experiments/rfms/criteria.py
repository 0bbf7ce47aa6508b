"""Criteria by which a server of RFMS may choose the one configuration to ship, from what it was told.

Notation: `n` configurations, `J_l (n,)` at the openbox, `J_i (n,)` at curator `i`. A criterion returns `n`
values, of which the least is chosen (of equal ones the first). "mean", "max" and "guarded max" are the
algorithm's own `ship`. None looks at the lockbox. Those called balanced suppose a scorer that
weighs both classes alike at the curators; the others need nothing that the paper's protocol does not send.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.rfms.methods import GUESSING
from fbo_flower.numerics.acquisition.proposals import KERNEL
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.transforms import standardise


@dataclass(frozen=True)
class ServerView:
    """What a run ended with.

    Parameters
    ----------
    features : `(n, F)`
    local : `(n,)`, `J_l`
    curators : `(n, C)`, `J_i`
    balanced : `(n, C)`, the curators' mean loss over both classes
    rows : `(1 + C,)`, how many rows answered, the openbox first
    """

    features: Array
    local: Array
    curators: Array
    balanced: Array
    rows: Array

    @property
    def remote(self) -> Array:
        """Return `J_r`, `(n,)`."""
        return np.asarray(self.curators @ self.rows[1:] / self.rows[1:].sum())

    @property
    def mean(self) -> Array:
        """Return `(J_l + J_r) / 2`, `(n,)`."""
        return 0.5 * (self.local + self.remote)

    @property
    def sites(self) -> Array:
        """Return the losses at all sites, the openbox first, `(n, 1 + C)`."""
        return np.column_stack([self.local, self.curators])


def shrunken(features: Array, losses: Array) -> Array:
    """Return the posterior mean of losses `(n,)` at the points where they were measured.

    A Gaussian process with fitted noise takes part of a lucky loss for noise.
    """
    if np.ptp(losses) <= 1e-12:
        return losses
    y = standardise(-losses)
    fitted = gp.fit(features, y, KERNEL, generator(0, "shrunken")).hyperparameters
    mean, _ = gp.posterior(features, y, fitted).predict(features)
    return np.asarray(losses.mean() - losses.std() * mean)


def one_standard_error(seen: ServerView) -> Array:
    """Largest loss at any site, among configurations whose mean is within a standard error of the best.

    The error is that of a share of all rows that answered.
    """
    mean, num_rows = seen.mean, seen.rows.sum()
    best = mean.min()
    allowed = best + np.sqrt(best * (1.0 - best) / num_rows)
    return np.where(mean <= allowed, seen.sites.max(axis=1), np.inf)


def guarded_max(seen: ServerView) -> Array:
    """Largest loss at any site, if some configuration is better than guessing at every site; else the mean.

    Where none is, the worst site is beyond help, and what suits it least badly says nothing of others.
    """
    worst = seen.sites.max(axis=1)
    return worst if worst.min() < GUESSING else seen.mean


def regret(seen: ServerView) -> Array:
    """Largest excess over the best configuration of a site."""
    sites = seen.sites
    return np.asarray((sites - sites.min(axis=0)).max(axis=1))


CRITERIA: dict[str, Callable[[ServerView], Array]] = {
    "mean": lambda seen: seen.mean,
    "local": lambda seen: seen.local,
    "remote": lambda seen: seen.remote,
    "max": lambda seen: seen.sites.max(axis=1),
    "guarded max": guarded_max,
    "worst two": lambda seen: np.sort(seen.sites, axis=1)[:, -2:].mean(axis=1),
    "regret": regret,
    "rows": lambda seen: seen.sites @ seen.rows / seen.rows.sum(),
    "sites alike": lambda seen: seen.sites.mean(axis=1),
    "sites + max": lambda seen: 0.5 * (seen.sites.mean(axis=1) + seen.sites.max(axis=1)),
    "mean + s.d.": lambda seen: seen.sites.mean(axis=1) + seen.sites.std(axis=1),
    "shrunken mean": lambda seen: shrunken(seen.features, seen.mean),
    "shrunken sites": lambda seen: shrunken(seen.features, seen.sites.mean(axis=1)),
    "one s.e., max": one_standard_error,
    "balanced mean": lambda seen: 0.5 * (seen.local + seen.balanced.mean(axis=1)),
    "balanced + sites": lambda seen: 0.5 * (seen.sites.mean(axis=1) + seen.balanced.mean(axis=1)),
}
