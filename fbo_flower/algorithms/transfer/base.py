"""How posteriors reach the targets: each one is sent to the server once, and to each target once.

A target stores posteriors under the digest of their content, without the sender's name. A task lists the
digests of all posteriors that the target is to use and carries only those that it does not store yet; the
server derives `stored` from the reports. A target that has lost some reports `missing`, and the server sends
it everything again.

Targets are sent the same arrays where that is possible: with many agents, those of one group get the same
sample of posteriors. With arrays of its own each target would get, encode, decode and store 40 kB for each
posterior. Shared arrays are encoded once, decoded once, and in a simulation all targets of a process keep one
copy.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms.ei.local import kept_with
from fbo_flower.algorithms.messages import Content, Replies, real, whole
from fbo_flower.algorithms.options import integer
from fbo_flower.algorithms.protocol import Progress, uniform_point
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Task, Trials, floats, natural_key
from fbo_flower.algorithms.requests import Draws, Evaluation, Rng
from fbo_flower.algorithms.senders import FeatureTask, MessageOptions, drawn_features, once_per_trial
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition.feature_models import pack_symmetric
from fbo_flower.numerics.arrays import AnyArray, Array, IntArray
from fbo_flower.numerics.optim.functions import Differentiable
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import gp, rff
from fbo_flower.numerics.surrogates.rff import RandomFeatures
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True)
class WeightPosterior:
    """An agent's posterior over weights of the shared features: `omega ~ N(mean, sigma^2 inverse)`."""

    mean: Array  # `nu (M,)`
    inverse: Array  # `Sigma^-1`, its lower triangle row by row, `(M (M + 1) / 2,)`
    incumbent: Array  # `(1,)`, the agent's best value; `(0,)` if it is not sent

    @cached_property
    def digest(self) -> int:
        """The first 63 bits of SHA-256 of the content: the key under which a target stores it."""
        content = b"".join(
            np.ascontiguousarray(a).tobytes() for a in (self.mean, self.inverse, self.incumbent)
        )
        return int.from_bytes(hashlib.sha256(content).digest()[:8], "big") >> 1


@dataclass(frozen=True)
class TransferState:
    """The server's state."""

    space: SearchSpace
    features: RandomFeatures  # the shared random features
    progress: Progress = field(default_factory=Progress)  # every agent's next trial
    # agent -> the last posterior that it sent
    posteriors: Mapping[str, WeightPosterior] = field(default_factory=dict)
    replied: frozenset[str] = frozenset()  # agents that were asked for a posterior and replied
    has_features: frozenset[str] = frozenset()  # agents that store the random features
    # target -> digests of the posteriors that it stores
    stored: Mapping[str, frozenset[int]] = field(default_factory=dict)
    # target -> trial and arrays of its last task, so that a lost task is sent again unchanged
    sent: Mapping[str, tuple[int, dict[str, AnyArray]]] = field(default_factory=dict)


STORED = ("means", "inverses", "incumbents")
NO_INCUMBENTS = np.empty(0)
SHARED_FROM = 16  # posteriors in a task from which a target's own one is sent along, so that tasks are equal


class Outgoing:
    """The posteriors that a half-round's tasks carry; equal arrays of several tasks are one object."""

    def __init__(
        self, posteriors: Mapping[str, WeightPosterior], max_members: int, with_incumbents: bool
    ) -> None:
        self._limit, self._with_incumbents = max_members, with_incumbents
        self._posteriors = {agent: posteriors[agent] for agent in sorted(posteriors, key=natural_key)}
        self._samples: dict[int, list[str]] = {}
        self._made: dict[tuple[int, ...], dict[str, AnyArray]] = {}

    def arrays(self, agent: str, stored: Mapping[str, frozenset[int]]) -> dict[str, AnyArray]:
        """Return the digests of the posteriors for a target, and the content of those it does not store."""
        sample = self._sample(agent)
        digests = {a: self._posteriors[a].digest for a in sample}
        others = [a for a in sample if a != agent][: self._limit]
        wanted = tuple(dict.fromkeys(digests[a] for a in others))  # equal posteriors of two agents count once
        if not wanted:
            return {}
        has = stored.get(agent, frozenset())
        missing = [a for a in others if digests[a] not in has]
        arrays: dict[str, AnyArray] = {"members": np.array(wanted, dtype=np.int64)}
        if len(missing) >= SHARED_FROM:
            missing = [a for a in sample if digests[a] not in has]
        if not missing:
            return arrays
        content = {digests[a]: self._posteriors[a] for a in missing}
        if (key := tuple(content)) not in self._made:
            sent = content.values()
            self._made[key] = {"means": np.array([p.mean for p in sent])}
            self._made[key]["inverses"] = np.array([p.inverse for p in sent])
            if self._with_incumbents:
                self._made[key]["incumbents"] = np.concatenate([p.incumbent for p in sent])
        return arrays | self._made[key]

    def _sample(self, agent: str) -> list[str]:
        """Return the agents whose posteriors a target is sent: perhaps itself too, and perhaps one too many.

        If there are many, each group of targets has its own sample, the same in every round, so that a
        posterior is sent once.
        """
        everyone = list(self._posteriors)
        if len(everyone) - (agent in self._posteriors) <= self._limit:
            return everyone
        num_groups = -(-len(everyone) // self._limit)
        group = int(generator(0, "group", agent).integers(num_groups))
        if group not in self._samples:
            rng = generator(0, "members", group)
            chosen = rng.choice(len(everyone), self._limit + 1, replace=False)
            chosen[:-1].sort()  # the last one is for the targets that are in the sample themselves
            self._samples[group] = [everyone[i] for i in chosen]
        return self._samples[group]


def received(arrays: Mapping[str, Array]) -> tuple[list[int], dict[str, Array]]:
    """Return the digests of the posteriors in a task, and arrays of them that a state can keep.

    All targets that share the arrays `STORED` of their tasks share what is returned.
    """
    kept = kept_with(arrays["means"])
    rest, found = kept.get("received", ((), None))
    if found is None or any(rest[i] is not arrays[name] for i, name in enumerate(STORED[1:])):
        means, inverses, incumbents = (arrays[name] for name in STORED)
        best = incumbents.reshape(-1, 1) if len(incumbents) else np.empty((len(means), 0))
        rows = zip(means, inverses, best, strict=True)
        found = [WeightPosterior(*row).digest for row in rows], {n: _own(arrays[n]) for n in STORED}
        kept["received"] = (inverses, incumbents), found
    digests: list[int]
    digests, settled = found
    return digests, settled


def _own(array: Array) -> Array:
    """Return a copy that cannot be written, which a state keeps as it is."""
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy


@dataclass(frozen=True)
class Members:
    """The other agents' surrogates that a target uses: `K` weight posteriors over shared features."""

    features: rff.RandomFeatures  # the shared random features
    means: Array  # `(K, M)`, the `nu_n`
    inverses: Array  # `(K, M (M + 1) / 2)`, lower triangles of the `Sigma_n^-1`
    incumbents: Array  # `(K,)`, best values; `(0,)` if they are not sent


def triangle(algorithm: Transfer, space: SearchSpace) -> int:
    """Return the length of the lower triangle of a matrix `(M, M)`."""
    return algorithm.num_features * (algorithm.num_features + 1) // 2


def most_rows(algorithm: Transfer, space: SearchSpace) -> int:
    """Return the largest number of posteriors in a task."""
    return algorithm.max_members + 1


@dataclass(frozen=True, kw_only=True)
class Posteriors(FeatureTask):
    """A task: the shared features, posteriors that are new to the agent, and which ones it is to use."""

    members: Annotated[IntArray | None, whole(None, high=2**63 - 1, most="max_members")] = None
    means: Annotated[Array | None, real(None, "num_features", most=most_rows)] = None
    inverses: Annotated[Array | None, real(None, triangle, most=most_rows)] = None
    incumbents: Annotated[Array | None, real(None, most=most_rows, only_if="sends_incumbent")] = None


@dataclass(frozen=True, kw_only=True)
class PosteriorReport(Content):
    """A report: the agent's weight posterior; or that it lacks what the task relies on."""

    mean: Annotated[Array | None, real("num_features", low=-1e6, high=1e6)] = None
    inverse: Annotated[Array | None, real(triangle, low=-1e9, high=1e9)] = None
    incumbent: Annotated[Array | None, real(1, low=-1e6, high=1e6, only_if="sends_incumbent")] = None
    missing: bool = False


@dataclass(frozen=True, kw_only=True)
class Transfer(MessageOptions[TransferState]):
    """A target maximises an acquisition function of its own surrogate and the other agents' posteriors.

    Parameters
    ----------
    refresh_every : rounds between two posteriors of an agent
    num_features : `M`, number of random Fourier features; a posterior has `M (M + 3) / 2` numbers
    max_members : largest number of other agents' posteriors that a target uses; if there are more, a random
        sample, fixed for each group of targets
    """

    task_content: ClassVar[type[Content]] = Posteriors
    report_content: ClassVar[type[Content]] = PosteriorReport

    refresh_every: int = 5
    num_features: int = integer(100, 1, 1024)
    max_members: int = integer(64, 1, 1024)

    @property
    def sends_incumbent(self) -> bool:
        """Whether an agent sends its best value with its posterior."""
        return False

    @abstractmethod
    def acquisition(self, posterior: gp.Posterior, members: Members, rng: Generator) -> Differentiable:
        """Return the acquisition function that the target maximises next."""

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: Generator) -> TransferState:
        self.check_targets(federation)
        features = drawn_features(self.num_features, self.lengthscale, federation.space, rng)
        return TransferState(federation.space, features)

    def ask(
        self, state: TransferState, phase: Phase, server_round: int, present: Sequence[str], rng: Generator
    ) -> tuple[TransferState, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        outgoing = Outgoing(state.posteriors, self.max_members, self.sends_incumbent)
        tasks: dict[str, Task] = {}
        sent = dict(state.sent)
        for agent in present:
            trial = state.progress.of(agent)
            tunes = self.is_target(agent)
            num_trials = self.trials_from(trial) if tunes else 0
            message = self.is_due(agent, state.replied, server_round)
            arrays = {} if agent in state.has_features else state.features.arrays
            if tunes and trial > 0:
                advice = once_per_trial(sent, agent, trial, partial(outgoing.arrays, agent, state.stored))
                arrays |= advice
            if num_trials or message:
                values = {"message": True} if message else {}
                tasks[agent] = Task(phase, server_round, trial, num_trials, arrays, values)
        return replace(state, sent=sent), tasks

    def tell(self, state: TransferState, phase: Phase, reports: Replies) -> TransferState:
        posteriors, stored = dict(state.posteriors), dict(state.stored)
        replied, has_features = set(state.replied), set(state.has_features)
        for agent, report in reports.items():
            found = PosteriorReport.of(report)
            if found.mean is not None and found.inverse is not None:
                incumbent = np.empty(0) if found.incumbent is None else found.incumbent
                posteriors[agent] = WeightPosterior(*map(floats, (found.mean, found.inverse, incumbent)))
            if found.mean is not None or not report.num_trials:
                replied.add(agent)
            if report.num_trials:  # then its state is written, with what the task brought
                has_features.add(agent)
                trial, arrays = state.sent.get(agent, (-1, {}))
                if trial == report.trial and "members" in arrays:
                    stored[agent] = frozenset(arrays["members"].tolist())
            if found.missing:
                has_features.discard(agent)
                stored[agent] = frozenset()
        return replace(
            state, progress=state.progress.advance(reports), posteriors=posteriors, stored=stored,
            replied=frozenset(replied), has_features=frozenset(has_features),
        )  # fmt: skip

    def export_messages(self, state: TransferState) -> dict[str, AnyArray]:
        if not state.posteriors:
            return {}
        posteriors = [state.posteriors[a] for a in sorted(state.posteriors, key=natural_key)]
        return {
            **state.features.arrays,
            "means": np.array([p.mean for p in posteriors]),
            "inverses": np.array([p.inverse for p in posteriors]),
            "incumbents": np.array([p.incumbent for p in posteriors]),
        }

    def warm_start(self, state: TransferState, messages: Mapping[str, AnyArray]) -> TransferState:
        """Return a state with the features and the posteriors of an earlier study."""
        kept = {**messages, "weights": messages.get("means", np.empty(0))}
        features, means = rff.kept_features(kept, self.num_features, state.space.dimension)
        sizes = {"inverses": triangle(self, state.space), "incumbents": int(self.sends_incumbent)}
        found = {name: floats(messages.get(name, np.empty(0))) for name in sizes}
        for name, array in found.items():
            shape = len(means), sizes[name]
            if array.shape != shape or not np.isfinite(array).all():
                raise ConfigError(f"{name}: expected finite numbers of shape {shape}, got {array.shape}")
        rows = enumerate(zip(means, *found.values(), strict=True))
        earlier = {f"earlier.{i}": WeightPosterior(*parts) for i, parts in rows}
        return replace(state, features=features, posteriors=earlier)

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        """Store what the task brings, then do its trials."""
        return super().session(task, self.absorbed(task, agent_state), draws, evaluate)

    def absorbed(self, task: Task, agent_state: AgentState) -> AgentState:
        """Return the agent's state with a task's features, and with those posteriors that the task lists.

        Arrays that hold all of them are stored as they are, also if they hold others too.
        """
        new = {name: task.arrays[name] for name in ("frequencies", "phases") if name in task.arrays}
        state = agent_state.write(**new)
        if "members" not in task.arrays:
            return state
        wanted: list[int] = task.arrays["members"].tolist()
        sources = [a for a in map(self._readable, (agent_state.arrays, task.arrays)) if a is not None]
        for digests, arrays in reversed(sources):
            if set(wanted) <= set(digests):
                return state.write(digests=np.array(digests, dtype=np.int64), **arrays)
        found = {
            digest: [arrays[name][row : row + 1] for name in STORED]
            for digests, arrays in sources
            for row, digest in enumerate(digests)
        }
        chosen = [digest for digest in wanted if digest in found]
        nothing = np.empty((0, self.num_features)), np.empty((0, triangle(self, state.space))), np.empty(0)
        parts = {
            name: np.concatenate([none, *(found[digest][i] for digest in chosen)])
            for i, (name, none) in enumerate(zip(STORED, nothing, strict=True))
        }
        return state.write(digests=np.array(chosen, dtype=np.int64), **parts)

    def _readable(self, source: Mapping[str, AnyArray]) -> tuple[list[int], dict[str, Array]] | None:
        """Return digests and arrays of the posteriors in a task or in an agent's state, None without any."""
        if "means" not in source:
            return None
        arrays = {name: floats(source[name]) for name in STORED if name in source}
        if not self.sends_incumbent or "incumbents" not in arrays:
            arrays["incumbents"] = NO_INCUMBENTS
        if "digests" in source:
            return source["digests"].tolist(), arrays
        return received(arrays)

    def others(self, task: Task, agent_state: AgentState) -> Members:
        """Return the stored posteriors that the task lists, or without a list all of them."""
        features = rff.shared_features(agent_state.arrays)
        if features is None or "means" not in agent_state.arrays:
            shape = self.num_features, agent_state.space.dimension
            empty = np.empty((0, self.num_features)), np.empty((0, 0)), np.empty(0)
            return Members(rff.RandomFeatures(np.zeros(shape), np.zeros(self.num_features)), *empty)
        means, inverses, incumbents = (floats(agent_state.arrays[name]) for name in STORED)
        if "members" in task.arrays:
            row_of = {digest: row for row, digest in enumerate(agent_state.arrays["digests"].tolist())}
            rows = [row_of[digest] for digest in task.arrays["members"].tolist() if digest in row_of]
            chosen = slice(len(rows)) if rows == list(range(len(rows))) else rows  # a slice copies nothing
            means, inverses = means[chosen], inverses[chosen]
            incumbents = incumbents[chosen] if len(incumbents) else incumbents
        return Members(features, means, inverses, incumbents)

    def propose(self, task: Task, agent_state: AgentState, rng: Rng) -> Trials:
        draws = rng()
        if agent_state.next_trial < self.num_initial or not agent_state.history.num_succeeded:
            return uniform_point(agent_state, draws)
        x, y = self.observations(agent_state)
        posterior = gp.posterior(x, y, self._fitted(agent_state))
        function = self.acquisition(posterior, self.others(task, agent_state), draws)
        return self.maximise(function, agent_state, draws)

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        features = rff.shared_features(agent_state.arrays)
        missing = False
        if "members" in task.arrays:  # has the agent lost what the task does not carry?
            stored = agent_state.arrays.get("digests", np.empty(0)).tolist()
            missing = features is None or not set(task.arrays["members"].tolist()) <= set(stored)
        if not task.values.get("message") or not agent_state.history.num_succeeded or features is None:
            return PosteriorReport(missing=missing)
        x, y = self.observations(agent_state)
        # nu and Sigma^-1 [Dai2020, Eq. 2]
        nu, inverse = rff.weight_posterior(features(x), y, self.message_noise_variance)
        incumbent = np.array([y.max()]) if self.sends_incumbent else None
        return PosteriorReport(missing=missing, mean=nu, inverse=pack_symmetric(inverse), incumbent=incumbent)
