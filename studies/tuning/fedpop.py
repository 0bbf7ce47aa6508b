"""FedPop: a population of the clients' configurations evolves while the model trains [Chen2025, FedPop-L].

`FedPop` has `num_configs` configurations, all near a common base. In each round every client trains with one
of them. After every `every` rounds the worst ones become changed copies of the best. The model is shared by
all, so one training run tunes.

    strategy = FedPop(FedAvg(), space, center={"learning-rate": 0.1, "local-epochs": 2}, loss="val-loss")
    strategy.start(grid, arrays, num_rounds=50)
    strategy.best_config

FedPop-G evolves whole federations, with their servers' settings and models: it is the schedule `Population`
of `tune_federation`. With a `FedPop` for each trial it is the paper's FedPop. `docs/papers/fedpop.md` says
what follows the paper and what we chose.

[Chen2025] Chen, Krompass, Gu, Tresp. FedPop: federated population-based hyperparameter tuning. AAAI 2025.
"""

from __future__ import annotations

from collections.abc import Sequence
from logging import INFO
from typing import Any

import numpy as np
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy

from fbo_flower.algorithms import check_integer, check_number
from fbo_flower.algorithms.records import natural_key
from fbo_flower.federated import cooled, exploit, perturbed
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.space import Config, SearchSpace
from studies.tuning.per_client import PerClient


class FedPop(PerClient):
    """An evolving population of configurations of the clients; `PerClient` describes the other settings.

    Parameters
    ----------
    center : the base of the population; None: drawn from the space
    num_configs : `K`, configurations in the population; best the number of clients in a round
    width : largest step of a change, in the unit cube of the space
    every : `T_l`, rounds between two steps of evolution
    quantile : share of the worst configurations, which copy as large a share of the best
    resample : probability that a copy is made of the base instead, so that the population keeps its breadth
    discount : of a loss that is one round older, in a configuration's score
    num_rounds : rounds over which `width` falls to 0 as a cosine does, after which nothing changes; None: it
        stays
    """

    def __init__(
        self, strategy: Strategy, space: SearchSpace, *, center: Config | None = None, num_configs: int = 10,
        width: float = 0.1, every: int = 5, quantile: float = 0.3, resample: float = 0.1,
        discount: float = 0.9, num_rounds: int | None = None, **others: Any,
    ) -> None:  # fmt: skip
        super().__init__(strategy, space, **others)
        least = {"num_configs": num_configs, "every": every, "num_rounds": num_rounds}
        for name, number in least.items():
            if number is not None:
                check_integer(name, number, 1)
        check_number("quantile", quantile, 0.0, 0.5)
        for name, value in {"width": width, "resample": resample, "discount": discount}.items():
            check_number(name, value, 0.0, 1.0)
        self.width, self.every, self.quantile, self.resample = width, every, quantile, resample
        self.discount, self.num_rounds = discount, num_rounds
        rng = generator(self.seed, "fedpop", "configs")
        drawn = space.snap(rng.random((1, space.dimension)))[0]
        base = drawn if center is None else space.encode(center)
        points = np.array([perturbed(space, base, width, rng) for _ in range(num_configs)])
        points[0] = base
        # one value, so that a copy with another base begins with a population of its own: "sums" are of
        # discounted losses since the last step of evolution, "next" is the configuration for the next client
        self.population: dict[str, Any] = {"base": base, "points": points, "best": 0, "rounds": 0, "next": 0}
        self.population |= {"sums": np.zeros(num_configs), "weights": np.zeros(num_configs)}
        self.applied: dict[str, int] = {}  # node -> configuration of the round that is under way

    @property
    def configs(self) -> list[Config]:
        """The population."""
        return [self._space.decode(point) for point in self.population["points"]]

    @property
    def best_config(self) -> Config:
        """The configuration with the best score at the last step of evolution; before it, the base."""
        return self._space.decode(self.population["points"][self.population["best"]])

    def choose(self, server_round: int, nodes: Sequence[str]) -> Sequence[Config]:
        """Return one configuration after the other, from where the last round ended."""
        size, first = len(self.population["points"]), int(self.population["next"])
        order = generator(self.seed, "fedpop", "order", server_round).permutation(len(nodes))
        names = sorted(nodes, key=natural_key)  # strategies list their clients in an order of chance
        self.applied = {names[i]: (first + int(place)) % size for i, place in enumerate(order)}
        self.population = {**self.population, "next": (first + len(nodes)) % size}
        return [self._space.decode(self.population["points"][self.applied[node]]) for node in nodes]

    def learn(self, server_round: int, nodes: Sequence[str], losses: Array, weights: Array) -> None:
        """Add the losses to the scores, and let the population evolve when it is time."""
        now = dict(self.population)
        size = len(now["points"])
        chosen = np.array([self.applied[node] for node in nodes], dtype=np.int64)
        counts = np.bincount(chosen, minlength=size)
        totals = np.bincount(chosen, losses, minlength=size)
        now["sums"] = self.discount * now["sums"] + totals / np.maximum(counts, 1)
        now["weights"] = self.discount * now["weights"] + (counts > 0)
        now["rounds"] += 1
        if now["rounds"] % self.every == 0:  # the worst become changed copies of the best
            with np.errstate(invalid="ignore"):  # NaN: not tried since the last step
                scores = now["sums"] / now["weights"]
            width, number = self.width, now["rounds"]
            if self.num_rounds is not None:
                width = cooled(width, number, self.num_rounds)
            rng = generator(self.seed, "fedpop", "evolve", number)
            points = now["points"].copy()
            for worst, best in exploit(scores, self.quantile, rng).items() if width > 0.0 else ():
                origin = now["base"] if rng.random() < self.resample else now["points"][best]
                points[worst] = perturbed(self._space, origin, width, rng)
            now |= {"points": points, "best": int(np.nanargmin(scores))}
            now |= {"sums": np.zeros(size), "weights": np.zeros(size)}
            log(INFO, "[round %d] FedPop: best %s", number, self._space.decode(points[now["best"]]))
        self.population = now
