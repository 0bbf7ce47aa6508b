"""Maximise samples of a Gaussian process: the synthetic experiments of [Dai2020], with known optima.

The target (agent 0) has a sample scaled to `[0, 1]`; every other agent has the target plus an offset of at
most `difference` at every point, or an independent sample.

Samples are drawn by circulant embedding [Dietrich1997]: on a regular grid, padded until the kernel has died
out, the covariance matrix is circulant, so its square root is a multiplication in Fourier space. This is
exact to rounding and, unlike a Cholesky factor, does not depend on the number of BLAS threads.

References
----------
[Dai2020] Dai, Low, Jaillet. Federated Bayesian optimization via Thompson sampling. NeurIPS 2020, App. D.1.
[Dietrich1997] Dietrich, Newsam. Fast and exact simulation of stationary Gaussian processes through circulant
    embedding of the covariance matrix. SIAM J. Sci. Comput. 18(4), 1997.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.errors import ObjectiveError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems.base import Config, Problem, number
from fbo_flower.space import Float, SearchSpace

GRID_SIZES = {1: 1000, 2: 50}  # points per axis
SPACES = {
    1: SearchSpace({"x": Float(0.0, 1.0)}),
    2: SearchSpace({"x0": Float(0.0, 1.0), "x1": Float(0.0, 1.0)}),
}
NEGLIGIBLE = 8.5  # lengthscales after which exp(-r^2 / 2) < 1e-15


@dataclass(frozen=True)
class GPSamples(Problem):
    """A function per agent on a grid over `[0, 1]^dimension`, observed with Gaussian noise.

    Attributes
    ----------
    difference : `d_n`, the largest distance between a related agent's function and the target's
    offset : "sign": `+d_n` or `-d_n` at random at each grid point, as in the paper; "smooth": another sample
        of the process, scaled so that its largest absolute value is `d_n`
    unrelated_fraction : share of the agents other than the target, counted from the last one, whose functions
        are independent samples
    noise_variance : variance `sigma^2` of the noise of an observation
    lengthscale : lengthscale of the squared-exponential kernel; about .2 gives smooth functions in 2-D
    dimension : 1 (1000 points) or 2 (50 x 50 points)
    function_seed : seed of the functions; None: the problem's `seed`. Set it to use one function for many
        seeds
    """

    difference: float = 0.02
    offset: Literal["sign", "smooth"] = "sign"
    unrelated_fraction: float = 0.0
    noise_variance: float = 0.01
    lengthscale: float = 0.03
    dimension: Literal[1, 2] = 1
    function_seed: int | None = None

    name: ClassVar[str] = "gp-samples"
    metric: ClassVar[str] = "function value"
    default_agents: ClassVar[int] = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect("difference", self.difference >= 0, "a non-negative number")
        self.expect("unrelated_fraction", 0 <= self.unrelated_fraction <= 1, "a number between 0 and 1")
        self.expect("noise_variance", self.noise_variance >= 0, "a non-negative number")
        self.expect("lengthscale", 0 < self.lengthscale <= 2, "a positive number up to 2")
        self.expect(
            "function_seed",
            self.function_seed is None or self.function_seed >= 0,
            "None or a non-negative int",
        )

    @property
    def space(self) -> SearchSpace:
        return SPACES[self.dimension]

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        noise = math.sqrt(self.noise_variance) * context.rng.standard_normal()
        return self.true_value(config, context.partition) + noise

    def true_value(self, config: Config, partition: int) -> float:
        place = []
        for name in self.space.names:
            x = number(config, name)
            if not 0.0 <= x <= 1.0:
                raise ObjectiveError(f"{name}: expected a number in [0, 1], got {x}")
            place.append(round(x * (GRID_SIZES[self.dimension] - 1)))
        return float(self.values(partition)[tuple(place)])

    def optimum(self, partition: int) -> float:
        return float(self.values(partition).max())

    def is_related(self, partition: int) -> bool:
        """Return whether the agent's function is the target's plus an offset, not an independent sample."""
        num_unrelated = round(self.unrelated_fraction * (self.num_agents - 1))
        return partition < self.num_agents - num_unrelated

    def values(self, partition: int) -> NDArray[np.float64]:
        """Return the agent's function on the grid, `(1000,)` or `(50, 50)`, read-only."""
        self.check_partition(partition)
        return _values(self, partition)


def sample_on_grid(
    size: int, dimension: int, lengthscale: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw `f ~ GP(0, exp(-r^2 / (2 lengthscale^2)))` on a regular grid over `[0, 1]^dimension`.

    Parameters
    ----------
    size : grid points per axis, including both ends

    Returns
    -------
    An array with `dimension` axes of length `size`
    """
    spacing = 1.0 / (size - 1)
    period = 2 * math.ceil(max(1.0, NEGLIGIBLE * lengthscale) / spacing)
    steps = np.minimum(np.arange(period), period - np.arange(period))
    kernel = np.exp(-0.5 * (steps * spacing / lengthscale) ** 2)
    root = np.sqrt(np.maximum(np.fft.fft(kernel).real, 0.0))  # rounding leaves eigenvalues down to -1e-15
    filter_ = root
    for _ in range(dimension - 1):
        filter_ = np.multiply.outer(filter_, root)
    white = rng.standard_normal((period,) * dimension)
    sample = np.fft.ifftn(filter_ * np.fft.fftn(white)).real
    return np.ascontiguousarray(sample[(slice(size),) * dimension])


@lru_cache(maxsize=4096)
def _values(problem: GPSamples, partition: int) -> NDArray[np.float64]:
    size, dimension = GRID_SIZES[problem.dimension], problem.dimension
    seed = problem.seed if problem.function_seed is None else problem.function_seed
    if partition == 0 or not problem.is_related(partition):
        rng = generator(seed, problem.name, "function", partition)
        sample = sample_on_grid(size, dimension, problem.lengthscale, rng)
        values = (sample - sample.min()) / (sample.max() - sample.min())
    else:  # the offset is scaled so that its largest absolute value is 1
        rng = generator(seed, problem.name, "offset", partition)
        if problem.offset == "sign":
            offset = rng.choice(np.array([-1.0, 1.0]), size=(size,) * dimension)
        else:
            sample = sample_on_grid(size, dimension, problem.lengthscale, rng)
            offset = sample / np.abs(sample).max()
        values = _values(problem, 0) + problem.difference * offset
    values.setflags(write=False)
    return np.asarray(values)
