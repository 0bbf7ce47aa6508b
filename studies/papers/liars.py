"""Agents that lie in well-formed reports, which pass every check of the wire format.

A liar evaluates as the others do, but changes what its reports say of its objective: the weights of FTS, the
posterior mean and the mean of the warm-up in Co-KG, the cell means of PF-PNE. The trials that it discloses
stay true; no other agent uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, RecordDict

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import Fault

TOLD = ("weights", "mean", "means", "moments")  # arrays of a report that describe the objective
ALWAYS = range(1, 10**9)  # all rounds


def flipped(told: Array, rng: np.random.Generator) -> Array:
    """Return the negated values, which praise bad points."""
    return -told


def amplified(told: Array, rng: np.random.Generator) -> Array:
    """Return the negated values times ten."""
    return -10.0 * told


def constant(told: Array, rng: np.random.Generator) -> Array:
    """Return the largest value everywhere."""
    return np.full_like(told, np.max(np.abs(told), initial=0.0))


def random(told: Array, rng: np.random.Generator) -> Array:
    """Return random values of the same magnitude."""
    size = float(np.sqrt(np.mean(np.square(told))))
    return size * rng.standard_normal(told.shape)


LIES: Mapping[str, Callable[[Array, np.random.Generator], Array] | None] = {
    "flipped": flipped,
    "amplified": amplified,
    "constant": constant,
    "random": random,
    "copied": None,  # another agent's report
}


@dataclass
class Liars:
    """The last `num_liars` of `num_agents` agents, which all tell the same kind of lie.

    Parameters
    ----------
    kind : a key of `LIES`
    seed : seed of random lies
    """

    kind: str
    num_agents: int
    num_liars: int
    seed: int
    _heard: dict[str, Array] = field(default_factory=dict)  # the last report of agent 0

    def faults(self) -> dict[int, Fault]:
        """Return partition -> fault, with which an `InProcessGrid` makes the agents lie."""
        first = self.num_agents - self.num_liars
        found = {
            agent: Fault("malformed", ALWAYS, change=self._lie(agent))
            for agent in range(first, self.num_agents)
        }
        return found | {0: Fault("malformed", ALWAYS, change=self._hear)}

    def _hear(self, content: RecordDict) -> RecordDict:
        """Record the reply of agent 0, which is honest, and return it unchanged."""
        self._heard = {name: array.numpy().copy() for name, array in _told(content).items()}
        return content

    def _lie(self, agent: int) -> Callable[[RecordDict], RecordDict]:
        rng = generator(self.seed, "liar", self.kind, str(agent))

        def change(content: RecordDict) -> RecordDict:
            for name, array in _told(content).items():
                content.array_records["arrays"][name] = FlowerArray(self._false(name, array.numpy(), rng))
            return content

        return change

    def _false(self, name: str, told: Array, rng: np.random.Generator) -> Array:
        lie = LIES[self.kind]
        if lie is None:
            heard = self._heard.get(name, told)
            return heard if heard.shape == told.shape else told
        if name == "moments":  # number, mean, deviation: only the mean can take any value
            return np.array([told[0], lie(told[1:2], rng)[0], told[2]])
        return lie(told, rng)


def _told(content: RecordDict) -> dict[str, FlowerArray]:
    record = content.get("arrays")
    arrays = dict(record.items()) if isinstance(record, ArrayRecord) else {}
    return {name: array for name, array in arrays.items() if name in TOLD}
