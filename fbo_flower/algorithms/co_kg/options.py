"""What Co-KG can be told."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fbo_flower.algorithms.options import check_choice, check_number, check_secure_sums
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import Array
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.optim import point_sets
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates.kernels import KERNELS
from fbo_flower.space.space import SearchSpace

State = TypeVar("State")

FRAMEWORKS = ("co-kg", "barycenter-qkg", "no-collaboration", "data-communication")
ACQUISITIONS = ("kg", "ei", "es")
CENTRALS = ("barycenter", "product")
WEIGHTS = ("uniform", "reliability")
STALE = ("keep", "drop")
TRANSFORMS = ("none", "log", "asinh")
BETAS: dict[str, Callable[[int], float]] = {
    "log": lambda t: math.log(2 * t + 1),
    "constant": lambda t: 1.0,
    "exp": lambda t: math.exp(-t / 2),
}


@dataclass(frozen=True, kw_only=True)
class CoKGOptions(Algorithm[State]):
    """The options of Co-KG and its comparators.

    Parameters
    ----------
    framework : "co-kg"; "barycenter-qkg": the central model alone, as `beta = 0`; "no-collaboration": every
        agent by its own knowledge gradient; "data-communication": one model of all agents' trials, which only
        agents that disclose their trials take part in
    acquisition : "kg", "ei" or "es" (knowledge gradient, expected improvement, entropy search), for the
        central model and for the agents
    central : "barycenter" of the agents' posteriors (the paper), or their "product", which is the posterior
        given everybody's observations; right if all agents share one objective
    beta : weight of the agents' own acquisition in iteration `t`: "log" is `log(2 t + 1)`, "constant" 1,
        "exp" `exp(-t / 2)`, or a number
    mesh : points per axis of a uniform mesh; None: `num_points` decides
    num_points : of the point set, a mesh for one or two parameters, Sobol points for more
    num_refined : points added around the best one so far, closer at every renewal; 0: none
    refine_every : rounds between two renewals of these
    memory_limit : bytes of one covariance over the point set
    num_initial : random trials of an agent's first round, one batch
    weights : of the agents in the central model: "uniform", or by "reliability", where agents that weigh
        little recommend nothing, and medians take the place of means over the agents' warm-ups
    stale : an agent that did not answer in the last round counts with its last posterior, "keep", or not,
        "drop"
    transform : of values: "none", "log" or "asinh"; "log" is `sign(v) log(1 + |v|)`, and `v` is the value in
        units of `transform_scale`
    transform_scale : positive, in units of the objective
    refit : hyperparameters are estimated after the warm-up: "never" again, when rounds have "doubling"d
        since, or every so many rounds
    isotropic : one lengthscale for all parameters; else one for each
    kernel : "rbf" or "matern52"
    noise_variance : of an observation where it is known, in squared units of the objective, without
        transform; None: estimated
    noise_floor : least noise variance, as a share of the variance of values
    mean_noise_stddev : of noise on the mean that an agent reports: a draw of the prior times this number,
        anew in every report
    num_draws : `M`, normal draws per evaluation of the central acquisition
    num_starts : of its maximisation; None: 1 where the agents' own acquisition weighs 1 or more, else 3
    rank_cut : share of the prior's variance that the pivots may leave out at any point
    tolerance : of the barycenter's equation
    secure_sums : least number of agents over which the server adds up moments and hyperparameters of the
        warm-up without seeing any one's; posteriors it sees. 0: it sees all
    """

    framework: str = "co-kg"
    acquisition: str = "kg"
    central: str = "barycenter"
    beta: str | float = "log"
    mesh: int | None = None
    num_points: int = 400
    num_refined: int = 0
    refine_every: int = 5
    memory_limit: int = 2**28
    num_initial: int = 5
    weights: str = "uniform"
    stale: str = "keep"
    transform: str = "none"
    transform_scale: float = 1.0
    refit: str | int = "never"
    isotropic: bool = True
    kernel: str = "rbf"
    noise_variance: float | None = None
    noise_floor: float = 1e-6
    mean_noise_stddev: float = 0.0
    num_draws: int = 64
    num_starts: int | None = None
    rank_cut: float = 1e-5
    tolerance: float = 1e-3
    secure_sums: int = 0

    def __post_init__(self) -> None:
        check_choice("framework", self.framework, FRAMEWORKS)
        check_choice("acquisition", self.acquisition, ACQUISITIONS)
        check_choice("central", self.central, CENTRALS)
        if isinstance(self.beta, str):
            check_choice("beta", self.beta, (*BETAS, "a number"))
        else:
            check_number("beta", self.beta, 0, 1e6)
        if self.mesh is not None:
            check_number("mesh", self.mesh, 1, 10**6, integer=True)
        check_number("num_points", self.num_points, 1, 10**6, integer=True)
        check_number("num_refined", self.num_refined, 0, 10**5, integer=True)
        check_number("refine_every", self.refine_every, 1, integer=True)
        check_number("memory_limit", self.memory_limit, 8, 2**40, integer=True)
        check_number("num_initial", self.num_initial, 3, 4096, integer=True)
        check_choice("weights", self.weights, WEIGHTS)
        check_choice("stale", self.stale, STALE)
        check_choice("transform", self.transform, TRANSFORMS)
        check_number("transform_scale", self.transform_scale, 1e-300, 1e300)
        if isinstance(self.refit, str):
            check_choice("refit", self.refit, ("never", "doubling", "a number of rounds"))
        else:
            check_number("refit", self.refit, 1, integer=True)
        if not isinstance(self.isotropic, bool):
            raise ConfigError(f"isotropic: expected true or false, got {self.isotropic!r}")
        check_choice("kernel", self.kernel, KERNELS)
        if self.noise_variance is not None:
            check_number("noise_variance", self.noise_variance, 0, 1e300)
            if self.transform != "none":
                raise ConfigError(
                    f"noise_variance: expected None with transform {self.transform!r}, under which the noise "
                    f"differs from value to value, got {self.noise_variance!r}"
                )
        check_number("noise_floor", self.noise_floor, 1e-10, 1)
        check_number("mean_noise_stddev", self.mean_noise_stddev, 0, 1e6)
        check_number("num_draws", self.num_draws, 2, 2**16, integer=True)
        check_secure_sums(self.secure_sums)
        if self.secure_sums and self.weights != "uniform":
            raise ConfigError(f"weights: expected 'uniform' with secure_sums, got {self.weights!r}")
        if self.num_starts is not None:
            check_number("num_starts", self.num_starts, 1, 1000, integer=True)
        check_number("rank_cut", self.rank_cut, 1e-12, 0.5)
        check_number("tolerance", self.tolerance, 1e-12, 0.5)

    def check(self, space: SearchSpace) -> None:
        self.points(space)

    def points(self, space: SearchSpace) -> Array:
        """Return `X_D`, `(S, D)`: the same at the server and at every agent, each configuration once.

        Raises
        ------
        ConfigError
            If a covariance over so many points takes more than `memory_limit` bytes.
        """
        if self.mesh is not None:
            drawn = point_sets.mesh(self.mesh, space.dimension, self.memory_limit)
        else:
            rng = generator(0, "co-kg", "points")
            drawn = point_sets.spread(self.num_points, space.dimension, self.memory_limit, rng)
        return distinct(space, drawn)

    def around(self, space: SearchSpace, centre: Array, renewal: int) -> Array:
        """Return `num_refined` points around `centre (D,)`, `(K, D)`; half as far away at every renewal.

        The first box reaches to the neighbours on a mesh of as many points.
        """
        side = self.mesh or max(2.0, self.num_points ** (1.0 / space.dimension))
        half_width = 1.0 / max(side - 1.0, 1.0) / 2.0**renewal
        rng = generator(0, "co-kg", "refined", renewal)
        drawn = point_sets.refined(centre, half_width, self.num_refined, self.memory_limit, rng)
        return distinct(space, drawn)

    def weight(self, iteration: int) -> float:
        """Return `beta_t` for iteration `t >= 1`."""
        if self.framework in {"barycenter-qkg", "data-communication"}:
            return 0.0
        return BETAS[self.beta](iteration) if isinstance(self.beta, str) else float(self.beta)

    def fits_again(self, rounds: int) -> bool:
        """Return whether hyperparameters are estimated again, so many rounds after the first estimate."""
        if isinstance(self.refit, int):
            return rounds > 0 and rounds % self.refit == 0
        return self.refit == "doubling" and rounds >= 4 and rounds & (rounds - 1) == 0

    def transformed(self, values: Array) -> Array:
        """Return values `(n,)` in units in which they are modelled, before they are standardised."""
        if self.transform == "none":
            return values
        scaled = values / self.transform_scale
        if self.transform == "asinh":
            return np.arcsinh(scaled)
        return np.sign(scaled) * np.log1p(np.abs(scaled))

    def untransformed(self, value: float) -> float:
        """Undo `transformed` for one value."""
        if self.transform == "none":
            return value
        with np.errstate(over="ignore"):
            inverse = np.sinh(value) if self.transform == "asinh" else np.sign(value) * np.expm1(abs(value))
        return float(inverse * self.transform_scale)


def distinct(space: SearchSpace, points: Array) -> Array:
    """Return the points that stand for different configurations, `(S, D)`, in their order."""
    snapped = space.snap(points)
    _, first = np.unique(snapped, axis=0, return_index=True)
    return snapped[np.sort(first)]
