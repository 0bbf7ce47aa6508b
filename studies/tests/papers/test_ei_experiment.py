"""The comparison of fed-ei: its functions have the optima that their sources name, and the report adds up."""

from __future__ import annotations

import numpy as np
import pytest

from studies.jobs import load_job
from studies.papers.ei import experiment
from studies.papers.ei.late import joined_late
from studies.papers.ei.problems import FUNCTIONS, PROBLEMS, ShiftedFunction

OPTIMA = {
    "hartmann-6": ([0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573], 3.32237),
    "hartmann-3": ([0.114614, 0.555649, 0.852547], 3.86278),
    "branin": ([(np.pi + 5) / 15, 2.275 / 15], 1.0474),
    "ackley-5": ([0.9, 0.1, 0.9, 0.1, 0.9], 0.0),
    "levy-4": ([0.9, 0.1, 0.9, 0.1], 0.0),
    "rastrigin-10": (np.linspace(0.2, 0.8, 10), 0.0),
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


@pytest.mark.parametrize(
    "label", [name for name in PROBLEMS if name not in ("digits",) and "land" not in name]
)
def test_every_problem_of_functions_can_be_evaluated_everywhere(label):
    problem = PROBLEMS[label][1](1)
    for point in np.random.default_rng(0).random((20, problem.space.dimension)):
        assert np.isfinite(problem.true_value(problem.space.decode(point), 0))


def test_the_small_version_writes_its_tables(tmp_path):
    path, *pictures = experiment.run(tmp_path, True, 1, lambda *_: None)
    assert [picture.name for picture in pictures] == ["gains.png", "late.png"]
    assert all(picture.read_bytes()[:4] == b"\x89PNG" for picture in pictures)
    text = path.read_text()
    assert text.count("| Branin |") == 3
    assert "at 3" in text
    best = load_job(tmp_path, "Branin-fed-ei-300")["best"]
    assert best.shape == (4, 6)
    assert "| Branin | 2 | +0.000 ± 0.000 |" in text  # the same starting points


def test_late_joiners_have_one_row_each_and_begin_alone_if_nobody_holds_anything():
    problem = ShiftedFunction(4, 0, "branin")
    late = joined_late(problem, "fed-ei", {"secure_sums": 0}, 2, 4, 3, 0)
    assert late.shape == (2, 3)
    assert (np.diff(late, axis=1) >= 0).all()
    alone = joined_late(problem, "ei", {}, 2, 0, 3, 0)
    assert alone.shape == (2, 3)
