"""The interface that every algorithm implements: methods of the server and methods of the agent.

An algorithm object holds its options and nothing else. Its methods take a state and return a new one, so
replay, resume and equality between engines need no code in an algorithm. A round has two half-rounds, TRAIN
and EVALUATE. The server calls `init` once, then `ask` and `tell` in every half-round. An agent runs one
`session` per task, which has points evaluated, then calls `summarise` to get the content of its report.

What only some algorithms have (warm starts, privacy accounting, trained models, results of the server)
are methods with a default, so nobody asks an algorithm what it is.

`Independent` is the base of algorithms whose agents tune alone. The generator of `uniform_point` depends only
on the seed, the agent and the trial, so all algorithms with one seed start from the same points.

[McMahan2017] McMahan et al.: Communication-efficient learning of deep networks from decentralized data,
AISTATS 2017.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from fbo_flower.algorithms.definition import check_definition
from fbo_flower.algorithms.messages import Content, Replies, Reporting
from fbo_flower.algorithms.options import Configurable, integer
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Best,
    Federation,
    Phase,
    Report,
    ServerResults,
    Task,
    Trials,
)
from fbo_flower.algorithms.requests import Draws, Evaluation, Rng
from fbo_flower.errors import ConfigError, HookError, kind_of
from fbo_flower.numerics.discrete_noise import Uniform

State = TypeVar("State")
Kind = TypeVar("Kind", bound="Algorithm[Any]")

_EMPTY = Content()
DEFAULT_TRIALS = 25  # evaluations of each agent, unless a number is given or the algorithm has a budget


@dataclass(frozen=True, kw_only=True)
class Algorithm(Reporting, ABC, Generic[State]):
    """A federated optimiser. Subclasses are frozen dataclasses whose fields are their options.

    Attributes
    ----------
    name : the algorithm's name as users type it
    task_content, report_content : what its tasks and its reports may hold, see `messages`
    phases : the half-rounds in which it sends tasks to agents
    budget_option : name of the option that is its budget, the evaluations of each agent, after which it ends
        by itself; "": it has none
    roles : the roles of sites that train and judge models instead of evaluating an objective; (): agents have
        no roles
    barrier : why the answers of a round are needed together, as a clause after "because"; "": they are not,
        so each agent may get its next task at once
    needs_all_parameters : why no agent may hold some parameters at values of its own, as a clause; "": it may
    takes_outputs : whether its agents may have several objectives or limits, see `aims`
    """

    phases: ClassVar[tuple[Phase, ...]] = (Phase.TRAIN,)
    budget_option: ClassVar[str] = ""
    roles: ClassVar[tuple[str, ...]] = ()
    barrier: ClassVar[str] = "its rounds need the answers of all agents together"
    needs_all_parameters: ClassVar[str] = "all agents evaluate points that are chosen for them together"
    takes_outputs: ClassVar[bool] = False

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Raise ConfigError if something that the class defines would be lost, see `definition`."""
        check_definition(cls, Algorithm)
        return super().__new__(cls, *args, **options)

    # -- options that only some algorithms have ----------------------------------------------------

    @property
    def targets(self) -> str | tuple[str, ...]:
        """The agents that tune; the others only send messages. "all": every agent tunes."""
        return "all"

    @property
    def num_initial(self) -> int:
        """The number of trials in an agent's first batch, which no model has chosen."""
        return 0

    def for_outputs(self, names: tuple[str, ...]) -> Self:
        """Return the algorithm for a federation that shares these outputs, see `Federation`."""
        return self

    # -- the server's half ---------------------------------------------------------------------

    @abstractmethod
    def init(self, federation: Federation, rng: np.random.Generator) -> State:
        """Return the server's state before the first round."""

    @abstractmethod
    def ask(
        self, state: State, phase: Phase, server_round: int, present: Sequence[str], rng: np.random.Generator
    ) -> tuple[State, dict[str, Task]]:
        """Return the new state, and the tasks of one half-round for some or all of the agents present.

        Parameters
        ----------
        state : the server's state; left unchanged. Without a barrier, its field `under_way`, if it has one,
            holds the tasks of agents that have not answered yet
        present : agents that can be reached, in natural order; may be fewer or more than at registration.
            In the phase FINISH they are asked until there are no tasks

        Returns
        -------
        the new state, and agent -> task
        """

    @abstractmethod
    def tell(self, state: State, phase: Phase, replies: Replies) -> State:
        """Return the state after the reports of the agents that answered, and the sums over them."""

    def finished(self, state: State) -> bool:
        """Return whether the study is over: the algorithm will send no more tasks."""
        return False

    def results(self, state: State) -> ServerResults | None:
        """Return the server's results besides the trials that agents disclose; None if there are none yet."""
        return None

    def progress_lines(self, state: State, before: State) -> list[str]:
        """Return the log lines for what changed from state `before` to `state` in a half-round."""
        return []

    def export_messages(self, state: State) -> dict[str, AnyArray]:
        """Return the messages from which another study can start; empty if there are none."""
        return {}

    def warm_start(self, state: State, messages: Mapping[str, AnyArray]) -> State:
        """Return the initial state with the messages of an earlier study.

        Raises
        ------
        ConfigError
            If the algorithm keeps no messages, or they do not fit the options.
        """
        raise ConfigError(
            f"warm_start: expected an algorithm that keeps messages, got {self.name}; run it without "
            "warm_start"
        )

    def secret_draws(
        self, state: State, phase: Phase, server_round: int, present: Sequence[str], uniform: Uniform
    ) -> Mapping[str, AnyArray]:
        """Return the results of all private draws of the next `ask`, which gets the same arguments.

        These are noise and samples for differential privacy, which nobody may be able to repeat. The server
        calls this once before `ask`, records the results in the journal, and writes them into the field
        `drawn` of the state. A replayed journal gives the recorded results again, so a study can be resumed
        bit for bit although no seed is kept. Only results are recorded, e.g. a sum with noise, never noise.

        Parameters
        ----------
        uniform : source of all draws: `uniform(n)` returns a uniform integer in `[0, n)`
        """
        return {}

    # -- the agent's half ----------------------------------------------------------------------

    def accept(self, task: Task, agent_state: AgentState) -> AgentState:
        """Return the agent's state before a task's session; WireError if it must not run."""
        return agent_state

    def propose(self, task: Task, agent_state: AgentState, rng: Rng) -> Trials | None:
        """Return the points to evaluate next, or None when the task is done before its last trial.

        What this method, `learn` and `summarise` ask of `requests.compute` is computed at once for all agents
        that work together.

        Parameters
        ----------
        rng : `rng()` makes the step's random generator, which depends only on the study, the agent, the
            half-round and the trial
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method `propose` or `session`")

    def learn(self, task: Task, agent_state: AgentState, outcome: Trials, rng: Rng) -> AgentState:
        """Return the agent's state with the outcome of a proposed batch stored."""
        return agent_state.learn(outcome)

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        """Do the agent's work on one task: propose, evaluate, learn, until its trials are done.

        An algorithm that decides otherwise has a session of its own. A session depends on its arguments
        alone: it may be given up at an evaluation, and done again.

        Parameters
        ----------
        evaluate : has a batch of points evaluated, and returns the same rows with values
        draws : `draws(purpose, *keys)` returns a random generator that depends only on these arguments, the
            agent, the study and the phase
        """
        while (trial := agent_state.next_trial) < task.end or self.roles:
            query = self.propose(task, agent_state, partial(draws, "propose", trial))
            if query is None:
                if trial == task.trial < task.end and not self.roles:
                    raise HookError(
                        f"{self.name}: propose: expected Trials for trial {trial}, got None; return "
                        "Trials(points)"
                    )
                break
            agent_state = self.learn(task, agent_state, evaluate(query), partial(draws, "learn", trial))
            if self.roles:
                continue
            if not isinstance(agent_state, AgentState) or agent_state.next_trial <= trial:
                got = f"trial {trial} again" if isinstance(agent_state, AgentState) else kind_of(agent_state)
                raise HookError(
                    f"{self.name}: learn: expected the agent's state with the outcome, got {got}; return "
                    "agent_state.learn(outcome).write(...)"
                )
        return agent_state

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        """Return what the agent sends in its report, a `report_content`; nothing else leaves it.

        In the EVALUATE half-round Flower carries only scalars, so there it must have no arrays.
        """
        return _EMPTY

    def protect(self, task: Task, agent_state: AgentState, content: Any, uniform: Uniform) -> Any:
        """Return what the agent sends instead of `content`, which `summarise` returned, e.g. with noise.

        Parameters
        ----------
        uniform : source of all noise: `uniform(n)` returns a uniform integer in `[0, n)`. On devices it is
            the operating system's generator, which nobody can seed or repeat
        """
        return content

    def message_noise(self) -> float:
        """Return the noise multiplier of an agent's own noise on a message; 0 if agents add none."""
        return 0.0

    def expected_values(self, task: Task, agent_state: AgentState, points: Array) -> Array:
        """Return the values `(q,)` that the objective is expected to have at points `(q, D)`.

        NaN: the agent's model expects nothing yet. Of an agent with outputs, these are expected, `(q, O)`.
        """
        outputs = agent_state.history.outputs
        return np.full(len(points) if outputs is None else (len(points), outputs.shape[1]), np.nan)

    def best(self, agent_state: AgentState, *, own: bool = True) -> Best | None:
        """Return the configuration that the agent should use, None before the first success.

        It is the best trial. An algorithm whose model finds noise takes the evaluated point with the best
        posterior mean instead, because the largest of many noisy values is mostly luck. None too as long as
        no trial holds the agent's limits, and with several objectives, which have no best.

        Parameters
        ----------
        own : whether only trials of this study count
        """
        values = agent_state.usable_values(own=own)
        if len(agent_state.aims.objectives) > 1 or not np.isfinite(values).any():
            return None
        row = int(np.argmax(np.fmax(values, -np.inf)))  # a NaN is never the largest
        return Best(agent_state.history.points[row], float(values[row]))

    def check_report(self, task: Task, report: Report) -> None:
        """Raise WireError if a report that fits the schema does not answer the task."""
        return


# -- agents that tune their own objectives, a few trials at a time ---------------------------------------


@dataclass(frozen=True, kw_only=True)
class TrialsPerRound(Configurable):
    """The sizes of an agent's tasks: its initial design first, then `k` trials in each round.

    An exchange over a network takes seconds, whatever is in it. With `k > 1` an agent uses the advice of one
    exchange for `k` steps, each with the model of all its observations so far, as the local epochs of
    federated averaging use one global model [McMahan2017]. Messages and sums are made once per exchange.

    Parameters
    ----------
    num_initial : random trials of an agent's first round, evaluated as one batch
    trials_per_round : `k`, trials of an agent in every later round. It sends and receives messages once per
        round, so more of them save exchanges and use older advice
    """

    num_initial: int = integer(3, 1, 10_000)
    trials_per_round: int = integer(1, 1, 10_000)

    def trials_from(self, trial: int, advised: bool = False) -> int:
        """Return the number of trials of the task that begins at `trial`.

        Parameters
        ----------
        advised : whether advice replaces the initial design
        """
        return self.trials_per_round if trial > 0 or advised else self.num_initial


def answers_in_part(algorithm: object) -> bool:
    """Return whether an agent may do the first trials of a task only, if its operator allows no more."""
    return isinstance(algorithm, TrialsPerRound)


def with_budget(algorithm: Kind, num_trials: int | None) -> Kind:
    """Return the algorithm for a study in which each agent makes this number of evaluations; None: as it is.

    Raises
    ------
    ConfigError
        If it has another budget already, or its initial design is larger.
    """
    name, least = algorithm.budget_option, 1 if answers_in_part(algorithm) else algorithm.num_initial
    budget = getattr(algorithm, name) if name else None
    if num_trials is None:
        return algorithm
    if budget is not None and budget not in {num_trials, algorithm.option_defaults()[name]}:
        raise ConfigError(
            f"num_trials: expected {budget}, the {name} of {algorithm.name}, got {num_trials}; leave one out"
        )
    if not name and num_trials < least:
        raise ConfigError(
            f"num_trials: expected at least {least}, the num_initial of {algorithm.name}, got {num_trials}"
        )
    return replace(algorithm, **{name: num_trials}) if name else algorithm


@dataclass(frozen=True)
class Progress:
    """Agent -> id of its next trial.

    The server counts an agent's trials when their report arrives. If a report is lost, the server sends the
    task again with the same trial ids, so the agent does not evaluate the same trials twice.
    """

    next_trial: Mapping[str, int] = field(default_factory=dict)

    def of(self, agent: str) -> int:
        """Return the id of the next trial of `agent`, 0 for a new agent."""
        return self.next_trial.get(agent, 0)

    def advance(self, reports: Mapping[str, Report]) -> Progress:
        """Return the progress with the trials of `reports` counted."""
        trials = dict(self.next_trial)
        for agent, report in reports.items():
            trials[agent] = max(report.trial + report.num_trials, trials.get(agent, 0))
        return Progress(trials)


def uniform_point(agent_state: AgentState, rng: np.random.Generator) -> Trials:
    """Return one uniform point of the search space."""
    return Trials(rng.random((1, agent_state.space.dimension)))


@dataclass(frozen=True, kw_only=True)
class Independent(TrialsPerRound, Algorithm[Progress]):
    """Every agent tunes alone: an initial design in one batch, then `trials_per_round` trials per round."""

    barrier: ClassVar[str] = ""
    needs_all_parameters: ClassVar[str] = ""

    def init(self, federation: Federation, rng: np.random.Generator) -> Progress:
        return Progress()

    def ask(
        self,
        state: Progress,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[Progress, dict[str, Task]]:
        tasks = {}
        for agent in present if phase is Phase.TRAIN else ():
            trial = state.of(agent)
            tasks[agent] = Task(phase, server_round, trial, self.trials_from(trial))
        return state, tasks

    def tell(self, state: Progress, phase: Phase, reports: Replies) -> Progress:
        return state.advance(reports)
