"""`fbo-flower run`: the status of the run is the status of the command."""

import json
import sys
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args

from fbo_flower.cli import flower_cli
from fbo_flower.cli.flower_cli import (
    NO_INSTALLATION,
    PORT,
    Connection,
    FlowerCLI,
    check_simulation,
    missing_dependencies,
    read_app,
)
from fbo_flower.cli.main import run
from fbo_flower.cli.new import new_app
from fbo_flower.cli.run import check_app, mistake_in
from fbo_flower.errors import ConfigError

# stands for flwr: notes what it was called with, and answers from a file; a run is over at the second look
FAKE = """
import json, os, sys
from pathlib import Path
here = Path(os.environ["FAKE_HOME"])
with (here / "calls").open("a") as file:
    variable = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"
    print(json.dumps([sys.argv[1:], os.environ.get(variable)]), file=file)
answers = json.loads((here / "answers").read_text())
command = sys.argv[1]
if command == "log":
    print("\x1b[92mround\x1b[0m 1 of 1" + answers["log"])
elif command == "list" and answers["status"] == "lost":
    print(json.dumps({"success": False, "error-message": "Connection refused"}))
    sys.exit(1)
elif command == "list":
    looks = sum('["list"' in line for line in (here / "calls").read_text().splitlines())
    status = answers["status"] if looks > 1 else "running"
    print(json.dumps({"success": True, "runs": [{"status": status, "status-details": answers["details"]}]}))
elif answers.get("refusal"):
    print(json.dumps({"success": False, "error-message": answers["refusal"]}))
    sys.exit(1)
else:
    print("Starting a SuperLink {not JSON}")
    print(json.dumps({"success": True, "run-id": "17"}, indent=2))
"""


class Flower:
    """What `flwr` is to answer, and what it was asked."""

    def __init__(self, home):
        self.home = home
        self.answers(status="finished:completed")

    def answers(self, status="", details="N/A", refusal="", log=""):
        text = json.dumps({"status": status, "details": details, "refusal": refusal, "log": log})
        (self.home / "answers").write_text(text)

    @property
    def calls(self):
        return [json.loads(line) for line in (self.home / "calls").read_text().splitlines()]


@pytest.fixture
def app(tmp_path, monkeypatch):
    """A new app in this directory, on a machine on which no SuperLink runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower"))
    monkeypatch.setattr(flower_cli, "running_processes", list)
    monkeypatch.setattr(flower_cli, "_is_free", lambda port: True)
    new_app(tmp_path / "my-app")
    return tmp_path / "my-app"


@pytest.fixture
def flower(app, tmp_path, monkeypatch):
    monkeypatch.setattr(flower_cli, "_CODE", FAKE)
    monkeypatch.setattr("fbo_flower.cli.run._PAUSE", 0.0)
    monkeypatch.setenv("FAKE_HOME", str(tmp_path))
    monkeypatch.setattr("fbo_flower.cli.run.check_app", lambda *_, **__: None)  # see below: unsent
    monkeypatch.delenv(NO_INSTALLATION, raising=False)
    return Flower(tmp_path)


def test_a_run_that_succeeds_is_streamed_without_flowers_own_start_and_ends_with_0(flower, app, capfd):
    start = "\nINFO :      Starting Flower Simulation\nINFO :      Starting my study\nWARNING :   mine"
    flower.answers(status="finished:completed", log=start)
    given = ["num-rounds=3", "--federation-config", "num-supernodes=4"]
    assert run(["run", str(app), "deploy", "-c", *given]) == 0
    out, err = capfd.readouterr()
    assert out.count("round 1 of 1") == 2, "the log was followed again each time the run was not over"
    assert "Run 17 finished:completed" in err
    assert "Starting Flower Simulation" not in out
    assert out.count("INFO :      Starting my study\nWARNING :   mine") == 2
    assert "\x1b" not in out + err, "a redirected log has no colours"
    assert flower.calls[0][0] == ["run", str(app), "deploy", "--run-config", *given, "--format", "json"]
    assert flower.calls[1][0] == ["log", "17", "deploy", "--stream"]


TRACEBACK = "\nTraceback\nfbo_flower.errors.{}: space: expected a SearchSpace, got a dict\n more"
FAILED = "finished:failed"
SPACE = f"run 17 {FAILED}: space: expected a SearchSpace, got a dict"


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        (
            {"status": FAILED, "details": "ConfigError: agents: 3"},
            1,
            f"run 17 {FAILED}: ConfigError: agents: 3",
        ),
        ({"status": "finished:stopped", "details": "by hand"}, 1, "run 17 finished:stopped: by hand"),
        ({"status": FAILED, "details": "An error.", "log": TRACEBACK.format("ConfigError")}, 2, SPACE),
        ({"status": FAILED, "details": "An error.", "log": TRACEBACK.format("ObjectiveError")}, 1, SPACE),
        ({"refusal": "There is no\nconnection 'deploi'"}, 2, "There is no connection 'deploi'"),
    ],
)
def test_a_run_that_does_not_succeed_ends_with_the_reason_and_a_status_as_elsewhere(
    answers, code, said, flower, app, capfd
):
    flower.answers(**answers)
    assert run(["run", str(app), "-q"]) == code
    out, err = capfd.readouterr()
    assert (out, err.count("\n"), err[:7]) == ("", 1, "error: ")
    assert said in err


def test_only_dependencies_that_are_missing_are_named_and_left_to_flower(flower, app, capfd):
    assert missing_dependencies(read_app(str(app)) or {}) == []
    assert run(["run", str(app), "-q"]) == 0
    assert {installation for _, installation in flower.calls} == {"1"}
    flower.answers(status=FAILED, details="Failed to install app dependencies")
    assert run(["run", str(app), "-q"]) == 1, "a SuperLink that installs by itself"
    assert "--disable-runtime-dependency-installation" in capfd.readouterr().err
    flower.answers(status="finished:completed")
    pyproject = app / "pyproject.toml"
    text = pyproject.read_text().replace('"scikit-learn>=1.5"', '"scikit-learn>=99", "no-such-thing"')
    pyproject.write_text(text)
    assert run(["run", str(app)]) == 0
    err = capfd.readouterr().err
    assert "Flower needs an index for them: scikit-learn>=99, no-such-thing" in err
    assert flower.calls[-1][1] is None


def test_requirements_are_read_with_versions_and_markers():
    numpy = metadata.version("numpy")
    dependencies = [f"numpy=={numpy}", "numpy<1", "nowhere; python_version < '3'", "???"]
    dependencies += ["fbo-flower>=0.1", "fbo-flower>=99"]
    missing = missing_dependencies({"project": {"dependencies": dependencies}})
    assert missing == ["numpy<1", "???", "fbo-flower>=99"]
    assert missing_dependencies({}) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "it holds no pyproject.toml"), ("[project]", "tool.flwr.app")],
)
def test_a_directory_without_an_app_is_an_error(content, words, tmp_path):
    if content is not None:
        (tmp_path / "pyproject.toml").write_text(content)
    with pytest.raises(ConfigError, match="app: expected") as raised:
        read_app(str(tmp_path))
    assert words in str(raised.value)
    assert read_app("@someone/app") is None


def test_ctrl_c_leaves_the_run_alone_and_says_how_to_stop_it(flower, app, monkeypatch, capfd):
    def interrupt(self, run_id, everything):
        raise KeyboardInterrupt

    monkeypatch.setattr(FlowerCLI, "stream", interrupt)
    assert run(["run", str(app), "deploy"]) == 130
    assert "flwr stop 17 deploy" in capfd.readouterr().err


# -- what is checked and completed before Flower gets it


def submitted(flower):
    """Return the run config and the federation config that Flower got, as Flower reads them."""
    words = flower.calls[0][0]
    given = {"--run-config": [], "--federation-config": []}
    for option, value in pairwise(words):
        given.get(option, []).append(value)
    return parse_config_args(given["--run-config"]), parse_config_args(given["--federation-config"])


def test_every_file_becomes_a_simulated_node_in_natural_order(flower, app, tmp_path, capfd):
    folder = tmp_path / "it's data"
    folder.mkdir()
    for name in ("site-10", "site-2", "site-1"):
        (folder / f"{name}.csv").write_text("a,b\n")
    assert run(["run", str(app), "--data", "it's data/*.csv", "-c", "num-rounds=2"]) == 0
    run_config, federation = submitted(flower)
    expected = [str(folder / f"site-{number}.csv") for number in (1, 2, 10)]
    assert json.loads(run_config["data"]) == expected
    assert run_config["num-rounds"] == 2
    assert federation == {"num-supernodes": 3}
    assert f"Agent site-2: {expected[1]}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        (["-c", "num-clients=10"], {"num-supernodes": 10}),
        (["-c", "num-agents=5", "--federation-config", "num-supernodes=7"], {"num-supernodes": 7}),
        ([], {}),
    ],
)
def test_a_simulation_has_as_many_nodes_as_agents_are_awaited(words, nodes, flower, app):
    if "num-clients=10" in words:  # an app may name its nodes so
        pyproject = app / "pyproject.toml"
        pyproject.write_text(pyproject.read_text().replace("num-agents", "num-clients"))
    assert run(["run", str(app), *words]) == 0
    assert submitted(flower)[1] == nodes


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ([], None),  # Flower reads the options itself
        (["--federation-config", "client-resources-num-cpus=3"], {"client-resources-num-cpus": 3}),
    ],
)
def test_what_a_connection_says_of_its_clients_reaches_the_simulation(words, changes, flower, app, tmp_path):
    (tmp_path / "flower").mkdir()
    (tmp_path / "flower" / "config.toml").write_text(
        '[superlink]\ndefault = "local"\n[superlink.local.options.backend]\nname = "ray"\n'
        "client-resources.num-gpus = 0.5\nclient-resources.num-cpus = 2\n"
    )
    assert run(["run", str(app), *words]) == 0
    ours = {"backend": "ray", "client-resources-num-gpus": 0.5, "client-resources-num-cpus": 2}
    assert submitted(flower)[1] == ({} if changes is None else {**ours, **changes})


@pytest.mark.parametrize("as_file", [False, True])
def test_relative_paths_begin_where_the_command_was_typed(as_file, flower, app, tmp_path, capfd):
    text = "num-rounds=2 out='runs/my first' journal='study.db'"
    if as_file:
        (tmp_path / "run.toml").write_text(text.replace(" out", "\nout").replace(" journal", "\njournal"))
    assert run(["run", str(app), "-c", "run.toml" if as_file else text]) == 0
    run_config, _ = submitted(flower)
    results = tmp_path / "runs" / "my first"
    assert run_config == {"num-rounds": 2, "out": str(results), "journal": str(tmp_path / "study.db")}
    err = capfd.readouterr().err
    assert f"Results will be in {results}\n" in err
    assert err.endswith(f"Results: {results}\n")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["-c", "journal='study.db'"], "run the same command again to resume"),
        ([], "run the same command again; with journal='FILE' in --run-config it would resume"),
    ],
)
def test_a_superlink_that_died_is_named_with_what_to_do(words, remedy, flower, app, capfd):
    flower.answers(status="lost")
    assert run(["run", str(app), "-q", *words]) == 1
    err = capfd.readouterr().err
    assert err.startswith(f"error: run 17: the SuperLink cannot be reached any more; {remedy} (")
    assert err.count("\n") == 1


def test_a_superlink_of_somebody_else_is_left_alone_and_this_environment_gets_its_own(tmp_path, monkeypatch):
    def superlink(scripts, port, process):
        ports = f"--control-api-address 127.0.0.1:{int(port) + 2} --host 127.0.0.1 --port {port}"
        log = "--log-file /home/local-superlink/superlink.log"
        return process, f"{scripts}/python {scripts}/flower-superlink --simulation {ports} {log}"

    here, local, taken = Path(sys.executable).parent, Connection("local", ":local:"), {PORT}
    processes = [(8, "/other/bin/flower-superlink --port 9091"), (9, "vim flower-superlink")]
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text("[superlink]\n")
    monkeypatch.setattr(flower_cli, "running_processes", lambda: processes)
    monkeypatch.setattr(flower_cli, "_is_free", lambda port: port not in taken)
    another_user = check_simulation(local)
    assert PORT not in another_user.values()
    assert Path(another_user["FLWR_HOME"], "config.toml").read_text() == "[superlink]\n"
    processes.append(superlink("/other/bin", PORT, 77))
    assert check_simulation(local)["FLWR_HOME"] == another_user["FLWR_HOME"], "of the same environment"
    processes.append(superlink(here, "5000", 78))
    found = check_simulation(local)
    assert [value for name, value in found.items() if "PORT" in name] == ["5000", "5002"], "it runs already"
    processes[:] = [superlink(here, PORT, 79)]
    assert check_simulation(local) == {}
    assert check_simulation(Connection("deploy", "127.0.0.1:8000")) == {}


def test_a_server_elsewhere_needs_absolute_paths(flower, app, capfd):
    (flower.home / "flower").mkdir()
    (flower.home / "flower" / "config.toml").write_text('[superlink.deploy]\naddress = "far.away:8000"\n')
    assert run(["run", str(app), "deploy", "-q", "-c", "out='runs'"]) == 2
    assert "out: expected an absolute path, because the server runs on another" in capfd.readouterr().err
    assert run(["run", str(app), "deploy", "-q", "-c", "out='/srv/runs'"]) == 0
    assert submitted(flower)[0] == {"out": "/srv/runs"}


# -- the components of an app: a mistake is one line before Flower gets it

HEAD = """
from fbo_flower import Float, SearchSpace
from fbo_flower.clients import client_app
space = SearchSpace({"x": Float(0, 1)})
def objective(config, context):
    return config["x"]
"""

MISTAKES = [
    # client_app.py -> what the line says, and whether it is a mistake in every environment
    ("app = client_app(objective, {'x': (0, 1)})", "space: expected a SearchSpace, got a dict; wrap", True),
    ("app = objective", "clientapp my_app.client_app:app: expected a ClientApp, as in app = client_a", True),
    ("apps = client_app(objective, space)", "module 'my_app.client_app' has no attribute 'app'", False),
    ("app = client_app(objective, spacee)", "name 'spacee' is not defined (client_app.py, line 7)", False),
    ("import torchy", "No module named 'torchy' (client_app.py, line 7)", False),
    ("app = client_app(objective, space)", "", True),
]


@pytest.fixture
def unsent(app, monkeypatch):
    """The app; Flower must not be called."""

    def submit(*_):
        raise AssertionError("Flower got the app")

    monkeypatch.setattr(FlowerCLI, "submit", submit)
    yield app
    for name in [name for name in sys.modules if name.split(".")[0] == "my_app"]:
        del sys.modules[name]


def client(app, text):
    (app / "my_app" / "client_app.py").write_text(HEAD + text + "\n")


@pytest.mark.parametrize(("text", "line", "everywhere"), MISTAKES)
def test_a_mistake_in_the_app_is_one_line(text, line, everywhere, unsent, monkeypatch):
    client(unsent, text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    reason, found = mistake_in(unsent, {"clientapp": "my_app.client_app:app"})
    assert (bool(reason), found) == (bool(line), everywhere)
    assert line in reason
    assert "\n" not in reason


def test_a_mistake_ends_the_command_before_flower_gets_the_app(unsent, capfd):
    (unsent / "my_app" / "server_app.py").write_text("from fbo_flower.strategies import FTS\napp = FTS()\n")
    assert run(["run", "my-app"]) == 2
    out, err = capfd.readouterr()
    assert "serverapp my_app.server_app:app: expected a ServerApp, as in" in err
    assert (out, err.count("\n"), err[:7]) == ("", 1, "error: ")


@pytest.mark.parametrize("text", ["print('last')\nimport os\nos._exit(3)", "import torchy"])
def test_a_sound_app_and_what_only_flower_can_judge_are_left_to_flower(text, unsent):
    client(unsent, f"app = client_app(objective, space)\nprint('{{\"a\": 1}}')\n{text}")
    project = read_app("my-app")
    check_app("my-app", project, runs_here=not text.startswith("import"))  # it may be installed elsewhere
