"""Federated X-armed bandits without Flower: every algorithm on one problem, all clients in one process.

A plain driver around `fbo_flower.numerics`. The experiments on regret use it, and the algorithms that run on
Flower must reproduce its results.

[Dai2023] Dai, Shu, Verma, Fan, Low, Jaillet. Federated neural bandits. ICLR 2023, and its published code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.bandits import elimination, hct, partition, racing, ucb
from fbo_flower.numerics.bandits.elimination import Constants
from fbo_flower.numerics.bandits.hct import Tree, power_above
from fbo_flower.numerics.bandits.pulls import Pulls
from fbo_flower.numerics.bandits.racing import RacingOptions, RacingSearch
from fbo_flower.numerics.seeding import generator
from studies.papers.pne.client import BanditRun, Client, Surface, finish


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
) -> BanditRun:
    """Run PF-PNE; `transition` `H0` is -1 for LocalPNE and `elimination.NEVER` for Fed-PNE."""
    constants = constants or Constants(budget, 1.0 / surface.num_agents)
    clients = [Client(surface, m, budget, seed) for m in range(surface.num_agents)]
    levels: list[dict[int, _Level]] = [{} for _ in clients]
    shared = _stage_one(clients, levels, transition, constants)
    alone = [
        _stage_two(c, own, shared, constants, transition) for c, own in zip(clients, levels, strict=True)
    ]
    return finish(clients, np.array(alone))


def _stage_one(
    clients: list[Client], levels: list[dict[int, _Level]], transition: int, constants: Constants
) -> dict[int, _Shared]:
    """Eliminate cells together down to depth `transition`, or until the budget is spent."""
    num_clients = len(clients)
    deepest = min(transition, partition.max_depth(clients[0].surface.dimension))
    active = np.zeros(1, dtype=np.int64)
    shared: dict[int, _Shared] = {}
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
        active = partition.children(active[stays]) if depth < deepest else active
    return shared


def _stage_two(
    client: Client,
    levels: dict[int, _Level],
    shared: dict[int, _Shared],
    constants: Constants,
    transition: int,
) -> float:
    """Eliminate cells alone from the root, but keep the shared survivors; return the simple regret."""
    active = np.zeros(1, dtype=np.int64)
    deepest = partition.max_depth(client.surface.dimension)
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
        active = partition.children(active[~out]) if depth < deepest else active[~out]
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


def local_hct(surface: Surface, budget: int, seed: int) -> BanditRun:
    """Run HCT at every client alone; like the others, it recommends the cell with the best lower bound."""
    options = hct.HCTOptions(surface.dimension)
    clients = [Client(surface, m, budget, seed) for m in range(surface.num_agents)]
    simple = np.array([_search(client, budget, options) for client in clients])
    return finish(clients, simple)


def _search(client: Client, budget: int, options: hct.HCTOptions) -> float:
    tree = Tree(options)
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
    count = np.array(tree.count)
    pulled = np.flatnonzero(count > 0)
    radius = options.c * np.sqrt(options.log_term(power_above(budget)) / count[pulled])
    best = pulled[elimination.recommend(tree.means()[pulled], radius)]
    return float(client.optimum - values[best])


def racing_pne(surface: Surface, budget: int, seed: int, share: bool = True) -> BanditRun:
    """Run the racing variant; without `share`, stage 1 ends after the first cells and shares nothing."""
    options = RacingOptions(surface.dimension)
    clients = [Client(surface, m, budget, seed) for m in range(surface.num_agents)]
    gathering = racing.Gathering(options, budget)
    count, total, within = ([np.empty(0) for _ in clients] for _ in range(3))
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
    shared = gathering.result()
    if not share:
        shared = replace(shared, num_clients=np.ones_like(shared.num_clients))
    simple = np.array(
        [_race(c, budget, shared, n, y, s) for c, n, y, s in zip(clients, count, total, within, strict=True)]
    )
    return finish(clients, simple)


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
    clients = [Client(surface, m, budget, seed) for m in range(surface.num_agents)]
    values = [surface.values(arms, m) for m in range(surface.num_agents)]
    total, count = np.zeros((len(clients), len(arms))), np.zeros((len(clients), len(arms)), dtype=np.int64)
    active, length, phase = np.arange(len(arms)), ucb.phase_length(budget), 0

    def merged() -> elimination.Merged:
        return elimination.merge((total / np.maximum(1, count))[:, active], count[:, active])

    while clients[0].left > 0:
        pulls = np.full(len(active), length if len(active) > 1 else clients[0].left)
        for m, client in enumerate(clients):
            order = generator(seed, "agent", str(m), "order", "train", phase).permutation(active)
            made, sums = client.pull_values(values[m][order], pulls)
            total[m, order] += sums
            count[m, order] += made
        if clients[0].left == 0:
            break
        found, phase = merged(), phase + 1
        radius = ucb.fed1_radius(found.count, 1, budget, noise_stddev)
        active = active[ucb.fed1_survivors(found.mean, radius)]
    best = int(active[np.argmax(np.where(merged().num_clients > 0, merged().mean, -np.inf))])
    own = np.where(count > 0, total / np.maximum(1, count), -np.inf).argmax(axis=1)
    chosen = np.where(count[:, best] > 0, best, own)
    simple = np.array([c.optimum - values[m][chosen[m]] for m, c in enumerate(clients)])
    return finish(clients, simple)


REFRESH = 100  # exchanges after which inverses are recomputed: rank-1 updates accumulate rounding errors


class NeuralClients:
    """State of FN-UCB, server and clients together [Dai2023].

    Attributes
    ----------
    weights, trained : `(P,)` and `(M, P)`, mean weights of the networks, and each client's own network
    v_inverse, response : `(M, P, P)` and `(M, P)`: `V^-1` and `sum r g` as known to client `m`
    own, own_inverse : `(M, P, P)`, `V_m` of the client's own pulls and its inverse
    counts, totals : `(M, K)`, number of pulls and sum of rewards, the training data of the client's network
    average_inverse : `(P, P)`, `mean_m(V_m^-1)` at the last exchange
    log_growth : `(M,)`, `log(det V / det V_last)` of each client
    last_exchange, rounds : pull of the last exchange, and number of exchanges
    """

    def __init__(
        self, arms: Array, num_clients: int, options: ucb.NeuralOptions, rng: np.random.Generator
    ) -> None:
        self.options = options
        self.features = ucb.neural_features(arms, options, rng)
        self.weights = self.features.start
        size = len(self.weights)
        self.trained = np.tile(self.weights, (num_clients, 1))
        self.own = np.tile(options.regulariser * np.eye(size), (num_clients, 1, 1))
        self.average_inverse = np.eye(size) / options.regulariser
        self.own_inverse, self.v_inverse = np.tile(self.average_inverse, (2, num_clients, 1, 1))
        self.response = np.zeros((num_clients, size))
        self.counts, self.totals = np.zeros((2, num_clients, len(arms)))
        self.log_growth = np.zeros(num_clients)
        self.last_exchange, self.rounds = -1, 0

    def choose(self, t: int) -> IntArray:
        """Return the arm of each client at pull `t`, `(M,)`."""
        alike = self.last_exchange == t - 1  # no pull since the exchange: all clients have the same data
        known = list(zip(self.v_inverse, self.response, strict=True))[: 1 if alike else None]
        shared = self.weights, self.average_inverse
        chosen = [ucb.neural_choose(self.features, t, *own, *shared) for own in known]
        return np.resize(np.array(chosen, dtype=np.int64), len(self.counts))

    def learn(self, t: int, chosen: IntArray, rewards: Array) -> None:
        """Record one pull of each client, and exchange if the criterion holds for one of them."""
        g = self.features.gradients[chosen]  # (M, P)
        _add_squares(self.own_inverse, g)
        self.own += g[:, :, np.newaxis] * g[:, np.newaxis, :]
        clients = np.arange(len(chosen))
        self.counts[clients, chosen] += 1
        self.totals[clients, chosen] += rewards
        self.log_growth += np.log(_gain(self.v_inverse, g)[1])  # matrix determinant lemma
        if ((t - self.last_exchange) * self.log_growth > self.options.threshold).any():
            self._exchange(t)
        else:
            _add_squares(self.v_inverse, g)
            self.response += rewards[:, np.newaxis] * g

    def _exchange(self, t: int) -> None:
        options, num_clients, size = self.options, len(self.counts), len(self.weights)
        shared = self.own.sum(axis=0) - (num_clients - 1) * options.regulariser * np.eye(size)
        self.v_inverse[:] = np.linalg.inv(shared)
        self.response[:] = self.totals.sum(axis=0) @ self.features.gradients
        if options.alpha(t + 1) > 0:
            if self.rounds % REFRESH == 0:
                self.own_inverse[:] = np.linalg.inv(self.own)
            self.average_inverse = self.own_inverse.mean(axis=0)
            if t < options.train_until:
                self.trained = ucb.neural_train(self.features, self.trained, self.counts, self.totals)
                self.weights = self.trained.mean(axis=0)
        self.log_growth[:] = 0.0
        self.last_exchange = t
        self.rounds += 1


def _gain(inverses: Array, g: Array) -> tuple[Array, Array]:
    """Return `V_m^-1 g_m`, `(M, P)`, and `1 + g_m^T V_m^-1 g_m`, `(M,)`."""
    projected = np.matmul(inverses, g[:, :, np.newaxis])[:, :, 0]
    return projected, 1.0 + np.einsum("mp,mp->m", projected, g)


def _add_squares(inverses: Array, g: Array) -> None:
    """Update `V_m^-1 (M, P, P)` in place to `(V_m + g_m g_m^T)^-1` by the Sherman-Morrison formula."""
    projected, gain = _gain(inverses, g)
    inverses -= (projected / gain[:, np.newaxis])[:, :, np.newaxis] * projected[:, np.newaxis, :]


def fn_ucb(surface: Surface, budget: int, seed: int, options: ucb.NeuralOptions | None = None) -> BanditRun:
    """Run FN-UCB: neural features, and networks that are averaged over the clients."""
    options = options or ucb.NeuralOptions()
    arms = ucb.random_arms(surface.dimension, np.random.default_rng([seed, 3]))
    clients = [Client(surface, m, budget, seed) for m in range(surface.num_agents)]
    values = np.array([surface.values(arms, m) for m in range(surface.num_agents)])
    state = NeuralClients(arms, len(clients), options, np.random.default_rng([seed, 4]))
    counts = np.zeros((len(clients), len(arms)), dtype=np.int64)
    for t in range(budget):
        chosen = state.choose(t)
        rewards = np.empty(len(clients))
        for m, client in enumerate(clients):
            rewards[m] = client.pull_values(values[m, chosen[m : m + 1]], np.ones(1, dtype=np.int64))[1][0]
            counts[m, chosen[m]] += 1
        state.learn(t, chosen, rewards)
    simple = np.array([c.optimum - values[m, np.argmax(counts[m])] for m, c in enumerate(clients)])
    return finish(clients, simple)


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
