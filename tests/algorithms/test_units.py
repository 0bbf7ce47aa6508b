"""An algorithm makes the same proposals for `scale * f + offset` as for `f`, up to rounding.

The papers of some bandits assume values in [0, 1]: their confidence radii are in the objective's unit.
"""

import numpy as np
import pytest
from contract import MIXED, SQUARE, Run, hills

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.registry import BUILT_IN, FTS_OPTIONS

FEW = {"num_candidates": 64, "num_path_features": 32}
FTS = {**FEW, "num_features": 30}
CO_KG = {"num_points": 49, "num_draws": 16, "num_starts": 1}
# 4 of 16 digits of the values are lost by the offset; sums of moments have a range: what agents of fed-ei
# know of each other's level is left out beyond it
TINY, LARGE = (1e-9, 1e-5), (1e3, 1e9)
CASES = {
    "random": ("random", {}, TINY),
    "ts winsorise": ("ts", {**FEW, "y_transform": "winsorise"}, TINY),
    "fts mixture": ("fts", {**FTS, "advice": "mixture"}, TINY),
    "fts recommended": ("fts", {**FTS, **FTS_OPTIONS}, TINY),
    "dp-fts": ("dp-fts", {**FEW, "schedule": 0.5}, TINY),
    "rgpe": ("rgpe", FTS, TINY),
    "taf": ("taf", FTS, TINY),
    "ei mixed": ("ei", {"num_candidates": 64}, TINY),
    "fed-ei": ("fed-ei", {"num_candidates": 64, "secure_sums": 0}, (1e2, 1e6)),
    "co-kg auto": ("co-kg", {**CO_KG, "central": "auto", "refit": "doubling"}, TINY),
    "co-kg by reliability": ("co-kg", {**CO_KG, "weights": "reliability", "isotropic": False}, TINY),
    "rfms": ("rfms", {"method": "ehvi", "num_initial": 3, "num_trials": 9}, TINY),
    "pf-pne racing": ("pf-pne", {"variant": "racing", "budget": 150}, LARGE),
    "pf-pne gp": ("pf-pne", {"variant": "gp", "budget": 14}, LARGE),
    "hct observed": ("hct", {"scale": "observed", "budget": 200}, LARGE),
    **{
        name: (name, {"budget": 100}, (1.0, 1e3))
        for name in ("pf-pne", "fed-pne", "local-pne", "hct", "fed1-ucb")
    },
}


def points(case, scale=1.0, offset=0.0, power=1):
    """Return all points that three agents evaluate in some rounds."""
    name, options, _ = CASES[case]
    space = MIXED if "mixed" in case else SQUARE

    def objective(config, context):
        return scale * hills(space)(config, context) ** power + offset

    run = Run.begin(make_algorithm(name, options), space=space, objective=objective).steps(6)
    return np.concatenate([log.points for log in run.histories().values()])


@pytest.mark.parametrize("case", CASES)
def test_proposals_do_not_depend_on_the_unit_of_the_objective(case):
    # a polish ends within single precision, and every round builds on the one before
    np.testing.assert_allclose(points(case, *CASES[case][2]), points(case), atol=5e-4)


def test_other_objectives_are_seen_and_every_algorithm_is_here():
    assert np.abs(points("fts mixture", power=3) - points("fts mixture")).max() > 1e-2
    assert not np.array_equal(points("hct", scale=1e-3), points("hct")), "its radii have a unit"
    assert {name for name, *_ in CASES.values()} == set(BUILT_IN) - {"fn-ucb"}, "values in [0, 1]"
