"""`stop_when`: agents end their search when nothing is left to gain, and the study goes on without them."""

import math
from typing import Any

import pytest

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import make_algorithm
from fbo_flower.simulation import Keep, simulate

LINE = SearchSpace({"x": Float(0, 1)})
STEEP = {"easy": 0.0, "hard": 40.0, "easier": 0.0}


def wave(config, steep):
    """A bowl, or one with many waves."""
    return -((config["x"] - 0.3) ** 2) + 0.3 * math.sin(steep * config["x"])


def tuned(name, stop_when="no gain", **given):
    algorithm = make_algorithm(name, {"stop_when": stop_when, "num_candidates": 32})
    settings: dict[str, Any] = {"num_rounds": 12, "engine": "inline", "seed": 2, **given}
    return simulate(wave, LINE, STEEP, algorithm, **settings)


def values(study):
    return {name: [row["value"] for row in study.trials if row["agent"] == name] for name in STEEP}


@pytest.mark.parametrize("name", ["ei", "fed-ei"])
def test_an_agent_ends_its_search_and_the_others_go_on_as_if_it_had_not(name):
    ends, goes_on = (values(tuned(name, when, num_rounds=16)) for when in ("no gain", ""))
    assert 10 <= len(ends["easy"]) < len(goes_on["easy"]) == len(ends["hard"]) == len(goes_on["hard"])
    assert max(goes_on["easy"]) - max(ends["easy"]) < 1e-4
    for agent in STEEP if name == "ei" else ["easy"]:  # the pool of `fed-ei` lacks the later rows
        assert ends[agent] == goes_on[agent][: len(ends[agent])]


def test_the_study_ends_with_the_last_search_and_is_resumed_to_the_same_trials(tmp_path):
    whole = tuned("ei")
    tuned("ei", num_rounds=10, keep=Keep(journals=tmp_path))
    resumed = tuned("ei", keep=Keep(journals=tmp_path, resume=True))
    assert resumed.trials == whole.trials
