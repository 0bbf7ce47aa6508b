"""High-confidence tree (HCT): an optimistic tree search for one client, without communication.

The tree is a set of parallel lists, one entry per cell. A cell's `U` bound changes only when the cell is
pulled or when `t` is a power of 2. So while one leaf is pulled, no other bound changes, and the leaf stays
the choice until its own bound falls to that of the best sibling along its path. This comparison replaces the
walk from the root and makes most pulls O(1); the choices are exactly those of the walk.

Where implementations differ, this one follows PyXAB 0.3.0: the root is never pulled; among equal bounds the
later child is chosen; a cell pulled at `t` gets its bound with `dt(t)`, and the others keep theirs until `t`
is a power of 2. Unlike in PyXAB, a cell is expanded only once, because expanding it again would drop its
subtree.

Notation [Azar2014]: `t+ = 2^ceil(log2 t)`, `dt = min(1/2, (rho / (3 nu))^(1/8) delta / t+)`,
`U = mean + nu rho^h + c sqrt(log(1/dt) / n)`, `B = min(U, max child B)`,
`tau_h(t) = ceil(c^2 log(1/dt) rho^(-2h) / nu^2)`.

[Azar2014] Azar et al. Online stochastic optimization under correlated bandit feedback. ICML 2014.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, BoolArray, IntArray
from fbo_flower.numerics.bandits import partition

INFINITY = math.inf


@dataclass(frozen=True)
class HCTOptions:
    """Constants of the search.

    Parameters
    ----------
    dim : `D`
    arity : children of a cell, 2 or `2^D`
    nu, rho : smoothness
    c : factor of the confidence radius
    delta : probability of failure
    observed : False: values are in [0, 1], as in the paper. True: `nu` and `c` are multiples of the range of
        the values observed so far, taken anew whenever `t` is a power of 2
    """

    dim: int
    arity: int = 2
    nu: float = 1.0
    rho: float = 0.5
    c: float = 0.1
    delta: float = 0.01
    observed: bool = False

    def __post_init__(self) -> None:
        if not (self.nu > 0 and 0 < self.rho < 1 and self.c > 0 and 0 < self.delta < 1):
            raise ConfigError(
                "hct: expected nu > 0, 0 < rho < 1, c > 0 and 0 < delta < 1; "
                f"got nu={self.nu}, rho={self.rho}, c={self.c}, delta={self.delta}"
            )
        partition.max_depth(self.dim, self.arity)

    @property
    def max_depth(self) -> int:
        """Depth of the smallest cells, which are not expanded."""
        return partition.max_depth(self.dim, self.arity)

    def log_term(self, t_plus: int, cap: float = 0.5) -> float:
        """Return `log(1 / dt)`."""
        tilde = (self.rho / (3 * self.nu)) ** (1.0 / 8) * self.delta / t_plus
        return math.log(1.0 / min(cap, tilde))

    def pulls(self, depth: int, log_term: float) -> int:
        """Return `tau_h(t)`; 0 for the root, which has children from the start."""
        if depth == 0:
            return 0
        exact = self.c**2 * log_term * self.rho ** (-2 * depth) / self.nu**2
        return math.ceil(min(exact, 2.0**62))


def power_above(t: int) -> int:
    """Return `t+ = 2^ceil(log2 t)`.

    >>> [power_above(t) for t in (1, 2, 3, 4, 5)]
    [1, 2, 4, 4, 8]
    """
    return 1 << (t - 1).bit_length()


@dataclass
class Tree:
    """The search tree of one client; `learn` changes it in place.

    Attributes
    ----------
    t : number of the next pull, from 1
    depth, index : depth and index of each cell, in order of creation
    parent : position of the parent, -1 for the root
    first_child : position of the first of `arity` children, -1 for a leaf
    count, total : number of pulls of each cell that count, and the sum of their values
    u, b : the bounds `U` and `B` of each cell
    failed : whether all pulls of the cell failed. These count as the worst mean of any cell, so that the
        search avoids the cell. In a cell with a success, a failed pull is missing: nothing changes
    low, high : smallest and largest value so far; only if `options.observed`
    unit : the range of the values by which `nu` and `c` are multiplied; 1 unless `options.observed`
    """

    options: HCTOptions
    t: int = 1
    depth: list[int] = field(default_factory=lambda: [0])
    index: list[int] = field(default_factory=lambda: [0])
    parent: list[int] = field(default_factory=lambda: [-1])
    first_child: list[int] = field(default_factory=lambda: [-1])
    count: list[int] = field(default_factory=lambda: [0])
    total: list[float] = field(default_factory=lambda: [0.0])
    u: list[float] = field(default_factory=lambda: [INFINITY])
    b: list[float] = field(default_factory=lambda: [INFINITY])
    failed: list[bool] = field(default_factory=lambda: [False])
    low: float = INFINITY
    high: float = -INFINITY
    unit: float = 1.0
    # caches, not part of the state: `t+` with the thresholds of all depths; the choice with its two bounds
    _thresholds_at: tuple[int, list[int]] = field(default=(0, []), init=False, repr=False, compare=False)
    _choice: tuple[int, float, float] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.first_child[0] < 0:
            self._expand(0)

    def __len__(self) -> int:
        return len(self.depth)

    def select(self) -> int:
        """Return the position of the cell to pull at `t`."""
        if self._choice is None:
            self._choice = self._walk(self._thresholds())
        return self._choice[0]

    def learn(self, cell: int, value: float) -> None:
        """Record the value of one pull of the cell that `select` returned."""
        if self.failed[cell]:  # the failed pulls no longer count
            self.failed[cell], self.count[cell] = False, 0
        first = True in self.failed and not self.succeeded().any()
        self.count[cell] += 1
        self.total[cell] += value
        if self.options.observed:
            self.low, self.high = min(self.low, value), max(self.high, value)
        if first:  # only now the worst mean, the value of the cells that failed, is known
            self._renew(self.options.log_term(power_above(self.t), cap=1.0))
        self._settle(cell)

    def learn_failed(self, cell: int) -> None:
        """Record that a pull of the cell that `select` returned gave no value."""
        if self.count[cell] == 0 or self.failed[cell]:
            self.failed[cell] = True
            self.count[cell] += 1
            self._settle(cell)

    def succeeded(self) -> BoolArray:
        """Return which cells have a pull with a value, `(n,)`."""
        return np.asarray((np.array(self.count) > 0) & ~np.array(self.failed), dtype=np.bool_)

    def means(self) -> Array:
        """Return the mean of each cell, NaN for cells without a success."""
        count = np.where(self.failed, 0.0, self.count)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.array(self.total) / count, dtype=np.float64)

    def arrays(self) -> dict[str, Array | IntArray | BoolArray]:
        """Return the complete state as arrays, for `from_arrays`."""
        integers = {
            name: np.array(getattr(self, name), dtype=np.int64)
            for name in ("depth", "index", "parent", "first_child", "count")
        }
        numbers = {name: np.array(getattr(self, name), dtype=np.float64) for name in ("total", "u", "b")}
        failed = np.array(self.failed, dtype=np.bool_)
        scalars = {name: np.array(getattr(self, name)) for name in ("low", "high", "unit")}
        return {"t": np.array(self.t, dtype=np.int64), **integers, **numbers, "failed": failed, **scalars}

    @staticmethod
    def from_arrays(options: HCTOptions, arrays: dict[str, Array | IntArray | BoolArray]) -> Tree:
        """Return the tree whose `arrays()` these are."""
        lists = {name: array.tolist() for name, array in arrays.items()}
        return Tree(options, **lists)

    # -- inside ----------------------------------------------------------------------------------

    def _thresholds(self) -> list[int]:
        """Return `tau_h(t)` of all depths."""
        t_plus, thresholds = power_above(self.t), self._thresholds_at[1]
        if self._thresholds_at[0] != t_plus:
            log_term = self.options.log_term(t_plus)
            thresholds = [self.options.pulls(h, log_term) for h in range(max(self.depth) + 1)]
            self._thresholds_at = t_plus, thresholds
        return thresholds

    def _walk(self, thresholds: list[int]) -> tuple[int, float, float]:
        """Return the chosen cell, and bounds it must exceed (`above`) or reach (`from_`) to stay chosen."""
        first_child, b, count, depth, arity = (
            self.first_child, self.b, self.count, self.depth, self.options.arity,
        )  # fmt: skip
        cell, above, from_ = 0, -INFINITY, -INFINITY
        while count[cell] >= thresholds[depth[cell]] and first_child[cell] >= 0:
            first = first_child[cell]
            if arity == 2:
                one, two = b[first], b[first + 1]
                if two >= one:
                    cell = first + 1
                    from_ = max(one, from_)
                else:
                    cell = first
                    above = max(two, above)
                continue
            best = max(range(first, first + arity), key=lambda child: (b[child], child))
            from_ = max(from_, max(b[first:best], default=-INFINITY))
            above = max(above, max(b[best + 1 : first + arity], default=-INFINITY))
            cell = best
        return cell, above, from_

    def _settle(self, cell: int) -> None:
        """Update the bounds after a pull of `cell` at `t`, expand it if it has enough pulls, advance `t`."""
        options, t = self.options, self.t
        t_plus = power_above(t)
        if t == t_plus:
            # Recompute all bounds without this pull, then the pulled cell's with it.
            self._renew(options.log_term(t_plus, cap=1.0))
        self._bound(cell, options.log_term(t_plus, cap=1.0), self._worst() if self.failed[cell] else 0.0)
        self._back_up(cell)
        due = self._thresholds()[self.depth[cell]]
        if self.count[cell] >= due and self.first_child[cell] < 0 and self.depth[cell] < options.max_depth:
            self._expand(cell)
        self.t = t + 1
        if self._choice is not None:
            _, above, from_ = self._choice
            # only this leaf's bound has changed, and it is still the choice
            stays = t < t_plus and self.first_child[cell] < 0 and above < self.u[cell] >= from_
            if not stays or cell != self._choice[0]:
                self._choice = None

    def _renew(self, log_term: float) -> None:
        self._choice = None
        if self.options.observed:
            self.unit = max(0.0, self.high - self.low)
        worst = self._worst() if True in self.failed else 0.0
        for cell in range(len(self)):
            self._bound(cell, log_term, worst)
        arity = self.options.arity
        for cell in range(len(self) - 1, 0, -1):  # children come after their parents
            first = self.first_child[cell]
            inner = max(self.b[first : first + arity]) if first >= 0 else INFINITY
            self.b[cell] = min(self.u[cell], inner)

    def _bound(self, cell: int, log_term: float, worst: float) -> None:
        n = self.count[cell]
        if n:
            mean = worst if self.failed[cell] else self.total[cell] / n
            bonus = self.options.nu * self.options.rho ** self.depth[cell]
            radius = math.sqrt(self.options.c**2 * log_term / n)
            if self.options.observed:
                bonus, radius = self.unit * bonus, self.unit * radius
            self.u[cell] = mean + bonus + radius

    def _worst(self) -> float:
        """Return the smallest mean of any cell with a success, 0 if there is none."""
        means = self.means()[self.succeeded()]
        return float(means.min()) if len(means) else 0.0

    def _back_up(self, cell: int) -> None:
        u, b, first_child, parent, arity = self.u, self.b, self.first_child, self.parent, self.options.arity
        while cell > 0:
            first = first_child[cell]
            if first < 0:
                bound = u[cell]
            else:
                inner = b[first] if b[first] >= b[first + 1] else b[first + 1]
                if arity > 2:
                    inner = max(b[first : first + arity])
                bound = u[cell] if u[cell] < inner else inner
            if bound == b[cell]:
                return  # the ancestors' bounds do not change
            b[cell] = bound
            cell = parent[cell]

    def _expand(self, cell: int) -> None:
        arity, t_plus = self.options.arity, power_above(self.t)
        if self._thresholds_at[0] == t_plus and len(self._thresholds_at[1]) == self.depth[cell] + 1:
            due = self.options.pulls(self.depth[cell] + 1, self.options.log_term(t_plus))
            self._thresholds_at[1].append(due)
        self.first_child[cell] = len(self)
        self.depth += [self.depth[cell] + 1] * arity
        self.index += [arity * self.index[cell] + j for j in range(arity)]
        self.parent += [cell] * arity
        self.first_child += [-1] * arity
        self.count += [0] * arity
        self.total += [0.0] * arity
        self.u += [INFINITY] * arity
        self.b += [INFINITY] * arity
        self.failed += [False] * arity
