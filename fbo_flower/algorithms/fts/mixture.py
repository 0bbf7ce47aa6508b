"""Thompson sampling over two models of the agent's objective, for agents that may be unrelated.

Model A is the agent's own Gaussian process. Model B is `a m(x)` plus a Gaussian process on what is
left, where `m` is the mean of the other agents' messages, weighted by how well each agrees in rank
with the agent's own observations: `w_n ~ exp(n rho_n / 2)`, `n` observations, `rho_n` Spearman's
correlation. Each iteration picks a model by its evidence (B pays `log(n) / 2` for the fitted `a`) and
draws a function from it. Ours, not the paper's; see `docs/papers/fts.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.records import AgentState, Array, Task
from fbo_flower.numerics.aggregation.portfolio import rank_agreement
from fbo_flower.numerics.optim.functions import Differentiable, LinearFunction, Sum
from fbo_flower.numerics.surrogates import gp, rff


@dataclass(frozen=True)
class Messages:
    """The others' messages as functions: `features`, `weights (N, M)`."""

    features: rff.RandomFeatures
    weights: Array


def received(task: Task, agent_state: AgentState) -> Messages | None:
    """Return the messages in the task, else those that the agent's state kept, else None."""
    for arrays in (task.arrays, agent_state.arrays):
        if "messages" in arrays:
            frequencies, phases, weights = (
                np.asarray(arrays[name], dtype=np.float64) for name in ("frequencies", "phases", "messages")
            )
            return Messages(rff.RandomFeatures(frequencies, phases), weights)
    return None


def draw(
    x: Array,
    y: Array,
    own: gp.Hyperparameters,
    messages: Messages,
    cube: Array,
    draw_path: Callable[[gp.Posterior, np.random.Generator], gp.SamplePath],
    rng: np.random.Generator,
) -> Differentiable:
    """Draw a function from one of the two models, chosen by evidence.

    Parameters
    ----------
    x, y : `(n, F)` features and `(n,)` standardised values of the agent, `n >= 1`
    own : hyperparameters of model A
    cube : `(S, F)`, points over which messages are standardised
    draw_path : draws a function from a posterior
    """
    trend = _trend(x, y, messages, cube)
    left = y - trend(x)
    fitted = gp.fit(x, left, own.kernel, rng, start=own).hyperparameters
    evidence_own = gp.log_marginal_likelihood(x, y, own)[0]
    evidence_trend = gp.log_marginal_likelihood(x, left, fitted)[0] - 0.5 * np.log(len(y))
    probability_own = 1 / (1 + np.exp(np.clip(evidence_trend - evidence_own, -50, 50)))
    if rng.random() <= probability_own:
        return draw_path(gp.posterior(x, y, own), rng)
    return Sum(trend, draw_path(gp.posterior(x, left, fitted), rng))


def _trend(x: Array, y: Array, messages: Messages, cube: Array) -> LinearFunction:
    """Return `a m(.)` as one linear function of the shared features."""
    over_cube = messages.features(cube) @ messages.weights.T  # (S, N)
    mean, stddev = over_cube.mean(axis=0), over_cube.std(axis=0)
    scale = 1 / np.where(stddev > 1e-12, stddev, np.inf)
    at_own = (messages.features(x) @ messages.weights.T - mean) * scale  # z_n at the agent's points
    exponent = 0.5 * len(y) * rank_agreement(at_own, y)
    share = np.exp(exponent - exponent.max())
    share /= share.sum()
    trend = at_own @ share
    # ridge of one pseudo-observation: three points must not make a large `a`; a negative one is no trend
    coefficient = max(0.0, float(trend @ y) / (float(trend @ trend) + 1.0))
    return LinearFunction(
        messages.features,
        coefficient * (messages.weights.T * scale) @ share,
        offset=-coefficient * float((mean * scale) @ share),
    )
