"""Fed1-UCB on the agent: the pulls of a phase, arm by arm, in a random order.

If the budget ends within a phase, agents with different orders have together pulled more arms.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.algorithms.bandits import arms
from fbo_flower.algorithms.records import AgentState, Query, Task
from fbo_flower.algorithms.session import Draws, Session
from fbo_flower.errors import WireError


def session(task: Task, agent_state: AgentState, draws: Draws) -> Session:
    """Pull the arms of a phase; a phase that does not fit into one task continues in the next one."""
    count = arms.num_arms(agent_state.space.dimension)
    seed = arms.task_seed(task)
    best = int(task.values.get("best", -1))
    if not -1 <= best < count:
        raise WireError(f"best: expected an arm from 0 to {count - 1}, or -1 for none, got {best}")
    phase, known = int(task.values.get("phase", -1)), agent_state.arrays.get("phase.number")
    done = np.zeros(count, dtype=np.int64)
    if known is not None and (phase < 0 or int(np.asarray(known)[0]) == phase):
        done = np.asarray(agent_state.arrays["phase.done"], dtype=np.int64).copy()
        phase = int(np.asarray(known)[0])
    statistics, points = arms.ArmStatistics.read(agent_state), arms.points(seed, agent_state.space.dimension)
    agent_state = agent_state.write(
        seed=np.array([seed], dtype=np.int64),
        best=np.array([best], dtype=np.int64),
        **{"phase.number": np.array([phase], dtype=np.int64)},
    )
    while (left := task.end - agent_state.next_trial) > 0 and "arms" in task.arrays:
        active = draws("order", phase).permutation(np.asarray(task.arrays["arms"], dtype=np.int64))
        owed = np.maximum(0, int(task.values["pulls"]) - done[active])
        taken = np.clip(left - (np.cumsum(owed) - owed), 0, owed)
        rows = active[taken > 0]
        if len(rows) == 0:
            break
        outcome = yield Query(agent_state.space.snap(points[rows]), taken[taken > 0])
        done[rows] += outcome.pulls
        statistics, agent_state = statistics.add(rows, outcome), agent_state.passed_to(outcome.end)
    return statistics.write(agent_state).write(**{"phase.done": done})
