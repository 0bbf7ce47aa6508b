"""Attack the noise of DP-FTS: draw it again, from a second answer of the agent or from the study's files.

Local noise. A server asks an agent twice for the same trial. If the noise comes from a generator that the
agent seeds by the trial, both answers hold the same draws. A second request with features that make the
message 0 then gives the noise, and the first answer gives the message.

Central noise. The study's files hold the strategy's seed. Who sees a released sum draws the server's noise
again from that seed and subtracts it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fbo_flower.algorithms import DPFTS
from fbo_flower.algorithms.records import AgentState, Array, Phase, Task, Trials, floats
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.numerics.discrete_noise import Uniform, add_noise, grid_step, uniform_from
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import rff
from fbo_flower.simulation.problems import make_problem
from studies.attacks.harness import AttackResult, compared, overhear, rms

NUM_MESSAGES, NUM_OBSERVATIONS = 20, 8
NUM_AGENTS, NUM_ROUNDS = 8, 12
MULTIPLIER = 1.0


def attack(seed: int) -> Iterator[AttackResult]:
    """Attack local noise and central noise, each drawn from a seed and from the operating system."""
    yield _local_noise("from the seed of a simulated agent", False, seed)
    yield _local_noise("from the device", True, seed)
    for name, server_seed in (("with a seed", seed), ("without a seed", None)):
        sums, noise, rebuilt = central_noise(server_seed, seed)
        text = f"DP-FTS, central noise, strategy {name}: sums before noise, from the study's files"
        errors, guess = (noise - rebuilt) / rms(sums), noise / rms(sums)
        yield compared(text, errors, guess, "r.m.s. of sums", "the released sums")


# -- local noise: the same trial asked for twice ---------------------------------------------------


def _local_noise(name: str, device: bool, seed: int) -> AttackResult:
    """Ask agents for a message in the shared features, then in features in which it is 0."""
    algorithm = DPFTS(noise="local", noise_multiplier=MULTIPLIER)
    uniform = secrets.randbelow if device else None
    errors, messages = [], []
    for number in range(NUM_MESSAGES):
        state, task = _agent(seed, number, algorithm.num_features)
        phases = np.full(algorithm.num_features, np.pi / 2)
        nothing = {"frequencies": np.zeros_like(task.arrays["frequencies"]), "phases": phases}
        clear = replace(algorithm, noise_multiplier=0.0)
        message = _answer(clear, task, state, number, uniform)
        first = _answer(algorithm, task, state, number, uniform)
        errors.append(
            first - _answer(algorithm, replace(task, arrays=nothing), state, number, uniform) - message
        )
        messages.append(message)
    text = f"DP-FTS, local noise {name}: the message, from a request with frequencies 0"
    return compared(text, np.array(errors) / rms(np.array(messages)), 1.0, "r.m.s. of messages", "zeros")


def _agent(seed: int, number: int, num_features: int) -> tuple[AgentState, Task]:
    """Return an agent with random observations, and a task that asks it for a message only."""
    rng = generator(seed, "observations", number)
    points = rng.random((NUM_OBSERVATIONS, 2))
    values = np.sin(6 * points[:, 0] + number) + points[:, 1]
    features = rff.draw_features(num_features, np.full(2, 0.5), 2, generator(seed, "features"))
    arrays = {"frequencies": features.frequencies, "phases": features.phases}
    task = Task(Phase.TRAIN, 2, NUM_OBSERVATIONS, 0, arrays, {"message": True})
    space = make_problem("f1", 1, seed, {}).space  # two floats
    return AgentState(space, Trials(points, values, np.arange(NUM_OBSERVATIONS))), task


def _answer(algorithm: DPFTS, task: Task, state: AgentState, entropy: int, uniform: Uniform | None) -> Array:
    """Return the weights that an agent sends; without `uniform` it draws noise from its own seed."""

    def draws(purpose: str, *keys: int) -> np.random.Generator:
        return generator(entropy, "agent", "0", purpose, str(task.phase), *keys)

    def evaluates_nothing(query: Trials, first_trial: int) -> Trials:
        raise AssertionError("a task without trials")

    result = run_task(algorithm, task, state, evaluates_nothing, draws, uniform=uniform)
    return floats(result.report.arrays["weights"])


# -- central noise: the study's files --------------------------------------------------------------


def central_noise(server_seed: int | None, seed: int) -> tuple[Array, Array, Array]:
    """Run a study, and draw its central noise again from the seed in `study.json`.

    Returns sums before noise, the noise in the released ones, and the noise that was drawn, all `(n, M)`.
    """
    with TemporaryDirectory() as directory:
        heard = overhear(
            "gp-samples", DPFTS, NUM_ROUNDS, seed, num_agents=NUM_AGENTS,
            server_seed=server_seed, start={"journal": Path(directory) / "study.db"}, sampling_rate=1.0,
            schedule=0.0, noise_multiplier=MULTIPLIER, num_candidates=32, num_path_features=32,
        )  # fmt: skip
        heard.study.save(Path(directory))
        settings = json.loads((Path(directory) / "study.json").read_text(encoding="utf-8"))
    recorded = int(settings["runs"][0]["seed"])
    sent: dict[int, list[Array]] = {}
    for report in heard.sent("weights"):
        sent.setdefault(report.round, []).append(floats(report.arrays["weights"]))
    released = {o.round: floats(o.arrays["weights"])[0] for o in heard.told("weights")}
    rounds = sorted(released)
    sums = np.array([np.mean(sent[k - 1], axis=0) for k in rounds])  # one region, equal shares
    clip = float(heard.options["clip"])
    step, stddev = grid_step(clip, MULTIPLIER), MULTIPLIER * clip / NUM_AGENTS
    nothing = np.zeros(sums.shape[1], dtype=np.int64)
    rebuilt = [
        add_noise(nothing, stddev, step, uniform_from(generator(recorded, "server", "secret", "train", k)))
        for k in rounds
    ]
    return sums, np.array([released[k] for k in rounds]) - sums, np.array(rebuilt)
