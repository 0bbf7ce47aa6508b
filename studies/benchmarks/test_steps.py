"""Measure one agent step and one server step of every algorithm, by pytest-benchmark.

    pytest studies/benchmarks/test_steps.py --benchmark-timer=time.process_time

An agent step is all that an agent does for one message with a free objective: decode, check,
propose, evaluate, learn, summarise, remember, encode. A bandit makes 100 pulls in it. A server step is `ask`
and `tell`. `FBO_BENCH_QUICK=1` measures fewer sizes, `FBO_BENCH_ALGORITHM=fts` a single algorithm.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from fbo_flower.algorithms import ALGORITHMS
from fbo_flower.algorithms.rfms.state import Method
from fbo_flower.errors import FBOError
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation.problems import make_learner
from studies.benchmarks.replay import Scene, scene
from studies.benchmarks.rfms_proposal import state as rfms_state

pytest.importorskip("pytest_benchmark")

QUICK = bool(os.environ.get("FBO_BENCH_QUICK"))
HISTORIES = (10, 30) if QUICK else (10, 20, 40, 80)
DIMENSIONS = (1, 2, 4, 8)
FEW = ("rgpe", "taf", "co-kg", "hct", "local-pne", "fed1-ucb", "fn-ucb")  # no thousand agents in this time
ASKED = os.environ.get("FBO_BENCH_ALGORITHM", "")
NAMES = [name for name in ALGORITHMS if ASKED in {"", name} and name != "rfms"]  # its agents train models


def sizes(algorithm: str) -> list[tuple[int, int, int]]:
    """Return history length, dimension and number of agents, one of them varied at a time."""
    found = [(history, 2, 4) for history in HISTORIES]
    if QUICK:
        return found
    counts = (4, 16, 64) if algorithm in FEW else (4, 16, 64, 256)
    found += [(20, dimension, 4) for dimension in DIMENSIONS]
    found += [(10, 2, agents) for agents in counts]
    return sorted(set(found))


CASES = [(name, *size) for name in NAMES for size in sizes(name)]
_scene = lru_cache(maxsize=1)(scene)


def _made(case: tuple[str, int, int, int]) -> Scene:
    try:
        with single_thread():
            return _scene(*case)
    except FBOError as error:
        pytest.skip(str(error)[:100])


def _measure(benchmark: Any, steps: Callable[[], list[Callable[[], object]]], case: tuple[Any, ...]) -> None:
    with single_thread():
        for step in steps():  # imports and fills caches before the measurement
            step()
        waiting = steps() + steps()
        benchmark.extra_info.update(zip(("algorithm", "history", "dimension", "agents"), case, strict=True))
        benchmark.pedantic(
            lambda step: step(), setup=lambda: ((waiting.pop(),), {}), rounds=len(waiting), iterations=1
        )


@pytest.mark.parametrize("side", ["agent", "server"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_step(benchmark: Any, case: tuple[str, int, int, int], side: str) -> None:
    made = _made(case)
    benchmark.extra_info["side"] = side
    _measure(benchmark, made.agent_steps if side == "agent" else made.server_steps, case)


@pytest.mark.skipif(ASKED not in {"", "co-kg"}, reason="another algorithm was asked for")
@pytest.mark.parametrize("side", ["agent", "server"])
@pytest.mark.parametrize("mesh", (10, 14) if QUICK else (10, 14, 20, 28))
def test_step_by_mesh(benchmark: Any, mesh: int, side: str) -> None:
    made = _scene("co-kg", 10, 2, 4, mesh)
    benchmark.extra_info.update(side=side, points=mesh**2)
    _measure(benchmark, made.agent_steps if side == "agent" else made.server_steps, ("co-kg", 10, 2, 4))


@pytest.mark.skipif(ASKED not in {"", "rfms"}, reason="another algorithm was asked for")
@pytest.mark.parametrize("trials", (20, 40) if QUICK else (20, 40, 60))
def test_proposal_of_rfms(benchmark: Any, trials: int) -> None:
    space = make_learner("svm", False).space
    benchmark.extra_info["side"] = "server"

    def steps() -> list[Callable[[], object]]:
        def step(number: int) -> Callable[[], object]:
            seen = rfms_state(space, generator(number, "state"), trials)
            return lambda: Method("fso", 0.5).propose(seen, generator(number, "propose"))

        return [step(number) for number in range(8)]

    _measure(benchmark, steps, ("rfms", trials, space.dimension, 4))
