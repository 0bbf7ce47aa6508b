"""Personal hyperparameters: each client tunes its own learning rate or epochs, in the rounds of the training.

`Personal` stands around any strategy of Flower's message API. Every client has an agent of its own, which
proposes the client's values for the next round in which it trains; the values go into the `config` record of
its training message. What the agent observes is the client's loss on held-out rows after that training, which
the client reports in the metrics of `@app.train()`. The model is shared by all, as it is without `Personal`.

    strategy = Personal(FedAvg(), SearchSpace({"local-epochs": Int(1, 8)}), algorithm="fed-ei")
    strategy.start(grid, arrays, num_rounds=50)
    strategy.best_configs

A loss falls from round to round whatever the values are, so an agent's reward is relative to the level `b_t`
of the round,

    reward = b_t - loss_it,      b_t = median over the round's known clients of (loss_it - g_i(x_it)).

`g_i(x)` is what client `i` is expected to have over the level at its point `x`, from its own earlier rounds:
the posterior mean of a Gaussian process with a constant mean. Without it, the level would fall as all clients
tune, and the first rounds would look like the best ones. A client that has not been seen before does not
count in `b_t`, unless all are new; then `g = 0`. The median makes a false loss cost its own client: it moves
the others' level to a neighbouring client's at most. At least three clients should train in a round: the
level of a single one is its own loss.

The agents run at the server, because the clients are to stay as they are. Their observations are metrics that
Flower's clients send in the clear anyway. Clients that hide their metrics need `ClientApp`s with an agent.

An agent's objective is a training round of its client. So its evaluation is open from the message to the
reply, and is not known before `run_task` would need it. The task is then left with `_Pending`, and run again
from its beginning when the value is there: sessions are pure, so they propose the same points again. The
price is that a surrogate is fitted twice for each proposal. The state is a function of what was asked and
answered, in order; `Personal` keeps that list and gives it to `PersonalAgents` again when a run is resumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from logging import INFO
from typing import Any

import numpy as np
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy

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
from fbo_flower.algorithms.registry import find
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.federated import Bounds
from fbo_flower.numerics.seeding import generator
from fbo_flower.space import Config, SearchSpace
from studies.tuning.per_client import PerClient

NUM_INITIAL = 2  # random values of a client, if the algorithm is given by its name: rounds are dear
LARGEST = 1e12  # of a reward, so that its square is a number
LENGTHSCALE, NOISE = 0.3, 0.1  # of `g`: per root of the dimension; its noise, relative to its variance
MAX_MISSED = 2  # answers in a row that may be missing before a point counts as a failed one


class Personal(PerClient):
    """A configuration of its own for each client, tuned by an algorithm in the rounds of the training.

    `PerClient` describes the other settings.

    Parameters
    ----------
    algorithm : "fed-ei", "fts", "ei", "ts", "random" or another whose agents go on alone; or an algorithm
        with options. By its name it begins with two random values for each client. `secure_sums` is 0,
        because its agents run at the server
    """

    def __init__(
        self,
        strategy: Strategy,
        space: SearchSpace,
        *,
        algorithm: str | Algorithm[Any] = "fed-ei",
        loss: str = "val-loss",
        maximize: bool = False,
        bounds: Bounds | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(strategy, space, loss, maximize, bounds, seed)
        self._algorithm = algorithm_of(algorithm)
        self.clients: list[str] = []
        # a row for every message: round, place in `clients`, loss; NaN: no answer
        self.answers: Array = np.empty((0, 3))
        self.applied: dict[str, list[float]] = {}  # node -> point of the round that is under way
        self._live = self._begin()

    @property
    def best_configs(self) -> dict[str, Config]:
        """Client -> the configuration that it has tried with the least expected loss, if it has answered."""
        self._up_to_date()
        return {client: self._space.decode(point) for client, point in self._live.levels.best().items()}

    def choose(self, server_round: int, nodes: Sequence[str]) -> Sequence[Config]:
        """Return what each client's agent proposes."""
        points = self._up_to_date().ask(server_round, nodes)
        self.applied = {node: points[node].tolist() for node in nodes}
        return [self._space.decode(points[node]) for node in nodes]

    def learn(self, server_round: int, nodes: Sequence[str], losses: Array, weights: Array) -> None:
        """Write the answers down and give them to the agents."""
        known = dict(zip(nodes, losses, strict=True))
        self.clients += [node for node in self.applied if node not in self.clients]
        places = {client: place for place, client in enumerate(self.clients)}
        rows = [(server_round, places[node], known.get(node, math.nan)) for node in self.applied]
        self.answers = np.concatenate([self.answers, np.array(rows, dtype=np.float64).reshape(-1, 3)])
        points = {node: np.array(point) for node, point in self.applied.items()}
        self._live.tell({node: known.get(node, math.nan) for node in self.applied}, points)
        if nodes:
            log(INFO, "[round %d] Personal: %d of %d clients have reported %s", server_round, len(nodes),
                len(rows), self.loss)  # fmt: skip

    def summary(self) -> None:
        """Log the settings."""
        names = ", ".join(self._space.names)
        log(INFO, "\t├──> Personal %s by %s, rewarded by %r", names, self._algorithm.name, self.loss)
        super().summary()

    def _begin(self) -> _Live:
        return _Live(PersonalAgents(self._algorithm, self._space, self.seed), _Levels())

    def _up_to_date(self) -> PersonalAgents:
        """Return the agents; after a resume they are asked and told all again."""
        if self._live.num_learned > len(self.answers):  # an earlier state was put back
            self._live = self._begin()
        for server_round, losses in self._rounds(self._live.num_learned):
            points = self._live.agents.ask(server_round, list(losses))
            self._live.tell(losses, points)
        return self._live.agents

    def _rounds(self, first: int) -> list[tuple[int, dict[str, float]]]:
        """Return rounds and their losses by client, from a row of `answers` on."""
        rows = [(int(r), self.clients[int(c)], float(loss)) for r, c, loss in self.answers[first:]]
        return [(r, {c: loss for _, c, loss in group}) for r, group in groupby(rows, key=lambda row: row[0])]


class _Levels:
    """The levels of rounds, see the head of this file."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[list[Array], list[float]]] = {}  # client -> points, loss over the level

    def rewards(self, losses: Mapping[str, float], points: Mapping[str, Array]) -> dict[str, float]:
        """Return the rewards of a round, and take it into account; NaN: no answer."""
        there = {client: loss for client, loss in losses.items() if not math.isnan(loss)}
        found = dict.fromkeys(losses, math.nan)
        if not there:
            return found
        known = {c: self._expected(c, points[c][None])[0] for c in there if c in self._known}
        level = float(np.median([there[c] - known[c] for c in known] or list(there.values())))
        for client, loss in there.items():
            over = min(max(loss - level, -LARGEST), LARGEST)
            found[client] = -over
            earlier, values = self._known.setdefault(client, ([], []))
            earlier.append(points[client])
            values.append(over)
        return found

    def best(self) -> dict[str, Array]:
        """Return the point that each client has tried with the least expected loss."""
        found = {}
        for client, (points, _) in self._known.items():
            found[client] = points[int(np.argmin(self._expected(client, np.array(points))))]
        return found

    def _expected(self, client: str, at: Array) -> Array:
        points, values = self._known[client]
        return expected(np.array(points), np.array(values), at)


def expected(points: Array, values: Array, at: Array) -> Array:
    """Return the posterior mean `(m,)` of a process with a squared exponential kernel about the mean value.

    Parameters
    ----------
    points, values : `(n, D)` and `(n,)`, observations
    at : `(m, D)`
    """

    def kernel(x: Array, y: Array) -> Array:
        scale = 2.0 * LENGTHSCALE**2 * points.shape[1]
        return np.asarray(np.exp(-((x[:, None] - y[None]) ** 2).sum(axis=2) / scale))

    mean = values.mean()
    weights = np.linalg.solve(kernel(points, points) + NOISE * np.eye(len(values)), values - mean)
    return np.asarray(mean + kernel(at, points) @ weights)


@dataclass
class _Live:
    """What follows from the answers, and is made anew after a resume.

    Attributes
    ----------
    num_learned : answers that it knows
    """

    agents: PersonalAgents
    levels: _Levels
    num_learned: int = 0

    def tell(self, losses: Mapping[str, float], points: Mapping[str, Array]) -> None:
        self.agents.tell(self.levels.rewards(losses, points))
        self.num_learned += len(losses)


def algorithm_of(algorithm: str | Algorithm[Any]) -> Algorithm[Any]:
    """Return an algorithm by name or as it is, without secure sums; ConfigError if there is none."""
    if isinstance(algorithm, str):
        found = find(algorithm).load()
        short = "num_initial" in found.__dataclass_fields__ and not found.barrier
        options = {"num_initial": NUM_INITIAL} if short else {}
        algorithm = found.from_options(options)
    if not isinstance(algorithm, Algorithm):
        raise ConfigError(f"algorithm: expected a name or an algorithm, got {kind_of(algorithm)}")
    if "secure_sums" in algorithm.__dataclass_fields__:
        return replace(algorithm, secure_sums=0)  # type: ignore[call-arg]  # an option of this algorithm
    return algorithm


# -- the agents ------------------------------------------------------------


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
            replies = Replies(reports, self._algorithm.report_content)
            self._server = self._algorithm.tell(self._server, Phase.TRAIN, replies)

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
