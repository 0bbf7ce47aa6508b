"""Values of trials against one parameter at a time, and which parameters matter most.

A slice has one position per configuration. For numbers the position is the value itself; for categories and
ordinals it is the number of the choice, counted from 0. It is NaN where a conditional parameter is inactive.

The importance of a parameter is the share of the variance of values that it explains alone. Values are
replaced by their ranks among the same agent's values, because agents have different data and one awful value
must not decide. Positions are divided into bins with equally many trials. The share is the adjusted
correlation ratio `1 - (1 - eta^2) (n - 1) / (n - k)` for `n` trials in `k` bins: 0 for chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.study.ranking import natural_order
from fbo_flower.study.study import Study

_NUM_BINS = 6
Parameter = Float | Int | Categorical | Ordinal


@dataclass(frozen=True)
class Slice:
    """How one parameter is drawn.

    Parameters
    ----------
    name : the parameter's name
    log : whether its axis is logarithmic
    choices : the values of a category or an ordinal in order; None for numbers
    condition : when the parameter is active, such as "kernel = rbf"; "" if always
    """

    name: str
    log: bool = False
    choices: tuple[Any, ...] | None = None
    condition: str = ""

    def positions(self, configs: Sequence[Mapping[str, Any]]) -> Array:
        """Return the positions `(n,)` of configurations on the parameter's axis; NaN: inactive or unknown."""
        values: list[Any] = [config.get(self.name) for config in configs]
        if self.choices is not None:
            place = {_key(choice): float(number) for number, choice in enumerate(self.choices)}
            known = [place.get(_key(value), np.nan) for value in values]
            active = [self.name in config for config in configs]  # None may be a choice
            return np.where(active, np.array(known, dtype=np.float64), np.nan)
        return np.array([float(v) if _is_number(v) else np.nan for v in values], dtype=np.float64)


def study_slices(study: Study) -> list[Slice]:
    """Return a slice per parameter: those of the runs' spaces, or guessed from configurations without one."""
    found: dict[str, Slice] = {}
    for run in study.settings["runs"]:
        if run.get("space"):
            for name, parameter in SearchSpace.from_json(str(run["space"])).parameters.items():
                found.setdefault(name, _slice_of(name, parameter))
    configs = [*study.trials["config"].tolist(), *study.recommendations["config"].tolist()]
    for name in dict.fromkeys(name for config in configs for name in config):
        if name not in found:
            found[name] = _guess(name, [config[name] for config in configs if name in config])
    return list(found.values())


def most_important(study: Study, slices: Sequence[Slice], limit: int) -> list[Slice]:
    """Return the `limit` slices with the largest importance, in their own order."""
    if len(slices) <= limit:
        return list(slices)
    trials = study.trials.take(np.isfinite(study.trials["value"]))
    configs = trials["config"].tolist()
    groups = list(zip(trials["algorithm"].tolist(), trials["agent"].tolist(), strict=True))
    ranks = ranks_within(trials["value"], groups)
    shares = [importance(ranks, slice_.positions(configs), slice_.choices is not None) for slice_ in slices]
    order = np.argsort(-np.array(shares), kind="stable")[:limit]
    return [slices[number] for number in sorted(order.tolist())]


def importance(ranks: Array, positions: Array, discrete: bool) -> float:
    """Return the share of the variance of `ranks (n,)` that the bins of `positions (n,)` explain, in [0, 1].

    >>> importance(np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0]), discrete=True)
    1.0
    """
    active = np.isfinite(positions)
    bins = np.full(len(ranks), -1, dtype=np.int64)  # inactive
    if active.any():
        known = positions[active]
        edges = np.unique(np.quantile(known, np.linspace(0, 1, _NUM_BINS + 1)[1:-1]))
        bins[active] = known.astype(np.int64) if discrete else np.searchsorted(edges, known, side="right")
    _, bins = np.unique(bins, return_inverse=True)
    num_bins, n = int(bins.max(initial=-1)) + 1, len(ranks)
    total = float(((ranks - ranks.mean()) ** 2).sum()) if n else 0.0
    if total == 0 or n <= num_bins:
        return 0.0
    means = np.bincount(bins, ranks) / np.bincount(bins)
    within = float(((ranks - means[bins]) ** 2).sum())
    return float(np.clip(1 - within / total * (n - 1) / (n - num_bins), 0.0, 1.0))


def ranks_within(values: Array, groups: Sequence[object]) -> Array:
    """Return the ranks `(n,)` of values within their group, in (0, 1); equal values have equal ranks.

    >>> ranks_within(np.array([5.0, 1.0, 1.0, 7.0]), ["a", "b", "b", "a"]).tolist()
    [0.25, 0.5, 0.5, 0.75]
    """
    ranks = np.empty(len(values))
    members: dict[object, list[int]] = {}
    for number, group in enumerate(groups):
        members.setdefault(group, []).append(number)
    for rows in members.values():
        _, place, count = np.unique(values[rows], return_inverse=True, return_counts=True)
        ranks[rows] = ((np.cumsum(count) - count / 2) / len(rows))[place]
    return ranks


def _slice_of(name: str, parameter: Parameter) -> Slice:
    condition = ", ".join(
        f"{parent} = {' or '.join(map(str, values))}" for parent, values in parameter.conditions.items()
    )
    if isinstance(parameter, Float | Int):
        return Slice(name, parameter.log, None, condition)
    return Slice(name, False, tuple(parameter.choices), condition)


def _guess(name: str, values: Sequence[Any]) -> Slice:
    if all(map(_is_number, values)):
        return Slice(name)
    distinct = {_key(value): value for value in values}
    return Slice(name, choices=tuple(sorted(distinct.values(), key=lambda value: natural_order(str(value)))))


def _key(value: object) -> tuple[bool, object]:
    return isinstance(value, bool), value  # True == 1 in Python, but they are different choices


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
