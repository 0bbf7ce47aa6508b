"""The comparison of fed-ei: its functions have the optima that their sources name; its bound."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from fbo_flower.numerics.surrogates.gp import kernel
from studies.papers.ei import known_owners
from studies.papers.ei.problems import FUNCTIONS, ShiftedFunction

OPTIMA = {
    "hartmann-6": ([0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573], 3.32237),
    "hartmann-3": ([0.114614, 0.555649, 0.852547], 3.86278),
    "branin": ([(np.pi + 5) / 15, 2.275 / 15], 1.0474),
    "ackley-5": ([0.9, 0.1, 0.9, 0.1, 0.9], 0.0),
    "levy-4": ([0.9, 0.1, 0.9, 0.1], 0.0),
    "rastrigin-10": (np.linspace(0.2, 0.8, 10), 0.0),
    "styblinski-5": ([(5 - 2.903534) / 10] * 5, 3.916617),
    "rosenbrock-4": ([0.4] * 4, 0.0),
    "michalewicz-4": ([0.680406, 0.5, 0.411961, 0.611162], 3.720441),
    "griewank-3": ([0.3, 0.7, 0.4], 0.0),
    "dixon-5": ([(5 + 2 ** -((2**i - 2) / 2**i)) / 10 for i in range(1, 6)], 0.0),
}


@pytest.mark.parametrize("name", OPTIMA)
def test_a_function_has_its_known_maximum_where_it_is_known(name):
    point, value = OPTIMA[name]
    dimension, function = FUNCTIONS[name]
    assert len(point) == dimension
    assert function(np.array(point)) == pytest.approx(value, abs=1e-4)
    others = [function(u) for u in np.random.default_rng(0).random((200, dimension))]
    assert max(others) < value


def test_agents_have_related_functions_in_units_of_their_own():
    problem = ShiftedFunction(4, 0, "branin")
    config = {"x0": 0.3, "x1": 0.7}
    scores = [problem.score(config, agent) for agent in range(4)]
    assert len(set(scores)) == 4
    first, second = (problem.true_value(config, 1), problem.true_value({"x0": 0.1, "x1": 0.1}, 1))
    assert (first > second) == (problem.score(config, 1) > problem.score({"x0": 0.1, "x1": 0.1}, 1))
    same = ShiftedFunction(4, 0, "branin", shift=0.0)
    assert len({same.score(config, agent) for agent in range(4)}) == 1
    mirrored = ShiftedFunction(4, 0, "branin", shift=0.0, mirrored=True)
    assert mirrored.score({"x0": 0.7, "x1": 0.3}, 1) == pytest.approx(same.score(config, 1))


def test_draws_have_in_common_what_they_say():
    points = np.random.default_rng(0).random((40, 4))

    def correlation(common):
        pairs = []
        for seed in range(40):
            made = ShiftedFunction(2, seed, "draws", shift=0.0, common=common)
            pairs.append([[made.score(made.space.decode(p), a) for p in points] for a in range(2)])
        one, other = np.array(pairs).transpose(1, 0, 2).reshape(2, -1)
        return float((one * other).mean() / np.sqrt((one**2).mean() * (other**2).mean()))

    assert correlation(0.0) == pytest.approx(0.0, abs=0.1)
    assert correlation(0.64) == pytest.approx(0.64, abs=0.1)


def test_the_bound_with_known_owners_is_expected_improvement_of_a_multi_task_process():
    rng = np.random.default_rng(3)
    x, z, owners = rng.random((9, 2)), rng.standard_normal(9), np.repeat([0, 1, 2], 3)
    scales, share, tau, noise = np.array([0.4, 0.7]), 0.6, 0.3, 0.05
    same = owners[:, None] == owners
    near = kernel("matern52", x, x, scales)
    k = np.where(same, near + tau, share * near)
    inverse = np.linalg.inv(k + noise * np.eye(9))
    weights, levels = np.where(owners == 1, 1.0, share), np.where(owners == 1, tau, 0.0)
    function = known_owners.Improvement(x, scales, weights, levels, inverse @ z, inverse, 0.2, 1 + tau)
    at = rng.random((5, 2))
    cross = kernel("matern52", at, x, scales) * weights + levels
    mean = cross @ inverse @ z
    stddev = np.sqrt(1 + tau - (cross @ inverse * cross).sum(axis=1))
    gain = stddev * norm.pdf((mean - 0.2) / stddev) + (mean - 0.2) * norm.cdf((mean - 0.2) / stddev)
    values, gradients = function.value_and_gradient(at)
    np.testing.assert_allclose(values, np.log(gain), rtol=1e-8)
    for axis in range(2):
        step = 1e-6 * np.eye(2)[axis]
        slope = (function(at + step) - function(at - step)) / 2e-6
        np.testing.assert_allclose(gradients[:, axis], slope, rtol=1e-4, atol=1e-6)
