import io
import json
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate
from processes import ROOT, python

from fbo_flower.algorithms import make_algorithm
from fbo_flower.app import client_app, server_app
from fbo_flower.app.config import AppConfig
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Keep, simulate
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.study import Study

FLOWER = import_module("flwr.cli.app_cmd.publish")  # its rules for what may be published
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEFAULTS = PYPROJECT["tool"]["flwr"]["app"]["config"]


def run_config(**changes):
    changes = {name.replace("_", "-"): value for name, value in changes.items()}
    assert set(changes) <= set(DEFAULTS)
    return {**DEFAULTS, **changes}


def run_in_process(num_nodes, node_configs=None, **changes):
    config = run_config(**changes)
    grid = InProcessGrid(client_app.app, num_nodes, run_config=config, node_configs=node_configs)
    server_app.app(grid, Context(1, 0, {}, RecordDict(), config))


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    """Draw nothing, because that takes longer than a small study; the bundle alone does."""
    monkeypatch.setattr(server_app, "draw", lambda study, path: "")


def test_the_run_config_has_the_settings_of_the_app_no_more_and_no_fewer():
    assert {key.replace("-", "_") for key in DEFAULTS} == set(AppConfig.__dataclass_fields__)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_rounds": -1}, ["num-rounds", ">= 0", "-1"]),
        ({"num_rounds": 5, "num_trials": 5}, ["num_trials", "num_rounds", "got both"]),
        ({"mode": "async", "algorithm": "dp-fts"}, ["mode", "dp-fts", "accountant"]),
        ({"wait_seconds": "long"}, ["wait-seconds", "'long'"]),
        ({"problem_options": "[1]"}, ["problem-options", "JSON object", "[1]"]),
        ({"out": "runs/x"}, ["out", "absolute", "'runs/x'"]),
        ({"label": 3}, ["label", "text", "3"]),
        ({"optuna": "sqlite:///x.db"}, ["optuna", "absolute file", "'sqlite:///x.db'"]),
        ({"resume": 1}, ["resume", "True or False", "1"]),
        ({"resume": True}, ["resume", "journal"]),
        ({"options": '{"nope": 1}'}, ["nope", "num_initial"]),
        ({"limits": "accuracy >= 0.9"}, ["digits-svm", "expected options among", "got limits"]),
        ({"problem": "digits-trees", "limits": "speed >= 1"}, ["expected outputs of accuracy", "got speed"]),
        ({"num_agents": 3, "wait_seconds": 0}, ["agents", "expected 3", "only 2 registered"]),
        ({"out": "/dev/null/x"}, ["out", "can be written", "/dev/null/x"]),
    ],
)
def test_bad_input_fails_the_run_with_one_line(changes, words, caplog, tmp_path):
    with pytest.raises(ConfigError) as raised:
        run_in_process(2, **{"out": str(tmp_path / "x"), **changes})
    assert all(word in str(raised.value) for word in words), raised.value
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == [str(raised.value)]


def test_a_missing_key_is_named():
    with pytest.raises(ConfigError, match=r"seed: expected in \[tool.flwr.app.config\]"):
        AppConfig.read({key: value for key, value in DEFAULTS.items() if key != "seed"})


def test_results_go_to_a_directory_of_the_run_under_the_users_data(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    config = AppConfig.read(DEFAULTS)
    assert config.directory(17) == tmp_path / "fbo-flower" / "digits-svm-fed-ei-seed0-17"
    assert AppConfig.read(run_config(out=str(tmp_path / "x"))).directory(17) == tmp_path / "x"


def test_the_app_runs_what_simulate_runs(tmp_path):
    options = {"advice": "portfolio", "num_features": 20}
    given = {"algorithm": "fts", "options": json.dumps(options), "label": "mine"}
    run_in_process(3, out=str(tmp_path), num_rounds=4, seed=5, **given)
    study, algorithm = Study.load(tmp_path), make_algorithm("fts", options)
    keep = Keep(label="mine")
    expected = simulate("digits-svm", None, 3, algorithm, 4, seed=5, engine="inline", keep=keep)
    assert study.trials == expected.trials
    assert study.run("mine")["problem"] == "digits-svm"


def test_objectives_and_limits_are_keys_and_a_device_has_bounds_of_its_own(tmp_path):
    aims = {"objectives": "accuracy max", "limits": "kilobytes <= 8"}
    given = {"problem": "digits-trees", "algorithm": "random", "num_rounds": 1, "out": str(tmp_path)}
    node_configs = {0: {"limits": "kilobytes <= 0.01"}}
    run_in_process(2, node_configs, **given, **aims)
    study = Study.load(tmp_path)
    assert study.infeasible == ["0"]
    assert study.best["1"]["outputs"]["kilobytes"] <= 8
    assert "0.01" not in (tmp_path / "study.json").read_text()


def test_a_run_that_is_over_is_resumed_for_more_rounds(tmp_path):
    changes = {"problem": "gp-samples", "seed": 5, "journal": str(tmp_path / "study.db"), "resume": True}
    grid = None
    for num_rounds in (2, 4):
        config = run_config(**changes, num_rounds=num_rounds, out=str(tmp_path / "out"))
        grid = grid or InProcessGrid(client_app.app, 3, run_config=config)
        server_app.app(grid, Context(1, 0, {}, RecordDict(), config))
    expected = simulate("gp-samples", agents=3, num_rounds=4, seed=5, engine="inline")
    assert Study.load(tmp_path / "out").trials == expected.trials


@pytest.mark.parametrize(("at_device", "leaves"), [("incumbent", set()), ("trials", {"0"})])
def test_what_a_device_discloses_is_set_at_the_device_alone(at_device, leaves, tmp_path):
    """Nothing in the run config, which is the server's, raises it: there is no such key."""
    assert not any("disclose" in key for key in DEFAULTS)
    config = {**run_config(num_rounds=2, problem="gp-samples", out=str(tmp_path)), "disclose": "trials"}
    grid = InProcessGrid(client_app.app, 1, run_config=config, node_configs={0: {"disclose": at_device}})
    server_app.app(grid, Context(1, 0, {}, RecordDict(), config))
    study = Study.load(tmp_path)
    assert set(study.trials["agent"].tolist()) == leaves
    assert len(study.regret) == len(study.trials), "regret is known where the problem knows its optimum"


def test_a_node_without_a_partition_is_refused_with_the_reason():
    context = Context(1, 1, {"agent": "clinic"}, RecordDict(), run_config())
    with pytest.raises(ConfigError, match="node_config: expected partition-id and num-partitions"):
        client_app.agent(context)


# the app bundle (FAB), which travels to every device


@pytest.fixture(scope="module")
def bundle():
    return zipfile.ZipFile(io.BytesIO(build_fab_from_disk(ROOT)))


def test_the_bundle_holds_what_an_agent_and_a_server_need_and_nothing_else(bundle):
    files = {Path(name).parts for name in bundle.namelist()}
    assert {parts[0] for parts in files} == {"fbo_flower", "pyproject.toml", "LICENSE", ".info"}
    made = tomllib.loads(bundle.read("pyproject.toml").decode())["tool"]["flwr"]["app"]
    assert made["fab-format-version"] == 1
    assert {parts[1] for parts in files if parts[0] == "fbo_flower"} == {
        "__init__.py", "errors.py", "lazy.py", "version.py", "algorithms", "app", "clients", "models",
        "numerics", "reports", "secure", "simulation", "space", "storage", "strategies", "study", "trackers",
        "wire",
    }  # fmt: skip


def test_the_bundle_alone_runs_a_study(bundle, tmp_path):
    bundle.extractall(tmp_path / "app")
    code = """
import json, sys
import fbo_flower
from flwr.app import Context, RecordDict
from fbo_flower.app import client_app, server_app
from fbo_flower.simulation.grids import InProcessGrid
config = json.loads(sys.argv[1])
grid = InProcessGrid(client_app.app, 2, run_config=config)
server_app.app(grid, Context(1, 0, {}, RecordDict(), config))
print(fbo_flower.__file__)
"""
    config = run_config(problem="gp-samples", num_rounds=2, out=str(tmp_path / "out"))
    done = python("-c", code, json.dumps(config), cwd=tmp_path / "app", PYTHONPATH=str(tmp_path / "app"))
    assert Path(done.stdout.strip()) == tmp_path / "app" / "fbo_flower" / "__init__.py"
    assert set(Study.load(tmp_path / "out").trials["agent"].tolist()) == {"0", "1"}
    assert (tmp_path / "out" / "report.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def hub_app(tmp_path_factory):
    directory = tmp_path_factory.mktemp("hub") / "fbo-tuning"
    python(ROOT / ".ci" / "hub_app.py", directory, "--publisher", "someone-else")
    return directory


def test_flower_would_publish_it(hub_app):
    config, warnings = load_and_validate(hub_app / "pyproject.toml", check_module=False)
    assert warnings in ([], None)
    FLOWER._validate_app_name(hub_app.name, "directory")
    FLOWER._validate_description(config["project"]["description"])
    assert FLOWER._get_declared_license_file(hub_app) == (hub_app / "LICENSE").resolve()
    files = FLOWER._collect_file_paths(hub_app)
    FLOWER._validate_files(files)
    assert config["tool"]["flwr"]["app"]["publisher"] == "someone-else"
    assert {path.suffix for path in files} == {".py", ".toml", ".md", ""}


def test_its_bundle_has_the_current_format_and_needs_no_package_of_ours(hub_app, tmp_path):
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(hub_app))) as bundle:
        bundle.extractall(tmp_path)
    assert not (tmp_path / "fbo_flower" / "cli").exists()
    script = (
        "import sys, fbo_flower; from fbo_flower.app import client_app, server_app; "
        "assert fbo_flower.__file__.startswith(sys.argv[1]), fbo_flower.__file__; "
        "print(type(server_app.app).__name__, type(client_app.app).__name__)"
    )
    own = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    assert "ServerApp" in python("-c", script, tmp_path, cwd=tmp_path, **own).stdout


@pytest.mark.e2e
@pytest.mark.ray
def test_flwr_run_gives_the_trials_of_simulate_bit_for_bit(flwr_run, tmp_path):
    run = flwr_run(ROOT, 3, f"num-agents=3 num-rounds=4 seed=5 out='{tmp_path}/runtime'")
    assert run.status == "finished:completed", run.log
    assert run.log.count(f"{tmp_path}/runtime") == 2  # at the start and at the end
    keep = Keep(out=tmp_path / "inline")
    simulate("digits-svm", agents=3, num_rounds=4, seed=5, engine="inline", keep=keep)
    for name in ("trials.csv", "best.json"):
        assert (tmp_path / "runtime" / name).read_bytes() == (tmp_path / "inline" / name).read_bytes()
