"""`EvaluationCache`: the values of a deterministic objective, so that each point is evaluated once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fbo_flower.algorithms.bandits.base import NUM_EVALUATIONS
from fbo_flower.algorithms.records import AnyArray, Array

_POINTS, _VALUES = "first.points", "first.values"


@dataclass
class EvaluationCache:
    """The points that an agent has evaluated so far, and their values.

    Attributes
    ----------
    values : point `(D,)` as bytes -> its value
    num_evaluations : calls of the objective, failures included
    """

    values: dict[bytes, float] = field(default_factory=dict)
    num_evaluations: int = 0

    @staticmethod
    def read(arrays: Mapping[str, AnyArray]) -> EvaluationCache:
        """Return the cache in the arrays of an agent's state."""
        if _POINTS not in arrays:
            return EvaluationCache()
        points = np.ascontiguousarray(arrays[_POINTS], dtype=np.float64)
        observed = np.asarray(arrays[_VALUES], dtype=np.float64).tolist()
        num_evaluations = int(np.asarray(arrays[NUM_EVALUATIONS])[0])
        return EvaluationCache(
            dict(zip((p.tobytes() for p in points), observed, strict=True)), num_evaluations
        )

    def arrays(self, dimension: int) -> dict[str, AnyArray]:
        """Return the cache as arrays, for the agent's state."""
        return {
            _POINTS: np.frombuffer(b"".join(self.values), dtype=np.float64).reshape(-1, dimension).copy(),
            _VALUES: np.array(list(self.values.values()), dtype=np.float64),
            NUM_EVALUATIONS: np.array([self.num_evaluations], dtype=np.int64),
        }

    def repeat(
        self, point: Array, repeats: int, evaluate: Callable[[], tuple[Array, str]]
    ) -> tuple[Array, str]:
        """Return the value of `point` `repeats` times; a new point is evaluated once.

        Returns
        -------
        `(repeats,)`, or `(0,)` and the reason if the evaluation failed; a failure is not cached
        """
        key = point.tobytes()
        if key not in self.values:
            self.num_evaluations += 1
            observed, reason = evaluate()
            if len(observed) == 0:
                return observed, reason
            self.values[key] = float(observed[0])
        return np.full(repeats, self.values[key]), ""

    def recall(self, point: Array, value: float) -> None:
        """Add an evaluation that was made before the agent was interrupted; NaN stands for a failure."""
        key = point.tobytes()
        if key not in self.values:
            self.num_evaluations += 1
            if not np.isnan(value):
                self.values[key] = value
