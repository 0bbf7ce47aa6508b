"""Racing PF-PNE: PF-PNE's cells and stages, without nu1, rho, Delta or a noise level from the user.

Differences from the paper's algorithm, whose budget typically ends in the middle of depth 7:

- *Choice by upper bound.* The search pulls (evaluates) the cell with the largest upper bound, in batches that
  grow by 30 %. It splits a leaf once its radius falls below its bonus. A cell with a lower bound is not
  eliminated for good: it can become the choice again.
- *Arms and regions.* A split cell keeps its own centre as an arm with bound `mean + radius`. A leaf is a
  region with bound `mean + radius + bonus(h)`. If an ancestor's centre lies on a leaf's border, the leaf's
  bound is at least that centre's mean plus half of the bonus. So the search refines around a good arm from
  all sides, and keeps pulling the arm when no region has a larger bound.
- *Initial cells.* All cells of the first depths, about `sqrt(T) / 4`, are pulled before the first choice.
- *Learned smoothness.* `bonus(h)` estimates the gain of descending from depth `h`, from all splits so
  far. With `g` the gain of a best child over its parent,
  `bonus(h)^2 = sum_(j > h) max(0, mean g_j + kappa sd g_j)^2`. For depths without splits it is extrapolated,
  shrinking by `2^(-1/(2 D))` per halving.
- *Learned noise.* `radius = sigma_hat sqrt(z / n)`, with `sigma_hat` pooled over the client's cells and
  `z = max(1, 3 log(T / (n leaves)))` as in MOSS. A deterministic objective is detected and not repeated.
- *Sharing only while it helps.* In stage 1 all clients pull the same cells, which the server chooses by the
  same bounds on the merged means. Stage 1 ends when the best regions' bonus is below the spread of the
  clients' means. In stage 2 the other clients' mean is a prior worth `sigma^2 / (tau^2 + ..)` pulls, where
  `tau^2` is the variance between clients at that depth: up to all of their pulls if clients agree, none if
  they differ.

There is no regret bound: the search misses peaks that are narrower than all cells it pulled. If `nu` and
`rho` are given, the bonus is at least `nu rho^h` and `z` at least `2 log T`. A single client's bounds are
then as valid as its noise estimate, until `max_cells` is reached; other clients' means bias them by the
difference of the objectives.

References
----------
[Li2024] Li, Song, Honorio. Personalized federated X-armed bandit. AISTATS 2024.
[Audibert2009] Audibert, Bubeck. Minimax policies for adversarial and stochastic bandits. COLT 2009 (MOSS).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.bandits import elimination
from fbo_flower.numerics.bandits.racing_cells import (
    Cells,
    RacingOptions,
    bonuses,
    first_cells,
    first_tree,
    upper_bounds,
)

STAGE_ONE_PART = 20  # stage 1 may use 1/20 of the pulls


@dataclass(frozen=True)
class StageOneResult:
    """The result of stage 1, the same for every client.

    Parameters
    ----------
    cells : the common tree
    mean, count, spread : `(size,)`: merged mean, pulls per client, and variance of the clients' means
    num_clients : `(size,)`, number of clients that pulled the cell
    """

    cells: Cells
    mean: Array
    count: Array
    spread: Array
    num_clients: IntArray


@dataclass
class Gathering:
    """The server's search in stage 1: requests cells, collects means and counts, chooses the next cells.

    Attributes
    ----------
    budget : `T`
    means, counts : `(M, n)`, in the order of `cells`; the count is 0 if a client did not reply
    rounds : number of rounds of replies
    """

    options: RacingOptions
    budget: int
    cells: Cells | None = None
    means: Array = field(default_factory=lambda: np.empty((0, 0)))
    counts: IntArray = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    rounds: int = 0

    def next_cells(self, pulls_left: int) -> tuple[IntArray, IntArray]:
        """Return depths and indices of cells that every client should pull `first_pulls` times.

        Both arrays are empty when stage 1 ends. The first call returns `first_cells`. Later calls split the
        leaves that could contain the best value, at most `splits_per_round` at a time.

        Parameters
        ----------
        pulls_left : pulls per client that stage 1 may still use
        """
        if self.cells is None:
            return first_cells(self.options, self.budget)
        cells, options = self.cells, self.options
        if self.rounds > options.max_rounds or (self.counts.sum(axis=0) == 0).any():
            return _nothing()
        merged = elimination.merge(self.means, self.counts)
        if merged.num_clients.min() < 2:
            return _nothing()
        spread = self._spread()
        pooled = float(spread.mean())
        noise = np.sqrt(pooled / merged.num_clients)
        table = bonuses(cells, merged.mean, noise**2)
        can_split = cells.leaves() & (cells.depth[: cells.size] < options.max_depth)
        bonus = np.where(can_split, table[cells.depth[: cells.size]], 0.0)
        bound = upper_bounds(cells, merged.mean, noise, bonus)
        differ = np.sqrt(np.maximum(spread, pooled))
        chosen = np.flatnonzero((bound >= (merged.mean - noise).max()) & (bonus > differ))
        chosen = chosen[np.argsort(-bound[chosen], kind="stable")][: options.splits_per_round]
        chosen = chosen[: max(0, pulls_left) // (options.arity * options.first_pulls)]
        before = cells.size
        for cell in chosen:
            cells.split(int(cell), merged.mean)
        new = slice(before, cells.size)
        return cells.depth[new].copy(), cells.index[new].copy()

    def hear(self, means: Array, counts: IntArray) -> None:
        """Record the clients' means and counts `(M, n)` of the cells last requested.

        Clients that joined later come after the others; their earlier counts are 0.
        """
        late = ((0, len(means) - len(self.means)), (0, 0))
        if self.cells is not None and late[0][1] > 0:
            self.means, self.counts = np.pad(self.means, late), np.pad(self.counts, late)
        if self.cells is None:
            self.means, self.counts = np.array(means), np.array(counts)
            self.cells = first_tree(self.options, elimination.merge(means, counts).mean)
        else:
            self.means = np.concatenate([self.means, means], axis=1)
            self.counts = np.concatenate([self.counts, counts], axis=1)
        self.rounds += 1

    def copy(self) -> Gathering:
        """Return an independent copy; arrays of replies are shared, as they are never changed in place."""
        return replace(self, cells=None if self.cells is None else self.cells.copy())

    def result(self) -> StageOneResult:
        """Return the result that is sent to every client at the end of stage 1."""
        if self.cells is None:
            raise ConfigError("racing: expected at least one answer before the end of stage 1")
        merged = elimination.merge(self.means, self.counts)
        mean = np.where(merged.num_clients > 0, merged.mean, 0.0)
        per_client = merged.count / np.maximum(1, merged.num_clients)
        return StageOneResult(self.cells, mean, per_client, self._spread(), merged.num_clients)

    def _spread(self) -> Array:
        """Return the variance of the clients' means of each cell, `(n,)`; 0 if fewer than two replied."""
        there = self.counts > 0
        number = there.sum(axis=0)
        mean = np.where(there, self.means, 0.0).sum(axis=0) / np.maximum(1, number)
        squares = np.where(there, (self.means - mean) ** 2, 0.0).sum(axis=0)
        return np.asarray(squares / np.maximum(1, number - 1), dtype=np.float64)


def _nothing() -> tuple[IntArray, IntArray]:
    return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
