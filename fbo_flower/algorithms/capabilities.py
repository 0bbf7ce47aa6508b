"""What only some algorithms can do, as protocols: `isinstance(algorithm, WarmStartable)`.

An algorithm has a capability when it has the methods; it need not name the protocol. Ask
`unwrapped(algorithm)`, because secure sums stand around the algorithm that they serve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Phase, Task
from fbo_flower.space.space import SearchSpace

# -- secure sums -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summand:
    """An array of a report of which the server needs only the sum over agents.

    Parameters
    ----------
    shape : of the array
    bound : of the absolute value of every entry
    """

    shape: tuple[int, ...]
    bound: float


@runtime_checkable
class Summable(Protocol):
    """The server can do with sums over agents in place of some parts of their reports."""

    @property
    def secure_sums(self) -> int:
        """The option: least number of agents in a sum; 0 for no secure sums."""
        ...

    def summands(self, task: Task, space: SearchSpace) -> Mapping[str, Summand]:
        """Return the arrays of the answer to a task that only go into a sum; none without `secure_sums`.

        An array of such a name that `summarise` leaves out counts as zeros.
        """
        ...

    def aggregate_sum(self, state: Any, agents: Sequence[str], sums: Mapping[str, Array]) -> Any:
        """Return the state after a secure sum, called after `tell`, before the next `ask`.

        Parameters
        ----------
        agents : of whom the sums are, in natural order
        sums : by the names of `summands`, in their shapes
        """
        ...


@runtime_checkable
class SecureRounds(Protocol):
    """The algorithm stands around another one and needs a public key of every agent."""

    @property
    def inner(self) -> Algorithm[Any]:
        """The algorithm that it serves."""
        ...

    def inner_state(self, state: Any) -> Any:
        """Return the inner algorithm's state."""
        ...

    def with_inner_state(self, state: Any, inner: Any) -> Any:
        """Return the state with another state of the inner algorithm."""
        ...

    def register_public_keys(self, state: Any, public: Mapping[str, bytes]) -> Any:
        """Return the state that knows these public keys of agents; called before every `ask`."""
        ...

    def accept(self, task: Task, agent_state: AgentState) -> AgentState:
        """Return the agent's state once a sum is accepted; WireError if the sum could reveal a report."""
        ...

    def evaluation_task(self, task: Task) -> Task:
        """Return the part of a task that says what to evaluate; its evaluations serve all such tasks."""
        ...


def unwrapped(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """Return the algorithm itself, without the secure sums that may stand around it."""
    return algorithm.inner if isinstance(algorithm, SecureRounds) else algorithm


def unwrapped_state(algorithm: Algorithm[Any], state: Any) -> Any:
    """Return the state of `unwrapped(algorithm)`."""
    return algorithm.inner_state(state) if isinstance(algorithm, SecureRounds) else state


# -- warm starts and results ---------------------------------------------------------------------


@runtime_checkable
class WarmStartable(Protocol):
    """A study can start from the messages of an earlier one."""

    def export_messages(self, state: Any) -> dict[str, AnyArray]:
        """Return the messages that another study may start from; empty if there are none."""
        ...

    def warm_start(self, state: Any, messages: Mapping[str, AnyArray]) -> Any:
        """Return a first state that knows the messages of an earlier study.

        Raises
        ------
        ConfigError
            If the messages do not fit the options.
        """
        ...


@dataclass(frozen=True)
class ServerResults:
    """What a server holds at the end of a study, as rows of the study's tables.

    Parameters
    ----------
    models : columns of `study.schema.MODELS` but for `algorithm`
    judgements : columns of `study.schema.JUDGEMENTS` but for `algorithm`
    recommendations : agent -> `(point (D,), value)`, in place of the agent's own best
    privacy : what was spent of privacy, where noise is used: `epsilon`, `delta` and what they bound
    """

    models: Sequence[Mapping[str, object]] = ()
    judgements: Sequence[Mapping[str, object]] = ()
    recommendations: Mapping[str, tuple[Array, float]] = field(default_factory=dict)
    privacy: Mapping[str, object] = field(default_factory=dict)


@runtime_checkable
class ReportsResults(Protocol):
    """The server holds results beyond the trials that agents disclose."""

    def results(self, state: Any) -> ServerResults | None:
        """Return the server's results; None if there are none yet."""
        ...


@runtime_checkable
class DescribesProgress(Protocol):
    """The server has something to say in the log, and in the settings of the study."""

    def progress_lines(self, state: Any, before: Any) -> list[str]:
        """Return lines for the log after a half-round."""
        ...

    def description(self, state: Any) -> dict[str, object]:
        """Return JSON values for the entry `found` of the run's settings."""
        ...


# -- what agents do and disclose -------------------------------------------------------------------


@runtime_checkable
class AccountsPrivacy(Protocol):
    """Agents add noise of their own, whose cost in epsilon is known."""

    def uses_observations(self, task: Task, space: SearchSpace) -> bool:
        """Return whether the answer to a task may depend on the agent's observations."""
        ...

    def epsilon_of_messages(self, count: int) -> float:
        """Return what `count` answers cost an agent; infinite where agents add no noise."""
        ...


def uses_observations(algorithm: Algorithm[Any], task: Task, space: SearchSpace) -> bool:
    """Return whether the answer to a task may depend on the agent's observations."""
    if isinstance(algorithm, SecureRounds) and task.phase is Phase.EVALUATE:
        return False  # shares of masks
    core = unwrapped(algorithm)
    if isinstance(core, AccountsPrivacy):
        return core.uses_observations(task, space)
    schema = core.report_schema(space)
    return bool(schema.arrays or schema.values)


@runtime_checkable
class NeedsTrials(Protocol):
    """With some options reports hold points and values: only agents that disclose trials take part."""

    def reports_trials(self) -> bool:
        """Return whether reports hold points and values."""
        ...


@runtime_checkable
class ReusesValues(Protocol):
    """The objective may be declared deterministic: a point is evaluated once and its value reused."""

    def reuses_values(self) -> bool:
        """Return whether agents evaluate each point once."""
        ...


@runtime_checkable
class EstimatesIncumbent(Protocol):
    """The agent's state holds its best value in a form of its own, not as a history of trials."""

    def incumbent(self, agent_state: AgentState) -> float:
        """Return the best value of this study so far, NaN before the first success."""
        ...


def incumbent(algorithm: Algorithm[Any], agent_state: AgentState) -> float:
    """Return the agent's best value of this study so far, NaN before the first success."""
    core = unwrapped(algorithm)
    if isinstance(core, EstimatesIncumbent):
        return core.incumbent(agent_state)
    values = agent_state.history.values[agent_state.history.trials >= 0]
    return float(np.nanmax(values)) if np.isfinite(values).any() else float("nan")


@runtime_checkable
class HasTargets(Protocol):
    """Only some agents tune; the others send what they know."""

    @property
    def targets(self) -> str | tuple[str, ...]:
        """The option: "all", or the agents that tune."""
        ...


@runtime_checkable
class HasInitialDesign(Protocol):
    """Every agent begins with a batch of trials that no model has chosen."""

    @property
    def num_initial(self) -> int:
        """The size of that batch."""
        ...


@runtime_checkable
class ExchangesModels(Protocol):
    """Sites with roles train and judge models in place of evaluating an objective.

    Attributes
    ----------
    roles : of the sites
    max_final_exchanges : bound of the exchanges of the phase FINISH; it ends once nothing is asked
    """

    roles: ClassVar[tuple[str, ...]]
    max_final_exchanges: ClassVar[int]


def roles(algorithm: Algorithm[Any] | type[Algorithm[Any]]) -> tuple[str, ...]:
    """Return the roles of the sites that an algorithm works with; none for agents that are all alike."""
    return algorithm.roles if isinstance(algorithm, ExchangesModels) else ()
