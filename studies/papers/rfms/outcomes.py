"""Measure replays of RFMS: dominated volumes, and the shipped configuration's loss at the lockbox.

Volumes are those of `reports.selection`: (openbox outbag, curators' outbag, lockbox) against (1, 1, 1), for
the paper's protocol and the fair one. The loss at the lockbox is that on all its rows.

Notation: `n` configurations, losses `J_l (n,)` at the openbox and `J_i (n,)` at curator `i`. A criterion
returns `n` values, and the configuration with the smallest value is chosen (the first of equal ones). "mean",
"max" and "guarded max" are options `ship` of the algorithm. No criterion uses the lockbox. Criteria called
balanced need curators that weight both classes equally; the others need only what the paper's protocol sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fbo_flower.algorithms.rfms.state import GUESSING, Method, shipped
from fbo_flower.numerics.acquisition.hypervolume import hypervolume
from fbo_flower.numerics.acquisition.proposals import KERNEL
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates import fitting, gp
from fbo_flower.numerics.surrogates.transforms import standardise
from fbo_flower.numerics.threads import single_thread
from studies.jobs import Arrays, Job, job, stack
from studies.papers.rfms.replay import (
    METHODS,
    Indices,
    ReplayRun,
    ReplaySetting,
    Size,
    lockboxes,
    replay,
    replayed,
)
from studies.papers.rfms.tables import INBAG, OUTBAG, Key, load_table, problem_of


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
OWN, CHANCE, HINDSIGHT = "own", "any", "best of the run"  # in addition to the criteria
CHOICES = (OWN, *CRITERIA, CHANCE, HINDSIGHT)
HONEST = ("mean", "lockbox's inbag")  # choices measured on the lockbox's outbag


@dataclass(frozen=True)
class Outcomes:
    """All replications of one table; L lockboxes, R replications, M methods.

    Parameters
    ----------
    key : the table
    volumes : `(L, R, M, 2)`, under the paper's protocol and the fair one
    losses : `(L, R, M, C)`, losses at the lockbox, by `CHOICES`
    honest : `(L, R, M, 2)`, losses on the lockbox's outbag, by `HONEST`
    """

    key: Key
    volumes: Array
    losses: Array
    honest: Array


def jobs(tables: Path, replays: Path, key: Key, replications: Iterable[int], size: Size) -> list[Job]:
    """Return one job per replication that measures a table's replays, which must be in `replays`."""
    common = {"tables": str(tables), "replays": str(replays), "size": size}
    return [job(measure, key, r, **common) for r in replications]


def measure(key: Key, replication: int, tables: str, replays: str, size: Size) -> Arrays:
    """Measure one replication on one table; return the arrays of `Outcomes` without the axis R."""
    table = load_table(tables, key, size.num_configs)
    chosen = replayed(Path(replays), key, replication)
    space, boxes = problem_of(key).space, lockboxes(table, key.openbox)
    shape = (len(boxes), len(METHODS))
    volumes, losses, honest = (np.full((*shape, k), np.nan) for k in (2, len(CHOICES), len(HONEST)))
    with single_thread():
        for b, lockbox in enumerate(boxes):
            setting = ReplaySetting(table, space, key.openbox, lockbox)
            for m, method in enumerate(METHODS.values()):
                taken = chosen[b, m]
                volumes[b, m] = dominated(setting, method, taken)
                losses[b, m], honest[b, m] = chosen_losses(setting, method, taken)
    return {"volumes": volumes, "losses": losses, "honest": honest}


def draw(key: Key, tables: str, num_draws: int, size: Size) -> Arrays:
    """Measure random searches on one table: `losses (L, R, C)`, `honest (L, R, 2)` as in `Outcomes`."""
    table, space = load_table(tables, key, size.num_configs), problem_of(key).space
    method, found = METHODS["rand_mo"], []
    with single_thread():
        for lockbox in lockboxes(table, key.openbox):
            setting = ReplaySetting(table, space, key.openbox, lockbox)
            runs = [
                ReplayRun(setting, method, np.arange(0), key.seed, (str(key), "draw", r))
                for r in range(num_draws)
            ]
            for taken in replay(runs, size.num_trials):
                found.append(np.concatenate(chosen_losses(setting, method, taken)))
    values = np.reshape(found, (-1, num_draws, len(CHOICES) + len(HONEST)))
    return {"losses": values[..., : len(CHOICES)], "honest": values[..., len(CHOICES) :]}


def load(directory: Path, key: Key, replications: Sequence[int]) -> Outcomes:
    """Return the outcomes of a table whose jobs are all finished."""
    names = ("volumes", "losses", "honest")
    volumes, losses, honest = (
        np.moveaxis(stack(directory, n, replications, measure, key), 0, 1) for n in names
    )
    return Outcomes(key, volumes, losses, honest)


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


def chosen_losses(setting: ReplaySetting, method: Method, taken: Indices) -> tuple[Array, Array]:
    """Return the loss at the lockbox of each choice in `CHOICES`, and of `HONEST` on its outbag."""
    table, box = setting.table, setting.lockbox
    done = taken[np.isfinite(table.local[taken])]
    if len(done) == 0:
        return np.full(len(CHOICES), np.nan), np.full(len(HONEST), np.nan)
    told = seen(setting, done)
    lockbox, outbag = table.lockbox[done, box], table.outbag[done, box]
    own = int(np.argmin(method.combined(np.column_stack([told.local, told.remote]))))
    by_name = {name: int(np.argmin(criterion(told))) for name, criterion in CRITERIA.items()}
    chosen = [lockbox[i] for i in (own, *by_name.values())]
    losses = np.array([*chosen, lockbox.mean(), lockbox.min()])
    return losses, outbag[[by_name["mean"], int(np.argmin(table.inbag[done, box]))]]
