"""One answer for each piece of work: what an agent has answered, and what it therefore refuses.

A server that may ask the same question twice, with other options or other arrays, subtracts the answers. So
the options of a study are pinned at its first task, every trial is answered once, and so is every kind of
report about the same observations. A task that is sent again unchanged gets the first answer again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.records import AgentState, Phase, Task
from fbo_flower.clients.memory import Memory
from fbo_flower.errors import WireError
from fbo_flower.storage.agent_journal import task_key
from fbo_flower.wire import Envelope


@dataclass(frozen=True)
class Work:
    """A piece of work that a task asks for.

    Parameters
    ----------
    name : the same for all tasks that ask about the same observations; "" if the agent may answer it any
        number of times
    key : checksum of what the task asks for
    """

    name: str
    key: str


def work_of(algorithm: Algorithm[Any], task: Task, agent_state: AgentState, key: str = "") -> Work:
    """Return the piece of work that a task asks for.

    Parameters
    ----------
    key : `task_key(task)`, if it is known
    """
    asked = algorithm.evaluation_task(task)
    key = key if key and asked is task else task_key(asked)
    if task.num_trials:
        return Work(f"{task.phase} trial {task.trial}", key)
    if algorithm.sums_securely and task.phase not in {Phase.TRAIN, Phase.FINISH}:
        return Work("", key)  # an exchange within a secure sum, which has rules of its own
    kind = algorithm.inner.report_kind(task)
    # named by the agent's own count: the server may put any trial and any phase in a task without trials
    return Work("" if kind is None else f"report {kind} after {agent_state.next_trial}", key)


def check_new(memory: Memory, study: str, work: Work) -> None:
    """Raise WireError if the agent has answered another task about this piece of work."""
    known = memory.answered(study, work.name) if work.name else None
    if known is not None and known != work.key:
        raise WireError(
            f"task: expected the one that this agent has answered already ({work.name}), got another one; "
            "an agent answers each piece of work once",
            "answered",
        )


def check_trial(algorithm: Algorithm[Any], task: Task, agent_state: AgentState, answered: bool) -> None:
    """Raise WireError if a task does not begin at the agent's next trial.

    Parameters
    ----------
    answered : whether the agent has answered this task before
    """
    following = agent_state.next_trial
    late = task.num_trials > 0 and task.trial < following and not answered
    if late or (task.trial > following and not algorithm.roles):
        raise WireError(f"trial: expected {following}, the agent's next trial, got {task.trial}")


def check_noise(algorithm: Algorithm[Any], task: Task, agent_state: AgentState) -> None:
    """Raise WireError if a task asks for a second noisy report about the same observations."""
    if task.num_trials or not algorithm.inner.reports_with_trials:
        return
    if algorithm.uses_observations(task, agent_state.space):
        raise WireError(
            "num-trials: expected at least one trial for a report with noise, got 0", "num-trials"
        )


def pinned(algorithm: Algorithm[Any], envelope: Envelope) -> str:
    """Return the algorithm and its options as text, to be stored with a new study."""
    return f"{envelope.algorithm} {envelope.options}"


def check_pinned(memory: Memory, algorithm: Algorithm[Any], envelope: Envelope) -> None:
    """Raise WireError if a task has another algorithm or other options than the study's first task."""
    text = memory.algorithm(envelope.study)
    if text and text != pinned(algorithm, envelope):
        raise WireError(
            f"options: expected those of the study's first task, {text}, got {pinned(algorithm, envelope)}; "
            "start a new study for other options",
            "options",
        )
