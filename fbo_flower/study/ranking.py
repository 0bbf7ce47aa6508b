"""Rank results: natural order of agents, each agent's best value so far, and its best row."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition.hypervolume import hypervolume, non_dominated
from fbo_flower.study.schema import RECOMMENDATIONS
from fbo_flower.study.table import Column, Table

Array = npt.NDArray[np.float64]


@lru_cache(maxsize=2**17)  # every table of a study sorts the same agents
def natural_order(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key that puts "2" before "10", and "7" directly before "007".

    Examples
    --------
    >>> sorted(["site-10", "site-2", "10", "2"], key=natural_order)
    ['2', '10', 'site-2', 'site-10']
    """
    parts = re.split(r"([0-9]+)", name)  # text, digits, text, ...
    parts[1::2] = [digits.lstrip("0") for digits in parts[1::2]]
    return [(len(part) if place % 2 else 0, part) for place, part in enumerate(parts)], name


def incumbents(trials: Table, *, minimize: bool = False) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Return the value at each agent's best after each of its evaluations.

    That is the best value so far. Where an agent's model has found noise, it is what was measured at the
    configuration that was best by its mean then, so it may become worse.

    Parameters
    ----------
    trials : rows of one algorithm, columns as in `study.schema.TRIALS`, in any order. An agent's trials count
        in the order of `trial`; one that failed, was stopped early or broke a limit changes nothing. A row
        with `pulls = k` stands for `k` evaluations and holds their mean
    minimize : whether smaller values are better

    Returns
    -------
    agents : in natural order
    curves : `(num_agents, max_evaluations)`; NaN before the first success and after the last evaluation

    Examples
    --------
    >>> columns = {"algorithm": ["ts"] * 4, "agent": ["1"] * 3 + ["2"], "trial": [0, 1, 2, 0]}
    >>> incumbents(Table({**columns, "value": [np.nan, 0.5, 0.25, 0.75]}))
    (['1', '2'], array([[ nan, 0.5 , 0.5 ],
           [0.75,  nan,  nan]]))
    """
    if len(algorithms := set(trials["algorithm"].tolist())) > 1:
        raise ConfigError(
            f"incumbents: expected trials of one algorithm, got {', '.join(sorted(algorithms))}"
        )
    agents, agent = _ranks(trials["agent"])
    order = np.lexsort((trials["trial"], agent))
    sign = -1.0 if minimize else 1.0
    values = trials["value"]
    if "stopped_at" in trials.columns:  # a partial value is no result
        values = np.where(np.isfinite(trials["stopped_at"]), np.nan, values)
    if "feasible" in trials.columns:
        values = np.where(trials["feasible"], values, np.nan)
    agent, value = agent[order], sign * values[order]
    pulls = trials["pulls"][order] if "pulls" in trials.columns else np.ones(len(agent), dtype=np.int64)
    num_evaluations = np.zeros(len(agents), dtype=np.int64)
    np.add.at(num_evaluations, agent, pulls)
    start = np.cumsum(num_evaluations) - num_evaluations
    evaluation = np.cumsum(pulls) - 1 - start[agent]  # a row's mean is known after its last evaluation
    curves = np.full((len(agents), num_evaluations.max(initial=0)), -np.inf)
    curves[agent, evaluation] = np.where(np.isfinite(value), value, -np.inf)
    curves = sign * np.maximum.accumulate(curves, axis=1)
    if "best" in trials.columns:  # in which an agent's model found noise, until it has another best
        known = np.zeros(curves.shape, dtype=np.intp)
        known[agent, evaluation] = evaluation
        known = np.maximum.accumulate(known, axis=1)
        chosen = np.full(curves.shape, np.nan)
        chosen[agent, evaluation] = trials["best"][order]
        chosen = np.take_along_axis(chosen, known, axis=1)
        curves = np.where(np.isfinite(chosen), chosen, curves)
    curves[(np.arange(curves.shape[1]) >= num_evaluations[:, None]) | np.isinf(curves)] = np.nan
    return agents, curves


@dataclass(frozen=True)
class Front:
    """A Pareto front: trials that hold the limits and that no other such trial dominates.

    Parameters
    ----------
    configs : the configuration of each of `n` trials, sorted by the first objective
    values : `(n, K)`, as measured
    hypervolume : between the front and the reference, in the units of the objectives multiplied
    reference : `(K,)`, the values from which the volume is counted
    """

    configs: list[dict[str, Any]]
    values: Array
    hypervolume: float
    reference: Array


def front_of(trials: Table, objectives: Mapping[str, str], reference: Array) -> Front:
    """Return the front of trials.

    Parameters
    ----------
    trials : columns as in `study.schema.TRIALS` with `outputs`
    objectives : name -> "max" or "min"
    reference : `(K,)`, as measured
    """
    gains, signs, feasible = _gains(trials, objectives)
    rows = np.flatnonzero(feasible)
    rows = rows[non_dominated(gains[rows])]
    rows = rows[np.argsort(gains[rows, 0], kind="stable")]
    configs = [dict(config) for config in trials["config"][rows]]
    return Front(configs, signs * gains[rows], hypervolume(gains[rows], signs * reference), reference)


def worst_values(trials: Table, objectives: Mapping[str, str]) -> Array:
    """Return the worst value of trials that hold the limits in each objective, `(K,)`; zeros without any."""
    gains, signs, feasible = _gains(trials, objectives)
    return signs * gains[feasible].min(axis=0) if feasible.any() else np.zeros(len(signs))


def with_volumes(trials: Table, objectives: Mapping[str, str], references: Mapping[str, Array]) -> Table:
    """Return trials whose `value` is the hypervolume that their agent has reached with them.

    So `incumbents` are volumes. A trial that breaks a limit, or that a former one dominates, changes nothing.

    Parameters
    ----------
    trials : rows of one algorithm, in the order of `trial`
    references : agent -> `(K,)`, as measured
    """
    gains, signs, feasible = _gains(trials, objectives)
    values = np.full(len(trials), np.nan)
    for agent, reference in references.items():
        front, volume = np.empty((0, len(signs))), 0.0
        for row in np.flatnonzero((trials["agent"] == agent) & feasible):
            if not (front >= gains[row]).all(axis=1).any():
                front = np.concatenate([front, gains[row : row + 1]])
                front = front[non_dominated(front)]
                volume = hypervolume(front, signs * reference)
            values[row] = volume
    columns = {name: trials[name] for name in trials.columns} | {"value": values}
    return Table(columns, trials.kinds)


def _gains(trials: Table, objectives: Mapping[str, str]) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Return objectives `(n, K)`, larger is better, their signs, and which trials count."""
    signs = np.array([-1.0 if direction == "min" else 1.0 for direction in objectives.values()])
    measured = [[row.get(name, np.nan) for name in objectives] for row in trials["outputs"]]
    gains = signs * np.array(measured, dtype=np.float64).reshape(-1, len(signs))
    counts = np.asarray(np.isfinite(gains).all(axis=1), dtype=np.bool_)
    if "feasible" in trials.columns:
        counts &= trials["feasible"]
    return gains, signs, counts


def best_rows(table: Table, minimized: Collection[str] = ()) -> Table:
    """Return each agent's best row per algorithm, the first of equal ones; only rows with finite numbers.

    Rows are compared by `expected`.

    A trial that was stopped early is no agent's best, unless none of its trials has completed. One that broke
    a limit is never the best.

    Parameters
    ----------
    minimized : algorithms whose smaller values are better
    """
    if "mean" not in table.columns:
        columns = {name: table[name] for name in table.columns} | {"mean": np.full(len(table), np.nan)}
        table = Table(columns, {**table.kinds, "mean": "real"})
    number = expected(table)
    there = np.isfinite(number)
    table = table.take(there & table["feasible"] if "feasible" in table.columns else there)
    algorithm, agent = _ranks(table["algorithm"])[1], _ranks(table["agent"])[1]
    losses = np.array([name in minimized for name in table["algorithm"].tolist()], dtype=bool)
    partial = np.zeros(len(table), dtype=bool)
    if "stopped_at" in table.columns:
        partial = np.isfinite(table["stopped_at"])
    signed = np.where(losses, 1.0, -1.0) * expected(table)
    order = np.lexsort((signed, partial, agent, algorithm))  # stable
    key = np.stack([algorithm, agent])[:, order]
    is_first = np.ones(len(table), dtype=bool)
    is_first[1:] = np.any(key[:, 1:] != key[:, :-1], axis=0)
    rows = table.take(order[is_first])
    return Table({name: rows[name] for name in RECOMMENDATIONS}, RECOMMENDATIONS)


def expected(table: Table) -> Array:
    """Return what to expect of each row's configuration: its mean where values are noisy, else its value."""
    return np.where(np.isfinite(table["mean"]), table["mean"], table["value"])


def expected_of(best: Mapping[str, Any]) -> float:
    """Return what to expect of an entry of `Study.best`, like `expected`."""
    return float(best["mean"] if "mean" in best else best["value"])


def sorted_rows(table: Table, algorithms: Mapping[str, int]) -> Table:
    """Return the rows sorted by algorithm in the given order, by agent, and by trial, evaluation or round."""
    rank = map(algorithms.__getitem__, table["algorithm"].tolist())
    keys = [np.fromiter(rank, dtype=np.intp, count=len(table))]
    if "agent" in table.columns:
        keys.append(_ranks(table["agent"])[1])
    keys += [table[name] for name in ("trial", "evaluations", "round") if name in table.columns][:1]
    order = np.lexsort(keys[::-1])
    return table if np.array_equal(order, np.arange(len(table))) else table.take(order)


def _ranks(names: Column) -> tuple[list[str], npt.NDArray[np.intp]]:
    """Return the distinct names in natural order, and each row's position in that list."""
    ordered = sorted(set(names.tolist()), key=natural_order)
    rank = {name: place for place, name in enumerate(ordered)}
    return ordered, np.fromiter(map(rank.__getitem__, names.tolist()), dtype=np.intp, count=len(names))
