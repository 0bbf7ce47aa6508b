"""Thompson sampling over two models of the agent's objective, for agents that may be unrelated.

Model A is the agent's own Gaussian process. Model B is `a m(x)` plus a Gaussian process on the residual,
where `m` is the mean of the other agents' messages, weighted by how well the ranking of each agrees with the
agent's own observations: `w_i ~ exp(n rho_i / 2)` for message `i`, with `n` observations and Spearman's
correlation `rho_i`. Each iteration draws a model by its marginal likelihood (B pays `log(n) / 2` for the
fitted `a`), then draws a function from it. This is our addition, not part of the paper: `docs/papers/fts.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.records import AnyArray, Array
from fbo_flower.algorithms.requests import Fit, compute
from fbo_flower.numerics.aggregation.portfolio import rank_agreement
from fbo_flower.numerics.optim.functions import LinearFunction
from fbo_flower.numerics.surrogates import gp, rff

NAMES = "frequencies", "phases", "messages"


@dataclass(frozen=True)
class Messages:
    """The other agents' messages as functions: shared `features`, and `weights (N, M)`, a row per message."""

    features: rff.RandomFeatures
    weights: Array

    @staticmethod
    def of(*sources: Mapping[str, AnyArray]) -> Messages | None:
        """Return the messages of a task, or else those of the agent's state; None if there are none."""
        arrays = next((arrays for arrays in sources if "messages" in arrays), None)
        if arrays is None:
            return None
        # copies: an array that was read from bytes may be unaligned, and its products rounded otherwise
        frequencies, phases, weights = (np.array(arrays[n], dtype=np.float64) for n in NAMES)
        return Messages(rff.RandomFeatures(frequencies, phases), weights)


def draw_model(
    x: Array, y: Array, own: gp.Hyperparameters, messages: Messages, cube: Array, rng: np.random.Generator
) -> tuple[LinearFunction | None, Array, gp.Hyperparameters]:
    """Draw one of the two models by marginal likelihood: its trend, its values `(n,)`, its hyperparameters.

    Parameters
    ----------
    x, y : `(n, F)` features and `(n,)` standardised values of the agent, `n >= 1`
    own : hyperparameters of the agent's last fit. Both models are fitted from there to the same values: an
        older fit of one of them would lose against a fresh one of the other
    cube : `(S, F)`, points over which messages are standardised
    """
    own = compute(Fit(x, y, own.kernel, own))
    trend = trend_of(x, y, messages, cube)
    residual = y - trend(x)
    fitted = compute(Fit(x, residual, own.kernel, own))
    evidence_own = gp.log_marginal_likelihood(x, y, own)[0]
    evidence_trend = gp.log_marginal_likelihood(x, residual, fitted)[0] - 0.5 * np.log(len(y))
    probability_own = 1 / (1 + np.exp(np.clip(evidence_trend - evidence_own, -50, 50)))
    return (None, y, own) if rng.random() <= probability_own else (trend, residual, fitted)


def mean_message(messages: Messages, cube: Array) -> LinearFunction:
    """Return the mean of the standardised messages, which an agent without a value of its own maximises."""
    mean, scale = _standardisation(messages, cube)
    share = np.full(len(messages.weights), 1 / len(messages.weights))
    weights = (messages.weights.T * scale) @ share
    return LinearFunction(messages.features, weights, offset=-float((mean * scale) @ share))


def _standardisation(messages: Messages, cube: Array) -> tuple[Array, Array]:
    """Return the mean `(N,)` of each message over the cube and 1 / its s.d., 0 for a constant message."""
    over_cube = messages.features(cube) @ messages.weights.T  # (S, N)
    mean, stddev = over_cube.mean(axis=0), over_cube.std(axis=0)
    return mean, 1 / np.where(stddev > 1e-12, stddev, np.inf)


def trend_of(x: Array, y: Array, messages: Messages, cube: Array) -> LinearFunction:
    """Return the trend `a m(.)` as one linear function of the shared features."""
    mean, scale = _standardisation(messages, cube)
    at_own = (messages.features(x) @ messages.weights.T - mean) * scale  # z_n at the agent's points
    exponent = 0.5 * len(y) * rank_agreement(at_own, y)  # n rho_i / 2
    share = np.exp(exponent - exponent.max())  # w_i
    share /= share.sum()
    trend = at_own @ share  # m at the agent's points
    # a: least squares with a ridge of one pseudo-observation, so that three points cannot make it large;
    # a negative coefficient would invert the messages and is replaced by 0
    coefficient = max(0.0, float(trend @ y) / (float(trend @ trend) + 1.0))
    return LinearFunction(
        messages.features,
        coefficient * (messages.weights.T * scale) @ share,
        offset=-coefficient * float((mean * scale) @ share),
    )
