"""What the doctor finds wrong with a federation, and how it asks."""

import json
import threading
import time
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.clientapp import ClientApp

from fbo_flower import Float, Int, SearchSpace, __version__
from fbo_flower.cli import doctor as cli_doctor
from fbo_flower.cli.doctor import diagnose
from fbo_flower.cli.flower_cli import RunStatus
from fbo_flower.cli.main import run
from fbo_flower.cli.new import new_app
from fbo_flower.clients import add_tuning, client_app
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.strategies import doctor

SPACE = SearchSpace({"x": Float(0, 1)})
APP = client_app(lambda config, context: config["x"], SPACE)
OTHER = RecordDict({"metrics": ConfigRecord({"x": 1})})


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch):
    monkeypatch.setattr(doctor, "_STEADY_SECONDS", 0.0)


def report_of(num_nodes=3, wait=0.2, action=None, **grid):
    report = doctor.examine(InProcessGrid(grid.pop("app", APP), num_nodes, **grid), num_nodes, wait, action)
    return dict(json.loads(json.dumps(report)))


def texts(report, known=(), here=__version__):
    return {f.subject: f.text for f in diagnose(report, known, here) if f.is_wrong}


def answering(**config):
    """Return the fault of a node that answers with other settings."""

    def change(content):
        content["config"].update(config)
        return content

    return Fault("malformed", change=change)


def test_nothing_is_wrong_with_agents_that_agree(tmp_path):
    own = {i: {"journal": str(tmp_path / f"{i}.db")} for i in range(3)}
    assert diagnose(report_of(node_configs=own), (), __version__) == []
    findings = diagnose(report_of(), (), __version__)
    assert [(f.is_wrong, f.text.partition(":")[0]) for f in findings] == [(False, "keeps no journal")] * 3


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({1: Fault("raising")}, "planted fault"),
        (dict.fromkeys(range(3), Fault("down")), "got none"),
        ({0: Fault("malformed", change=lambda _: OTHER)}, "expected the properties of an fbo-flower agent"),
        *(
            ({2: answering(**{key: value})}, words)
            for key, value, words in (
                ("digest", "f" * 64, "search space ffffffffffff, most nodes have"),
                ("version", "0.0.9", "fbo-flower 0.0.9, the server has"),
                ("flwr", "1.40.0", "flwr 1.40.0, the server has"),
                ("schema", 0, "message schema 0"),
                ("time", 1.0e10, "its clock is +"),
                ("agent", "0", "2 nodes call themselves so"),
            )
        ),
    ],
)
def test_a_node_that_does_not_answer_or_differs_is_named(faults, words):
    (text,) = texts(report_of(faults=faults)).values()
    assert words in text


def test_spaces_that_tie_are_wrong_at_every_node_and_the_parameters_in_which_they_differ_are_named():
    other = SearchSpace({"x": Float(0, 2), "depth": Int(1, 9)})
    wrong = texts(report_of(2, faults={1: answering(space=other.to_json(), digest=other.digest)}))
    assert list(wrong) == ["agent 0", "agent 1"]
    assert f"search space {SPACE.digest[:12]}, as many nodes have {other.digest[:12]}" in wrong["agent 0"]
    assert wrong["agent 1"].endswith("they differ in x, depth")


def test_nodes_that_are_not_there_and_another_version_at_the_command_line_are_found():
    states = {"1001": "online", "77": "offline", "78": "registered", "79": "unregistered"}
    known = [{"node-id": node, "status": status} for node, status in states.items()]
    assert texts(report_of(), known, here="9.9") == {
        "server": f"runs fbo-flower {__version__}, this computer 9.9; install one version",
        "node 77": "is not connected any more",
        "node 78": "has never connected",
    }


def test_agents_beside_something_else_answer_by_their_action_and_what_they_say_is_kept_short():
    app = ClientApp()
    add_tuning(app, lambda config, context: 0.0, SPACE)
    assert len(texts(report_of(app=app))) == 3
    assert texts(report_of(app=app, action="tune")) == {}
    (node,) = report_of(1, faults={0: answering(agent="x" * 100_000, role=b"bytes")})["nodes"]
    assert len(node["agent"]) == doctor.MAX_TEXT
    assert "role" not in node


def test_the_examiner_has_the_agents_of_the_app_and_the_doctors_server(tmp_path):
    new_app(tmp_path / "my-app")
    directory = cli_doctor.write_examiner(tmp_path / "my-app", tmp_path / "doctor", {"num_nodes": 3})
    described = tomllib.loads((directory / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    found = described["components"]["clientapp"], described["components"]["serverapp"]
    assert found == ("my_app.client_app:app", "fbo_flower_doctor:app")
    assert json.loads(described["config"][doctor.SETTINGS]) == {"num_nodes": 3}
    assert len(build_fab_from_disk(directory)) > 1000


class Federation:
    """Stands for a SuperLink: `submit` runs the doctor's server over agents in this process."""

    faults: dict[int, Fault] = {}  # noqa: RUF012  # replaced whole
    status = "finished:completed"

    def __init__(self, connection, *, install_dependencies):
        assert (connection, install_dependencies) == ("deploy", False)

    def nodes(self):
        return [{"node-id": "1001", "status": "online"}]

    def submit(self, app):
        config = tomllib.loads((Path(app) / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
        settings = json.loads(config[doctor.SETTINGS])
        self.report = doctor.examine(InProcessGrid(APP, 2, faults=self.faults), **settings)
        return "17"

    def wait(self, run_id, seconds):
        return RunStatus(self.status, "ImportError: numpy")

    def log(self, run_id):
        return doctor.MARK + json.dumps(self.report) if self.status == "finished:completed" else "nothing"

    def stop(self, run_id): ...


@pytest.mark.parametrize(
    ("faults", "status", "exit_status", "words"),
    [
        ({}, "finished:completed", 0, "nothing is wrong"),
        ({0: Fault("silent")}, "finished:completed", 1, "wrong node 1001: no reply within 0.2 s"),
        ({}, "finished:failed", 1, "run 17 finished:failed: ImportError: numpy"),
        ({}, "running", 1, "expected run 17 to end within"),
    ],
)
def test_the_command_fails_if_something_is_wrong(
    faults, status, exit_status, words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    new_app("my-app")
    monkeypatch.setattr(cli_doctor, "FlowerCLI", Federation)
    monkeypatch.setattr(Federation, "faults", faults)
    monkeypatch.setattr(Federation, "status", status)
    assert run(["doctor", "deploy", "--app", "my-app", "--nodes", "2", "--wait", "0.2"]) == exit_status
    assert words in "".join(capsys.readouterr())


# -- the clock of a device ---------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "status", "said"), [(280, 0, "-2"), (-3600, 1, "+359")])
def test_a_device_learns_that_its_clock_is_off_before_it_connects(seconds, status, said, monkeypatch, capsys):
    class SuperLink(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(404)
            self.end_headers()

        def date_time_string(self, timestamp=None):
            return super().date_time_string(int(time.time()) + seconds)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), SuperLink) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert run(["doctor", "--superlink", f"127.0.0.1:{server.server_port}", "--insecure"]) == status
        thread.join()
    assert capsys.readouterr().out.startswith(f"clock: {said}")
