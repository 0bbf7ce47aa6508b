"""Attack RGPE and TAF: a posterior over weights contains the observations in another form.

`Sigma^-1` gives `Phi^T Phi = Sigma - sigma^2 I`, whose span is that of the features of the agent's points.
The server looks for points whose features lie in that span. Given the points, `Sigma nu = Phi^T y` gives the
standardised values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import minimize

from fbo_flower.algorithms.records import Array, floats
from fbo_flower.numerics.acquisition.feature_models import unpack_symmetric
from fbo_flower.numerics.surrogates import rff
from fbo_flower.numerics.surrogates.transforms import standardise
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import RGPE, TAF, TuningStrategy
from studies.attacks.records import SQUARE, UNITS, AttackResult, compared, evaluated, lowest, overhear

NUM_AGENTS = 4
NUM_ROUNDS = 6
SIDE = 101  # points per axis of the grid that is searched


def attack(seed: int) -> Iterator[AttackResult]:
    """Attack four agents on the function f1 after a few rounds."""
    for kind in (RGPE, TAF):
        yield from _findings(kind.__name__, kind(num_agents=NUM_AGENTS, seed=seed), seed)


def _findings(name: str, server: TuningStrategy, seed: int) -> Iterator[AttackResult]:
    problem = make_problem("f1", NUM_AGENTS, seed, {})
    study, heard = overhear(problem, server, NUM_ROUNDS, seed)
    noise_variance = float(str(server.algorithm.options()["message_noise_variance"]))
    shared = heard.told("frequencies")[0].arrays
    features = rff.RandomFeatures(floats(shared["frequencies"]), floats(shared["phases"]))
    distances, uniform, errors, truths, best = [], [], [], [], []
    draws = np.random.default_rng(seed)
    for agent in map(str, range(NUM_AGENTS)):
        report = heard.sent("inverse", agent)[-1]
        points, observed, rounds = evaluated(study, agent)
        points, values = points[rounds <= report.round], standardise(observed[rounds <= report.round])
        mean = floats(report.arrays["mean"])
        inverse = unpack_symmetric(floats(report.arrays["inverse"]), len(mean))
        found = observed_points(inverse, noise_variance, features, len(points))
        near = np.linalg.norm(points[:, None] - found[None], axis=2)
        distances += near.min(axis=1).tolist()
        guess = draws.random((len(points), 2))
        uniform += np.linalg.norm(points[:, None] - guess[None], axis=2).min(axis=1).tolist()
        recovered = observed_values(mean, inverse, features(found))
        errors += (recovered[near.argmin(axis=1)] - values).tolist()
        truths += values.tolist()
        if "incumbent" in report.arrays:
            best.append(float(report.arrays["incumbent"][0]) - values.max())
    spread, how = np.std(truths), "the mean of the values"
    text = f"{name}: points, from the uncertainty alone"
    yield compared(text, distances, uniform, SQUARE, "as many uniform points")
    yield compared(f"{name}: values at the points that were found", errors, spread, UNITS, how)
    if best:
        yield compared(f"{name}: best value, which it sends", best, spread, UNITS, how)


def observed_points(inverse: Array, noise_variance: float, features: rff.RandomFeatures, count: int) -> Array:
    """Return the points `(k, 2)` of the square whose features are closest to the span of `Phi^T Phi`.

    Parameters
    ----------
    inverse : `(M, M)`, `Sigma^-1`
    count : number of the agent's observations, below `M`; at most this many points are returned
    """
    gram = np.linalg.inv(inverse) - noise_variance * np.eye(len(inverse))  # Phi^T Phi
    span = np.linalg.eigh(gram)[1][:, -count:]

    def off(x: Array) -> Array:
        phi = features(np.clip(np.atleast_2d(x), 0.0, 1.0))
        left = phi - (phi @ span) @ span.T
        return np.asarray(np.log10(np.square(left).sum(axis=1) + 1e-18))

    axis = np.linspace(0.0, 1.0, SIDE)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    starts = grid[lowest(off(grid.reshape(-1, 2)).reshape(SIDE, SIDE))]
    climb: Any = minimize  # its stubs lack these options
    polished = [
        climb(lambda x: float(off(x)[0]), start, method="Nelder-Mead", options={"xatol": 1e-7})
        for start in starts
    ]
    order = np.argsort([p.fun for p in polished])
    found: list[Array] = []
    for place in order:
        x = np.clip(polished[place].x, 0.0, 1.0)
        if len(found) < count and all(np.abs(x - other).max() > 1e-4 for other in found):
            found.append(x)
    return np.array(found)


def observed_values(mean: Array, inverse: Array, phi: Array) -> Array:
    """Return the standardised values at known points, from `Sigma nu = Phi^T y`; `phi (n, M)`."""
    return np.asarray(np.linalg.lstsq(phi.T, np.linalg.solve(inverse, mean), rcond=1e-9)[0])
