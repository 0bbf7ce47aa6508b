"""The comparison of fed-ei: its functions have the optima that their sources name."""

from __future__ import annotations

import numpy as np
import pytest

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
    for common in (0.0, 0.64):
        pairs = []
        for seed in range(30):
            made = ShiftedFunction(2, seed, "draws", shift=0.0, common=common)
            pairs.append([[made.score(made.space.decode(p), a) for p in points] for a in range(2)])
        one, other = np.array(pairs).transpose(1, 0, 2).reshape(2, -1)
        correlation = (one * other).mean() / np.sqrt((one**2).mean() * (other**2).mean())
        assert correlation == pytest.approx(common, abs=0.1)
