import math

import numpy as np
import pytest

from fbo_flower.numerics.bandits import hct, partition


class PlainHCT:
    """The published loop [Azar2014] on linked nodes, everything recomputed: what PyXAB does, expanding once.

    `flaw`: "reexpand" as PyXAB, or "first wins" a tie, the other way. Both are negative controls.
    """

    def __init__(self, arity, flaw):
        self.arity, self.flaw, self.t, self.root = arity, flaw, 1, self.node(0, 0)
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
            last_wins = 1 if self.flaw == "first wins" else -1
            node = max(node["children"][::last_wins], key=lambda child: child["b"])
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
        if node["n"] >= self.tau(node["h"]) and (self.flaw == "reexpand" or not node["children"]):
            self.expand(node)
        self.t += 1


def bumpy(depth, index, dim, arity=2):
    x = partition.centre(depth, index, dim, arity)
    return float(0.5 + 0.4 * np.sin(13 * x).prod() - ((x - 0.37) ** 2).sum() / 4)


def plain_run(dim, noise, arity=2, flaw=None):
    plain, chosen = PlainHCT(arity, flaw), []
    for e in noise:
        node = plain.select()
        plain.learn(node, bumpy(node["h"], node["i"], dim, arity) + e)
        chosen.append((node["h"], node["i"]))
    return chosen


def run(dim, noise, arity=2):
    tree, chosen = hct.Tree(hct.HCTOptions(dim, arity)), []
    for k, e in enumerate(noise):
        if k % 300 == 200:
            tree = hct.Tree.from_arrays(tree.options, tree.arrays())  # as kept between two tasks
        cell = tree.select()
        chosen.append((tree.depth[cell], tree.index[cell]))
        tree.learn(cell, bumpy(*chosen[-1], dim, arity) + e)
    return chosen, tree


@pytest.mark.parametrize(("dim", "arity", "half_range"), [(1, 2, 0.0), (2, 2, 0.1), (3, 2, 1.0), (2, 4, 0.1)])
def test_the_array_tree_makes_exactly_the_pulls_of_the_plain_loop(dim, arity, half_range):
    noise = np.random.default_rng([dim, arity]).uniform(-half_range, half_range, 700)
    chosen, tree = run(dim, noise, arity)
    assert chosen == plain_run(dim, noise, arity)
    assert sum(tree.count) == 700 == tree.t - 1
    assert np.isnan(tree.means()[0]), "the root is never pulled"


@pytest.mark.parametrize("flaw", ["reexpand", "first wins"])
def test_the_comparison_notices_a_wrong_plain_loop(flaw):
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, 700)
    assert run(2, noise)[0] != plain_run(2, noise, flaw=flaw)


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
