"""Attack fed-ei: points and values from an agent's part of the sums, from totals, and from their differences.

`Phi^T Phi` of `n < M` points determines the span of their features; `posterior.observed_points` looks for the
points whose features lie in it. Given the points, `Phi^T y` is linear in the standardised values.

With secure sums the server sees totals only. The total over many points spans nearly all smooth functions, so
single points cannot be told from it. But the difference of the totals of two rounds holds only the points of
one round, one of each agent: the server can look for these, though not say whose they are.

With noise (`noise_multiplier`) an agent sends `Phi^T y / t` only. The attacker here knows all of the agent's
points and values but its newest point, subtracts them, and looks for the point whose features the rest are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fbo_flower.algorithms.records import AnyArray, Array
from fbo_flower.attacks.posterior import observed_points
from fbo_flower.attacks.records import AttackResult, TappedGrid, rms
from fbo_flower.clients import client_app
from fbo_flower.numerics.surrogates import rff
from fbo_flower.numerics.surrogates.transforms import transform
from fbo_flower.numerics.surrogates.trend import unpack
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import FedEI

NUM_AGENTS = 4
NUM_ROUNDS = 6
MULTIPLIERS = (1e-3, 1.0)  # of an agent's own noise: a control that the attack works, and protection
JITTER = 1e-2  # added and taken off again by `observed_points`


def attack(seed: int) -> Iterator[AttackResult]:
    """Attack four agents on the function f1 after a few rounds; the totals are those of secure sums."""
    problem = make_problem("f1", NUM_AGENTS, seed, {})
    grid = TappedGrid(client_app(problem, problem.space, seed=seed, disclose="trials"), NUM_AGENTS)
    study = FedEI(num_agents=NUM_AGENTS, seed=seed, secure_sums=0).start(grid, num_rounds=NUM_ROUNDS).study
    shared = next(o.arrays for o in grid.heard.tasks if "frequencies" in o.arrays)
    features = rff.RandomFeatures(_float(shared["frequencies"]), _float(shared["phases"]))
    sent = {(o.agent, o.round): o.arrays for o in grid.heard.reports if "gram" in o.arrays}
    agents = [str(a) for a in range(NUM_AGENTS)]
    points, values = {}, {}
    for agent in agents:
        rows = study.trials.where(agent=agent)
        points[agent] = np.array([[c["x1"], c["x2"]] for c in rows["config"]])
        values[agent] = transform(np.asarray(rows["value"], dtype=np.float64), "winsorise")
    draws = np.random.default_rng(seed)

    distances: list[float] = []
    uniform: list[float] = []
    errors: list[float] = []
    truths: list[float] = []
    for agent in agents:
        found = _points(_float(sent[agent, NUM_ROUNDS]["gram"]), features, len(points[agent]))
        near = np.linalg.norm(points[agent][:, None] - found[None], axis=2)
        distances += near.min(axis=1).tolist()
        uniform += _guessed(points[agent], draws)
        moment = _float(sent[agent, NUM_ROUNDS]["moment"])
        recovered = np.linalg.lstsq(features(found).T, moment, rcond=1e-9)[0]
        errors += (recovered[near.argmin(axis=1)] - values[agent]).tolist()
        truths += values[agent].tolist()
    side, own = "side of the square", "as many uniform points"
    yield AttackResult(
        "FedEI: points, from an agent's part in the clear",
        rms(distances),
        rms(uniform),
        side,
        len(distances),
        own,
    )
    yield AttackResult(
        "FedEI: values at the points that were found", rms(errors), float(np.std(truths)),
        "s.d. of the agent's values", len(errors), "the mean of the values",
    )  # fmt: skip

    last, before = (
        np.sum([_float(sent[agent, number]["gram"]) for agent in agents], axis=0)
        for number in (NUM_ROUNDS, NUM_ROUNDS - 1)
    )
    everything = np.concatenate([points[agent] for agent in agents])
    newest = np.array([points[agent][-1] for agent in agents])
    for what, gram, truth in (
        ("all points of all agents, from a total", last, everything),
        ("the points of one round, from the difference of two totals", last - before, newest),
    ):
        found = _points(gram, features, len(truth))
        near = np.linalg.norm(truth[:, None] - found[None], axis=2).min(axis=1)
        guess = _guessed(truth, draws)
        yield AttackResult(f"FedEI, secure sums: {what}", rms(near), rms(guess), side, len(truth), own)

    best = [
        float(np.linalg.norm(_float(sent[a, NUM_ROUNDS]["point"]) - points[a], axis=1).min()) for a in agents
    ]
    uniform = [float(np.linalg.norm(draws.random(2) - points[a][int(values[a].argmax())])) for a in agents]
    yield AttackResult(
        "FedEI: the best point, which it sends with consent", rms(best), rms(uniform), side, len(best),
        "a uniform point",
    )  # fmt: skip

    for multiplier in MULTIPLIERS:
        yield _noisy(multiplier, seed)


def _noisy(multiplier: float, seed: int) -> AttackResult:
    """Attack the newest point of each agent by one that knows all others, through its noise."""
    problem = make_problem("f1", NUM_AGENTS, seed, {})
    grid = TappedGrid(client_app(problem, problem.space, seed=seed, disclose="trials"), NUM_AGENTS)
    study = FedEI(num_agents=NUM_AGENTS, seed=seed, secure_sums=0, tilt=0.0, noise_multiplier=multiplier)
    trials = study.start(grid, num_rounds=NUM_ROUNDS).study.trials
    shared = next(o.arrays for o in grid.heard.tasks if "frequencies" in o.arrays)
    features = rff.RandomFeatures(_float(shared["frequencies"]), _float(shared["phases"]))
    guesses = np.random.default_rng(seed).random((4096, 2))
    found, uniform = [], []
    for sent in grid.heard.reports:
        if sent.round != NUM_ROUNDS or "moment" not in sent.arrays:
            continue
        rows = trials.where(agent=sent.agent)
        points = np.array([[c["x1"], c["x2"]] for c in rows["config"]])
        values = transform(np.asarray(rows["value"], dtype=np.float64), "winsorise")
        rest = len(points) * _float(sent.arrays["moment"]) - features(points[:-1]).T @ values[:-1]
        best = guesses[int(np.argmax(np.sign(values[-1]) * (features(guesses) @ rest)))]
        found.append(float(np.linalg.norm(best - points[-1])))
        uniform.append(float(np.linalg.norm(guesses - points[-1], axis=1).mean()))
    return AttackResult(
        f"FedEI, noise {multiplier:g} of its own: an agent's newest point, from its part",
        rms(found), rms(uniform), "side of the square", len(found), "a uniform point",
    )  # fmt: skip


def _points(gram: Array, features: rff.RandomFeatures, count: int) -> Array:
    """Return the points found from an upper triangle of `Phi^T Phi`."""
    matrix = unpack(gram, features.num_features) + JITTER * np.eye(features.num_features)
    return observed_points(_float(np.linalg.inv(matrix)), JITTER, features, count)


def _guessed(points: Array, draws: np.random.Generator) -> Sequence[float]:
    """Return the distance of each point to the nearest of as many uniform points."""
    guess = draws.random(points.shape)
    return np.linalg.norm(points[:, None] - guess[None], axis=2).min(axis=1).tolist()  # type: ignore[no-any-return]


def _float(array: AnyArray) -> Array:
    return np.asarray(array, dtype=np.float64)
