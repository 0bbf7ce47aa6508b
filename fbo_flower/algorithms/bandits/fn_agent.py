"""FN-UCB on the agent: its own pulls, the sums of the other agents, and its network.

`G (K, P)` are the network's gradients at the initial weights, the same for all agents. With `n (K,)` own
pulls and `s (K,)` their sums of values, the agent's matrices are `lam I + G^T diag(n) G` and `G^T s`. The
other agents' matrices arrive as sums and do not change until the next exchange.

A failed pull of an arm without a success counts as 0, the worst reward of the paper, or as the agent's worst
mean if that is lower; once the arm has a success, its failed pulls are missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from fbo_flower.algorithms.bandits import arms
from fbo_flower.algorithms.bandits.base import Evaluations
from fbo_flower.algorithms.messages import Content, real
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Outcome, Query, Task, floats
from fbo_flower.algorithms.session import Session
from fbo_flower.errors import WireError
from fbo_flower.numerics.bandits import ucb
from fbo_flower.space.space import SearchSpace


def _row(algorithm: Any, space: SearchSpace) -> int:
    """Return `P`."""
    return num_weights(algorithm.neural_options(), space.dimension)


def _upper(algorithm: Any, space: SearchSpace) -> int:
    """Return the number of entries in the upper triangle of a matrix `(P, P)`."""
    size = _row(algorithm, space)
    return size * (size + 1) // 2


@dataclass(frozen=True, kw_only=True)
class Others(Content):
    """A task: the seed of arms and initial weights; after an exchange what the others sent.

    Sums of `g g^T` (a triangle) and `r g` over the other agents; once the network's bound has weight, also
    the mean of all `V_m^-1` and of all weights.
    """

    arms_seed: int = -1
    exchange: int = 0
    send: bool = False  # whether the agent is asked for its sums
    others_gram: Annotated[Array | None, real(_upper)] = None
    others_response: Annotated[Array | None, real(_row)] = None
    others_inverse: Annotated[Array | None, real(_upper)] = None
    others_weights: Annotated[Array | None, real(_row)] = None


@dataclass(frozen=True, kw_only=True)
class Sums(Evaluations):
    """A report at an exchange: the agent's own sums, and its network's weights while it is trained."""

    gram: Annotated[Array | None, real(_upper)] = None
    response: Annotated[Array | None, real(_row)] = None
    weights: Annotated[Array | None, real(_row)] = None


def num_weights(options: ucb.NeuralOptions, dim: int) -> int:
    """Return `P`, the number of weights of the network."""
    return options.width * (dim + 2) + 1


def triangle(matrix: Array) -> Array:
    """Return the upper triangle of a symmetric matrix `(P, P)`, `(P (P + 1) / 2,)`."""
    return np.asarray(matrix[np.triu_indices(len(matrix))], dtype=np.float64)


def symmetric(upper: AnyArray, size: int) -> Array:
    """Return the symmetric matrix `(P, P)` with a given upper triangle."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = upper
    return np.asarray(matrix + np.triu(matrix, 1).T, dtype=np.float64)


def with_failures(agent_state: AgentState) -> arms.ArmStatistics:
    """Return the pulls that the bandit counts: all with a value, and the failed ones of arms without one."""
    statistics = arms.ArmStatistics.read(agent_state)
    failed = np.asarray(agent_state.arrays.get("arms.failed", 0), dtype=np.int64)
    if not failed.any():
        return statistics
    worst = float(statistics.means().min())  # 0 for arms without a success
    with np.errstate(over="ignore"):
        return arms.ArmStatistics(statistics.count + failed, statistics.total + failed * worst)


def sums(gradients: Array, statistics: arms.ArmStatistics) -> tuple[Array, Array]:
    """Return `G^T diag(n) G (P, P)` and `G^T s (P,)` of the agent's own pulls."""
    return gradients.T @ (statistics.count[:, np.newaxis] * gradients), gradients.T @ statistics.total


def session(task: Task, agent_state: AgentState, options: ucb.NeuralOptions) -> Session:
    """Make the task's pulls, then train the network if an exchange is due."""
    agent = NeuralAgent(task, agent_state, options)
    while (query := agent.choose()) is not None:
        agent.learn((yield query))
    return agent.state_to_keep()


class NeuralAgent:
    """An agent's matrices, pulls and network within one task."""

    def __init__(self, task: Task, agent_state: AgentState, options: ucb.NeuralOptions) -> None:
        self._task, self._options = task, options
        seed, dim = arms.checked_seed(Others.of(task).arms_seed), agent_state.space.dimension
        self._points = arms.points(seed, dim)
        self._state = ucb.neural_start(self._points, 1, options, np.random.default_rng([seed, 4]))
        self._size = num_weights(options, dim)
        self._eye = options.regulariser * np.eye(self._size)
        self._agent_state = agent_state.write(seed=np.array([seed], dtype=np.int64))
        self._take_in_sums()
        self._arm = -1
        self._send = bool(self._whole("send", 0)) or Others.of(task).send

    def choose(self) -> Query | None:
        """Return the arm with the largest upper confidence bound; None when the task is done."""
        left = self._task.end - self._agent_state.next_trial
        if left <= 0:
            return None
        state, arrays = self._state, self._agent_state.arrays
        gram, response = self._matrices()
        state.v_inverse[0], state.response[0] = np.linalg.inv(gram), response
        if "others_inverse" in arrays:
            state.average_inverse = symmetric(arrays["others_inverse"], self._size)
        state.weights = np.asarray(arrays.get("others_weights", state.weights), dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # huge values may overflow
            self._arm = int(ucb.neural_choose(state, self._agent_state.next_trial)[0])
        return Query(self._agent_state.space.snap(self._points[[self._arm]]), np.ones(1, dtype=np.int64))

    def learn(self, outcome: Outcome) -> None:
        """Add a pull to the statistics; decide whether the matrix has grown enough for an exchange."""
        statistics = arms.ArmStatistics.read(self._agent_state)
        failed = np.zeros(len(self._points), dtype=np.int64)
        failed += np.asarray(self._agent_state.arrays.get("arms.failed", 0), dtype=np.int64)
        with np.errstate(over="ignore"):
            statistics = statistics.add(np.array([self._arm]), outcome)
        failed[self._arm] = 0 if statistics.count[self._arm] else failed[self._arm] + 1
        self._agent_state = statistics.write(self._agent_state.passed_to(outcome.end)).write(
            **{"arms.failed": failed}
        )
        pull, last = outcome.end - 1, self._whole("last", -1)
        growth = _log_det(self._matrices()[0]) - float(self._read("log_det", _log_det(self._eye)))
        asked = Others.of(self._task).send
        self._send = asked or (pull - last) * growth > self._options.threshold

    def state_to_keep(self) -> AgentState:
        """Return the agent's state to store after the task, with a trained network if an exchange is due."""
        agent_state = self._agent_state
        if self._send and self._whole("trained.at", -1) != agent_state.next_trial:
            agent_state = agent_state.write(**self._train(agent_state.next_trial))
        return agent_state.write(send=np.array([self._send], dtype=np.int64))

    def _take_in_sums(self) -> None:
        """Store the sums of the other agents, if the task brings those of a new exchange."""
        known, arrays = self._whole("exchange", 0), self._task.arrays
        number = Others.of(self._task).exchange
        if number == known:
            return
        if "others_gram" not in arrays or "others_response" not in arrays:
            raise WireError(
                f"others: expected others_gram and others_response with exchange {number}, got none"
            )
        self._agent_state = self._agent_state.write(**arrays)
        gram, _ = self._matrices()
        self._agent_state = self._agent_state.write(
            exchange=np.array([number], dtype=np.int64),
            last=np.array([self._agent_state.next_trial - 1], dtype=np.int64),
            log_det=np.array([_log_det(gram)]),
            send=np.zeros(1, dtype=np.int64),
        )

    def _matrices(self) -> tuple[Array, Array]:
        """Return `V` and `sum r g` over the agent's own pulls and the sums of the other agents."""
        arrays = self._agent_state.arrays
        with np.errstate(over="ignore", invalid="ignore"):
            gram, response = sums(self._state.gradients, with_failures(self._agent_state))
            if "others_gram" in arrays:
                gram = gram + symmetric(arrays["others_gram"], self._size)
                response = response + np.asarray(arrays["others_response"], dtype=np.float64)
        return gram + self._eye, response

    def _train(self, next_trial: int) -> dict[str, AnyArray]:
        """Return the network after more gradient steps from its last weights.

        Return nothing while its bound has no weight, or after `train_until` pulls.
        """
        options = self._options
        if options.alpha(next_trial) <= 0 or next_trial > options.train_until:
            return {}
        before = np.asarray(self._agent_state.arrays.get("trained", self._state.trained[0]), dtype=np.float64)
        pulls = with_failures(self._agent_state)
        count, total = pulls.count[np.newaxis].astype(np.float64), pulls.total[np.newaxis]
        with np.errstate(over="ignore", invalid="ignore"):
            state = replace(self._state, trained=before[np.newaxis], counts=count, totals=total)
            trained = ucb.neural_train(state)[0]
        usable = np.isfinite(trained).all() and np.abs(trained).max() < 1e12  # else the steps diverged
        return {
            "trained": trained if usable else before,
            "trained.at": np.array([next_trial], dtype=np.int64),
        }

    def _read(self, name: str, default: float) -> float:
        return float(np.asarray(self._agent_state.arrays.get(name, [default]))[0])

    def _whole(self, name: str, default: int) -> int:
        return int(np.asarray(self._agent_state.arrays.get(name, [default]))[0])


def sums_to_send(agent_state: AgentState, options: ucb.NeuralOptions) -> Sums:
    """Return the sums and weights that the agent sends at an exchange; nothing if none is due."""
    if not np.any(agent_state.arrays.get("send", 0)):
        return Sums()
    seed = int(np.asarray(agent_state.arrays["seed"])[0])
    rng = np.random.default_rng([seed, 4])
    state = ucb.neural_start(arms.points(seed, agent_state.space.dimension), 1, options, rng)
    with np.errstate(over="ignore", invalid="ignore"):
        gram, response = sums(state.gradients, with_failures(agent_state))
    trained = agent_state.arrays.get("trained")
    return Sums(gram=triangle(gram), response=response, weights=None if trained is None else floats(trained))


def best_arm(agent_state: AgentState) -> tuple[Array, float] | None:
    """Return point and mean of the arm with the most successful pulls; None before the first success."""
    statistics = arms.ArmStatistics.read(agent_state)
    if not statistics.count.any():
        return None
    return arms.recommended(agent_state, statistics, int(np.argmax(statistics.count)))


def _log_det(matrix: Array) -> float:
    return float(np.linalg.slogdet(matrix)[1])
