"""Print the figures of docs/papers/co_kg.md: noise after the warm-up, error rates of "auto"."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from fbo_flower.algorithms.co_kg.central import AGAINST, ENOUGH
from fbo_flower.algorithms.co_kg.co_kg import CoKG, first_points
from fbo_flower.numerics.aggregation.agreement import log_bayes_factors
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.sobol import mesh, sobol
from fbo_flower.numerics.surrogates import fitting, gp, pivots
from fbo_flower.numerics.surrogates import shared_hyperparameters as grid
from studies.benchmarks.noisy_functions import FUNCTIONS, NOISE, lowest
from studies.experiment import Arrays, Experiment, Part

Data = list[tuple[Array, Array]]
PRIOR = gp.Hyperparameters("rbf", np.full(2, 0.4), 1.0, 0.1)
POINTS = mesh(8, 2, 2**28)
CHOSEN = pivots.choose_pivots(POINTS, PRIOR, 1e-9)


def estimated(data: Data, dimension: int) -> tuple[float, float, float]:
    """Return logarithms of scale, outputscale and noise variance, estimated from all agents."""
    return grid.estimate(
        np.sum([grid.log_likelihoods(x, y, "rbf", np.ones(dimension)) for x, y in data], axis=0)
    )


TRUTHS = {  # correlation of the agents' functions, and whether only the last one differs
    "one objective": (1.0, False),
    "correlation .8": (0.8, False),
    "one agent differs": (0.0, True),
    "all differ": (0.0, False),
}
NOISY = {**{name: (name, NOISE) for name in FUNCTIONS}, "branin without noise": ("branin", 0.0)}


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the noise after the warm-up and the error rates of "auto"; quick: few federations."""
    problems = [f"{truth}; {count} values" for truth in TRUTHS for count in (5, 10, 20)]
    seeds = range(2 if quick else 200)
    return [
        Part("noise", noise, list(NOISY), ["own", "grid", "repeated", "truth"], seeds[:12], joint=True),
        Part("agreement", agreement, problems, ["known", "estimated"], seeds, joint=True),
    ]


EXPERIMENT = Experiment("Noise after the warm-up of Co-KG, and how often agents are pooled", parts)


def noise(label: str, seed: int) -> Arrays:
    """Return the shares of noise that four agents estimate from five values each.

    "own" estimates, from all agents on a "grid", and the same with one point "repeated".
    """
    name, deviation = NOISY[label]
    function, dimension, highest = FUNCTIONS[name]
    low = lowest(name)
    dense = function(sobol(2**14, dimension, np.random.default_rng(0)))
    variance = float(((dense - low) / (highest - low)).var())
    found: Arrays = {"truth/noise": np.array(deviation**2 / variance)}
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
        found["repeated/noise" if repeated else "grid/noise"] = np.exp(total)
        if not repeated:
            own = [own_noise(x, y) + s for (x, y), s in zip(data, shares, strict=True)]
            found["own/noise"] = np.exp(np.mean(own))
    return found


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


def agreement(label: str, seed: int) -> Arrays:
    """Return whether agents are pooled or kept apart, with known and with estimated hyperparameters."""
    truth, count = label.split("; ")
    data = observed(seed, *TRUTHS[truth], int(count.split()[0]))
    scale, outputscale, variance = np.exp(estimated(data, 2))
    lengthscales = np.full(2, max(scale * grid.reference(2), 0.1))
    guess = gp.Hyperparameters("rbf", lengthscales, outputscale, variance)
    found = Arrays()
    for row, h in (("known", PRIOR), ("estimated", guess)):
        at = POINTS[pivots.choose_pivots(POINTS, h, 1e-5).index]
        least = log_bayes_factors([pivots.observe(x, y, at, h) for x, y in data]).min()
        found[f"{row}/pooled"], found[f"{row}/apart"] = np.array([least > ENOUGH, least < AGAINST], float)
    return found
