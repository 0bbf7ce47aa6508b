"""Measure replays of RFMS: dominated volumes, and the shipped configuration's loss at the lockbox.

Volumes are those of `reports.selection`: (openbox outbag, curators' outbag, lockbox) against (1, 1, 1), for
the paper's protocol and the fair one. The loss at the lockbox is that on all its rows.

Notation: `n` configurations, losses `J_l (n,)` at the openbox and `J_i (n,)` at curator `i`. A criterion
returns `n` values, and the configuration with the smallest value is chosen (the first of equal ones). "mean",
"max" and "guarded max" are options `ship` of the algorithm. No criterion uses the lockbox. Criteria called
balanced need curators that weight both classes equally; the others need only what the paper's protocol sends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.rfms.state import GUESSING, Method, shipped
from fbo_flower.numerics.acquisition.hypervolume import hypervolume
from fbo_flower.numerics.acquisition.proposals import KERNEL
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates import fitting, gp
from fbo_flower.numerics.surrogates.transforms import standardise
from fbo_flower.numerics.threads import single_thread
from fbo_flower.reports.selection import PROTOCOLS, win_matrix
from studies.experiment import Arrays
from studies.papers.rfms.replay import (
    METHODS,
    Indices,
    ReplayRun,
    ReplaySetting,
    Size,
    replay,
    replay_table,
    settings_of,
)
from studies.papers.rfms.tables import INBAG, OUTBAG, Key


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


# -- outcomes ----------------------------------------------------------------------------------

REFERENCE = np.ones(3)
CHANCE, HINDSIGHT = "any", "best of the run"
CHOICES = (*CRITERIA, CHANCE, HINDSIGHT)
COMPARED = ("fmo", "ehvi", "rand_mo")  # methods that choose by the mean of both losses
NUM_DRAWS = 10  # random searches on a table with class weights, and on the one without


def measure(key: Key, directory: str, num_replications: int, size: Size) -> Arrays:
    """Replay and measure all methods on a table.

    Returns
    -------
    `method/volume, paper`, `method/volume, fair`, `method/shipped loss` : `(R L,)`
    `method/PROTOCOL: wins over other` : share of replications with the larger volume, ties count half
    `criterion/loss` : `(R L M',)`, loss at the lockbox of what the methods of `COMPARED` choose by it
    """
    settings = settings_of(directory, key, size)
    repeats = range(math.ceil(num_replications / len(settings)))  # each lockbox gets equally many
    volumes, own, losses = [], [], []
    with single_thread():
        for replication in repeats:
            chosen = replay_table(key, settings, replication, size)
            for setting, taken in zip(settings, chosen, strict=True):
                pairs = list(zip(METHODS.values(), taken, strict=True))
                volumes.append([dominated(setting, *pair) for pair in pairs])
                found = [chosen_losses(setting, *pair) for pair in pairs]
                own.append([each[0] for each in found])
                losses += [each for name, (_, each) in zip(METHODS, found, strict=True) if name in COMPARED]
    arrays = by_choice(losses)
    for m, name in enumerate(METHODS):
        arrays[f"{name}/shipped loss"] = np.array(own)[:, m]
        for p, protocol in enumerate(PROTOCOLS):
            mine = np.array(volumes)[..., p]
            arrays[f"{name}/volume, {protocol}"] = mine[:, m]
            for other, share in zip(METHODS, win_matrix(mine)[m], strict=True):
                arrays[f"{name}/{protocol}: wins over {other}"] = np.array(share)
    return arrays


def draw(key: Key, directory: str, size: Size) -> Arrays:
    """Measure random searches on a table; return `criterion/loss (L R,)`, as `measure` does."""
    method, losses = METHODS["rand_mo"], []
    with single_thread():
        for setting in settings_of(directory, key, size):
            runs = [
                ReplayRun(setting, method, np.arange(0), key.seed, (str(key), "draw", r))
                for r in range(NUM_DRAWS)
            ]
            for taken in replay(runs, size.num_trials):
                losses.append(chosen_losses(setting, method, taken)[1])
    return by_choice(losses)


def by_choice(losses: Sequence[Array]) -> Arrays:
    """Return `criterion/loss (n,)` from losses by `CHOICES`."""
    return {f"{name}/loss": values for name, values in zip(CHOICES, np.array(losses).T, strict=True)}


def final_losses(setting: ReplaySetting, models: Sequence[int]) -> Array:
    """Return (openbox outbag, curators' outbag, lockbox) of models, `(k, 3)`, as at the end of a run."""
    table, index = setting.table, list(models)
    rows = table.rows[setting.curators, OUTBAG].sum()
    wrong = table.wrong[index][:, setting.curators, OUTBAG].sum(axis=(1, 2))
    columns = [table.outbag[index, setting.openbox], wrong / rows, table.lockbox[index, setting.lockbox]]
    return np.stack(columns, axis=1)


def dominated(setting: ReplaySetting, method: Method, taken: Indices) -> tuple[float, float]:
    """Return a run's volumes under the paper's protocol and under the fair one."""
    state = setting.state([int(i) for i in taken])
    best = shipped(state, "own", method)
    front = [int(taken[trial]) for trial in state.front()]
    if best is None or not front:
        return 0.0, 0.0
    paper = [int(taken[best])] if method.name in ("lso", "fso") else front
    first, second = (final_losses(setting, models) for models in (paper, front))
    return (
        hypervolume(-first, -REFERENCE),
        hypervolume(-second, -REFERENCE),
    )


def seen(setting: ReplaySetting, taken: Indices) -> ServerView:
    """Return what the server knows of the configurations `taken`, none of which failed."""
    table = setting.table
    curators = setting.curators
    rows = table.rows[:, INBAG]
    with np.errstate(invalid="ignore", divide="ignore"):  # a curator may have a single class
        shares = table.wrong[taken][:, curators, INBAG] / rows[curators]
    balanced = np.nanmean(shares, axis=2)
    answered = rows[[setting.openbox, *curators]].sum(axis=1)
    return ServerView(
        setting.features[taken], table.local[taken], table.inbag[taken][:, curators], balanced, answered
    )


def chosen_losses(setting: ReplaySetting, method: Method, taken: Indices) -> tuple[float, Array]:
    """Return the lockbox's loss of the method's own choice and of each in `CHOICES`."""
    table = setting.table
    done = taken[np.isfinite(table.local[taken])]
    if len(done) == 0:
        return np.nan, np.full(len(CHOICES), np.nan)
    told, lockbox = seen(setting, done), table.lockbox[done, setting.lockbox]
    own = int(np.argmin(method.combined(np.column_stack([told.local, told.remote]))))
    chosen = [lockbox[int(np.argmin(criterion(told)))] for criterion in CRITERIA.values()]
    return lockbox[own], np.array([*chosen, lockbox.mean(), lockbox.min()])
