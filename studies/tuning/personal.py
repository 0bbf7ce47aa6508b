"""Personal hyperparameters: each client tunes its own learning rate or epochs, in the rounds of the training.

Every client has an agent of its own, which proposes the client's values for the next round in which it
trains. What the agent observes is the client's loss after that training. The model is shared by all.

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

An agent's objective is a training round of its client, so a value is not known before `run_task` would need
it. The task is then left with `_Pending`, and run again from its beginning when the value is there: sessions
are pure, so they propose the same points again. The state is a function of what was asked and answered, in
order; `Personal` keeps that list and gives it to its agents again when a run is resumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from logging import INFO
from typing import Any

import numpy as np
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from fbo_flower.algorithms import records
from fbo_flower.algorithms.bandits.base import Bandit
from fbo_flower.algorithms.co_kg.co_kg import CoKG
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import AgentState, Array, Phase, Report, Task, Trials, natural_key
from fbo_flower.algorithms.registry import find
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.numerics.seeding import generator
from fbo_flower.space import Config, SearchSpace
from studies.tuning.per_client import PerClient

NUM_INITIAL = 2  # random values of a client, if the algorithm is given by its name: rounds are dear
LARGEST = 1e12  # of a reward, so that its square is a number
LENGTHSCALE, NOISE = 0.3, 0.1  # of `g`: per root of the dimension; its noise, relative to its variance
MAX_MISSED = 2  # answers in a row that may be missing before a point counts as a failed one


class _Pending(Exception):  # noqa: N818  # no error: the value of a point is not there yet
    """Its arguments are the trial and the point."""


@dataclass
class _Agent:
    """What is kept for a client."""

    state: AgentState  # of its agent, before the task
    task: Task | None = None  # that is open
    values: dict[int, float] = field(default_factory=dict)  # of the task's trials that are known, NaN: failed
    trial: int = -1
    point: Array | None = None  # that its client tries in the next round
    missed: int = 0  # answers in a row that did not come


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
        self, strategy: Strategy, space: SearchSpace, *, algorithm: str | Algorithm[Any] = "fed-ei",
        **others: Any,
    ) -> None:  # fmt: skip
        super().__init__(strategy, space, **others)
        self._algorithm = algorithm_of(algorithm)
        self.clients: list[str] = []
        # a row for every message: round, place in `clients`, loss; NaN: no answer
        self.answers: Array = np.empty((0, 3))
        self.applied: dict[str, list[float]] = {}  # node -> point of the round that is under way
        self._rng = partial(generator, self.seed, "personal")
        self._live = _Live()

    @property
    def best_configs(self) -> dict[str, Config]:
        """Client -> the configuration that it has tried with the least expected loss, if it has answered."""
        self._catch_up()
        return {client: self._space.decode(point) for client, point in self._live.best().items()}

    def choose(self, server_round: int, nodes: Sequence[str]) -> Sequence[Config]:
        """Return what each client's agent proposes."""
        self._catch_up()
        points = self._ask(server_round, nodes)
        self.applied = {node: points[node].tolist() for node in nodes}
        return [self._space.decode(points[node]) for node in nodes]

    def learn(self, server_round: int, nodes: Sequence[str], losses: Array, weights: Array) -> None:
        """Write the answers down and give them to the agents."""
        known = dict.fromkeys(self.applied, math.nan) | dict(zip(nodes, losses.tolist(), strict=True))
        self.clients += [node for node in known if node not in self.clients]
        rows = [(server_round, self.clients.index(node), loss) for node, loss in known.items()]
        self.answers = np.concatenate([self.answers, np.array(rows, dtype=np.float64)])
        self._tell(known, {node: np.array(point) for node, point in self.applied.items()})
        log(INFO, "[round %d] Personal: %d of %d clients have reported %s", server_round, len(nodes),
            len(rows), self.loss)  # fmt: skip

    def _catch_up(self) -> None:
        """After a resume, ask the agents and tell them all again."""
        if self._live.num_learned > len(self.answers):  # an earlier state was put back
            self._live = _Live()
        missing = self.answers[self._live.num_learned :].tolist()
        for server_round, rows in groupby(missing, key=lambda row: row[0]):
            losses = {self.clients[int(client)]: loss for _, client, loss in rows}
            self._tell(losses, self._ask(int(server_round), list(losses)))

    def _ask(self, number: int, clients: Sequence[str]) -> dict[str, Array]:
        """Return the point `(D,)` that each client tries in a round with this number."""
        live, size = self._live, self._space.dimension
        if live.server is None:
            federation = records.Federation(self._space, tuple(clients))
            live.server = self._algorithm.init(federation, self._rng("init"))
        for client in clients:
            if client not in live.agents:
                live.agents[client] = _Agent(AgentState(self._space, Trials.empty(size)))
        for _ in range(2):  # the first task may be an exchange without a trial, as in fed-ei
            idle = sorted((c for c in clients if live.agents[c].task is None), key=natural_key)
            if idle:
                rng = self._rng("ask", number)
                live.server, tasks = self._algorithm.ask(live.server, Phase.TRAIN, number, idle, rng)
                for client, task in tasks.items():
                    live.agents[client].task = task
                self._advance(client for client in idle if client in tasks)
        found = {}
        for client in clients:
            point = live.agents[client].point
            if point is None:  # its algorithm has nothing for it to try: it repeats its best point
                best = self._algorithm.best(live.agents[client].state, own=False)
                point = self._rng("nothing", client, number).random(size) if best is None else best.point
            found[client] = point
        return found

    def _tell(self, losses: Mapping[str, float], points: Mapping[str, Array]) -> None:
        """Learn what the clients of a round have reached; NaN: no answer."""
        rewards, answered = self._live.rewards(losses, points), []
        self._live.num_learned += len(losses)
        for client in sorted((c for c in rewards if self._live.agents[c].point is not None), key=natural_key):
            agent = self._live.agents[client]
            agent.missed = agent.missed + 1 if math.isnan(rewards[client]) else 0
            if agent.missed in (0, MAX_MISSED):
                agent.values[agent.trial] = rewards[client]
                agent.missed = 0
                answered.append(client)
        self._advance(answered)

    def _advance(self, clients: Iterable[str]) -> None:
        """Run the open tasks of clients until they need a value, and report those that are done."""
        reports: dict[str, Report] = {}
        for client in clients:
            agent, draws = self._live.agents[client], partial(self._rng, "agent", client)
            assert agent.task is not None
            evaluate = partial(self._evaluate, agent)
            try:
                result = run_task(self._algorithm, agent.task, agent.state, evaluate, draws)
            except _Pending as pending:
                agent.trial, agent.point = pending.args
            else:
                reports[client] = result.report
                self._live.agents[client] = _Agent(result.agent_state)
        if reports:
            replies = Replies(reports, self._algorithm.report_content)
            self._live.server = self._algorithm.tell(self._live.server, Phase.TRAIN, replies)

    def _evaluate(self, agent: _Agent, query: Trials, first: int) -> Trials:
        """Return the outcome of a query, or leave the task at its first point without a value."""
        points = self._space.snap(query.points)
        for number, point in enumerate(points, first):
            if number not in agent.values:
                raise _Pending(number, point)
        trials = np.arange(first, first + len(points), dtype=np.int64)
        values = np.array([agent.values[int(trial)] for trial in trials])
        return Trials(points, values, trials, np.where(np.isnan(values), "no answer", "").astype(object))


class _Live:
    """What follows from the answers, so that no checkpoint holds it: server, agents, levels of rounds."""

    def __init__(self) -> None:
        self.server: Any = None
        self.agents: dict[str, _Agent] = {}
        self.num_learned = 0  # answers that it knows
        self._known: dict[str, tuple[list[Array], list[float]]] = {}  # client -> points, loss over the level

    def rewards(self, losses: Mapping[str, float], points: Mapping[str, Array]) -> dict[str, float]:
        """Return the rewards of a round, and take it into account; NaN: no answer."""
        there = {client: loss for client, loss in losses.items() if not math.isnan(loss)}
        found = dict.fromkeys(losses, math.nan)
        if not there:
            return found
        known = [there[c] - self._expected(c, [points[c]])[0] for c in there if c in self._known]
        level = float(np.median(known or list(there.values())))
        for client, loss in there.items():
            over = min(max(loss - level, -LARGEST), LARGEST)
            found[client] = -over
            earlier, values = self._known.setdefault(client, ([], []))
            earlier.append(points[client])
            values.append(over)
        return found

    def best(self) -> dict[str, Array]:
        """Return the point that each client has tried with the least expected loss."""
        return {c: xs[int(np.argmin(self._expected(c, xs)))] for c, (xs, _) in self._known.items()}

    def _expected(self, client: str, at: Sequence[Array]) -> Array:
        points, values = self._known[client]
        mean, kernel = float(np.mean(values)), RBF(LENGTHSCALE * len(points[0]) ** 0.5)
        process = GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None)
        process.fit(np.array(points), np.array(values) - mean)
        return np.asarray(mean + process.predict(np.array(at)))


def algorithm_of(algorithm: str | Algorithm[Any]) -> Algorithm[Any]:
    """Return an algorithm without secure sums; ConfigError unless its agents go on alone."""
    if isinstance(algorithm, str):
        found = find(algorithm).load()
        short = "num_initial" in found.__dataclass_fields__ and not found.barrier
        algorithm = found.from_options({"num_initial": NUM_INITIAL} if short else {})
    if not isinstance(algorithm, Algorithm):
        raise ConfigError(f"algorithm: expected a name or an algorithm, got {kind_of(algorithm)}")
    why = algorithm.barrier
    if isinstance(algorithm, CoKG | Bandit):
        why = why or "it models one objective of all agents"
    elif algorithm.phases != (Phase.TRAIN,):
        why = why or "it has further half-rounds"
    if why:
        raise ConfigError(
            f"algorithm: expected one whose agents go on alone, such as fed-ei, fts or ei, got "
            f"{algorithm.name}: {why}"
        )
    if "secure_sums" in algorithm.__dataclass_fields__:
        return replace(algorithm, secure_sums=0)  # type: ignore[call-arg]  # an option of this algorithm
    return algorithm
