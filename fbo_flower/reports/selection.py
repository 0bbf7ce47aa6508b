"""Summarise selections of models: losses of the shipped model, dominated volumes, and win matrices.

The volume of a set of models lies between their losses (openbox outbag, curators' outbag, lockbox) and the
reference (1, 1, 1) [Sun2019, Eq. 1]; without a lockbox it is an area. There are two protocols. The paper's
protocol takes what each method returns: a set for methods with two objectives and for random search, one
configuration for "lso" and "fso". Since volumes reward sets, this says little about single models. The fair
protocol takes, for every method, the models that no other dominates in `(J_l, J_r)`. Volumes of any number of
losses are computed by moocore; devices, which load `numerics`, need them for two losses only.

[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbo_flower.algorithms.rfms.state import WITHHELD
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, BoolArray
from fbo_flower.study.schema import label
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table

PROTOCOLS = ("paper", "fair")
OUTBAG = ("openbox_outbag", "curators_outbag", "lockbox")
LOSSES = ("local_loss", "remote_loss", *OUTBAG)
_SINGLE = ("lso", "fso")  # methods that return one configuration


@dataclass(frozen=True)
class Selection:
    """The result of one run that selected models.

    Parameters
    ----------
    label : label of the run
    contestant : name under which runs are compared: the method and its options
    replication : the problem and the seed, which are the same for all runs that are compared
    num_trials, num_failed, num_front : number of configurations, of failed ones, and of models on the front
    shipped : losses of the shipped model by name in `LOSSES`; NaN if unknown
    volumes : protocol -> dominated volume; NaN if every reported model lacks a loss
    num_withheld : number of answers that sites refused because their query budgets were used up
    epsilon : the largest privacy loss of a site on the same rows; 0 without noise
    """

    label: str
    contestant: str
    replication: str
    num_trials: int
    num_failed: int
    num_front: int
    shipped: dict[str, float]
    volumes: dict[str, float]
    num_withheld: int = 0
    epsilon: float = 0.0


def selections(study: Study) -> list[Selection]:
    """Return one row per run that exchanged models."""
    found = []
    for run in study.settings["runs"]:
        rows = study.models.where(algorithm=label(run))
        if not len(rows):
            continue
        shipped = rows.take(rows["shipped"])
        front = rows.take(rows["on_front"])
        answers = study.judgements.where(algorithm=label(run))
        method = run.get("options", {}).get("method", "")
        reported = {"paper": shipped if method in _SINGLE else front, "fair": front}
        found.append(
            Selection(
                label(run),
                _contestant(run),
                json.dumps([run.get(key) for key in ("problem", "problem_options", "seed")], sort_keys=True),
                len(rows),
                int(np.count_nonzero(rows["failure"] != "")),
                len(front),
                {name: float(shipped[name][0]) if len(shipped) else math.nan for name in LOSSES},
                {protocol: volume(reported[protocol]) for protocol in PROTOCOLS},
                sum(str(reason).startswith(WITHHELD) for reason in answers["failure"]),
                float(np.max(answers["epsilon"], initial=0.0)),
            )
        )
    return found


def volume(models: Table) -> float:
    """Return the volume that models dominate; NaN if no model has all its losses.

    Parameters
    ----------
    models : rows of `study.models`; a loss that all of them lack (no lockbox) is left out
    """
    losses = np.array([models[name] for name in OUTBAG]).T.reshape(-1, len(OUTBAG))
    losses = losses[:, np.isfinite(losses).any(axis=0)]
    losses = losses[np.isfinite(losses).all(axis=1)]
    if losses.size == 0:
        return math.nan
    return hypervolume(losses[non_dominated(losses)], np.ones(losses.shape[1]))


def non_dominated(losses: Array) -> BoolArray:
    """Return which of `losses (n, k)` no other dominates, `(n,)`; of equal losses, only the first."""
    _check(losses)
    if len(losses) == 0:
        return np.zeros(0, dtype=np.bool_)
    import moocore

    return np.asarray(moocore.is_nondominated(losses, keep_weakly=False), dtype=np.bool_)


def hypervolume(losses: Array, reference: Array) -> float:
    """Return the volume between `losses (n, k)` and `reference (k,)`; 0 if no loss is below the reference.

    Examples
    --------
    >>> hypervolume(np.full((1, 3), 0.5), np.ones(3))
    0.125
    """
    _check(losses)
    if reference.shape != losses.shape[1:]:
        raise ConfigError(f"reference: expected {losses.shape[1]} numbers, got {reference.shape}")
    # moocore counts equal points once; we drop points beyond the reference
    inside = losses[(losses < reference).all(axis=1)]
    if len(inside) == 0:
        return 0.0
    import moocore

    return float(moocore.hypervolume(inside, ref=reference))


def _check(losses: Array) -> None:
    if losses.ndim != 2 or not np.isfinite(losses).all():
        raise ConfigError(f"losses: expected finite numbers (n, k), got {losses.shape}")


def volume_matrix(rows: list[Selection], protocol: str) -> tuple[list[str], Array]:
    """Return the contestants `(M,)` and their volumes by replication, `(R, M)`; NaN for a missing run."""
    names = list(dict.fromkeys(row.contestant for row in rows))
    keys = list(dict.fromkeys(row.replication for row in rows))
    values = np.full((len(keys), len(names)), np.nan)
    for row in rows:
        values[keys.index(row.replication), names.index(row.contestant)] = row.volumes[protocol]
    return names, values


def win_matrix(volumes: Array, tolerance: float = 1e-12) -> Array:
    """Return in which share of the replications each contestant beats each other, `(M, M)`.

    Parameters
    ----------
    volumes : `(R, M)`; a replication counts for a pair if both are finite
    tolerance : smaller differences are ties, which count half

    Returns
    -------
    Entry `[i, j]`: share of wins of `i` over `j`; NaN on the diagonal and without a common replication.

    Examples
    --------
    >>> win_matrix(np.array([[0.5, 0.4], [0.5, 0.5]]))
    array([[ nan, 0.75],
           [0.25,  nan]])
    """
    difference = volumes[:, :, None] - volumes[:, None, :]  # (R, M, M)
    score = np.where(difference > tolerance, 1.0, np.where(difference < -tolerance, 0.0, 0.5))
    known = np.isfinite(difference)
    count = known.sum(axis=0)
    share = np.where(known, score, 0.0).sum(axis=0) / np.where(count > 0, count, np.nan)
    np.fill_diagonal(share, np.nan)
    return np.asarray(share, dtype=np.float64)


def selection_cells(rows: list[Selection]) -> dict[str, list[str]]:
    """Return the table's columns: heading -> one cell per run."""
    cells = {
        "algorithm": [row.label for row in rows],
        "models": [str(row.num_trials) for row in rows],
        "failed": [str(row.num_failed) for row in rows],
        "on front": [str(row.num_front) for row in rows],
    }
    headings = ("J_l", "J_r", "openbox", "curators", "lockbox")
    for heading, name in zip(headings, LOSSES, strict=True):
        cells[f"shipped: {heading}"] = [_number(row.shipped[name]) for row in rows]
    for protocol in PROTOCOLS:
        cells[f"volume ({protocol})"] = [_number(row.volumes[protocol]) for row in rows]
    if any(row.num_withheld for row in rows):
        cells["answers withheld"] = [str(row.num_withheld) for row in rows]
    if any(row.epsilon for row in rows):
        cells["epsilon spent"] = [f"{row.epsilon:g}" if row.epsilon else "no noise" for row in rows]
    return cells


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _contestant(run: Mapping[str, Any]) -> str:
    options = run.get("options", {})
    parts = [str(options.get("method", label(run)))]
    if parts[0] == "fso":
        parts.append(f"{options.get('alpha', 0.5):g}")
    if options.get("ship", "own") != "own":
        parts.append(f"ship {options['ship']}")
    return " ".join(parts)
