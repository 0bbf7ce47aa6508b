"""The bandits on Flower against plain loops of their papers, which know no federation and no noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.bandits import elimination, partition, ucb
from fbo_flower.numerics.bandits.elimination import NEVER
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import make_problem, simulate
from studies.papers import pne


class PlainPNE:
    """[Li2024] cell by cell and pull by pull, with dictionaries."""

    def __init__(self, problem, budget, transition, c=0.1):
        self.problem, self.budget, self.transition, self.c = problem, budget, transition, c
        self.clients = range(problem.num_agents)
        self.log_term = math.log(budget * problem.num_agents)
        self.regret = [[] for _ in self.clients]
        self.stats = [{} for _ in self.clients]  # cell -> [count, sum]
        self.shared = {}  # depth -> surviving cell -> mean and radius

    def tau(self, h):
        return max(1, math.ceil(self.c**2 * self.log_term * 4**h))

    def radius(self, n):
        return self.c * math.sqrt(self.log_term / n)

    def pull(self, m, cell):
        if len(self.regret[m]) < self.budget:
            value = self.problem.values(partition.centre(*cell, self.problem.dimension)[np.newaxis], m)[0]
            self.regret[m].append(self.problem.optimum(m) - value)
            entry = self.stats[m].setdefault(cell, [0, 0.0])
            entry[0], entry[1] = entry[0] + 1, entry[1] + value

    def survivors(self, stats, depth, protected=frozenset()):
        best = max(sorted(stats), key=lambda cell: (stats[cell][0], -cell[1]))
        bar = stats[best][0] - stats[best][1]
        return [c for c in sorted(stats) if c in protected or not sum(stats[c]) + 0.5**depth < bar]

    def run(self):
        active, depth = [(0, 0)], 0
        while depth <= self.transition and len(self.regret[0]) < self.budget:
            each = -(-self.tau(depth) // len(self.clients))
            for m in self.clients:
                for cell in active:
                    for _ in range(each):
                        self.pull(m, cell)
            if any(self.stats[0].get(cell, [0])[0] < each for cell in active):
                return self
            found = [(cell, [s[cell] for s in self.stats]) for cell in active]
            stats = {
                cell: (np.mean([y / n for n, y in s]), self.radius(sum(n for n, _ in s))) for cell, s in found
            }
            self.shared[depth] = {cell: stats[cell] for cell in self.survivors(stats, depth)}
            active = [(depth + 1, 2 * i + j) for _, i in self.shared[depth] for j in range(2)]
            depth += 1
        for m in self.clients:
            self.alone(m)
        return self

    def alone(self, m):
        active, depth = [(0, 0)], 0
        while True:
            known = self.shared.get(depth, {})
            for cell in active:
                while cell not in known and self.stats[m].get(cell, [0])[0] < self.tau(depth):
                    if len(self.regret[m]) == self.budget:
                        return
                    self.pull(m, cell)
            if len(self.regret[m]) == self.budget:
                return
            kept = self.survivors({c: self.known(m, c) for c in active}, depth, known.keys())
            active = [(depth + 1, 2 * i + j) for _, i in kept for j in range(2)]
            depth += 1

    def known(self, m, cell):
        if cell in self.shared.get(cell[0], {}):
            return self.shared[cell[0]][cell]
        count, total = self.stats[m][cell]
        return total / count, self.radius(count)

    def simple(self, m):
        bounds = {cell: np.subtract(*self.known(m, cell)) for cell in sorted(self.stats[m])}
        centre = partition.centre(*max(bounds, key=bounds.get), self.problem.dimension)
        return self.problem.optimum(m) - self.problem.values(centre[np.newaxis], m)[0]


def plain_fed1(problem, budget, seed, noise_stddev):
    """Eliminate random arms by the clients' mean."""
    arms, clients = ucb.random_arms(problem.dimension, np.random.default_rng([seed, 3])), problem.num_agents
    values = np.array([problem.values(arms, m) for m in range(clients)])
    counts, active, left, phase = np.zeros(values.shape, int), np.arange(len(arms)), budget, 0

    while True:
        each = ucb.phase_length(budget) if len(active) > 1 else left
        for m in range(clients):
            order, rest = generator(seed, "agent", str(m), "order", "train", phase).permutation(active), left
            for arm in order:
                counts[m, arm], rest = counts[m, arm] + min(each, rest), rest - min(each, rest)
        left, phase = rest, phase + 1
        if left == 0:
            gaps = np.array([problem.optimum(m) - values[m] for m in range(clients)])
            return (gaps * counts).sum(axis=1)
        merged = elimination.merge(values[:, active], counts[:, active])
        radius = ucb.fed1_radius(merged.count, 1, budget, noise_stddev)
        active = active[ucb.fed1_survivors(merged.mean, radius)]


def both(name, function, agents, budget, seed, **options):
    """Return a study without noise, its cumulative regret `(M,)` and its problem."""
    problem = make_problem(function, agents, seed, {"noise": 0.0})
    given = {"budget": budget, **options} | ({"arms_seed": seed} if name.endswith("ucb") else {})
    study = simulate(problem, algorithm=make_algorithm(name, given), seed=seed, engine="inline")
    assert study.trials["pulls"].sum() == agents * budget
    regret = [study.regret.where(agent=str(m))["cumulative"][-1] for m in range(agents)]
    return study, np.array(regret), problem


@pytest.mark.parametrize("function", ["garland", "himmelblau", "ackley", "rastrigin-10d"])
@pytest.mark.parametrize(("name", "transition"), [("pf-pne", 6), ("fed-pne", NEVER), ("local-pne", -1)])
def test_pne_makes_the_pulls_of_the_plain_loop(name, transition, function):
    study, regret, problem = both(name, function, 3, 1500, 3)
    plain = PlainPNE(problem, 1500, transition).run()
    np.testing.assert_allclose(regret, np.sum(plain.regret, axis=1), atol=1e-6)
    for m in range(3):
        found = problem.optimum(m) - problem.true_value(study.best[str(m)]["config"], m)
        assert found == pytest.approx(plain.simple(m), abs=1e-9)
    wrong = PlainPNE(problem, 1500, transition, c=0.11).run()
    assert abs(regret - np.sum(wrong.regret, axis=1)).max() > 0.1, "the comparison notices a constant"


@pytest.mark.parametrize("limit", [333, 10_000])
@pytest.mark.parametrize(("function", "budget", "noise"), [("garland", 8000, 0.3), ("double-sine", 50, 1.0)])
def test_fed1_ucb_makes_the_pulls_of_the_plain_loop(function, budget, noise, limit):
    options = {"noise_stddev": noise, "max_evaluations_per_round": limit}
    _, regret, problem = both("fed1-ucb", function, 3, budget, 4, **options)
    np.testing.assert_allclose(regret, plain_fed1(problem, budget, 4, noise), atol=1e-6)


def test_a_client_alone_has_its_own_function_and_optimum():
    whole = make_problem("garland", 10, 5, {})
    alone = pne.OneClient(1, 5, "garland", 7)
    assert alone.optimum(0) == whole.optimum(7)
    values = [whole.true_value({"x": 0.3}, client) for client in range(10)]
    assert alone.true_value({"x": 0.3}, 0) == values[7] != values[0]
