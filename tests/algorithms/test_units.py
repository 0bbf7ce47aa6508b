"""In which units an algorithm may be given its values: a table of all algorithms.

An algorithm without units makes the same proposals for `scale * f + offset` as for `f`, up to rounding. The
papers of some bandits assume values in [0, 1]: their confidence radii are in the objective's unit, which the
table says.
"""

from functools import cache

import numpy as np
import pytest
from contract import MIXED, SQUARE, Run, hills

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.registry import BUILT_IN, FTS_OPTIONS
from fbo_flower.space import Float, SearchSpace

LINE = SearchSpace({"x": Float(0.0, 1.0)})
FREE, SCALED, UNIT = "free of units", "free of offsets, but not of scale", "values in [0, 1]"
BANDITS = {
    "pf-pne racing": ("pf-pne", {"variant": "racing", "budget": 150}, FREE),
    "pf-pne gp": ("pf-pne", {"variant": "gp", "budget": 14}, FREE),
    "hct observed": ("hct", {"scale": "observed", "budget": 200}, FREE),
    **{name: (name, {"budget": 200}, SCALED) for name in ("pf-pne", "fed-pne", "local-pne", "hct")},
    "fed1-ucb": ("fed1-ucb", {"budget": 2000, "arms_seed": 1, "noise_stddev": 0.05}, SCALED),
    "fn-ucb": ("fn-ucb", {"budget": 12, "arms_seed": 1}, UNIT),
}
FEW = {"num_candidates": 64, "num_path_features": 32}
FTS = {**FEW, "num_features": 30}
RFMS = {"num_initial": 3, "num_trials": 9}
CO_KG = {"num_points": 49, "num_draws": 16, "num_starts": 1}
SURROGATES = {
    "random": ("random", {}),
    "ts": ("ts", FEW),
    "fts mixture": ("fts", {**FTS, "advice": "mixture"}),
    "fts recommended": ("fts", {**FTS, **FTS_OPTIONS}),
    "dp-fts": ("dp-fts", {**FEW, "schedule": 0.5}),
    "rgpe": ("rgpe", FTS),
    "taf": ("taf", FTS),
    "ts winsorise": ("ts", {**FEW, "y_transform": "winsorise"}),
    "ts clip": ("ts", {**FEW, "y_transform": "clip"}),
    **dict.fromkeys(("ei", "ei mixed"), ("ei", {"num_candidates": 64})),
    "fed-ei": ("fed-ei", {"num_candidates": 64, "secure_sums": 0}),
    "co-kg auto": ("co-kg", {**CO_KG, "central": "auto", "refit": "doubling"}),
    "co-kg by reliability": ("co-kg", {**CO_KG, "weights": "reliability"}),
    "co-kg anisotropic": ("co-kg", {**CO_KG, "isotropic": False}),
    **{f"rfms {method}": ("rfms", {"method": method, **RFMS}) for method in ("lso", "fso", "fmo", "ehvi")},
}
# 4 of 16 digits of the values are lost by the offset; sums of moments have a range: what agents of fed-ei
# know of each other's level is left out beyond it
UNITS = {case: (1e2, 1e6) if case == "fed-ei" else (1e-9, 1e-5) for case in SURROGATES}


def trials(name, options, scale=1.0, offset=0.0, *, num_agents=2, num_rounds=40, power=1, space=SQUARE):
    """Return the points of all agents' trials."""
    plain = hills(space)

    def objective(config, context):
        return scale * plain(config, context) ** power + offset

    algorithm = make_algorithm(name, options)
    run = Run.begin(algorithm, space=space, num_agents=num_agents, objective=objective)
    while not run.algorithm.finished(run.state) and run.server_round < num_rounds:
        run.step()
    return np.concatenate([log.points for log in run.histories().values()])


@cache
def by_bandit(case, scale=1.0, offset=0.0):
    """Return the points of all pulls; 400 arms of a square need many."""
    name, options, _ = BANDITS[case]
    return trials(name, options, scale, offset, space=LINE if name == "fed1-ucb" else SQUARE)


@cache
def by_surrogate(case, scale=1.0, offset=0.0, power=1):
    """Return all points that three agents evaluate in some rounds."""
    more = {"num_agents": 3, "num_rounds": 6 if "rfms" in case else 5, "power": power}
    return trials(*SURROGATES[case], scale, offset, space=MIXED if "mixed" in case else SQUARE, **more)


def same_points(one, other):
    return one.shape == other.shape and np.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("case", [case for case, (_, _, unit) in BANDITS.items() if unit == FREE])
@pytest.mark.parametrize(("scale", "offset"), [(1e-6, 0.0), (1e3, 1e9)])
def test_units_of_the_objective_change_no_pull(case, scale, offset):
    assert same_points(by_bandit(case), by_bandit(case, scale, offset))


@pytest.mark.parametrize("case", [case for case, (_, _, unit) in BANDITS.items() if unit != FREE])
def test_literal_bandits_need_values_of_the_scale_of_their_paper(case):
    assert same_points(by_bandit(case), by_bandit(case, 1.0, 1e3)) == (BANDITS[case][2] == SCALED)
    assert not same_points(by_bandit(case), by_bandit(case, 1e-3, 0.0))


@pytest.mark.parametrize("case", SURROGATES)
def test_surrogates_do_not_see_the_unit_of_the_objective(case):
    # a polish ends within single precision, and every round builds on the one before
    np.testing.assert_allclose(by_surrogate(case, *UNITS[case]), by_surrogate(case), atol=5e-4)
    if "ei" in case.split() and case != "fed-ei":  # a power of two changes no digit
        np.testing.assert_allclose(by_surrogate(case, 2.0**-30), by_surrogate(case), rtol=0, atol=1e-12)


def test_surrogates_see_another_objective_and_the_tables_name_every_algorithm():
    assert np.abs(by_surrogate("fts mixture", power=3) - by_surrogate("fts mixture")).max() > 1e-2
    assert {name for name, *_ in (*BANDITS.values(), *SURROGATES.values())} == set(BUILT_IN)
