"""The harness of all attacks: what a server heard, the truth, and an attacker's errors beside a guess's.

An attack says who overhears what, what the attacker concludes from it, and what a guess without messages is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import AnyArray
from fbo_flower.clients import client_app
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import InProcessGrid
from fbo_flower.simulation.problems import Problem, make_problem
from fbo_flower.strategies import TuningStrategy
from fbo_flower.study import Study

SQUARE = "side of the square"
UNITS = "s.d. of the agent's values"
NUM_AGENTS = 4


@dataclass(frozen=True)
class AttackResult:
    """How well an attack recovers one kind of secret, compared with a guess.

    Parameters
    ----------
    secret : what the agent keeps to itself, and the protection in use
    error, guess, unit : the attacker's error, that of a guess that uses no report, and the unit of both
    count : number of secrets that the attacker tried to recover
    how : how the guess is made
    """

    secret: str
    error: float
    guess: float
    unit: str
    count: int
    how: str


def compared(secret: str, errors: Any, guesses: Any, unit: str, how: str) -> AttackResult:
    """Return an attack's errors beside those of guesses, both as root mean squares."""
    return AttackResult(secret, rms(errors), rms(guesses), unit, int(np.size(errors)), how)


def beside(secret: str, pairs: Sequence[tuple[float, float]], unit: str, how: str) -> AttackResult:
    """Return the same of pairs: the attacker's error and that of a guess."""
    errors, guesses = zip(*pairs, strict=True)
    return compared(secret, errors, guesses, unit, how)


# -- what a server hears ---------------------------------------------------------------------------


class Overheard(NamedTuple):
    """One task or report as the server sees it."""

    agent: str
    round: int
    arrays: Mapping[str, AnyArray]
    values: Mapping[str, Any]


class Kept(NamedTuple):
    """What a server was told at once: the round, the replies, and its state before and after them."""

    round: int
    replies: Replies
    before: Any
    after: Any


@dataclass
class Heard:
    """What a server heard in a study, whose trials are the truth and no evidence; `draws` are a guesser's."""

    problem: Problem
    study: Study
    options: Mapping[str, Any]
    kept: list[Kept]
    tasks: list[Overheard]
    draws: np.random.Generator

    @property
    def agents(self) -> list[str]:
        """Return the agents' names."""
        return [str(agent) for agent in range(self.problem.num_agents)]

    @property
    def spread(self) -> float:
        """Return the standard deviation of all values."""
        return float(np.std(np.asarray(self.study.trials["value"], dtype=np.float64)))

    def sent(self, name: str, agent: str | None = None) -> list[Overheard]:
        """Return the reports that hold an array of this name, of all agents or of one."""
        told = ((one.round, a, r) for one in self.kept for a, r in one.replies.items())
        return [
            Overheard(a, k, r.arrays, r.values) for k, a, r in told if name in r.arrays and agent in {None, a}
        ]

    def told(self, name: str, agent: str | None = None) -> list[Overheard]:
        """Return the tasks that hold an array of this name, to all agents or to one."""
        return [o for o in self.tasks if name in o.arrays and agent in {None, o.agent}]

    def evaluated(self, agent: str) -> tuple[Array, Array, Array]:
        """Return an agent's points `(n, D)` in the unit cube, its values and the rounds `(n,)`."""
        rows, space = self.study.trials.where(agent=agent), self.problem.space
        points = np.array([space.encode(config) for config in rows["config"]])
        values = np.asarray(rows["value"], dtype=np.float64)
        return points, values, np.asarray(rows["round"], dtype=np.int64)

    def misses(self, found: Array, truth: Array) -> tuple[float, float]:
        """Return the distances of a point that was found, and of a uniform one, from the true one."""
        uniform = self.draws.random(len(truth))
        return float(np.linalg.norm(found - truth)), float(np.linalg.norm(uniform - truth))


def overhear(
    problem: str | Problem,
    kind: type[Algorithm[Any]],
    num_rounds: int | None,
    seed: int,
    *,
    num_agents: int = NUM_AGENTS,
    server_seed: int | None = -1,
    start: Mapping[str, Any] | None = None,
    **options: Any,
) -> Heard:
    """Run a study whose agents disclose their trials, as the truth; return it and what the server heard.

    Parameters
    ----------
    server_seed : -1: that of the agents; None: the server has none
    start : further arguments of the server's start
    """
    tasks: list[Overheard] = []
    kept: list[Kept] = []

    @dataclass(frozen=True, kw_only=True)
    class Curious(kind):  # type: ignore[misc, valid-type]  # mypy wants a class that it knows
        def ask(self, state: Any, phase: Any, server_round: int, *rest: Any) -> Any:
            after, asked = super().ask(state, phase, server_round, *rest)
            tasks.extend(Overheard(agent, t.round, t.arrays, t.values) for agent, t in asked.items())
            rounds.append(server_round)
            return after, asked

        def tell(self, state: Any, phase: Any, replies: Replies) -> Any:
            after = super().tell(state, phase, replies)
            kept.append(Kept(rounds[-1], replies, state, after))
            return after

    class Server(TuningStrategy):
        algorithm_class = Curious

    rounds: list[int] = []
    if isinstance(problem, str):
        problem = make_problem(problem, num_agents, seed, {})
    made = Server(num_agents=problem.num_agents, seed=seed if server_seed == -1 else server_seed, **options)
    grid = InProcessGrid(client_app(problem, problem.space, seed=seed, disclose="trials"), problem.num_agents)
    study = made.start(grid, num_rounds=num_rounds, **(start or {})).study
    return Heard(problem, study, made.algorithm.options(), kept, tasks, np.random.default_rng(seed))


# -- arithmetic ------------------------------------------------------------------------------------


def lowest(values: Array) -> Any:
    """Return where values on a grid `(n, n)` are lower than around: `(n, n)` booleans."""
    far = np.pad(values, 1, constant_values=np.inf)
    around = np.stack([np.roll(far, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)])
    return (far == around.min(axis=0))[1:-1, 1:-1]


def mesh(side: int) -> Array:
    """Return a grid `(side, side, 2)` of the unit square."""
    return np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, side)] * 2, indexing="ij"), axis=-1)


def rms(error: Sequence[float] | Array) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(error))))
