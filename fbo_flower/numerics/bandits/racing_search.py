"""Stage 2 of racing PF-PNE: one client's search, which starts from the result of stage 1.

The method and the notation are in `fbo_flower.numerics.bandits.racing`.

References
----------
[Chan1983] Chan, Golub, LeVeque. Algorithms for computing the sample variance. American Statistician 37, 1983.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fbo_flower.numerics.arrays import Array, BoolArray, IntArray
from fbo_flower.numerics.bandits import elimination
from fbo_flower.numerics.bandits.racing import StageOneResult
from fbo_flower.numerics.bandits.racing_cells import TREE_ARRAYS, Cells, RacingOptions, bonuses

NEGLIGIBLE = 10.0  # bonuses below this multiple of `bonus(0) / T` are set to 0
ENOUGH_PULLS = 30  # repeated pulls without variance after which an objective counts as deterministic
OWN_ARRAYS = (
    "count", "total", "within", "failed", "prior_mean", "prior_others", "prior_pulls", "prior_spread",
)  # fmt: skip
NO_NOISE = 1e-13  # a smaller variance, relative to that of the cells' means, counts as rounding error


@dataclass(frozen=True)
class _Regions:
    """The parts of `racing_cells.upper_bounds` that change only when a cell is split.

    Attributes
    ----------
    bonus : `(size,)`, 0 for arms and for leaves that cannot be split
    position, anchor, lift : for the leaves with a bonus: their positions, their anchors, and the share of the
        bonus that is added to the anchors' means
    """

    bonus: Array
    position: IntArray
    anchor: IntArray
    lift: Array


class RacingSearch:
    """One client's search: `ask` returns a cell and a number of pulls, `tell` records their values.

    The search is deterministic.

    Parameters
    ----------
    budget : `T`
    shared : the result of stage 1
    count, total, within : `(size,)`, for the shared cells: number of the client's own pulls, their sum, and
        the sum of their squared deviations from the cell's mean
    heard : `(size,)`, whether the merged means include this client's values; None: wherever it has pulled

    Attributes
    ----------
    failed : `(size,)`, failed pulls of the cells without a success, which count as the client's worst mean.
        In other cells a failed pull is missing: it only uses up budget
    """

    # caches, recomputed from the other attributes if None
    _regions: _Regions | None = None
    _prior_parts: tuple[BoolArray, Array, Array] | None = None

    def __init__(
        self,
        budget: int,
        shared: StageOneResult,
        count: IntArray,
        total: Array,
        within: Array,
        heard: BoolArray | None = None,
    ) -> None:
        self.budget, self.options = budget, shared.cells.options
        self.cells = shared.cells.copy()
        self.count, self.total, self.within = count.astype(np.float64), total.copy(), within.copy()
        self.failed = np.zeros(len(self.count))
        self.left = budget - int(count.sum())
        self.waiting: list[int] = []
        self._bonus: Array | None = None
        self._prior(shared, self.count > 0 if heard is None else heard)

    def ask(self) -> tuple[int, int, int, int]:
        """Return position, depth and index of the next cell and the number of pulls; 0 pulls at the end."""
        cell, pulls = self._choose() if self.left > 0 else (0, 0)
        return cell, int(self.cells.depth[cell]), int(self.cells.index[cell]), min(pulls, self.left)

    def tell(self, cell: int, pulls: int, total: float, within: float) -> None:
        """Record the sum of `pulls` pulls of a cell, and of their squared deviations from their mean."""
        before = float(self.count[cell]), float(self.total[cell]), float(self.within[cell])
        self.within[cell] = joint_deviations(before, (pulls, total, within))
        self.count[cell] += pulls
        self.total[cell] += total
        self.failed[cell] = 0.0
        self.left -= pulls

    def tell_failed(self, cell: int, pulls: int) -> None:
        """Record pulls of a cell that gave no value."""
        self.failed[cell] += pulls if self.count[cell] == 0 else 0
        self.left -= pulls

    def recommend(self) -> tuple[int, int]:
        """Return depth and index of the cell with the largest lower bound."""
        return self.best()[:2]

    def best(self) -> tuple[int, int, float]:
        """Return depth, index and mean of the cell with the largest lower bound."""
        mean, effective, variance = self._posterior(self._noise()[0])
        radius = self._radius(variance, effective)
        pulled = np.flatnonzero(self.count > 0 if self.count.any() else self.failed > 0)
        best = pulled[elimination.recommend(mean[pulled], radius[pulled])]
        return int(self.cells.depth[best]), int(self.cells.index[best]), float(mean[best])

    def arrays(self) -> dict[str, Array | IntArray]:
        """Return the complete state as arrays; `from_arrays` resumes the search from them."""
        size = self.cells.size
        bonus = np.empty(0) if self._bonus is None else self._bonus
        return {
            "left": np.array([self.budget, self.left], dtype=np.int64),
            "waiting": np.array(self.waiting, dtype=np.int64),
            "bonus": bonus,
            **{name: getattr(self.cells, name)[:size].copy() for name in TREE_ARRAYS},
            **{name: getattr(self, name).copy() for name in OWN_ARRAYS},
        }

    @staticmethod
    def from_arrays(options: RacingOptions, arrays: Mapping[str, Array | IntArray]) -> RacingSearch:
        """Return the search whose `arrays()` these are."""
        search = object.__new__(RacingSearch)
        search.options = options
        search.budget, search.left = (int(number) for number in arrays["left"])
        search.waiting = arrays["waiting"].tolist()
        search._bonus = np.array(arrays["bonus"], dtype=np.float64) if len(arrays["bonus"]) else None
        tree = (np.array(arrays[name], dtype=np.int64) for name in TREE_ARRAYS)
        search.cells = Cells(options, len(arrays["depth"]), *tree)
        for name in OWN_ARRAYS:
            setattr(search, name, np.array(arrays[name], dtype=np.float64))
        return search

    # -- inside ------------------------------------------------------------------------------------

    def _choose(self) -> tuple[int, int]:
        options = self.options
        variance, known = self._noise()
        new_pulls = 1 if variance == 0.0 and known >= ENOUGH_PULLS else options.first_pulls
        if self.waiting:
            return self.waiting.pop(0), new_pulls
        tried = self.count + self.failed
        if np.count_nonzero(tried) < len(tried):  # shared cells that this client never pulled
            return int(np.argmin(tried)), new_pulls
        mean, effective, variance = self._posterior(variance)
        cells = self.cells
        if self._bonus is None:
            self._bonus = bonuses(cells, mean, variance / effective)
            self._bonus[self._bonus * self.budget < NEGLIGIBLE * self._bonus[0]] = 0.0
        if self._regions is None:
            self._regions = self._find_regions(self._bonus)
        regions, radius = self._regions, self._radius(variance, effective)
        bound = mean + radius + regions.bonus
        leaf = regions.position
        bound[leaf] = np.maximum(bound[leaf], mean[regions.anchor] + regions.lift)
        cell = int(np.argmax(bound))
        if regions.bonus[cell] > 0 and radius[cell] <= regions.bonus[cell]:
            children = cells.split(cell, mean)
            for name in ("count", "total", "within", "failed"):
                setattr(self, name, np.concatenate([getattr(self, name), np.zeros(options.arity)]))
            self.waiting = list(children)
            self._bonus = self._regions = None
            return self.waiting.pop(0), new_pulls
        return cell, max(1, math.ceil(options.batch_growth * tried[cell]))

    def _find_regions(self, bonuses_by_depth: Array) -> _Regions:
        cells, size, options = self.cells, self.cells.size, self.options
        depth = cells.depth[:size]
        can_split = cells.leaves() & (depth < options.max_depth)
        can_split &= size + options.arity <= options.max_cells
        bonus = np.where(can_split, bonuses_by_depth[depth], 0.0)
        position = np.flatnonzero(bonus > 0)
        return _Regions(bonus, position, cells.anchor[position], options.border_share * bonus[position])

    def _noise(self) -> tuple[float, float]:
        """Return the pooled variance of one pull, enlarged for few degrees of freedom, and their number."""
        seen = self.count > 0
        num_seen = np.count_nonzero(seen)
        degrees = float(self.count.sum()) - num_seen
        squares = float(self.within.sum())
        if degrees <= 0:
            return 1.0, degrees  # no cell was pulled twice yet
        if squares <= NO_NOISE * degrees * float((self.total[seen] / self.count[seen]).var()):
            return 0.0, degrees
        return squares / degrees * (1 + 2 / math.sqrt(degrees)), degrees

    def _posterior(self, variance: float) -> tuple[Array, Array, float]:
        """Return means `(size,)` with the others' pulls as a prior, effective pulls `(size,)`, variance."""
        n = len(self.prior_mean)
        if self._prior_parts is None:
            known = self.prior_others > 0
            apart = 1 + 1 / np.maximum(1, self.prior_others)
            self._prior_parts = known, apart, np.maximum(1e-300, self.prior_pulls * self.prior_others)
        known, apart, worth = self._prior_parts
        effective, total = self.count + self.failed, self.total.copy()
        if self.failed.any():
            total += self.failed * self._worst()
        if variance > 0:
            differ = np.maximum(self.prior_spread - variance / self.prior_pulls, 0.0) * apart
            prior = np.where(known, variance / (differ + variance / worth), 0.0)
            effective[:n] += prior
            total[:n] += prior * self.prior_mean
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(total / effective, dtype=np.float64), effective, variance

    def _worst(self) -> float:
        """Return the client's smallest mean, 0 if it has none."""
        seen = self.count > 0
        return float((self.total[seen] / self.count[seen]).min()) if seen.any() else 0.0

    def _radius(self, variance: float, effective: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):  # NaN for cells without pulls and without noise
            z = 3.0 * np.log(np.maximum(1.0, self.budget / (effective * max(1, self.cells.size // 2))))
            z = np.maximum(1.0, z)
            if self.options.nu is not None:
                z = np.maximum(2.0 * math.log(self.budget), z)
            return np.sqrt(variance * z / effective)

    def _prior(self, shared: StageOneResult, took_part: BoolArray) -> None:
        """Set the priors: subtract the client's own pulls from merged means, pool the spread per depth."""
        size = shared.cells.size
        others = np.maximum(0, shared.num_clients - took_part)
        own = np.where(took_part, self.total / np.maximum(1, self.count), 0.0)
        rest = shared.num_clients * shared.mean - own
        self.prior_others = others.astype(np.float64)
        self.prior_mean = rest / np.maximum(1, others)
        self.prior_pulls = np.maximum(1.0, shared.count)
        depth = shared.cells.depth[:size]
        number = np.maximum(1, np.bincount(depth))
        self.prior_spread = (np.bincount(depth, weights=shared.spread) / number)[depth]


Sums = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]


def joint_deviations(one: Sums, other: Sums) -> Array:
    """Return the sum of squared deviations from the common mean of two sets of values [Chan1983, Eq. 2.1].

    Unlike the sum of squares minus `total^2 / count`, it loses no digits if the values have a large offset.

    Parameters
    ----------
    one, other : number of values (0 or more), their sum, and the sum of squared deviations from their mean

    >>> joint_deviations((2, 2.0, 2.0), (1, 4.0, 0.0))  # of 0, 2 and 4
    array(8.)
    """
    (n, n_total, n_within), (m, m_total, m_within) = (
        tuple(np.asarray(part, dtype=np.float64) for part in sums) for sums in (one, other)
    )
    gap = n_total / np.maximum(1.0, n) - m_total / np.maximum(1.0, m)
    both = n * m / np.maximum(1.0, n + m)
    return np.asarray(n_within + m_within + both * gap * gap, dtype=np.float64)
