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
# commands and Python in one process, in which the example is installed
SESSION = """
import inspect
from fbo_flower import algorithms, simulate
from fbo_flower.cli.main import run
from fbo_flower.reports.pictures import algorithm_style
from fbo_flower.strategies import STRATEGIES
simulation = "simulate --problem himmelblau --agents 3 --rounds 4 --engine inline --algorithm gossip"
for command in ("algorithms", "algorithms gossip", f"{simulation} --compare random --out study --journal -q",
                "ledger study", "report study -q"):
    assert run(command.split()) == 0, command
gossip = algorithms.make_algorithm("gossip", {"epsilon": 0.5})
print(len(simulate("himmelblau", None, 3, gossip, 4, engine="inline").trials))
print([*inspect.signature(STRATEGIES["gossip"]).parameters][-3:])
print(algorithm_style("gossip"))
"""


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


def test_nothing_is_disclosed_unless_the_operator_says_so(run, tmp_path):
    run("own-objective", 2, num_rounds=2, out=str(tmp_path))
    study = Study.load(tmp_path)
    assert (len(study.trials), study.best) == (0, {})
    assert study.settings["runs"][0]["disclosures"] == {"none, default": 2}


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


def test_the_command_of_its_page_prints_its_table():
    words = ("-m", "fts_baseline.compare", "--seeds", "2", "--agents", "3", "--rounds", "3")
    lines = python(*words, paths=(BASELINE,)).stdout.splitlines()
    rows = [line.split(" | ")[0] for line in lines if line.startswith("| ")]
    assert rows == ["| algorithm", "| random", "| ts", "| fts", "| fts-portfolio"]
    page = (BASELINE / "README.md").read_text()
    assert all(f"{row} | 0." in page for row in rows[1:])


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


def test_an_installed_algorithm_is_listed_explained_run_and_reported_by_its_name(installed, tmp_path):
    out = python("-c", SESSION, paths=(installed,), cwd=tmp_path).stdout
    for text in (
        "gossip  epsilon-greedy search",
        "An agent sends: its best point, without the value.",
        "step : standard deviation of a step",
        "Points: sent by design, in incumbent",
        f"{3 * 6}\n['num_initial', 'epsilon', 'step']\nPlotStyle(color='#8C564B', line='-')",
    ):
        assert text in out
    assert "`incumbent`: the agent's best point so far" in (tmp_path / "study" / "privacy.md").read_text()
    assert "gossip" not in python("-m", "fbo_flower.cli", "algorithms").stdout, "without being installed"


def test_its_own_tests_and_the_contract_hold(installed):
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    paths = (installed, ROOT / "tests" / "helpers")
    assert " passed" in python(*words, paths=paths, cwd=OWN_ALGORITHM).stdout
