"""The driver against a plain scalar version, its identities, its guarantee and its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fbo_flower.numerics.bandits import elimination, hct, partition, ucb
from fbo_flower.numerics.bandits.elimination import NEVER
from fbo_flower.simulation.problems import DoubleSine, Garland, Himmelblau
from studies.papers.pne import client as pne_client
from studies.papers.pne import reference
from studies.papers.pne.client import Client
from studies.papers.pne.guarantees import SHARP, Peaks, lost_sharp, smooth_enough
from studies.papers.pne.reference import NeuralClients, pull_many
from studies.problems.synthetic import Ackley, Rastrigin10D


class PlainPNE:
    """[Li2024] cell by cell and pull by pull, with dictionaries."""

    def __init__(self, surface, budget, transition, nu=1.0, rho=0.5, c=0.1):
        self.surface, self.budget, self.transition = surface, budget, transition
        self.num_clients = surface.num_agents
        self.nu, self.rho, self.c = nu, rho, c
        self.log_term = math.log(budget * self.num_clients)
        self.regret = np.zeros((self.num_clients, budget))
        self.done = [0] * self.num_clients
        self.noise = [np.random.default_rng([5, 2, m]) for m in range(self.num_clients)]
        self.stats = [{} for _ in range(self.num_clients)]  # cell -> [count, sum]

    def tau(self, h):
        return max(1, math.ceil(self.c**2 * self.log_term * self.rho ** (-2 * h) / self.nu**2))

    def b(self, n):
        return self.c * math.sqrt(self.log_term / n)

    def pull(self, m, cell):
        if self.done[m] == self.budget:
            return
        value = self.surface.values(partition.centre(*cell, self.surface.dimension)[np.newaxis], m)[0]
        self.regret[m, self.done[m]] = self.surface.optimum(m) - value
        self.done[m] += 1
        entry = self.stats[m].setdefault(cell, [0, 0.0])
        entry[0] += 1
        a = self.surface.noise
        entry[1] += value + (self.noise[m].uniform(-a, a) if a else 0.0)

    def survivors(self, stats, depth, protected=frozenset()):
        best = max(sorted(stats), key=lambda cell: (stats[cell][0], -cell[1]))
        bar = stats[best][0] - stats[best][1]
        return [
            cell
            for cell in sorted(stats)
            if cell in protected or not stats[cell][0] + stats[cell][1] + self.nu * self.rho**depth < bar
        ]

    def run(self):
        shared = {}
        active, depth = [(0, 0)], 0
        while depth <= self.transition and self.done[0] < self.budget:
            each = -(-self.tau(depth) // self.num_clients)
            for m in range(self.num_clients):
                for cell in active:
                    for _ in range(each):
                        self.pull(m, cell)
            if any(self.stats[0].get(cell, [0])[0] < each for cell in active):
                return self
            stats = {
                cell: (
                    np.mean([s[cell][1] / s[cell][0] for s in self.stats]),
                    self.b(sum(s[cell][0] for s in self.stats)),
                )
                for cell in active
            }
            kept = self.survivors(stats, depth)
            shared[depth] = {cell: stats[cell] for cell in kept}
            active = [(depth + 1, 2 * i + j) for _, i in kept for j in range(2)]
            depth += 1
        for m in range(self.num_clients):
            self.alone(m, shared)
        return self

    def alone(self, m, shared):
        active, depth = [(0, 0)], 0
        while True:
            known = shared.get(depth, {})
            for cell in active:
                while cell not in known and self.stats[m].get(cell, [0])[0] < self.tau(depth):
                    if self.done[m] == self.budget:
                        return
                    self.pull(m, cell)
            if self.done[m] == self.budget:
                return
            stats = {c: known[c] if c in known else self.local(m, c) for c in active}
            kept = self.survivors(stats, depth, known.keys())
            active = [(depth + 1, 2 * i + j) for _, i in kept for j in range(2)]
            depth += 1

    def local(self, m, cell):
        count, total = self.stats[m][cell]
        return total / count, self.b(count)


@pytest.mark.parametrize(
    ("problem_class", "transition", "noise"),
    [
        (Garland, 6, 0.1), (Garland, NEVER, 0.0), (DoubleSine, 2, 0.1), (DoubleSine, -1, 0.0),
        (Himmelblau, 6, 0.0), (Himmelblau, NEVER, 0.1), (Ackley, 2, 0.0), (Rastrigin10D, -1, 0.1),
        (Rastrigin10D, 6, 0.0),
    ],
)  # fmt: skip
def test_the_driver_has_the_regret_of_the_plain_version(problem_class, transition, noise):
    surface = problem_class(3, 5, noise=noise)
    run = reference.pne(surface, 3000, 5, transition)
    plain = PlainPNE(surface, 3000, transition).run()
    assert plain.done == [3000] * 3
    expected = np.concatenate([np.zeros((3, 1)), plain.regret.cumsum(axis=1)], axis=1)[:, run.times]
    np.testing.assert_allclose(run.regret, expected, atol=1e-6)
    assert run.pulls.tolist() == [3000] * 3


def test_the_comparison_notices_another_constant():
    surface = Himmelblau(3, 5, noise=0.0)
    run = reference.pne(surface, 3000, 5, 6)
    plain = PlainPNE(surface, 3000, 6, c=0.11).run()
    assert abs(run.final - plain.regret.sum(axis=1)).max() > 1


def same(one, other):
    np.testing.assert_array_equal(one.regret, other.regret)
    np.testing.assert_array_equal(one.simple, other.simple)
    np.testing.assert_array_equal(one.pulls, other.pulls)


def test_a_gap_of_zero_is_fed_pne_and_h0_of_minus_one_is_local_pne():
    surface = Himmelblau(4, 1)
    algorithms = reference.algorithms(gap=0.0)
    same(algorithms["pf-pne"](surface, 5000, 1), algorithms["fed-pne"](surface, 5000, 1))
    apart = reference.algorithms(gap=2.0)
    run = apart["pf-pne"](surface, 5000, 1)
    same(run, apart["local-pne"](surface, 5000, 1))


def test_noise_sums_do_not_depend_on_how_they_are_held(monkeypatch):
    counts = np.array([3, 0, 1000, 1, 70, 0])
    surface = Peaks((0.5,))
    expected = Client(surface, 0, 10, 3).noise_sums(counts)
    draws = np.random.default_rng([3, 2, 0]).uniform(-0.1, 0.1, counts.sum())
    np.testing.assert_allclose(
        expected, [d.sum() for d in np.split(draws, np.cumsum(counts)[:-1])], atol=1e-12
    )
    monkeypatch.setattr(pne_client, "NOISE_CHUNK", 7)
    np.testing.assert_allclose(Client(surface, 0, 10, 3).noise_sums(counts), expected, atol=1e-12)


def test_no_optimal_cell_is_eliminated_when_the_smoothness_holds():
    assert smooth_enough(SHARP, 1.0, 2**-0.25)
    assert sum(lost_sharp("", f"{2**-0.25}", seed)["lost"].sum() for seed in range(60)) == 0


def test_optimal_cells_are_eliminated_when_the_smoothness_is_false():
    assert not smooth_enough(SHARP, 1.0, 0.5)
    assert sum(lost_sharp("", "0.5", seed)["lost"].sum() for seed in range(20)) > 60  # of 80


APART = Peaks((0.1, 0.12, 0.88))  # the mean's maximum, .74, is at .12
APART_GAP = 0.26


def test_one_global_optimum_costs_some_clients_linear_regret():
    personal = elimination.transition_depth(1.0, 0.5, APART_GAP)
    slopes = {}
    for name, transition in (("fed", NEVER), ("personal", personal)):
        run = reference.pne(APART, 20000, 0, transition)
        middle = len(run.times) // 2
        slopes[name] = (run.regret[:, -1] - run.regret[:, middle]) / (run.times[-1] - run.times[middle])
    assert slopes["fed"][2] > 0.7
    assert slopes["personal"].max() < 0.1
    alone = reference.racing_pne(APART, 20000, 0)
    assert (alone.final < 1000).all()


def test_comparators_spend_their_budget_and_repeat():
    surface = Garland(3, 2)
    for name, function in reference.algorithms().items():
        budget = 30 if name == "fn-ucb" else 1000
        run, again = function(surface, budget, 4), function(surface, budget, 4)
        same(run, again)
        assert run.pulls.tolist() == [budget] * 3
        assert run.regret[:, 0].tolist() == [0.0] * 3
        assert (run.final >= 0).all()
        assert np.isfinite(run.simple).all()


def test_fed1_ucb_keeps_the_best_arm_of_the_mean():
    surface = Peaks((0.3, 0.3, 0.3))
    run = reference.fed1_ucb(surface, 20000, 1)
    half = run.regret[:, -1] - run.regret[:, len(run.times) // 2]
    assert (run.simple < 0.15).all()
    assert half.max() < 0.2 * 10000


def test_racing_stays_far_below_hct_on_a_cusp():
    surface = Garland(4, 11)
    racing = reference.racing_pne(surface, 10000, 11).final.mean()
    assert racing < 0.6 * reference.local_hct(surface, 10000, 11).final.mean()


# -- many pulls of hct at once are the pulls one by one ------------------------------------------


@pytest.mark.parametrize(("dim", "arity"), [(1, 2), (2, 2), (2, 4), (3, 8)])
@pytest.mark.parametrize("observed", [False, True])
def test_runs_in_parts_and_steps_are_one_run(dim, arity, observed):
    def value(depth, index):
        x = partition.centre(depth, index, dim, arity)
        return float(0.5 + 0.4 * np.sin(13 * x).prod() - ((x - 0.37) ** 2).sum() / 4)

    noise, options = (
        np.random.default_rng(1).uniform(-0.1, 0.1, 1500),
        hct.HCTOptions(dim, arity, observed=observed),
    )
    whole, parts, steps = (hct.Tree(options) for _ in range(3))
    expected = pull_many(whole, len(noise), value, noise).tolist()
    assert [
        c for part in np.array_split(noise, 7) for c in pull_many(parts, len(part), value, part)
    ] == expected
    for cell, e in zip(expected, noise, strict=True):
        assert steps.select() == cell
        steps.learn(cell, value(steps.depth[cell], steps.index[cell]) + e)
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(array, parts.arrays()[name])
        np.testing.assert_array_equal(array, steps.arrays()[name])


# -- fn-ucb of all clients together against a plain version --------------------------------------


def neural_run(options, num_pulls=40, num_clients=3, seed=0):
    rng = np.random.default_rng(seed)
    arms = ucb.random_arms(1, rng)
    state = NeuralClients(arms, num_clients, options, rng)
    chosen = []
    for t in range(num_pulls):
        arm = state.choose(t)
        chosen.append(arm)
        state.learn(t, arm, arms[arm, 0] + 0.01 * rng.standard_normal(num_clients))
    return state, np.array(chosen)


def test_updated_inverses_stay_exact_over_many_pulls():
    state, _ = neural_run(ucb.NeuralOptions(train_steps=1), num_pulls=250)
    np.testing.assert_allclose(state.own_inverse, np.linalg.inv(state.own), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(state.average_inverse, np.linalg.inv(state.own).mean(axis=0), atol=1e-8)


def test_the_gap_of_the_separate_peaks_is_measured():
    x = np.linspace(0, 1, 10_001)[:, np.newaxis]
    mean = np.mean([APART.values(x, m) for m in range(3)], axis=0)
    assert max(APART.optimum(m) - mean.max() for m in range(3)) == pytest.approx(APART_GAP)
