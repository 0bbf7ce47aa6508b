"""Attack FTS: repeat the agent's maximisation to get its point, and read the value off its next weights.

In a foreign round the agent uses another agent's weights. The server knows these, and so roughly the point
that the agent evaluated. The agent's next weights define a function whose value at that point is the
standardised observation, up to the randomness of a posterior draw. All later weights are further draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fbo_flower.algorithms.records import Array, floats
from fbo_flower.numerics.optim.functions import LinearFunction
from fbo_flower.numerics.optim.maximise import maximise
from fbo_flower.numerics.surrogates import rff
from fbo_flower.numerics.surrogates.transforms import standardise
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import DPFTS, FTS, TuningStrategy
from studies.attacks.noise import attack as noise_attack
from studies.attacks.records import SQUARE, UNITS, AttackResult, compared, evaluated, overhear

NUM_AGENTS = 4
NUM_ROUNDS = 21
NUM_INITIAL = 3
MIN_DISTANCE = 0.025  # the agents' default distance between their points


def attack(seed: int) -> Iterator[AttackResult]:
    """Attack agents of FTS on the function f1, agents of DP-FTS with either noise, then the noise itself."""
    yield from _findings("FTS", FTS(num_agents=NUM_AGENTS, seed=seed), seed)
    settings: dict[str, Any] = {"num_agents": NUM_AGENTS, "seed": seed, "sampling_rate": 1.0}
    for noise in ("central", "local"):
        server = DPFTS(noise=noise, noise_multiplier=1.0, **settings)
        yield from _findings(f"DP-FTS, {noise} noise", server, seed)
    yield from noise_attack(seed)


def _findings(name: str, server: TuningStrategy, seed: int) -> Iterator[AttackResult]:
    problem = make_problem("f1", NUM_AGENTS, seed, {})
    study, heard = overhear(problem, server, NUM_ROUNDS, seed)
    corners = np.stack(np.meshgrid(*[np.linspace(0, 1, 41)] * 2), axis=-1).reshape(-1, 2)
    distances, uniform, single, averaged, truths, later_truths = [], [], [], [], [], []
    draws = np.random.default_rng(seed)
    for agent in map(str, range(NUM_AGENTS)):
        tasks = {o.round: o.arrays for o in heard.tasks if o.agent == agent}
        sent = {o.round: floats(o.arrays["weights"]) for o in heard.sent("weights", agent)}
        shared = next(t for t in tasks.values() if "frequencies" in t)
        features = rff.RandomFeatures(floats(shared["frequencies"]), floats(shared["phases"]))
        points, values, _ = evaluated(study, agent)
        found: list[Array] = []
        for number, task in sorted(tasks.items()):
            if "weights" not in task:
                continue
            trial = NUM_INITIAL + number - 2
            followed = LinearFunction(features, np.atleast_2d(floats(task["weights"]))[0])
            avoid = np.array(found).reshape(-1, 2)
            axes, seen = np.arange(2), avoid[None]
            x = maximise([followed], corners[None], axes, avoid=seen, min_distance=MIN_DISTANCE)[0].x
            found.append(x)
            distances.append(float(np.linalg.norm(x - points[trial])))
            uniform.append(float(np.linalg.norm(draws.random(2) - points[trial])))
            at = features(x[None])[0]
            if number not in sent:
                continue
            later = [k for k in sorted(sent) if k >= number]
            single.append(float(at @ sent[number]))
            averaged.append(float(np.mean([at @ sent[k] for k in later])))
            # each report standardises by the mean and deviation of the agent's values so far
            units = [float(standardise(values[: NUM_INITIAL + k - 1])[trial]) for k in later]
            truths.append(units[0])
            later_truths.append(float(np.mean(units)))
    if name == "FTS":
        text = f"{name}: points of foreign rounds"
        yield compared(text, distances, uniform, SQUARE, "a uniform point")
    for text, told, truth in (
        ("values there, from the next weights", single, truths),
        ("the same, mean over all later weights", averaged, later_truths),
    ):
        errors = np.subtract(told, truth)
        yield compared(f"{name}: {text}", errors, np.std(truth), UNITS, "the mean of the values")
