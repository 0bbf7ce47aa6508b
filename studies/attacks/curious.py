"""Attacks of a server that follows the protocol, keeps what it receives, and computes without limit.

- `fts`. In a foreign round the agent uses another agent's weights. The server knows these, and so roughly the
  point that the agent evaluated. The agent's next weights define a function whose value at that point is the
  standardised observation, up to the randomness of a posterior draw. All later weights are further draws.
- `posterior` (RGPE and TAF). `Sigma^-1` gives `Phi^T Phi = Sigma - sigma^2 I`, whose span is that of the
  features of the agent's points. The server looks for points whose features lie in that span. Given the
  points, `Sigma nu = Phi^T y` gives the standardised values.
- `pf_pne`. The server chose the cells, so it knows the points; the mean of one pull is the value.
- `consensus`, `fmtbo`. Designs and ranks tell points and optima. (`flora` sends sums of features, in which
  `attacks.fed_ei.first_sum` finds the points; `dp-vote` has a bound on what votes tell.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from scipy.optimize import minimize

from fbo_flower.algorithms import DPFTS, FTS, PFPNE, RGPE, TAF, Algorithm, FedPNE
from fbo_flower.algorithms.bandits.base import branching
from fbo_flower.algorithms.records import Array, floats
from fbo_flower.numerics.acquisition.feature_models import unpack_symmetric
from fbo_flower.numerics.bandits import partition
from fbo_flower.numerics.optim.functions import LinearFunction
from fbo_flower.numerics.optim.maximise import maximise
from fbo_flower.numerics.surrogates import rff
from fbo_flower.numerics.surrogates.transforms import standardise
from studies.attacks import noise
from studies.attacks.harness import (
    SQUARE,
    UNITS,
    AttackResult,
    Heard,
    beside,
    compared,
    lowest,
    mesh,
    overhear,
)
from studies.peers.consensus import Consensus
from studies.peers.fmtbo import FMTBO, public_points

NUM_INITIAL, MIN_DISTANCE = 3, 0.025  # of FTS: first trials, and the distance between an agent's points
SIDE = 101  # points per axis of the grid on which points are sought
NUM_ROUNDS = 10  # of the comparators
MEAN, UNIFORM = "the mean of the values", "a uniform point"


def _features(heard: Heard) -> rff.RandomFeatures:
    """Return the features that the agents of a study share."""
    shared = heard.told("frequencies")[0].arrays
    return rff.RandomFeatures(floats(shared["frequencies"]), floats(shared["phases"]))


# -- fts -------------------------------------------------------------------------------------------


def fts(seed: int) -> Iterator[AttackResult]:
    """Attack agents of FTS on the function f1, agents of DP-FTS with either noise, then the noise itself."""
    yield from _weights("FTS", FTS, seed)
    for kind in ("central", "local"):
        settings = {"noise": kind, "noise_multiplier": 1.0, "sampling_rate": 1.0}
        yield from _weights(f"DP-FTS, {kind} noise", DPFTS, seed, **settings)
    yield from noise.attack(seed)


def _weights(name: str, kind: type[Algorithm[Any]], seed: int, **options: Any) -> Iterator[AttackResult]:
    heard = overhear("f1", kind, 21, seed, **options)
    features, corners = _features(heard), mesh(41).transpose(1, 0, 2).reshape(-1, 2)
    distances, told, truths = (
        [],
        [],
        [],
    )  # the last two: from the next weights, and the mean over all later ones
    for agent in heard.agents:
        sent = {o.round: floats(o.arrays["weights"]) for o in heard.sent("weights", agent)}
        points, values, _ = heard.evaluated(agent)
        found: list[Array] = []
        for task in sorted(heard.told("weights", agent), key=lambda o: o.round):
            trial = NUM_INITIAL + task.round - 2
            followed = LinearFunction(features, np.atleast_2d(floats(task.arrays["weights"]))[0])
            seen = np.array(found).reshape(1, -1, 2)
            x = maximise([followed], corners[None], np.arange(2), avoid=seen, min_distance=MIN_DISTANCE)[0].x
            found.append(x)
            distances.append(heard.misses(x, points[trial]))
            if task.round in sent:
                later = [k for k in sorted(sent) if k >= task.round]
                values_there = [float(features(x[None])[0] @ sent[k]) for k in later]
                # each report standardises by the mean and deviation of the agent's values so far
                units = [float(standardise(values[: NUM_INITIAL + k - 1])[trial]) for k in later]
                told.append((values_there[0], np.mean(values_there)))
                truths.append((units[0], np.mean(units)))
    if name == "FTS":
        yield beside(f"{name}: points of foreign rounds", distances, SQUARE, UNIFORM)
    texts = ("values there, from the next weights", "the same, mean over all later weights")
    for text, read, truth in zip(texts, np.array(told).T, np.array(truths).T, strict=True):
        yield compared(f"{name}: {text}", read - truth, np.std(truth), UNITS, MEAN)


# -- RGPE and TAF ----------------------------------------------------------------------------------


def posterior(seed: int) -> Iterator[AttackResult]:
    """Attack four agents on the function f1 after a few rounds."""
    for kind in (RGPE, TAF):
        yield from _posteriors(kind, seed)


def _posteriors(kind: type[Algorithm[Any]], seed: int) -> Iterator[AttackResult]:
    heard = overhear("f1", kind, 6, seed)
    features, noise_variance = _features(heard), float(heard.options["message_noise_variance"])
    distances, uniform, errors, truths, best = [], [], [], [], []
    for agent in heard.agents:
        report = heard.sent("inverse", agent)[-1]
        points, observed, rounds = heard.evaluated(agent)
        points, values = points[rounds <= report.round], standardise(observed[rounds <= report.round])
        mean = floats(report.arrays["mean"])
        inverse = unpack_symmetric(floats(report.arrays["inverse"]), len(mean))
        found = observed_points(inverse, noise_variance, features, len(points))
        near = np.linalg.norm(points[:, None] - found[None], axis=2)
        distances += near.min(axis=1).tolist()
        guess = heard.draws.random((len(points), 2))
        uniform += np.linalg.norm(points[:, None] - guess[None], axis=2).min(axis=1).tolist()
        recovered = observed_values(mean, inverse, features(found))
        errors += (recovered[near.argmin(axis=1)] - values).tolist()
        truths += values.tolist()
        if "incumbent" in report.arrays:
            best.append(float(report.arrays["incumbent"][0]) - values.max())
    name, spread = kind.__name__, np.std(truths)
    text = f"{name}: points, from the uncertainty alone"
    yield compared(text, distances, uniform, SQUARE, "as many uniform points")
    yield compared(f"{name}: values at the points that were found", errors, spread, UNITS, MEAN)
    if best:
        yield compared(f"{name}: best value, which it sends", best, spread, UNITS, MEAN)


def observed_points(inverse: Array, noise_variance: float, features: rff.RandomFeatures, count: int) -> Array:
    """Return at most `count` points `(k, 2)` whose features are closest to the span of `Phi^T Phi`.

    `inverse` is `Sigma^-1 (M, M)`, and `count` the number of the agent's observations, below `M`.
    """
    gram = np.linalg.inv(inverse) - noise_variance * np.eye(len(inverse))  # Phi^T Phi
    span = np.linalg.eigh(gram)[1][:, -count:]

    def off(x: Array) -> Array:
        phi = features(np.clip(np.atleast_2d(x), 0.0, 1.0))
        left = phi - (phi @ span) @ span.T
        return np.asarray(np.log10(np.square(left).sum(axis=1) + 1e-18))

    grid, climb = mesh(SIDE), cast(Any, minimize)  # its stubs lack these options
    polished = [
        climb(lambda x: float(off(x)[0]), start, method="Nelder-Mead", options={"xatol": 1e-7})
        for start in grid[lowest(off(grid.reshape(-1, 2)).reshape(SIDE, SIDE))]
    ]
    found: list[Array] = []
    for place in np.argsort([p.fun for p in polished]):
        x = np.clip(polished[place].x, 0.0, 1.0)
        if len(found) < count and all(np.abs(x - other).max() > 1e-4 for other in found):
            found.append(x)
    return np.array(found)


def observed_values(mean: Array, inverse: Array, phi: Array) -> Array:
    """Return the standardised values at known points, from `Sigma nu = Phi^T y`; `phi (n, M)`."""
    return np.asarray(np.linalg.lstsq(phi.T, np.linalg.solve(inverse, mean), rcond=1e-9)[0])


# -- PF-PNE ----------------------------------------------------------------------------------------


def pf_pne(seed: int) -> Iterator[AttackResult]:
    """Attack four agents of PF-PNE and of Fed-PNE on the function `garland`."""
    for kind in (PFPNE, FedPNE):
        yield from _means(kind, seed)


def _means(kind: type[Algorithm[Any]], seed: int) -> Iterator[AttackResult]:
    """Yield the error of the reported means against each agent's values at the centres of the cells."""
    heard = overhear("garland", kind, None, seed, budget=100)
    space, tasks = heard.problem.space, {(o.agent, o.round): o for o in heard.told("cells")}
    arity = branching(str(heard.options["arity"]), space.dimension)
    own: dict[tuple[str, bytes], list[tuple[int, float]]] = {}
    for row in heard.study.trials:
        place = space.encode(row["config"]).round(12).tobytes()
        own.setdefault((row["agent"], place), []).append((row["pulls"], row["value"]))
    errors: dict[bool, list[float]] = {True: [], False: []}
    for report in heard.sent("means"):
        task = tasks.get((report.agent, report.round))
        if task is None:
            continue
        depth = int(task.values["depth"])
        cells = np.asarray(task.arrays["cells"], dtype=np.int64)
        centres = space.snap(partition.centre(depth, cells, space.dimension, arity))
        for centre, mean, count in zip(centres, report.arrays["means"], report.arrays["counts"], strict=True):
            seen = own.get((report.agent, centre.round(12).tobytes()), [])
            pulled = sum(pulls for pulls, _ in seen)
            if int(count) > 0 and pulled == int(count):
                truth = sum(pulls * value for pulls, value in seen) / pulled
                errors[int(count) == 1].append(float(mean) - truth)
    for single, text in ((True, "values in cells of one pull"), (False, "means of cells of several pulls")):
        if errors[single]:
            what, how = f"{kind.__name__}: {text}, at known points", "the mean of all values"
            yield compared(what, errors[single], heard.spread, "the objective's own", how)


# -- comparators -----------------------------------------------------------------------------------


def consensus(seed: int) -> Iterator[AttackResult]:
    """Attack four agents on the function f1: the points that they evaluate, and their best points."""
    heard = overhear("f1", Consensus, NUM_ROUNDS, seed)
    told = {(o.agent, o.round + 1): o.arrays["design"] for o in heard.sent("design")}
    told |= {(o.agent, o.round): o.arrays["design"] for o in heard.told("design")}
    each, best = [], []
    for agent in heard.agents:
        points, values, rounds = heard.evaluated(agent)
        known = [((agent, number), x) for x, number in zip(points, rounds.tolist(), strict=True)]
        each += [heard.misses(floats(told[key]), x) for key, x in known if key in told]
        best.append(heard.misses(floats(told[agent, NUM_ROUNDS + 1]), points[int(np.argmax(values))]))
    text = "Consensus: the points it evaluates, from the designs that are exchanged"
    yield beside(text, each, SQUARE, UNIFORM)
    text = "Consensus: its best point, from the last design"
    yield beside(text, best, SQUARE, UNIFORM)


def fmtbo(seed: int) -> Iterator[AttackResult]:
    """Attack four agents on the function f1: their best points, from the ranks of public points."""
    heard = overhear("f1", FMTBO, NUM_ROUNDS, seed)
    public_seed = int(heard.tasks[0].values["seed"])
    ranks = {o.agent: np.asarray(o.arrays["ranks"]) for o in heard.sent("ranks")}
    public = public_points(heard.problem.space, len(ranks["0"]), public_seed)
    best = []
    for agent in heard.agents:
        points, values, _ = heard.evaluated(agent)
        best.append(heard.misses(public[int(np.argmax(ranks[agent]))], points[int(np.argmax(values))]))
    text = "FMTBO: its best point, from the ranks of public points"
    yield beside(text, best, SQUARE, UNIFORM)
