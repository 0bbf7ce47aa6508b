"""The Gaussian-process variant and the searches it is compared with, without Flower: small budgets.

`gp_pne` must agree with the algorithm on Flower; it sees all data at once where the algorithm sends sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fbo_flower.numerics.aggregation import shared_mean
from fbo_flower.numerics.aggregation.shared_mean import LENGTHSCALES, NOISES, RESIDUALS, SharedMeanModel
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.seeding import generator
from studies.papers.pne.client import BanditRun, Client, Surface, finish

MAX_SEED = 2**53


class _Data:
    """The points that one client evaluated, each once or more."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.points = np.empty((0, client.surface.dimension))
        self.values: list[list[float]] = []

    def pull(self, point: Array) -> None:
        true = self.client.surface.values(point[np.newaxis], self.client.client)
        _, total = self.client.pull_values(true, np.ones(1, dtype=np.int64))
        place = np.flatnonzero((self.points == point).all(axis=1))
        if len(place) == 0:
            self.points = np.concatenate([self.points, point[np.newaxis]])
            self.values.append([])
        self.values[int(place[0]) if len(place) else -1].append(float(total[0]))

    def modelled(self, mean: float, stddev: float) -> tuple[Array, Array, Array]:
        counts = np.array([len(v) for v in self.values], dtype=np.float64)
        means = np.array([np.mean(v) for v in self.values])
        return self.points, (means - mean) / stddev, counts

    def within(self) -> float:
        return sum(float(np.square(np.array(v) - np.mean(v)).sum()) for v in self.values)


def gp_pne(surface: Surface, budget: int, seed: int) -> BanditRun:
    """Run the Gaussian-process variant."""
    clients = [Client(surface, m, budget, seed) for m in range(surface.num_agents)]
    simple = _together(clients, budget, seed)
    return finish(clients, simple)


def local_gp(surface: Surface, budget: int, seed: int) -> BanditRun:
    """Run GP-UCB at every client alone: the same model and search in a federation of one."""
    clients = [Client(surface, m, budget, seed) for m in range(surface.num_agents)]
    return finish(clients, np.concatenate([_together([client], budget, seed) for client in clients]))


def _together(clients: Sequence[Client], budget: int, seed: int) -> Array:
    dim, data = clients[0].surface.dimension, [_Data(client) for client in clients]
    target = min(budget, shared_mean.design_size(dim, len(clients)))
    design_seed = int(generator(seed, "server", "init").integers(MAX_SEED))
    for place, one in enumerate(data):
        for point in shared_mean.design(dim, len(clients), place, 0, target, design_seed):
            one.pull(point)
    every = np.concatenate([np.concatenate(one.values) for one in data])
    mean, stddev = float(every.mean()), float(every.std()) or 1.0
    setting, done = _setting(data, mean, stddev), target
    beliefs: list[shared_mean.Belief] = []
    while done < budget:
        found = [
            [shared_mean.evidence(_model(dim, setting, d), *one.modelled(mean, stddev)) for one in data]
            for d in RESIDUALS
        ]
        totals = [sum(parts[1:], parts[0]) for parts in found]
        likelihoods = [
            shared_mean.log_likelihood(_model(dim, setting, d), total)
            for d, total in zip(RESIDUALS, totals, strict=True)
        ]
        place = int(np.argmax(likelihoods))
        model, following = _model(dim, setting, RESIDUALS[place]), _setting(data, mean, stddev)
        target = min(budget, shared_mean.next_exchange(done))
        beliefs = []
        for one, own in zip(data, found[place], strict=True):
            others = totals[place] - own if len(data) > 1 else shared_mean.nothing(dim)
            for trial in range(done, target):
                belief = shared_mean.belief(model, *one.modelled(mean, stddev), others)
                draws = generator(seed, "agent", str(one.client.client), "choose", "train", trial)
                one.pull(shared_mean.choose(belief, draws))
            beliefs.append(shared_mean.belief(model, *one.modelled(mean, stddev), others))
        setting, done = following, target
    regrets = []
    for place, one in enumerate(data):
        expected = beliefs[place].predict(one.points)[0] if beliefs else one.modelled(0.0, 1.0)[1]
        best = one.points[int(np.argmax(expected))]
        true = one.client.surface.values(best[np.newaxis], one.client.client)
        regrets.append(one.client.optimum - float(true[0]))
    return np.array(regrets)


def _setting(data: Sequence[_Data], mean: float, stddev: float) -> tuple[int, int]:
    dim = data[0].client.surface.dimension
    tables = [
        shared_mean.log_likelihoods(dim, *one.modelled(mean, stddev), one.within() / stddev**2)
        for one in data
    ]
    best = int(np.argmax(np.sum(tables, axis=0)))
    return best // len(NOISES), best % len(NOISES)


def _model(dim: int, setting: tuple[int, int], residual: float) -> SharedMeanModel:
    return SharedMeanModel(dim, LENGTHSCALES[setting[0]] * math.sqrt(dim), NOISES[setting[1]], residual)


def random_search(surface: Surface, budget: int, seed: int) -> BanditRun:
    """Run random search; it recommends the point with the best value seen."""
    clients = [Client(surface, m, budget, seed) for m in range(surface.num_agents)]
    simple = []
    for client in clients:
        points = generator(seed, "random", client.client).random((budget, surface.dimension))
        values = surface.values(points, client.client)
        _, seen = client.pull_values(values, np.ones(budget, dtype=np.int64))
        simple.append(client.optimum - float(values[int(np.argmax(seen))]))
    return finish(clients, np.array(simple))


def sobol_halving(surface: Surface, budget: int, seed: int) -> BanditRun:
    """Run successive halving of Sobol points: `K log2 K <= T`, equal shares of the budget per round."""
    clients = [Client(surface, m, budget, seed) for m in range(surface.num_agents)]
    size = 1
    while 2 * size * math.log2(2 * size) <= budget:
        size *= 2
    rounds, simple = max(1, int(math.log2(size))), []
    for client in clients:
        points = sobol(size, surface.dimension, generator(seed, "halving", client.client))
        values = surface.values(points, client.client)
        active, total, count = np.arange(size), np.zeros(size), np.zeros(size)
        for h in range(rounds):
            last = h == rounds - 1
            pulls = client.left // len(active) if last else budget // rounds // len(active)
            made, sums = client.pull_values(values[active], np.full(len(active), max(1, pulls)))
            total[active] += sums
            count[active] += made
            means = np.where(count[active] > 0, total[active] / np.maximum(1, count[active]), -np.inf)
            active = active[np.argsort(-means, kind="stable")[: max(1, len(active) // 2)]]
        if client.left:
            client.pull_values(values[active[:1]], np.array([client.left]))
        simple.append(client.optimum - float(values[active[0]]))
    return finish(clients, np.array(simple))
