"""DP-FTS-DE: federated Thompson sampling with differential privacy and distributed exploration [Dai2021].

As in FTS, agents send weights of shared random features. No agent receives another agent's message. Instead
the server samples agents, clips their messages, adds them up with a weight per region of the search space,
and adds Gaussian noise; every agent may receive these sums (a release). An agent maximises a draw of its own
surrogate with probability `p_t`. Otherwise it maximises the function that equals, in every region, that
region's sum.

Notation: `P` regions, `N` agents, `M` features; `phi_n^i` the weight of agent `n` in the sum of region `i`,
`sum_n phi_n^i = 1`; `C = S / sqrt(P)` the largest norm of a message; `q` the sampling rate; `z` the noise
multiplier.

    omega^i = 1/q (sum_(n sampled) phi_n^i clip_C(omega_n) + N(0, (z max_n ||phi_n|| C)^2 I))      (R)

`phi` is a softmax over all registered agents, whether they are present or not. So when one agent takes no
part, the other agents' terms stay as they are, and the `P` sums together change by at most `||phi_n|| C / q`.
A release is a sampled Gaussian mechanism with multiplier `z`. (Normalised over the agents that are present,
the sums would change by up to twice as much.) The paper bounds `||phi_n|| C` by `max phi S`, which is up to
`sqrt(P)` larger.

Messages and their shares are cut off to a fixed-point grid and the noise is a discrete Gaussian on that grid
(`numerics.discrete_noise`). The server's noise and its sample are secret draws: see `secret_draws`.

[Dai2021] Dai, Low, Jaillet: Differentially private federated Bayesian optimization with distributed
exploration, NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms import senders
from fbo_flower.algorithms.messages import STEPS, Content, Replies, has_step, real, step_numbers, summable
from fbo_flower.algorithms.options import bounded, check_secure_sums, checked, choice, integer
from fbo_flower.algorithms.protocol import Progress, uniform_point
from fbo_flower.algorithms.records import (
    AgentState,
    Federation,
    Phase,
    Scalar,
    ServerResults,
    Task,
    Trials,
    floats,
    natural_key,
)
from fbo_flower.algorithms.requests import Rng
from fbo_flower.algorithms.senders import check_schedule, once_per_trial, own_probability
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.aggregation.portfolio import Boxes, BoxwiseLinearFunction
from fbo_flower.numerics.arrays import AnyArray, Array, IntArray
from fbo_flower.numerics.discrete_noise import Uniform, add_noise, grid_step, to_steps
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.privacy import clip_norm, sampled_epsilon
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import rff
from fbo_flower.space.space import SearchSpace


def regions_of(algorithm: Any, space: SearchSpace) -> int:
    """Return `P`, the number of regions; without a continuous axis there is one."""
    return int(algorithm.num_regions) if len(space.whole.continuous) else 1


def largest_norm(algorithm: Any, space: SearchSpace) -> float:
    """Return `C`, the largest norm of a message."""
    return float(algorithm.clip / np.sqrt(regions_of(algorithm, space)))


def largest_sent(algorithm: Any, space: SearchSpace) -> float:
    """Return the largest absolute value of an entry of a message, local noise included."""
    noise = 100.0 * algorithm.noise_multiplier if algorithm.noise == "local" else 0.0
    return largest_norm(algorithm, space) * (1.0 + noise)


# Only secure sums carry these. Their noise protects them whichever agents take part in a sum.
_SUMS = summable(
    regions_of, "num_features", bound=largest_sent, only_if=lambda algorithm: False,
    repeats=False, with_trials=True,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Release(senders.FeatureTask):
    """A task: the shared features, the last release for some of its steps, and what the server asks for."""

    weights: Annotated[Array | None, real(regions_of, "num_features")] = None  # omega^i, Eq. (R)
    steps: Annotated[IntArray | None, step_numbers()] = None  # those that follow the release
    shares: Annotated[Array | None, real(regions_of, low=0.0, high=1.0)] = None  # phi_n, for a secure sum
    region: int = -1  # of the initial design


@dataclass(frozen=True, kw_only=True)
class ReleaseMessage(Content):
    """A report: the agent's clipped message; in a secure sum it travels times its shares."""

    weights: Annotated[Array | None, real("num_features", in_clear=True, with_trials=True)] = None
    sums: Annotated[Array | None, _SUMS] = None

    @classmethod
    def sum_content(cls, task: Task) -> Mapping[str, AnyArray]:
        return {name: task.arrays[name] for name in ("frequencies", "phases") if name in task.arrays}

    @classmethod
    def is_asked_by(cls, task: Task) -> bool:
        return bool(task.values.get("message"))

    asks_for_sum = is_asked_by


@dataclass(frozen=True)
class Collection:
    """The sampled agents of the next release, and their messages so far."""

    # sampled agent that is present -> `phi_n (P,)`, its weight in the sum of every region
    shares: Mapping[str, Array] = field(default_factory=dict)
    largest: float = 0.0  # `max_n ||phi_n||` over all registered agents, sampled or not, present or not
    messages: Mapping[str, Array] = field(default_factory=dict)  # agent -> its clipped message `(M,)`
    total: Array | None = None  # `(P, M)`, the sum of weights times messages, if it came as a secure sum


@dataclass(frozen=True)
class DPFTSState:
    """The server's state."""

    space: SearchSpace
    features: rff.RandomFeatures  # the shared random features
    progress: Progress = field(default_factory=Progress)  # every agent's next trial
    # registered agent -> the region of its initial design; also of agents that are not present
    regions: Mapping[str, int] = field(default_factory=dict)
    collection: Collection | None = None  # messages for the next release; None: no release is being prepared
    weights: Array | None = None  # `(P, M)`, the last release; None before the first
    num_releases: int = 0  # releases made so far
    # agent -> how often it was asked for a message
    num_messages: Mapping[str, int] = field(default_factory=dict)
    spent: bool = False  # whether the privacy budget did not allow a release that was due
    # agent -> trial and advice of its last task, so that a lost task is sent again unchanged
    sent: Mapping[str, tuple[int, dict[str, AnyArray]]] = field(default_factory=dict)
    # results of the secret draws for the next `ask`; None: they have not been made
    drawn: Mapping[str, AnyArray] | None = None

    def with_agents(self, present: Sequence[str], num_regions: int) -> DPFTSState:
        """Register new agents: assign each the next region in turn, for its initial design.

        Registration is public. A new agent changes the shares of all agents from the next release on.
        """
        regions = dict(self.regions)
        for agent in present:
            regions.setdefault(agent, len(regions) % num_regions)
        return replace(self, regions=regions)

    def shares(self, num_regions: int, region_weight: float, region_releases: int) -> dict[str, Array]:
        """Return `phi_n (P,)` of every registered agent: a softmax that gets flatter with every release."""
        advantage = max(0.0, 1.0 - self.num_releases / region_releases)
        explored = np.array(list(self.regions.values()))[:, None] == np.arange(num_regions)
        raw = np.exp(region_weight * advantage * (explored - 1.0))  # (N, P)
        return dict(zip(self.regions, raw / raw.sum(axis=0), strict=True))

    def released(self) -> DPFTSState:
        """Release the sums that were drawn for the collected messages, and discard the messages."""
        state, drawn = replace(self, collection=None), self.drawn or {}
        if "sums" not in drawn:
            return state  # nothing was collected, or the secure sum failed
        return replace(state, weights=floats(drawn["sums"]), num_releases=state.num_releases + 1)


@dataclass(frozen=True, kw_only=True)
class DPFTS(senders.SharedFeatures[DPFTSState]):
    """Differentially private federated Thompson sampling; `SharedFeatures` describes the other options.

    Parameters
    ----------
    noise : who adds the noise. "central" (the paper): the server adds it to every sum before it sends the
        sum to an agent; agents trust the server with their messages. "local": every agent adds it to its own
        message before it sends the message. Either way it is discrete Gaussian noise on a fixed-point grid,
        from the operating system's generator unless the strategy (central) or the agent (local) has a seed
    noise_multiplier : `z`, standard deviation of the noise divided by the largest change that one agent can
        cause; 0: no noise and no privacy
    sampling_rate : `q`, the probability that a registered agent is in a sum. It lowers epsilon for central
        noise without secure sums only; otherwise 1 gives the least noise for the same epsilon
    clip : `S`; every message is scaled down to a norm of at most `S / sqrt(P)`
    delta : `delta` of `(epsilon, delta)`; choose it smaller than 1 divided by the number of agents
    max_epsilon : privacy budget: a release that would exceed this epsilon is not made; None: no limit
    when_spent : what happens when the budget is spent: "stop" ends the study, "keep" continues with the last
        release
    release_every : rounds between two releases
    num_regions : `P`, number of boxes into which the continuous parameters are divided. Each agent's initial
        design lies in one box, and every box has its own sum. Without continuous parameters there is one
    region_weight : at first an agent counts `exp(region_weight)` times as much in the sum of the region that
        it explored as in the other sums
    region_releases : number of releases after which all agents count the same in every sum
    message : what an agent sends: a "draw" from its weight posterior (the paper), or the posterior's "mean",
        which has a smaller norm
    schedule : `p_t`, the probability that iteration `t` uses the agent's own surrogate: "1-1/t^2",
        "1-1/sqrt(t)", "1-1/t", a number, or "first-K": the first K iterations use releases, later ones not
    num_features : `M`; the norm of the noise grows with its square root
    message_noise_variance : `sigma^2` of the weight posterior, for standardised values. The default is large
        because smooth messages of small norm lose least by clipping and noise
    secure_sums : smallest number of sampled agents in a secure sum: the server sees the sum of their messages
        but no single one, and a smaller sample makes no release. Agents clip their messages themselves,
        unchecked. Sampling does not lower epsilon then. 0: the server sees all messages
    """

    name: ClassVar[str] = "dp-fts"
    task_content: ClassVar[type[Content]] = Release
    report_content: ClassVar[type[Content]] = ReleaseMessage
    barrier: ClassVar[str] = "its accountant needs one random sample of all agents per release"

    noise: str = choice("central", ("central", "local"))
    noise_multiplier: float = bounded(1.0, 0, 1e6)
    sampling_rate: float = bounded(0.35, 1e-6, 1)
    clip: float = bounded(1.0, 1e-6, 1e6)
    delta: float = bounded(1e-3, 1e-15, 0.5)
    max_epsilon: float | None = bounded(None, 0)
    when_spent: str = choice("stop", ("stop", "keep"))
    release_every: int = integer(1, 1)
    num_regions: int = integer(1, 1, 256)
    region_weight: float = bounded(15.0, 0, 100)
    region_releases: int = integer(10, 1)
    message: str = choice("mean", ("draw", "mean"))
    schedule: str | float = checked("1-1/sqrt(t)", check_schedule)
    num_features: int = 30
    message_noise_variance: float = 1.0
    secure_sums: int = checked(0, check_secure_sums)

    def check_cost(self) -> None:
        """Raise ConfigError if no release is within the budget, or its cost cannot be counted.

        Only a server checks it: agents need not have the library that counts sampled releases.
        """
        least = self.epsilon(1)
        if self.max_epsilon is not None and least > self.max_epsilon:
            raise ConfigError(
                f"max_epsilon: expected at least {least:.4g}, the cost of the first release with these "
                f"options, got {self.max_epsilon!r}; raise it, or raise noise_multiplier"
            )

    # -- the privacy budget --------------------------------------------------------------------

    def epsilon(self, count: int) -> float:
        """Return `epsilon` after `count` releases, or with local noise after `count` messages of one agent.

        Central noise: neighbouring federations have the same registered agents. In one of them the messages
        of one agent are replaced by zeros, as if it took no part. An agent is in a sum with probability `q`.
        With secure sums `q` does not count, because a sample that is too small makes no release: if a
        release is made, the agent was in it with a larger probability than `q`.

        Local noise: neighbouring data sets differ in all observations of one agent, and the server knows
        which agents sent a message, so sampling does not help.
        """
        rate = self.sampling_rate if self.noise == "central" and not self.secure_sums else 1.0
        return sampled_epsilon(self.noise_multiplier, rate, count, self.delta)

    def affords(self, count: int) -> bool:
        """Return whether `count` releases, or messages of one agent, are within the privacy budget."""
        return self.max_epsilon is None or self.epsilon(count) <= self.max_epsilon

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: Generator) -> DPFTSState:
        self.check_cost()
        space = federation.space
        features = senders.drawn_features(self.num_features, self.lengthscale, space, rng)
        return DPFTSState(space, features).with_agents(federation.agents, regions_of(self, space))

    def secret_draws(
        self, state: DPFTSState, phase: Phase, server_round: int, present: Sequence[str], uniform: Uniform
    ) -> dict[str, AnyArray]:
        """Return the sums of the next release with noise, and which registered agents are sampled.

        Returns
        -------
        `sums` `(P, M)`, if a release is due, and `sampled`, positions in `state.regions` with the agents
        that are present added. Every registered agent is sampled independently with probability `q`.
        """
        if phase is not Phase.TRAIN or not present:
            return {}
        draws: dict[str, AnyArray] = {}
        collection = state.collection
        failed = self.secure_sums and collection is not None and collection.total is None
        if collection is not None and not failed:
            draws["sums"] = self._noisy_sums(state, uniform)
        rate = Fraction(self.sampling_rate)  # q, exactly
        registered = state.with_agents(present, regions_of(self, state.space)).regions
        coins = [uniform(rate.denominator) < rate.numerator for _ in registered]
        return {**draws, "sampled": np.flatnonzero(coins)}

    def ask(
        self, state: DPFTSState, phase: Phase, server_round: int, present: Sequence[str], rng: Generator
    ) -> tuple[DPFTSState, dict[str, Task]]:
        if phase is not Phase.TRAIN or not present:
            return state, {}
        if state.drawn is None:
            raise ConfigError(
                "dp-fts: expected the results of secret_draws, got none; write them into state.drawn"
            )
        seed = int(rng.integers(2**63))
        state = state.released().with_agents(present, regions_of(self, state.space))
        state = replace(self._collect(state, server_round, present), drawn=None)
        shares = {} if state.collection is None else state.collection.shares
        tasks, sent = dict[str, Task](), dict(state.sent)
        for agent in present:
            trial = state.progress.of(agent)
            num_trials = self.trials_from(trial)
            # a generator per agent, so that one agent's draws do not depend on the others
            own = generator(seed, "advice", agent)
            advice = once_per_trial(sent, agent, trial, partial(self._advice, state, trial, own))
            arrays: dict[str, AnyArray] = dict(advice)
            values: dict[str, Scalar] = {"message": True} if agent in shares else {}
            if trial == 0:
                values["region"] = state.regions[agent]
            if self.secure_sums and agent in shares:
                arrays["shares"] = shares[agent]
            if agent in shares or "weights" in arrays:
                arrays |= state.features.arrays
            tasks[agent] = Task(phase, server_round, trial, num_trials, arrays, values)
        return replace(state, sent=sent), tasks

    def tell(self, state: DPFTSState, phase: Phase, replies: Replies) -> DPFTSState:
        state = replace(state, progress=state.progress.advance(replies))
        if state.collection is None:
            return state
        bound = largest_norm(self, state.space)
        messages = dict(state.collection.messages)
        for agent, report in replies.items():
            if "weights" in report.arrays and agent in state.collection.shares:
                message = floats(report.arrays["weights"])
                # clip again, in case an agent did not; with local noise the agent clips before it adds noise
                messages[agent] = message if self.noise == "local" else clip_norm(message, bound)
        total = replies.sum("sums")
        total = state.collection.total if total is None else total
        return replace(state, collection=replace(state.collection, messages=messages, total=total))

    def finished(self, state: DPFTSState) -> bool:
        return state.spent and self.when_spent == "stop"

    def results(self, state: DPFTSState) -> ServerResults:
        central = self.noise == "central"
        count = state.num_releases if central else max(state.num_messages.values(), default=0)
        counts = {"releases" if central else "messages": count, "max_epsilon": self.max_epsilon}
        return ServerResults.of_noise(self.noise, self.epsilon(count), self.delta, counts, not central)

    def export_messages(self, state: DPFTSState) -> dict[str, AnyArray]:
        if state.weights is None:
            return {}
        return {**state.features.arrays, "weights": state.weights}

    def warm_start(self, state: DPFTSState, messages: Mapping[str, AnyArray]) -> DPFTSState:
        """Return a state with the last release of an earlier study; using it again costs no privacy."""
        features, weights = rff.kept_features(messages, self.num_features, state.space.dimension)
        if len(weights) != regions_of(self, state.space):
            raise ConfigError(
                f"warm_start: expected sums of {regions_of(self, state.space)} regions, got {len(weights)}; "
                "set num_regions as in the earlier study"
            )
        return replace(state, features=features, weights=weights)

    def _noisy_sums(self, state: DPFTSState, uniform: Uniform) -> Array:
        """Return the sums of the collected messages with noise (R)."""
        collection = state.collection
        assert collection is not None
        if self.noise == "local":
            sums = np.zeros((regions_of(self, state.space), self.num_features))
            for agent in sorted(collection.messages, key=natural_key):
                sums += np.outer(collection.shares[agent], collection.messages[agent])
            return (sums if collection.total is None else collection.total) / self.sampling_rate
        bound = largest_norm(self, state.space)
        stddev = self.noise_multiplier * collection.largest * bound  # z max_n ||phi_n|| C
        noisy = add_noise(self._clear_sums(state), stddev, self._step(state.space), uniform)
        return noisy / self.sampling_rate  # 1/q

    def _clear_sums(self, state: DPFTSState) -> IntArray:
        """Return `sum_n phi_n^i clip_C(omega_n)` in steps of the grid, `(P, M)`, exactly."""
        collection, step = state.collection, self._step(state.space)
        assert collection is not None
        if collection.total is not None:
            return np.rint(collection.total / step).astype(np.int64)
        steps = np.zeros((regions_of(self, state.space), self.num_features), dtype=np.int64)
        for agent, message in collection.messages.items():
            steps += to_steps(np.outer(collection.shares[agent], message), step)  # phi_n^i omega_n
        return steps

    def _collect(self, state: DPFTSState, server_round: int, present: Sequence[str]) -> DPFTSState:
        """Ask the sampled agents for messages, if a release is due and the privacy budget allows it.

        Who is present decides whether a release is needed and whether the sample suffices for a secure sum.
        That is public. Shares, the sample and the noise do not depend on it.
        """
        if (server_round - 1) % self.release_every or state.spent or not self._needed(state, present):
            return state
        counts = dict(state.num_messages)
        if self.noise == "central":
            affordable = list(present) if self.affords(state.num_releases + 1) else []
        else:
            affordable = [agent for agent in present if self.affords(counts.get(agent, 0) + 1)]
        if not affordable:
            return replace(state, spent=True)
        shares = state.shares(regions_of(self, state.space), self.region_weight, self.region_releases)
        registered, drawn = list(shares), state.drawn or {}
        taken = {registered[i] for i in np.asarray(drawn.get("sampled", ()), dtype=np.int64)}
        sampled = [agent for agent in present if agent in taken and agent in affordable]
        if len(sampled) < self.secure_sums:
            return state  # the sample is too small for a secure sum: no release in this round
        for agent in sampled:
            counts[agent] = counts.get(agent, 0) + 1
        collection = Collection(
            {agent: shares[agent] for agent in sampled},
            max(float(np.linalg.norm(share)) for share in shares.values()),
        )
        return replace(state, collection=collection, num_messages=counts)

    def _needed(self, state: DPFTSState, present: Sequence[str]) -> bool:
        """Return whether some agent has `p_t < 1` in the next round, so that it may use a release.

        `p_t` grows with `t`, so the first step of that round decides.
        """
        trials = [state.progress.of(agent) for agent in present]
        ends = [max(trial + self.trials_from(trial), self.num_initial) for trial in trials]
        return any(own_probability(self.schedule, end - self.num_initial + 1) < 1 for end in ends)

    def _advice(self, state: DPFTSState, trial: int, rng: Generator) -> dict[str, AnyArray]:
        """Toss the coin of every step: own surrogate with probability `p_t`, else the last release."""
        if trial == 0 or state.weights is None:
            return {}
        iteration, number = trial - self.num_initial + 1, self.trials_per_round
        own = [rng.random() <= own_probability(self.schedule, iteration + step) for step in range(number)]
        if all(own):
            return {}
        steps = {STEPS: np.flatnonzero(np.logical_not(own))} if number > 1 else {}
        return {"weights": state.weights, **steps}

    # -- the agent's half ----------------------------------------------------------------------

    def propose(self, task: Task, agent_state: AgentState, rng: Rng) -> Trials:
        trial = agent_state.next_trial
        axes = agent_state.space.whole.continuous
        boxes = Boxes.halve(regions_of(self, agent_state.space), len(axes))
        if trial < self.num_initial:
            points = uniform_point(agent_state, rng()).points
            points[:, axes] = boxes.stretch(points[:, axes], int(task.values.get("region", 0)) % len(boxes))
            return Trials(points)
        if "weights" not in task.arrays or not has_step(task, trial, self.trials_per_round):
            return self.thompson_point(agent_state, rng())
        features, weights = Release.of(task).features(), floats(task.arrays["weights"])
        sums = BoxwiseLinearFunction(features, weights, boxes, axes)
        return self.maximise(sums, agent_state, rng())

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        if not task.values.get("message"):
            return ReleaseMessage()
        bound = largest_norm(self, agent_state.space)
        weights = np.zeros(self.num_features)
        if agent_state.history.num_succeeded:
            x, y = self.observations(agent_state)
            omega = self._message(Release.of(task).features(), x, y, rng())
            weights = clip_norm(omega, bound)  # clip_C(omega_n)
        elif self.noise == "central":
            return ReleaseMessage()  # with local noise zeros are sent: the message must not reveal this
        step = self._step(agent_state.space)
        return ReleaseMessage(weights=floats(to_steps(weights, step) * step))

    def protect(self, task: Task, agent_state: AgentState, content: Any, uniform: Uniform) -> Any:
        """Add local noise to the message, then multiply it by the shares if it goes into a secure sum."""
        if content.weights is None:
            return content
        weights, step = content.weights, self._step(agent_state.space)
        if self.noise == "local":
            largest = 2 * largest_norm(self, agent_state.space)  # two messages differ by 2 C
            stddev = largest * self.noise_multiplier
            weights = add_noise(to_steps(weights, step), stddev, step, uniform)
        if not self.secure_sums:
            return ReleaseMessage(weights=weights)
        sums = np.outer(floats(task.arrays["shares"]), weights)
        return ReleaseMessage(sums=floats(to_steps(sums, step) * step) if self.noise == "central" else sums)

    def message_noise(self) -> float:
        return self.noise_multiplier if self.noise == "local" else 0.0

    def _message(self, features: rff.RandomFeatures, x: Array, y: Array, rng: Generator) -> Array:
        """Return a draw or the mean of the weight posterior, `(M,)`, before clipping [Dai2020, Eqs. 2-3]."""
        if self.message == "draw":
            drawn = rff.sample_weights([features], x[None], y[None], self.message_noise_variance, [rng])
            return np.asarray(drawn[0])
        phi = features(x)
        gram = phi @ phi.T + self.message_noise_variance * np.eye(len(phi))
        mean: Array = phi.T @ cholesky(gram).solve(y)  # nu, in the dual form
        return mean

    # -- both ----------------------------------------------------------------------------------

    def _step(self, space: SearchSpace) -> float:
        """Return the step of the fixed-point grid of messages and sums."""
        return grid_step(largest_norm(self, space), self.noise_multiplier)
