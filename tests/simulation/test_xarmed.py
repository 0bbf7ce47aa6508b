import math

import numpy as np
import pytest
from every_xarmed import *  # noqa: F403

from fbo_flower.errors import ConfigError
from fbo_flower.simulation.problems.xarmed import (
    DoubleSine,
    Garland,
    Himmelblau,
    shifts,
)


def at(problem, *points):
    return problem.values(np.array(points, dtype=float), 0)


def test_values_worked_by_hand():
    still = {"shift_stddev": 0.0}
    assert at(Garland(1, 0, **still), [np.pi / 6]) == pytest.approx(0.9977723791254, abs=1e-7)
    assert at(DoubleSine(1, 0, **still), [0.5], [1.0]) == pytest.approx([1.0, 0.0])
    # u = 1/4: log2 u = -2, the sine is 0, envelopes .3^2 and .8^2 (u^e = 2^(2 log2 .))
    assert at(DoubleSine(1, 0, **still), [0.625])[0] == pytest.approx((0.64 - 0.09) / 2 - 0.64 + 1)
    assert at(Himmelblau(1, 0, **still), [0.8, 0.7], [0.5, 0.5]) == pytest.approx([1.0, 1 - 170 / 890])
    # (-5, -5): 9^2 + 13^2 = 250; (5, 5): 19^2 + 23^2 = 890
    assert at(Himmelblau(1, 0, **still), [0.0, 0.0], [1.0, 1.0]) == pytest.approx([1 - 250 / 890, 0.0])


@pytest.mark.parametrize(
    ("problem_class", "best"),
    [(Garland, 2 * math.pi / 3 * (1 - math.pi / 6)), (DoubleSine, 1.0), (Himmelblau, 1.0)],
)
def test_optima_without_shift_are_known_to_nine_digits(problem_class, best):
    assert problem_class(1, 0, shift_stddev=0.0).optimum(0) == pytest.approx(best, abs=1e-9)


def test_shifts_are_the_stated_draws_and_nested():
    problem = Himmelblau(10, 7, shift_stddev=0.1)
    expected = 0.1 * np.random.default_rng([7, 1]).standard_normal((10, 2))
    np.testing.assert_array_equal(shifts(problem), expected)
    np.testing.assert_array_equal(shifts(Himmelblau(3, 7, shift_stddev=0.1)), expected[:3])
    u = np.array([[0.3, 0.6]])
    plain = Himmelblau(1, 0, shift_stddev=0.0).values(np.clip(u - expected[4], 0, 1), 0)
    np.testing.assert_array_equal(problem.values(u, 4), plain)


def test_bad_options_are_refused():
    with pytest.raises(ConfigError, match="noise"):
        Garland(1, 0, noise=-0.1)
    with pytest.raises(ConfigError, match="shift_stddev"):
        Garland(1, 0, shift_stddev=-0.1)
    with pytest.raises(ConfigError, match="partition"):
        Garland(1, 0).optimum(1)
