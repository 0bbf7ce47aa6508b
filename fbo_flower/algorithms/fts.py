"""FTS, federated Thompson sampling with random Fourier features [Dai2020].

The server draws random features once and shares them. Every agent answers with one draw `omega` of
the weights of its surrogate in these features (Eqs. 2-3), `M` numbers; never a point, never a value.
In iteration `t` a target follows its own surrogate with probability `p_t` and an other agent's
`omega` with `1 - p_t` (Alg. 1). Coin and choice are the server's, so a task carries one foreign
`omega` at most. `docs/papers/fts.md` maps equations to functions and says what is ours.

[Dai2020] Dai, Low, Jaillet: Federated Bayesian Optimization via Thompson Sampling, NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms import mixture
from fbo_flower.algorithms.protocol import (
    ArraySpec,
    Progress,
    Schema,
    check_choice,
    check_number,
)
from fbo_flower.algorithms.random_search import uniform_point
from fbo_flower.algorithms.records import (
    AnyArray,
    Array,
    Federation,
    Notebook,
    Outcome,
    Phase,
    Query,
    Report,
    Scalar,
    Task,
    natural_key,
)
from fbo_flower.algorithms.schedules import Schedule, check_schedule, own_probability
from fbo_flower.algorithms.thompson import LocalSurrogate
from fbo_flower.errors import ConfigError
from fbo_flower.numerics import gp, rff
from fbo_flower.numerics.functions import LinearFunction
from fbo_flower.numerics.portfolio import cube_points, next_point, rank_agreement, standardise_columns
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.sobol import sobol
from fbo_flower.space import SearchSpace

ADVICE = ("single", "portfolio", "mixture", "random")
COMMUNICATION = ("every-round", "once")
PREFERENCES = ("uniform", "learned")
LENGTHSCALE_GRID = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
NUM_CUBE_POINTS = 2048  # where the server looks at messages
MAX_POOL = 256  # messages that one portfolio looks at


@dataclass(frozen=True)
class FTSState:
    """What the server knows.

    Parameters
    ----------
    space, progress : the search space; every agent's next trial
    features : the shared random features; None until their lengthscale is chosen
    messages : agent -> its latest `omega (M,)`
    answered : agents that were asked for a message and replied
    used : target -> agents whose message it has used (`communication = "once"`)
    advised : target -> points `(k, D)` it was advised to evaluate (`advice = "portfolio"`)
    informed : targets that hold the messages (`advice = "mixture"`, `communication = "once"`)
    sent : target -> the trial it was asked for last, and the advice: a lost task is sent again as it was
    log_likelihoods : agent -> `(L,)`, of the lengthscale grid
    """

    space: SearchSpace
    progress: Progress = field(default_factory=Progress)
    features: rff.RandomFeatures | None = None
    messages: Mapping[str, Array] = field(default_factory=dict)
    answered: tuple[str, ...] = ()
    used: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    advised: Mapping[str, Array] = field(default_factory=dict)
    informed: tuple[str, ...] = ()
    sent: Mapping[str, tuple[int, Mapping[str, AnyArray]]] = field(default_factory=dict)
    log_likelihoods: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FTS(LocalSurrogate[FTSState]):
    """Federated Thompson sampling.

    Parameters
    ----------
    advice : what a foreign iteration does. "single": maximise one agent's message (the paper);
        "portfolio": evaluate the next point of a greedy portfolio over all messages, chosen by the
        server; "mixture": draw from {own surrogate, messages plus a surrogate of the residual} by
        evidence, in every iteration; "random": a uniform point, the control that tells federation
        from exploration
    schedule : `p_t`: "1-1/t^2", "1-1/sqrt(t)", "1-1/t", "first-K" or a number
    communication : "every-round" renews messages, "once" keeps the first and uses each at most once
    refresh_every : rounds between two messages of an agent
    targets : "all", or the agents that tune; the others only answer once
    preferences : `P_N`: "uniform", or "learned" from the rank agreement of messages
    learning_rate : of "learned": weight `exp(rate * observations * agreement)`
    num_features : `M`
    lengthscale : of the shared features, one number, one per feature, or "federated": the sum of
        the agents' log marginal likelihoods over a small grid decides
    message_noise_variance : `sigma^2` of the weight posterior, in units of standardised values
    mixture_messages : messages that a target of "mixture" is sent at most
    """

    name: ClassVar[str] = "fts"

    advice: str = "single"
    schedule: Schedule = "1-1/sqrt(t)"
    communication: str = "every-round"
    refresh_every: int = 1
    targets: str | tuple[str, ...] = "all"
    preferences: str = "uniform"
    learning_rate: float = 0.5
    num_features: int = 100
    lengthscale: float | str | tuple[float, ...] = 0.5
    message_noise_variance: float = 1e-2
    mixture_messages: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("advice", self.advice, ADVICE)
        check_schedule(self.schedule)
        check_choice("communication", self.communication, COMMUNICATION)
        check_number("refresh_every", self.refresh_every, 1, integer=True)
        check_choice("preferences", self.preferences, PREFERENCES)
        check_number("learning_rate", self.learning_rate, 0, 100)
        check_number("num_features", self.num_features, 1, 4096, integer=True)
        check_number("message_noise_variance", self.message_noise_variance, 1e-8, 1e3)
        check_number("mixture_messages", self.mixture_messages, 1, 1024, integer=True)
        if isinstance(self.lengthscale, str):
            check_choice("lengthscale", self.lengthscale, ("federated",))
        else:
            for value in self.lengthscale if isinstance(self.lengthscale, tuple) else [self.lengthscale]:
                check_number("lengthscale", value, 1e-4, 1e4)
        named = isinstance(self.targets, tuple) and all(isinstance(agent, str) for agent in self.targets)
        if self.targets != "all" and not (named and self.targets):
            raise ConfigError(f"targets: expected 'all' or a list of agents' names, got {self.targets!r}")

    def check(self, space: SearchSpace) -> None:
        if isinstance(self.lengthscale, tuple) and len(self.lengthscale) != space.num_features:
            raise ConfigError(
                f"lengthscale: expected {space.num_features} numbers, one per feature of the search "
                f"space, got {len(self.lengthscale)}"
            )

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> FTSState:
        if self.targets != "all":
            for agent in self.targets:
                if agent not in federation.agents:
                    raise ConfigError(f"targets: expected agents of this federation, got {agent!r}")
        state = FTSState(federation.space)
        if isinstance(self.lengthscale, str):
            return state
        return replace(state, features=self._draw_features(federation.space, self.lengthscale, rng))

    def ask(
        self,
        state: FTSState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[FTSState, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        state = self._choose_lengthscale(state, rng)
        seed = int(rng.integers(2**63))
        desk = _Desk.open(self, state, rng)
        tasks: dict[str, Task] = {}
        sent = dict(state.sent)
        for agent in present:
            trial = state.progress.of(agent)
            is_target = self.targets == "all" or agent in self.targets
            num_trials = 0 if not is_target else self.num_initial if trial == 0 else 1
            arrays: dict[str, AnyArray] = {}
            values: dict[str, Scalar] = {}
            if is_target and trial > 0:
                if agent not in sent or sent[agent][0] != trial:
                    # a generator of its own, so that agents do not shift each other's draws
                    own = generator(seed, "advice", agent)
                    sent[agent] = trial, desk.advise(agent, trial - self.num_initial + 1, own)
                arrays.update(sent[agent][1])
            if self._wants_message(state, agent, is_target, server_round):
                values["message"] = True
                if state.features is None:
                    arrays["lengthscales"] = np.array(LENGTHSCALE_GRID)
            if state.features is not None and (
                "message" in values or {"weights", "messages"} & arrays.keys()
            ):
                arrays["frequencies"] = state.features.frequencies
                arrays["phases"] = state.features.phases
            if num_trials or values:
                tasks[agent] = Task(phase, server_round, trial, num_trials, arrays, values)
        informed = tuple(desk.informed)
        return replace(state, used=desk.used, advised=desk.advised, informed=informed, sent=sent), tasks

    def tell(self, state: FTSState, phase: Phase, reports: Mapping[str, Report]) -> FTSState:
        messages, likelihoods = dict(state.messages), dict(state.log_likelihoods)
        for agent, report in reports.items():
            if "weights" in report.arrays:
                messages[agent] = np.asarray(report.arrays["weights"], dtype=np.float64)
            if "log_likelihoods" in report.arrays:
                likelihoods[agent] = np.asarray(report.arrays["log_likelihoods"], dtype=np.float64)
        # an agent that has nothing to tell and was asked for nothing else is not asked again
        asked = state.features is not None
        gave = [a for a, r in reports.items() if "weights" in r.arrays or (asked and r.num_trials == 0)]
        return replace(
            state,
            progress=state.progress.advance(reports),
            messages=messages,
            log_likelihoods=likelihoods,
            answered=tuple(dict.fromkeys((*state.answered, *gave))),
        )

    def _draw_features(
        self, space: SearchSpace, lengthscale: float | tuple[float, ...], rng: np.random.Generator
    ) -> rff.RandomFeatures:
        lengthscales = np.broadcast_to(np.asarray(lengthscale, dtype=np.float64), (space.num_features,))
        return rff.draw_features(self.num_features, lengthscales, space.num_features, rng)

    def _choose_lengthscale(self, state: FTSState, rng: np.random.Generator) -> FTSState:
        """Draw the features once the agents have reported on the grid; the largest sum wins."""
        if state.features is not None or not state.log_likelihoods:
            return state
        total = np.sum(
            [state.log_likelihoods[a] for a in sorted(state.log_likelihoods, key=natural_key)], axis=0
        )
        best = LENGTHSCALE_GRID[int(np.argmax(total))]
        return replace(state, features=self._draw_features(state.space, best, rng))

    def _wants_message(self, state: FTSState, agent: str, is_target: bool, server_round: int) -> bool:
        if self.advice == "random" or self.schedule == 1.0:
            return False
        if self.targets != "all" and not set(self.targets) - {agent}:
            return False  # nobody would use it
        if agent not in state.answered:
            return True
        if self.communication == "once" or not is_target:
            return False
        return (server_round - 1) % self.refresh_every == 0

    # -- the agent's half ----------------------------------------------------------------------

    def propose(self, task: Task, notebook: Notebook, rng: np.random.Generator) -> Query | None:
        trial = notebook.history.next_trial
        if trial >= task.end:
            return None
        if trial < self.num_initial:
            return uniform_point(notebook, rng)
        if "weights" in task.arrays:  # Alg. 1, line 6
            features = rff.RandomFeatures(_float(task.arrays["frequencies"]), _float(task.arrays["phases"]))
            return self.maximiser(LinearFunction(features, _float(task.arrays["weights"])), notebook, rng)
        if "point" in task.arrays:
            advised = self._advised_point(task, notebook)
            return advised if advised is not None else self.thompson_point(notebook, rng)
        if self.advice == "mixture":
            messages = mixture.received(task, notebook)
            if messages is not None and notebook.history.num_succeeded:
                x, y = self.observations(notebook)
                own = self.hyperparameters(notebook, rng)
                cube = notebook.space.features(sobol(256, notebook.space.dimension, rng))
                path = mixture.draw(x, y, own, messages, cube, self.num_path_features, rng)
                return self.maximiser(path, notebook, rng)
        return self.thompson_point(notebook, rng)  # Alg. 1, line 4

    def _advised_point(self, task: Task, notebook: Notebook) -> Query | None:
        """Return the server's point, None if the agent has been (almost) there already."""
        point = notebook.space.snap(_float(task.arrays["point"])[None, :])
        seen = notebook.space.features(notebook.history.points)
        distance = np.linalg.norm(seen - notebook.space.features(point), axis=1)
        return Query(point) if len(seen) == 0 or distance.min() >= self.distance(notebook) else None

    def learn(self, task: Task, notebook: Notebook, outcome: Outcome, rng: np.random.Generator) -> Notebook:
        notebook = super().learn(task, notebook, outcome, rng)
        if self.advice == "mixture" and "messages" in task.arrays:
            notebook = notebook.write(
                **{name: task.arrays[name] for name in ("frequencies", "phases", "messages")}
            )
        return notebook

    def summarise(self, task: Task, notebook: Notebook, rng: np.random.Generator) -> dict[str, AnyArray]:
        if not task.values.get("message") or not notebook.history.num_succeeded:
            return {}
        x, y = self.observations(notebook)
        if "lengthscales" in task.arrays:
            return {"log_likelihoods": self._log_likelihoods(x, y, _float(task.arrays["lengthscales"]))}
        phi = rff.RandomFeatures(_float(task.arrays["frequencies"]), _float(task.arrays["phases"]))(x)
        return {"weights": rff.sample_weights(phi, y, self.message_noise_variance, rng)}

    def _log_likelihoods(self, x: Array, y: Array, lengthscales: Array) -> Array:
        noise = self.message_noise_variance
        shapes = [np.full(x.shape[1], scale) for scale in lengthscales]
        hyperparameters = [gp.Hyperparameters("rbf", shape, 1.0, noise) for shape in shapes]
        return np.array([gp.log_marginal_likelihood(x, y, h)[0] for h in hyperparameters])

    # -- what may cross the wire ---------------------------------------------------------------

    def task_schema(self, space: SearchSpace) -> Schema:
        m, f, d = self.num_features, space.num_features, space.dimension
        return Schema(
            arrays={
                "frequencies": ArraySpec((m, f)),
                "phases": ArraySpec((m,), low=0.0, high=2 * np.pi),
                "weights": ArraySpec((m,)),
                "point": ArraySpec((d,), low=0.0, high=1.0),
                "messages": ArraySpec((None, m), max_length=self.mixture_messages),
                "lengthscales": ArraySpec((len(LENGTHSCALE_GRID),), low=1e-6, high=1e6),
            },
            values={"message": bool},
        )

    def report_schema(self, space: SearchSpace) -> Schema:
        return Schema(
            arrays={
                "weights": ArraySpec((self.num_features,), low=-1e6, high=1e6),
                "log_likelihoods": ArraySpec((len(LENGTHSCALE_GRID),)),
            }
        )


def _float(array: AnyArray) -> Array:
    return np.asarray(array, dtype=np.float64)


@dataclass
class _Desk:
    """The server's choice of advice, one target after the other, within one `ask`."""

    algorithm: FTS
    state: FTSState
    senders: list[str]
    weights: Array  # (N, M), one row per sender
    used: dict[str, tuple[str, ...]]
    advised: dict[str, Array]
    informed: list[str]
    points: Array  # (S, D), where messages are looked at
    mean: Array  # (N,), of each message over the points
    stddev: Array  # (N,), infinite for a constant one
    z: Array  # (S, N), standardised messages at the points
    rows: Mapping[str, int]  # sender -> its row

    @staticmethod
    def open(algorithm: FTS, state: FTSState, rng: np.random.Generator) -> _Desk:
        senders = sorted(state.messages, key=natural_key)
        looks = algorithm.advice == "portfolio" or algorithm.preferences == "learned"
        if algorithm.advice == "portfolio" and len(senders) > MAX_POOL:
            chosen = np.sort(rng.choice(len(senders), MAX_POOL, replace=False))
            senders = [senders[i] for i in chosen]
        weights = np.array([state.messages[a] for a in senders]).reshape(len(senders), algorithm.num_features)
        points = z = np.empty((0, 0))
        mean = stddev = np.empty(0)
        if looks and senders and state.features is not None:
            points = state.space.snap(cube_points(NUM_CUBE_POINTS, state.space.dimension, rng))
            raw = state.features(state.space.features(points)) @ weights.T
            mean, stddev, z = raw.mean(axis=0), raw.std(axis=0), standardise_columns(raw)
            stddev[stddev <= 1e-12] = np.inf
        return _Desk(
            algorithm, state, senders, weights, dict(state.used), dict(state.advised), list(state.informed),
            points, mean, stddev, z, {a: i for i, a in enumerate(senders)},
        )  # fmt: skip

    def advise(self, agent: str, iteration: int, rng: np.random.Generator) -> dict[str, AnyArray]:
        """Return what goes into the task of a target: nothing when it is to follow itself."""
        if self.algorithm.advice == "mixture":
            return self._messages(agent, rng)
        # Alg. 1, lines 2-3: `r <= p_t`
        if rng.random() <= own_probability(self.algorithm.schedule, iteration):
            return {}
        if self.algorithm.advice == "random":
            return {"point": rng.random(self.state.space.dimension)}
        if self.algorithm.advice == "portfolio":
            return self._portfolio_point(agent)
        return self._single_message(agent, iteration, rng)

    def _single_message(self, agent: str, iteration: int, rng: np.random.Generator) -> dict[str, AnyArray]:
        """Draw `n ~ P_N` and return its message [Alg. 1, line 6]."""
        gone = {agent, *self.used.get(agent, ())}
        rows = [i for i, sender in enumerate(self.senders) if sender not in gone]
        if not rows:
            return {}
        cumulative = np.cumsum(self._preferences(agent, rows, iteration))
        place = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
        row = rows[min(int(place), len(rows) - 1)]
        if self.algorithm.communication == "once":
            self.used[agent] = (*self.used.get(agent, ()), self.senders[row])
        return {"weights": self.weights[row]}

    def _preferences(self, agent: str, rows: list[int], iteration: int) -> Array:
        """Return `P_N` over `rows`, not normalised."""
        if self.algorithm.preferences == "uniform" or agent not in self.rows:
            return np.ones(len(rows))
        agreement = rank_agreement(self.z[:, rows], self.z[:, self.rows[agent]])
        exponent = self.algorithm.learning_rate * (self.algorithm.num_initial + iteration - 1) * agreement
        return np.asarray(np.exp(exponent - exponent.max()), dtype=np.float64)

    def _portfolio_point(self, agent: str) -> dict[str, AnyArray]:
        """Return the point that adds most to those this target was advised before."""
        rows = [i for i, sender in enumerate(self.senders) if sender != agent]
        if not rows or self.state.features is None:
            return {}
        earlier = self.advised.get(agent, np.empty((0, self.state.space.dimension)))
        z = self.z if len(rows) == len(self.senders) else self.z[:, rows]
        taken = self._at(earlier)[:, rows]
        point = self.points[next_point(z, taken)]
        self.advised[agent] = np.concatenate([earlier, point[None, :]])
        return {"point": point}

    def _at(self, points: Array) -> Array:
        """Return the standardised messages `(k, N)` at points `(k, D)`."""
        assert self.state.features is not None
        values = self.state.features(self.state.space.features(points)) @ self.weights.T
        return np.asarray((values - self.mean) / self.stddev, dtype=np.float64)

    def _messages(self, agent: str, rng: np.random.Generator) -> dict[str, AnyArray]:
        """Return the others' messages, as many as a target may be sent."""
        rows = [i for i, sender in enumerate(self.senders) if sender != agent]
        once = self.algorithm.communication == "once"
        if not rows or (once and agent in self.informed):
            return {}
        if len(rows) > self.algorithm.mixture_messages:
            rows = sorted(rng.choice(rows, self.algorithm.mixture_messages, replace=False).tolist())
        self.informed.append(agent)
        return {"messages": self.weights[rows]}
