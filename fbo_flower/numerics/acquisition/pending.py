"""The value of a batch of which some points are under way already, so that only the others can be chosen.

The acquisition of a batch is a mean over what all its points may observe. So points under way are entries of
the batch that do not move, and their draws are fantasies of what they will observe: asynchronous q-KG
[Wu2016]. BoTorch's `qKnowledgeGradient` adds its `X_pending` to the batch in the same way. To believe in one
value, e.g. the mean, would ignore that such an observation may move the maximum.

References
----------
[Wu2016] Wu, Frazier. The parallel knowledge gradient method for batch Bayesian optimization. NIPS 2016.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fbo_flower.numerics.acquisition.batch import BatchAcquisition
from fbo_flower.numerics.arrays import Array, IntArray


@dataclass(frozen=True)
class WithPending:
    """A `BatchAcquisition` over the points that can be chosen.

    Parameters
    ----------
    whole : the acquisition of the whole batch, whose first entries are the points under way
    pending : `(P,)`, indices of the points under way
    """

    whole: BatchAcquisition
    pending: IntArray

    @property
    def num_points(self) -> int:
        """`S`."""
        return self.whole.num_points

    @property
    def num_agents(self) -> int:
        """The largest number of points that can be chosen."""
        return self.whole.num_agents - len(self.pending)

    def guess(self, design: IntArray, agent: int) -> Array:
        """Return estimates of `values` for all points, `(S,)`, up to an additive constant."""
        return self.whole.guess(self._with_pending(design), agent + len(self.pending))

    def values(self, design: IntArray, agent: int, candidates: IntArray) -> Array:
        """Return the value of the whole batch with entry `agent` of `design` replaced by each candidate."""
        return self.whole.values(self._with_pending(design), agent + len(self.pending), candidates)

    def _with_pending(self, design: IntArray) -> IntArray:
        return np.concatenate([self.pending, design])
