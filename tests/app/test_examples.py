"""The examples: as short as promised, laid out as promised, and they run in this process."""

import importlib
import re
import runpy
import shutil
import sys
import tomllib

import pytest
from flwr.app import Context, RecordDict
from processes import ROOT, python

from fbo_flower.federated import TunedFederation
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.study import Study

OWN = ROOT / "examples" / "own-objective"
OWN_ALGORITHM = ROOT / "examples" / "own-algorithm"
BASELINE = ROOT / "examples" / "fts-baseline"


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs an example over nodes in this process and returns what it prints."""
    imported = []

    def running(example, num_nodes, node=None, **changes):
        directory, package = ROOT / "examples" / example, example.replace("-", "_")
        monkeypatch.syspath_prepend(str(directory))
        imported.append(package)
        client, server = (importlib.import_module(f"{package}.{side}_app") for side in ("client", "server"))
        defaults = tomllib.loads((directory / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
        config = {**defaults, **{name.replace("_", "-"): value for name, value in changes.items()}}
        own = {number: dict(node or {}) for number in range(num_nodes)}
        grid = InProcessGrid(client.app, num_nodes, run_config=config, node_configs=own)
        server.app(grid, Context(1, 0, {}, RecordDict(), config))
        return capsys.readouterr().out

    yield running
    for name in [name for name in sys.modules if name.split(".")[0] in imported]:
        del sys.modules[name]


def test_the_files_are_as_short_as_promised():
    for name in ("client_app.py", "server_app.py"):
        assert len((OWN / "own_objective" / name).read_text().splitlines()) <= 20
    for name, most in (("gossip.py", 110), ("record.py", 25)):
        assert len((OWN_ALGORITHM / "own_algorithm" / name).read_text().splitlines()) <= most
    for name in ("torch-cifar", "tune-federation"):
        client = (ROOT / "examples" / name / name.replace("-", "_") / "client_app.py").read_text()
        assert "fbo_flower" not in client, "it does not know of tuning"


def test_each_node_tunes_on_its_own_data_and_the_server_prints_what_operators_disclose(run, tmp_path):
    out = run("own-objective", 3, {"disclose": "trials"}, num_rounds=5, out=str(tmp_path))
    study = Study.load(tmp_path)
    assert len(study.trials) == 3 * 7
    assert not any(study.trials["failure"].tolist())
    values = [best["value"] for best in study.best.values()]
    assert len(set(values)) == 3
    assert all(0.5 < value < 1 for value in values)
    for agent, best in study.best.items():
        assert f"agent {agent}: {best['value']:.3f}" in out


def test_each_device_gets_a_network_that_fits(monkeypatch, tmp_path):
    file = ROOT / "examples" / "fit-each-device" / "fit_each_device.py"
    assert len(file.read_text().splitlines()) <= 60
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(file), "3"])
    budgets = runpy.run_path(str(file), run_name="__main__")["BUDGETS"]
    study = Study.load(tmp_path / "fits")
    assert study.best.keys() | set(study.infeasible) == budgets.keys()
    for agent, best in study.best.items():
        assert best["outputs"]["operations"] <= budgets[agent]
    assert (tmp_path / "fits" / "report.png").exists()


def test_a_network_of_pytorch_is_trained_before_and_after_tuning(run, tmp_path):
    pytest.importorskip("torch", reason="the example's own dependency PyTorch is not installed")
    small = {"dataset": "digits", "max_rows": 40, "rounds": 2, "budget": 16, "num_clients": 4}
    out = run("torch-cifar", 4, **small, out=str(tmp_path))
    lines = re.findall(r"(before|after) tuning, round (\d): test accuracy [01]\.", out)
    assert sorted(lines) == [("after", "1"), ("after", "2"), ("before", "1"), ("before", "2")]
    tuned = TunedFederation.load(tmp_path)
    assert set(tuned.best_config) == {"learning-rate", "momentum", "local-epochs", "batch-size"}
    assert tuned.client_rounds >= 16


def test_tuning_raises_the_accuracy_of_the_same_training_and_a_killed_app_goes_on(run, tmp_path):
    def accuracies(**changes):
        out = run("tune-federation", 4, num_clients=4, rounds=3, **changes)
        return [float(value) for value in re.findall(r"round \d+: accuracy ([\d.]+)", out)]

    kept = {"journals": str(tmp_path / "journals"), "out": str(tmp_path / "out")}
    before = accuracies(budget=0)
    accuracies(budget=20, **kept)
    first = TunedFederation.load(tmp_path / "out")
    after = accuracies(budget=60, **kept)
    assert after[-1] > before[-1] + 0.05
    result = TunedFederation.load(tmp_path / "out")
    assert 20 <= first.client_rounds < 60 <= result.client_rounds < 64
    assert first.curve(0) == result.curve(0)


def test_the_app_of_a_baseline_runs(run, tmp_path):
    run("fts-baseline", 3, num_agents=3, num_rounds=2, algorithm="fts-portfolio", out=str(tmp_path))
    study = Study.load(tmp_path)
    assert study.settings["runs"][0]["algorithm"] == "fts"
    assert study.rounds["replies"].tolist() == [3, 3]
    assert not any(study.trials["failure"].tolist())


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the example into a directory of its own, without network."""
    target = tmp_path_factory.mktemp("installed")
    source = target.with_name("own-algorithm")  # a build leaves files beside its source
    shutil.copytree(OWN_ALGORITHM, source, ignore=shutil.ignore_patterns("__pycache__"))
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--target", target)
    python("-m", "pip", "install", *options, source)
    return target


def test_an_installed_algorithm_is_explained_by_its_name_and_its_own_tests_hold(installed):
    words = ("-m", "fbo_flower.cli", "algorithms", "gossip")
    assert "epsilon = 0.2" in python(*words, paths=(installed,)).stdout
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    paths = (installed, ROOT / "tests" / "helpers")
    assert " passed" in python(*words, paths=paths, cwd=OWN_ALGORITHM).stdout
