"""In which units an algorithm may be given its values: all algorithms but `ei` and `co-kg`, tested elsewhere.

An algorithm without units makes the same proposals for `scale * f + offset` as for `f`, up to rounding. The
papers of some bandits assume values in [0, 1]: their confidence radii are in the objective's unit, which the
table says.
"""

from functools import cache

import numpy as np
import pytest
from contract import SQUARE, Run, hills

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.registry import BUILT_IN, FTS_OPTIONS
from fbo_flower.space import Float, SearchSpace

LINE = SearchSpace({"x": Float(0.0, 1.0)})
METHODS = ("lso", "fso", "fmo", "ehvi", "rand_mo")
FREE, SCALED, UNIT = "free of units", "free of offsets, but not of scale", "values in [0, 1]"
CASES = {
    "random": ("random", {}, FREE),
    "pf-pne racing": ("pf-pne", {"variant": "racing", "budget": 150}, FREE),
    "pf-pne gp": ("pf-pne", {"variant": "gp", "budget": 14}, FREE),
    "hct observed": ("hct", {"scale": "observed", "budget": 400}, FREE),
    **{f"rfms {m}": ("rfms", {"method": m, "num_initial": 3, "num_trials": 9}, FREE) for m in METHODS},
    "pf-pne": ("pf-pne", {"budget": 400}, SCALED),
    "fed-pne": ("fed-pne", {"budget": 400}, SCALED),
    "local-pne": ("local-pne", {"budget": 400}, SCALED),
    "hct": ("hct", {"budget": 400}, SCALED),
    "fed1-ucb": ("fed1-ucb", {"budget": 6000, "arms_seed": 1, "noise_stddev": 0.05}, SCALED),
    "fn-ucb": ("fn-ucb", {"budget": 12, "arms_seed": 1}, UNIT),
}
SMALL = {"num_candidates": 64, "num_path_features": 32}
FEW = {**SMALL, "num_features": 30}
SURROGATES = {
    "ts": ("ts", SMALL),
    "fts": ("fts", {**SMALL, "schedule": 0.5}),
    "fts mixture": ("fts", {**SMALL, "advice": "mixture"}),
    "fts recommended": ("fts", {**SMALL, **FTS_OPTIONS}),
    "dp-fts": ("dp-fts", {**SMALL, "schedule": 0.5}),
    "rgpe": ("rgpe", FEW),
    "taf": ("taf", FEW),
    **{f"ts {how}": ("ts", {**SMALL, "y_transform": how}) for how in ("winsorise", "rank", "clip")},
    "fed-ei": ("fed-ei", {"num_candidates": 64, "secure_sums": 0}),
}
UNITS = {"1e-6": (1e-6, 0.0), "1e-9": (1e-9, 0.0), "1e3": (1e3, 0.0), "+1e4": (1.0, 1e4)}
# sums of moments have a range: what agents know of each other's level is left out beyond it
SUMMED = {"1e-3": (1e-3, 0.0), "1e6": (1e6, 0.0), "1e3": (1e3, 0.0), "+1e4": (1.0, 1e4)}
ELSEWHERE = {"ei", "co-kg"}


def trials(name, options, scale=1.0, offset=0.0, *, num_agents=2, num_rounds=40, power=1):
    """Return the points of every agent's trials."""
    space = LINE if name == "fed1-ucb" else SQUARE  # 400 arms of a square need many pulls
    plain = hills(space)
    run = Run.begin(
        make_algorithm(name, options),
        space=space,
        num_agents=num_agents,
        objective=lambda config, context: scale * plain(config, context) ** power + offset,
    )
    while not run.algorithm.finished(run.state) and run.server_round < num_rounds:
        run.step()
    return [log.points for log in run.histories().values()]


def by_surrogate(case, *units, power=1):
    """Return all points that three agents evaluate in seven rounds."""
    return np.concatenate(trials(*SURROGATES[case], *units, num_agents=3, num_rounds=7, power=power))


@pytest.fixture(scope="module")
def plain_trials():
    return cache(lambda case: by_surrogate(case) if case in SURROGATES else trials(*CASES[case][:2]))


def same_points(one, other):
    return all(a.shape == b.shape and np.allclose(a, b, atol=1e-6) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3, 7e5])
@pytest.mark.parametrize("offset", [0.0, -3e4, 1e6])
@pytest.mark.parametrize("case", [case for case, (_, _, unit) in CASES.items() if unit == FREE])
def test_units_of_the_objective_change_no_proposal(case, scale, offset, plain_trials):
    assert same_points(plain_trials(case), trials(*CASES[case][:2], scale, scale * offset))


@pytest.mark.parametrize("case", [case for case, (_, _, unit) in CASES.items() if unit == SCALED])
def test_literal_bandits_ignore_an_offset_but_need_values_of_the_scale_of_their_paper(case, plain_trials):
    name, options, _ = CASES[case]
    assert same_points(plain_trials(case), trials(name, options, 1.0, 1e3))
    assert not same_points(plain_trials(case), trials(name, options, 1e-3, 0.0))


@pytest.mark.parametrize("case", [case for case, (_, _, unit) in CASES.items() if unit == UNIT])
def test_literal_neural_bandits_need_values_between_zero_and_one(case, plain_trials):
    name, options, _ = CASES[case]
    assert not same_points(plain_trials(case), trials(name, options, 1e-3, 0.0))
    assert not same_points(plain_trials(case), trials(name, options, 1.0, 1e3))


@pytest.mark.parametrize(
    ("case", "scale", "offset"),
    [
        pytest.param(case, *units, id=f"{case}-{unit}")
        for case in SURROGATES
        for unit, units in (SUMMED if case == "fed-ei" else UNITS).items()
    ],
)
def test_surrogates_do_not_see_the_unit_of_the_objective(case, scale, offset, plain_trials):
    # the offset 1e4 leaves 12 of 16 digits of the values, a polish ends within single precision, and every
    # round builds on the one before
    np.testing.assert_allclose(by_surrogate(case, scale, offset), plain_trials(case), atol=5e-4)


def test_surrogates_see_another_objective(plain_trials):
    assert np.abs(by_surrogate("ts", power=3) - plain_trials("ts")).max() > 1e-2


def test_the_tables_name_every_algorithm():
    assert {name for name, *_ in (*CASES.values(), *SURROGATES.values())} | ELSEWHERE == set(BUILT_IN)
