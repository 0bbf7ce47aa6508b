"""Tables of problems: near the objective, resumed, refused, and used by the command line."""

import pickle

import numpy as np
import pytest
from every_problem import Context

import studies.commands  # noqa: F401  # adds its commands
from fbo_flower.cli.main import run as command
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import make_problem
from fbo_flower.simulation.problems import TableProblem
from fbo_flower.simulation.problems.table import DelaunayInterpolant
from studies.problems import tabulate as tabulating
from studies.problems.tabulate import describe, first_design, next_design, tabulate


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Himmelblau's function of three agents, shifted for each."""
    problem = make_problem("himmelblau", 3, 1, {})
    path = tmp_path_factory.mktemp("table") / "h.npz"
    return problem, tabulate(problem, path, 150, 100, 1)


def test_a_table_is_near_the_objective_and_knows_how_near_and_travels(table):
    problem, path = table
    made = pickle.loads(pickle.dumps(make_problem(f"table:{path}", None, 0)))
    assert made == make_problem(f"table:{path}", None, 0)
    assert made.num_agents == 3
    assert made.space == problem.space
    rng, errors = np.random.default_rng(5), []
    for agent in range(3):
        points = rng.random((200, 2))
        real = np.array([problem.true_value(problem.space.decode(p), agent) for p in points])
        ours = np.array([made(made.space.decode(p), Context(agent, rng)) for p in points])
        assert np.corrcoef(real, ours)[0, 1] > 0.97
        errors.append(np.abs(real - ours).mean())
        assert made.optimum(agent) == made.data.surfaces[agent].values.max()
        points_of = made.data.surfaces[agent].points
        assert len(points_of) == len(np.unique(points_of, axis=0)) == 150
    assert not (path.parent / "h.npz.parts").exists()
    text = describe(path)
    assert "himmelblau: 3 agents, 150 points each" in text
    assert float(text.split("mean ")[1].split(",")[0]) == pytest.approx(np.mean(errors), rel=0.5)


def test_a_stopped_run_goes_on_and_gives_the_same_file(table, tmp_path, monkeypatch):
    problem, whole = table
    real = tabulating.evaluate

    def stopping(p, agent, points):
        if agent == 2:
            raise KeyboardInterrupt
        return real(p, agent, points)

    monkeypatch.setattr(tabulating, "evaluate", stopping)
    with pytest.raises(KeyboardInterrupt):
        tabulate(problem, tmp_path / "h.npz", 150, 100, 1)
    with pytest.raises(ConfigError, match="same settings"):
        tabulate(problem, tmp_path / "h.npz", 151, 100, 1)
    evaluated = []
    monkeypatch.setattr(tabulating, "evaluate", lambda *a: evaluated.append(a[1]) or real(*a))
    path = tabulate(problem, tmp_path / "h.npz", 150, 100, 1)
    assert set(evaluated) == {2}
    with np.load(path) as one, np.load(whole) as two:
        assert all(np.array_equal(one[name], two[name]) for name in one.files)


def test_spaces_that_are_no_small_cube_and_files_that_are_no_tables_are_refused(table, tmp_path):
    with pytest.raises(ConfigError, match="at most 3 parameters"):
        tabulate(make_problem("rastrigin-10d", 2, 0, {}), tmp_path / "r.npz")
    (tmp_path / "a.npz").write_bytes(b"no zip")
    np.savez(tmp_path / "c.npz", header=np.array("{}"))
    for name, text in (("nothing", "No such file"), ("a", "made by"), ("c", "python -m studies tabulate")):
        with pytest.raises(ConfigError, match=text):
            make_problem(f"table:{tmp_path / name}.npz", None, 0)
    with pytest.raises(ConfigError, match="no options; got scale"):
        make_problem(f"table:{table[1]}", None, 0, {"scale": "log"})
    with pytest.raises(ConfigError, match="at most 3 agents, got 4"):
        TableProblem(4, 0, str(table[1]))


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
    assert "'--points': 2 is not in the range x>=8" in capsys.readouterr().err


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_new_points_go_where_the_function_is_steep(dimension):
    def cliff(x):
        return np.tanh(40 * (x[:, 0] - 0.3))

    points = first_design(64, dimension)
    assert points.shape == (64, dimension)
    for _ in range(4):
        new = next_design(points, cliff(points), 40)
        assert len(np.unique(np.concatenate([points, new]), axis=0)) == len(points) + 40
        points = np.concatenate([points, new])
    assert (np.abs(points[64:, 0] - 0.3) < 0.15).mean() > 0.5  # by chance .3
    z = np.random.default_rng(0).random((2000, dimension))
    uniform = first_design(len(points), dimension)
    errors = [np.abs(DelaunayInterpolant(p, cliff(p))(z) - cliff(z)).mean() for p in (points, uniform)]
    assert errors[0] < (0.5 if dimension < 3 else 1.1) * errors[1]  # a wall in space takes many points
