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
then as valid as its noise estimate, until `MAX_CELLS` is reached; other clients' means bias them by the
difference of the objectives.

[Li2024] Li, Song, Honorio. Personalized federated X-armed bandit. AISTATS 2024.
[Audibert2009] Audibert, Bubeck. Minimax policies for adversarial and stochastic bandits. COLT 2009 (MOSS).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, BoolArray, IntArray
from fbo_flower.numerics.bandits import elimination, partition
from fbo_flower.numerics.bandits.pulls import Columns, Pulls

STAGE_ONE_PART = 20  # stage 1 may use 1/20 of the pulls
FIRST_CELLS = 15  # least number of initial cells: depths 0 to 3 of the binary tree
FIRST_LOOK = 1 / 3  # largest share of the budget for the initial cells
LEAST_GAIN = 1e-8  # smallest mean square of the gains, relative to the variance of the cells' means
NEGLIGIBLE = 10.0  # bonuses below this multiple of `bonus(0) / T` are set to 0
ENOUGH_PULLS = 30  # repeated pulls without variance after which an objective counts as deterministic
NO_NOISE = 1e-13  # a smaller variance, relative to that of the cells' means, counts as rounding error
# tuned once for all problems on a few seeds; none depends on the objective's unit
FIRST_SHARE = 0.25  # complete depths come first, up to `FIRST_SHARE sqrt(T)` cells: peaks that centres miss
OPTIMISM = 1.5  # `kappa`
BORDER_SHARE = 0.5  # of the bonus, added to the mean of an ancestor's centre on the border
BATCH_GROWTH = 0.3  # size of a batch relative to the cell's pulls so far
SPLITS_PER_ROUND, MAX_ROUNDS = 6, 14  # limits of stage 1
MAX_CELLS = 1024  # of one client's tree
TREE_ARRAYS = ("depth", "index", "parent", "first_child", "anchor")


@dataclass(frozen=True)
class RacingOptions:
    """The partition, and what is known about the objective.

    Parameters
    ----------
    dim, arity : of the partition
    nu, rho : known smoothness, or None

    Attributes
    ----------
    first_pulls : number of pulls of a new cell, which tell its variance
    """

    dim: int
    arity: int = 2
    nu: float | None = None
    rho: float | None = None
    first_pulls: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if (self.nu is None) != (self.rho is None):
            raise ConfigError(f"nu, rho: expected both or none, got {self.nu} and {self.rho}")
        partition.max_depth(self.dim, self.arity)

    @property
    def max_depth(self) -> int:
        """Depth of the smallest cells."""
        return partition.max_depth(self.dim, self.arity)

    @property
    def shrinkage(self) -> float:
        """Factor by which gains shrink from one depth to the next, for depths without data."""
        return float(2.0 ** (-0.5 * math.log2(self.arity) / self.dim))


@dataclass
class Cells:
    """A growing tree as arrays, of which the first `size` entries are used; children follow their parents.

    Attributes
    ----------
    depth, index : depth and index of each cell
    parent : position of the parent, 0 for the root
    first_child : position of the first of `arity` children, -1 for a leaf
    anchor : position of the best ancestor whose centre lies in the closed cell, 0 for the root
    """

    options: RacingOptions
    size: int = 1
    depth: IntArray = field(default_factory=lambda: np.zeros(64, dtype=np.int64))
    index: IntArray = field(default_factory=lambda: np.zeros(64, dtype=np.int64))
    parent: IntArray = field(default_factory=lambda: np.zeros(64, dtype=np.int64))
    first_child: IntArray = field(default_factory=lambda: np.full(64, -1, dtype=np.int64))
    anchor: IntArray = field(default_factory=lambda: np.zeros(64, dtype=np.int64))

    def split(self, cell: int, mean: Array) -> range:
        """Add the children of a leaf and return their positions; `mean (size,)` determines their anchors."""
        arity, size, depth = self.options.arity, self.size, int(self.depth[cell]) + 1
        if size + arity > len(self.depth):
            for name in TREE_ARRAYS:
                array = getattr(self, name)
                setattr(self, name, np.concatenate([array, np.zeros_like(array)]))
            self.first_child[size:] = -1
        new = slice(size, size + arity)
        self.first_child[cell] = size
        self.depth[new], self.parent[new] = depth, cell
        self.index[new] = partition.children([self.index[cell]], arity)
        self.anchor[new] = self._anchors(cell, depth, self.index[new], mean)
        self.size += arity
        return range(size, size + arity)

    def leaves(self) -> BoolArray:
        """Return which cells have no children, `(size,)`."""
        return np.asarray(self.first_child[: self.size] < 0, dtype=np.bool_)

    def copy(self) -> Cells:
        """Return an independent copy of the tree."""
        return Cells(self.options, self.size, *(getattr(self, name).copy() for name in TREE_ARRAYS))

    def _anchors(self, cell: int, depth: int, index: IntArray, mean: Array) -> IntArray:
        dim, arity = self.options.dim, self.options.arity
        chain = [cell]
        while chain[-1]:
            chain.append(int(self.parent[chain[-1]]))
        low, high = partition.cell(depth, index, dim, arity)  # (k, D)
        anchors = np.full(len(index), cell, dtype=np.int64)
        best = np.full(len(index), mean[cell])
        for ancestor in chain[1:]:
            if mean[ancestor] <= best.min():
                continue
            centre = partition.centre(int(self.depth[ancestor]), int(self.index[ancestor]), dim, arity)
            better = ((low <= centre) & (centre <= high)).all(axis=1) & (mean[ancestor] > best)
            anchors[better], best[better] = ancestor, mean[ancestor]
        return anchors


def first_cells(options: RacingOptions, budget: int) -> tuple[IntArray, IntArray]:
    """Return depths and indices `(n,)` of the initial cells: all cells of the first depths.

    Depths from 2 on are left out if the pulls would exceed `FIRST_LOOK` of the budget.
    """
    depths, indices, depth, total = [], [], 0, 0
    while total < max(FIRST_CELLS, FIRST_SHARE * math.sqrt(budget)) and depth <= options.max_depth:
        count = partition.num_cells(depth, options.dim, options.arity)
        if depth > 1 and (total + count) * options.first_pulls > FIRST_LOOK * budget:
            break
        depths.append(np.full(count, depth, dtype=np.int64))
        indices.append(np.arange(count, dtype=np.int64))
        total, depth = total + count, depth + 1
    return np.concatenate(depths), np.concatenate(indices)


def grown_tree(options: RacingOptions, depth: IntArray, index: IntArray, mean: Array) -> Cells:
    """Return the tree with these cells in this order, in which children follow their parents.

    Parents and anchors follow from depth, index, order and means, so nothing else has to be sent.

    Parameters
    ----------
    depth, index, mean : `(n,)`
    """
    cells, arity = Cells(options), options.arity
    place = {(0, 0): 0}
    while cells.size < len(depth):
        size = cells.size
        parent = place.get((int(depth[size]) - 1, int(index[size]) // arity))
        if parent is None or cells.first_child[parent] >= 0 or int(depth[size]) > options.max_depth:
            break
        for child in cells.split(parent, mean):
            place[int(cells.depth[child]), int(cells.index[child])] = child
    fits = len(depth) == len(index) == len(mean) == cells.size
    if not fits or (cells.depth[: cells.size] != depth).any() or (cells.index[: cells.size] != index).any():
        raise ConfigError(f"cells: expected a tree with children after their parents, got {len(depth)} cells")
    return cells


def bonuses(cells: Cells, mean: Array, noise_variance: Array) -> Array:
    """Return `bonus(h)`, `(max_depth + 2,)`, estimated from all splits.

    Parameters
    ----------
    mean : `(size,)`
    noise_variance : `(size,)`, variance of these means; subtracted from the second moments of the gains
    """
    options, arity = cells.options, cells.options.arity
    num_depths = options.max_depth + 2
    parents = np.flatnonzero(~cells.leaves())
    children = cells.first_child[parents, np.newaxis] + np.arange(arity)  # (p, k)
    gain = mean[children].max(axis=1) - mean[parents]
    variance = noise_variance[parents] + noise_variance[children].max(axis=1)
    depth = cells.depth[parents] + 1
    count = np.bincount(depth, minlength=num_depths)
    first = np.bincount(depth, weights=gain, minlength=num_depths)
    second = np.bincount(depth, weights=gain**2 - variance, minlength=num_depths)
    # The prior of a depth counts as two gains: the estimate of the depth before, shrunk. The first prior is
    # the mean of depths 1 to 3.
    shallow = slice(1, 4)
    many = max(1, int(count[shallow].sum()))
    prior_first = float(first[shallow].sum() / many)
    # relative to the means' variance, so that units do not matter; without variance any floor will do
    prior_second = max(float(second[shallow].sum() / many), LEAST_GAIN * (float(np.var(mean)) or 1.0))
    shrink, step = options.shrinkage, np.zeros(num_depths)
    # Python numbers are faster than NumPy's in a loop
    sums = zip(count.tolist(), first.tolist(), second.tolist(), strict=True)
    for h, (n, gains, squares) in enumerate(sums):
        if h == 0:
            continue
        m1 = (gains + 2.0 * prior_first) / (n + 2.0)
        m2 = max((squares + 2.0 * prior_second) / (n + 2.0), 0.05 * prior_second)
        step[h] = max(0.0, m1 + OPTIMISM * math.sqrt(max(m2 - m1 * m1, 0.05 * m2)))
        prior_first, prior_second = m1 * shrink, m2 * shrink**2
    bonus = np.zeros(num_depths)
    # bonus(h)^2 = sum_(j > h) step_j^2
    bonus[:-1] = np.sqrt(np.cumsum(step[::-1] ** 2)[::-1][1:])
    if options.nu is not None and options.rho is not None:
        bonus = np.maximum(bonus, options.nu * options.rho ** np.arange(num_depths))
    return bonus


def upper_bounds(cells: Cells, mean: Array, radius: Array, bonus: Array) -> Array:
    """Return the bounds of arms and regions, `(size,)`.

    Parameters
    ----------
    mean, radius : `(size,)`
    bonus : `(size,)`, 0 for arms and for leaves that cannot be split
    """
    bound = mean + radius + bonus
    anchored = mean[cells.anchor[: cells.size]] + BORDER_SHARE * bonus
    return np.asarray(np.where(bonus > 0, np.maximum(bound, anchored), bound), dtype=np.float64)


# -- stage 1 --------------------------------------------------------------------------------


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
        leaves that could contain the best value, at most `SPLITS_PER_ROUND` at a time.

        Parameters
        ----------
        pulls_left : pulls per client that stage 1 may still use
        """
        if self.cells is None:
            return first_cells(self.options, self.budget)
        cells, options = self.cells, self.options
        nothing = cells.index[:0], cells.index[:0]
        if self.rounds > MAX_ROUNDS or (self.counts.sum(axis=0) == 0).any():
            return nothing
        merged = elimination.merge(self.means, self.counts)
        if merged.num_clients.min() < 2:
            return nothing
        spread = self._spread()
        pooled = float(spread.mean())
        noise = np.sqrt(pooled / merged.num_clients)
        table = bonuses(cells, merged.mean, noise**2)
        can_split = cells.leaves() & (cells.depth[: cells.size] < options.max_depth)
        bonus = np.where(can_split, table[cells.depth[: cells.size]], 0.0)
        bound = upper_bounds(cells, merged.mean, noise, bonus)
        differ = np.sqrt(np.maximum(spread, pooled))
        chosen = np.flatnonzero((bound >= (merged.mean - noise).max()) & (bonus > differ))
        chosen = chosen[np.argsort(-bound[chosen], kind="stable")][:SPLITS_PER_ROUND]
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
            asked = first_cells(self.options, self.budget)
            self.cells = grown_tree(self.options, *asked, elimination.merge(means, counts).mean)
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


# -- stage 2: one client's search, which starts from the result of stage 1 --------------------------


@dataclass(frozen=True)
class OthersPulls(Columns):
    """What other clients found in the shared cells: number, mean, pulls of each, variance between them."""

    number: Array
    mean: Array
    pulls: Array
    spread: Array

    @staticmethod
    def of(shared: StageOneResult, own: Pulls, took_part: BoolArray) -> OthersPulls:
        """Subtract the client's own pulls from merged means, and pool the spread of each depth."""
        number = np.maximum(0, shared.num_clients - took_part)
        rest = shared.num_clients * shared.mean - np.where(took_part, own.means(), 0.0)
        depth = shared.cells.depth[: shared.cells.size]
        of_depth = np.bincount(depth, weights=shared.spread) / np.maximum(1, np.bincount(depth))
        mean, pulls = rest / np.maximum(1, number), np.maximum(1.0, shared.count)
        return OthersPulls(number.astype(np.float64), mean, pulls, of_depth[depth])


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
    others: OthersPulls
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
        return RacingSearch(budget, left, shared.cells.copy(), own, OthersPulls.of(shared, own, took_part))

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
        own, others = Pulls.read(arrays, "own."), OthersPulls.read(arrays, "others.")
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
        can_split &= cells.size + options.arity <= MAX_CELLS
        bonus = np.where(can_split, self.bonus[depth], 0.0)
        radius = self._radius(variance, effective)
        cell = int(np.argmax(upper_bounds(cells, mean, radius, bonus)))
        if bonus[cell] > 0 and radius[cell] <= bonus[cell]:
            self.waiting = list(cells.split(cell, mean))
            self.own, self.bonus = self.own.joined(Pulls.read({}, "", options.arity)), None
            return self.waiting.pop(0), new_pulls
        return cell, max(1, math.ceil(BATCH_GROWTH * tried[cell]))

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
