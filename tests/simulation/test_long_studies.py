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

NUM_AGENTS = 8


@pytest.mark.parametrize(
    ("algorithm", "options", "most", "last"),
    [
        ("random", {}, 400, 44),  # 136 of the observation, 60 of the round's row, the rest of single objects
        ("fts", {"num_candidates": 64}, 600, 44),  # and two tables of index pairs, which all agents share
        pytest.param("fed-ei", {"num_candidates": 64, "secure_sums": 0}, 900, 32, marks=slow),
    ],
)
def test_a_round_adds_hardly_more_than_its_observations(
    algorithm: str, options: dict[str, object], most: int, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # pytest keeps every line
    held: dict[int, int] = {}
    first = 24 if last > 40 else 20

    def on_round(progress: RoundProgress) -> None:
        if progress.server_round in (first, last):
            gc.collect()
            held[progress.server_round] = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        simulate(
            "garland",
            agents=NUM_AGENTS,
            algorithm=make_algorithm(algorithm, options),
            num_rounds=last,
            engine="inline",
            callbacks=[on_round],
        )
    finally:
        tracemalloc.stop()
    assert held[last] - held[first] < most * NUM_AGENTS * (last - first)
