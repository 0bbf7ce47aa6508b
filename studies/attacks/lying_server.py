"""Attack agents with well-formed messages that no honest server sends: repeated questions and decoy studies.

Every attack is played twice: against an agent as it is, and as a control against one that forgets, because
its journal is put back to an earlier copy after every answer.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict

from fbo_flower import wire
from fbo_flower.algorithms import DPFTS, Algorithm, RandomSearch
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import Array, Phase, Task, floats
from fbo_flower.clients import TuningAgent, agent_state_from_bytes
from fbo_flower.errors import FBOError
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import rff
from fbo_flower.space import Float, SearchSpace
from fbo_flower.storage import AgentJournal
from studies.attacks.harness import AttackResult, compared

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
ALGORITHM = DPFTS(noise="local", sampling_rate=1.0, num_initial=3, num_candidates=64, num_path_features=32)
NUM_REQUESTS = 50
MAX_TRIALS, NUM_DECOYS = 5, 40
_AGENT, _STUDY = "0", "study"

Ask = Callable[[wire.Packed], wire.Packed]


def attack(seed: int) -> Iterator[AttackResult]:
    """Ask for one noisy message many times, and for evaluations under many studies."""
    with TemporaryDirectory() as directory:
        for forgets in (False, True):
            agent = "an agent that forgets (control)" if forgets else "an agent with a journal"
            yield _average(Path(directory) / f"average-{forgets}.db", agent, forgets, seed)
            yield _decoys(Path(directory) / f"decoys-{forgets}.db", agent, forgets)


def _average(path: Path, agent: str, forgets: bool, seed: int) -> AttackResult:
    """Ask for the message of one trial under changing values, and average the answers."""
    features = rff.draw_features(ALGORITHM.num_features, 0.5, SPACE.dimension, generator(seed, "features"))
    arrays = {"frequencies": features.frequencies, "phases": features.phases}
    _device(path).answer(_message(ALGORITHM, Task(Phase.TRAIN, 1, 0, 3)))
    answers: list[Array] = []
    for ask in _devices(path, forgets, NUM_REQUESTS):
        task = Task(Phase.TRAIN, 2, 3, 1, arrays, {"message": True, "region": len(answers)})
        with suppress(FBOError):
            answers.append(floats(ask(_message(ALGORITHM, task)).arrays["weights"]))
    truth = _own_message(path, task)
    noise = 2.0 * ALGORITHM.clip * ALGORITHM.noise_multiplier  # 2 C z, with one region
    errors = (np.mean(answers, axis=0) - truth) / noise
    what = f"a message with local noise, mean of {len(answers)} answers to {NUM_REQUESTS} requests"
    return compared(f"{agent}: {what}", errors, 1.0, "s.d. of the noise", "one answer to an honest server")


def _decoys(path: Path, agent: str, forgets: bool) -> AttackResult:
    """Ask for evaluations under ever new studies; count those beyond the operator's limit."""
    calls = [0]
    _device(path, calls, max_trials=MAX_TRIALS)
    for i, ask in enumerate(_devices(path, forgets, NUM_DECOYS, calls, max_trials=MAX_TRIALS)):
        with suppress(FBOError):
            ask(_message(RandomSearch(), Task(Phase.TRAIN, 1, 0, 1), f"decoy {i}"))
    return AttackResult(
        f"{agent}: evaluations beyond max_trials = {MAX_TRIALS}, by {NUM_DECOYS} studies",
        float(max(0, calls[0] - MAX_TRIALS)), 0.0, "evaluations", NUM_DECOYS, "an honest server",
    )  # fmt: skip


def _devices(
    path: Path, forgets: bool, number: int, calls: list[int] | None = None, **config: Any
) -> Iterator[Ask]:
    """Yield the agent that answers each request; one that forgets begins with its earlier journal again."""
    earlier = path.with_suffix(".earlier")
    if path.exists():
        shutil.copy(path, earlier)
    for _ in range(number):
        if forgets:
            path.unlink(missing_ok=True)
            if earlier.exists():
                shutil.copy(earlier, path)
        yield _device(path, calls, **config).answer


def _device(path: Path, calls: list[int] | None = None, **config: Any) -> TuningAgent:
    context = Context(1, 2, {"agent": _AGENT, "journal": str(path), **config}, RecordDict(), {})
    return TuningAgent(partial(_objective, calls), SPACE, context)


def _objective(calls: list[int] | None, config: dict[str, Any], context: object) -> float:
    if calls is not None:
        calls[0] += 1
    return -((float(config["x"]) - 0.3) ** 2) - float(config["y"]) ** 2


def _message(algorithm: Algorithm[Any], task: Task, study: str = _STUDY) -> wire.Packed:
    options = canonical_json(algorithm.options())
    return wire.encode_task(task, wire.Envelope(study, _AGENT, SPACE.digest, algorithm.name, options))


def _own_message(path: Path, task: Task) -> Array:
    """Return the message without noise, from the journal: the truth that the attack is compared with."""
    with AgentJournal(path, _AGENT) as journal:
        stored = journal.study(_STUDY)
        assert stored is not None
        agent_state = agent_state_from_bytes(stored.state, SPACE)
    return floats(ALGORITHM.summarise(task, agent_state, lambda: generator(0)).arrays["weights"])
