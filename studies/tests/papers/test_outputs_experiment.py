"""Several outputs: the problems' values, scores before and after an agent holds its limits, the report."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from studies.jobs import load
from studies.papers import outputs
from studies.papers.output_peers import is_installed
from studies.problems.outputs import PROBLEMS, forest, hartmann, shift, zdt1


def test_shifted_functions_have_the_papers_values_where_they_are_known() -> None:
    site = PROBLEMS["Hartmann-6"].sites(3)["2"]
    best = np.array([0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573])
    found = hartmann(dict(enumerate(best - shift(site, 6))), site)
    assert found["value"] == pytest.approx(-3.32237, abs=1e-5)
    assert found["norm"] == pytest.approx(np.linalg.norm(best))
    on_front = zdt1({0: 0.25, **dict(enumerate(0.1 + shift(site, 4), start=1))}, site)
    assert (on_front["first"], on_front["second"]) == (0.25, pytest.approx(0.5))


def test_a_forest_costs_its_nodes_and_the_comparisons_of_a_row() -> None:
    site = PROBLEMS["small forest"].sites(0)["0"]
    stumps = forest({"trees": 3, "depth": 1, "features": 1.0, "leaf": 1}, site)
    assert stumps["comparisons"] == 3.0
    assert stumps["kilobytes"] == 9 * 16 / 1024


def test_a_score_is_the_median_until_the_limits_hold_and_then_never_falls() -> None:
    problem = PROBLEMS["Branin"]
    site = problem.sites(0)["0"]
    values = np.array([[-1.0, -60.0], [-70.0, -40.0], [-2.0, -50.0], [-30.0, -10.0]])
    found = outputs.score(problem, site, values)
    assert found[0] == found[1] < -2.0  # the second holds the limits and is worse than the median
    assert found[2:].tolist() == [-2.0, -2.0]


def test_a_front_outside_the_limits_has_no_volume() -> None:
    problem = PROBLEMS["C2-DTLZ2"]
    values = np.array([[-0.5, -0.5, -0.1], [-1.0, -1.0, 0.1]])
    assert outputs.score(problem, problem.sites(0)["0"], values) == pytest.approx([0.0, 0.25])


def test_a_quick_experiment_writes_tables_and_a_picture(tmp_path: Path) -> None:
    files = outputs.run(tmp_path, True, 1, lambda *_: None)
    assert {file.name for file in files} == {"results.md", "results.csv", "gains.png"}
    first = load(tmp_path, outputs.scores, "Branin", "random", 500)["score"]
    assert first.shape == (8, 10)
    assert (np.diff(first) >= 0).all()
    rows = {row["row"]: row for row in csv.DictReader((tmp_path / "results.csv").open())}
    assert rows.keys() == set(outputs.TOGETHER)
    drawn = [load(tmp_path, outputs.scores, "Branin", "random", seed)["score"][:, -1] for seed in (500, 501)]
    assert float(rows["random"]["mean"]) == pytest.approx(np.mean(drawn), rel=1e-3)


@pytest.mark.parametrize("row", outputs.ALONE)
@pytest.mark.parametrize("label", ["Branin", "C2-DTLZ2"])
def test_other_libraries_tune_an_agent_from_its_random_points(label: str, row: str) -> None:
    if not is_installed(row):
        pytest.skip(f"{row} comes with the extra bench")
    found = outputs.alone(label, "0", row, 1, 4)
    starts = outputs.starting_points(label, 1)["0"]
    problem = PROBLEMS[label]
    expected = [problem.function(config, problem.sites(1)["0"]) for config in starts]
    aims = problem.aims(problem.sites(1)["0"])
    assert found[:3] == pytest.approx(np.array([[e[n] for n in aims.names] for e in expected]) * aims.signs)
    assert found.shape == (4, len(aims.names))
