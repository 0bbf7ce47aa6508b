"""Fed1-UCB, the agent's half: the pulls of a phase, arm by arm."""

from __future__ import annotations

import numpy as np

from fbo_flower.algorithms.bandits import arms
from fbo_flower.algorithms.records import AgentState, Outcome, Query, Task
from fbo_flower.errors import WireError


class Fed1Session:
    """One task of an agent; a phase that does not fit into it goes on in the next."""

    def __init__(self, task: Task, agent_state: AgentState) -> None:
        self._task = task
        count = arms.num_arms(agent_state.space.dimension)
        seed = task.values.get("arms.seed")
        if not isinstance(seed, int) or not 0 <= seed <= arms.MAX_SEED:
            raise WireError(f"arms.seed: expected an integer between 0 and {arms.MAX_SEED}, got {seed!r}")
        best = int(task.values.get("best", -1))
        if not -1 <= best < count:
            raise WireError(f"best: expected one of {count} arms, got {best}")
        phase, known = int(task.values.get("phase", -1)), agent_state.arrays.get("phase.number")
        done = np.zeros(count, dtype=np.int64)
        if known is not None and (phase < 0 or int(np.asarray(known)[0]) == phase):
            done = np.asarray(agent_state.arrays["phase.done"], dtype=np.int64).copy()
            phase = int(np.asarray(known)[0])
        self._done, self._purse = done, arms.ArmStatistics.read(agent_state)
        self._points = arms.points(seed, agent_state.space.dimension)
        self._rows = np.empty(0, dtype=np.int64)
        self._agent_state = agent_state.write(
            seed=np.array([seed], dtype=np.int64),
            best=np.array([best], dtype=np.int64),
            **{"phase.number": np.array([phase], dtype=np.int64)},
        )

    def ask(self) -> Query | None:
        left = self._task.end - self._agent_state.next_trial
        if left <= 0 or "arms" not in self._task.arrays:
            return None
        active = np.asarray(self._task.arrays["arms"], dtype=np.int64)
        owed = np.maximum(0, int(self._task.values["pulls"]) - self._done[active])
        taken = np.clip(left - (np.cumsum(owed) - owed), 0, owed)
        self._rows = active[taken > 0]
        if len(self._rows) == 0:
            return None
        return Query(self._agent_state.space.snap(self._points[self._rows]), taken[taken > 0])

    def tell(self, outcome: Outcome) -> None:
        self._done[self._rows] += outcome.pulls
        self._purse = self._purse.add(self._rows, outcome)
        self._agent_state = self._agent_state.pass_over(outcome)

    def close(self) -> AgentState:
        return self._purse.write(self._agent_state).write(**{"phase.done": self._done})
