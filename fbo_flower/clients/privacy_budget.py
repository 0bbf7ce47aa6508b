"""What an operator lets an agent spend of its privacy, whatever a server asks.

An agent with a budget answers only what depends on its observations through noise of its own, and only as
long as the epsilons of all its answers are within the budget: those of one study by the algorithm's account,
those of several studies added up. It counts before it works, and it counts a task once.
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
    """Count the answer to a task, or decline.

    Parameters
    ----------
    budget : epsilon of all studies together, each at the `delta` of its options; 0: nothing is counted
    key : of the task

    Raises
    ------
    WireError
        If the answer would not be noisy, or its cost exceeds what is left; nothing was evaluated.
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
        what = f"{total:.4g} in all studies" if total < float("inf") else f"{algorithm.name} without noise"
        raise WireError(
            f"epsilon: expected at most {budget:g}, as max_epsilon in node_config says, got {what}; this "
            "agent does not answer",
            "epsilon",
        )
    counts[study] = [count + 1, max(epsilon, before), key]
    memory.put_note(_NOTE, {"counts": json.dumps(counts)})
