"""`fbo-flower simulate FILE.py:FUNCTION`: a function, files and a search space of one's own."""

import os
import shlex
import shutil
import sys

import pytest
from processes import python

from fbo_flower.cli.main import run
from fbo_flower.cli.plan import read_space
from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.study import Study

CODE = """
import neighbour

def score(config, path):
    return neighbour.distance(config["x"], float(path.read_text()))
"""
SPACE = 'x = {low = 0, high = 1.0}\nkind = ["a", "b"]\nn = {low = 1, high = 4, active_when = {kind = "a"}}\n'


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.delitem(sys.modules, "neighbour", raising=False)
    (tmp_path / "score.py").write_text(CODE)
    (tmp_path / "neighbour.py").write_text("def distance(x, centre):\n    return abs(x - centre)\n")
    (tmp_path / "space.toml").write_text(SPACE)
    for name, centre in {"site-2": 0.2, "site-10": 0.3}.items():
        (tmp_path / f"{name}.csv").write_text(str(centre))
    return tmp_path


GIVEN = shlex.split("simulate score.py:score --data site-*.csv --space space.toml --engine inline -q")


@pytest.mark.usefixtures("unpictured")
def test_a_function_is_minimised_on_files_and_resumed_elsewhere(here, monkeypatch):
    given = [*GIVEN, "--minimize", "--algorithm", "random", "--rounds", "3", "--journal", "--out", "study"]
    assert run(given) == 0
    study = Study.load(here / "study")
    assert list(study.best) == ["site-2", "site-10"]
    assert study.minimizes("random")
    monkeypatch.chdir(here.parent)
    assert run(["simulate", "--resume", str(here / "study"), "-q"]) == 0
    assert Study.load(here / "study").trials == study.trials


@pytest.mark.usefixtures("unpictured")
def test_a_function_of_several_outputs_has_limits_and_the_best_are_fronts(here, capsys):
    (here / "score.py").write_text(
        'def score(config, path):\n    x = config["x"]\n    return {"loss": (x - 0.8) ** 2, "ms": 20 * x}\n'
    )
    aims = ["--objectives", "loss min, ms min", "--limits", "ms <= 10", "--limits", "site-2: ms <= -1"]
    given = [*GIVEN[:-1], "--algorithm", "random", "--rounds", "8", "--out", "study", *aims]
    assert run([*given, "--journal"]) == 0
    assert "No configuration holds the limits of site-2." in capsys.readouterr().out
    study = Study.load(here / "study")
    assert study.infeasible == ["site-2"]
    assert study.front("site-10").values[:, 1].max() <= 10
    shutil.rmtree(here / "study" / "journals")
    capsys.readouterr()
    assert run(["best", "study"]) == 0
    text = capsys.readouterr().out
    assert "Agent site-2, study study, random\n  no configuration holds the limits\n  evaluations: 10" in text
    assert f"front of {len(study.front('site-10').configs)}:\n    loss " in text


@pytest.mark.ray
def test_workers_find_the_neighbours_of_a_function_wherever_the_command_is_typed(here):
    given = [str(here / word) if "." in word else word for word in GIVEN[:6]]
    command = [*given, "--algorithm", "random", "--rounds", "1", "-q", "--out", str(here / "study")]
    python("-m", "fbo_flower.cli", *command, cwd="/")
    assert not any(Study.load(here / "study").trials["failure"].tolist())


def test_a_space_is_read_from_toml(tmp_path):
    (tmp_path / "space.toml").write_text(
        SPACE + 'C = {low = 1e-3, high = 10, log = true}\nsize = {kind = "ordinal", choices = [1, 2, 8]}\n'
    )
    two = {"x": Float(0, 1), "kind": Categorical(["a", "b"])}
    more = {"n": Int(1, 4, active_when={"kind": "a"}), "C": Float(1e-3, 10, log=True)}
    assert read_space(tmp_path / "space.toml") == SearchSpace({**two, **more, "size": Ordinal([1, 2, 8])})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score.py:score": "lost.py:score"}, "expected a file"),
        ({"score.py:score": "score.py:scor"}, "did you mean score?"),
        ({"space.toml": "lost.toml"}, "--space: "),
        ({"space.toml": "neighbour.py"}, "--space: "),
        ({"score.py:score": "--minimize"}, "expected FILE.py:FUNCTION as well"),
        ({"-q": "--objectives=ms mim"}, "objectives: ms: expected 'max' or 'min', got 'mim'"),
        ({"inline": "inline", "-q": "--agents=3"}, "expected with a bundled problem only"),
    ],
)
def test_what_is_missing_is_named(here, changes, message, capsys):
    assert run([changes.get(word, word) for word in GIVEN]) == 2
    assert message in capsys.readouterr().err
