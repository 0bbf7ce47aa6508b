"""Co-KG's options, messages and states.

Notation: `S` points of the point set `X_D`; `r` of them are the pivots `P`, at which agents report their
posteriors; `F` features. In whitened coordinates `v` (`numerics.surrogates.pivots`) a function's values are
`L v` at the pivots and `basis v` on the point set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any

import numpy as np

from fbo_flower.algorithms.messages import Content, Length, Spec, real, summable, whole
from fbo_flower.algorithms.options import (
    bounded,
    check_choice,
    check_secure_sums,
    checked,
    choice,
    flag,
    integer,
)
from fbo_flower.algorithms.protocol import Algorithm, Progress
from fbo_flower.algorithms.records import AnyArray, Array, IntArray, Task, Trials, floats
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.aggregation.agreement import LARGEST, LARGEST_SUM, UNITS, from_power_sums, power_sums
from fbo_flower.numerics.optim.sobol import largest_size, mesh, refined, spread
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import gp, transforms
from fbo_flower.numerics.surrogates.gp import KERNELS
from fbo_flower.numerics.surrogates.pivots import Frame, Increment
from fbo_flower.numerics.surrogates.shared_hyperparameters import LOWEST, SIZE
from fbo_flower.space.checks import check_integer, check_number
from fbo_flower.space.space import SearchSpace

SECURE = "secure_sums"
REFINED = 32  # points that "auto" adds to the point set
BETAS: dict[str, Callable[[int], float]] = {
    "log": lambda t: math.log(2 * t + 1),
    "constant": lambda t: 1.0,
    "exp": lambda t: math.exp(-t / 2),
}


@dataclass(frozen=True, kw_only=True)
class CoKGOptions(Algorithm["CoKGState"]):
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

    framework: str = choice("co-kg", ("co-kg", "barycenter-qkg", "no-collaboration", "data-communication"))
    acquisition: str = choice("kg", ("kg", "ei", "es"))
    central: str = choice("barycenter", ("barycenter", "product", "auto"))
    beta: str | float = "log"
    mesh: int | None = integer(None, 1, 10**6)
    num_points: int = integer(400, 1, 10**6)
    num_refined: int | None = integer(None, 0, 10**5)
    refine_every: int = integer(5, 1)
    memory_limit: int = integer(2**28, 8, 2**40)
    num_initial: int = integer(5, 3, 4096)
    num_repeated: int = integer(1, 0, 2048)
    weights: str = choice("uniform", ("uniform", "reliability"))
    stale: str = choice("keep", ("keep", "drop"))
    transform: str = choice("none", ("none", "log", "asinh"))
    transform_scale: float = bounded(1.0, 1e-300, 1e300)
    refit: str | int = "never"
    isotropic: bool = flag(True)
    kernel: str = choice("rbf", tuple(KERNELS))
    noise_variance: float | None = bounded(None, 0, 1e300)
    noise_floor: float = bounded(1e-6, 1e-10, 1)
    mean_noise_stddev: float = bounded(0.0, 0, 1e6)
    num_draws: int = integer(64, 2, 2**16)
    num_starts: int | None = integer(None, 1, 1000)
    rank_cut: float = bounded(1e-5, 1e-12, 0.5)
    tolerance: float = bounded(1e-3, 1e-12, 0.5)
    secure_sums: int = checked(0, check_secure_sums)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.beta, str):
            check_choice("beta", self.beta, (*BETAS, "a number"))
        else:
            object.__setattr__(self, "beta", check_number("beta", self.beta, 0, 1e6))
        if isinstance(self.refit, str):
            check_choice("refit", self.refit, ("never", "doubling", "a number of rounds"))
        else:
            object.__setattr__(self, "refit", check_integer("refit", self.refit, 1))
        if self.secure_sums and self.weights != "uniform":
            raise ConfigError(f"weights: expected 'uniform' with secure_sums, got {self.weights!r}")
        if self.noise_variance is not None and self.transform != "none":
            raise ConfigError(
                f"noise_variance: expected None with transform={self.transform!r}, because the transform "
                f"makes the noise depend on the value, got {self.noise_variance!r}"
            )

    def check(self, space: SearchSpace) -> None:
        self.points(space)

    def points(self, space: SearchSpace, added: Array | None = None) -> Array:
        """Return the point set `X_D`, `(S, D)`, the same at the server and at every agent, and `added`."""
        if self.mesh is not None:
            drawn = mesh(self.mesh, space.dimension, self.memory_limit)
        else:
            rng = generator(0, "co-kg", "points")
            drawn = spread(self.num_points, space.dimension, self.memory_limit, rng)
        points = distinct(space, drawn)
        return points if added is None else np.concatenate([points, added])

    @property
    def most_points(self) -> int:
        """The largest size of a point set."""
        return largest_size(self.memory_limit)

    @property
    def most_pairs(self) -> int:
        """The largest number of entries in a packed covariance."""
        return self.most_points * (self.most_points + 1) // 2

    @property
    def most_added(self) -> int:
        """The largest number of added points in a task."""
        return max(self.refinement, 1)

    @property
    def sends(self) -> str:
        """What a report says about the objective: "trials", "posterior" or "increment"."""
        if self.framework == "data-communication":
            return "trials"
        return "posterior" if self.central == "barycenter" else "increment"

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
        drawn = refined(centre, half_width, self.refinement, self.memory_limit, rng)
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
        return transforms.compressed(values, self.transform, self.transform_scale)


def distinct(space: SearchSpace, points: Array) -> Array:
    """Return the points snapped to the space, `(S, D)`, each configuration once, in the order given."""
    snapped = space.snap(points)
    _, first = np.unique(snapped, axis=0, return_index=True)
    return snapped[np.sort(first)]


# -- messages ----------------------------------------------------------------------------------------


def _theta(algorithm: object, space: SearchSpace) -> int:
    """Return the number of hyperparameters."""
    return space.dimension + 2


def _sent(kind: str, *shape: Length, **more: Any) -> Spec:
    """Return the specification of an array of reports that say this about the objective."""
    return real(*shape, only_if=lambda algorithm: algorithm.sends == kind, **more)


_POINTS = _sent("trials", None, "D", low=0.0, high=1.0, most=2**16, is_trials=True)


@dataclass(frozen=True, kw_only=True)
class Work(Content):
    """A task: after the warm-up the shared prior; a point to evaluate; whether to fit hyperparameters."""

    fit: bool = False
    hyperparameters: Annotated[Array | None, real(_theta, low=-1e3, high=1e3)] = None
    units: Annotated[Array | None, real(2, low=-LARGEST, high=LARGEST)] = None
    pivots: Annotated[Array | None, real(None, "D", low=0.0, high=1.0, most="most_points")] = None
    point: Annotated[Array | None, real("D", low=0.0, high=1.0)] = None
    added: Annotated[Array | None, real(None, "D", low=0.0, high=1.0, most="most_added")] = None


@dataclass(frozen=True, kw_only=True)
class Found(Content):
    """A report: statistics of the values, to fit the prior; the posterior at the pivots, or its maximiser.

    With `central = "product"` or "auto" precision and shift that the observations add to the prior stand for
    the posterior; with "data-communication" the trials. `power_sums` stand for the moments in secure sums,
    `thetas` says how many agents sum `theta`.
    """

    moments: Annotated[Array | None, real(3, low=-LARGEST, high=LARGEST, in_clear=True)] = None
    power_sums: Annotated[Array | None, summable(len(UNITS), 3, bound=LARGEST_SUM, only_if=SECURE)] = None
    thetas: Annotated[Array | None, summable(1, bound=1.0, only_if=SECURE)] = None
    theta: Annotated[Array | None, summable(_theta, bound=2e3)] = None
    log_likelihoods: Annotated[Array | None, summable(SIZE, bound=-LOWEST)] = None
    best: Annotated[IntArray | None, whole(1)] = None
    best_mean: Annotated[Array | None, real(1)] = None
    mean: Annotated[Array | None, _sent("posterior", None, most="most_points")] = None
    covariance: Annotated[Array | None, _sent("posterior", None, most="most_pairs")] = None
    shift: Annotated[Array | None, _sent("increment", None, most="most_points")] = None
    precision: Annotated[Array | None, _sent("increment", None, most="most_pairs")] = None
    points: Annotated[Array | None, _POINTS] = None
    outcomes: Annotated[Array | None, _sent("trials", None, low=-np.inf, high=np.inf, most=2**16)] = None

    @classmethod
    def asks_for_sum(cls, task: Task) -> bool:
        return Work.of(task).fit

    @classmethod
    def sum_content(cls, task: Task) -> Mapping[str, AnyArray]:
        return {"units": task.arrays["units"]} if "units" in task.arrays else {}


# -- states ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedPrior:
    """What all agents share after the warm-up: prior, noise, units and pivots."""

    version: int  # counted from 1; posteriors under another version are in other coordinates
    hyperparameters: gp.Hyperparameters  # for standardised values
    shift: float  # a transformed value `t` is standardised to `(t - shift) / scale`
    scale: float
    # `(r, D)`, the points at which agents report their posteriors
    pivots: Array = field(default_factory=lambda: np.empty((0, 0)))

    def frame(
        self, options: CoKGOptions, space: SearchSpace, added: Array | None = None, *, chosen: bool = False
    ) -> Frame:
        """Return the point set, with `added (K, D)` appended, in the coordinates of this prior.

        Parameters
        ----------
        chosen : whether pivots are chosen among the points again, instead of taken from the prior
        """
        theta, more = self.hyperparameters.to_array().tobytes(), b"" if added is None else added.tobytes()
        return _frame(options, space, theta, None if chosen else self.pivots.tobytes(), more)

    def work(self, fit: bool = False) -> Work:
        """Return the content of a task that carries the shared prior."""
        units = np.array([self.shift, self.scale])
        return Work(fit=fit, hyperparameters=self.hyperparameters.to_array(), units=units, pivots=self.pivots)

    @staticmethod
    def read(arrays: Mapping[str, AnyArray], kernel: str) -> SharedPrior | None:
        """Return the shared prior in the arrays of a task or an agent's state, None if there is none yet."""
        if "hyperparameters" not in arrays:
            return None
        theta, units, pivots = (floats(arrays[name]) for name in ("hyperparameters", "units", "pivots"))
        hyperparameters = gp.Hyperparameters.from_array(kernel, theta)
        return SharedPrior(0, hyperparameters, float(units[0]), float(units[1]), pivots)


@lru_cache(maxsize=8)
def _frame(
    options: CoKGOptions, space: SearchSpace, theta: bytes, pivots: bytes | None, added: bytes
) -> Frame:
    """Return a frame; hyperparameters, pivots and added points are bytes, the key of the cache."""
    hyperparameters = gp.Hyperparameters.from_array(options.kernel, np.frombuffer(theta))
    picked = None if pivots is None else np.frombuffer(pivots).reshape(-1, space.dimension)
    points = options.points(space, np.frombuffer(added).reshape(-1, space.dimension) if added else None)
    at = None if picked is None else space.features(picked)
    return Frame.of(points, space.features(points), hyperparameters, options.rank_cut, at)


@dataclass(frozen=True)
class WarmUp:
    """An agent's statistics of its own observations, from which the shared prior is computed."""

    moments: Array  # `(3,)`: number, mean and standard deviation of its transformed values
    # `(F + 2,)`, logarithms of its hyperparameters, for transformed values; None if it has none
    theta: Array | None = None
    # `(G,)`, on the grid of `surrogates.shared_hyperparameters`; None if it has none
    log_likelihoods: Array | None = None

    def to_sums(self) -> Found:
        """Return an agent's part of a secure sum."""
        thetas = None if self.theta is None else np.ones(1)
        sums = power_sums(self.moments)
        return Found(power_sums=sums, thetas=thetas, theta=self.theta, log_likelihoods=self.log_likelihoods)

    @staticmethod
    def from_sums(sums: Mapping[str, Array]) -> WarmUp | None:
        """Return the summed warm-ups of all agents as a single warm-up; None without values."""
        moments, thetas = from_power_sums(sums["power_sums"]), float(sums["thetas"][0])
        if moments is None:
            return None
        return WarmUp(moments, sums["theta"] / thetas if thetas >= 1.0 else None, sums["log_likelihoods"])


@dataclass(frozen=True)
class WhitenedPosterior:
    """An agent's posterior, in whitened coordinates."""

    version: int  # version of the shared prior under which it was reported
    round: int  # round in which it was reported
    mean: Array  # `(r,)`
    covariance: Array  # `(r, r)`
    # the precision and shift that its observations add to the prior, if the agent reported these
    increment: Increment | None = None


@dataclass(frozen=True)
class Recommendation:
    """The point that the server would return after a round."""

    round: int
    agent: str  # the agent whose posterior mean has this maximum; "" for the central model
    point: Array  # `(D,)`
    value: float  # posterior mean at the point, standardised


@dataclass(frozen=True)
class CoKGState:
    """The server's state."""

    space: SearchSpace
    progress: Progress = field(default_factory=Progress)  # every agent's next trial
    # agent -> the statistics of its warm-up, or of its last estimate of hyperparameters
    warm_ups: Mapping[str, WarmUp] = field(default_factory=dict)
    setting: SharedPrior | None = None  # the shared prior; None before the first report of a warm-up
    settled: int = 0  # round in which the first shared prior was sent
    round: int = 0  # last round with tasks
    last_heard: int = 0  # last round in which some agent answered
    # agent -> version of the shared prior in its last task, 0 without one
    versions: Mapping[str, int] = field(default_factory=dict)
    under_way: Mapping[str, Task] | None = None  # without a barrier, tasks of agents that are at work
    fitting: bool = False  # whether agents are asked for new hyperparameters in this round
    posteriors: Mapping[str, WhitenedPosterior] = field(default_factory=dict)  # agent -> its last posterior
    # agent -> the trials that it disclosed to the algorithm ("data-communication")
    histories: Mapping[str, Trials] = field(default_factory=dict)
    # `(k, k)`, the barycenter of the last round, from which the next iteration starts
    start: Array | None = None
    refined: Array | None = None  # `(K, D)`, points added around the best one
    renewals: int = 0  # how often these points were renewed
    recommended: tuple[Recommendation, ...] = ()  # the recommendation after every round
    # rounds in which agreement was tested, with a p-value per agent
    agreement: tuple[tuple[int, Mapping[str, float]], ...] = ()
    # rounds, with the least log Bayes factor of an agent for sharing the others' objective; for `central =
    # "auto"`
    evidence: tuple[tuple[int, float], ...] = ()
    # agent -> the maximiser of its posterior mean `(D,)` and the mean there, as it reported
    finished: Mapping[str, tuple[Array, float]] = field(default_factory=dict)
    asked_to_recommend: tuple[str, ...] = ()  # agents that were asked for their maximiser at the end

    def known(self, stale: str) -> dict[str, WhitenedPosterior]:
        """Return the posteriors that are under the present shared prior.

        With `stale` "drop" they must be from the last round in which an agent answered, or without a barrier
        from the last two.
        """
        oldest = self.last_heard - (self.under_way is not None)
        version = 0 if self.setting is None else self.setting.version
        return {
            agent: posterior
            for agent, posterior in self.posteriors.items()
            if posterior.version == version and (stale == "keep" or posterior.round >= oldest)
        }
