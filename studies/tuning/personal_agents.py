"""Both halves of an algorithm at the server: an agent for each client of an app that knows nothing of it.

An agent's objective is a training round of its client. So its evaluation is open from the message to the
reply, and is not known before `run_task` would need it. The task is then left with `_Pending`, and run again
from its beginning when the value is there: sessions are pure, so they propose the same points again. The
price is that a surrogate is fitted twice for each proposal.

The state is a function of what was asked and answered, in order. `Personal` keeps that list and gives it to
`PersonalAgents` again when a run is resumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fbo_flower.algorithms.bandits.base import Bandit
from fbo_flower.algorithms.co_kg.co_kg import CoKG
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import (
    AgentState,
    Array,
    Federation,
    Phase,
    Report,
    Task,
    Trials,
    natural_key,
)
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.space import SearchSpace

MAX_MISSED = 2  # answers in a row that may be missing before a point counts as a failed one


class _Pending(Exception):  # noqa: N818  # no error: the value of a point is not there yet
    def __init__(self, trial: int, point: Array) -> None:
        super().__init__(trial)
        self.trial, self.point = trial, point


@dataclass
class _Agent:
    """What is kept for a client.

    Attributes
    ----------
    state : its agent's, before the task
    task : that is open; None: it has none
    values : of the task's trials that are known, NaN: failed
    trial, point : what its client tries in the next round; None: nothing
    missed : answers in a row that did not come
    """

    state: AgentState
    task: Task | None = None
    values: dict[int, float] = field(default_factory=dict)
    trial: int = -1
    point: Array | None = None
    missed: int = 0


class PersonalAgents:
    """The agents of all clients, and the server that they share.

    Parameters
    ----------
    algorithm : without a barrier, so that each agent goes on when its client is sampled
    space : of the personal hyperparameters
    seed : of all draws

    Raises
    ------
    ConfigError
        If the algorithm cannot be run in this way.
    """

    def __init__(self, algorithm: Algorithm[Any], space: SearchSpace, seed: int) -> None:
        together = isinstance(algorithm, CoKG | Bandit)
        if algorithm.barrier or together or algorithm.phases != (Phase.TRAIN,):
            why = algorithm.barrier or (
                "it models one objective of all agents" if together else "it has further half-rounds"
            )
            raise ConfigError(
                f"algorithm: expected one whose agents go on alone, such as fed-ei, fts or ei, got "
                f"{algorithm.name}: {why}"
            )
        self._algorithm, self._space, self._seed = algorithm, space, seed
        self._server: Any = None
        self._agents: dict[str, _Agent] = {}

    def ask(self, number: int, clients: Sequence[str]) -> dict[str, Array]:
        """Return the point `(D,)` that each client tries in a round.

        Parameters
        ----------
        number : of the round, for the draws
        """
        rng = partial(generator, self._seed, "personal")
        if self._server is None:
            federation = Federation(self._space, tuple(clients))
            self._server = self._algorithm.init(federation, rng("init"))
        for client in clients:
            if client not in self._agents:
                history = Trials.empty(self._space.dimension)
                self._agents[client] = _Agent(AgentState(self._space, history))
        for _ in range(2):  # the first task may be an exchange without a trial, as in fed-ei
            idle = sorted((c for c in clients if self._agents[c].task is None), key=natural_key)
            if not idle:
                break
            self._server, tasks = self._algorithm.ask(
                self._server, Phase.TRAIN, number, idle, rng("ask", number)
            )
            for client, task in tasks.items():
                self._agents[client].task = task
            self._advance([client for client in idle if client in tasks])
        found = {}
        for client in clients:
            agent = self._agents[client]
            if agent.point is None:  # its algorithm has nothing for it to try: it repeats its best point
                best = self._algorithm.best(agent.state, own=False)
                draw = rng("nothing", client, number).random(self._space.dimension)
                found[client] = draw if best is None else best.point
            else:
                found[client] = agent.point
        return found

    def tell(self, values: Mapping[str, float]) -> None:
        """Learn what the clients of a round have reached; NaN: no answer."""
        answered = []
        for client in sorted(values, key=natural_key):
            agent = self._agents[client]
            if agent.point is None:
                continue
            agent.missed = agent.missed + 1 if math.isnan(values[client]) else 0
            if agent.missed in range(1, MAX_MISSED):
                continue
            agent.values[agent.trial] = values[client]
            agent.missed = 0
            answered.append(client)
        self._advance(answered)

    def _advance(self, clients: Sequence[str]) -> None:
        """Run the open tasks of clients until they need a value, and report those that are done."""
        reports: dict[str, Report] = {}
        for client in clients:
            agent = self._agents[client]
            assert agent.task is not None
            evaluate = partial(self._evaluate, agent)
            draws = partial(self._draws, client)
            try:
                result = run_task(self._algorithm, agent.task, agent.state, evaluate, draws)
            except _Pending as pending:
                agent.trial, agent.point = pending.trial, pending.point
                continue
            reports[client] = result.report
            self._agents[client] = _Agent(result.agent_state)
        if reports:
            self._server = self._algorithm.tell(self._server, Phase.TRAIN, Replies(reports))

    def _draws(self, client: str, purpose: str, *keys: int) -> np.random.Generator:
        return generator(self._seed, "personal", "agent", client, purpose, *keys)

    def _evaluate(self, agent: _Agent, query: Trials, first: int) -> Trials:
        """Return the outcome of a query, or leave the task at its first point without a value."""
        if query.pulls is not None or query.artifact is not None:
            raise ConfigError(
                f"algorithm: expected one that tries single points, such as fed-ei, fts or ei, got "
                f"{self._algorithm.name}"
            )
        points = self._space.snap(query.points)
        for number, point in enumerate(points):
            if first + number not in agent.values:
                raise _Pending(first + number, point)
        trials = np.arange(first, first + len(points), dtype=np.int64)
        values = np.array([agent.values[int(trial)] for trial in trials])
        failures = np.where(np.isnan(values), "no answer", "").astype(object)
        return Trials(points, values, trials, failures)
