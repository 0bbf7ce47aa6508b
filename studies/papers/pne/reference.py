"""Federated X-armed bandits without Flower: every algorithm on one problem, all clients in one process.

A plain driver around `fbo_flower.numerics`. The experiments on regret use it, and the algorithms that run on
Flower must reproduce its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.bandits import elimination, hct, partition, racing, ucb
from fbo_flower.numerics.bandits.elimination import Constants
from fbo_flower.numerics.bandits.pulls import Pulls
from fbo_flower.numerics.bandits.racing import RacingOptions
from fbo_flower.numerics.bandits.racing_search import RacingSearch
from fbo_flower.numerics.seeding import generator
from studies.papers.pne.client import BanditRun, Client, Surface, finish
from studies.papers.pne.hct_pulls import pull_many
from studies.papers.pne.neural import NeuralClients


@dataclass
class _Level:
    """A client's statistics of the cells at one depth."""

    index: IntArray
    count: IntArray
    total: Array

    def mean(self) -> Array:
        with np.errstate(invalid="ignore"):
            return np.asarray(self.total / self.count, dtype=np.float64)


@dataclass(frozen=True)
class _Shared:
    """What the server sends about one depth: the surviving cells with their merged statistics."""

    index: IntArray
    mean: Array
    radius: Array


def pne(
    surface: Surface,
    budget: int,
    seed: int,
    transition: int,
    constants: Constants | None = None,
    arity: int = 2,
) -> BanditRun:
    """Run PF-PNE; `transition` `H0` is -1 for LocalPNE and `elimination.NEVER` for Fed-PNE."""
    constants = constants or Constants(budget, 1.0 / surface.num_clients)
    clients = [Client(surface, m, budget, seed, arity) for m in range(surface.num_clients)]
    levels: list[dict[int, _Level]] = [{} for _ in clients]
    shared, exchanged = _stage_one(clients, levels, transition, constants)
    simple = np.array(
        [
            _stage_two(client, level, shared, constants, transition)
            for client, level in zip(clients, levels, strict=True)
        ]
    )
    return finish(clients, simple, exchanged)


def _stage_one(
    clients: list[Client], levels: list[dict[int, _Level]], transition: int, constants: Constants
) -> tuple[dict[int, _Shared], list[tuple[int, int]]]:
    """Eliminate cells together down to depth `transition`, or until the budget is spent."""
    surface, arity, num_clients = clients[0].surface, clients[0].arity, len(clients)
    deepest = min(transition, partition.max_depth(surface.dimension, arity))
    active = np.zeros(1, dtype=np.int64)
    shared: dict[int, _Shared] = {}
    exchanged = []
    for depth in range(deepest + 1):
        wanted = np.full(len(active), constants.pulls_per_client(depth, num_clients))
        for client, level in zip(clients, levels, strict=True):
            level[depth] = _Level(active, *client.pull(depth, active, wanted))
        if clients[0].left == 0 and (levels[0][depth].count < wanted).any():
            break
        merged = elimination.merge(
            [level[depth].mean() for level in levels], [level[depth].count for level in levels]
        )
        radius = constants.radius(merged.count)
        stays = ~elimination.eliminated(merged.mean, radius, constants.variation(depth))
        shared[depth] = _Shared(active[stays], merged.mean[stays], radius[stays])
        exchanged.append((num_clients * len(active), 2 * num_clients * int(stays.sum())))
        active = partition.children(active[stays], arity) if depth < deepest else active
    return shared, exchanged


def _stage_two(
    client: Client,
    levels: dict[int, _Level],
    shared: dict[int, _Shared],
    constants: Constants,
    transition: int,
) -> float:
    """Eliminate cells alone from the root, but keep the shared survivors; return the simple regret."""
    active = np.zeros(1, dtype=np.int64)
    deepest = partition.max_depth(client.surface.dimension, client.arity)
    nothing = _Shared(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
    depth = 0
    while client.left > 0 and transition < elimination.NEVER and depth <= deepest:
        known = shared.get(depth, nothing)
        protected = np.isin(active, known.index)
        own = active[~protected]
        level = levels.pop(depth, _Level(nothing.index, nothing.index, nothing.mean))
        begun = np.isin(own, level.index)
        where = np.searchsorted(level.index, own[begun])
        count, total = np.zeros(len(own), dtype=np.int64), np.zeros(len(own))
        count[begun], total[begun] = level.count[where], level.total[where]
        made, sums = client.pull(depth, own, np.maximum(0, constants.pulls(depth) - count))
        count, total = count + made, total + sums
        levels[depth] = _merge_levels(level, own, count, total)
        if client.left == 0:
            break
        mean, radius = np.empty(len(active)), np.empty(len(active))
        mean[~protected], radius[~protected] = total / count, constants.radius(count)
        place = np.searchsorted(known.index, active[protected])
        mean[protected], radius[protected] = known.mean[place], known.radius[place]
        out = elimination.eliminated(mean, radius, constants.variation(depth), protected)
        client.dropped.append((depth, active[out]))
        active = partition.children(active[~out], client.arity) if depth < deepest else active[~out]
        depth += 1
    return _simple_regret(client, levels, shared, constants)


def _merge_levels(level: _Level, own: IntArray, count: IntArray, total: Array) -> _Level:
    """Return `level` with the cells of `own` replaced or added, in ascending order."""
    rest = ~np.isin(level.index, own)
    index = np.concatenate([level.index[rest], own])
    order = np.argsort(index)
    return _Level(
        index[order],
        np.concatenate([level.count[rest], count])[order],
        np.concatenate([level.total[rest], total])[order],
    )


def _simple_regret(
    client: Client, levels: dict[int, _Level], shared: dict[int, _Shared], constants: Constants
) -> float:
    """Return the regret of the cell with the best lower bound; shared survivors use merged statistics."""
    best, regret = -np.inf, np.nan
    for depth in sorted(levels):
        level = levels[depth]
        mean, radius = level.mean(), constants.radius(level.count)
        if depth in shared:
            known = shared[depth]
            place = np.searchsorted(level.index, known.index)
            mean[place], radius[place] = known.mean, known.radius
        pulled = level.count > 0
        if not pulled.any():
            continue
        index, lower = level.index[pulled], mean[pulled] - radius[pulled]
        k = int(np.argmax(lower))
        if lower[k] > best:
            best = float(lower[k])
            regret = client.optimum - float(client.cell_values(depth, index[k : k + 1])[0])
    return regret


def local_hct(surface: Surface, budget: int, seed: int, options: hct.HCTOptions | None = None) -> BanditRun:
    """Run HCT at every client alone; like the others, it recommends the cell with the best lower bound."""
    options = options or hct.HCTOptions(surface.dimension)
    clients = [Client(surface, m, budget, seed, options.arity) for m in range(surface.num_clients)]
    simple = np.array([_search(client, budget, options) for client in clients])
    return finish(clients, simple)


def _search(client: Client, budget: int, options: hct.HCTOptions) -> float:
    tree = hct.Tree(options)
    noise = np.zeros(budget)
    if client.surface.noise:
        noise = client.rng.uniform(-client.surface.noise, client.surface.noise, budget)
    known: dict[tuple[int, int], float] = {}

    def value(depth: int, index: int) -> float:
        known[depth, index] = float(client.cell_values(depth, np.array([index]))[0])
        return known[depth, index]

    cells = pull_many(tree, budget, value, noise)
    values = np.array([known.get(key, np.nan) for key in zip(tree.depth, tree.index, strict=True)])
    client.left = 0
    client.lengths.append(np.ones(budget, dtype=np.int64))
    client.gaps.append(client.optimum - values[cells])
    np.add.at(client.pulls_per_depth, np.array(tree.depth)[cells], 1)
    count = np.array(tree.count)
    pulled = np.flatnonzero(count > 0)
    radius = options.c * np.sqrt(options.log_term(hct.power_above(budget)) / count[pulled])
    best = pulled[elimination.recommend(tree.means()[pulled], radius)]
    return float(client.optimum - values[best])


def racing_pne(
    surface: Surface, budget: int, seed: int, options: RacingOptions | None = None, share: bool = True
) -> BanditRun:
    """Run the racing variant; without `share`, stage 1 ends after the first cells and shares nothing."""
    options = options or RacingOptions(surface.dimension)
    clients = [Client(surface, m, budget, seed, options.arity) for m in range(surface.num_clients)]
    gathering = racing.Gathering(options, budget)
    count, total, within = ([np.empty(0) for _ in clients] for _ in range(3))
    exchanged = []
    while True:
        depth, index = gathering.next_cells(budget // 20 - (budget - clients[0].left))
        if len(depth) == 0 or clients[0].left == 0:
            break
        pulls = [client.observe(depth, index, options.first_pulls) for client in clients]
        for m, (n, y, s) in enumerate(pulls):
            count[m], total[m] = np.concatenate([count[m], n]), np.concatenate([total[m], y])
            within[m] = np.concatenate([within[m], s])
        counts = np.array([n for n, _, _ in pulls])
        means = np.array([y for _, y, _ in pulls]) / np.maximum(1, counts)
        gathering.hear(means, counts)
        if not share:
            break
        exchanged.append((means.size, 0))
    shared = gathering.result()
    if not share:
        shared = replace(shared, num_clients=np.ones_like(shared.num_clients))
    simple = np.array(
        [_race(c, budget, shared, n, y, s) for c, n, y, s in zip(clients, count, total, within, strict=True)]
    )
    if share:  # the last round of stage 1 also sends its results down
        exchanged[-1] = (exchanged[-1][0], 2 * shared.cells.size * len(clients))
    return finish(clients, simple, exchanged)


def _race(
    client: Client, budget: int, shared: racing.StageOneResult, count: Array, total: Array, within: Array
) -> float:
    if not (shared.num_clients > 1).any():  # no cell was shared: the merged means come from others
        shared = replace(shared, num_clients=(count > 0).astype(np.int64), mean=total / np.maximum(1, count))
    own = Pulls(count.astype(np.int64), total, within, np.zeros(len(count), dtype=np.int64))
    search = RacingSearch.begin(budget, shared, own)
    while search.left > 0:
        cell, depth, index, pulls = search.ask()
        n, y, s = client.observe(np.array([depth]), np.array([index]), pulls)
        search.tell(cell, int(n[0]), float(y[0]), float(s[0]))
    depth, index, _ = search.best()
    return client.optimum - float(client.cell_values(depth, np.array([index]))[0])


def fed1_ucb(surface: Surface, budget: int, seed: int, noise_stddev: float = 1.0) -> BanditRun:
    """Run Fed1-UCB: one set of random arms, eliminated by the mean over the clients."""
    arms = ucb.random_arms(surface.dimension, np.random.default_rng([seed, 3]))
    clients = [Client(surface, m, budget, seed) for m in range(surface.num_clients)]
    values = [surface.values(arms, m) for m in range(surface.num_clients)]
    total, count = np.zeros((len(clients), len(arms))), np.zeros((len(clients), len(arms)), dtype=np.int64)
    active, length, phase = np.arange(len(arms)), ucb.phase_length(budget), 0
    exchanged = []

    def merged() -> elimination.Merged:
        return elimination.merge((total / np.maximum(1, count))[:, active], count[:, active])

    while clients[0].left > 0:
        pulls = np.full(len(active), length if len(active) > 1 else clients[0].left)
        for m, client in enumerate(clients):
            order = generator(seed, "agent", str(m), "order", "train", phase).permutation(active)
            made, sums = client.pull_values(0, values[m][order], pulls)
            total[m, order] += sums
            count[m, order] += made
        if clients[0].left == 0:
            break
        found, asked, phase = merged(), len(active), phase + 1
        radius = ucb.fed1_radius(found.count, 1, budget, noise_stddev)
        active = active[ucb.fed1_survivors(found.mean, radius)]
        exchanged.append((len(clients) * asked, len(clients) * len(active)))
    best = int(active[np.argmax(np.where(merged().num_clients > 0, merged().mean, -np.inf))])
    own = np.where(count > 0, total / np.maximum(1, count), -np.inf).argmax(axis=1)
    chosen = np.where(count[:, best] > 0, best, own)
    simple = np.array([c.optimum - values[m][chosen[m]] for m, c in enumerate(clients)])
    return finish(clients, simple, exchanged)


def fn_ucb(surface: Surface, budget: int, seed: int, options: ucb.NeuralOptions | None = None) -> BanditRun:
    """Run FN-UCB: neural features, and networks that are averaged over the clients."""
    options = options or ucb.NeuralOptions()
    arms = ucb.random_arms(surface.dimension, np.random.default_rng([seed, 3]))
    clients = [Client(surface, m, budget, seed) for m in range(surface.num_clients)]
    values = np.array([surface.values(arms, m) for m in range(surface.num_clients)])
    state = NeuralClients(arms, len(clients), options, np.random.default_rng([seed, 4]))
    counts = np.zeros((len(clients), len(arms)), dtype=np.int64)
    exchanged = []
    for t in range(budget):
        before = state.floats
        chosen = state.choose(t)
        rewards = np.empty(len(clients))
        for m, client in enumerate(clients):
            rewards[m] = client.pull_values(0, values[m, chosen[m : m + 1]], np.ones(1, dtype=np.int64))[1][0]
            counts[m, chosen[m]] += 1
        state.learn(t, chosen, rewards)
        if state.floats > before:
            exchanged.append((state.floats - before, state.floats - before))
    simple = np.array([c.optimum - values[m, np.argmax(counts[m])] for m, c in enumerate(clients)])
    return finish(clients, simple, exchanged)


def algorithms(gap: float = 0.01, h0: str = "literal") -> Mapping[str, Callable[..., BanditRun]]:
    """Return the algorithms by name, each a function of surface, budget and seed."""
    return {
        "pf-pne": partial(pne, transition=elimination.transition_depth(1.0, 0.5, gap, h0)),
        "fed-pne": partial(pne, transition=elimination.NEVER),
        "local-pne": partial(pne, transition=-1),
        "hct": local_hct,
        "racing": racing_pne,
        "racing-local": partial(racing_pne, share=False),
        "fed1-ucb": fed1_ucb,
        "fn-ucb": fn_ucb,
    }
