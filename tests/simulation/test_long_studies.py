"""Memory of long studies: from round to round hardly more than the observations themselves is kept."""

from __future__ import annotations

import gc
import logging
import tracemalloc

import pytest
from amounts import slow

from fbo_flower.algorithms import make_algorithm
from fbo_flower.simulation import simulate
from fbo_flower.strategies import RoundProgress

NUM_AGENTS, FIRST, LAST = 8, 10, 20


@pytest.mark.parametrize(
    ("algorithm", "options", "most"),
    [
        ("random", {}, 400),  # 136 of the observation, 60 of the round's row, the rest of single objects
        ("fts", {"num_candidates": 64}, 600),  # and two tables of index pairs, which all agents share
        pytest.param("fed-ei", {"num_candidates": 64, "secure_sums": 0}, 900, marks=slow),
    ],
)
def test_a_round_adds_hardly_more_than_its_observations(
    algorithm: str, options: dict[str, object], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # pytest keeps every line
    held: dict[int, int] = {}

    def on_round(progress: RoundProgress) -> None:
        if progress.server_round in (FIRST, LAST):
            gc.collect()
            held[progress.server_round] = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        simulate(
            "garland",
            agents=NUM_AGENTS,
            algorithm=make_algorithm(algorithm, options),
            num_rounds=LAST,
            engine="inline",
            callbacks=[on_round],
        )
    finally:
        tracemalloc.stop()
    assert held[LAST] - held[FIRST] < most * NUM_AGENTS * (LAST - FIRST)
