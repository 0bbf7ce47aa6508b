"""Agents that lie in reports which are well-formed: every check of the wire lets them through.

A liar evaluates and remembers as everybody does and changes what it tells of its objective on the way out:
the weights of FTS, the posterior mean and the mean of the warm-up of Co-KG, the cell means of PF-PNE. What
it discloses of its own trials stays true, and is not used by anybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, RecordDict

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.grids import Fault

TOLD = ("weights", "mean", "means", "moments")  # what reports say of an objective
ALWAYS = range(1, 10**9)  # all rounds


def flipped(told: Array, rng: np.random.Generator) -> Array:
    """Praise what is bad."""
    return -told


def amplified(told: Array, rng: np.random.Generator) -> Array:
    """Praise what is bad, ten times as loud as everybody else."""
    return -10.0 * told


def constant(told: Array, rng: np.random.Generator) -> Array:
    """Say that everything is as good as the best."""
    return np.full_like(told, np.max(np.abs(told), initial=0.0))


def random(told: Array, rng: np.random.Generator) -> Array:
    """Say anything, of the size of the truth."""
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
    """The last `num_liars` of `num_agents`, all with one kind of lie.

    Parameters
    ----------
    kind : a key of `LIES`
    seed : of random lies
    """

    kind: str
    num_agents: int
    num_liars: int
    seed: int
    _heard: dict[str, Array] = field(default_factory=dict)  # what agent 0 told last

    def faults(self) -> dict[int, Fault]:
        """Return partition -> fault, for a grid."""
        first = self.num_agents - self.num_liars
        found = {
            agent: Fault("malformed", ALWAYS, change=self._lie(agent))
            for agent in range(first, self.num_agents)
        }
        return found | {0: Fault("malformed", ALWAYS, change=self._hear)}

    def _hear(self, content: RecordDict) -> RecordDict:
        """Listen in on agent 0, which is honest and whose reply passes unchanged."""
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
        if name == "moments":  # number, mean, deviation: only of the mean can one lie in any direction
            return np.array([told[0], lie(told[1:2], rng)[0], told[2]])
        return lie(told, rng)


def _told(content: RecordDict) -> dict[str, FlowerArray]:
    record = content.get("arrays")
    arrays = dict(record.items()) if isinstance(record, ArrayRecord) else {}
    return {name: array for name, array in arrays.items() if name in TOLD}
