"""The privacy budget of an agent: its operator limits the epsilon, and the server cannot change that.

An agent with a budget refuses every task whose report depends on its observations without noise. It also
refuses a task if its total epsilon would exceed the budget. The algorithm computes the epsilon of one study;
the epsilons of several studies are added. A task is counted before it runs, and only once.
"""

from __future__ import annotations

import json
from typing import Any

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.capabilities import AccountsPrivacy, unwrapped, uses_observations
from fbo_flower.algorithms.records import Task
from fbo_flower.clients.memory import Memory
from fbo_flower.errors import WireError
from fbo_flower.space.space import SearchSpace

_NOTE = "privacy"


def spend(
    memory: Memory,
    budget: float,
    study: str,
    key: str,
    algorithm: Algorithm[Any],
    task: Task,
    space: SearchSpace,
) -> None:
    """Count the epsilon of a task's report; raise WireError if it exceeds the budget.

    Parameters
    ----------
    budget : largest epsilon of all studies together, each at the `delta` of its options; 0: no limit
    key : checksum of the task

    Raises
    ------
    WireError
        If the report has no noise, or the total exceeds the budget. Nothing was evaluated.
    """
    if not budget or not uses_observations(algorithm, task, space):
        return
    counts: dict[str, Any] = json.loads(str(memory.note(_NOTE).get("counts", "{}")))
    count, before, last = counts.get(study, [0, 0.0, ""])
    if last == key:
        return
    core = unwrapped(algorithm)
    epsilon = core.epsilon_of_messages(count + 1) if isinstance(core, AccountsPrivacy) else float("inf")
    total = sum(spent for name, (_, spent, _) in counts.items() if name != study) + max(epsilon, before)
    if not total <= budget:
        got = f"{total:.4g} in all studies" if total < float("inf") else f"{algorithm.name} without noise"
        raise WireError(
            f"epsilon: expected at most {budget:g}, the max_epsilon in node_config, got {got}; the agent "
            "does not run this task",
            "epsilon",
        )
    counts[study] = [count + 1, max(epsilon, before), key]
    memory.put_note(_NOTE, {"counts": json.dumps(counts)})
