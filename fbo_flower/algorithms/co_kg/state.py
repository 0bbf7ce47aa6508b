"""What Co-KG's server knows and what it shares: the warm-up, the setting, the agents' posteriors.

Notation: `S` points of the set `X_D`, `r` pivots `P` of it, `F` features; whitened coordinates `v` as in
`numerics.pivots`: the function at the pivots is `L v`, on the set `basis v`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fbo_flower.algorithms.progress import Progress
from fbo_flower.algorithms.records import AnyArray, Array, History, floats
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.pooling import Increment
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True)
class SharedPrior:
    """What all agents share from the warm-up on: prior, noise, units and pivots.

    Parameters
    ----------
    version : counted from 1; posteriors of another version are in other coordinates
    hyperparameters : of the shared prior, in standardised units
    shift, scale : a transformed value `t` is modelled as `(t - shift) / scale`
    pivots : `(r, D)`
    """

    version: int
    hyperparameters: gp.Hyperparameters
    shift: float
    scale: float
    pivots: Array

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return what a task carries."""
        return {
            "hyperparameters": self.hyperparameters.to_array(),
            "units": np.array([self.shift, self.scale]),
            "pivots": self.pivots,
        }

    @staticmethod
    def read(arrays: Mapping[str, AnyArray], kernel: str) -> SharedPrior | None:
        """Return the setting of a task or an agent's state, None where there is none yet."""
        if "hyperparameters" not in arrays:
            return None
        theta, units, pivots = (floats(arrays[name]) for name in ("hyperparameters", "units", "pivots"))
        hyperparameters = gp.Hyperparameters.from_array(kernel, theta)
        return SharedPrior(0, hyperparameters, float(units[0]), float(units[1]), pivots)


@dataclass(frozen=True)
class WarmUp:
    """What an agent says of its own observations so that units and prior can be shared.

    Parameters
    ----------
    moments : `(3,)`, number, mean and standard deviation of its transformed values; sums follow from them
    theta : `(F + 2,)`, logarithms of its hyperparameters in transformed units
    """

    moments: Array
    theta: Array


@dataclass(frozen=True)
class WhitenedPosterior:
    """An agent's posterior, in whitened coordinates.

    Parameters
    ----------
    version : of the setting that it was reported under
    round : in which it was reported
    mean, covariance : `(r,)` and `(r, r)`
    increment : what its observations add to the prior, where that is what the agent reported
    """

    version: int
    round: int
    mean: Array
    covariance: Array
    increment: Increment | None = None


@dataclass(frozen=True)
class Recommendation:
    """What the server would return now.

    Parameters
    ----------
    round : after which
    agent : whose posterior mean is largest there; "" for the central model's
    point : `(D,)`
    value : posterior mean, standardised
    """

    round: int
    agent: str
    point: Array
    value: float


@dataclass(frozen=True)
class CoKGState:
    """What the server knows.

    Parameters
    ----------
    space, progress : the search space; every agent's next trial
    warm_ups : agent -> what it said of its warm-up, or of the last estimate it was asked for
    setting : what is shared; None before the first warm-up is told
    settled : round in which it was sent first
    round, told : last round asked in, and the last of these that anybody answered
    fitting : whether agents are asked for new hyperparameters in this round
    posteriors : agent -> its last posterior
    histories : agent -> the trials it disclosed to the algorithm ("data-communication")
    start : `(k, k)`, the barycenter of the last round
    refined : `(K, D)`, points around the best one
    renewals : how often these were renewed
    recommended : after every round
    agreement : rounds in which agreement was tested, and a p-value per agent
    finished : agent -> the maximiser of its posterior mean `(D,)` and the value, as it told at the end
    asked : agents that were asked for it
    """

    space: SearchSpace
    progress: Progress = field(default_factory=Progress)
    warm_ups: Mapping[str, WarmUp] = field(default_factory=dict)
    setting: SharedPrior | None = None
    settled: int = 0
    round: int = 0
    told: int = 0
    fitting: bool = False
    posteriors: Mapping[str, WhitenedPosterior] = field(default_factory=dict)
    histories: Mapping[str, History] = field(default_factory=dict)
    start: Array | None = None
    refined: Array | None = None
    renewals: int = 0
    recommended: tuple[Recommendation, ...] = ()
    agreement: tuple[tuple[int, Mapping[str, float]], ...] = ()
    finished: Mapping[str, tuple[Array, float]] = field(default_factory=dict)
    asked: tuple[str, ...] = ()

    def known(self, stale: str, agents: Sequence[str] | None = None) -> dict[str, WhitenedPosterior]:
        """Return the posteriors that count now, of some agents or of all: of this setting, not too old."""
        version = 0 if self.setting is None else self.setting.version
        return {
            agent: belief
            for agent, belief in self.posteriors.items()
            if belief.version == version
            and (agents is None or agent in agents)
            and (stale == "keep" or belief.round == self.told)
        }


def pack_lower(matrix: Array) -> Array:
    """Return the lower triangle of `(r, r)`, row by row, `(r (r + 1) / 2,)`."""
    packed: Array = matrix[np.tril_indices(len(matrix))]
    return packed


def unpack_lower(packed: Array, size: int) -> Array:
    """Undo `pack_lower`; symmetric to the last bit."""
    matrix = np.zeros((size, size))
    rows, columns = np.tril_indices(size)
    matrix[rows, columns] = packed
    matrix[columns, rows] = packed
    return matrix
