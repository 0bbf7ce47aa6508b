"""Small budgets: the functions, what the comparators spend, and the report."""

import numpy as np
import pytest

from studies.papers.pne import budgets, gp_reference
from studies.papers.pne.budgets import CLASSICS
from studies.papers.pne.client import Shifted


@pytest.mark.parametrize("name", CLASSICS)
def test_no_point_is_better_than_the_optimum_and_values_are_in_the_unit_interval(name):
    problem = CLASSICS[name](2, 1)
    points = np.random.default_rng(0).random((10_000, problem.dimension))
    for m in range(2):
        values = problem.values(points, m)
        assert -1e-3 < values.min() < values.max() <= problem.optimum(m) <= 1.0 + 1e-9
    unshifted = CLASSICS[name](1, 1, shift_stddev=0.0)
    assert unshifted.optimum(0) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("name", ["random", "halving", "local-gp"])
@pytest.mark.parametrize("budget", [1, 7, 40])
def test_comparators_spend_exactly_their_budget(name, budget):
    surface = Shifted(CLASSICS["branin"](2, 1))
    run = budgets.drivers(budget)[name](surface, budget, 5)
    assert run.pulls_per_depth.sum() == 2 * budget
    assert (run.simple >= -1e-9).all()
    assert (run.final >= run.simple.min() * 0).all()


def test_with_one_objective_and_few_pulls_agents_together_are_ahead_of_each_alone():
    problem = CLASSICS["hartmann-3"](8, 2, shift_stddev=0.02)
    together, alone = (
        drive(Shifted(problem), 20, 2) for drive in (gp_reference.gp_pne, gp_reference.local_gp)
    )
    assert together.final.mean() < 0.7 * alone.final.mean()


def test_the_report_has_a_table_per_budget(tmp_path, monkeypatch):
    monkeypatch.setattr(budgets, "FUNCTIONS", ("branin",))
    heard = []
    (file,) = budgets.run(tmp_path / "small", True, 1, lambda *heard_now: heard.append(heard_now))
    text = file.read_text()
    assert "## T = 10: Cumulative regret per pull" in text
    assert "| function | racing | hct |" in text, "a process is too slow for 300 pulls"
    assert text.count("| branin |") == 4
    assert heard[-1] == ("300 pulls", 2, 2)
