"""A lying server of `fed-ei` that wants limits and values which operators keep to themselves.

It makes up a pool, a ladder: rows that differ in size, of which each larger one is better and needs more
time. An agent repeats the best rung that holds its limit, so the rung tells the limit; or, if the limit is
known and the time is kept, how fast the agent is. Repeats enter no sum. Later trials search on the ladder,
and their rows are read: the server is even told whose each is.

The guess uses the rows of an honest server in the same way: agents search near their limits there, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fbo_flower.algorithms import FedEI
from fbo_flower.algorithms.aims import Aims
from fbo_flower.algorithms.records import Array
from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.surrogates import trend
from fbo_flower.simulation.problems import Config, Problem
from fbo_flower.space import Float, SearchSpace
from studies.attacks.fed_ei_server import HONEST, SAME, SHARING, HostileServer, Repeating
from studies.attacks.harness import AttackResult

NUM_AGENTS, NUM_RUNGS, NUM_SEARCHES = 12, 60, 3
NAMES = ("gain", "time")
FASTEST, SLOWEST = 5.0, 35.0  # times of the smallest and the largest size, at an ordinary one
SECRETS = ("limit", "private output")


@dataclass(frozen=True, kw_only=True)
class Sized(Problem):
    """Models with a size: each agent has a best one of its own, and a pace or a limit of its own."""

    name: ClassVar[str] = "sized"
    metric: ClassVar[str] = "gain"
    default_agents: ClassVar[int] = NUM_AGENTS

    @property
    def space(self) -> SearchSpace:
        """Three numbers, of which the first is the size."""
        return SearchSpace({name: Float(0.0, 1.0) for name in ("size", "a", "b")})

    def best(self, partition: int) -> Array:
        """Return where an agent's gain is largest."""
        return np.random.default_rng([self.seed, partition]).random(3)

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        """Return minus the squared distance from the agent's best point."""
        return self.true_value(config, context.partition)

    def true_value(self, config: Config, partition: int) -> float:
        """Return the value, which has no noise."""
        return -float(np.square(self.space.encode(config) - self.best(partition)).sum())


class Measuring(HostileServer):
    """A server whose agents measure gain and time, each at a pace of its own."""

    slowness: Array = np.ones(NUM_AGENTS)

    def level(self) -> Array:
        """Return sums of moments of the outputs in rows, as agents tell them."""
        if self.honest.num_values == 1:
            return super().level()
        rng, level = np.random.default_rng(self.seed), np.zeros(trend.NUM_SUMS)
        for partition, points in enumerate(self.points.values()):
            level = level + trend.level_sums(-self.time(partition, np.array(points[:2])), rng)
        return np.concatenate([super().level(), level])

    def time(self, partition: int, points: Array) -> Array:
        """Return an agent's times at points."""
        return np.asarray(self.slowness[partition] * (FASTEST + (SLOWEST - FASTEST) * points[..., 0]))

    def _objective(self, config: Config, context: ObjectiveContext) -> Any:
        gain = float(super()._objective(config, context))
        return {"gain": gain, "time": float(self.time(context.partition, self.problem.space.encode(config)))}


def attack(seed: int) -> Iterator[AttackResult]:
    """Guess limits and paces from rows of a made-up ladder, and from those of honest sums."""
    for secret in SECRETS:
        for honest in (HONEST, Repeating(secure_sums=HONEST.secure_sums)):
            lying, fair = (seen(seed, secret, honest, lies) for lies in (True, False))
            control = "" if honest is HONEST else " (control: Repeating)"
            yield AttackResult(
                f"fed-ei, a made-up ladder{control}: {secret}, from rows whose owners are known", lying, fair,
                "correlation", NUM_AGENTS, "the same from rows of honest sums",
            )  # fmt: skip


def seen(seed: int, secret: str, honest: FedEI, lies: bool) -> float:
    """Return the correlation of agents' limits, or of the logarithms of their speeds, with the guess.

    The guess is the mean size of an agent's rows: with the control those of repeats, else of searches.
    """
    rng = np.random.default_rng([seed, 60])
    if secret == SECRETS[0]:
        secrets = rng.uniform(10.0, 30.0, NUM_AGENTS)
        settings: list[Mapping[str, str]] = [{"limits": f"time <= {bound:.9f}"} for bound in secrets]
        names: tuple[str, ...] = NAMES
        slowness = np.ones(NUM_AGENTS)
    else:
        secrets = rng.uniform(-0.6, 0.6, NUM_AGENTS)
        settings = [{"private": "time"}] * NUM_AGENTS
        names, slowness = NAMES[:1], np.exp(-secrets)
    made = type("Made", (Measuring,), {"slowness": slowness})
    server: HostileServer = made(
        Sized(num_agents=NUM_AGENTS, seed=seed), seed, replace(honest, shared_outputs=names),
        aims=Aims.of(False, {"gain": "max"}, {"time": 20.0}), settings=settings,
    )  # fmt: skip
    first = server.add_up(server.tasks(replace(SHARING, level=server.level()), num_trials=0))
    assert first is not None
    told, rows = server.pool(first.rows), list[Array]()
    if lies:
        size = np.linspace(0.0, 1.0, NUM_RUNGS)
        columns = [size, *rng.random((2, NUM_RUNGS)), 3.0 * size, *(3.0 - 6.0 * size for _ in names[1:])]
        told = server.pool(np.column_stack(columns))
    repeats = type(honest) is not FedEI
    tasks = server.tasks(told)
    total = server.add_up(tasks) if repeats else None
    for task in () if repeats else tasks:
        server.send(task, replace(tasks[task], values={**tasks[task].values, "slots": 0}))
    rows += [] if total is None else list(total.rows)
    for _ in range(0 if repeats else NUM_SEARCHES):
        total = server.add_up(server.tasks(told))
        rows += [] if total is None else list(total.rows)
        if not lies:
            told = server.pool(np.concatenate([first.rows, rows]))
    sizes = [[row[0] for row in rows if server.has_made(agent, row)] for agent in server.points]
    known = np.array([bool(found) for found in sizes])
    means = np.array([np.mean(found) if found else np.nan for found in sizes])
    if known.sum() < 3 or not np.ptp(means[known]) > SAME:
        return 0.0
    return float(np.corrcoef(secrets[known], means[known])[0, 1])
