"""Many pulls of HCT at once, to measure its speed beside another library's."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.bandits.hct import Tree, power_above


def pull_many(tree: Tree, num_pulls: int, value: Callable[[int, int], float], noise: Array) -> IntArray:
    """Make many pulls of HCT at once, and return the position of the cell of each: `(num_pulls,)`.

    Values are at hand, so most pulls of a leaf are a few additions.

    Parameters
    ----------
    value : from depth and index of a cell to its mean value; called once per cell and call
    noise : `(num_pulls,)`, added to the pulls in order
    """
    options = tree.options
    values: dict[int, float] = {}
    cells = np.empty(num_pulls, dtype=np.int64)
    draws = noise.tolist()
    done = 0
    while done < num_pulls:
        t_plus = power_above(tree.t)
        thresholds = tree._thresholds()
        log_term = options.log_term(t_plus, cap=1.0)
        end = min(num_pulls, done + t_plus - tree.t + 1)  # t+ does not change before
        while done < end:
            cell, above, from_ = tree._walk(thresholds)
            if cell not in values:
                values[cell] = value(tree.depth[cell], tree.index[cell])
            mean_value = values[cell]
            start = done
            if tree.t == t_plus or tree.first_child[cell] >= 0 or options.observed:
                # bounds are recomputed, or the choice depends on other cells' bounds too: one ordinary step
                tree.learn(cell, mean_value + draws[done])
                done += 1
            else:
                depth = tree.depth[cell]
                due = options.pulls(depth, options.log_term(t_plus))
                bonus = options.nu * options.rho**depth
                c2 = options.c**2 * log_term
                n, total = tree.count[cell], tree.total[cell]
                stop = min(end - 1 if end - done == t_plus - tree.t + 1 else end, done + max(1, due - n))
                while True:
                    total += mean_value + draws[done]
                    n += 1
                    done += 1
                    u = total / n + bonus + math.sqrt(c2 / n)
                    if done >= stop or u <= above or u < from_:
                        break
                tree.count[cell], tree.total[cell], tree.u[cell] = n, total, u
                tree.t += done - start
                tree._back_up(cell)
                if n >= due and depth < options.max_depth:
                    tree._expand(cell)
            cells[start:done] = cell
    tree._choice = None
    return cells
