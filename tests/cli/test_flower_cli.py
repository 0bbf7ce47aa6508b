"""`fbo-flower run` has the status of the run; the app that `fbo-flower new` writes runs and tunes."""

import importlib
import json
import os
import re
import shutil
import sys
import tomllib
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import joblib
import pytest
from flower_runtime import Deployment
from flwr.app import Context, RecordDict
from flwr.common.config import parse_config_args
from flwr.supercore.utils import is_valid_name

from fbo_flower.algorithms.aims import Aims
from fbo_flower.algorithms.registry import RECOMMENDED
from fbo_flower.cli import flower_cli
from fbo_flower.cli.flower_cli import (
    NO_INSTALLATION,
    PORT,
    Connection,
    FlowerCLI,
    check_simulation,
    missing_dependencies,
    read_app,
    running_processes,
)
from fbo_flower.cli.main import run
from fbo_flower.cli.new import new_app
from fbo_flower.cli.run import check_app, mistake_in
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.study import Study

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
    assert run(["run", str(app), "-q"]) == 0
    assert {installation for _, installation in flower.calls} == {"1"}
    flower.answers(status=FAILED, details="Failed to install app dependencies")
    assert run(["run", str(app), "-q"]) == 1, "a SuperLink that installs by itself"
    assert "--disable-runtime-dependency-installation" in capfd.readouterr().err
    flower.answers(status="finished:completed")
    pyproject = app / "pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace('"scikit-learn>=1.5"', '"scikit-learn>=99"'))
    assert run(["run", str(app)]) == 0
    assert "Flower needs an index for them: scikit-learn>=99" in capfd.readouterr().err
    assert flower.calls[-1][1] is None


def test_requirements_are_read_with_versions_and_markers():
    dependencies = [f"numpy=={metadata.version('numpy')}", "numpy<1", "nowhere; python_version < '3'", "???"]
    dependencies += ["fbo-flower>=0.1", "fbo-flower>=99"]
    missing = missing_dependencies({"project": {"dependencies": dependencies}})
    assert missing == ["numpy<1", "???", "fbo-flower>=99"]
    assert missing_dependencies({}) == []
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
    given = {"--run-config": [], "--federation-config": []}
    for option, value in pairwise(flower.calls[0][0]):
        given.get(option, []).append(value)
    return tuple(map(parse_config_args, given.values()))


def test_every_file_becomes_a_simulated_node_in_natural_order(flower, app, tmp_path, capfd):
    folder = tmp_path / "it's data"
    folder.mkdir()
    for name in ("site-10", "site-2", "site-1"):
        (folder / f"{name}.csv").write_text("a,b\n")
    assert run(["run", str(app), "--data", "it's data/*.csv", "-c", "num-rounds=2"]) == 0
    run_config, federation = submitted(flower)
    expected = [str(folder / f"site-{number}.csv") for number in (1, 2, 10)]
    assert json.loads(run_config["data"]) == expected
    assert federation == {"num-supernodes": 3}
    assert f"Agent site-2: {expected[1]}" in capfd.readouterr().err


GPU = {"backend": "ray", "client-resources-num-gpus": 0.5, "client-resources-num-cpus": 2}


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ("", {}),  # Flower reads the connection's options itself
        ("-c num-clients=10", GPU | {"num-supernodes": 10}),  # an app may name its agents so
        ("-c num-agents=5 --federation-config num-supernodes=7", GPU | {"num-supernodes": 7}),
        ("--federation-config client-resources-num-cpus=3", GPU | {"client-resources-num-cpus": 3}),
    ],
)
def test_a_simulation_has_the_nodes_that_are_awaited_and_what_a_connection_gives_them(
    words, sent, flower, app, tmp_path
):
    (tmp_path / "flower").mkdir()
    (tmp_path / "flower" / "config.toml").write_text(
        '[superlink]\ndefault = "local"\n[superlink.local.options.backend]\nname = "ray"\n'
        "client-resources.num-gpus = 0.5\nclient-resources.num-cpus = 2\n"
    )
    if "num-clients" in words:
        pyproject = app / "pyproject.toml"
        pyproject.write_text(pyproject.read_text().replace("num-agents", "num-clients"))
    assert run(["run", str(app), *words.split()]) == 0
    assert submitted(flower)[1] == sent


@pytest.mark.parametrize("given", ["run.toml", "num-rounds=2 out='runs/my first' journal='study.db'"])
def test_relative_paths_begin_where_the_command_was_typed(given, flower, app, tmp_path, capfd):
    (tmp_path / "run.toml").write_text("num-rounds=2\nout='runs/my first'\njournal='study.db'")
    assert run(["run", str(app), "-c", given]) == 0
    run_config, _ = submitted(flower)
    results = tmp_path / "runs" / "my first"
    assert run_config == {"num-rounds": 2, "out": str(results), "journal": str(tmp_path / "study.db")}
    assert capfd.readouterr().err.endswith(f"Results: {results}\n")


def test_a_superlink_that_died_is_named_with_what_to_do(flower, app, capfd):
    flower.answers(status="lost")
    resumes = "run the same command again to resume"
    for words, remedy in (
        (["-c", "journal='study.db'"], resumes),
        ([], "with journal='FILE' in --run-config it"),
    ):
        assert run(["run", str(app), "-q", *words]) == 1
        err = capfd.readouterr().err
        assert err.startswith("error: run 17: the SuperLink cannot be reached any more; ")
        assert remedy in err


def test_a_superlink_of_somebody_else_is_left_alone_and_this_environment_gets_its_own(tmp_path, monkeypatch):
    def superlink(scripts, port, process):
        ports = f"--control-api-address 127.0.0.1:{int(port) + 2} --host 127.0.0.1 --port {port}"
        log = "--log-file /home/local-superlink/superlink.log"
        return process, f"{scripts}/python {scripts}/flower-superlink --simulation {ports} {log}"

    here, local = Path(sys.executable).parent, Connection("local", ":local:")
    assert os.getpid() in dict(running_processes())
    processes = [(8, "/other/bin/flower-superlink --port 9091"), (9, "vim flower-superlink")]
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text("[superlink]\n")
    monkeypatch.setattr(flower_cli, "running_processes", lambda: processes)
    monkeypatch.setattr(flower_cli, "_is_free", lambda port: port != PORT)
    another_user = check_simulation(local)
    assert PORT not in another_user.values()
    assert Path(another_user["FLWR_HOME"], "config.toml").read_text() == "[superlink]\n"
    processes.append(superlink("/other/bin", PORT, 77))
    assert check_simulation(local)["FLWR_HOME"] == another_user["FLWR_HOME"], "of the same environment"
    processes.append(superlink(here, "5000", 78))
    found = check_simulation(local)
    assert [value for name, value in found.items() if "PORT" in name] == ["5000", "5002"], "it runs already"
    processes[:] = [superlink(here, PORT, 79)]
    assert check_simulation(local) == check_simulation(Connection("deploy", "127.0.0.1:8000")) == {}


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


@pytest.fixture
def clinic(tmp_path, monkeypatch):
    directory = tmp_path / "clinic-tuning"
    new_app(directory)
    for module in ("clients.agent", "strategies.start_and_end"):  # which draw seeds; tests repeat
        monkeypatch.setattr(f"fbo_flower.{module}.fresh_entropy", lambda: 5)
    monkeypatch.syspath_prepend(str(directory))
    yield directory
    for name in [name for name in sys.modules if name.startswith("clinic_tuning")]:
        del sys.modules[name]


def run_app(directory, node=lambda number: {}, **changes):
    """Run the app over three nodes with journals; `node` returns the operator's other settings of a node."""
    client, server = (importlib.import_module(f"clinic_tuning.{side}_app") for side in ("client", "server"))
    pyproject = tomllib.loads((directory / "pyproject.toml").read_text())
    config = {**pyproject["tool"]["flwr"]["app"]["config"], "num-agents": 3, "num-rounds": 2, **changes}
    config["out"] = str(directory.parent / "study")
    own = {n: {"journal": str(directory.parent / f"agent-{n}.db"), **node(n)} for n in range(3)}
    grid = InProcessGrid(client.app, 3, run_config=config, node_configs=own)
    server.app(grid, Context(1, 0, {}, RecordDict(), config))
    return Study.load(config["out"])


def test_a_new_app_discloses_nothing_under_a_name_and_each_node_trains_its_own_model(
    clinic, tmp_path, capsys
):
    study = run_app(clinic, lambda n: {"model": str(tmp_path / f"{n}.joblib")})
    assert "agent 2: " not in capsys.readouterr().out
    assert study.best == {}
    assert study.settings["runs"][0]["algorithm"] == RECOMMENDED
    journal = str(tmp_path / "agent-1.db")
    assert run(["ledger", journal]) == 0
    assert "Discloses beyond the algorithm's messages: none (chosen by: default)." in capsys.readouterr().out
    assert run(["best", journal, "--json"]) == 0
    (best,) = json.loads(capsys.readouterr().out)
    model = joblib.load(tmp_path / "1.joblib")
    assert best["config"]["C"] == model.steps[-1][1].C
    assert best["value"] < 65  # a constant is 66 off
    with pytest.raises(ConfigError, match="out: expected a directory without a study"):
        run_app(clinic)


def test_a_new_app_tunes_on_files_with_text_and_gaps_and_the_operators_comes_first(clinic, tmp_path):
    for number, length in enumerate((12, 60, 90)):
        rows = [f"{i % 7},{i % 2 or ''},{'east' if i % 3 else 'west'},{10 * (i % 7)}" for i in range(length)]
        (tmp_path / f"rows-{number}.csv").write_text("\n".join(["age,dose,ward,outcome", *rows]))
    files = json.dumps([str(tmp_path / f"rows-{number}.csv") for number in range(3)])
    own = {1: {"data": str(tmp_path / "rows-2.csv"), "agent": "clinic"}}
    client = importlib.import_module("clinic_tuning.client_app")

    def rows_of(number):
        given = {"partition": number, "node_config": own.get(number, {}), "run_config": {"data": files}}
        return len(client.rows(SimpleNamespace(**given))[1])

    assert [rows_of(number) for number in range(3)] == [12, 90, 90]
    study = run_app(clinic, lambda n: {"disclose": "trials", **own.get(n, {})}, data=files)
    assert set(study.best) == {"rows-0", "clinic", "rows-2"}
    assert not any(study.trials["failure"].tolist())
    assert min(best["value"] for best in study.best.values()) < 1, "the outcome follows the age"
    with pytest.raises(ConfigError, match="expected a JSON list with a file for partition 3"):
        rows_of(3)


def test_a_new_app_of_several_outputs_runs_and_a_node_has_bounds_of_its_own(clinic, capsys):
    shutil.rmtree(clinic)
    new_app(clinic, aims=Aims.of(False, "error min, kilobytes min", "kilobytes <= 11"))
    own = {1: {"limits": "kilobytes <= 0.1"}}
    study = run_app(clinic, lambda n: {"disclose": "trials", **own.get(n, {})})
    assert study.infeasible == ["1"]
    assert 0 < study.front("2").values[:, 1].max() <= 11
    assert "agent 2: [" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "instead"),
    [("My App", "my-app"), ("9lives", "lives"), ("a" * 33, "a" * 32), ("é", None)],
)
def test_a_name_that_flower_refuses_is_refused_with_one_that_works(name, instead, tmp_path):
    with pytest.raises(ConfigError, match="try") as raised:
        new_app(tmp_path / name)
    suggestion = str(raised.value).split("try ")[1].strip("'")
    assert suggestion == (instead or suggestion)
    assert is_valid_name(suggestion)[0]
    assert not (tmp_path / name).exists()
    new_app(tmp_path / suggestion)


@pytest.mark.e2e
@pytest.mark.ray
def test_a_new_app_runs_in_simulation_and_overwrites_no_results(tmp_path):
    new_app(tmp_path / "my-app")
    with Deployment(tmp_path / "flower") as deployment:
        deployment.environment |= {"UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}
        deployment.start_superlink("--simulation")
        words = ["python", "-m", "fbo_flower.cli", "run", str(tmp_path / "my-app"), "tests"]
        data = deployment.home / "data"
        data.mkdir(exist_ok=True)
        for name in ("site-10", "site-9", "site-8"):
            rows = [f"{i},{i % 2},{i % 3}" for i in range(30)]
            (data / f"{name}.csv").write_text("\n".join(["age,dose,outcome", *rows]))
        given = ("--data", str(data / "*.csv"), "-c", "num-agents=3 num-rounds=2 out='runs/first'")
        done = deployment.command(*words, *given)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "values not disclosed" not in done.stdout + done.stderr, "a simulation shows its bests"
        assert f"Agent site-8: {data / 'site-8.csv'}" in done.stderr
        (results,) = re.findall(r"Results: (.*)", done.stderr)
        study = Study.load(results)
        assert Path(results).is_absolute()
        assert study.rounds["replies"].sum() == 18, "three exchanges a round"
        done = deployment.command(*words, *given)
        assert done.returncode == 2, "the same directory is refused before the run"
        assert "out: expected a directory without a study" in done.stderr
