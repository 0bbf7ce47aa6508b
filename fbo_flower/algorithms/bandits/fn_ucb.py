"""FN-UCB: neural features and networks over random arms, averaged between agents [Dai2023].

An agent makes one pull per round and checks whether its matrix has grown enough. If the matrix of one agent
has, all agents send their sums (an exchange), and the merged sums come with the next task. With
`threshold = 0`, the published setting, there is an exchange in every round, which suits only small budgets.
The mathematics is in `numerics.bandits.ucb`.

Matrices are sent as triangles; the server computes the inverses. The last entry of `sum r g` is the sum of an
agent's rewards, so after one pull it is the value itself.

An agent that drops out stays in the sums with its last report. An exchange does not wait for agents that left
their last task unanswered. A failed pull uses up a trial. For an arm without a success it counts as 0, the
worst reward of the paper, or as the agent's worst mean if that is lower; once the arm has a success, its
failed pulls are missing.

Notation: `G (K, P)` are the network's gradients at the initial weights, the same for all agents. With
`n (K,)` own pulls and `s (K,)` their sums of values, an agent's matrices are `lam I + G^T diag(n) G` and
`G^T s`. The other agents' matrices arrive as sums and do not change until the next exchange.

[Dai2023] Dai, Shu, Verma, Fan, Low, Jaillet. Federated neural bandits. ICLR 2023.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms.bandits import base
from fbo_flower.algorithms.bandits.base import Bandit, BanditState, Evaluations
from fbo_flower.algorithms.messages import Content, Replies, real
from fbo_flower.algorithms.options import bounded, integer
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Task, Trials, floats, natural_key
from fbo_flower.algorithms.requests import Draws, Evaluation, Rng
from fbo_flower.errors import WireError
from fbo_flower.numerics.acquisition.feature_models import pack_symmetric, unpack_symmetric
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.bandits import ucb
from fbo_flower.numerics.bandits.pulls import Pulls
from fbo_flower.space.checks import check_integer
from fbo_flower.space.space import SearchSpace


def _row(algorithm: Any, space: SearchSpace) -> int:
    """Return `P`."""
    return num_weights(algorithm.neural_options(), space.dimension)


def _upper(algorithm: Any, space: SearchSpace) -> int:
    """Return the number of entries in a packed matrix `(P, P)`."""
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


def sums(gradients: Array, pulls: Pulls) -> tuple[Array, Array]:
    """Return `G^T diag(n) G (P, P)` and `G^T s (P,)` of the agent's own pulls, failed ones included."""
    count, total = counted(pulls)
    return gradients.T @ (count[:, np.newaxis] * gradients), gradients.T @ total


def counted(pulls: Pulls) -> tuple[IntArray, Array]:
    """Return number and sum of the pulls that the bandit counts, failed ones of arms without a value too."""
    if not pulls.in_vain.any():
        return pulls.count, pulls.total
    worst = float(pulls.means().min())  # 0 for arms without a success
    with np.errstate(over="ignore"):
        return pulls.count + pulls.in_vain, pulls.total + pulls.in_vain * worst


def neural_features(seed: int, dim: int, options: ucb.NeuralOptions) -> ucb.Features:
    """Return arms and initial weights of a seed, the same for all agents."""
    return ucb.neural_features(base.points(seed, dim), options, np.random.default_rng([seed, 4]))


def matrices(agent_state: AgentState, features: ucb.Features) -> tuple[Array, Array]:
    """Return `V` and `sum r g` over the agent's own pulls and the sums of the other agents."""
    arrays, size = agent_state.arrays, len(features.start)
    with np.errstate(over="ignore", invalid="ignore"):
        gram, response = sums(features.gradients, base.read_pulls(agent_state))
        if "others_gram" in arrays:
            gram = gram + unpack_symmetric(floats(arrays["others_gram"]), size)
            response = response + floats(arrays["others_response"])
    return gram + features.options.regulariser * np.eye(size), response


def choose(agent_state: AgentState, features: ucb.Features) -> int:
    """Return the arm with the largest upper confidence bound."""
    arrays, size = agent_state.arrays, len(features.start)
    gram, response = matrices(agent_state, features)
    average = np.eye(size) / features.options.regulariser
    if "others_inverse" in arrays:
        average = unpack_symmetric(floats(arrays["others_inverse"]), size)
    weights = floats(arrays.get("others_weights", features.start))
    inverse, pull = floats(np.linalg.inv(gram)), agent_state.next_trial
    with np.errstate(over="ignore", invalid="ignore"):  # huge values may overflow
        return ucb.neural_choose(features, pull, inverse, response, weights, average)


def train(agent_state: AgentState, features: ucb.Features) -> AgentState:
    """Return the agent's state with the network after more gradient steps from its last weights.

    Nothing changes while its bound has no weight, or after `train_until` pulls.
    """
    options, pull = features.options, agent_state.next_trial
    if options.alpha(pull) <= 0 or pull > options.train_until:
        return agent_state
    before = floats(agent_state.arrays.get("trained", features.start))
    count, total = counted(base.read_pulls(agent_state))
    with np.errstate(over="ignore", invalid="ignore"):
        (trained,) = ucb.neural_train(
            features, before[np.newaxis], floats(count)[np.newaxis], total[np.newaxis]
        )
    usable = np.isfinite(trained).all() and np.abs(trained).max() < 1e12  # else the steps diverged
    at = np.array([pull], dtype=np.int64)
    return agent_state.write(**{"trained": trained if usable else before, "trained.at": at})


def _number(agent_state: AgentState, name: str, default: float) -> float:
    return float(np.asarray(agent_state.arrays.get(name, [default]))[0])


def _log_det(matrix: Array) -> float:
    return float(np.linalg.slogdet(matrix)[1])


@dataclass(frozen=True)
class FNState(BanditState):
    """The server's state, besides what `BanditState` has."""

    arms_seed: int  # seed of the arms
    dim: int  # `D`
    # agent -> its last `sum g g^T` (a triangle), `sum r g` and network weights, by name
    sent: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)
    fresh: tuple[str, ...] = ()  # agents that sent sums since the last exchange
    asked: bool = False  # whether the other agents were asked for their sums
    exchanges: int = 0  # number of exchanges so far
    # mean inverse (a triangle) and mean weights of the last exchange that had them
    merged: Mapping[str, Array] = field(default_factory=dict)
    # agent -> number of the last exchange whose sums it received
    synced: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FNUCB(Bandit[FNState]):
    """Federated neural bandit over random arms, slow, for small budgets; `Bandit` describes other options.

    Parameters
    ----------
    width : hidden units of the network, which has one hidden layer
    regulariser : `lam`, multiple of the identity that is added to every `sum g g^T`
    nu_a, nu_b : factors of the exploration term in the linear bound, and in the network's bound
    mix_from, mix_until : numbers of pulls between which the network's bound gradually replaces the linear one
    train_steps, learning_rate : number and size of the gradient steps at an exchange
    train_until : number of pulls after which networks are no longer trained
    threshold : growth of an agent's matrix that triggers an exchange; 0: an exchange in every round
    arms_seed : seed of arms and initial weights; None: the server draws one
    """

    name: ClassVar[str] = "fn-ucb"
    task_content: ClassVar[type[Content]] = Others
    report_content: ClassVar[type[Content]] = Sums

    budget: int = 1_000
    width: int = integer(ucb.NeuralOptions.width, 1, 200)
    regulariser: float = bounded(ucb.NeuralOptions.regulariser, 1e-9)
    nu_a: float = bounded(ucb.NeuralOptions.nu_a, 0)
    nu_b: float = bounded(ucb.NeuralOptions.nu_b, 0)
    mix_from: int = integer(ucb.NeuralOptions.mix_from, 0, 10**9)
    mix_until: int = ucb.NeuralOptions.mix_until
    train_steps: int = integer(ucb.NeuralOptions.train_steps, 0, 10**9)
    learning_rate: float = bounded(ucb.NeuralOptions.learning_rate, 0)
    train_until: int = integer(ucb.NeuralOptions.train_until, 0, 10**9)
    threshold: float = bounded(ucb.NeuralOptions.threshold, 0)
    arms_seed: int | None = integer(None, 0, base.MAX_SEED)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("mix_until", self.mix_until, self.mix_from + 1, 10**9)

    def neural_options(self) -> ucb.NeuralOptions:
        """Return the constants of the bandit."""
        return ucb.NeuralOptions(
            self.width, self.regulariser, self.nu_a, self.nu_b, self.mix_from, self.mix_until,
            self.train_steps, self.learning_rate, self.train_until, self.threshold,
        )  # fmt: skip

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: Generator) -> FNState:
        return FNState(federation.agents, base.drawn_seed(self.arms_seed, rng), federation.space.dimension)

    def tell(self, state: FNState, phase: Phase, reports: Replies) -> FNState:
        sent, fresh, synced = dict(state.sent), set(state.fresh), dict(state.synced)
        for agent, report in reports.items():
            arrays = {name: floats(array) for name, array in Sums.of(report).arrays.items()}
            sent[agent] = {**sent.get(agent, {}), **arrays}
            if "gram" in report.arrays and "response" in report.arrays:
                fresh.add(agent)
            # a silent agent may have answered an earlier task, without the sums of the last exchange
            if report.num_trials and not state.attendance.is_silent(agent):
                synced[agent] = state.exchanges
        order = tuple(sorted(fresh, key=natural_key))
        state = replace(state, sent=base.in_order(sent), fresh=order, synced=base.in_order(synced))
        return super().tell(state, phase, reports)

    def close(self, state: FNState, waiting: Sequence[str]) -> FNState:
        """Ask the others for their sums too, then average what all have sent [Dai2023, Alg. 2].

        These are the agents' inverses `V_m^-1` and network weights.
        """
        if not state.fresh:
            return state
        if not state.asked and any(self._is_late(state, agent) for agent in waiting):
            return replace(state, asked=True)
        options, merged = self.neural_options(), dict(state.merged)
        size, sent = num_weights(options, state.dim), state.sent.values()
        if options.alpha(max(state.progress.next_trial.values())) > 0:
            own = np.array([unpack_symmetric(arrays["gram"], size) for arrays in sent if "gram" in arrays])
            inverse = np.linalg.inv(own + options.regulariser * np.eye(size)).mean(axis=0)
            merged["inverse"] = pack_symmetric(inverse)
            if weights := [arrays["weights"] for arrays in sent if "weights" in arrays]:
                merged["weights"] = np.mean(weights, axis=0)
        return replace(state, merged=merged, fresh=(), asked=False, exchanges=state.exchanges + 1)

    def _is_late(self, state: FNState, agent: str) -> bool:
        """Return whether the open exchange lacks the sums of an agent that has some and answers."""
        return not (agent in state.fresh or state.attendance.is_silent(agent) or not state.progress.of(agent))

    def next_pulls(self, state: FNState, agent: str, left: int) -> tuple[Content | None, int]:
        """Return a task of one pull, with the sums of the last exchange if the agent lacks them."""
        content, pulls = Others(arms_seed=state.arms_seed, exchange=state.exchanges), 1
        if state.fresh and not self._is_late(state, agent):
            return None, 0
        if state.fresh:  # an agent that was absent also has a pull to report
            pulls = min(1, max(state.progress.next_trial.values()) - state.progress.of(agent))
            content = replace(content, send=True)
        if state.synced.get(agent, 0) < state.exchanges:
            others = [sent for other, sent in state.sent.items() if other != agent]
            size = num_weights(self.neural_options(), state.dim)
            zero_gram, zero = np.zeros(size * (size + 1) // 2), np.zeros(size)
            with np.errstate(over="ignore", invalid="ignore"):  # huge values
                gram = sum((sent["gram"] for sent in others if "gram" in sent), zero_gram)
                response = sum((sent["response"] for sent in others if "response" in sent), zero)
            inverse, weights = state.merged.get("inverse"), state.merged.get("weights")
            content = replace(content, others_gram=gram, others_response=response)
            content = replace(content, others_inverse=inverse, others_weights=weights)
        return content, pulls

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        """Make the task's pulls, then train the network if an exchange is due.

        It is due when the matrix of one agent has grown enough since the last one [Dai2023, Alg. 1].
        """
        content, space = Others.of(task), agent_state.space
        seed = base.checked_seed(content.arms_seed)
        features = neural_features(seed, space.dimension, self.neural_options())
        agent_state = agent_state.write(seed=np.array([seed], dtype=np.int64))
        if (number := content.exchange) != _number(agent_state, "exchange", 0):
            if content.others_gram is None or content.others_response is None:
                raise WireError(f"others: expected sums of the others with exchange {number}, got none")
            numbers = {"exchange": number, "last": agent_state.next_trial - 1, "send": 0}
            agent_state = agent_state.write(
                **task.arrays, **{name: np.array([k], dtype=np.int64) for name, k in numbers.items()}
            )
            log_det = _log_det(matrices(agent_state, features)[0])
            agent_state = agent_state.write(log_det=np.array([log_det]))
        send = content.send or _number(agent_state, "send", 0) > 0
        empty = _log_det(self.regulariser * np.eye(len(features.start)))
        while agent_state.next_trial < task.end:
            arm = choose(agent_state, features)
            outcome = evaluate(Trials(space.snap(features.arms[[arm]]), pulls=np.ones(1, dtype=np.int64)))
            pulls = base.with_outcome(base.read_pulls(agent_state), [arm], outcome)
            agent_state = agent_state.passed_to(outcome.next_trial).write(**pulls.arrays("arms."))
            growth = _log_det(matrices(agent_state, features)[0]) - _number(agent_state, "log_det", empty)
            since = outcome.next_trial - 1 - _number(agent_state, "last", -1)
            send = content.send or since * growth > self.threshold
        if send and _number(agent_state, "trained.at", -1) != agent_state.next_trial:
            agent_state = train(agent_state, features)
        return agent_state.write(send=np.array([send], dtype=np.int64))

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        """Return the sums and weights that the agent sends at an exchange; nothing of them if none is due."""
        sent = Sums(evaluations=self.evaluations(agent_state))
        if not np.any(agent_state.arrays.get("send", 0)):
            return sent
        seed = int(np.asarray(agent_state.arrays["seed"])[0])
        features = neural_features(seed, agent_state.space.dimension, self.neural_options())
        with np.errstate(over="ignore", invalid="ignore"):
            gram, response = sums(features.gradients, base.read_pulls(agent_state))
        weights = None if (trained := agent_state.arrays.get("trained")) is None else floats(trained)
        return replace(sent, gram=pack_symmetric(gram), response=response, weights=weights)

    @base.once_per_state
    def best_pulled(self, agent_state: AgentState) -> tuple[Array, float] | None:
        """Return point and mean of the arm with the most successful pulls; None before the first success."""
        pulls = base.read_pulls(agent_state)
        if not pulls.count.any():
            return None
        return base.recommended(agent_state, pulls, int(np.argmax(pulls.count)))
