"""Protocols for abilities that only some algorithms have: `isinstance(algorithm, WarmStartable)`.

An algorithm has an ability when it has the methods; it need not inherit from the protocol. Test
`unwrapped(algorithm)`, because with secure sums the algorithm is wrapped in `SecureAggregation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from fbo_flower.algorithms.ability_check import CheckedOncePerClass
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Payload, Phase, Report, Task
from fbo_flower.algorithms.summing import SecureRounds, unwrapped, unwrapped_state
from fbo_flower.numerics.discrete_noise import Uniform
from fbo_flower.space.space import SearchSpace

# -- warm starts and results ---------------------------------------------------------------------


@runtime_checkable
class WarmStartable(Protocol, metaclass=CheckedOncePerClass):
    """A study can start from the messages of an earlier one."""

    def export_messages(self, state: Any) -> dict[str, AnyArray]:
        """Return the messages from which another study can start; empty if there are none."""
        ...

    def warm_start(self, state: Any, messages: Mapping[str, AnyArray]) -> Any:
        """Return the initial state with the messages of an earlier study.

        Raises
        ------
        ConfigError
            If the messages do not fit the options.
        """
        ...


@dataclass(frozen=True)
class ServerResults:
    """The server's results at the end of a study, as rows of the study's tables.

    Parameters
    ----------
    models : rows with the columns of `study.schema.MODELS`, except `algorithm`
    judgements : rows with the columns of `study.schema.JUDGEMENTS`, except `algorithm`
    recommendations : agent -> `(point (D,), value)`, used instead of the agent's own best trial
    privacy : the privacy spent where noise is used: `epsilon`, `delta` and the counts that they follow from.
        The strategy adds `noise_from`: "seed", "system" or "agents"
    """

    models: Sequence[Mapping[str, object]] = ()
    judgements: Sequence[Mapping[str, object]] = ()
    recommendations: Mapping[str, tuple[Array, float]] = field(default_factory=dict)
    privacy: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of_noise(
        cls, noise: str, epsilon: float, delta: float, counts: Mapping[str, object], by_agents: bool = True
    ) -> ServerResults:
        """Return the privacy spent by noise; `epsilon` is None where there is no noise, so no bound."""
        source = {"noise_from": "agents"} if by_agents else {}
        spent = epsilon if np.isfinite(epsilon) else None
        return cls(privacy={"noise": noise, **source, "epsilon": spent, "delta": delta, **counts})


@runtime_checkable
class ReportsResults(Protocol, metaclass=CheckedOncePerClass):
    """The server has results besides the trials that agents disclose."""

    def results(self, state: Any) -> ServerResults | None:
        """Return the server's results; None if there are none yet."""
        ...


@runtime_checkable
class DescribesProgress(Protocol, metaclass=CheckedOncePerClass):
    """The server adds lines to the log, and an entry to the settings of the study."""

    def progress_lines(self, state: Any, before: Any) -> list[str]:
        """Return the log lines for what changed from state `before` to `state` in a half-round."""
        ...

    def description(self, state: Any) -> dict[str, object]:
        """Return JSON values for the entry `found` of the run's settings."""
        ...


@runtime_checkable
class SeesTasksUnderWay(Protocol, metaclass=CheckedOncePerClass):
    """Without a barrier, the server takes into account what agents are at work on when it asks others."""

    def with_under_way(self, state: Any, tasks: Mapping[str, Task]) -> Any:
        """Return the state for the next `ask`, with the tasks of agents that have not answered yet."""
        ...


# -- what agents answer ----------------------------------------------------------------------------


@runtime_checkable
class SharesEvaluations(Protocol, metaclass=CheckedOncePerClass):
    """Some parts of a task may change when it is sent again, and its evaluations stay the same."""

    def evaluation_task(self, task: Task) -> Task:
        """Return the task without these parts. Tasks that differ only in them are one piece of work."""
        ...


def evaluation_task(algorithm: Algorithm[Any], task: Task) -> Task:
    """Return the part of a task that its evaluations depend on."""
    return algorithm.evaluation_task(task) if isinstance(algorithm, SharesEvaluations) else task


@runtime_checkable
class NamesReports(Protocol, metaclass=CheckedOncePerClass):
    """Agents send several kinds of report about the same observations."""

    def report_kind(self, task: Task) -> str | None:
        """Return the kind of report that a task without trials asks for; an agent sends each kind once.

        None: the report holds nothing about observations, and the agent may send it any number of times.
        """
        ...


def report_kind(algorithm: Algorithm[Any], task: Task) -> str | None:
    """Return the kind of report that a task without trials asks for; see `NamesReports`."""
    core = unwrapped(algorithm)
    return core.report_kind(task) if isinstance(core, NamesReports) else ""


# -- what agents do and disclose -------------------------------------------------------------------


@runtime_checkable
class AsksConsent(Protocol, metaclass=CheckedOncePerClass):
    """Some arrays of a report leave an agent only if its operator allows it; the algorithm works without.

    Attributes
    ----------
    consent : name of an array in a report -> the settings of `disclose` with which it may leave
    """

    consent: ClassVar[Mapping[str, tuple[str, ...]]]


def consented(algorithm: Algorithm[Any], report: Report, disclose: str) -> Report:
    """Return the report without the arrays that the operator's setting `disclose` keeps at the agent."""
    core = unwrapped(algorithm)
    if not isinstance(core, AsksConsent):
        return report
    kept = {n: a for n, a in report.arrays.items() if disclose in core.consent.get(n, (disclose,))}
    return replace(report, arrays=kept)


@runtime_checkable
class ProtectsReports(Protocol, metaclass=CheckedOncePerClass):
    """Noise or masks are added to a report before it leaves the agent."""

    def protect(self, task: Task, agent_state: AgentState, payload: Payload, uniform: Uniform) -> Payload:
        """Return what the agent sends instead of `payload`, which `summarise` returned.

        Parameters
        ----------
        uniform : source of all noise: `uniform(n)` returns a uniform integer in `[0, n)`. On devices it is
            the operating system's generator, which nobody can seed or repeat
        """
        ...


@runtime_checkable
class DrawsInSecret(Protocol, metaclass=CheckedOncePerClass):
    """The server draws noise and samples for differential privacy; nobody may be able to repeat these draws.

    The strategy calls `secret_draws` once before `ask`, records the returned results in the journal, and
    gives them to `with_draws`. A replayed journal gives the recorded results again, so a study can be resumed
    bit for bit although no seed is kept. Only results are recorded, e.g. a sum with noise, never the noise.
    """

    def secret_draws(
        self, state: Any, phase: Phase, server_round: int, present: Sequence[str], uniform: Uniform
    ) -> Mapping[str, AnyArray]:
        """Return the results of all private draws of the next `ask`, which gets the same arguments.

        Parameters
        ----------
        uniform : source of all draws: `uniform(n)` returns a uniform integer in `[0, n)`
        """
        ...

    def with_draws(self, state: Any, draws: Mapping[str, AnyArray]) -> Any:
        """Return the state with the results of `secret_draws`, for the next `ask`."""
        ...


def secret_draws(
    algorithm: Algorithm[Any],
    state: Any,
    phase: Phase,
    server_round: int,
    present: Sequence[str],
    uniform: Uniform,
) -> Mapping[str, AnyArray]:
    """Return what `algorithm` draws in secret before `ask`; nothing if it makes no such draws."""
    core = unwrapped(algorithm)
    if not isinstance(core, DrawsInSecret):
        return {}
    return core.secret_draws(unwrapped_state(algorithm, state), phase, server_round, present, uniform)


def with_draws(algorithm: Algorithm[Any], state: Any, draws: Mapping[str, AnyArray]) -> Any:
    """Return the state with the results of `secret_draws`, for an algorithm that may be wrapped."""
    core = unwrapped(algorithm)
    if not isinstance(core, DrawsInSecret):
        return state
    inner = core.with_draws(unwrapped_state(algorithm, state), draws)
    return algorithm.with_inner_state(state, inner) if isinstance(algorithm, SecureRounds) else inner


@runtime_checkable
class AccountsPrivacy(Protocol, metaclass=CheckedOncePerClass):
    """Agents add noise to their messages, and the epsilon that each message costs is known."""

    def uses_observations(self, task: Task, space: SearchSpace) -> bool:
        """Return whether the report of a task may depend on the agent's observations."""
        ...

    def message_noise(self) -> float:
        """Return the noise multiplier of an agent's own noise on a message; 0 if agents add none."""
        ...


def uses_observations(algorithm: Algorithm[Any], task: Task, space: SearchSpace) -> bool:
    """Return whether the report of a task may depend on the agent's observations."""
    if isinstance(algorithm, SecureRounds) and task.phase in (Phase.EVALUATE, Phase.REVEAL):
        return False  # the agent sends only a signature and shares of masks
    core = unwrapped(algorithm)
    if isinstance(core, AccountsPrivacy):
        return core.uses_observations(task, space)
    schema = core.report_schema(space)
    return bool(schema.arrays or schema.values)


@runtime_checkable
class NeedsTrials(Protocol, metaclass=CheckedOncePerClass):
    """With some options reports hold points and values; then only agents that disclose trials take part."""

    def reports_trials(self) -> bool:
        """Return whether reports hold points and values."""
        ...


@runtime_checkable
class ReusesValues(Protocol, metaclass=CheckedOncePerClass):
    """The objective may be declared deterministic; then agents evaluate a point once and reuse its value."""

    def reuses_values(self) -> bool:
        """Return whether agents evaluate each point once."""
        ...


@runtime_checkable
class EstimatesIncumbent(Protocol, metaclass=CheckedOncePerClass):
    """The agent stores statistics instead of a history of trials, and derives its best value from them."""

    def incumbent(self, agent_state: AgentState) -> float:
        """Return the agent's best value of this study so far, NaN before the first success."""
        ...


def incumbent(algorithm: Algorithm[Any], agent_state: AgentState) -> float:
    """Return the agent's best value of this study so far, NaN before the first success."""
    core = unwrapped(algorithm)
    if isinstance(core, EstimatesIncumbent):
        return core.incumbent(agent_state)
    values = agent_state.history.final_values(own=True)
    return float(np.nanmax(values)) if np.isfinite(values).any() else float("nan")


@runtime_checkable
class SeesNoise(Protocol, metaclass=CheckedOncePerClass):
    """The agent's model tells noise from the objective: the largest value seen is not always the best."""

    def best_mean(self, agent_state: AgentState, *, own: bool = True) -> tuple[Array, float] | None:
        """Return the evaluated point `(D,)` that has the best posterior mean, and this mean as a value.

        Parameters
        ----------
        own : whether only points of this study count

        Returns
        -------
        None if noise is not evident: then the best value seen is the best.
        """
        ...


def best_mean(algorithm: Algorithm[Any], agent_state: AgentState) -> tuple[Array, float] | None:
    """Return the evaluated point with the best posterior mean, None if no noise is evident."""
    core = unwrapped(algorithm)
    return core.best_mean(agent_state) if isinstance(core, SeesNoise) else None


@runtime_checkable
class HasTargets(Protocol, metaclass=CheckedOncePerClass):
    """Only some agents tune; the others only send messages."""

    @property
    def targets(self) -> str | tuple[str, ...]:
        """The option: "all", or the agents that tune."""
        ...


@runtime_checkable
class HasInitialDesign(Protocol, metaclass=CheckedOncePerClass):
    """Every agent begins with an initial design, a batch of trials that no model has chosen."""

    @property
    def num_initial(self) -> int:
        """The number of trials in that batch."""
        ...


@runtime_checkable
class ExchangesModels(Protocol, metaclass=CheckedOncePerClass):
    """Sites with roles train and judge models instead of evaluating an objective.

    Attributes
    ----------
    roles : the roles that a site can have
    max_final_exchanges : largest number of exchanges in the phase FINISH, which ends early when no task is
        left
    """

    roles: ClassVar[tuple[str, ...]]
    max_final_exchanges: ClassVar[int]


def roles(algorithm: Algorithm[Any] | type[Algorithm[Any]]) -> tuple[str, ...]:
    """Return the roles of an algorithm's sites; an empty tuple if agents have no roles."""
    return algorithm.roles if isinstance(algorithm, ExchangesModels) else ()
