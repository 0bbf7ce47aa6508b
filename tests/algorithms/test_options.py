"""An option that cannot be used is refused, with a message that names it and says what was expected."""

import math

import numpy as np
import pytest
from contract import SQUARE

from fbo_flower.algorithms import DPFTS, make_algorithm
from fbo_flower.algorithms.registry import BUILT_IN
from fbo_flower.algorithms.senders import check_schedule, own_probability
from fbo_flower.errors import ConfigError
from fbo_flower.space import Int, SearchSpace

REFUSED = [
    ("nope", {}, "random, ts, fts"),
    ("random", {"nope": 1}, "num_initial=3"),
    ("fed-ei", {"y_transform": "rank"}, "y_transform"),
    *(("fts", {"targets": names}, "targets") for names in ([], "3", [3], 5, {"a": 1})),
    *(("fts", {"lengthscale": scale}, "lengthscale") for scale in ([[1, 2], [3]], [0.1, True], 0)),
    ("fts", {"lengthscale": "guess"}, "federated"),
    ("fts", {"schedule": "first-x"}, "first-K"),
    ("fts", {"secure_sums": 3}, "federated"),
    *((name, {"secure_sums": 1}, "from 2 on") for name in ("fed-ei", "fed-pne", "dp-fts", "co-kg")),
    ("local-pne", {"gap": 0.1}, "no option 'gap'"),
    ("fed-pne", {"secure_sums": 3, "aggregate": "median"}, "expected 'mean'"),
    ("pf-pne", {"variant": "racing", "secure_sums": 3}, "variant='racing'"),
    ("pf-pne", {"variant": "racing", "nu": 1.0}, "both or none"),
    ("pf-pne", {"variant": "racing", "gap": 0.1}, "gap"),
    *(("pf-pne", {"variant": "gp", name: 3}, name) for name in ("nu", "gap", "secure_sums")),
    ("fn-ucb", {"mix_until": 3}, "mix_until"),
    ("co-kg", {"beta": "sqrt"}, "beta: expected one of log, constant, exp, a number"),
    ("co-kg", {"refit": 0}, "refit"),
    ("co-kg", {"noise_variance": 0.02, "transform": "log"}, "expected None with transform='log'"),
    ("co-kg", {"secure_sums": 3, "weights": "reliability"}, "expected 'uniform'"),
]


@pytest.mark.parametrize(("name", "options", "match"), REFUSED)
def test_an_option_that_cannot_be_used_is_named(name, options, match):
    with pytest.raises(ConfigError, match=match):
        make_algorithm(name, options)


@pytest.mark.parametrize("name", BUILT_IN)
def test_no_option_takes_what_makes_no_sense(name):
    for option in make_algorithm(name, {}).options():
        for value in (math.nan, -1e300, "nope", {}):
            with pytest.raises(ConfigError, match=option):
                make_algorithm(name, {option: value})


def test_options_that_do_not_fit_the_search_space_or_the_budget_are_refused():
    for name in ("fts", "dp-fts", "taf"):
        with pytest.raises(ConfigError, match="lengthscale: expected 2 numbers"):
            make_algorithm(name, {"lengthscale": [0.1, 0.2, 0.3]}).check(SQUARE)
    with pytest.raises(ConfigError, match="at most 3 points per axis in 7 dimensions"):
        make_algorithm("co-kg", {"mesh": 10}).check(SearchSpace({f"x{i}": Int(0, 99) for i in range(7)}))
    for options, match in (({"max_epsilon": 0.01}, "the cost of the first release"),
                           ({"noise_multiplier": 0, "max_epsilon": 5.0}, "max_epsilon")):  # fmt: skip
        with pytest.raises(ConfigError, match=match):
            DPFTS(**options).check_cost()


# -- schedules -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("1-1/t^2", [3 / 4, 3 / 4, 8 / 9, 15 / 16]),
        ("1-1/t", [1 / 2, 1 / 2, 2 / 3, 3 / 4]),
        ("1-1/sqrt(t)", [1 - 0.5**0.5, 1 - 0.5**0.5, 1 - 3**-0.5, 0.5]),
        ("first-2", [0, 0, 1, 1]),
        ("first-0", [1, 1, 1, 1]),
        (0.25, [0.25] * 4),
    ],
)
def test_the_probability_of_the_own_surrogate_is_that_of_the_paper_and_never_falls(schedule, expected):
    check_schedule(schedule)
    assert [own_probability(schedule, t) for t in (1, 2, 3, 4)] == pytest.approx(expected)
    values = [own_probability(schedule, t) for t in (*range(1, 400), 10**8)]
    assert all(isinstance(v, float) and 0 <= v <= 1 for v in values)
    assert (np.diff(values) >= 0).all()
    assert values[-1] > 0.999 or not isinstance(schedule, str)


@pytest.mark.parametrize("schedule", [
    "", "1", "1-1/t^3", "first-", "first--1", "first-1.5", "first-1\n", "first-1234567", " first-1",
    -0.1, 1.1, math.nan, math.inf, True, False, None, (0.5,), {},
])  # fmt: skip
def test_an_unknown_schedule_is_refused(schedule):
    with pytest.raises(ConfigError, match="first-K"):
        check_schedule(schedule)
