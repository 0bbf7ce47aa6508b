"""First values of points, for an objective that always answers the same: it is evaluated once per point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fbo_flower.algorithms.bandits.base import NUM_EVALUATIONS
from fbo_flower.algorithms.records import AnyArray, Array

_POINTS, _VALUES = "first.points", "first.values"


@dataclass
class EvaluationCache:
    """What an agent has evaluated so far.

    Attributes
    ----------
    values : point `(D,)` as bytes -> its first value
    num_evaluations : real ones, failures included
    """

    values: dict[bytes, float] = field(default_factory=dict)
    num_evaluations: int = 0

    @staticmethod
    def read(arrays: Mapping[str, AnyArray]) -> EvaluationCache:
        """Return what an agent's state holds."""
        if _POINTS not in arrays:
            return EvaluationCache()
        points = np.ascontiguousarray(arrays[_POINTS], dtype=np.float64)
        observed = np.asarray(arrays[_VALUES], dtype=np.float64).tolist()
        made = int(np.asarray(arrays[NUM_EVALUATIONS])[0])
        return EvaluationCache(dict(zip((p.tobytes() for p in points), observed, strict=True)), made)

    def arrays(self, dimension: int) -> dict[str, AnyArray]:
        """Return the arrays under the names they have in an agent's state."""
        return {
            _POINTS: np.frombuffer(b"".join(self.values), dtype=np.float64).reshape(-1, dimension).copy(),
            _VALUES: np.array(list(self.values.values()), dtype=np.float64),
            NUM_EVALUATIONS: np.array([self.num_evaluations], dtype=np.int64),
        }

    def repeat(
        self, point: Array, repeats: int, evaluate: Callable[[], tuple[Array, str]]
    ) -> tuple[Array, str]:
        """Return `repeats` times the value of `point`, evaluated if it is new; an error is not kept."""
        key = point.tobytes()
        if key not in self.values:
            self.num_evaluations += 1
            observed, reason = evaluate()
            if len(observed) == 0:
                return observed, reason
            self.values[key] = float(observed[0])
        return np.full(repeats, self.values[key]), ""

    def recall(self, point: Array, value: float) -> None:
        """Enter what was evaluated before the agent was cut off; NaN stands for a failure."""
        key = point.tobytes()
        if key not in self.values:
            self.num_evaluations += 1
            if not np.isnan(value):
                self.values[key] = value
