"""Stage 2 of racing PF-PNE: one client's search, which starts from the result of stage 1.

The method and the notation are in `fbo_flower.numerics.bandits.racing`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fbo_flower.numerics.arrays import Array, BoolArray, IntArray
from fbo_flower.numerics.bandits import elimination
from fbo_flower.numerics.bandits.pulls import Pulls, Table
from fbo_flower.numerics.bandits.racing import (
    TREE_ARRAYS,
    Cells,
    RacingOptions,
    StageOneResult,
    bonuses,
    upper_bounds,
)

NEGLIGIBLE = 10.0  # bonuses below this multiple of `bonus(0) / T` are set to 0
ENOUGH_PULLS = 30  # repeated pulls without variance after which an objective counts as deterministic
NO_NOISE = 1e-13  # a smaller variance, relative to that of the cells' means, counts as rounding error


@dataclass(frozen=True)
class Others(Table):
    """What other clients found in the shared cells: number, mean, pulls of each, variance between them."""

    number: Array
    mean: Array
    pulls: Array
    spread: Array

    @staticmethod
    def of(shared: StageOneResult, own: Pulls, took_part: BoolArray) -> Others:
        """Subtract the client's own pulls from merged means, and pool the spread of each depth."""
        number = np.maximum(0, shared.num_clients - took_part)
        rest = shared.num_clients * shared.mean - np.where(took_part, own.means(), 0.0)
        depth = shared.cells.depth[: shared.cells.size]
        of_depth = np.bincount(depth, weights=shared.spread) / np.maximum(1, np.bincount(depth))
        mean, pulls = rest / np.maximum(1, number), np.maximum(1.0, shared.count)
        return Others(number.astype(np.float64), mean, pulls, of_depth[depth])


@dataclass
class RacingSearch:
    """One client's search: `ask` returns a cell and a number of pulls, `tell` records their values.

    The search is deterministic.

    Attributes
    ----------
    budget, left : `T`, and how many pulls are left
    cells : the client's tree
    own : its pulls of the tree's cells; failed ones of a cell without a success count as its worst mean
    others : of the shared cells, which are the tree's first ones
    waiting : positions of new cells to pull next
    bonus : by depth, since the last split; None: to be estimated anew
    """

    budget: int
    left: int
    cells: Cells
    own: Pulls
    others: Others
    waiting: list[int] = field(default_factory=list)
    bonus: Array | None = None

    @staticmethod
    def begin(
        budget: int, shared: StageOneResult, own: Pulls, took_part: BoolArray | None = None
    ) -> RacingSearch:
        """Return the search after stage 1.

        Parameters
        ----------
        own : the client's pulls of the shared cells, in their order
        took_part : `(size,)`, whether the merged means include this client's values; None: where it has some
        """
        left = budget - int(own.count.sum()) - int(own.failed.sum())
        took_part = own.count > 0 if took_part is None else took_part
        return RacingSearch(budget, left, shared.cells.copy(), own, Others.of(shared, own, took_part))

    def ask(self) -> tuple[int, int, int, int]:
        """Return position, depth and index of the next cell and the number of pulls; 0 pulls at the end."""
        cell, pulls = self._choose() if self.left > 0 else (0, 0)
        return cell, int(self.cells.depth[cell]), int(self.cells.index[cell]), min(pulls, self.left)

    def tell(self, cell: int, count: int, total: float, within: float, failed: int = 0) -> None:
        """Record pulls of a cell: sum and squared deviations of `count` values, and `failed` without one."""
        self.own = self.own.add([cell], count, total, within, failed)
        self.left -= count + failed

    def best(self) -> tuple[int, int, float]:
        """Return depth, index and mean of the cell with the largest lower bound."""
        variance, _ = self._noise()
        mean, effective = self._posterior(variance)
        radius, own = self._radius(variance, effective), self.own
        pulled = np.flatnonzero(own.count > 0 if own.count.any() else own.failed > 0)
        best = pulled[elimination.recommend(mean[pulled], radius[pulled])]
        return int(self.cells.depth[best]), int(self.cells.index[best]), float(mean[best])

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the complete state as arrays; `from_arrays` resumes the search from them."""
        return {
            "left": np.array([self.budget, self.left], dtype=np.int64),
            "waiting": np.array(self.waiting, dtype=np.int64),
            "bonus": np.empty(0) if self.bonus is None else self.bonus,
            **{name: getattr(self.cells, name)[: self.cells.size].copy() for name in TREE_ARRAYS},
            **self.own.arrays("own."),
            **self.others.arrays("others."),
        }

    @staticmethod
    def from_arrays(options: RacingOptions, arrays: Mapping[str, npt.NDArray[np.generic]]) -> RacingSearch:
        """Return the search whose `arrays()` these are."""
        budget, left = np.asarray(arrays["left"]).tolist()
        tree: list[IntArray] = [np.array(arrays[name], dtype=np.int64) for name in TREE_ARRAYS]
        bonus = np.asarray(arrays["bonus"], dtype=np.float64) if len(arrays["bonus"]) else None
        own, others = Pulls.read(arrays, "own."), Others.read(arrays, "others.")
        waiting = np.asarray(arrays["waiting"]).tolist()
        return RacingSearch(budget, left, Cells(options, len(tree[0]), *tree), own, others, waiting, bonus)

    # -- inside ------------------------------------------------------------------------------------

    def _choose(self) -> tuple[int, int]:
        cells, options = self.cells, self.cells.options
        variance, known = self._noise()
        new_pulls = 1 if variance == 0.0 and known >= ENOUGH_PULLS else options.first_pulls
        if self.waiting:
            return self.waiting.pop(0), new_pulls
        tried = self.own.count + self.own.in_vain
        if np.count_nonzero(tried) < len(tried):  # shared cells that this client never pulled
            return int(np.argmin(tried)), new_pulls
        mean, effective = self._posterior(variance)
        if self.bonus is None:
            self.bonus = bonuses(cells, mean, variance / effective)
            self.bonus[self.bonus * self.budget < NEGLIGIBLE * self.bonus[0]] = 0.0
        depth = cells.depth[: cells.size]
        can_split = cells.leaves() & (depth < options.max_depth)
        can_split &= cells.size + options.arity <= options.max_cells
        bonus = np.where(can_split, self.bonus[depth], 0.0)
        radius = self._radius(variance, effective)
        cell = int(np.argmax(upper_bounds(cells, mean, radius, bonus)))
        if bonus[cell] > 0 and radius[cell] <= bonus[cell]:
            self.waiting = list(cells.split(cell, mean))
            self.own, self.bonus = self.own.joined(Pulls.read({}, "", options.arity)), None
            return self.waiting.pop(0), new_pulls
        return cell, max(1, math.ceil(options.batch_growth * tried[cell]))

    def _noise(self) -> tuple[float, float]:
        """Return the pooled variance of one pull, enlarged for few degrees of freedom, and their number."""
        seen = self.own.count > 0
        degrees = float(self.own.count.sum()) - np.count_nonzero(seen)
        squares = float(self.own.within.sum())
        if degrees <= 0:
            return 1.0, degrees  # no cell was pulled twice yet
        if squares <= NO_NOISE * degrees * float(self.own.means()[seen].var()):
            return 0.0, degrees
        return squares / degrees * (1 + 2 / math.sqrt(degrees)), degrees

    def _posterior(self, variance: float) -> tuple[Array, Array]:
        """Return means and effective pulls, `(size,)`, with the others' pulls as a prior."""
        own, others, n = self.own, self.others, len(self.others.mean)
        effective, total = (own.count + own.in_vain).astype(np.float64), own.total.copy()
        if own.in_vain.any():
            means = own.means()[own.count > 0]
            total += own.in_vain * (float(means.min()) if len(means) else 0.0)
        if variance > 0:
            # the variance between clients, and the pulls of all others together
            differ = np.maximum(others.spread - variance / others.pulls, 0.0)
            differ *= 1 + 1 / np.maximum(1, others.number)
            worth = np.maximum(1e-300, others.pulls * others.number)
            prior = np.where(others.number > 0, variance / (differ + variance / worth), 0.0)
            effective[:n] += prior
            total[:n] += prior * others.mean
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(total / effective, dtype=np.float64), effective

    def _radius(self, variance: float, effective: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):  # NaN for cells without pulls and without noise
            z = 3.0 * np.log(np.maximum(1.0, self.budget / (effective * max(1, self.cells.size // 2))))
            z = np.maximum(1.0, z)
            if self.cells.options.nu is not None:
                z = np.maximum(2.0 * math.log(self.budget), z)
            return np.asarray(np.sqrt(variance * z / effective), dtype=np.float64)
