"""Protocols of algorithms whose server needs only sums over agents, and of what makes these sums secure.

Test `unwrapped(algorithm)` for other abilities, because with secure sums the algorithm is wrapped in
`SecureAggregation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from fbo_flower.algorithms.ability_check import CheckedOncePerClass
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Task
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True)
class Summand:
    """The shape and bound of an array whose sum over agents is all that the server needs.

    Parameters
    ----------
    shape : shape of the array
    bound : largest absolute value of an entry
    """

    shape: tuple[int, ...]
    bound: float


@runtime_checkable
class Summable(Protocol, metaclass=CheckedOncePerClass):
    """The server can work with sums over agents instead of some arrays in their reports."""

    @property
    def secure_sums(self) -> int:
        """The option: smallest number of agents in a sum; 0 for no secure sums."""
        ...

    def summands(self, task: Task, space: SearchSpace) -> Mapping[str, Summand]:
        """Return the arrays of the task's report that are only summed; none if `secure_sums` is 0.

        If `summarise` leaves such an array out, it counts as zeros.
        """
        ...

    def sum_name(self, task: Task, agent_state: AgentState) -> str:
        """Return the name of the piece of work whose report is summed; an agent masks each name once.

        Reports that are made from the same observations must have the same name, whatever the task says. Two
        sums of the same work over different agents would differ by a report.

        Parameters
        ----------
        agent_state : the agent's state before the task
        """
        ...

    @property
    def repeats_observations(self) -> bool:
        """Whether a report in a sum may be made from observations that an earlier sum held.

        If so, members take part with the same partners only, see `secure_member`. False: each sum holds new
        evaluations, or an agent sends one report in a study, or noise of a known cost protects the reports.
        """
        ...

    def sum_content(self, task: Task) -> Mapping[str, AnyArray]:
        """Return the parts of a task that must be the same for all agents in a sum.

        A server that asks one agent about something else than the others would learn that agent's report.
        """
        ...

    def skip_sum(self, state: Any) -> Any:
        """Return the state after a sum that failed in every group; the same work is never summed again."""
        ...

    def aggregate_sum(self, state: Any, agents: Sequence[str], sums: Mapping[str, Array]) -> Any:
        """Return the state after a secure sum; called after `tell` and before the next `ask`.

        Parameters
        ----------
        agents : the agents in the sums, in natural order; others may have been asked, and are not in them
        sums : name -> sum, with the names and shapes of `summands`
        """
        ...


@runtime_checkable
class GoesOnWithoutSums(Protocol, metaclass=CheckedOncePerClass):
    """The algorithm works without a sum, only less well, so failed sums do not end the study."""

    @property
    def needs_sums(self) -> bool:
        """Return whether it needs the sums after all."""
        ...


def observations_name(task: Task, agent_state: AgentState) -> str:
    """Return the `sum_name` of a report that is made from all observations: their number."""
    return f"trials {max(task.end, agent_state.next_trial)}"


@runtime_checkable
class SecureRounds(Protocol, metaclass=CheckedOncePerClass):
    """The algorithm wraps another one with secure sums and needs a card with public keys of every agent."""

    @property
    def inner(self) -> Algorithm[Any]:
        """The wrapped algorithm."""
        ...

    def inner_state(self, state: Any) -> Any:
        """Return the wrapped algorithm's state."""
        ...

    def with_inner_state(self, state: Any, inner: Any) -> Any:
        """Return `state` with the wrapped algorithm's state replaced by `inner`."""
        ...

    def register_cards(self, state: Any, study: str, cards: Mapping[str, bytes]) -> Any:
        """Return the state with the study's id and the agents' cards; called before every `ask`."""
        ...

    def members(self, task: Task) -> list[bytes]:
        """Return the public identity keys of the other members of the sum that a task asks for."""
        ...

    def accept(self, task: Task, agent_state: AgentState) -> AgentState:
        """Return the agent's state with its part in a sum entered; WireError if it could reveal a report."""
        ...

    def evaluation_task(self, task: Task) -> Task:
        """See `SharesEvaluations`."""
        ...


def unwrapped(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """Return the algorithm without the secure sums that may wrap it."""
    return algorithm.inner if isinstance(algorithm, SecureRounds) else algorithm


def unwrapped_state(algorithm: Algorithm[Any], state: Any) -> Any:
    """Return the state of `unwrapped(algorithm)`."""
    return algorithm.inner_state(state) if isinstance(algorithm, SecureRounds) else state
