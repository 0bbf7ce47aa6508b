import json
import pickle

import numpy as np
import pytest
from every_problem import Context

import studies.commands  # noqa: F401  # adds its commands
from fbo_flower.cli.main import run as command
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import make_problem
from fbo_flower.simulation.problems import TableProblem, read_table
from fbo_flower.simulation.problems.table import DelaunayInterpolant
from studies.problems import tabulate as tabulating
from studies.problems.tabulate import accuracy, describe, first_design, next_design, tabulate


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Himmelblau's function of three agents, shifted for each."""
    problem = make_problem("himmelblau", 3, 1, {})
    path = tmp_path_factory.mktemp("table") / "h.npz"
    return problem, tabulate(problem, path, 150, 100, 1)


def test_a_table_is_near_the_objective_and_knows_how_near(table):
    problem, path = table
    made = make_problem(f"table:{path}", None, 0)
    assert made.num_agents == 3
    assert made.space == problem.space
    rng = np.random.default_rng(5)
    for agent in range(3):
        points = rng.random((200, 2))
        real = np.array([problem.true_value(problem.space.decode(p), agent) for p in points])
        ours = np.array([made(made.space.decode(p), Context(agent, rng)) for p in points])
        said = accuracy(made.data)["mean"][agent]
        assert np.corrcoef(real, ours)[0, 1] > 0.97
        assert np.abs(real - ours).mean() == pytest.approx(said, rel=0.5)
        assert made.optimum(agent) == made.data.surfaces[agent].values.max()
        points_of = made.data.surfaces[agent].points
        assert len(points_of) == len(np.unique(points_of, axis=0)) == 150
    assert not (path.parent / "h.npz.parts").exists()
    assert "himmelblau: 3 agents, 150 points each" in describe(path)


def test_a_table_travels_to_other_processes(table):
    made = make_problem(f"table:{table[1]}", 2, 0)
    again = pickle.loads(pickle.dumps(made))
    assert again == made
    assert (again.name, again.metric) == (made.name, made.metric)


def test_a_stopped_run_goes_on_and_gives_the_same_file(table, tmp_path, monkeypatch):
    problem, whole = table
    evaluated = []
    real = tabulating.evaluate

    def stopping(p, agent, points):
        if len(evaluated) == 10:
            raise KeyboardInterrupt
        evaluated.append(len(points))
        return real(p, agent, points)

    monkeypatch.setattr(tabulating, "evaluate", stopping)
    with pytest.raises(KeyboardInterrupt):
        tabulate(problem, tmp_path / "h.npz", 150, 100, 1)
    done = sum(evaluated)
    assert done > 250
    evaluated.clear()
    monkeypatch.setattr(tabulating, "evaluate", lambda *a: evaluated.append(len(a[2])) or real(*a))
    path = tabulate(problem, tmp_path / "h.npz", 150, 100, 1)
    assert sum(evaluated) == 3 * 250 - done
    with np.load(path) as one, np.load(whole) as two:
        assert all(np.array_equal(one[name], two[name]) for name in one.files)


def test_parts_of_another_table_are_refused(table, tmp_path):
    (tmp_path / "t.npz.parts" / "jobs").mkdir(parents=True)
    (tmp_path / "t.npz.parts" / "experiment.json").write_text(json.dumps({"points": 7}))
    with pytest.raises(ConfigError, match="same settings"):
        tabulate(table[0], tmp_path / "t.npz", 150, 100, 1)


def test_spaces_that_are_no_small_cube_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="at most 3 parameters"):
        tabulate(make_problem("rastrigin-10d", 2, 0, {}), tmp_path / "r.npz")
    forest = make_problem("breast-cancer-5sites", None, 0, {"learner": "forest", "split": "srs"})
    with pytest.raises(ConfigError, match="all of them Float"):
        tabulate(forest, tmp_path / "f.npz")


def test_files_that_are_no_tables_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        make_problem(f"table:{tmp_path / 'nothing.npz'}", None, 0)
    for name, content in (("a.npz", b"no zip"), ("b.npz", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match="expected a file made by `python -m studies tabulate`"):
            make_problem(f"table:{tmp_path / name}", None, 0)
    np.savez(tmp_path / "c.npz", header=np.array("{}"))
    with pytest.raises(ConfigError, match="python -m studies tabulate"):
        make_problem(f"table:{tmp_path / 'c.npz'}", None, 0)


def test_options_and_too_many_agents_are_refused(table):
    with pytest.raises(ConfigError, match="no options; got scale"):
        make_problem(f"table:{table[1]}", None, 0, {"scale": "log"})
    with pytest.raises(ConfigError, match="at most 3 agents, got 4"):
        TableProblem(4, 0, str(table[1]))
    assert read_table(str(table[1])).header["problem"] == "himmelblau"


def test_command_line_writes_a_table_and_a_study_on_it(tmp_path, capsys, monkeypatch):
    def run(*arguments):
        return command([*map(str, arguments)])

    monkeypatch.chdir(tmp_path)
    size = ("--agents", 1, "--points", 16, "--held-out", 4, "--workers", 1)
    assert run("tabulate", "garland", *size) == 0
    assert "1 agents, 16 points each" in capsys.readouterr().out
    settings = ("--algorithm", "random", "--rounds", 2, "--engine", "inline", "--quiet", "--out", "run")
    assert run("simulate", "--problem", "table:garland-table.npz", *settings) == 0
    assert run("tabulate", "garland", "--points", 2) == 2
    assert "points: expected an integer between 8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dimension", "count", "expected"), [(1, 10, 10), (2, 10, 9), (2, 2, 4), (3, 30, 27)]
)
def test_first_design_is_the_largest_grid_that_fits(dimension, count, expected):
    points = first_design(count, dimension)
    assert points.shape == (expected, dimension)
    assert set(points.ravel()) >= {0.0, 1.0}


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_new_points_go_where_the_function_is_steep(dimension):
    def cliff(x):
        return np.tanh(40 * (x[:, 0] - 0.3))

    points = first_design(64, dimension)
    for _ in range(4):
        new = next_design(points, cliff(points), 40)
        assert len(new) == 40
        assert len(np.unique(np.concatenate([points, new]), axis=0)) == len(points) + 40
        points = np.concatenate([points, new])
    added = points[64:]
    assert (np.abs(added[:, 0] - 0.3) < 0.15).mean() > 0.5  # by chance .3
    z = np.random.default_rng(0).random((2000, dimension))
    uniform = first_design(len(points), dimension)
    errors = [np.abs(DelaunayInterpolant(p, cliff(p))(z) - cliff(z)).mean() for p in (points, uniform)]
    assert errors[0] < (0.5 if dimension < 3 else 1.1) * errors[1]  # a wall in space takes many points
