"""Cells, what was seen in them, and the tree search HCT, against plain loops."""

import math

import numpy as np
import pytest

from fbo_flower.numerics.bandits import hct, partition
from fbo_flower.numerics.bandits.pulls import CellPulls, Survivors, joint_deviations


class PlainHCT:
    """The published loop [Azar2014] on linked nodes, everything recomputed."""

    def __init__(self, arity):
        self.arity, self.t, self.root = arity, 1, self.node(0, 0)
        self.expand(self.root)

    def node(self, depth, index):
        return {"h": depth, "i": index, "n": 0, "sum": 0.0, "u": math.inf, "b": math.inf, "children": []}

    def expand(self, node):
        k = self.arity
        node["children"] = [self.node(node["h"] + 1, k * node["i"] + j) for j in range(k)]

    def log_term(self, cap):  # nu = 1, rho = 1/2, delta = .01
        return math.log(1 / min(cap, (1 / 6) ** (1 / 8) * 0.01 / 2 ** math.ceil(math.log2(self.t))))

    def tau(self, depth):  # c = .1
        return math.ceil(0.01 * self.log_term(0.5) * 4**depth) if depth else 0

    def select(self):
        node = self.root
        while node["n"] >= self.tau(node["h"]) and node["children"]:
            node = max(node["children"][::-1], key=lambda child: child["b"])  # the last wins a tie
        return node

    def bound(self, node):
        if node["n"]:
            node["u"] = node["sum"] / node["n"] + 0.5 ** node["h"]
            node["u"] += math.sqrt(0.01 * self.log_term(1.0) / node["n"])

    def everywhere(self, node, visit):
        for child in node["children"]:
            self.everywhere(child, visit)
        visit(node)

    def back_up(self, node):
        node["b"] = min(node["u"], max((child["b"] for child in node["children"]), default=math.inf))

    def learn(self, node, value):
        if self.t & (self.t - 1) == 0:
            self.everywhere(self.root, self.bound)
        node["n"], node["sum"] = node["n"] + 1, node["sum"] + value
        self.bound(node)
        self.everywhere(self.root, self.back_up)
        if node["n"] >= self.tau(node["h"]) and not node["children"]:
            self.expand(node)
        self.t += 1


def bumpy(depth, index, dim, arity):
    x = partition.centre(depth, index, dim, arity)
    return float(0.5 + 0.4 * np.sin(13 * x).prod() - ((x - 0.37) ** 2).sum() / 4)


def plain_run(dim, noise, arity):
    plain, chosen = PlainHCT(arity), []
    for e in noise:
        node = plain.select()
        plain.learn(node, bumpy(node["h"], node["i"], dim, arity) + e)
        chosen.append((node["h"], node["i"]))
    return chosen


def run(dim, noise, arity):
    tree, chosen = hct.Tree(hct.HCTOptions(dim, arity)), []
    for k, e in enumerate(noise):
        if k % 300 == 200:
            tree = hct.Tree.from_arrays(tree.options, tree.arrays())  # as kept between two tasks
        cell = tree.select()
        chosen.append((tree.depth[cell], tree.index[cell]))
        tree.learn(cell, bumpy(*chosen[-1], dim, arity) + e)
    return chosen, tree


@pytest.mark.parametrize(("dim", "arity", "half_range"), [(1, 2, 0.0), (3, 2, 1.0), (2, 4, 0.1)])
def test_the_array_tree_makes_exactly_the_pulls_of_the_plain_loop(dim, arity, half_range):
    noise = np.random.default_rng([dim, arity]).uniform(-half_range, half_range, 700)
    chosen, tree = run(dim, noise, arity)
    assert chosen == plain_run(dim, noise, arity)
    assert sum(tree.count) == 700 == tree.t - 1
    assert np.isnan(tree.means()[0]), "the root is never pulled"


def test_failed_pulls_of_a_cell_with_a_success_change_nothing():
    tree, twin = (hct.Tree(hct.HCTOptions(1)) for _ in range(2))
    rng = np.random.default_rng(0)
    for _ in range(200):
        cell = tree.select()
        if tree.succeeded()[cell]:
            tree.learn_failed(cell)
        value = rng.random()
        tree.learn(cell, value)
        twin.learn(twin.select(), value)
    assert tree == twin


def test_cells_without_a_success_count_as_the_worst_mean_until_their_first_success():
    tree = hct.Tree(hct.HCTOptions(1))
    first = tree.select()
    tree.learn_failed(first)
    second = tree.select()
    assert second != first
    tree.learn(second, 7.0)
    assert tree.u[first] == pytest.approx(tree.u[second])  # one pull each, and the worst mean is 7
    assert np.isnan(tree.means()[first])
    tree.learn(first, 9.0)
    assert (tree.count[first], tree.total[first], tree.failed[first]) == (1, 9.0, False)
    again = hct.Tree.from_arrays(tree.options, tree.arrays())
    assert again == tree


def plain_cell(depth, index, dim, arity):
    """The definition, one split after the other."""
    low, high = np.zeros(dim), np.ones(dim)
    for h in range(depth):
        digit = index // arity ** (depth - 1 - h) % arity
        axes = [h % dim] if arity == 2 else range(dim)
        for position, axis in enumerate(axes):
            upper = digit >> (len(axes) - 1 - position) & 1
            middle = (low[axis] + high[axis]) / 2
            low[axis], high[axis] = (middle, high[axis]) if upper else (low[axis], middle)
    return low, high


@pytest.mark.parametrize(("dim", "arity", "depths"), [(1, 2, (0, 52)), (3, 2, (4, 62)), (2, 4, (3, 31))])
def test_cells_are_those_of_one_split_after_the_other_and_numbers_tell_them_apart(dim, arity, depths):
    last = -1
    for depth in depths:
        for index in (
            0,
            partition.num_cells(depth, dim, arity) // 3,
            partition.num_cells(depth, dim, arity) - 1,
        ):
            low, high = plain_cell(depth, index, dim, arity)
            np.testing.assert_array_equal(partition.cell(depth, index, dim, arity), [low, high])
            both = partition.centre(depth, np.array([0, index]), dim, arity)
            np.testing.assert_array_equal(both[1], (low + high) / 2)
            number = partition.number(depth, index, arity)
            assert number >= last
            assert [int(part) for part in partition.place(number, arity)] == [depth, index]
            last = number
    assert partition.children([5], arity).tolist() == [5 * arity + j for j in range(arity)]
    assert partition.place(np.array([0, -5]), arity)[0].tolist() == [-1, -1]


def test_the_deepest_cells_are_those_that_are_exact():
    assert (partition.max_depth(1), partition.max_depth(2), partition.max_depth(3, 8)) == (52, 62, 20)


@pytest.mark.parametrize("seed", range(2))
def test_pulls_of_cells_add_up_as_in_a_dict(seed):
    rng = np.random.default_rng(seed)
    table = CellPulls.read({}, "cells.")
    plain: dict[int, tuple[list[float], int]] = {}
    for _ in range(12):
        cells = np.sort(rng.choice(np.arange(1, 30), int(rng.integers(1, 6)), replace=False))
        values = [rng.standard_normal(int(n)).tolist() for n in rng.integers(0, 4, len(cells))]
        failed = rng.integers(0, 3, len(cells))
        total, within = [sum(v) for v in values], [len(v) * float(np.var(v)) if v else np.nan for v in values]
        own = table.of(cells).add(np.arange(len(cells)), [len(v) for v in values], total, within, failed)
        table = table.updated(own)
        for cell, new, fails in zip(cells.tolist(), values, failed.tolist(), strict=True):
            known, before = plain.get(cell, ([], 0))
            plain[cell] = [*known, *new], before + fails
    assert table.cell.tolist() == sorted(plain)
    found = CellPulls.read(table.arrays("cells."), "cells.").of(np.arange(1, 40))
    for row, cell in enumerate(range(1, 40)):
        values, fails = plain.get(cell, ([], 0))
        assert (found.count[row], found.failed[row]) == (len(values), fails)
        assert found.in_vain[row] == (0 if values else fails)
        assert found.means(-7.0)[row] == pytest.approx(np.mean(values) if values else -7.0)
        assert found.within[row] == pytest.approx(len(values) * np.var(values) if values else 0.0)


def survivors(depths, indices, arity=2):
    values = np.arange(len(depths), dtype=np.float64)
    return Survivors(partition.number(depths, indices, arity), values, values)


def test_survivors_are_found_by_depth_and_replaced_by_newer_ones():
    mine = survivors([0, 1, 1], [0, 0, 1]).updated(survivors([1, 2], [1, 3]))
    assert mine.cell.tolist() == [1, 2, 3, 7]
    assert mine.mean.tolist() == [0.0, 1.0, 0.0, 1.0]
    assert mine.at(1, 2).cell.tolist() == [2, 3]
    assert mine.at(2, 2).cell.tolist() == [7]


@pytest.mark.parametrize(("cells", "arity", "sound"), [
    ([1, 8 + 7], 2, True), ([1, 2**9], 2, False), ([0, 1], 2, False), ([2, 2], 2, False), ([4 + 4], 4, False),
])  # fmt: skip
def test_cells_outside_the_partition_and_in_disorder_are_found(cells, arity, sound):
    ones = np.ones(len(cells))
    assert Survivors(np.array(cells), ones, ones).are_sound(arity, 8) is sound
    assert not Survivors(np.array([1]), np.array([np.nan]), np.ones(1)).are_sound(arity, 8)
    assert not Survivors(np.array([1]), np.ones(1), -np.ones(1)).are_sound(arity, 8)


def test_deviations_of_parts_give_those_of_the_whole():
    values = 1e8 + np.random.default_rng(0).standard_normal(50)
    parts = [(len(p), p.sum(), ((p - p.mean()) ** 2).sum()) for p in np.split(values, [3, 4, 20])]
    sums = (0, 0.0, 0.0)
    for part in parts:
        sums = sums[0] + part[0], sums[1] + part[1], float(joint_deviations(sums, part))
    np.testing.assert_allclose(sums[2], ((values - values.mean()) ** 2).sum(), rtol=1e-6)
