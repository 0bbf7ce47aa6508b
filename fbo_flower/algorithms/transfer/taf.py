"""TAF, the transfer acquisition function [Wistuba2018], as the FTS paper compares it.

Every agent sends the posterior of its weights in shared random features and its best value. A target
maximises a weighted mean of its own expected improvement and of the improvements that the other agents'
surrogates predict over their own best values. A surrogate's weight depends on how well it ranks the target's
observations. From `Sigma^-1` a reader can compute the sender's points and standardised values:
`docs/papers/fts.md`.

[Wistuba2018] : see `numerics.aggregation.rank_weights`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.options import bounded, choice
from fbo_flower.algorithms.transfer.base import Members, Transfer
from fbo_flower.numerics.acquisition.expected_improvement import LogImprovement
from fbo_flower.numerics.acquisition.feature_models import LogTransferImprovement
from fbo_flower.numerics.aggregation.rank_weights import TARGET_WEIGHT, kernel_weights, prediction_losses
from fbo_flower.numerics.surrogates import gp

BASES = ("incumbent", "seen")


@dataclass(frozen=True, kw_only=True)
class TAF(Transfer):
    """A weighted mean of expected and predicted improvements; `Transfer` describes the other options.

    Parameters
    ----------
    improvement_over : the value that another agent's prediction has to exceed to count as an improvement:
        "incumbent" (the FTS paper): the best value that this agent observed, which it sends; "seen" (Wistuba
        et al.): its largest prediction at the target's points, for which it sends no value
    bandwidth : bandwidth of the kernel that turns ranking losses into weights
    """

    name: ClassVar[str] = "taf"
    improvement_over: str = choice("incumbent", BASES)
    bandwidth: float = bounded(0.5, 1e-6, 1e6)

    @property
    def sends_incumbent(self) -> bool:
        return self.improvement_over == "incumbent"

    def acquisition(
        self, posterior: gp.Posterior, members: Members, rng: np.random.Generator
    ) -> LogTransferImprovement:
        best = float(posterior.mean(posterior.x).max())
        predictions = members.means @ members.features(posterior.x).T  # (K, n)
        losses = prediction_losses(predictions, posterior.y)
        # a ranking needs two different values; without them the other agents get no weight
        has_ranking = np.ptp(posterior.y) > 0.0
        weights = kernel_weights(losses, self.bandwidth) if has_ranking else np.zeros(len(losses))
        bests = members.incumbents if self.sends_incumbent else predictions.max(axis=1)
        own = LogImprovement(posterior, best)
        return LogTransferImprovement(own, TARGET_WEIGHT, members.features, members.means, bests, weights)
