"""The values that a tuner of a federation keeps: trials, and what each of their rounds brought.

A *trial* is one run of the user's Flower strategy with one configuration. A *client-round* is one training
message: one client that trains for one round. It is the unit of cost, because clients' work is what costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fbo_flower.algorithms.records import Array
from fbo_flower.space.space import Config


@dataclass(frozen=True)
class TrialRound:
    """What one round of a trial brought.

    Attributes
    ----------
    round : round of the trial, from 1
    value : the metric, larger is better (a loss has its sign changed); NaN if it could not be measured
    variance : of `value`, because only some clients evaluated; 0 if unknown, or if all clients did
    asked, trained, evaluated : clients that were asked to train, whose updates were used, whose evaluations
        were used
    metrics : all aggregated metrics that are single numbers, by name, as the strategy returned them
    checkpoint : digest of the model and the strategy's state after this round
    blocks : blocks of clients that the trial had in this round
    """

    round: int
    value: float
    variance: float = 0.0
    asked: int = 0
    trained: int = 0
    evaluated: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    checkpoint: str = ""
    blocks: Sequence[int] = ()


@dataclass(frozen=True)
class Trial:
    """One configuration, and how far its run has come.

    Attributes
    ----------
    number : from 0
    config, point : the configuration, and its point `(D,)` in the unit cube
    bracket : the bracket of Hyperband to which it belongs; 0 elsewhere
    rounds : its rounds so far
    target : the round until which it may run now; larger than its last round while it runs
    failure : why it ended early; "" if it did not
    judged : value of its last model on all clients, if it was a finalist; None if it was not
    parent, born, origin : the trial whose model it goes on from, the round of that model, and its
        checkpoint's digest; -1, 0, "": it has begun with the first model
    """

    number: int
    config: Config
    point: Array
    bracket: int = 0
    rounds: tuple[TrialRound, ...] = ()
    target: int = 0
    failure: str = ""
    judged: float | None = None
    parent: int = -1
    born: int = 0
    origin: str = ""

    @property
    def round(self) -> int:
        """Number of rounds that its model has had."""
        return self.born + len(self.rounds)

    @property
    def value(self) -> float:
        """Value after its last round; NaN before the first one and after a failure."""
        return self.rounds[-1].value if self.rounds and not self.failure else math.nan

    @property
    def has_value(self) -> bool:
        """Return whether the trial has done a round and has not failed."""
        return bool(self.rounds) and not self.failure

    @property
    def runs(self) -> bool:
        """Return whether the trial has rounds to do now."""
        return self.round < self.target and not self.failure

    @property
    def client_rounds(self) -> int:
        """Client-rounds that it has cost."""
        return sum(done.asked for done in self.rounds)

    @property
    def checkpoint(self) -> str:
        """Digest of the checkpoint that it goes on from; "": it has not begun."""
        return self.rounds[-1].checkpoint if self.rounds else self.origin

    def waits_at(self, rung: int) -> bool:
        """Return whether the trial has come to a rung and waits there to be promoted."""
        return self.round == self.target == rung and not self.failure

    def value_at(self, server_round: int) -> float:
        """Return the value after a round that the trial has done; `-inf` if it failed before that."""
        if not self.born < server_round <= self.round:
            return -math.inf
        return self.rounds[server_round - self.born - 1].value

    def learn(self, done: TrialRound) -> Trial:
        """Return the trial with one more round."""
        return replace(self, rounds=(*self.rounds, done), judged=None)
