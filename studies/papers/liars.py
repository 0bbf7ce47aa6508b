"""Agents that lie in well-formed reports, which pass every check of the wire format.

A liar evaluates as the others do, but changes what its reports say of its objective: the weights of FTS, the
posterior mean and the mean of the warm-up in Co-KG, the values of rows in `fed-ei`, the cell means of PF-PNE.
The trials that it discloses stay true; no other agent uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, RecordDict

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates.trend import LARGEST
from fbo_flower.simulation import Fault

TOLD = ("weights", "mean", "means", "moments", "rows")  # what reports say of the objective
ALWAYS = range(1, 10**9)  # all rounds
Told = dict[str, Array]  # the arrays of a report
LIES: Mapping[str, Callable[[Array], Array]] = {
    "flipped": lambda told: -told,  # praises bad points
    "amplified": lambda told: -10.0 * told,
    "constant": lambda told: np.full_like(told, np.max(np.abs(told), initial=0.0)),
}


def lying(lies: Mapping[int, Callable[[Told], Told]]) -> dict[int, Fault]:
    """Return partition -> fault, with which an `InProcessGrid` replaces arrays of the agents' reports."""

    def change(lie: Callable[[Told], Told], content: RecordDict) -> RecordDict:
        record = content.get("arrays")
        if isinstance(record, ArrayRecord):
            for name, array in lie({name: array.numpy() for name, array in record.items()}).items():
                record[name] = FlowerArray(array)
        return content

    return {agent: Fault("malformed", ALWAYS, change=partial(change, lie)) for agent, lie in lies.items()}


def liars(kind: str, num_agents: int, num_liars: int) -> dict[int, Fault]:
    """Return the faults of the last agents, which all tell the same kind of lie, a key of `LIES`."""

    def false(name: str, told: Array) -> Array:
        if name == "moments":  # number, mean, deviation: only the mean can take any value
            return np.array([told[0], LIES[kind](told[1:2])[0], told[2]])
        if name == "rows":  # of `fed-ei`: points, and a value each
            return np.column_stack([told[:, :-1], np.clip(LIES[kind](told[:, -1]), -LARGEST, LARGEST)])
        return LIES[kind](told)

    def tell(told: Told) -> Told:
        return {name: false(name, array) for name, array in told.items() if name in TOLD}

    return lying(dict.fromkeys(range(num_agents - num_liars, num_agents), tell))
