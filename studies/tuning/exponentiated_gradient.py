"""Exponentiated gradient over a finite set of choices, as FedEx updates its distribution [Khodak2021, Alg.
2].

`theta (k,)` is the distribution over `k` configurations. In a round, client `i` draws `c_i ~ theta`, trains
with it, and reports its validation loss `L_i` and the number `n_i` of rows that it has judged with. Then

    g_j = sum_i n_i (L_i - lambda) 1[c_i = j] / (theta_j sum_i n_i)      (Alg. 2: the gradient's estimate)
    theta_j <- theta_j exp(-eta g_j) / sum_l theta_l exp(-eta g_l)       (Alg. 2: exponentiated update)

`lambda` is a baseline that lowers the variance of `g` without moving its mean: a discounted mean of the
losses of earlier rounds. The step size is `eta = sqrt(2 log k) / d` with, by the schedule's name,

    "aggressive"  d = |g|_inf                      "adaptive"  d = sqrt(sum over rounds of |g|_inf^2)
    "sqrt"        d = sqrt(number of the round)    "constant"  d = 1

All is computed with logarithms of `theta`. No probability falls below `LEAST`, so that `g` stays finite.

[Khodak2021] Khodak, Tu, Li, Li, Balcan, Smith, Talwalkar. Federated hyperparameter tuning: challenges,
baselines, and connections to weight-sharing. NeurIPS 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fbo_flower.numerics.arrays import Array, IntArray

LEAST = 1e-12  # probability below which a choice does not fall
STEP_SIZES = ("aggressive", "adaptive", "sqrt", "constant")


@dataclass(frozen=True)
class Distribution:
    """A distribution over choices, and what its step size depends on.

    Attributes
    ----------
    log_theta : `(k,)`, logarithms of the probabilities
    losses : `(t,)`, weighted mean loss of every round so far
    squares : sum of `|g|_inf^2` over the rounds so far
    """

    log_theta: Array
    losses: Array
    squares: float = 0.0

    @staticmethod
    def uniform(num_choices: int) -> Distribution:
        """Return the uniform distribution."""
        return Distribution(np.full(num_choices, -math.log(num_choices)), np.empty(0))

    @property
    def theta(self) -> Array:
        """Probabilities `(k,)`."""
        probabilities: Array = np.exp(self.log_theta)
        return np.asarray(probabilities / probabilities.sum())

    @property
    def entropy(self) -> float:
        """Entropy in nats; `log k` at first, 0 when a single choice is left."""
        return float(-(self.theta * self.log_theta).sum())

    def draw(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw `(size,)` choices."""
        return rng.choice(len(self.log_theta), size, p=self.theta).astype(np.int64)

    def baseline(self, discount: float) -> float:
        """Return `lambda`: the mean of earlier rounds' losses with weights `discount^age`; 0 before any."""
        if not len(self.losses):
            return 0.0
        weights = np.power(discount, np.arange(len(self.losses))[::-1])
        return float(weights @ self.losses / weights.sum())

    def gradient(self, choices: IntArray, losses: Array, weights: Array, baseline: float) -> Array:
        """Return the estimate `g` `(k,)`.

        Parameters
        ----------
        choices, losses, weights : `(n,)`, of the clients that answered
        baseline : `lambda`
        """
        shares = weights / weights.sum()
        parts = shares * (losses - baseline) / self.theta[choices]
        found: Array = np.bincount(choices, parts, minlength=len(self.log_theta)).astype(np.float64)
        return found

    def update(
        self, choices: IntArray, losses: Array, weights: Array, step_size: str, discount: float
    ) -> Distribution:
        """Return the distribution after a round; without any answer it stays as it is."""
        if not len(choices):
            return self
        g = self.gradient(choices, losses, weights, self.baseline(discount))
        largest = float(np.abs(g).max())
        squares = self.squares + largest**2
        divisors = {
            "aggressive": largest,
            "adaptive": math.sqrt(squares),
            "sqrt": math.sqrt(len(self.losses) + 1),
            "constant": 1.0,
        }
        divisor = divisors[step_size]
        eta = math.sqrt(2.0 * math.log(len(g))) / divisor if divisor > 0.0 else 0.0
        z = self.log_theta - eta * g
        z -= z.max()
        z = np.maximum(z - math.log(np.exp(z).sum()), math.log(LEAST))
        mean = float(weights @ losses / weights.sum())
        return Distribution(z, np.append(self.losses, mean), squares)
