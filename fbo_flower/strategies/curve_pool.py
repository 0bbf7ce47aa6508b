"""`CurvePool`: the medians of learning curves that agents share, and what all of them get back.

It is part of a run only if the strategy pools curves (`pool_curves=True`). Each agent's latest summary
counts. A replayed journal makes the same pool, because its summaries are in the replies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fbo_flower import wire
from fbo_flower.algorithms.records import Array, Phase, Task
from fbo_flower.numerics.median_rule import pooled
from fbo_flower.wire.curves import LEAST_AGENTS, MAX_STEPS, POOLED


@dataclass
class CurvePool:
    """The latest summary of each agent's curves, see `wire.curves`.

    Parameters
    ----------
    summaries : agent -> `(k, 3)`
    """

    summaries: dict[str, Array] = field(default_factory=dict)
    _pooled: Array | None = None  # of `summaries`, until one changes

    def add(self, agent: str, disclosure: wire.Disclosure) -> None:
        """Note what an agent has sent, if it has sent a summary."""
        if disclosure.curves is not None:
            self.summaries[agent] = disclosure.curves
            self._pooled = None

    def attach(self, packed: wire.Packed, agent: str, task: Task, understands: Iterable[str]) -> wire.Packed:
        """Return an encoded task with the pooled summary, if it asks for trials and its agent knows of it.

        The summary may have no rows yet. It also asks the agent for its own.

        Parameters
        ----------
        understands : agents that said at registration that they use or send summaries
        """
        if task.phase is not Phase.TRAIN or not task.num_trials or agent not in understands:
            return packed
        if self._pooled is None:
            self._pooled = pooled(list(self.summaries.values()), LEAST_AGENTS, MAX_STEPS)
        return packed._replace(arrays={**packed.arrays, POOLED: self._pooled})
