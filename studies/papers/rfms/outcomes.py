"""Measure replays of RFMS: dominated volumes, and the shipped configuration's loss at the lockbox.

Volumes are those of `reports.selection`: (openbox outbag, curators' outbag, lockbox) against (1, 1, 1), for
the paper's protocol and the fair one. The loss at the lockbox is that on all its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fbo_flower.algorithms.rfms.state import Method, shipped
from fbo_flower.numerics.acquisition.hypervolume import hypervolume
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.threads import single_thread
from studies.jobs import Arrays, Job, load_job
from studies.papers.rfms.criteria import CRITERIA, ServerView
from studies.papers.rfms.replay import (
    METHODS,
    Indices,
    ReplayRun,
    ReplaySetting,
    Size,
    job_name,
    lockboxes,
    replay,
)
from studies.papers.rfms.replay import load as load_replay
from studies.papers.rfms.tables import INBAG, OUTBAG, Key, load_table, problem_of

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
    arguments = {"tables": str(tables), "replays": str(replays), "key": key, "size": size}
    return [Job(job_name(key, r), measure, {**arguments, "replication": r}) for r in replications]


def measure(tables: str, replays: str, key: Key, size: Size, replication: int) -> Arrays:
    """Measure one replication on one table; return the arrays of `Outcomes` without the axis R."""
    table = load_table(tables, key, size.num_configs)
    chosen = load_replay(Path(replays), key, replication)
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


def random_cell(tables: Path, key: Key, num_draws: int, size: Size) -> Job:
    """Return the job that measures many random searches on one table, which need no surrogate."""
    arguments = {"tables": str(tables), "key": key, "num_draws": num_draws, "size": size}
    return Job(f"{key.name}-random", draw, arguments)


def draw(tables: str, key: Key, num_draws: int, size: Size) -> Arrays:
    """Measure random searches on one table: `losses (L, R, C)`, `honest (L, R, 2)` as in `Outcomes`."""
    table, space = load_table(tables, key, size.num_configs), problem_of(key).space
    method, found = METHODS["rand_mo"], []
    with single_thread():
        for lockbox in lockboxes(table, key.openbox):
            setting = ReplaySetting(table, space, key.openbox, lockbox)
            runs = [
                ReplayRun(setting, method, np.arange(0), key.seed, (key.name, "draw", r))
                for r in range(num_draws)
            ]
            for taken in replay(runs, size.num_trials):
                found.append(np.concatenate(chosen_losses(setting, method, taken)))
    values = np.reshape(found, (-1, num_draws, len(CHOICES) + len(HONEST)))
    return {"losses": values[..., : len(CHOICES)], "honest": values[..., len(CHOICES) :]}


def load(directory: Path, key: Key, replications: Sequence[int]) -> Outcomes:
    """Return the outcomes of a table whose jobs are all finished."""
    parts = [load_job(directory, job_name(key, r)) for r in replications]
    volumes, losses, honest = (
        np.stack([p[name] for p in parts], axis=1) for name in ("volumes", "losses", "honest")
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
