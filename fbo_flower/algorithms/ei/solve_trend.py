"""The regression on the others' sums, as a request that is stacked over agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.records import Array
from fbo_flower.algorithms.requests import Request
from fbo_flower.numerics.surrogates.trend_many import others_weights


@dataclass(frozen=True)
class SolveTrend(Request):
    """Solve for the weights `(M,)` of the others' trend; see `others_weights`.

    Parameters
    ----------
    gram, moment : `(M (M + 1) / 2,)` and `(M,)`, sums that hold the agent's own part
    phi, y : `(n, M)` and `(n,)`, the features and the observations of this part
    """

    gram: Array
    moment: Array
    phi: Array
    y: Array
    ridge: float

    @property
    def shape(self) -> tuple[object, ...]:
        return self.gram.shape, self.phi.shape, self.ridge

    @property
    def size(self) -> int:
        return len(self.moment) * max(len(self.phi), len(self.moment))

    @staticmethod
    def compute(requests: Sequence[SolveTrend]) -> Sequence[Array]:
        """Solve for all agents together."""
        weights = others_weights(
            [request.gram for request in requests],
            np.array([request.moment for request in requests]),
            np.array([request.phi for request in requests]),
            np.array([request.y for request in requests]),
            requests[0].ridge,
        )
        return list(weights)
