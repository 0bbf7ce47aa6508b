"""RGPE [Feurer2018] and TAF [Wistuba2018], as the FTS paper compares them.

Every agent sends the posterior of its weights in shared random features, `nu (M,)` and `Sigma^-1 (M, M)`.
From `Sigma^-1` a reader can compute the sender's points and standardised values: `docs/papers/fts.md`.

**RGPE** is an ensemble that is weighted by rankings. A target weights the other agents' surrogates by how
well they rank the target's own observations; its own surrogate is judged by leave-one-out predictions. It
evaluates the point where expected improvement of the weighted sum is largest.

**TAF** is a transfer acquisition function. Every agent also sends its best value. A target maximises a
weighted mean of its own expected improvement and of the improvements that the other agents' surrogates
predict over their own best values. A surrogate's weight depends on how well it ranks the target's
observations.

[Feurer2018], [Wistuba2018] : see `numerics.aggregation.rank_weights`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.options import bounded, choice, integer
from fbo_flower.algorithms.records import Array
from fbo_flower.algorithms.transfer.base import Members, Transfer
from fbo_flower.errors import NumericalError
from fbo_flower.numerics.acquisition.expected_improvement import LogImprovement
from fbo_flower.numerics.acquisition.feature_models import (
    LogEnsembleImprovement,
    LogTransferImprovement,
    unpack_symmetric,
)
from fbo_flower.numerics.aggregation.rank_weights import (
    TARGET_WEIGHT,
    bootstrap_losses,
    differences,
    ensemble_weights,
    kernel_weights,
    leave_one_out_gaps,
    prediction_losses,
    ranking_losses,
)
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.surrogates import gp

NUGGET = 1e-10  # added to variances of standardised values before a factorisation


@dataclass(frozen=True, kw_only=True)
class RGPE(Transfer):
    """Expected improvement on a ranking-weighted ensemble; `Transfer` describes the other options.

    Parameters
    ----------
    draws : how ranking losses are sampled: "posterior" (the paper): functions drawn from every surrogate;
        "bootstrap": mean predictions on resampled observations
    num_draws : `S`, number of samples of each ranking loss
    """

    name: ClassVar[str] = "rgpe"
    draws: str = choice("posterior", ("posterior", "bootstrap"))
    num_draws: int = integer(100, 1, 10_000)

    def acquisition(
        self, posterior: gp.Posterior, members: Members, rng: np.random.Generator
    ) -> LogEnsembleImprovement:
        weights = self.weights(posterior, members, rng)
        used = np.flatnonzero(weights[:-1])
        m = self.num_features
        mean, covariance = weights[used] @ members.means[used], np.zeros((m, m))
        if len(used):
            squares = self.message_noise_variance * weights[used] ** 2
            covariance = unpack_symmetric(squares @ members.inverses[used], m)
        ensemble = LogEnsembleImprovement(
            posterior, float(weights[-1]), members.features, mean, covariance, best=0.0
        )
        best = float(ensemble.predict(posterior.x)[0].max())  # incumbent: the ensemble's best mean
        return replace(ensemble, best=best)

    def weights(self, posterior: gp.Posterior, members: Members, rng: np.random.Generator) -> Array:
        """Return the ensemble's weights `(K + 1,)`, the target's own last."""
        y, num_draws = posterior.y, self.num_draws
        phi = members.features(posterior.x)  # (n, M)
        if self.draws == "bootstrap":
            counts = rng.multinomial(len(y), np.full(len(y), 1 / len(y)), num_draws).astype(np.float64)
            predictions = differences(members.means @ phi.T)
            losses = np.array([bootstrap_losses(gaps, y, counts) for gaps in predictions])
            target = bootstrap_losses(leave_one_out_gaps(posterior, 0, rng)[0], y, counts)
        else:
            drawn = self._draws(phi, members, rng)
            losses = prediction_losses(drawn.reshape(-1, len(y)), y)
            target = ranking_losses(leave_one_out_gaps(posterior, num_draws, rng), y)
        return ensemble_weights(losses.reshape(-1, num_draws), target)

    def _draws(self, phi: Array, members: Members, rng: np.random.Generator) -> Array:
        """Draw every other agent's function at the target's points, `(K, S, n)`."""
        num_members, n = len(members.means), len(phi)
        if num_members == 0:
            return np.empty((0, self.num_draws, n))
        inverses = unpack_symmetric(members.inverses, self.num_features)
        covariances = self.message_noise_variance * phi @ inverses @ phi.T
        covariances.reshape(num_members, -1)[:, :: n + 1] += NUGGET
        normals = rng.standard_normal((num_members, self.num_draws, n))
        means = (phi @ members.means[:, :, None])[:, :, 0]
        drawn: Array = normals @ roots(covariances).transpose(0, 2, 1)
        drawn += means[:, None, :]
        return drawn


def roots(covariances: Array) -> Array:
    """Return `L (K, n, n)` with `L L^T = C` for covariances `C (K, n, n)`.

    Agents may send anything: if a `C` is not positive semi-definite, its negative eigenvalues are set to 0.
    """
    try:
        return np.asarray(np.linalg.cholesky(covariances), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.array([_root(covariance) for covariance in covariances])


def _root(covariance: Array) -> Array:
    try:
        return cholesky(covariance).lower
    except NumericalError:
        eigenvalues, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(eigenvalues, 0.0)), dtype=np.float64)


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
    improvement_over: str = choice("incumbent", ("incumbent", "seen"))
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
