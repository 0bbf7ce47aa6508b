"""The state of Co-KG's server: the warm-up, the shared prior, the agents' posteriors.

Notation: `S` points of the point set `X_D`; `r` of them are the pivots `P`, at which agents report their
posteriors; `F` features. In whitened coordinates `v` (`numerics.surrogates.pivots`) a function's values are
`L v` at the pivots and `basis v` on the point set.
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
    """What all agents share after the warm-up: prior, noise, units and pivots.

    Parameters
    ----------
    version : counted from 1; posteriors under another version are in other coordinates
    hyperparameters : hyperparameters of the shared prior, for standardised values
    shift, scale : a transformed value `t` is standardised to `(t - shift) / scale`
    pivots : `(r, D)`, the points at which agents report their posteriors
    """

    version: int
    hyperparameters: gp.Hyperparameters
    shift: float
    scale: float
    pivots: Array

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays that a task carries."""
        return {
            "hyperparameters": self.hyperparameters.to_array(),
            "units": np.array([self.shift, self.scale]),
            "pivots": self.pivots,
        }

    @staticmethod
    def read(arrays: Mapping[str, AnyArray], kernel: str) -> SharedPrior | None:
        """Return the shared prior in the arrays of a task or an agent's state, None if there is none yet."""
        if "hyperparameters" not in arrays:
            return None
        theta, units, pivots = (floats(arrays[name]) for name in ("hyperparameters", "units", "pivots"))
        hyperparameters = gp.Hyperparameters.from_array(kernel, theta)
        return SharedPrior(0, hyperparameters, float(units[0]), float(units[1]), pivots)


@dataclass(frozen=True)
class WarmUp:
    """An agent's statistics of its own observations, from which the shared prior is computed.

    Parameters
    ----------
    moments : `(3,)`, number, mean and standard deviation of its transformed values
    theta : `(F + 2,)`, logarithms of its hyperparameters, for transformed values; `(0,)` if it has none
    log_likelihoods : `(G,)`, on the grid of `surrogates.likelihood_grid`; `(0,)` if it has none
    """

    moments: Array
    theta: Array
    log_likelihoods: Array = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class WhitenedPosterior:
    """An agent's posterior, in whitened coordinates.

    Parameters
    ----------
    version : version of the shared prior under which it was reported
    round : round in which it was reported
    mean, covariance : `(r,)` and `(r, r)`
    increment : the precision and shift that its observations add to the prior, if the agent reported these
    """

    version: int
    round: int
    mean: Array
    covariance: Array
    increment: Increment | None = None


@dataclass(frozen=True)
class Recommendation:
    """The point that the server would return after a round.

    Parameters
    ----------
    round : the round
    agent : the agent whose posterior mean has this maximum; "" for the central model
    point : `(D,)`
    value : posterior mean at the point, standardised
    """

    round: int
    agent: str
    point: Array
    value: float


@dataclass(frozen=True)
class CoKGState:
    """The server's state.

    Parameters
    ----------
    space, progress : the search space; every agent's next trial
    warm_ups : agent -> the statistics of its warm-up, or of its last estimate of hyperparameters
    setting : the shared prior; None before the first report of a warm-up
    settled : round in which the first shared prior was sent
    round, last_answered : last round with tasks, and the last one in which some agent answered
    versions : agent -> version of the shared prior in its last task, 0 without one
    under_way : without a barrier, the points `(D,)` that other agents are evaluating; else None
    fitting : whether agents are asked for new hyperparameters in this round
    posteriors : agent -> its last posterior
    histories : agent -> the trials that it disclosed to the algorithm ("data-communication")
    start : `(k, k)`, the barycenter of the last round, from which the next iteration starts
    refined : `(K, D)`, points added around the best one
    renewals : how often these points were renewed
    recommended : the recommendation after every round
    agreement : rounds in which agreement was tested, with a p-value per agent
    evidence : rounds, with the least log Bayes factor of an agent for sharing the others' objective; for
        `central = "auto"`
    finished : agent -> the maximiser of its posterior mean `(D,)` and the mean there, as it reported
    asked_to_recommend : agents that were asked for their maximiser at the end
    """

    space: SearchSpace
    progress: Progress = field(default_factory=Progress)
    warm_ups: Mapping[str, WarmUp] = field(default_factory=dict)
    setting: SharedPrior | None = None
    settled: int = 0
    round: int = 0
    last_answered: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)
    under_way: tuple[Array, ...] | None = None
    fitting: bool = False
    posteriors: Mapping[str, WhitenedPosterior] = field(default_factory=dict)
    histories: Mapping[str, History] = field(default_factory=dict)
    start: Array | None = None
    refined: Array | None = None
    renewals: int = 0
    recommended: tuple[Recommendation, ...] = ()
    agreement: tuple[tuple[int, Mapping[str, float]], ...] = ()
    evidence: tuple[tuple[int, float], ...] = ()
    finished: Mapping[str, tuple[Array, float]] = field(default_factory=dict)
    asked_to_recommend: tuple[str, ...] = ()

    def known(self, stale: str, agents: Sequence[str] | None = None) -> dict[str, WhitenedPosterior]:
        """Return the posteriors, of some agents or of all, that are under the present shared prior.

        With `stale` "drop" they must be from the last round in which an agent answered, or without a barrier
        from the last two.
        """
        oldest = self.last_answered - (self.under_way is not None)
        version = 0 if self.setting is None else self.setting.version
        return {
            agent: posterior
            for agent, posterior in self.posteriors.items()
            if posterior.version == version
            and (agents is None or agent in agents)
            and (stale == "keep" or posterior.round >= oldest)
        }


def pack_lower(matrix: Array) -> Array:
    """Return the lower triangle of `(r, r)`, row by row, `(r (r + 1) / 2,)`."""
    packed: Array = matrix[np.tril_indices(len(matrix))]
    return packed


def unpack_lower(packed: Array, size: int) -> Array:
    """Return the symmetric matrix whose lower triangle was packed; symmetric to the last bit."""
    matrix = np.zeros((size, size))
    rows, columns = np.tril_indices(size)
    matrix[rows, columns] = packed
    matrix[columns, rows] = packed
    return matrix
