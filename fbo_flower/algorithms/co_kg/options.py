"""The options of Co-KG."""

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
CENTRALS = ("barycenter", "product", "auto")
REFINED = 32  # points that "auto" adds to the point set
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
    framework : how agents collaborate. "co-kg" (the paper): central model and agents' own acquisition;
        "barycenter-qkg": central model only, as with `beta = 0`; "no-collaboration": every agent uses its own
        knowledge gradient; "data-communication": one model of all agents' trials, for which agents have to
        disclose their trials
    acquisition : "kg" (knowledge gradient), "ei" (expected improvement) or "es" (entropy search), for the
        central model and for the agents' own models
    central : central model: "barycenter" (the paper): Wasserstein barycenter of the agents' posteriors;
        "product": the posterior given all agents' observations, valid if all agents share one objective;
        "auto" (recommended, with `refit = "doubling"`): begins with the barycenter; the product while the
        observations speak for one objective of all agents, no central model while they speak against it
    beta : `beta_t` of Eq. 6, weight of the agents' own acquisition in iteration `t`: "log": `log(2 t + 1)`;
        "constant": 1; "exp": `exp(-t / 2)`; or a number. With `central = "auto"` at most
        1e-6 while the product is used
    mesh : points per axis of a uniform mesh as the point set, on which models are compared and points are
        chosen; None: `num_points` decides
    num_points : size of the point set: a mesh for one or two parameters, Sobol points for more
    num_refined : points added around the best point so far, closer to it at every renewal; 0: none; None: 32
        with `central = "auto"`, else none
    refine_every : rounds between two renewals of the added points
    memory_limit : largest number of bytes of one covariance matrix over the point set
    num_initial : random trials of an agent's first round, evaluated as one batch
    num_repeated : trials of the first round that repeat others of it, which tells noise from structure. At
        least three points differ. 0: none
    weights : weights of the agents in the central model: "uniform", or by "reliability" if some agents may be
        wrong: then an agent with a small weight recommends nothing, and the shared prior uses medians over
        agents instead of means
    stale : what happens to the last posterior of an agent that did not answer in the last round: "keep" uses
        it, "drop" leaves it out
    transform : transform of values before modelling: "none", "log" or "asinh"; "log" is
        `sign(v) log(1 + |v|)`, where `v` is the value divided by `transform_scale`
    transform_scale : unit of values for the transform; positive
    refit : when hyperparameters are estimated again after the warm-up: "never"; "doubling": whenever the
        number of rounds since then has doubled; or a number of rounds between two estimates
    isotropic : whether all parameters share one lengthscale; otherwise each has its own
    kernel : "rbf" or "matern52"
    noise_variance : variance of the noise of an observation if it is known, in squared units of the
        objective; only with `transform = "none"`. None: estimated
    noise_floor : smallest noise variance, as a share of the variance of values
    mean_noise_stddev : standard deviation of the noise that an agent adds to the mean in every report: a draw
        from the prior multiplied by this number
    num_draws : `M` of Eq. 9, normal draws per evaluation of the central acquisition
    num_starts : starts of its maximisation; None: 1 if `beta_t >= 1` or with more than 8 agents, else 3
    rank_cut : share of the prior variance at a point that the pivots may leave unexplained
    tolerance : relative residual at which the barycenter's fixed-point iteration (Eq. 8) stops
    secure_sums : smallest number of agents in a secure sum of the moments and log likelihoods: the server
        sees the sum but no agent's own values. It still sees every posterior. 0: it sees all
    """

    framework: str = "co-kg"
    acquisition: str = "kg"
    central: str = "barycenter"
    beta: str | float = "log"
    mesh: int | None = None
    num_points: int = 400
    num_refined: int | None = None
    refine_every: int = 5
    memory_limit: int = 2**28
    num_initial: int = 5
    num_repeated: int = 1
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
        if self.num_refined is not None:
            check_number("num_refined", self.num_refined, 0, 10**5, integer=True)
        check_number("refine_every", self.refine_every, 1, integer=True)
        check_number("memory_limit", self.memory_limit, 8, 2**40, integer=True)
        check_number("num_initial", self.num_initial, 3, 4096, integer=True)
        check_number("num_repeated", self.num_repeated, 0, 2048, integer=True)
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
                    f"noise_variance: expected None with transform={self.transform!r}, because the transform "
                    f"makes the noise depend on the value, got {self.noise_variance!r}"
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
        """Return the point set `X_D`, `(S, D)`, which is the same at the server and at every agent.

        Raises
        ------
        ConfigError
            If a covariance matrix over these points takes more than `memory_limit` bytes.
        """
        if self.mesh is not None:
            drawn = point_sets.mesh(self.mesh, space.dimension, self.memory_limit)
        else:
            rng = generator(0, "co-kg", "points")
            drawn = point_sets.spread(self.num_points, space.dimension, self.memory_limit, rng)
        return distinct(space, drawn)

    @property
    def refinement(self) -> int:
        """The number of points that are added around the best one."""
        if self.num_refined is None:
            return REFINED if self.central == "auto" else 0
        return self.num_refined

    def around(self, space: SearchSpace, centre: Array, renewal: int) -> Array:
        """Return `refinement` points in a box around `centre (D,)`, `(K, D)`; each renewal halves the box.

        The first box reaches to the neighbours of `centre` on a mesh with as many points as the point set.
        """
        side = self.mesh or max(2.0, self.num_points ** (1.0 / space.dimension))
        half_width = 1.0 / max(side - 1.0, 1.0) / 2.0**renewal
        rng = generator(0, "co-kg", "refined", renewal)
        drawn = point_sets.refined(centre, half_width, self.refinement, self.memory_limit, rng)
        return distinct(space, drawn)

    def weight(self, iteration: int) -> float:
        """Return `beta_t` for iteration `t >= 1`."""
        if self.framework in {"barycenter-qkg", "data-communication"}:
            return 0.0
        return BETAS[self.beta](iteration) if isinstance(self.beta, str) else float(self.beta)

    def fits_again(self, rounds: int) -> bool:
        """Return whether hyperparameters are estimated again `rounds` rounds after the first estimate."""
        if isinstance(self.refit, int):
            return rounds > 0 and rounds % self.refit == 0
        return self.refit == "doubling" and rounds >= 2 and rounds & (rounds - 1) == 0

    def transformed(self, values: Array) -> Array:
        """Return the transform of values `(n,)`, before they are standardised."""
        if self.transform == "none":
            return values
        scaled = values / self.transform_scale
        if self.transform == "asinh":
            return np.arcsinh(scaled)
        return np.sign(scaled) * np.log1p(np.abs(scaled))

    def untransformed(self, value: float) -> float:
        """Return the value whose transform is `value`."""
        if self.transform == "none":
            return value
        with np.errstate(over="ignore"):
            inverse = np.sinh(value) if self.transform == "asinh" else np.sign(value) * np.expm1(abs(value))
        return float(inverse * self.transform_scale)


def distinct(space: SearchSpace, points: Array) -> Array:
    """Return the points snapped to the space, `(S, D)`, each configuration once, in the order given."""
    snapped = space.snap(points)
    _, first = np.unique(snapped, axis=0, return_index=True)
    return snapped[np.sort(first)]
