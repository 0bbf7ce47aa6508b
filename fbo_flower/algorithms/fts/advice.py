"""The server's choice of advice in FTS: which message, messages or point a target receives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.fts.options import FTSOptions, FTSState
from fbo_flower.algorithms.fts.schedules import own_probability
from fbo_flower.algorithms.records import AnyArray, Array, IntArray, natural_key
from fbo_flower.numerics.aggregation.portfolio import (
    cube_points,
    next_point,
    rank_agreement,
    standardise_columns,
)

NUM_CUBE_POINTS = 2048  # points of the search space at which the server compares messages
MAX_POOL = 256  # largest number of messages in one portfolio


@dataclass
class AdviceSelector:
    """Chooses advice for one target after the other, within one `ask`."""

    options: FTSOptions
    state: FTSState
    senders: list[str]
    weights: Array  # (N, M), one row per sender
    used: dict[str, tuple[str, ...]]
    advised: dict[str, Array]
    has_messages: set[str]
    points: Array  # (S, D), at which messages are compared
    mean: Array  # (N,), mean of each message over the points
    stddev: Array  # (N,), its standard deviation; infinite for a constant message
    z: Array  # (S, N), standardised messages at the points
    rows: Mapping[str, int]  # sender -> its row
    staying: IntArray  # rows of the senders that have not left the federation, ascending
    places: Mapping[str, int]  # sender -> its place in `staying`

    @staticmethod
    def open(options: FTSOptions, state: FTSState, rng: np.random.Generator) -> AdviceSelector:
        """Return the selector of one `ask`; evaluates all messages on common points if they are compared."""
        senders = sorted(state.messages, key=natural_key)
        compares = options.advice == "portfolio" or options.preferences == "learned"
        if options.advice == "portfolio" and len(senders) > MAX_POOL:
            chosen = np.sort(rng.choice(len(senders), MAX_POOL, replace=False))
            senders = [senders[i] for i in chosen]
        weights = np.array([state.messages[a] for a in senders]).reshape(len(senders), options.num_features)
        points = z = np.empty((0, 0))
        mean = stddev = np.empty(0)
        if compares and senders and state.features is not None:
            points = state.space.snap(cube_points(NUM_CUBE_POINTS, state.space.dimension, rng))
            raw = state.features(state.space.features(points)) @ weights.T
            mean, stddev, z = raw.mean(axis=0), raw.std(axis=0), standardise_columns(raw)
            stddev[stddev <= 1e-12] = np.inf
        left = state.attendance.have_left()
        staying = [i for i, sender in enumerate(senders) if sender not in left]
        return AdviceSelector(
            options, state, senders, weights, dict(state.used), dict(state.advised), set(state.has_messages),
            points, mean, stddev, z, {a: i for i, a in enumerate(senders)},
            np.array(staying, dtype=np.int64), {senders[row]: i for i, row in enumerate(staying)},
        )  # fmt: skip

    def is_ready(self, agent: str) -> bool:
        """Return whether there is advice for an agent's initial design: a message of somebody else."""
        random = self.options.advice == "random"  # a random point is what the initial design would be
        return not random and self.state.features is not None and len(self.senders) > (agent in self.rows)

    def advise(self, agent: str, iteration: int, rng: np.random.Generator) -> dict[str, AnyArray]:
        """Return the arrays for a target's task; none if it is to use its own surrogate [Alg. 1].

        Parameters
        ----------
        iteration : `t`, counted from 1 after the initial design; in the design there is no coin
        """
        if self.options.advice == "mixture":
            return self._messages(agent, rng)
        # Alg. 1, lines 2-3: r ~ U(0, 1), r <= p_t
        if iteration > 0 and rng.random() <= own_probability(self.options.schedule, iteration):
            return {}
        if self.options.advice == "random":
            return {"point": rng.random(self.state.space.dimension)}
        if self.options.advice == "portfolio":
            return self._portfolio_point(agent)
        return self._single_message(agent, iteration, rng)

    def _single_message(self, agent: str, iteration: int, rng: np.random.Generator) -> dict[str, AnyArray]:
        """Draw another agent `n ~ P_N` and return its message `omega_n` [Alg. 1, line 6]."""
        unusable = {agent, *self.used.get(agent, ())}
        pool, excluded = self.staying, sorted(self.places[a] for a in unusable if a in self.places)
        if len(excluded) == len(pool):  # those that left count only if nobody else is there
            pool = np.arange(len(self.senders))
            excluded = sorted(self.rows[a] for a in unusable if a in self.rows)
        num_rows = len(pool) - len(excluded)
        if num_rows == 0:
            return {}
        if self.options.preferences == "uniform" or agent not in self.rows:
            place = min(int(rng.random() * num_rows), num_rows - 1)
            for skipped in excluded:  # the place-th of the pool without those that are excluded
                place += place >= skipped
            row = int(pool[place])
        else:
            rows = np.delete(pool, excluded)
            cumulative = np.cumsum(self.preferences(agent, rows, iteration))
            place = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
            row = int(rows[min(place, num_rows - 1)])
        if self.options.communication == "once":
            self.used[agent] = (*self.used.get(agent, ()), self.senders[row])
        # not a row of `self.weights`: a view would keep the whole matrix in memory
        return {"weights": self.state.messages[self.senders[row]]}

    def preferences(self, agent: str, rows: IntArray, iteration: int) -> Array:
        """Return the learned `P_N` over the senders in `rows`, not normalised."""
        agreement = rank_agreement(self.z[:, rows], self.z[:, self.rows[agent]])
        num_trials = self.options.num_initial + iteration - 1
        exponent = self.options.learning_rate * num_trials * agreement
        return np.asarray(np.exp(exponent - exponent.max()), dtype=np.float64)

    def _portfolio_point(self, agent: str) -> dict[str, AnyArray]:
        """Return the point that improves most on the points this target was sent before."""
        rows = [i for i, sender in enumerate(self.senders) if sender != agent]
        if not rows or self.state.features is None:
            return {}
        earlier = self.advised.get(agent, np.empty((0, self.state.space.dimension)))
        z = self.z if len(rows) == len(self.senders) else self.z[:, rows]
        taken = self._at(earlier)[:, rows]
        chosen = next_point(z, taken)
        if chosen is None:
            return {}
        point = self.points[chosen].copy()  # not a view of all points
        self.advised[agent] = np.concatenate([earlier, point[None, :]])
        return {"point": point}

    def _at(self, points: Array) -> Array:
        """Return the standardised messages `(k, N)` at points `(k, D)`."""
        assert self.state.features is not None
        values = self.state.features(self.state.space.features(points)) @ self.weights.T
        return np.asarray((values - self.mean) / self.stddev, dtype=np.float64)

    def _messages(self, agent: str, rng: np.random.Generator) -> dict[str, AnyArray]:
        """Return the other agents' messages, or `mixture_messages` of them drawn at random."""
        rows = [i for i, sender in enumerate(self.senders) if sender != agent]
        once = self.options.communication == "once"
        if not rows or (once and agent in self.has_messages):
            return {}
        if len(rows) > self.options.mixture_messages:
            rows = sorted(rng.choice(rows, self.options.mixture_messages, replace=False).tolist())
        if once:
            self.has_messages.add(agent)
        return {"messages": self.weights[rows]}
