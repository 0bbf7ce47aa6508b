"""The one interface that every algorithm implements, server's half and agent's half together.

An algorithm object holds its options and nothing else. State goes in and comes out, so replay,
resume and equality between engines need no code of their own. The server calls `init`, then `ask`
and `tell` once per half-round; an agent calls `propose` and `learn` until there is nothing left to
propose, then `summarise`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np

from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    Outcome,
    Phase,
    Query,
    Report,
    Scalar,
    Task,
)
from fbo_flower.errors import ConfigError
from fbo_flower.space.space import SearchSpace

State = TypeVar("State")

DEFAULT_ROUNDS = 25  # of an algorithm that never finishes, unless it is told


@dataclass(frozen=True)
class ArraySpec:
    """What an array in a task or a report must look like.

    Parameters
    ----------
    shape : one entry per axis; None allows any length up to `max_length`
    low, high : inclusive bounds of every entry
    max_length : longest axis whose length is not fixed
    """

    shape: tuple[int | None, ...]
    dtype: str = "float64"
    low: float = -1e12
    high: float = 1e12
    max_length: int = 4096


@dataclass(frozen=True)
class Schema:
    """The arrays and values that may stand in a task or a report. Nothing else is let through."""

    arrays: Mapping[str, ArraySpec] = field(default_factory=dict)
    values: Mapping[str, type] = field(default_factory=dict)


@dataclass(frozen=True)
class Summand:
    """An array of a report of which the server needs nothing but the sum over agents.

    Parameters
    ----------
    shape : of the array
    bound : of the absolute value of every entry
    """

    shape: tuple[int, ...]
    bound: float


@dataclass(frozen=True)
class Progress:
    """How far each agent has come: the id of its next trial.

    Trials are counted by the server and confirmed by reports, so a task whose report was lost is
    asked again with the same ids, and an agent that did the work does not do it twice.
    """

    next_trial: Mapping[str, int] = field(default_factory=dict)

    def of(self, agent: str) -> int:
        """Return the id of the next trial of `agent`."""
        return self.next_trial.get(agent, 0)

    def advance(self, reports: Mapping[str, Report]) -> Progress:
        """Return the progress after `reports`."""
        ends = {agent: report.trial + report.num_trials for agent, report in reports.items()}
        return Progress({**self.next_trial, **{a: max(end, self.of(a)) for a, end in ends.items()}})


@dataclass(frozen=True)
class ServerResults:
    """What a server holds at the end of a study, as rows of the study's tables.

    Parameters
    ----------
    models : columns of `study_schema.MODELS` but for `algorithm`
    judgements : columns of `study_schema.JUDGEMENTS` but for `algorithm`
    recommendations : agent -> `(point (D,), value)`, in place of the agent's own best
    privacy : what was spent of privacy, where noise is used: `epsilon`, `delta` and what they are of
    """

    models: Sequence[Mapping[str, object]] = ()
    judgements: Sequence[Mapping[str, object]] = ()
    recommendations: Mapping[str, tuple[Array, float]] = field(default_factory=dict)
    privacy: Mapping[str, object] = field(default_factory=dict)


class Session(Protocol):
    """One task of an agent from its first evaluation to its last."""

    def ask(self) -> Query | None:
        """Return what to evaluate next, None when the task is done."""
        ...

    def tell(self, outcome: Outcome) -> None:
        """Enter what came of it."""
        ...

    def close(self) -> AgentState:
        """Return the agent's state after all that was told."""
        ...


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC, Generic[State]):
    """A federated optimiser. Subclasses are frozen dataclasses whose fields are their options."""

    name: ClassVar[str]
    phases: ClassVar[tuple[Phase, ...]] = (Phase.TRAIN,)
    finishes: ClassVar[bool] = False  # whether it ends by itself, when its budget is spent
    roles: ClassVar[tuple[str, ...]] = ()  # of the sites it works with; none: agents that are all alike
    skips: ClassVar[bool] = False  # whether an agent may be asked for a trial without those before it
    max_final_exchanges: ClassVar[int] = 1  # of the phase FINISH; it ends once nothing is asked
    needs_keys: ClassVar[bool] = False  # whether agents must tell a public key in the roll-call

    # -- the server's half ---------------------------------------------------------------------

    @abstractmethod
    def init(self, federation: Federation, rng: np.random.Generator) -> State:
        """Return the server's state before the first round."""

    @abstractmethod
    def ask(
        self, state: State, phase: Phase, server_round: int, present: Sequence[str], rng: np.random.Generator
    ) -> tuple[State, dict[str, Task]]:
        """Return the tasks of one half-round, for some of the agents that are there now.

        Parameters
        ----------
        state : left unchanged
        present : agents that can be reached, in natural order; may be fewer or more than at the start
        """

    @abstractmethod
    def tell(self, state: State, phase: Phase, reports: Mapping[str, Report]) -> State:
        """Return the state after the reports of whoever answered, in natural order of agents."""

    def finished(self, state: State) -> bool:
        """Return whether there is nothing left to ask."""
        return False

    def unwrap_state(self, state: Any) -> State:
        """Return the algorithm's own state, where something stands around it."""
        return state  # type: ignore[no-any-return]  # nothing does

    def register_public_keys(self, state: State, public: Mapping[str, bytes]) -> State:
        """Return the state that knows these public keys of agents; called before every `ask`."""
        return state

    def aggregate_sum(self, state: State, agents: Sequence[str], sums: Mapping[str, Array]) -> State:
        """Return the state after a secure sum, called after `tell`, before the next `ask`.

        Parameters
        ----------
        agents : of whom the sums are, in natural order
        sums : by the names of `summands`, in their shapes
        """
        return state

    # -- the agent's half ----------------------------------------------------------------------

    def accept(self, task: Task, agent_state: AgentState) -> AgentState:
        """Return the agent's state with what the task changes in it before anything is evaluated.

        Raises
        ------
        WireError
            If the agent must not do this task.
        """
        return agent_state

    def work(self, task: Task) -> Task:
        """Return the part of a task that says what to evaluate; what is made for it serves all such tasks."""
        return task

    @abstractmethod
    def propose(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Query | None:
        """Return what to evaluate next, or None when the task is done."""

    def learn(
        self, task: Task, agent_state: AgentState, outcome: Outcome, rng: np.random.Generator
    ) -> AgentState:
        """Return the agent's state after an evaluation."""
        return agent_state.learn(outcome)

    def session(self, task: Task, agent_state: AgentState) -> Session | None:
        """Return the whole task as one conversation, in place of `propose` and `learn`.

        For algorithms that decide after every single evaluation and draw nothing: what they remember is
        then read and written once per task. None, the default: `propose` and `learn` it is.
        """
        return None

    def summarise(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> dict[str, AnyArray]:
        """Return exactly the arrays that leave the agent."""
        return {}

    def report_metrics(self, task: Task, agent_state: AgentState) -> dict[str, Scalar]:
        """Return exactly the scalars that leave the agent; Flower's EVALUATE lets nothing else back."""
        return {}

    def summands(self, task: Task, space: SearchSpace) -> Mapping[str, Summand]:
        """Return what of the answer to a task only goes into a secure sum; nothing without `secure_sums`.

        An array of such a name that `summarise` leaves out counts as zeros.
        """
        return {}

    def reuses_values(self) -> bool:
        """Return whether an agent evaluates a point once and answers with that value from then on."""
        return False

    def reports_trials(self) -> bool:
        """Return whether reports hold points and values: asked only of agents that disclose their trials."""
        return False

    def uses_observations(self, task: Task, space: SearchSpace) -> bool:
        """Return whether the answer to a task may hold anything that the agent's values went into."""
        schema = self.report_schema(space)
        return bool(schema.arrays or schema.values)

    def epsilon_of_messages(self, count: int) -> float:
        """Return what so many answers cost an agent, by noise of its own; infinite where it adds none."""
        return float("inf")

    def recommend(self, agent_state: AgentState) -> Array | None:
        """Return the agent's own best point `(D,)`, None before the first success."""
        values = agent_state.history.values
        if not np.isfinite(values).any():
            return None
        best: Array = agent_state.history.points[int(np.nanargmax(values))]
        return best

    def incumbent(self, agent_state: AgentState) -> float:
        """Return the best value of this study so far, NaN before the first success."""
        values = agent_state.history.values[agent_state.history.trials >= 0]
        return float(np.nanmax(values)) if np.isfinite(values).any() else float("nan")

    # -- what may cross the wire ---------------------------------------------------------------

    def task_schema(self, space: SearchSpace) -> Schema:
        """Return what a task may carry."""
        return Schema()

    def report_schema(self, space: SearchSpace) -> Schema:
        """Return what a report may carry."""
        return Schema()

    def check_report(self, task: Task, report: Report) -> None:
        """Raise WireError unless a report that fits the schema is an answer to the task."""
        return

    # -- what the server knows at the end --------------------------------------------------------

    def findings(self, state: State) -> ServerResults | None:
        """Return what the server found out, beyond the trials that agents disclose; None: nothing."""
        return None

    def keep(self, state: State) -> dict[str, AnyArray]:
        """Return the messages that another study may start from; nothing, where there are none."""
        return {}

    def warm(self, state: State, kept: Mapping[str, AnyArray]) -> State:
        """Return a first state that knows the messages of an earlier study.

        Raises
        ------
        ConfigError
            If the algorithm uses none, or they do not fit its options.
        """
        raise ConfigError(f"warm_start: expected an algorithm that keeps messages, got {self.name}")

    # -- options -------------------------------------------------------------------------------

    def check(self, space: SearchSpace) -> None:
        """Raise ConfigError if the options do not fit the search space."""
        return

    def options(self) -> dict[str, object]:
        """Return the options as JSON values."""
        return {f.name: _jsonable(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def option_defaults(cls) -> dict[str, object]:
        """Return every option with its default."""
        return {f.name: f.default for f in fields(cls) if f.default is not MISSING}

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """Build the algorithm; an unknown option is an error that lists what there is."""
        known = cls.option_defaults()
        for name in options:
            if name not in known:
                listing = ", ".join(f"{k}={v!r}" for k, v in known.items())
                raise ConfigError(f"options: {cls.name} has no option {name!r}; it has {listing}")
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()})


def _jsonable(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def canonical_json(value: object) -> str:
    """Return compact JSON with sorted keys, the same text on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise ConfigError unless `value` is one of `choices`."""
    if value not in choices:
        raise ConfigError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")


def check_number(
    name: str, value: object, low: float, high: float = np.inf, *, integer: bool = False
) -> None:
    """Raise ConfigError unless `value` is a number in `[low, high]`."""
    kind = (int,) if integer else (int, float)
    if not isinstance(value, kind) or isinstance(value, bool) or not low <= value <= high:
        what = "an integer" if integer else "a number"
        bound = f">= {low:g}" if np.isinf(high) else f"between {low:g} and {high:g}"
        raise ConfigError(f"{name}: expected {what} {bound}, got {value!r}")


def check_secure_sums(value: object) -> None:
    """Raise ConfigError unless this can be the least number of agents in a secure sum; 0: no such sums."""
    check_number("secure_sums", value, 0, 10**6, integer=True)
    if value == 1:
        raise ConfigError("secure_sums: expected 0, or a number of agents from 2 on, got 1")


__all__ = [
    "Algorithm",
    "ArraySpec",
    "Progress",
    "Scalar",
    "Schema",
    "ServerResults",
    "Summand",
    "canonical_json",
    "check_choice",
    "check_number",
    "check_secure_sums",
]
