import math

import numpy as np
import pytest

from fbo_flower.algorithms.schedules import check_schedule, own_probability
from fbo_flower.errors import ConfigError

KNOWN = ["1-1/t^2", "1-1/sqrt(t)", "1-1/t", "first-0", "first-5", 0, 1, 0.25]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("1-1/t^2", [3 / 4, 3 / 4, 8 / 9, 15 / 16]),
        ("1-1/t", [1 / 2, 1 / 2, 2 / 3, 3 / 4]),
        ("1-1/sqrt(t)", [1 - 0.5**0.5, 1 - 0.5**0.5, 1 - 3**-0.5, 0.5]),
        ("first-2", [0, 0, 1, 1]),
        ("first-0", [1, 1, 1, 1]),
        (0.25, [0.25] * 4),
        (1, [1.0] * 4),
    ],
)
def test_probabilities_are_those_of_the_paper(schedule, expected):
    assert [own_probability(schedule, t) for t in (1, 2, 3, 4)] == pytest.approx(expected)


@pytest.mark.parametrize("schedule", KNOWN)
def test_probabilities_are_probabilities_and_grow(schedule):
    check_schedule(schedule)
    values = [own_probability(schedule, t) for t in range(1, 400)]
    assert all(isinstance(v, float) and 0 <= v <= 1 for v in values)
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize("schedule", ["1-1/t^2", "1-1/sqrt(t)", "1-1/t"])
def test_named_schedules_lead_home(schedule):
    assert own_probability(schedule, 10**8) > 0.999


@pytest.mark.parametrize(
    "schedule",
    [
        "", "1", "1-1/t^3", "first-", "first--1", "first-1.5", "first-1\n", "first-1234567", " first-1",
        -0.1, 1.1, math.nan, math.inf, True, False, None, (0.5,), {},
    ],
)  # fmt: skip
def test_unknown_schedules_are_config_errors(schedule):
    with pytest.raises(ConfigError, match="first-K"):
        check_schedule(schedule)
