"""Print the tables of docs/papers/co_kg.md: noise after the warm-up, error rates of "auto".

OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.shared_prior noise       # estimated noise, 12 federations
OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.shared_prior agreement   # how often agents are pooled
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
from scipy.optimize import minimize

from fbo_flower.algorithms.co_kg.central import AGAINST, ENOUGH
from fbo_flower.algorithms.co_kg.co_kg import CoKG, first_points
from fbo_flower.numerics.aggregation.agreement import log_bayes_factors
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.sobol import mesh, sobol
from fbo_flower.numerics.surrogates import fitting, gp, pivots
from fbo_flower.numerics.surrogates import shared_hyperparameters as grid
from fbo_flower.numerics.threads import single_thread
from studies.benchmarks.bench import say
from studies.benchmarks.noisy_functions import FUNCTIONS, NOISE, lowest
from studies.report import head

Data = list[tuple[Array, Array]]
PRIOR = gp.Hyperparameters("rbf", np.full(2, 0.4), 1.0, 0.1)
POINTS = mesh(8, 2, 2**28)
CHOSEN = pivots.choose_pivots(POINTS, PRIOR, 1e-9)


def estimated(data: Data, dimension: int) -> tuple[float, float, float]:
    """Return logarithms of scale, outputscale and noise variance, estimated from all agents."""
    return grid.estimate(
        np.sum([grid.log_likelihoods(x, y, "rbf", np.ones(dimension)) for x, y in data], axis=0)
    )


def noise(num_federations: int) -> None:
    """Print the median noise variance that four agents estimate from five values each."""
    print(head(["function", "noise", "true share", "own estimates", "grid", "grid, one point repeated"]))
    for name, deviation in (*((name, NOISE) for name in FUNCTIONS), ("branin", 0.0)):
        function, dimension, highest = FUNCTIONS[name]
        low = lowest(name)
        dense = function(sobol(2**14, dimension, np.random.default_rng(0)))
        variance = float(((dense - low) / (highest - low)).var())
        found: dict[str, list[float]] = {"own": [], "grid": [], "repeated": []}
        for seed in range(num_federations):
            for repeated in (0, 1):
                data: Data = []
                shares = []
                for agent in range(4):
                    rng = np.random.default_rng([seed, agent])
                    x = first_points(CoKG(num_repeated=repeated), 5, dimension, rng)
                    y = (function(x) - low) / (highest - low) + deviation * rng.standard_normal(5)
                    data.append((x, (y - y.mean()) / y.std()))
                    shares.append(2.0 * np.log(y.std()) - np.log(variance))
                total = estimated(data, dimension)[2] + float(np.mean(shares))
                found["repeated" if repeated else "grid"].append(total)
                if not repeated:
                    own = [own_noise(x, y) + s for (x, y), s in zip(data, shares, strict=True)]
                    found["own"].append(float(np.mean(own)))
        medians = [f"{np.exp(np.median(values)):.4f}" for values in found.values()]
        say(name, deviation, f"{deviation**2 / variance:.3f}", *medians)


def own_noise(x: Array, y: Array) -> float:
    """Return the log noise variance at an agent's own mode with one lengthscale, found by SciPy."""
    mean, precision = (a[-3:] for a in fitting.prior(x.shape[1]))

    def loss(theta: Array) -> float:
        scales = np.full(x.shape[1], np.exp(theta[0]))
        h = gp.Hyperparameters("rbf", scales, *np.exp(theta[1:]).tolist())
        return 0.5 * float(precision @ (theta - mean) ** 2) - gp.log_marginal_likelihood(x, y, h)[0]

    return float(minimize(loss, mean, method="L-BFGS-B", bounds=fitting.bounds(1)).x[2])


def observed(seed: int, correlation: float, odd: bool, observations: int) -> Data:
    """Return values of four agents whose functions correlate so; with `odd` only the last one differs."""
    rng = np.random.default_rng(seed)
    common, *own = rng.standard_normal((5, CHOSEN.basis.shape[1]))
    data = []
    for n, other in enumerate(own):
        rho = 1.0 if odd and n < 3 else correlation
        function = CHOSEN.basis @ (np.sqrt(rho) * common + np.sqrt(1.0 - rho) * other)
        rows = rng.integers(0, len(POINTS), observations)
        data.append((POINTS[rows], function[rows] + np.sqrt(0.1) * rng.standard_normal(observations)))
    return data


def agreement(num_federations: int) -> None:
    """Print how often agents are pooled or kept apart, with known and with estimated hyperparameters."""
    columns = ["pooled: known", "estimated", "apart: known", "estimated"]
    print(head(["truth", "values per agent", *columns]))
    for truth, correlation, odd in (
        ("one objective", 1.0, False), ("correlation .8", 0.8, False), ("one agent differs", 0.0, True),
        ("all differ", 0.0, False),
    ):  # fmt: skip
        for observations in (5, 10, 20):
            least = np.empty((2, num_federations))
            for seed in range(num_federations):
                data = observed(seed, correlation, odd, observations)
                scale, outputscale, variance = np.exp(estimated(data, 2))
                lengthscales = np.full(2, max(scale * grid.reference(2), 0.1))
                found = gp.Hyperparameters("rbf", lengthscales, outputscale, variance)
                for row, h in zip(least, (PRIOR, found), strict=True):
                    at = POINTS[pivots.choose_pivots(POINTS, h, 1e-5).index]
                    row[seed] = log_bayes_factors([pivots.observe(x, y, at, h) for x, y in data]).min()
            pooled, apart = (least > ENOUGH).mean(axis=1), (least < AGAINST).mean(axis=1)
            say(truth, observations, *(f"{share:.3f}" for share in (*pooled, *apart)))


if __name__ == "__main__":
    tables = {"noise": partial(noise, 12), "agreement": partial(agreement, 200)}
    with single_thread():
        tables[sys.argv[1]]()
