"""In which units an algorithm may be given its values: all algorithms but those that have tests of their own.

An algorithm without units makes the same proposals for `scale * f + offset` as for `f`, up to rounding. The
papers of some bandits assume values in [0, 1]: their confidence radii are in the objective's unit, which the
table says.
"""

import numpy as np
import pytest
from contract import SQUARE, Run, hills

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.registry import BUILT_IN
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
ELSEWHERE = {
    "ei",
    "fed-ei",
    "fts",
    "dp-fts",
    "ts",
    "rgpe",
    "taf",
    "co-kg",
}


def trials(name, options, scale=1.0, offset=0.0):
    """Return the points of every agent's trials."""
    space = LINE if name == "fed1-ucb" else SQUARE  # 400 arms of a square need many pulls
    plain = hills(space)
    run = Run.begin(
        make_algorithm(name, options),
        space=space,
        num_agents=2,
        objective=lambda config, context: scale * plain(config, context) + offset,
    )
    while not run.algorithm.finished(run.state) and run.server_round < 40:
        run.step()
    return [log.points for log in run.histories().values()]


@pytest.fixture(scope="module")
def plain_trials():
    known = {}

    def find(case):
        if case not in known:
            known[case] = trials(*CASES[case][:2])
        return known[case]

    return find


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


def test_the_table_names_every_algorithm():
    assert {name for name, _, _ in CASES.values()} | ELSEWHERE == set(BUILT_IN)
