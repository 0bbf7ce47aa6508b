"""How posteriors reach the targets: each one is sent to the server once, and to each target once.

A target stores posteriors under the digest of their content, without the sender's name. A task lists the
digests of all posteriors that the target is to use and carries only those that it does not store yet; the
server derives `stored` from the reports. A target that has lost some reports `missing`, and the server sends
it everything again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.fts.messages import check_targets, is_due, is_target, shared_lengthscales
from fbo_flower.algorithms.progress import once_per_trial
from fbo_flower.algorithms.random_search import uniform_point
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    Outcome,
    Payload,
    Phase,
    Query,
    Report,
    Scalar,
    Task,
    floats,
    natural_key,
)
from fbo_flower.algorithms.schema import ArraySpec, Schema
from fbo_flower.algorithms.transfer.options import TransferOptions, TransferState, WeightPosterior
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition.feature_models import pack_symmetric
from fbo_flower.numerics.optim.functions import Differentiable
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import gp, rff
from fbo_flower.space.space import SearchSpace

STORED = ("means", "inverses", "incumbents")


@dataclass(frozen=True)
class Members:
    """The other agents' surrogates that a target uses: `K` weight posteriors over shared features.

    Parameters
    ----------
    features : the shared random features
    means : `(K, M)`, the `nu_n`
    inverses : `(K, M (M + 1) / 2)`, lower triangles of the `Sigma_n^-1`
    incumbents : `(K,)`, best values; `(0,)` if they are not sent
    """

    features: rff.RandomFeatures
    means: Array
    inverses: Array
    incumbents: Array


@dataclass(frozen=True, kw_only=True)
class Transfer(TransferOptions):
    """A target maximises an acquisition function of its own surrogate and the other agents' posteriors."""

    barrier: ClassVar[str] = ""
    needs_all_parameters: ClassVar[str] = ""

    def sends_incumbent(self) -> bool:
        """Return whether an agent sends its best value with its posterior."""
        return False

    @abstractmethod
    def acquisition(
        self, posterior: gp.Posterior, members: Members, rng: np.random.Generator
    ) -> Differentiable:
        """Return the acquisition function that the target maximises next."""

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> TransferState:
        check_targets(self, federation)
        columns = federation.space.num_features
        scales = shared_lengthscales(self.lengthscale, federation.space)
        return TransferState(federation.space, rff.draw_features(self.num_features, scales, columns, rng))

    def ask(
        self,
        state: TransferState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[TransferState, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        digests = {agent: posterior.digest for agent, posterior in state.posteriors.items()}
        tasks: dict[str, Task] = {}
        sent = dict(state.sent)
        for agent in present:
            trial = state.progress.of(agent)
            tunes = is_target(self, agent)
            num_trials = self.trials_from(trial) if tunes else 0
            arrays: dict[str, AnyArray] = {}
            values: dict[str, Scalar] = {}
            if tunes and trial > 0:
                content = once_per_trial(sent, agent, trial, partial(self._members, state, agent, digests))
                arrays.update(content)
            if is_due(self, agent, state.answered, server_round):
                values["message"] = True
            if agent not in state.has_features:
                arrays["frequencies"] = state.features.frequencies
                arrays["phases"] = state.features.phases
            if num_trials or values:
                tasks[agent] = Task(phase, server_round, trial, num_trials, arrays, values)
        return replace(state, sent=sent), tasks

    def _members(self, state: TransferState, agent: str, digests: Mapping[str, int]) -> dict[str, AnyArray]:
        """Return the digests of the posteriors for a target, and the content of those it does not store."""
        others = sorted((a for a in digests if a != agent), key=natural_key)
        if len(others) > self.max_members:
            # each target has its own sample, the same in every round, so that a posterior is sent once
            own = generator(0, "members", agent)
            chosen = np.sort(own.choice(len(others), self.max_members, replace=False))
            others = [others[i] for i in chosen]
        wanted = dict.fromkeys(digests[a] for a in others)  # equal posteriors of two agents count once
        if not wanted:
            return {}
        stored = state.stored.get(agent, frozenset())
        content = {digests[a]: state.posteriors[a] for a in others if digests[a] not in stored}
        arrays: dict[str, AnyArray] = {"members": np.array(list(wanted), dtype=np.int64)}
        if content:
            arrays["means"] = np.array([p.mean for p in content.values()])
            arrays["inverses"] = np.array([p.inverse for p in content.values()])
            if self.sends_incumbent():
                arrays["incumbents"] = np.concatenate([p.incumbent for p in content.values()])
        return arrays

    def tell(self, state: TransferState, phase: Phase, reports: Mapping[str, Report]) -> TransferState:
        posteriors, stored = dict(state.posteriors), dict(state.stored)
        for agent, report in reports.items():
            if {"mean", "inverse"} <= report.arrays.keys():
                posteriors[agent] = WeightPosterior(
                    floats(report.arrays["mean"]),
                    floats(report.arrays["inverse"]),
                    floats(report.arrays.get("incumbent", np.empty(0))),
                )
            trial, arrays = state.sent.get(agent, (-1, {}))
            if trial == report.trial and "members" in arrays and report.num_trials:
                stored[agent] = frozenset(_integers(arrays["members"]))
            if report.values.get("missing"):
                stored[agent] = frozenset()
        answered = [a for a, r in reports.items() if "mean" in r.arrays or r.num_trials == 0]
        # an agent stores the features when it evaluates, because only then its state is written
        evaluated = [a for a, r in reports.items() if r.num_trials]
        lost = {a for a, r in reports.items() if r.values.get("missing")}
        return replace(
            state,
            progress=state.progress.advance(reports),
            posteriors=posteriors,
            answered=state.answered.union(answered),
            has_features=state.has_features.union(evaluated) - lost,
            stored=stored,
        )

    def export_messages(self, state: TransferState) -> dict[str, AnyArray]:
        if not state.posteriors:
            return {}
        posteriors = [state.posteriors[a] for a in sorted(state.posteriors, key=natural_key)]
        return {
            "frequencies": state.features.frequencies,
            "phases": state.features.phases,
            "means": np.array([p.mean for p in posteriors]),
            "inverses": np.array([p.inverse for p in posteriors]),
            "incumbents": np.array([p.incumbent for p in posteriors]),
        }

    def warm_start(self, state: TransferState, messages: Mapping[str, AnyArray]) -> TransferState:
        """Return a state with the features and the posteriors of an earlier study."""
        columns = state.space.num_features
        features, means = rff.kept_features(
            {**messages, "weights": messages.get("means", np.empty(0))}, self.num_features, columns
        )
        packed = self.num_features * (self.num_features + 1) // 2
        inverses, best = (floats(messages.get(name, np.empty(0))) for name in ("inverses", "incumbents"))
        for name, array, size in (
            ("inverses", inverses, packed),
            ("incumbents", best, int(self.sends_incumbent())),
        ):
            if array.shape != (len(means), size) or not np.isfinite(array).all():
                raise ConfigError(
                    f"{name}: expected finite numbers of shape {(len(means), size)}, got {array.shape}"
                )
        earlier = {
            f"earlier.{i}": WeightPosterior(*parts)
            for i, parts in enumerate(zip(means, inverses, best, strict=True))
        }
        return replace(state, features=features, posteriors=earlier)

    # -- the agent's half ----------------------------------------------------------------------

    def propose(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Query | None:
        trial = agent_state.next_trial
        if trial >= task.end:
            return None
        if trial < self.num_initial or not agent_state.history.num_succeeded:
            return uniform_point(agent_state, rng)
        x, y = self.observations(agent_state)
        posterior = gp.posterior(x, y, self.hyperparameters(agent_state, rng))
        members = self._read_members(task, agent_state)
        return self.maximiser(self.acquisition(posterior, members, rng), agent_state, rng)

    def learn(
        self, task: Task, agent_state: AgentState, outcome: Outcome, rng: np.random.Generator
    ) -> AgentState:
        agent_state = super().learn(task, agent_state, outcome, rng)
        features = {name: task.arrays[name] for name in ("frequencies", "phases") if name in task.arrays}
        stored = self._stored(task, agent_state) if "members" in task.arrays else {}
        return agent_state.write(**features, **stored)

    def _stored(self, task: Task, agent_state: AgentState) -> dict[str, AnyArray]:
        """Return the posteriors that a target stores after a task: those listed in it that are available."""
        incumbents = self.sends_incumbent()
        packed = self.num_features * (self.num_features + 1) // 2
        found: dict[int, WeightPosterior] = {}
        for arrays in (agent_state.arrays, task.arrays):
            if "means" in arrays:
                rows = [floats(arrays[name]) for name in STORED if name in arrays]
                none = np.empty((len(rows[0]), 0))
                best = rows[2].reshape(-1, 1) if incumbents and len(rows) == 3 else none
                posteriors = [WeightPosterior(*parts) for parts in zip(rows[0], rows[1], best, strict=True)]
                digests = (
                    _integers(arrays["digests"]) if "digests" in arrays else [p.digest for p in posteriors]
                )
                found.update(zip(digests, posteriors, strict=True))
        wanted = [digest for digest in _integers(task.arrays["members"]) if digest in found]
        chosen = [found[digest] for digest in wanted]
        return {
            "digests": np.array(wanted, dtype=np.int64),
            "means": np.array([c.mean for c in chosen]).reshape(-1, self.num_features),
            "inverses": np.array([c.inverse for c in chosen]).reshape(-1, packed),
            "incumbents": np.concatenate([np.empty(0), *(c.incumbent for c in chosen)]),
        }

    def _read_members(self, task: Task, agent_state: AgentState) -> Members:
        """Return the posteriors that the task lists, else those stored in the agent's state, else none."""
        stored: Mapping[str, AnyArray] = agent_state.arrays
        if "members" in task.arrays:
            stored = self._stored(task, agent_state)
        features = shared_features(task, agent_state)
        if features is None or "means" not in stored:
            empty = np.empty((0, self.num_features))
            features = rff.RandomFeatures(
                np.zeros((self.num_features, agent_state.space.num_features)), np.zeros(self.num_features)
            )
            return Members(features, empty, np.empty((0, 0)), np.empty(0))
        return Members(features, *(floats(stored[name]) for name in STORED))

    def summarise(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Payload:
        values = self._missing(task, agent_state)
        features = shared_features(task, agent_state)
        if not task.values.get("message") or not agent_state.history.num_succeeded or features is None:
            return Payload(values=values)
        x, y = self.observations(agent_state)
        # nu and Sigma^-1 [Dai2020, Eq. 2]
        nu, inverse = rff.weight_posterior(features(x), y, self.message_noise_variance)
        arrays: dict[str, AnyArray] = {"mean": nu, "inverse": pack_symmetric(inverse)}
        if self.sends_incumbent():
            arrays["incumbent"] = np.array([y.max()])
        return Payload(arrays, values)

    def _missing(self, task: Task, agent_state: AgentState) -> dict[str, Scalar]:
        """Return `missing` if the agent has lost features or posteriors that the task does not carry."""
        if "members" not in task.arrays:
            return {}
        num_listed = len(task.arrays["members"])
        num_stored = len(agent_state.arrays["means"]) if "means" in agent_state.arrays else 0
        lost_features = shared_features(task, agent_state) is None
        return {"missing": True} if num_stored < num_listed or lost_features else {}

    # -- what may cross the wire ---------------------------------------------------------------

    def task_schema(self, space: SearchSpace) -> Schema:
        m, packed = self.num_features, self.num_features * (self.num_features + 1) // 2
        arrays = {
            "frequencies": ArraySpec((m, space.num_features)),
            "phases": ArraySpec((m,), low=0.0, high=2 * np.pi),
            "members": ArraySpec((None,), "int64", 0, 2**63 - 1, self.max_members),
            "means": ArraySpec((None, m), max_length=self.max_members),
            "inverses": ArraySpec((None, packed), max_length=self.max_members),
        }
        if self.sends_incumbent():
            arrays["incumbents"] = ArraySpec((None,), max_length=self.max_members)
        return Schema(arrays=arrays, values={"message": bool})

    def report_schema(self, space: SearchSpace) -> Schema:
        m, packed = self.num_features, self.num_features * (self.num_features + 1) // 2
        arrays = {
            "mean": ArraySpec((m,), low=-1e6, high=1e6),
            "inverse": ArraySpec((packed,), low=-1e9, high=1e9),
        }
        if self.sends_incumbent():
            arrays["incumbent"] = ArraySpec((1,), low=-1e6, high=1e6)
        return Schema(arrays=arrays, values={"missing": bool})


def shared_features(task: Task, agent_state: AgentState) -> rff.RandomFeatures | None:
    """Return the random features in the task, else those stored in the agent's state, else None."""
    for arrays in (task.arrays, agent_state.arrays):
        if "frequencies" in arrays and "phases" in arrays:
            return rff.RandomFeatures(floats(arrays["frequencies"]), floats(arrays["phases"]))
    return None


def _integers(array: AnyArray) -> list[int]:
    return [int(i) for i in array]
