"""FTS, federated Thompson sampling with random Fourier features [Dai2020].

The server draws random features once and shares them. Every agent sends one message: a draw `omega` of the
weights of its surrogate in these features (Eqs. 2-3), `M` numbers. Points and values stay on the agent. In
iteration `t` a target (an agent that tunes) maximises its own surrogate with probability `p_t`, and another
agent's message with probability `1 - p_t` (Alg. 1). The server tosses the coin and draws the other agent, so
a task carries at most one message. `docs/papers/fts.md` lists what we added to the paper.

[Dai2020] Dai, Low, Jaillet: Federated Bayesian Optimization via Thompson Sampling, NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms import senders
from fbo_flower.algorithms.fts import mixture
from fbo_flower.algorithms.messages import Content, Replies, real, rows_of, step_numbers, summable
from fbo_flower.algorithms.options import bounded, check_secure_sums, checked, choice, integer
from fbo_flower.algorithms.protocol import Progress, uniform_point
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Task, Trials, floats, natural_key
from fbo_flower.algorithms.requests import DrawWeights, Rng, compute
from fbo_flower.algorithms.senders import check_schedule, once_per_trial, own_probability
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.aggregation import portfolio
from fbo_flower.numerics.arrays import AnyArray, Array, IntArray
from fbo_flower.numerics.optim.functions import Differentiable, LinearFunction, Sum
from fbo_flower.numerics.optim.maximise import keeps_distance
from fbo_flower.numerics.optim.sobol import cube_points, sobol
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import gp, rff
from fbo_flower.space.space import SearchSpace

LENGTHSCALE_GRID = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
NUM_CUBE_POINTS = 2048  # points of the search space at which the server compares messages
MAX_POOL = 256  # largest number of messages in one portfolio
_check_lengthscale = partial(senders.check_lengthscale, names=("federated", senders.BY_DIMENSION))


@dataclass(frozen=True, kw_only=True)
class Advice(senders.FeatureTask):
    """A task: the shared features, advice for its steps, and what the server asks for."""

    weights: Annotated[Array | None, real("num_features", per_step=True)] = None  # omega_n
    point: Annotated[Array | None, real("D", low=0.0, high=1.0, per_step=True)] = None
    steps: Annotated[IntArray | None, step_numbers()] = None  # those that follow advice
    messages: Annotated[Array | None, real(None, "num_features", most="mixture_messages")] = None
    lengthscales: Annotated[Array | None, real(len(LENGTHSCALE_GRID), low=1e-6, high=1e6)] = None

    @classmethod
    def report_kind(cls, task: Task) -> str | None:
        return "lengthscales" if "lengthscales" in task.arrays else "weights"


@dataclass(frozen=True, kw_only=True)
class Message(Content):
    """A report: a draw `omega` of the weights, or how well each lengthscale suits the agent's values."""

    weights: Annotated[Array | None, real("num_features", low=-1e6, high=1e6)] = None
    log_likelihoods: Annotated[Array | None, summable(len(LENGTHSCALE_GRID), bound=1e12)] = None

    @classmethod
    def sum_content(cls, task: Task) -> Mapping[str, AnyArray]:
        return {"lengthscales": task.arrays["lengthscales"]}

    @classmethod
    def asks_for_sum(cls, task: Task) -> bool:
        return "lengthscales" in task.arrays


@dataclass(frozen=True)
class State:
    """The server's state."""

    space: SearchSpace
    progress: Progress = field(default_factory=Progress)  # every agent's next trial
    # the shared random features; None until their lengthscale is chosen
    features: rff.RandomFeatures | None = None
    messages: Mapping[str, Array] = field(default_factory=dict)  # agent -> its latest `omega (M,)`
    answered: frozenset[str] = frozenset()  # agents that were asked for a message and replied
    # target -> agents whose message it has used (with `communication = "once"`)
    used: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # target -> points `(k, D)` that it was told to evaluate (with `advice = "portfolio"`)
    advised: Mapping[str, Array] = field(default_factory=dict)
    # targets that store the messages (with `advice = "mixture"`, `communication = "once"`)
    has_messages: frozenset[str] = frozenset()
    # target -> trial and advice of its last task, so that a lost task is sent again unchanged
    sent: Mapping[str, tuple[int, dict[str, AnyArray]]] = field(default_factory=dict)
    # agent -> `(L,)`, log marginal likelihood of each lengthscale of the grid
    log_likelihoods: Array | None = None
    # who took part in which rounds, to know the agents that have left
    attendance: senders.RoundsPresent = field(default_factory=senders.RoundsPresent)


@dataclass(frozen=True, kw_only=True)
class FTS(senders.MessageOptions[State]):
    """Federated Thompson sampling; with `communication = "once"` a target uses a message at most once.

    Parameters
    ----------
    advice : how an agent uses the other agents' messages.
        "single" (the paper): with probability `1 - p_t` it maximises one other agent's message.
        "portfolio": with probability `1 - p_t` it evaluates a point that the server chooses greedily, so
        that the points sent to one agent together cover the maxima of all messages.
        "mixture": in every iteration it chooses, by marginal likelihood, between its own surrogate and one
        whose prior mean is a weighted mean of the messages.
        "random": with probability `1 - p_t` it evaluates a uniform random point; a control that shows how
        much of an improvement comes from exploration alone
    initial_design : what an agent evaluates first. "random" (the paper): `num_initial` random points.
        "advised": while the server holds messages, of other agents or of an earlier study, each of these
        trials follows advice, one per round; without messages they are random. An agent that joins late, or
        after a warm start, then does not begin from nothing
    schedule : `p_t`, the probability that iteration `t` uses the agent's own surrogate: "1-1/t^2",
        "1-1/sqrt(t)", "1-1/t", a number, or "first-K": the first K iterations use messages, later ones not
    preferences : `P_N`, how another agent is drawn for "single": "uniform", or "learned" from how well the
        rankings of two agents' messages agree
    learning_rate : with `preferences = "learned"`, agents have weight `exp(rate * observations * agreement)`
    lengthscale : lengthscale of the shared features: one number, one per parameter of the search space;
        "dimension": .35 times the square root of their number, a category counted as three; "federated":
        agents report log marginal likelihoods of a small grid, the largest sum is chosen
    mixture_messages : largest number of messages sent to a target with `advice = "mixture"`
    secure_sums : with `lengthscale = "federated"`, the smallest number of agents in a secure sum of log
        likelihoods: the server sees the sum but no agent's own values. 0: it sees each agent's values
    """

    advice: str = choice("single", ("single", "portfolio", "mixture", "random"))
    initial_design: str = choice("random", ("random", "advised"))
    schedule: str | float = checked("1-1/sqrt(t)", check_schedule)
    preferences: str = choice("uniform", ("uniform", "learned"))
    learning_rate: float = bounded(0.5, 0, 100)
    lengthscale: float | str | tuple[float, ...] = checked(0.5, _check_lengthscale)
    mixture_messages: int = integer(32, 1, 1024)
    secure_sums: int = checked(0, check_secure_sums)

    name: ClassVar[str] = "fts"
    task_content: ClassVar[type[Content]] = Advice
    report_content: ClassVar[type[Content]] = Message

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.secure_sums and self.lengthscale != "federated":
            raise ConfigError(
                f"secure_sums: expected 0 unless lengthscale='federated', the only quantity that {self.name} "
                f"sums, got {self.secure_sums!r}"
            )

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: Generator) -> State:
        self.check_targets(federation)
        state = State(federation.space)
        return state if self.lengthscale == "federated" else self._draw_features(state, self.lengthscale, rng)

    def ask(
        self, state: State, phase: Phase, server_round: int, present: Sequence[str], rng: Generator
    ) -> tuple[State, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        if state.features is None and state.log_likelihoods is not None:
            state = self._draw_features(state, LENGTHSCALE_GRID[int(np.argmax(state.log_likelihoods))], rng)
        state = replace(state, attendance=state.attendance.enter(present, server_round))
        seed = int(rng.integers(2**63))
        adviser = Adviser(self, state, rng)
        tasks: dict[str, Task] = {}
        sent = dict(state.sent)
        for agent in present:
            trial = state.progress.of(agent)
            tunes = self.is_target(agent)
            designs = trial < self.num_initial and self.initial_design == "advised"
            advised = tunes and (trial > 0 if not designs else adviser.is_ready(agent))
            num_trials = self.trials_from(trial, advised) if tunes else 0
            advice: dict[str, AnyArray] = {}
            if advised:
                # a generator per agent, so that one agent's draws do not depend on the others
                own = generator(seed, "advice", agent)
                draw = partial(adviser.advise, agent, trial - self.num_initial + 1, own)
                advice = once_per_trial(sent, agent, trial, draw)
            # a surrogate of fewer values is little but its prior: the message would mislead the others
            begins = advised and trial + num_trials < self.num_initial
            message = self.advice != "random" and self.schedule != 1.0 and not begins
            message = message and self.is_due(agent, state.answered, server_round)
            arrays = dict(advice)
            if message and state.features is None:
                arrays["lengthscales"] = np.array(LENGTHSCALE_GRID)
            if state.features is not None and (message or {"weights", "messages"} & advice.keys()):
                arrays |= state.features.arrays
            if num_trials or message:
                values = {"message": True} if message else {}
                tasks[agent] = Task(phase, server_round, trial, num_trials, arrays, values)
        has_messages = frozenset(adviser.has_messages)
        state = replace(state, used=adviser.used, advised=adviser.advised, has_messages=has_messages)
        return replace(state, sent=sent), tasks

    def tell(self, state: State, phase: Phase, replies: Replies) -> State:
        messages, answered = dict(state.messages), set(state.answered)
        for agent, report in replies.items():
            sent = Message.of(report)
            if sent.weights is not None:
                messages[agent] = floats(sent.weights)
            # an agent without observations that was asked only for a message is not asked again
            if sent.weights is not None or (state.features is not None and report.num_trials == 0):
                answered.add(agent)
        total = replies.sum("log_likelihoods")
        if replies.failed and self.targets != "all":  # agents without trials: asking again would not help
            total = np.eye(len(LENGTHSCALE_GRID))[len(LENGTHSCALE_GRID) // 2]
        if total is not None and state.log_likelihoods is not None:
            total = state.log_likelihoods + total
        progress, answers = state.progress.advance(replies), frozenset(answered)
        state = replace(state, progress=progress, messages=messages, answered=answers)
        return state if total is None else replace(state, log_likelihoods=total)

    def export_messages(self, state: State) -> dict[str, AnyArray]:
        if state.features is None or not state.messages:
            return {}
        weights = np.array([state.messages[agent] for agent in sorted(state.messages, key=natural_key)])
        return {**state.features.arrays, "weights": weights}

    def warm_start(self, state: State, messages: Mapping[str, AnyArray]) -> State:
        """Return a state with an earlier study's features, and its agents as absent senders of messages."""
        features, weights = rff.kept_features(messages, self.num_features, state.space.dimension)
        earlier = {f"earlier.{i}": row for i, row in enumerate(weights)}
        return replace(state, features=features, messages=earlier)

    def _draw_features(self, state: State, lengthscale: senders.Lengthscale | str, rng: Generator) -> State:
        features = senders.drawn_features(self.num_features, lengthscale, state.space, rng)
        return replace(state, features=features)

    # -- the agent's half ----------------------------------------------------------------------

    def propose(self, task: Task, agent_state: AgentState, rng: Rng) -> Trials:
        trial, draws = agent_state.next_trial, rng()
        advice = Advice.of_step(task, trial, self.trials_per_round)
        heard = mixture.Messages.of(advice.arrays, agent_state.arrays)
        messages = heard if self.advice == "mixture" else None
        if trial < self.num_initial and advice.weights is None and advice.point is None and messages is None:
            return uniform_point(agent_state, draws)
        if advice.weights is not None:  # Alg. 1, line 6: x_t = argmax phi(x)^T omega_n
            message = LinearFunction(advice.features(), floats(advice.weights))
            return self.maximise(message, agent_state, draws)
        if advice.point is not None:
            space, distance = agent_state.space, self.distance(agent_state)
            point, seen = space.snap(floats(advice.point)[None]), space.features(agent_state.history.points)
            new = keeps_distance(space.features(point)[None], seen[None], distance).all()
            return Trials(point) if new else self.thompson_point(agent_state, draws)
        if messages is not None:
            function = self._mixture(messages, agent_state, draws)
            return self.maximise(function, agent_state, draws)
        return self.thompson_point(agent_state, draws)  # Alg. 1, line 4: x_t = argmax f_t(x)

    def learn(self, task: Task, agent_state: AgentState, outcome: Trials, rng: Rng) -> AgentState:
        agent_state = super().learn(task, agent_state, outcome, rng)  # Alg. 1, line 8
        if self.advice == "mixture" and "messages" in task.arrays:
            agent_state = agent_state.write(**{name: task.arrays[name] for name in mixture.NAMES})
        return agent_state

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        if not task.values.get("message") or not agent_state.history.num_succeeded:
            return Message()
        x, y = self.observations(agent_state)
        if "lengthscales" in task.arrays:
            scales = floats(task.arrays["lengthscales"])
            noise, ones = self.message_noise_variance, np.ones(x.shape[1])
            grid = [gp.Hyperparameters("rbf", scale * ones, 1.0, noise) for scale in scales]
            logs = np.array([gp.log_marginal_likelihood(x, y, point)[0] for point in grid])
            return Message(log_likelihoods=logs)
        features = Advice.of(task).features()
        omega = compute(DrawWeights(features, x, y, self.message_noise_variance, rng()))  # Eqs. 2-3
        return Message(weights=omega)

    def _mixture(self, messages: mixture.Messages, agent_state: AgentState, rng: Generator) -> Differentiable:
        """Return a draw of the mixture; before the first success the mean of the messages."""
        if not agent_state.history.num_succeeded:
            cube = agent_state.space.features(sobol(256, agent_state.space.dimension, rng))
            return mixture.mean_message(messages, cube)
        x, y = self.observations(agent_state)
        own = self._fitted(agent_state)
        cube = agent_state.space.features(sobol(256, agent_state.space.dimension, rng))
        trend, values, fitted = mixture.draw_model(x, y, own, messages, cube, rng)
        path = self.draw_path(x, values, fitted, rng)
        return path if trend is None else Sum(trend, path)


class Adviser:
    """Chooses advice for one target after the other; its `used` and `advised` continue those of the state."""

    def __init__(self, options: FTS, state: State, rng: Generator) -> None:
        self.options, self.state = options, state
        self.used, self.advised = dict(state.used), dict(state.advised)
        self.has_messages = set(state.has_messages)
        names = sorted(state.messages, key=natural_key)
        if options.advice == "portfolio" and len(names) > MAX_POOL:
            chosen = np.sort(rng.choice(len(names), MAX_POOL, replace=False))
            names = [names[i] for i in chosen]
        self.senders, self.rows = names, {sender: row for row, sender in enumerate(names)}
        left = state.attendance.have_left()
        staying = [row for row, sender in enumerate(names) if sender not in left]
        self.staying = np.array(staying, dtype=np.int64)  # rows of those that have not left, ascending
        self.places = {names[row]: place for place, row in enumerate(staying)}  # their places in `staying`
        omegas = [state.messages[sender] for sender in self.senders]
        self.weights = np.array(omegas).reshape(len(self.senders), options.num_features)
        compares = options.advice == "portfolio" or options.preferences == "learned"
        if compares and self.senders and state.features is not None:  # messages as functions on common points
            self.points = state.space.snap(cube_points(NUM_CUBE_POINTS, state.space.dimension, rng))
            raw = state.features(state.space.features(self.points)) @ self.weights.T
            self.mean, self.stddev = raw.mean(axis=0), raw.std(axis=0)
            self.stddev[self.stddev <= 1e-12] = np.inf  # of a constant message
            self.z = portfolio.standardise_columns(raw)

    def is_ready(self, agent: str) -> bool:
        """Return whether there is advice for an agent's initial design: a message of somebody else."""
        random = self.options.advice == "random"  # a random point is what the initial design would be
        return not random and self.state.features is not None and len(self.senders) > (agent in self.rows)

    def advise(self, agent: str, iteration: int, rng: Generator) -> dict[str, AnyArray]:
        """Return the arrays for a task: a coin and a draw for each of its steps, or messages for all.

        Parameters
        ----------
        iteration : `t` of the first step, counted from 1 after the initial design
        """
        if self.options.advice == "mixture":
            return self._messages(agent, rng)
        number = self.options.trials_per_round
        steps = [self.advise_step(agent, iteration + step, rng) for step in range(number)]
        return rows_of(steps) if number > 1 else steps[0]

    def advise_step(self, agent: str, iteration: int, rng: Generator) -> dict[str, AnyArray]:
        """Return the arrays for one step; none if it is to use the target's own surrogate [Alg. 1]."""
        # Alg. 1, lines 2-3: r ~ U(0, 1), r <= p_t; in the initial design there is no coin
        if iteration > 0 and rng.random() <= own_probability(self.options.schedule, iteration):
            return {}
        if self.options.advice == "random":
            return {"point": rng.random(self.state.space.dimension)}
        if self.options.advice == "portfolio":
            return self._portfolio_point(agent)
        row = self.draw_sender(agent, iteration, rng)  # n ~ P_N, Alg. 1, line 6
        if row is None:
            return {}
        if self.options.communication == "once":
            self.used[agent] = (*self.used.get(agent, ()), self.senders[row])
        # not a row of `self.weights`: a view would keep the whole matrix in memory
        return {"weights": self.state.messages[self.senders[row]]}  # omega_n, Alg. 1, line 6

    def draw_sender(self, agent: str, iteration: int, rng: Generator) -> int | None:
        """Return the row of one of the others; None if there is nobody. Those that left count only alone."""
        unusable = {agent, *self.used.get(agent, ())}
        pool, excluded = self.staying, sorted(self.places[a] for a in unusable if a in self.places)
        if len(excluded) == len(pool):
            pool = np.arange(len(self.senders))
            excluded = sorted(self.rows[a] for a in unusable if a in self.rows)
        number = len(pool) - len(excluded)
        if number == 0:
            return None
        if self.options.preferences == "uniform" or agent not in self.rows:
            place = min(int(rng.random() * number), number - 1)
            for skipped in excluded:  # the place-th of the pool without those that are excluded
                place += place >= skipped
            return int(pool[place])
        rows = np.delete(pool, excluded)
        cumulative = np.cumsum(self.preferences(agent, rows, iteration))
        place = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
        return int(rows[min(place, number - 1)])

    def preferences(self, agent: str, rows: IntArray, iteration: int) -> Array:
        """Return the learned `P_N` over the senders in `rows`, not normalised."""
        agreement = portfolio.rank_agreement(self.z[:, rows], self.z[:, self.rows[agent]])
        num_trials = self.options.num_initial + iteration - 1
        exponent = self.options.learning_rate * num_trials * agreement
        return floats(np.exp(exponent - exponent.max()))

    def _portfolio_point(self, agent: str) -> dict[str, AnyArray]:
        """Return the point that improves most on the points this target was sent before."""
        rows = [row for row, sender in enumerate(self.senders) if sender != agent]
        features, space = self.state.features, self.state.space
        if not rows or features is None:
            return {}
        earlier = self.advised.get(agent, np.empty((0, space.dimension)))
        taken = (features(space.features(earlier)) @ self.weights.T - self.mean) / self.stddev
        chosen = portfolio.next_point(
            self.z if len(rows) == len(self.senders) else self.z[:, rows], taken[:, rows]
        )
        if chosen is None:
            return {}
        point = self.points[chosen].copy()  # not a view of all points
        self.advised[agent] = np.concatenate([earlier, point[None, :]])
        return {"point": point}

    def _messages(self, agent: str, rng: Generator) -> dict[str, AnyArray]:
        """Return the other agents' messages, or `mixture_messages` of them drawn at random."""
        rows = [row for row, sender in enumerate(self.senders) if sender != agent]
        once = self.options.communication == "once"
        if not rows or (once and agent in self.has_messages):
            return {}
        if len(rows) > self.options.mixture_messages:
            rows = sorted(rng.choice(rows, self.options.mixture_messages, replace=False).tolist())
        if once:
            self.has_messages.add(agent)
        return {"messages": self.weights[rows]}
