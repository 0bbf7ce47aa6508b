"""`examples/own-objective` and `examples/torch-cifar`: as short as promised, and they run in this process."""

import importlib
import re
import runpy
import sys
import tomllib

import pytest
from flower_runtime import ROOT
from flwr.app import Context, RecordDict

from fbo_flower.federated import TunedFederation
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.study import Study

OWN = ROOT / "examples" / "own-objective"


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
    assert len((OWN / "README.md").read_text().split()) < 120
    client = (ROOT / "examples" / "torch-cifar" / "torch_cifar" / "client_app.py").read_text()
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
        assert set(best["config"]) == {"max_depth", "min_samples_leaf"}
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


def test_nothing_is_disclosed_unless_the_operator_says_so(run, tmp_path):
    run("own-objective", 2, num_rounds=2, out=str(tmp_path))
    study = Study.load(tmp_path)
    assert (len(study.trials), study.best) == (0, {})
    assert study.settings["runs"][0]["disclosures"] == {"none, default": 2}


@pytest.mark.slow  # its functions are run in this process above, other apps on Flower's runtime
@pytest.mark.e2e
@pytest.mark.ray
def test_the_app_runs_on_flowers_runtime(flwr_run, tmp_path):
    done = flwr_run(OWN, 2, f"num-rounds=3 out='{tmp_path}'")
    assert done.status == "finished:completed", done.log
    assert "values not disclosed" in done.log
    assert Study.load(tmp_path).rounds["replies"].tolist() == [2, 2, 2]


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
    assert len(before) == len(after) == 3
    assert after[-1] > before[-1] + 0.05
    result = TunedFederation.load(tmp_path / "out")
    assert set(result.best_config) == {"learning-rate", "local-epochs", "batch-size", "server-learning-rate"}
    assert 60 <= result.client_rounds < 64
    assert 20 <= first.client_rounds < 60
    assert first.curve(0) == result.curve(0)
    client = (ROOT / "examples" / "tune-federation" / "tune_federation" / "client_app.py").read_text()
    assert "fbo_flower" not in client, "it does not know of tuning"


@pytest.mark.slow  # what it shows of Flower's runtime, other apps show quicker
@pytest.mark.e2e
@pytest.mark.ray
def test_a_federation_is_tuned_on_flowers_runtime(flwr_run, tmp_path):
    example = ROOT / "examples" / "tune-federation"
    done = flwr_run(example, 4, f"rounds=2 budget=24 num-clients=4 out='{tmp_path}'")
    assert done.status == "finished:completed", done.log
    assert "tuned: accuracy" in done.log
    assert len(TunedFederation.load(tmp_path).trials) >= 2
