"""Surrogates do not see the unit of the objective: the same proposals whatever its scale and offset."""

import numpy as np
import pytest
from contract import SQUARE, Run, hills

from fbo_flower.algorithms import ALGORITHMS as CLASSES
from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.recommended import FTS_OPTIONS

SMALL = {"num_candidates": 64, "num_path_features": 32}
ALGORITHMS = {
    "ts": ("ts", {}),
    "fts": ("fts", {"schedule": 0.5}),
    "fts mixture": ("fts", {"advice": "mixture"}),
    "fts recommended": ("fts", FTS_OPTIONS),
    "dp-fts": ("dp-fts", {"schedule": 0.5}),
    "rgpe": ("rgpe", {"num_features": 30}),
    "taf": ("taf", {"num_features": 30}),
    "ts winsorise": ("ts", {"y_transform": "winsorise"}),
    "ts rank": ("ts", {"y_transform": "rank"}),
    "ts clip": ("ts", {"y_transform": "clip"}),
}
UNITS = {"1e-6": (1e-6, 0.0), "1e-9": (1e-9, 0.0), "1e3": (1e3, 0.0), "+1e4": (1.0, 1e4)}


def points(name, scale, offset):
    """All points that three agents evaluate in seven rounds."""
    plain = hills(SQUARE)
    algorithm_name, options = ALGORITHMS[name]
    known = CLASSES[algorithm_name].option_defaults()
    small = {option: value for option, value in SMALL.items() if option in known}
    algorithm = make_algorithm(algorithm_name, {**small, **options})
    run = Run.begin(algorithm, objective=lambda config, context: scale * plain(config, context) + offset)
    return np.concatenate([agent.log.points for agent in run.steps(7).agents.values()])


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_proposals_do_not_depend_on_scale_and_offset(name, unit):
    expected, found = points(name, 1.0, 0.0), points(name, *UNITS[unit])
    # the offset 1e4 leaves 12 of 16 digits of the values, a polish ends within single precision, and every
    # round builds on the one before
    np.testing.assert_allclose(found, expected, atol=5e-4)


def test_another_objective_gives_other_proposals():
    plain = hills(SQUARE)
    algorithm = make_algorithm("ts", SMALL)
    run = Run.begin(algorithm, objective=lambda config, context: plain(config, context) ** 3).steps(7)
    found = np.concatenate([agent.log.points for agent in run.agents.values()])
    assert np.abs(found - points("ts", 1.0, 0.0)).max() > 1e-2
