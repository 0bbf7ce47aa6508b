"""`ServerResults`: what the server of an algorithm knows at the end of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fbo_flower.algorithms.records import Array


@dataclass(frozen=True)
class ServerResults:
    """The server's results at the end of a study, as rows of the study's tables.

    Parameters
    ----------
    models : rows with the columns of `study.schema.MODELS`, except `algorithm`
    judgements : rows with the columns of `study.schema.JUDGEMENTS`, except `algorithm`
    recommendations : agent -> `(point (D,), value)`, used instead of the agent's own best trial
    privacy : the privacy spent where noise is used: `epsilon`, `delta` and the counts that they follow from.
        The strategy adds `noise_from`: "seed", "system" or "agents"
    """

    models: Sequence[Mapping[str, object]] = ()
    judgements: Sequence[Mapping[str, object]] = ()
    recommendations: Mapping[str, tuple[Array, float]] = field(default_factory=dict)
    privacy: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of_noise(
        cls, noise: str, epsilon: float, delta: float, counts: Mapping[str, object], by_agents: bool = True
    ) -> ServerResults:
        """Return the privacy spent by noise; `epsilon` is None where there is no noise, so no bound."""
        source = {"noise_from": "agents"} if by_agents else {}
        spent = epsilon if np.isfinite(epsilon) else None
        return cls(privacy={"noise": noise, **source, "epsilon": spent, "delta": delta, **counts})
