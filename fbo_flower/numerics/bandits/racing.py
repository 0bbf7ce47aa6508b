"""Racing PF-PNE: the same cells and stages, without nu1, rho, Delta or a noise level from the user.

What changes against the paper's algorithm, and why (its budget ends in the middle of depth 7):

- *Choose by upper bound.* Cells are pulled in batches that grow by 30 %, the cell with the largest bound
  first; a leaf is split once its radius falls below its bonus. A cell whose bound is below another's is left
  alone: elimination that can be taken back.
- *Arms and regions.* A split cell keeps its own centre as an arm, bound `mean + radius`. A leaf stands for a
  region, bound `mean + radius + bonus(h)`. The centre of an ancestor that lies on a leaf's border belongs to
  its closure, so the leaf's bound is at least that centre's mean plus half of the bonus: the search closes in
  on a good arm from all sides, and commits to it when no region promises more.
- *First look.* The whole of the first depths is pulled, about `sqrt(T) / 4` cells, before anything is chosen.
- *Learned smoothness.* `bonus(h)` is what descending from depth `h` has brought, from all splits so far: with
  `g` the gain of a best child over its parent, `bonus(h)^2 = sum_(j > h) max(0, mean g_j + kappa sd g_j)^2`;
  depths not yet seen are extrapolated, shrinking by `2^(-1/(2 D))` a halving.
- *Learned noise.* `radius = sigma_hat sqrt(z / n)`, `sigma_hat` pooled over the client's cells,
  `z = max(1, 3 log(T / (n leaves)))` as in MOSS. A deterministic objective is found out and not repeated.
- *Share where it pays.* In stage 1 all clients pull the same cells, which the server chooses by the same
  bounds on the means; it ends when the best regions' bonus is below the spread of single clients'
  means. In stage 2 the others' mean is a prior worth `sigma^2 / (tau^2 + ..)` pulls, `tau^2` the variance
  between clients at that depth: up to all of their pulls when they agree, none when they differ.

There is no proof of regret: a peak narrower than all that was seen is missed. With `nu` and `rho` given, the
bonus is at least `nu rho^h` and `z` at least `2 log T`: a client alone then has bounds as valid as its noise
estimate, until `max_cells` is reached; means of other clients bias them by their differences.

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

STAGE_ONE_PART = 20  # stage 1 may take one pull of that many


@dataclass(frozen=True)
class StageOneResult:
    """What stage 1 found, the same for every client.

    Parameters
    ----------
    cells : the common tree
    mean, count, spread : `(size,)`: merged mean, pulls per client, and variance of the clients' means
    num_clients : `(size,)`, who took part
    """

    cells: Cells
    mean: Array
    count: Array
    spread: Array
    num_clients: IntArray


@dataclass
class Gathering:
    """The server in stage 1: asks for cells, hears means and counts, and chooses the next cells.

    Attributes
    ----------
    budget : `T`
    means, counts : `(M, n)`, in the order of `cells`; 0 counts where a client did not answer
    rounds : answers heard
    """

    options: RacingOptions
    budget: int
    cells: Cells | None = None
    means: Array = field(default_factory=lambda: np.empty((0, 0)))
    counts: IntArray = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    rounds: int = 0

    def next_cells(self, pulls_left: int) -> tuple[IntArray, IntArray]:
        """Return depths and indices of cells that every client should pull `first_pulls` times.

        Nothing when sharing does not pay any more. The first answer is of `first_cells`; after that the
        leaves that could hold the best value are split, at most six at a time.

        Parameters
        ----------
        pulls_left : that stage 1 may still take from one client
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
        """Enter the clients' means and counts `(M, n)` of the cells last asked for.

        Clients that have joined since stand behind the others; they have said nothing so far.
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
        """Return a server that goes on by itself; arrays of answers are never changed in place."""
        return replace(self, cells=None if self.cells is None else self.cells.copy())

    def result(self) -> StageOneResult:
        """Return what every client is told at the end of stage 1."""
        if self.cells is None:
            raise ConfigError("racing: expected at least one answer before the end of stage 1")
        merged = elimination.merge(self.means, self.counts)
        mean = np.where(merged.num_clients > 0, merged.mean, 0.0)
        per_client = merged.count / np.maximum(1, merged.num_clients)
        return StageOneResult(self.cells, mean, per_client, self._spread(), merged.num_clients)

    def _spread(self) -> Array:
        """Variance of the clients' means of each cell, `(n,)`; 0 where fewer than two answered."""
        there = self.counts > 0
        number = there.sum(axis=0)
        mean = np.where(there, self.means, 0.0).sum(axis=0) / np.maximum(1, number)
        squares = np.where(there, (self.means - mean) ** 2, 0.0).sum(axis=0)
        return np.asarray(squares / np.maximum(1, number - 1), dtype=np.float64)


def _nothing() -> tuple[IntArray, IntArray]:
    return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
