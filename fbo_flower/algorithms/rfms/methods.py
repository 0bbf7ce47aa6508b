"""The methods of RFMS: what each minimises, proposes next and ships [Sun2019, Section 4.2].

Notation: `(J_l, J_r)` losses at the openbox and at the curators, `(n, 2)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.records import Array
from fbo_flower.algorithms.requests import alone
from fbo_flower.algorithms.rfms.state import RFMSState
from fbo_flower.algorithms.search import maximising
from fbo_flower.numerics.acquisition import proposals, scalarization
from fbo_flower.numerics.arrays import BoolArray

METHODS = ("lso", "fso", "fmo", "ehvi", "rand_mo")
SHIP = ("own", "mean", "max", "guarded")
REFERENCES = ("front", "ones")
GUESSING = 0.5  # misclassification rate of guessing between two classes


@dataclass(frozen=True)
class Method:
    """A method with the options that it reads; see `RFMS`.

    Parameters
    ----------
    name : one of `METHODS`
    alpha : of "fso"
    reference : reference point of "ehvi", one of `REFERENCES`
    incumbent : of "lso", "fso" and "fmo", one of `proposals.INCUMBENTS`
    """

    name: str
    alpha: float
    reference: str = "front"
    incumbent: str = "mean"

    def combined(self, losses: Array) -> Array:
        """Return the method's objective, `(n,)`; for a method with two objectives, their mean [Eq. 4].

        Parameters
        ----------
        losses : `(n, 2)`; NaN for unknown ones
        """
        if self.name == "lso":
            return losses[:, 0]
        weight = self.alpha if self.name == "fso" else 0.5
        return weight * losses[:, 0] + (1.0 - weight) * losses[:, 1]  # alpha J_l + (1 - alpha) J_r

    def observations(self, state: RFMSState) -> tuple[Array, Array]:
        """Return the points `(n, D)` and losses `(n, 2)` that the search models."""
        kept, losses = self.observed(state.losses(), state.failed())
        return state.points[kept], losses

    def observed(self, losses: Array, failed: BoolArray) -> tuple[BoolArray, Array]:
        """Return which trials the search models, and with which losses `(n, 2)`.

        A failed trial counts as the worst loss seen. A trial whose losses are not known yet is left out.
        "lso" ignores the curators: both columns are `J_l`. Before the first success no trial is modelled.
        """
        if self.name == "lso":
            losses, failed = losses[:, [0, 0]], ~np.isfinite(losses[:, 0])
        known = np.isfinite(losses).all(axis=1) & ~failed
        if not known.any():
            return known, losses[known]
        worst = losses[known].max(axis=0)
        losses = np.where(failed[:, None], worst, losses)
        kept = known | failed
        return kept, losses[kept]

    def plan(self, features: Array, losses: Array, rng: np.random.Generator) -> proposals.ProposalPlan:
        """Return the surrogates to fit and the acquisition function to maximise for the next proposal.

        "fmo" is ParEGO: it scalarises the two losses with new random weights and maximises the expected
        improvement of the result.

        Parameters
        ----------
        features : `(n, F)`, of the points seen, `n > 0`
        losses : `(n, 2)`, finite
        """
        if self.name == "ehvi":
            corner = np.ones(2) if self.reference == "ones" else None
            return proposals.plan_volume_improvement(features, losses, corner)
        if self.name == "fmo":
            weights = scalarization.draw_weights(2, rng)
            values = scalarization.tchebycheff(scalarization.normalise(losses), weights)
            return proposals.plan_improvement(features, values, self.incumbent)
        return proposals.plan_improvement(features, self.combined(losses), self.incumbent)

    def propose(self, state: RFMSState, rng: np.random.Generator) -> Array:
        """Return the next point `(D,)`: the maximiser of the acquisition function [Sun2019, Alg. 1, line 13].

        Before the first success return a random point.
        """
        points, losses = self.observations(state)
        if len(points) == 0:
            first: Array = state.space.snap(rng.random((1, state.space.dimension)))[0]
            return first
        function = self.plan(state.space.features(points), losses, rng).fitted(proposals.KERNEL)
        distance, count = proposals.MIN_DISTANCE, proposals.NUM_CANDIDATES
        point: Array = alone(maximising(function, state.space, state.points, count, distance, rng))[0]
        return point


def shipped(state: RFMSState, criterion: str, method: Method) -> int | None:
    """Return the trial to ship [Sun2019, Alg. 1, line 22]: the first minimiser of the criterion.

    None if no trial succeeded.
    """
    losses, worst = state.losses(), np.where(state.failed(), np.nan, state.worst_losses())
    if criterion == "max" or (criterion == "guarded" and bool(np.any(worst < GUESSING))):
        values = worst
    elif criterion in ("mean", "guarded"):
        values = losses.mean(axis=1)
    else:
        values = method.combined(losses)
    values = np.where(state.failed(), np.nan, values)
    return int(np.nanargmin(values)) if np.isfinite(values).any() else None
