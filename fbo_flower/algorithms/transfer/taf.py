"""TAF, the transfer acquisition function [Wistuba2018], as the FTS paper compares it.

Every agent sends the posterior of its weights in shared random features and its best value. A target mixes
its own expected improvement with what the others' surrogates promise over their own best values, each
weighted by how well it orders what the target has seen. Whoever has `Sigma^-1` has the sender's points and
standardised values: `docs/papers/fts.md`.

[Wistuba2018] as in `numerics.rank_weights`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.options import check_choice, check_number
from fbo_flower.algorithms.transfer.base import Members, Transfer
from fbo_flower.numerics.acquisition.feature_models import LogTransferImprovement
from fbo_flower.numerics.acquisition.proposals import LogImprovement
from fbo_flower.numerics.aggregation.rank_weights import TARGET_WEIGHT, kernel_weights, prediction_losses
from fbo_flower.numerics.surrogates import gp

BASES = ("incumbent", "seen")


@dataclass(frozen=True, kw_only=True)
class TAF(Transfer):
    """A weighted mean of the target's expected improvement and the others' predicted improvements.

    Parameters
    ----------
    improvement_over : what an other agent's prediction has to improve on: its "incumbent", the best value it
        observed, which it sends (the FTS paper), or the best it predicts at the points that the target has
        "seen" (Wistuba et al.), for which no value travels
    bandwidth : of the kernel of the ranking loss
    """

    name: ClassVar[str] = "taf"
    improvement_over: str = "incumbent"
    bandwidth: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("improvement_over", self.improvement_over, BASES)
        check_number("bandwidth", self.bandwidth, 1e-6, 1e6)

    def sends_incumbent(self) -> bool:
        return self.improvement_over == "incumbent"

    def acquisition(
        self, posterior: gp.Posterior, members: Members, rng: np.random.Generator
    ) -> LogTransferImprovement:
        best = float(posterior.predict(posterior.x)[0].max())
        predictions = members.means @ members.features(posterior.x).T  # (K, n)
        losses = prediction_losses(predictions, posterior.y)
        # without two different values of its own, the target knows nothing about the others
        told = np.ptp(posterior.y) > 0.0
        weights = kernel_weights(losses, self.bandwidth) if told else np.zeros(len(losses))
        bests = members.incumbents if self.sends_incumbent() else predictions.max(axis=1)
        own = LogImprovement(posterior, best)
        return LogTransferImprovement(own, TARGET_WEIGHT, members.features, members.means, bests, weights)
