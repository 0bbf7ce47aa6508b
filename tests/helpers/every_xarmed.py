"""What is true of every X-armed function, see `every_problem`: tests to import with `*`."""

import numpy as np
import pytest
from every_problem import OURS, Context

from fbo_flower.simulation.problems import PROBLEMS, XArmed

ALL = [PROBLEMS[name] for name in OURS if issubclass(PROBLEMS[name], XArmed)]


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
