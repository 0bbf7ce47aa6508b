"""FN-UCB of all clients together, as the paper runs it: it counts exchanges and the numbers sent [Dai2023].

[Dai2023] Dai, Shu, Verma, Fan, Low, Jaillet. Federated neural bandits. ICLR 2023, and its published code.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.bandits import ucb

REFRESH = 100  # exchanges after which inverses are recomputed: rank-1 updates accumulate rounding errors


class NeuralClients:
    """State of FN-UCB, server and clients together.

    Attributes
    ----------
    weights, trained : `(P,)` and `(M, P)`, mean weights of the networks, and each client's own network
    v_inverse, response : `(M, P, P)` and `(M, P)`: `V^-1` and `sum r g` as known to client `m`
    own, own_inverse : `(M, P, P)`, `V_m` of the client's own pulls and its inverse
    counts, totals : `(M, K)`, number of pulls and sum of rewards, the training data of the client's network
    average_inverse : `(P, P)`, `mean_m(V_m^-1)` at the last exchange
    log_growth : `(M,)`, `log(det V / det V_last)` of each client
    last_exchange, rounds : pull of the last exchange, and number of exchanges
    floats : numbers sent so far by all clients; the server has sent as many
    """

    def __init__(
        self, arms: Array, num_clients: int, options: ucb.NeuralOptions, rng: np.random.Generator
    ) -> None:
        self.options = options
        self.features = ucb.neural_features(arms, options, rng)
        self.weights = self.features.start
        size = len(self.weights)
        self.trained = np.tile(self.weights, (num_clients, 1))
        self.own = np.tile(options.regulariser * np.eye(size), (num_clients, 1, 1))
        self.average_inverse = np.eye(size) / options.regulariser
        self.own_inverse, self.v_inverse = np.tile(self.average_inverse, (2, num_clients, 1, 1))
        self.response = np.zeros((num_clients, size))
        self.counts, self.totals = np.zeros((2, num_clients, len(arms)))
        self.log_growth = np.zeros(num_clients)
        self.last_exchange, self.rounds, self.floats = -1, 0, 0

    def choose(self, t: int) -> IntArray:
        """Return the arm of each client at pull `t`, `(M,)`."""
        alike = self.last_exchange == t - 1  # no pull since the exchange: all clients have the same data
        known = list(zip(self.v_inverse, self.response, strict=True))[: 1 if alike else None]
        shared = self.weights, self.average_inverse
        chosen = [ucb.neural_choose(self.features, t, *own, *shared) for own in known]
        return np.resize(np.array(chosen, dtype=np.int64), len(self.counts))

    def learn(self, t: int, chosen: IntArray, rewards: Array) -> None:
        """Record one pull of each client, and exchange if the criterion holds for one of them."""
        g = self.features.gradients[chosen]  # (M, P)
        _add_squares(self.own_inverse, g)
        self.own += g[:, :, np.newaxis] * g[:, np.newaxis, :]
        clients = np.arange(len(chosen))
        self.counts[clients, chosen] += 1
        self.totals[clients, chosen] += rewards
        self.log_growth += np.log(_gain(self.v_inverse, g)[1])  # matrix determinant lemma
        if ((t - self.last_exchange) * self.log_growth > self.options.threshold).any():
            self._exchange(t)
        else:
            _add_squares(self.v_inverse, g)
            self.response += rewards[:, np.newaxis] * g

    def _exchange(self, t: int) -> None:
        options, num_clients, size = self.options, len(self.counts), len(self.weights)
        shared = self.own.sum(axis=0) - (num_clients - 1) * options.regulariser * np.eye(size)
        self.v_inverse[:] = np.linalg.inv(shared)
        self.response[:] = self.totals.sum(axis=0) @ self.features.gradients
        sent = size**2 + size
        if options.alpha(t + 1) > 0:
            if self.rounds % REFRESH == 0:
                self.own_inverse[:] = np.linalg.inv(self.own)
            self.average_inverse = self.own_inverse.mean(axis=0)
            sent += size**2
            if t < options.train_until:
                self.trained = ucb.neural_train(self.features, self.trained, self.counts, self.totals)
                self.weights = self.trained.mean(axis=0)
                sent += size
        self.log_growth[:] = 0.0
        self.last_exchange = t
        self.rounds += 1
        self.floats += num_clients * sent


def _gain(inverses: Array, g: Array) -> tuple[Array, Array]:
    """Return `V_m^-1 g_m`, `(M, P)`, and `1 + g_m^T V_m^-1 g_m`, `(M,)`."""
    projected = np.matmul(inverses, g[:, :, np.newaxis])[:, :, 0]
    return projected, 1.0 + np.einsum("mp,mp->m", projected, g)


def _add_squares(inverses: Array, g: Array) -> None:
    """Update `V_m^-1 (M, P, P)` in place to `(V_m + g_m g_m^T)^-1` by the Sherman-Morrison formula."""
    projected, gain = _gain(inverses, g)
    inverses -= (projected / gain[:, np.newaxis])[:, :, np.newaxis] * projected[:, np.newaxis, :]
