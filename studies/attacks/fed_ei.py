"""Attack fed-ei: points and values from an agent's part of the sums, from totals, and from their differences.

`Phi^T Phi` of `n < M` points determines the span of their features; `posterior.observed_points` looks for the
points whose features lie in it. Given the points, `Phi^T y` is linear in the standardised values.

With secure sums the server sees totals only. The total over many points spans nearly all smooth functions, so
single points cannot be told from it. But the difference of the totals of two rounds holds only the points of
one round, one of each agent: the server can look for these, though not say whose they are. If an agent is in
one total and not in the next, their difference is all of its points minus the newest ones of the others, and
its pseudoinverse tells which is which. So members sum with the same partners only (`secure_member`).
`silent_agent` plays this against them, and against the totals that members would give without this rule.

The first total of agents with a point each needs no difference: `first_sum` fits the points to it.

With noise (`noise_multiplier`) an agent sends `Phi^T y / t` only. The attacker here knows all of the agent's
points and values but its newest point, subtracts them, and looks for the point whose features the rest are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import least_squares, nnls

from fbo_flower import algorithms
from fbo_flower.algorithms.records import AnyArray, Array
from fbo_flower.clients import client_app
from fbo_flower.numerics.surrogates import rff
from fbo_flower.numerics.surrogates.transforms import transform
from fbo_flower.numerics.surrogates.trend import unpack
from fbo_flower.simulation import Fault
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import FedEI, TuningStrategy
from studies.attacks.posterior import observed_points
from studies.attacks.records import AttackResult, TappedGrid, rms

NUM_AGENTS = 4
NUM_ROUNDS = 6
FIRST_AGENTS = 16  # of `first_sum`, with a point each
RESTARTS = 10
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
    yield from silent_agent(seed)
    yield from first_sum(features, seed)


def first_sum(features: rff.RandomFeatures, seed: int) -> Iterator[AttackResult]:
    """Look for the points and values of agents with an observation each, from one honest total.

    A fit with weights of 0 or more on a mesh tells where points are; least squares moves them until the
    total is met. The points and values are uniform and normal: those of an agent's initial design.
    """
    draws, upper = np.random.default_rng(seed), np.triu_indices(features.num_features)
    points, values = draws.random((FIRST_AGENTS, 2)), draws.standard_normal(FIRST_AGENTS)
    axis = np.linspace(0.0, 1.0, 41)
    mesh = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)

    def products(x: Array) -> Array:  # one row per point, the upper triangle of phi phi^T
        phi = features(x)
        return np.asarray(phi[:, upper[0]] * phi[:, upper[1]])

    on_mesh = products(mesh)
    _, sizes, rows = np.linalg.svd(on_mesh, full_matrices=False)
    base = rows[sizes > 1e-9 * sizes[0]]
    total = base @ products(points).sum(axis=0)
    left, start = nnls(base @ on_mesh.T, total)[0], list[Array]()
    while len(start) < FIRST_AGENTS:
        near = np.linalg.norm(mesh - mesh[left.argmax()], axis=1) < 0.06
        mass = left[near].sum()
        middle = left[near] @ mesh[near] / mass if mass > 0.3 else draws.random(2)
        start += max(1, round(mass)) * [middle]
        left[near] = 0.0

    def misses(x: Array) -> Array:
        return np.asarray(base @ products(x.reshape(-1, 2)).sum(axis=0) - total)

    found, cost = np.array(start[:FIRST_AGENTS]) + draws.normal(0.0, 0.005, (FIRST_AGENTS, 2)), np.inf
    for _ in range(RESTARTS):
        first = np.clip(found if cost == np.inf else found + draws.normal(0.0, 0.03, found.shape), 0.0, 1.0)
        fit = least_squares(
            misses, first.ravel(), bounds=(0.0, 1.0), xtol=1e-14, ftol=1e-14, gtol=1e-14, max_nfev=60,
        )  # fmt: skip
        if fit.cost < cost:
            found, cost = fit.x.reshape(-1, 2), fit.cost
        if cost < 1e-20:
            break
    distances = np.linalg.norm(points[:, None] - found, axis=2)
    recovered = np.linalg.lstsq(features(found).T, features(points).T @ values, rcond=None)[0]
    what = f"FedEI, secure sums: {FIRST_AGENTS} agents with a point each, from one total:"
    yield AttackResult(
        f"{what} points", rms(distances.min(axis=1)), rms(_guessed(points, draws)),
        "side of the square", FIRST_AGENTS, "as many uniform points",
    )  # fmt: skip
    yield AttackResult(
        f"{what} values, without a name", rms(recovered[distances.argmin(axis=1)] - values),
        float(values.std()), "s.d. of the values", FIRST_AGENTS, "the mean of the values",
    )  # fmt: skip


_TOTALS: list[tuple[tuple[str, ...], Array]] = []  # members and Gram matrix of every sum that was revealed


@dataclass(frozen=True, kw_only=True)
class _Curious(algorithms.FedEI):
    """A server of fed-ei that keeps every total."""

    def aggregate_sum(self, state: Any, agents: Sequence[str], sums: Mapping[str, Array]) -> Any:
        _TOTALS.append((tuple(agents), sums["gram"]))
        return super().aggregate_sum(state, agents, sums)


class _CuriousServer(TuningStrategy):
    algorithm_class = _Curious


def silent_agent(seed: int) -> Iterator[AttackResult]:
    """Look for the points of an agent that is silent in the last round, from totals with it and without."""
    problem = make_problem("f1", NUM_AGENTS, seed, {})
    app = client_app(problem, problem.space, seed=seed, disclose="trials")
    draws, victim = np.random.default_rng(seed), "0"
    for rules in ("earlier", "present"):
        _TOTALS.clear()
        faults = {int(victim): Fault("silent", rounds=[NUM_ROUNDS])}
        grid = TappedGrid(app, NUM_AGENTS, faults=faults)
        sums = 3 if rules == "present" else 0
        server = _CuriousServer(num_agents=NUM_AGENTS, seed=seed, round_timeout=0.5, secure_sums=sums)
        study = server.start(grid, num_rounds=NUM_ROUNDS).study
        rows = study.trials.where(agent=victim)
        points = np.array([[c["x1"], c["x2"]] for c in rows["config"]])
        shared = next(o.arrays for o in grid.heard.tasks if "frequencies" in o.arrays)
        features = rff.RandomFeatures(_float(shared["frequencies"]), _float(shared["phases"]))
        totals = list(_TOTALS)
        if rules == "earlier":  # members gave a total over whoever was there
            sent = {
                (o.agent, o.round): _float(o.arrays["gram"]) for o in grid.heard.reports if "gram" in o.arrays
            }
            for number in (NUM_ROUNDS - 1, NUM_ROUNDS):
                there = tuple(agent for agent, of in sent if of == number)
                totals.append((there, np.sum([sent[agent, number] for agent in there], axis=0)))
        guess = _guessed(points, draws)
        pairs = [(a, b) for a, b in pairwise(totals) if victim in a[0] and victim not in b[0]]
        found = np.empty((0, 2))
        for (_, with_it), (others, without) in pairs:
            found = _points(with_it - without, features, len(points) + len(others), signed=True)
        near = np.linalg.norm(points[:, None] - found[None], axis=2).min(axis=1) if len(found) else guess
        yield AttackResult(
            f"FedEI, secure sums: an agent's points, from a total without it, {rules} rules", rms(near),
            rms(guess), "side of the square", len(points), "as many uniform points",
        )  # fmt: skip


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


def _points(gram: Array, features: rff.RandomFeatures, count: int, signed: bool = False) -> Array:
    """Return the points found from an upper triangle of `Phi^T Phi`.

    Parameters
    ----------
    signed : whether it is the difference of two such matrices; then the points of the first are returned
    """
    matrix = unpack(gram, features.num_features)
    levels, vectors = np.linalg.eigh(matrix)
    span = (vectors * np.abs(levels)) @ vectors.T + JITTER * np.eye(features.num_features)
    found = observed_points(_float(np.linalg.inv(span)), JITTER, features, count)
    if not signed or not len(found):
        return found
    phi = features(found)
    weights = np.sum((phi @ np.linalg.pinv(matrix, rcond=1e-9)) * phi, axis=1)  # 1, or -1 in the second
    first: Array = found[weights > 0.0]
    return first


def _guessed(points: Array, draws: np.random.Generator) -> Sequence[float]:
    """Return the distance of each point to the nearest of as many uniform points."""
    guess = draws.random(points.shape)
    return np.linalg.norm(points[:, None] - guess[None], axis=2).min(axis=1).tolist()  # type: ignore[no-any-return]


def _float(array: AnyArray) -> Array:
    return np.asarray(array, dtype=np.float64)
