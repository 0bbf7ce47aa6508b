"""Federated upper-confidence bandits over a fixed set of random arms: Fed1-UCB and FN-UCB.

Fed1-UCB [Shi2021]: in phase `p` every client pulls every active arm `f(p)` times; the server averages over
the `M` clients, and drops arms whose upper bound does not exceed the best lower bound,
`B = sqrt(4 sigma^2 log T / (M F(p)))`, `F(p)` pulls per client so far. The last remaining arm is pulled until
the budget ends.

FN-UCB [Dai2023]: neural networks of one hidden layer. With gradients at the initial weights `g(x) (P,)`,
`UCB^a = g^T theta + nu_a sqrt(lam g^T V^-1 g)`, `V = lam I + sum g g^T`, `theta = V^-1 sum r g` over the sums
of all clients at the last exchange and the own ones since; `UCB^b = net(x; mean weights) + nu_b sqrt(lam g^T
mean_m(V_m^-1) g)`; arms are chosen by `(1 - alpha_t) UCB^a + alpha_t UCB^b`. The clients exchange `sum g
g^T`, `sum r g`, weights and `V_m^-1` when `(t - t_last) log(det V / det V_last) > threshold` holds for one of
them.

[Shi2021] Shi, Shen. Federated multi-armed bandits. AAAI 2021.
[Dai2023] Dai, Shu, Verma, Fan, Low, Jaillet. Federated neural bandits. ICLR 2023, and its published code.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from fbo_flower.numerics.arrays import Array, BoolArray, IntArray

ARMS_PER_DIMENSION = 20  # [Li2024, App. C.1], up to two dimensions
ARMS_ABOVE = 1000


def random_arms(dim: int, rng: np.random.Generator) -> Array:
    """Return the arms `(K, D)`: all pairs of 20 uniform coordinates per axis; 1000 points for `D > 2`."""
    if dim > 2:
        return rng.random((ARMS_ABOVE, dim))
    axes = rng.random((dim, ARMS_PER_DIMENSION))
    return np.array(list(itertools.product(*axes)))


def phase_length(budget: int) -> int:
    """Return `f(p) = ceil(10 log T)`, the pulls per arm, client and phase."""
    return max(1, math.ceil(10 * math.log(budget)))


def fed1_radius(count: IntArray | Array, num_clients: int, budget: int, noise_stddev: float = 1.0) -> Array:
    """Return `B = sqrt(4 sigma^2 log T / (M F))`, `(K,)`; `count` is `F`, the pulls per client."""
    return np.asarray(np.sqrt(4 * noise_stddev**2 * math.log(budget) / (num_clients * count)))


def fed1_survivors(mean: Array, radius: Array) -> BoolArray:
    """Return the arms whose upper bound exceeds the best lower bound, `(K,)`; the best arm always does."""
    return np.asarray(mean + radius > (mean - radius).max(), dtype=np.bool_)


@dataclass(frozen=True)
class NeuralOptions:
    """Constants of FN-UCB; the defaults are those of the published code.

    Parameters
    ----------
    width : hidden units; one layer
    regulariser : `lam`
    nu_a, nu_b : factors of the radii of the two bounds
    mix_from, mix_until : `alpha_t` is 0 before, grows linearly, and is 1 after
    train_steps, learning_rate : number of gradient steps at an exchange, and their step size
    train_until : number of pulls after which the networks are no longer trained
    threshold : threshold of the exchange criterion; 0 exchanges in every round
    """

    width: int = 20
    regulariser: float = 0.1
    nu_a: float = 0.1
    nu_b: float = 0.1
    mix_from: int = 3
    mix_until: int = 703
    train_steps: int = 30
    learning_rate: float = 0.01
    train_until: int = 2000
    threshold: float = 0.0

    def alpha(self, t: int) -> float:
        """Return `alpha_t`, the weight of `UCB^b` at pull `t`, counted from 0."""
        return min(1.0, max(0.0, (t - self.mix_from) / (self.mix_until - self.mix_from)))


@dataclass(frozen=True)
class Features:
    """What all agents of FN-UCB have in common: the arms, and the network at its initial weights.

    Attributes
    ----------
    arms : `(K, D)`
    start : `(P,)`, initial weights
    gradients : `(K, P)`, `g` of each arm there
    """

    options: NeuralOptions
    arms: Array
    start: Array
    gradients: Array


def network(weights: Array, x: Array, width: int) -> Array:
    """Return the network's outputs `w2 relu(W1 x + b1) + b2`, `(n,)`."""
    w1, b1, w2, b2 = _split(weights, x.shape[1], width)
    return np.asarray(np.maximum(x @ w1.T + b1, 0.0) @ w2 + b2, dtype=np.float64)


def network_gradients(weights: Array, x: Array, width: int) -> Array:
    """Return the gradients of `network` with respect to the weights, `(n, P)`."""
    w1, b1, w2, _ = _split(weights, x.shape[1], width)
    hidden = x @ w1.T + b1
    slope = (hidden > 0) * w2  # d f / d (W1 x + b1)
    w1_part = (slope[:, :, np.newaxis] * x[:, np.newaxis, :]).reshape(len(x), -1)
    return np.concatenate([w1_part, slope, np.maximum(hidden, 0.0), np.ones((len(x), 1))], axis=1)


def neural_features(arms: Array, options: NeuralOptions, rng: np.random.Generator) -> Features:
    """Draw the initial weights, standard normal as in the published code, and return the features."""
    start = rng.standard_normal(options.width * (arms.shape[1] + 2) + 1)
    return Features(options, arms, start, network_gradients(start, arms, options.width))


def neural_choose(
    features: Features, t: int, v_inverse: Array, response: Array, weights: Array, average_inverse: Array
) -> int:
    """Return the arm of one agent at pull `t`.

    Parameters
    ----------
    v_inverse, response : `V^-1 (P, P)` and `sum r g (P,)`, as known to the agent
    weights, average_inverse : mean weights `(P,)` and `mean_m(V_m^-1) (P, P)` at the last exchange
    """
    options, alpha = features.options, features.options.alpha(t)
    bound_b: Array | float = 0.0
    if alpha > 0:
        _, radius = _projected(features, average_inverse)
        bound_b = network(weights, features.arms, options.width) + options.nu_b * radius
    projected, radius = _projected(features, v_inverse)
    bound_a = projected @ response + options.nu_a * radius
    return int(np.argmax((1 - alpha) * bound_a + alpha * bound_b))


def _projected(features: Features, inverse: Array) -> tuple[Array, Array]:
    """Return `g^T V^-1`, `(K, P)`, and `sqrt(lam g^T V^-1 g)`, `(K,)`."""
    projected = features.gradients @ inverse
    spread = np.einsum("kp,kp->k", projected, features.gradients)
    return projected, np.sqrt(features.options.regulariser * np.maximum(spread, 0.0))


def neural_train(features: Features, trained: Array, counts: Array, totals: Array) -> Array:
    """Return weights `(M, P)` after gradient steps on `mean (net - reward)^2` with decay `lam / n`.

    All clients take their steps together, on the arms that any of them has pulled; arms that a client has not
    pulled have weight 0. Internal shape: `(arms, M, width)`.

    Parameters
    ----------
    trained : `(M, P)`, each client's last weights, from which it continues
    counts, totals : `(M, K)`, number of pulls and sum of rewards of each arm
    """
    options, num_clients, width = features.options, len(counts), features.options.width
    seen = np.flatnonzero(counts.any(axis=0))
    n = counts[:, seen].T  # (arms, M)
    y = totals[:, seen].T / np.maximum(1, n)
    x = np.concatenate([features.arms[seen], np.ones((len(seen), 1))], axis=1)  # ones for the offsets
    inputs = x.shape[1]
    parts = [_split(weights, inputs - 1, width) for weights in trained]
    first = np.stack([np.column_stack([w1, b1]) for w1, b1, _, _ in parts])  # (M, width, D + 1)
    first = first.transpose(2, 0, 1).reshape(inputs, num_clients * width)
    second, offset = np.stack([w2 for _, _, w2, _ in parts]), np.array([b2 for *_, b2 in parts])
    shape = (len(seen), num_clients, width)
    rate = options.learning_rate
    pulls = np.maximum(1.0, n.sum(axis=0))
    keep = 1.0 - rate * options.regulariser / pulls  # decay, (M,)
    keep_first = np.repeat(keep, width)
    scaled = 2.0 * rate * n / pulls
    for _ in range(options.train_steps):
        hidden = (x @ first).reshape(shape)
        active = np.maximum(hidden, 0.0)
        residual = scaled * (np.einsum("amw,mw->am", active, second) + offset - y)
        slope = (hidden > 0) * (residual[:, :, np.newaxis] * second)
        first = keep_first * first - x.T @ slope.reshape(len(seen), -1)
        second = keep[:, np.newaxis] * second - np.einsum("am,amw->mw", residual, active)
        offset = keep * offset - residual.sum(axis=0)
    w1 = first.reshape(inputs, num_clients, width).transpose(1, 2, 0)  # (M, width, D + 1)
    flat = w1[:, :, :-1].reshape(num_clients, -1)
    return np.concatenate([flat, w1[:, :, -1], second, offset[:, np.newaxis]], axis=1)


def _split(weights: Array, dim: int, width: int) -> tuple[Array, Array, Array, float]:
    first = width * dim
    w1 = weights[:first].reshape(width, dim)
    b1, w2 = weights[first : first + width], weights[first + width : first + 2 * width]
    return w1, b1, w2, float(weights[-1])
