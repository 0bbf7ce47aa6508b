"""The privacy budget of an agent: its operator limits the epsilon, and the server cannot change that.

An agent with a budget refuses every task whose report depends on its observations without noise of its own.
Every report with noise is entered in the agent's account at its own noise multiplier, in all studies
together, and a task whose report would exceed the budget is refused. `delta` is the operator's. A task is
entered before it runs, and only once.
"""

from __future__ import annotations

import json
from typing import Any

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.records import Task
from fbo_flower.clients.memory import Memory
from fbo_flower.errors import ConfigError, JournalError, WireError
from fbo_flower.numerics.privacy_account import Account
from fbo_flower.space.space import SearchSpace

_NOTE = "privacy"


def spend(
    memory: Memory,
    budget: float,
    delta: float,
    key: str,
    algorithm: Algorithm[Any],
    task: Task,
    space: SearchSpace,
) -> None:
    """Enter a task's report in the account; raise WireError if the total exceeds the budget.

    Parameters
    ----------
    budget : largest epsilon of all studies together; 0: no limit, nothing is entered
    delta : `delta` of that epsilon
    key : names the study and the task

    Raises
    ------
    WireError
        If the report has no noise of the agent's own, or the total exceeds the budget. Nothing was evaluated.
    JournalError
        If the account cannot be read. It is not replaced by an empty one.
    """
    if not budget or not algorithm.uses_observations(task, space):
        return
    account, last = _read(memory)
    if last == key:
        return
    core = algorithm.inner
    noise = core.message_noise()
    if not noise:
        raise _refusal(budget, f"a report of {algorithm.name} without noise of the agent's own")
    try:
        account = account.add(noise)
        total = account.epsilon(delta)
    except ConfigError as error:  # a noise multiplier or a number of entries that no account can hold
        raise _refusal(budget, str(error)) from error
    if not total <= budget:
        raise _refusal(budget, f"{total:.4g} in all studies at delta = {delta:g}")
    memory.put_note(_NOTE, {"account": json.dumps(account.to_json()), "last": key})


def _read(memory: Memory) -> tuple[Account, str]:
    """Return the account and the key of the last task."""
    note = memory.note(_NOTE)
    try:
        account = Account.from_json(json.loads(str(note["account"]))) if note else Account()
        return account, str(note.get("last", ""))
    except (KeyError, ValueError, TypeError, ConfigError) as error:
        raise JournalError(
            f"privacy account: expected one that this version wrote, got {error}; restore the journal from a "
            "copy. The agent sends no noisy report until then"
        ) from error


def _refusal(budget: float, got: str) -> WireError:
    return WireError(
        f"epsilon: expected at most {budget:g}, the max_epsilon in node_config, got {got}; the agent does "
        "not run this task",
        "epsilon",
    )
