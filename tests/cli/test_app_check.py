"""`fbo-flower run` of an app with a mistake: one line before Flower gets the app."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fbo_flower.cli.flower_cli import FlowerCLI, read_app
from fbo_flower.cli.main import run
from fbo_flower.cli.new import new_app
from fbo_flower.cli.run import check_app, mistake_in

HEAD = """
from fbo_flower import Float, SearchSpace
from fbo_flower.clients import client_app
space = SearchSpace({"x": Float(0, 1)})
def objective(config, context):
    return config["x"]
"""

MISTAKES = [
    # client_app.py -> what the line says, and whether it is a mistake in every environment
    (
        "app = client_app(objective, {'x': (0, 1)})",
        "space: expected a SearchSpace, got a dict; wrap it",
        True,
    ),
    (
        "app = objective",
        "clientapp my_app.client_app:app: expected a ClientApp, as in app = client_app(",
        True,
    ),
    ("apps = client_app(objective, space)", "module 'my_app.client_app' has no attribute 'app'", False),
    ("app = client_app(objective, spacee)", "name 'spacee' is not defined (client_app.py, line 7)", False),
    ("app = client_app(objective, space", "SyntaxError: '(' was never closed (client_app.py, line 7)", False),
    ("import torchy", "No module named 'torchy' (client_app.py, line 7)", False),
    ("app = client_app(objective, space)", "", True),
]


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a new app; Flower must not be called."""

    def submit(*_: object) -> str:
        raise AssertionError("Flower got the app")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower"))
    monkeypatch.setattr("fbo_flower.cli.flower_cli.running_processes", list)
    monkeypatch.setattr(FlowerCLI, "submit", submit)
    new_app("my-app")
    return tmp_path / "my-app"


def client(app: Path, text: str) -> None:
    (app / "my_app" / "client_app.py").write_text(HEAD + text + "\n")


@pytest.mark.parametrize(("text", "line", "everywhere"), MISTAKES)
def test_a_mistake_in_the_app_is_one_line(
    text: str, line: str, everywhere: bool, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client(app, text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    reason, found = mistake_in(app, {"clientapp": "my_app.client_app:app"})
    for name in [name for name in sys.modules if name.split(".")[0] == "my_app"]:
        del sys.modules[name]
    assert (bool(reason), found) == (bool(line), everywhere)
    assert line in reason
    assert "\n" not in reason


def test_a_mistake_ends_the_command_before_flower_gets_the_app(
    app: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (app / "my_app" / "server_app.py").write_text("from fbo_flower.strategies import FTS\napp = FTS()\n")
    before = sorted(app.rglob("*"))
    assert run(["run", "my-app"]) == 2
    out, err = capfd.readouterr()
    assert "serverapp my_app.server_app:app: expected a ServerApp, as in" in err
    assert (out, err.count("\n"), err[:7]) == ("", 1, "error: ")
    assert sorted(app.rglob("*")) == before, "nothing was written"


@pytest.mark.parametrize("text", ["print('last')\nimport os\nos._exit(3)", "import torchy"])
def test_a_sound_app_and_what_only_flower_can_judge_are_left_to_flower(text: str, app: Path) -> None:
    client(app, f"app = client_app(objective, space)\nprint('{{\"a\": 1}}')\n{text}")
    project = read_app("my-app")
    assert project is not None
    check_app("my-app", project, runs_here=not text.startswith("import"))  # it may be installed elsewhere
