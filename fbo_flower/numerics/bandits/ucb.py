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

References
----------
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
REFRESH = 100  # exchanges after which inverses are recomputed: rank-1 updates accumulate rounding errors


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


@dataclass
class NeuralState:
    """State of FN-UCB, server and clients together; `neural_learn` changes it in place.

    Attributes
    ----------
    arms : `(K, D)`
    gradients : `(K, P)`, `g` of each arm
    weights : `(P,)`, mean weights of the networks
    trained : `(M, P)`, each client's own network; training goes on where it stopped
    v_inverse, response : `(M, P, P)` and `(M, P)`: `V^-1` and `sum r g` as known to client `m`
    own, own_inverse : `(M, P, P)`, `V_m` of the client's own pulls and its inverse
    own_since : `(M, P)`, the client's `sum r g` since the last exchange
    counts, totals : `(M, K)`, number of pulls and sum of rewards, the training data of the client's network
    average_inverse : `(P, P)`, `mean_m(V_m^-1)` at the last exchange
    log_growth : `(M,)`, `log(det V / det V_last)` of each client
    last_exchange, rounds : pull of the last exchange, and number of exchanges
    floats_up, floats_down : numbers sent so far by all clients and by the server
    """

    options: NeuralOptions
    arms: Array
    gradients: Array
    weights: Array
    trained: Array
    v_inverse: Array
    response: Array
    own: Array
    own_inverse: Array
    own_since: Array
    counts: Array
    totals: Array
    average_inverse: Array
    log_growth: Array
    last_exchange: int = -1
    rounds: int = 0
    floats_up: int = 0
    floats_down: int = 0


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


def neural_start(
    arms: Array, num_clients: int, options: NeuralOptions, rng: np.random.Generator
) -> NeuralState:
    """Return the initial state, with standard normal initial weights as in the published code."""
    num_weights = options.width * (arms.shape[1] + 2) + 1
    start = rng.standard_normal(num_weights)
    gradients = network_gradients(start, arms, options.width)
    identity = np.eye(num_weights)
    inverse = identity / options.regulariser
    m, k = num_clients, len(arms)
    return NeuralState(
        options,
        arms,
        gradients,
        start,
        np.repeat(start[np.newaxis], m, axis=0),
        np.repeat(inverse[np.newaxis], m, axis=0),
        np.zeros((m, num_weights)),
        np.repeat(options.regulariser * identity[np.newaxis], m, axis=0),
        np.repeat(inverse[np.newaxis], m, axis=0),
        np.zeros((m, num_weights)),
        np.zeros((m, k)),
        np.zeros((m, k)),
        inverse.copy(),
        np.zeros(m),
    )


def neural_choose(state: NeuralState, t: int) -> IntArray:
    """Return the arm of each client at pull `t`, `(M,)`."""
    options, num_clients = state.options, len(state.counts)
    alpha = options.alpha(t)
    bound_b: Array | float = 0.0
    if alpha > 0:
        _, radius = _projected(state, state.average_inverse)
        bound_b = network(state.weights, state.arms, options.width) + options.nu_b * radius
    chosen = np.empty(num_clients, dtype=np.int64)
    alike = state.last_exchange == t - 1  # no pull since the exchange: all clients have the same data
    for m in range(1 if alike else num_clients):
        projected, radius = _projected(state, state.v_inverse[m])
        bound_a = projected @ state.response[m] + options.nu_a * radius
        chosen[m] = np.argmax((1 - alpha) * bound_a + alpha * bound_b)
    if alike:
        chosen[1:] = chosen[0]
    return chosen


def neural_learn(state: NeuralState, t: int, chosen: IntArray, rewards: Array) -> None:
    """Record one pull of each client, and exchange if the criterion holds for one of them."""
    g = state.gradients[chosen]  # (M, P)
    _add_squares(state.own_inverse, g)
    state.own += g[:, :, np.newaxis] * g[:, np.newaxis, :]
    clients = np.arange(len(chosen))
    state.counts[clients, chosen] += 1
    state.totals[clients, chosen] += rewards
    state.log_growth += np.log(_gain(state.v_inverse, g)[1])  # matrix determinant lemma
    if ((t - state.last_exchange) * state.log_growth > state.options.threshold).any():
        _exchange(state, t)
        return
    _add_squares(state.v_inverse, g)
    state.response += rewards[:, np.newaxis] * g
    state.own_since += rewards[:, np.newaxis] * g


def _projected(state: NeuralState, inverse: Array) -> tuple[Array, Array]:
    """Return `g^T V^-1`, `(K, P)`, and `sqrt(lam g^T V^-1 g)`, `(K,)`."""
    projected = state.gradients @ inverse
    spread = np.einsum("kp,kp->k", projected, state.gradients)
    return projected, np.sqrt(state.options.regulariser * np.maximum(spread, 0.0))


def _gain(inverses: Array, g: Array) -> tuple[Array, Array]:
    """Return `V_m^-1 g_m`, `(M, P)`, and `1 + g_m^T V_m^-1 g_m`, `(M,)`."""
    projected = np.matmul(inverses, g[:, :, np.newaxis])[:, :, 0]
    return projected, 1.0 + np.einsum("mp,mp->m", projected, g)


def _add_squares(inverses: Array, g: Array) -> None:
    """Update `V_m^-1 (M, P, P)` in place to `(V_m + g_m g_m^T)^-1` by the Sherman-Morrison formula."""
    projected, gain = _gain(inverses, g)
    inverses -= (projected / gain[:, np.newaxis])[:, :, np.newaxis] * projected[:, np.newaxis, :]


def _exchange(state: NeuralState, t: int) -> None:
    options, num_clients = state.options, len(state.counts)
    num_weights = len(state.weights)
    shared = state.own.sum(axis=0) - (num_clients - 1) * options.regulariser * np.eye(num_weights)
    state.v_inverse[:] = np.linalg.inv(shared)
    state.response[:] = state.totals.sum(axis=0) @ state.gradients
    state.own_since[:] = 0.0
    up = num_weights**2 + num_weights
    if options.alpha(t + 1) > 0:
        if state.rounds % REFRESH == 0:
            state.own_inverse[:] = np.linalg.inv(state.own)
        state.average_inverse = state.own_inverse.mean(axis=0)
        up += num_weights**2
        if t < options.train_until:
            state.trained = neural_train(state)
            state.weights = state.trained.mean(axis=0)
            up += num_weights
    state.log_growth[:] = 0.0
    state.last_exchange = t
    state.rounds += 1
    state.floats_up += num_clients * up
    state.floats_down += num_clients * up


def neural_train(state: NeuralState) -> Array:
    """Return weights `(M, P)` after gradient steps on `mean (net - reward)^2` with decay `lam / n`.

    Training continues from each client's last weights. All clients take their steps together, on the arms
    that any of them has pulled; arms that a client has not pulled have weight 0. Internal shape: `(arms, M,
    width)`.
    """
    options, num_clients, width = state.options, len(state.counts), state.options.width
    seen = np.flatnonzero(state.counts.any(axis=0))
    n = state.counts[:, seen].T  # (arms, M)
    y = state.totals[:, seen].T / np.maximum(1, n)
    x = np.concatenate(
        [state.arms[seen], np.ones((len(seen), 1))], axis=1
    )  # with a column of ones for the offsets
    inputs = x.shape[1]
    parts = [_split(weights, inputs - 1, width) for weights in state.trained]
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
