import math
from dataclasses import dataclass

import numpy as np
import pytest

from fbo_flower.errors import ConfigError
from fbo_flower.simulation.problems.xarmed import (
    Ackley,
    DoubleSine,
    Garland,
    Himmelblau,
    Rastrigin10D,
    shifts,
)

ALL = [Garland, DoubleSine, Himmelblau, Ackley, Rastrigin10D]


@dataclass
class Context:
    partition: int
    rng: np.random.Generator


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
    assert at(Ackley(1, 0, **still), [0.5, 0.5])[0] == pytest.approx(1.0)
    corner = 20 * math.exp(-0.2) + math.e - math.e - 20
    lowest = abs(20 * math.exp(-0.2 * math.sqrt(0.5)) + math.exp(-1) - 20 - math.e)
    assert at(Ackley(1, 0, **still), [1.0, 1.0])[0] == pytest.approx(1 + corner / lowest)
    assert at(Rastrigin10D(1, 0, **still), [0.5] * 10, [1.0] * 10) == pytest.approx([1.0, 0.95])
    assert at(Rastrigin10D(1, 0, **still), [0.25] * 10)[0] == pytest.approx(1 - 20.25 / 20)  # the dip below 0


@pytest.mark.parametrize("problem_class", ALL)
@pytest.mark.parametrize("stddev", [0.0, 0.4])
def test_no_point_beats_the_optimum_and_some_come_close(problem_class, stddev):
    problem = problem_class(4, 3, shift_stddev=stddev)
    rng = np.random.default_rng(0)
    for partition in range(4):
        points = rng.random((40_000, problem.dimension))
        best = problem.optimum(partition)
        values = problem.values(points, partition)
        assert values.max() <= best + 1e-9
        if problem.dimension <= 2:
            assert values.max() >= best - 0.01


@pytest.mark.parametrize(
    ("problem_class", "best"),
    [(Garland, 2 * math.pi / 3 * (1 - math.pi / 6)), (DoubleSine, 1.0), (Himmelblau, 1.0), (Ackley, 1.0)],
)
def test_optima_without_shift_are_known_to_nine_digits(problem_class, best):
    assert problem_class(1, 0, shift_stddev=0.0).optimum(0) == pytest.approx(best, abs=1e-9)


def test_the_optimum_is_over_what_can_be_reached():
    for seed in range(300):
        problem = Ackley(1, seed, shift_stddev=0.5)
        if np.abs(shifts(problem)).max() > 0.6:
            break
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 801)] * 2), axis=-1).reshape(-1, 2)
    assert problem.optimum(0) < 1.0  # a clipped maximum would be 1
    assert problem.optimum(0) == pytest.approx(problem.values(grid, 0).max(), abs=2e-3)


def test_shifts_are_the_stated_draws_and_nested():
    problem = Himmelblau(10, 7, shift_stddev=0.1)
    expected = 0.1 * np.random.default_rng([7, 1]).standard_normal((10, 2))
    np.testing.assert_array_equal(shifts(problem), expected)
    np.testing.assert_array_equal(shifts(Himmelblau(3, 7, shift_stddev=0.1)), expected[:3])
    u = np.array([[0.3, 0.6]])
    plain = Himmelblau(1, 0, shift_stddev=0.0).values(np.clip(u - expected[4], 0, 1), 0)
    np.testing.assert_array_equal(problem.values(u, 4), plain)


@pytest.mark.parametrize("problem_class", ALL)
def test_scalar_calls_agree_with_arrays_and_noise_comes_from_the_context(problem_class):
    problem = problem_class(2, 0)
    point = np.full(problem.dimension, 0.3)
    config = problem.space.decode(point)
    assert problem.true_value(config, 1) == problem.values(point[np.newaxis], 1)[0]
    batch = problem.repeated(config, Context(1, np.random.default_rng(5)), 6)
    rng = np.random.default_rng(5)
    np.testing.assert_array_equal(batch, [problem(config, Context(1, rng)) for _ in range(6)])
    assert np.abs(batch - problem.true_value(config, 1)).max() <= 0.1
    silent = problem_class(2, 0, noise=0.0)
    assert silent(config, Context(1, rng)) == silent.true_value(config, 1)


def test_bad_options_are_refused():
    with pytest.raises(ConfigError, match="noise"):
        Garland(1, 0, noise=-0.1)
    with pytest.raises(ConfigError, match="shift_stddev"):
        Garland(1, 0, shift_stddev=-0.1)
    with pytest.raises(ConfigError, match="partition"):
        Garland(1, 0).optimum(1)
