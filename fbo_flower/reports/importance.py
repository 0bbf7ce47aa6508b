"""Parameters of a study: what values they had in its trials, which of them matter, and pictures of them.

An axis has one position per configuration. For numbers the position is the value itself; for categories and
ordinals it is the number of the choice, counted from 0. It is NaN where a conditional parameter is inactive.

For the importance, a random forest is fitted to the trials and its variance is split [Hutter2014]. It
predicts the rank of a value among the values of the same agent, as a number in (0, 1) where larger is better:
agents have different data, and one awful value must not decide. All agents' trials are pooled. The shares are
exact for each tree (`numerics.fanova`) and averaged over trees; their standard deviation over trees says how
sure they are. A parameter that is inactive counts as if it were in the middle of its range.

In the SVG of a slice, a group's `gid` says what is in it: `trials 3 7` are two dots, of rows 3 and 7 of
`study.trials`, and `best 0` is a ring, of row 0 of `study.recommendations`.

[Hutter2014] Hutter, Hoos, Leyton-Brown. An efficient approach for assessing hyperparameter importance.
ICML 2014.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics import finite
from fbo_flower.numerics.arrays import Array, BoolArray, IntArray
from fbo_flower.numerics.fanova import StepFunction, mean_over_others, variance_shares
from fbo_flower.numerics.surrogates.transforms import mean_ranks
from fbo_flower.reports.curves import metric_of, named_agents
from fbo_flower.reports.pictures import SMALL, AxisScale, Style, dress, evenly, shorten, value_limits
from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.study.ranking import natural_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

    from fbo_flower.study.study import Study


MIN_TRIALS = 20  # with fewer, a forest says nothing
_MAX_TRIALS = 4000  # to which a forest is fitted; evenly spaced rows of more
_NUM_TREES = 48
_MAX_LEAVES = 160
_PAIRS_OF = 6  # parameters, the most important ones, whose pairs are looked at
Parameter = Float | Int | Categorical | Ordinal


@dataclass(frozen=True)
class Axis:
    """A parameter as an axis of a picture and of the unit cube.

    Parameters
    ----------
    name : the parameter's name
    low, high : ends of the range of a number; 0 and the number of choices of a category
    log : whether the axis is logarithmic
    choices : the values of a category or an ordinal in order; None for numbers
    integer : the parameter of an integer, each of whose values has a part of the unit cube
    whole : whether all values are integers
    condition : when the parameter is active, such as "kernel = rbf"; "" if always
    """

    name: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    choices: tuple[Any, ...] | None = None
    integer: Int | None = None
    whole: bool = False
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

    def unit(self, positions: Array) -> Array:
        """Return positions on the axis as positions in [0, 1]; NaN (inactive) becomes 0.5.

        >>> Axis("C", 0.01, 100.0, log=True).unit(np.array([0.01, 1.0, np.nan])).round(3).tolist()
        [0.0, 0.5, 0.5]
        """
        if self.choices is not None:
            unit = (positions + 0.5) / self.high
        elif self.integer is not None:
            index = np.clip(np.nan_to_num(positions), self.low, self.high) - self.low
            unit = np.where(np.isfinite(positions), self.integer.centre_of(index.astype(np.int64)), np.nan)
        elif self.high <= self.low:
            unit = np.full(len(positions), 0.5)
        elif self.log:
            unit = (np.log(positions) - np.log(self.low)) / (np.log(self.high) - np.log(self.low))
        else:
            unit = finite.difference(positions, self.low) / finite.difference(self.high, self.low)
        return np.clip(np.where(np.isfinite(unit), unit, 0.5), 0.0, 1.0)


def study_axes(study: Study) -> list[Axis]:
    """Return an axis per parameter: those of the runs' spaces, or guessed from configurations without one."""
    spaces: dict[str, list[Parameter]] = {}
    for run in study.settings["runs"]:
        if run.get("space"):
            for name, parameter in SearchSpace.from_json(str(run["space"])).parameters.items():
                spaces.setdefault(name, []).append(parameter)
    values: dict[str, list[Any]] = {}
    for config in [*study.trials["config"].tolist(), *study.recommendations["config"].tolist()]:
        for name, value in config.items():
            values.setdefault(name, []).append(value)
    axes = []
    for name, parameters in spaces.items():  # as in the first space, and as wide as all
        first = parameters[0]
        conditions = (f"{parent} = {' or '.join(map(str, own))}" for parent, own in first.conditions.items())
        condition = ", ".join(conditions)
        if isinstance(first, Categorical | Ordinal):
            choices = tuple(first.choices)
            axes.append(Axis(name, 0.0, len(choices), choices=choices, condition=condition))
            continue
        numbers = [parameter for parameter in parameters if isinstance(parameter, Float | Int)]
        low, high = min(float(one.low) for one in numbers), max(float(one.high) for one in numbers)
        # an integer with steps, or with different ranges in its runs, is drawn as a number
        integer = first if isinstance(first, Int) and first.step == 1 and len(set(numbers)) == 1 else None
        whole = all(isinstance(parameter, Int) for parameter in numbers)
        axes.append(Axis(name, low, high, first.log, integer=integer, whole=whole, condition=condition))
    for name, own in values.items():
        if name in spaces:
            continue
        if all(map(_is_number, own)):
            known = [float(value) for value in own if np.isfinite(value)] or [0.0]
            whole = all(value == round(value) for value in known)
            axes.append(Axis(name, min(known), max(known), whole=whole))
        else:
            distinct = {_key(value): value for value in own}.values()
            choices = tuple(sorted(distinct, key=lambda value: natural_order(str(value))))
            axes.append(Axis(name, 0.0, len(choices), choices=choices))
    return axes


def _key(value: object) -> tuple[bool, object]:
    return isinstance(value, bool), value  # True == 1 in Python, but they are different choices


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


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
    trees: Sequence[StepFunction]
    singles: Sequence[Share]
    pairs: Sequence[Share]
    num_trials: int
    score: float

    def place(self, name: str) -> int:
        """Return the number of a parameter's axis."""
        return next(number for number, axis in enumerate(self.axes) if axis.name == name)

    def surface(self, first: str, second: str, x: Array, y: Array) -> Array:
        """Return the mean predicted rank `(n, m)` at positions `x (n,)` and `y (m,)` of two parameters."""
        axes = [self.place(first), self.place(second)]
        surfaces = [mean_over_others(tree, axes, [x, y]) for tree in self.trees]
        return np.asarray(np.mean(surfaces, axis=0), dtype=np.float64)


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
    axes = study_axes(study)
    if not axes or np.ptp(ranks) == 0:
        return None
    points = np.column_stack([axis.unit(axis.positions(configs)) for axis in axes])
    return forest_importance(axes, points, ranks)


def forest_importance(axes: Sequence[Axis], points: Array, ranks: Array) -> Importance:
    """Fit a forest to `ranks (n,)` at `points (n, D)` of the unit cube, and split its variance."""
    trees, score = fit_forest(points, ranks)
    names = [axis.name for axis in axes]
    alone = np.array([variance_shares(tree)[0] for tree in trees])  # (T, D)
    top = np.sort(np.argsort(-alone.mean(axis=0), kind="stable")[:_PAIRS_OF]).tolist()
    couples = list(combinations(top, 2))
    both = np.array([variance_shares(tree, couples)[1] for tree in trees])  # (T, pairs)
    found: list[list[Share]] = []
    keys: Sequence[tuple[int, ...]]
    for keys, shares in (([(a,) for a in range(len(names))], alone), (couples, both)):
        by_key = shares.reshape(len(trees), len(keys))
        moments = zip(keys, by_key.mean(axis=0).tolist(), by_key.std(axis=0).tolist(), strict=True)
        own = [Share(tuple(names[k] for k in key), max(mean, 0.0), stddev) for key, mean, stddev in moments]
        found.append(sorted(own, key=lambda share: -share.mean))
    singles, pairs = found
    return Importance(axes, trees, singles, pairs, len(ranks), score)


def fit_forest(points: Array, values: Array) -> tuple[list[StepFunction], float]:
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


def tree_boxes(tree: Any, dimension: int) -> StepFunction:
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
    return StepFunction(np.array(low), np.array(high), np.array(values))


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
        ranks[rows] = (mean_ranks(values[rows]) - 0.5) / len(rows)
    return ranks


def most_important(axes: Sequence[Axis], found: Importance | None, limit: int) -> tuple[list[Axis], str]:
    """Return at most `limit` axes in their own order, and which of the parameters they are.

    They are those with the largest shares, or the first ones if the shares are unknown.
    """
    ranked = [share.names[0] for share in found.singles] if found else [axis.name for axis in axes]
    chosen = [axis for axis in axes if axis.name in ranked[:limit]]
    which = f"the {len(chosen)} parameters of {len(axes)} that explain most"
    return chosen, which if found else f"the first {len(chosen)} parameters of {len(axes)}"


_MAX_CHOICES = 12  # labels on an axis
_GRID = 36  # cells of an axis of a contour
_LEVELS = 8
_CONTOUR = "#0072b2"


def draw_slices(
    part: SubFigure, study: Study, chosen: list[Axis], why: str, styles: Mapping[str, Style]
) -> None:
    columns = min(len(chosen), 3) if len(chosen) != 4 else 2
    axes = part.subplots(-(-len(chosen) // columns), columns, squeeze=False, sharey=True).ravel()
    for ax, axis in zip(axes, chosen, strict=False):
        draw_slice(ax, study, axis, styles)
    for ax in set(axes) - set(axes[::columns]):
        ax.set_ylabel("")
    for ax in axes[len(chosen) :]:
        ax.set_visible(False)
    axes[0].set_title(f"Value against {why}")
    hidden = shown_values(study)[2]
    worse = f"; {hidden} {'higher' if study.any_minimizes else 'lower'} values not shown" if hidden else ""
    axes[columns - 1].set_title(f"ringed: best of each agent{by_mean(study)}{worse}", loc="right", **SMALL)


def by_mean(study: Study) -> str:
    """Return how the best was chosen if values are noisy, and how many of them nobody has evaluated."""
    best = study.recommendations
    unmeasured = int((~np.isfinite(best["value"])).sum())
    text = ", chosen by its mean" if np.isfinite(best["mean"]).any() else ""
    return text + (f"; {unmeasured} not evaluated" if unmeasured else "")


def shown_values(study: Study) -> tuple[float, float, int]:
    """Return the limits of the axis of disclosed values, and how many are so bad that they lie outside."""
    disclosed = np.concatenate([study.trials["value"], study.recommendations["value"]])
    return value_limits(disclosed, minimize=study.any_minimizes)


def draw_slice(
    ax: Axes,
    study: Study,
    axis: Axis,
    styles: Mapping[str, Style],
    *,
    dots: int = 3000,
    rasterized: bool = True,
) -> None:
    """Draw values against a parameter: dots are trials, ringed dots each agent's best configuration.

    Of one algorithm with few agents the dots have the colours of the agents' lines. The range of the axis is
    that of the dots; whole numbers have whole marks.

    Parameters
    ----------
    dots : the largest number of trials of an algorithm
    rasterized : whether trials are a bitmap in a vector format
    """
    from matplotlib.ticker import MaxNLocator

    dress(ax)
    low, high, _ = shown_values(study)
    scale = AxisScale(low, high)
    tables = study.trials, study.recommendations
    positions = [axis.positions(table["config"].tolist()) for table in tables]
    inside = [
        np.isfinite(place) & (table["value"] >= low) & (table["value"] <= high)
        for place, table in zip(positions, tables, strict=True)
    ]
    if axis.choices is not None:
        shown_choices = range(0, len(axis.choices), -(-len(axis.choices) // _MAX_CHOICES))
        labels = [shorten(str(axis.choices[number]), 12) for number in shown_choices]
        slant: dict[str, Any] = {"rotation": 30, "ha": "right"} if sum(map(len, labels)) > 24 else {}
        ax.set_xticks(list(shown_choices), labels, **slant)
        ax.set_xlim(-0.5, len(axis.choices) - 0.5)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=axis.whole, min_n_ticks=1))
        drawn = np.concatenate([place[shown] for place, shown in zip(positions, inside, strict=True)])
        across = AxisScale.of(drawn, log=axis.log)
        across.limit(ax.xaxis, whole=axis.whole)
        positions = [across.places(place) for place in positions]
    hues, count = named_agents(study), len(study.algorithms)
    ring: dict[str, Any] = {"s": 20, "edgecolors": "k", "linewidths": 0.8, "zorder": 3}
    dot: dict[str, Any] = {"s": 12 if hues else 9, "alpha": 0.7 if hues else 0.35, "linewidths": 0}
    dot["rasterized"] = rasterized
    looks = ("trials", dot), ("best", ring)
    for (kind, look), table, place, shown in zip(looks, tables, positions, inside, strict=True):
        for number, name in enumerate(study.algorithms):
            rows = sampled(shown & (table["algorithm"] == name), dots)
            x = place[rows]
            if axis.choices is not None:  # beside those of the other algorithms, and a little apart
                jitter = (rows + 1) * 0.6180339887498949 % 1.0 - 0.5  # looks random, always the same
                x = x + 0.7 * ((number + 0.5) / count - 0.5) + jitter * 0.6 / count
            owners = table["agent"][rows]
            for owner, colour in hues.items() if hues else [("", styles[name][0])]:
                own = (owners == owner) if hues else np.ones(len(rows), dtype=bool)
                if own.any():
                    gid = f"{kind} {' '.join(map(str, rows[own].tolist()))}"
                    ax.scatter(x[own], scale.places(table["value"][rows[own]]), color=colour, gid=gid, **look)
    condition = f" (if {axis.condition})" if axis.condition else ""
    ax.set_xlabel(shorten(f"{axis.name}{condition}"))
    ax.set_ylabel((shorten(metric_of(study)) or "value").capitalize())
    scale.limit(ax.yaxis)


def sampled(mask: BoolArray, most: int) -> IntArray:
    """Return the numbers of the rows that a mask selects, evenly chosen if they are more than `most`."""
    rows = np.flatnonzero(mask)
    return rows[evenly(len(rows), most)]


def num_cells(axis: Axis) -> int:
    if axis.choices is not None:
        return min(len(axis.choices), _GRID)
    return min(axis.integer.num_values, _GRID) if axis.integer and not axis.log else _GRID


def draw_contour(ax: Axes, axes: Sequence[Axis], surface: Array) -> None:
    """Draw the levels of a surface whose cells have the same size, each cell in one colour."""
    from matplotlib.colors import to_rgba
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = float(surface.min()), float(surface.max())
    edges = [np.repeat(np.arange(n + 1) / n, 2)[1:-1] for n in surface.shape]
    cells = np.repeat(np.repeat(surface, 2, axis=0), 2, axis=1)
    levels = np.linspace(low, max(high, low + 1e-12), _LEVELS + 1)
    colours = [to_rgba(_CONTOUR, 0.06 + 0.86 * level / (_LEVELS - 1)) for level in range(_LEVELS)]
    ax.contourf(*edges, cells.T, levels=levels, colors=colours)
    dress(ax)
    ax.grid(visible=False)
    for parameter, axis in zip(axes, (ax.xaxis, ax.yaxis), strict=True):
        if parameter.choices is not None:
            shown = range(0, len(parameter.choices), -(-len(parameter.choices) // 8))
            marks, labels = np.array(shown), [shorten(str(parameter.choices[k]), 10) for k in shown]
        else:
            low, high = parameter.low, parameter.high
            logarithmic = parameter.log and high >= 100 * low
            locator = LogLocator(numticks=6) if logarithmic else MaxNLocator(4, integer=parameter.whole)
            marks = np.asarray(locator.tick_values(low, high))
            marks = marks[(marks >= low) & (marks <= high)]
            labels = [f"{value:.4g}" for value in marks]
        axis.set_ticks(parameter.unit(marks), labels)
        axis.set_label_text(shorten(parameter.name, 34) + " (logarithmic)" * parameter.log)
