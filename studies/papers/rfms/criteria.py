"""Criteria by which the server of RFMS can choose the configuration to ship from the losses it received.

Notation: `n` configurations, losses `J_l (n,)` at the openbox and `J_i (n,)` at curator `i`. A criterion
returns `n` values, and the configuration with the smallest value is chosen (the first of equal ones). "mean",
"max" and "guarded max" are options `ship` of the algorithm. No criterion uses the lockbox. Criteria called
balanced need curators that weight both classes equally; the others need only what the paper's protocol sends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.rfms.state import GUESSING
from fbo_flower.numerics.acquisition.proposals import KERNEL
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates import fitting, gp
from fbo_flower.numerics.surrogates.transforms import standardise


@dataclass(frozen=True)
class ServerView:
    """What the server knows at the end of a run.

    Parameters
    ----------
    features : `(n, F)`, features of the configurations
    local : `(n,)`, `J_l`
    curators : `(n, C)`, `J_i`
    balanced : `(n, C)`, the curators' losses with both classes weighted equally
    rows : `(1 + C,)`, number of rows behind each loss, the openbox first
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

    A Gaussian process with fitted noise attributes part of a small loss to luck.
    """
    if np.ptp(losses) <= 1e-12:
        return losses
    y = standardise(-losses)
    fitted = fitting.fit_one(features, y, KERNEL)
    mean, _ = gp.posterior(features, y, fitted).predict(features)
    return np.asarray(losses.mean() - losses.std() * mean)


def one_standard_error(seen: ServerView) -> Array:
    """Return the largest loss at any site, for configurations whose mean is close to the best mean.

    Close means within one standard error, computed for a proportion of all rows.
    """
    mean, num_rows = seen.mean, seen.rows.sum()
    best = mean.min()
    allowed = best + np.sqrt(best * (1.0 - best) / num_rows)
    return np.where(mean <= allowed, seen.sites.max(axis=1), np.inf)


def guarded_max(seen: ServerView) -> Array:
    """Return the largest loss at any site if a configuration beats guessing at every site; else the mean.

    If none does, no configuration helps the worst site, and its losses say little about other sites.
    """
    worst = seen.sites.max(axis=1)
    return worst if worst.min() < GUESSING else seen.mean


def regret(seen: ServerView) -> Array:
    """Return the largest excess over any site's best configuration."""
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
