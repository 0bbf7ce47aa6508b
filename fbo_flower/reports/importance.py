"""Which parameters matter: a random forest is fitted to the trials and its variance is split [Hutter2014].

The forest predicts the rank of a value among the values of the same agent, as a number in (0, 1) where
larger is better: agents have different data, and one awful value must not decide. All agents' trials are
pooled. The shares are exact for each tree (`numerics.fanova`) and averaged over trees; their standard
deviation over trees says how sure they are. A parameter that is inactive counts as if it were in the middle
of its range.

[Hutter2014] Hutter, Hoos, Leyton-Brown. An efficient approach for assessing hyperparameter importance.
ICML 2014.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.fanova import Boxes, mean_over_others, variance_shares
from fbo_flower.reports.slices import Slice, ranks_within, study_slices
from fbo_flower.space import Float, Int, SearchSpace
from fbo_flower.study.study import Study

MIN_TRIALS = 20  # with fewer, a forest says nothing
_MAX_TRIALS = 4000  # to which a forest is fitted; evenly spaced rows of more
_NUM_TREES = 48
_MAX_LEAVES = 160
_PAIRS_OF = 6  # parameters, the most important ones, whose pairs are looked at


@dataclass(frozen=True)
class Share:
    """The share of the variance of ranks that a parameter, or a pair beyond its two parameters, explains.

    Parameters
    ----------
    names : one or two names
    mean, stddev : over the trees of the forest
    """

    names: tuple[str, ...]
    mean: float
    stddev: float


@dataclass(frozen=True)
class Axis:
    """A parameter as an axis of the unit cube.

    Parameters
    ----------
    slice : how it is drawn
    low, high : ends of the range of a number; 0 and the number of choices of a category
    integer : the parameter of an integer, each of whose values has a part of the axis
    """

    slice: Slice
    low: float
    high: float
    integer: Int | None = None

    def unit(self, positions: Array) -> Array:
        """Return positions on a slice's axis as positions in [0, 1]; NaN (inactive) becomes 0.5.

        >>> Axis(Slice("C", log=True), 0.01, 100.0).unit(np.array([0.01, 1.0, np.nan])).round(3).tolist()
        [0.0, 0.5, 0.5]
        """
        if self.slice.choices is not None:
            unit = (positions + 0.5) / self.high
        elif self.integer is not None:
            index = np.clip(np.nan_to_num(positions), self.low, self.high) - self.low
            unit = np.where(np.isfinite(positions), self.integer.centre_of(index.astype(np.int64)), np.nan)
        elif self.high <= self.low:
            unit = np.full(len(positions), 0.5)
        elif self.slice.log:
            unit = (np.log(positions) - np.log(self.low)) / (np.log(self.high) - np.log(self.low))
        else:
            unit = (positions - self.low) / (self.high - self.low)
        return np.clip(np.where(np.isfinite(unit), unit, 0.5), 0.0, 1.0)


@dataclass(frozen=True)
class Importance:
    """A forest on the trials of a study.

    Parameters
    ----------
    axes : the parameters, in their own order
    trees : functions on the unit cube
    singles : a share per parameter, the largest first
    pairs : shares of pairs of the most important parameters, the largest first
    num_trials : trials to which the forest was fitted
    score : coefficient of determination on the trials that a tree did not see; below 0.1 or so, the shares
        say little
    """

    axes: Sequence[Axis]
    trees: Sequence[Boxes]
    singles: Sequence[Share]
    pairs: Sequence[Share]
    num_trials: int
    score: float

    def place(self, name: str) -> int:
        """Return the number of a parameter's axis."""
        return next(number for number, axis in enumerate(self.axes) if axis.slice.name == name)

    def curve(self, name: str, x: Array) -> Array:
        """Return the mean predicted rank `(n,)` at positions `x (n,)` in [0, 1] of one parameter."""
        place = self.place(name)
        return _mean([mean_over_others(tree, [place], [x]) for tree in self.trees])

    def surface(self, first: str, second: str, x: Array, y: Array) -> Array:
        """Return the mean predicted rank `(n, m)` at positions `x (n,)` and `y (m,)` of two parameters."""
        axes = [self.place(first), self.place(second)]
        return _mean([mean_over_others(tree, axes, [x, y]) for tree in self.trees])


def study_importance(study: Study) -> Importance | None:
    """Return a forest on the disclosed trials of a study; None with fewer than `MIN_TRIALS` good ones."""
    trials = study.trials.take(np.isfinite(study.trials["value"]))
    if len(trials) < MIN_TRIALS:
        return None
    sign = -1.0 if study.any_minimizes else 1.0
    groups = list(zip(trials["algorithm"].tolist(), trials["agent"].tolist(), strict=True))
    ranks = ranks_within(sign * trials["value"], groups)
    if len(trials) > _MAX_TRIALS:
        rows = np.linspace(0, len(trials) - 1, _MAX_TRIALS).round().astype(int)
        trials, ranks = trials.take(rows), ranks[rows]
    configs = trials["config"].tolist()
    axes = study_axes(study, configs)
    if not axes or np.ptp(ranks) == 0:
        return None
    points = np.column_stack([axis.unit(axis.slice.positions(configs)) for axis in axes])
    return forest_importance(axes, points, ranks)


def forest_importance(axes: Sequence[Axis], points: Array, ranks: Array) -> Importance:
    """Fit a forest to `ranks (n,)` at `points (n, D)` of the unit cube, and split its variance."""
    trees, score = fit_forest(points, ranks)
    names = [axis.slice.name for axis in axes]
    alone = np.array([variance_shares(tree)[0] for tree in trees])  # (T, D)
    top = np.sort(np.argsort(-alone.mean(axis=0), kind="stable")[:_PAIRS_OF]).tolist()
    couples = list(combinations(top, 2))
    both = np.array([variance_shares(tree, couples)[1] for tree in trees])  # (T, pairs)
    singles = _shares([(name,) for name in names], alone)
    pairs = _shares([(names[a], names[b]) for a, b in couples], both)
    return Importance(axes, trees, singles, pairs, len(ranks), score)


def fit_forest(points: Array, values: Array) -> tuple[list[Boxes], float]:
    """Return the trees of a random forest as functions on the unit cube, and its out-of-bag R^2.

    Raises
    ------
    ConfigError
        If scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import RandomForestRegressor
    except ImportError as error:  # it is a dependency; an app bundle may leave it out
        raise ConfigError("importance: scikit-learn is not installed; pip install scikit-learn") from error
    forest = RandomForestRegressor(
        _NUM_TREES, min_samples_leaf=3, max_leaf_nodes=_MAX_LEAVES, oob_score=True, random_state=0
    ).fit(points, values)
    return [tree_boxes(tree.tree_, points.shape[1]) for tree in forest.estimators_], float(forest.oob_score_)


def tree_boxes(tree: Any, dimension: int) -> Boxes:
    """Return the leaves of a scikit-learn tree as boxes of the unit cube."""
    low, high, values = [], [], []
    stack = [(0, np.zeros(dimension), np.ones(dimension))]
    while stack:
        node, start, end = stack.pop()
        if tree.children_left[node] < 0:
            low.append(start)
            high.append(end)
            values.append(float(tree.value[node].ravel()[0]))
            continue
        d, threshold = int(tree.feature[node]), float(tree.threshold[node])
        left, right = end.copy(), start.copy()
        left[d], right[d] = min(threshold, end[d]), max(threshold, start[d])
        stack += [(int(tree.children_left[node]), start, left), (int(tree.children_right[node]), right, end)]
    return Boxes(np.array(low), np.array(high), np.array(values))


def study_axes(study: Study, configs: Sequence[Mapping[str, Any]]) -> list[Axis]:
    """Return the parameters of a study as axes; ranges come from the search spaces, else from the trials."""
    ranges: dict[str, tuple[float, float]] = {}
    integers: dict[str, list[Int]] = {}
    for run in study.settings["runs"]:
        if run.get("space"):
            for name, parameter in SearchSpace.from_json(str(run["space"])).parameters.items():
                if isinstance(parameter, Int):
                    integers.setdefault(name, []).append(parameter)
                if isinstance(parameter, Float | Int):
                    low, high = ranges.get(name, (np.inf, -np.inf))
                    ranges[name] = min(low, float(parameter.low)), max(high, float(parameter.high))
    axes = []
    for slice_ in study_slices(study):
        if slice_.choices is not None:
            axes.append(Axis(slice_, 0.0, float(len(slice_.choices))))
            continue
        positions = slice_.positions(configs)
        known = positions[np.isfinite(positions)]
        if slice_.name in ranges or len(known):
            low, high = ranges.get(slice_.name) or (float(known.min()), float(known.max()))
            same = set(integers.get(slice_.name, ()))  # of runs with different ranges: as a number
            axes.append(Axis(slice_, low, high, same.pop() if len(same) == 1 else None))
    return axes


def _mean(parts: Sequence[Array]) -> Array:
    return np.asarray(np.mean(parts, axis=0), dtype=np.float64)


def _shares(names: Sequence[tuple[str, ...]], shares: Array) -> list[Share]:
    """Return shares `(T, len(names))` of the trees as mean and standard deviation, the largest mean first."""
    shares = shares.reshape(len(shares), len(names))
    found = [
        Share(name, float(max(mean, 0.0)), float(stddev))
        for name, mean, stddev in zip(names, shares.mean(axis=0), shares.std(axis=0), strict=True)
    ]
    return sorted(found, key=lambda share: -share.mean)
