"""Nothing grows with the number of a category's choices: not a model, its search, a message or a state."""

import tracemalloc

import pytest
from grouped import grouped

from fbo_flower import Categorical, Float, SearchSpace
from fbo_flower.simulation import simulate

CHOICES = 5000
PAIR = SearchSpace(
    {
        "part": Categorical(list(range(CHOICES))),
        "size": Float(0.0, 1.0, active_when={"part": list(range(0, CHOICES, 2))}),
        "maker": Categorical([f"maker {i}" for i in range(CHOICES)], {"part": list(range(1, CHOICES, 2))}),
    }
)


def score(config, agent):
    return config["part"] % 7 + config.get("size", 0.3) + len(config.get("maker", ""))


@pytest.mark.parametrize("name", ["fed-ei", "fts", "rgpe", "co-kg"])
def test_thousands_of_choices_cost_no_more_than_a_few(name):
    tracemalloc.start()
    try:
        study = simulate(
            score, PAIR, **grouped(agents=[0] * 3, algorithm=name, num_rounds=4, seed=0, engine="inline")
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100e6, "one array of 5000 x 5000 numbers has 200 MB"
    assert not any(row["failure"] for row in study.trials)
    assert max(row["floats_down"] + row["floats_up"] for row in study.rounds) < 5e5
