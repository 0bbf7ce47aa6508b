"""`fbo-flower new`: an app that runs at once, and names that Flower takes."""

import importlib
import io
import json
import shutil
import sys
import tomllib
import zipfile
from types import SimpleNamespace
from typing import Any

import joblib
import pytest
from flwr.app import Context, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.supercore.utils import is_valid_name

from fbo_flower.algorithms.aims import Aims
from fbo_flower.algorithms.registry import RECOMMENDED
from fbo_flower.cli.main import run
from fbo_flower.cli.new import new_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.study import Study


@pytest.fixture
def app(tmp_path, monkeypatch):
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


def test_a_new_app_discloses_nothing_under_a_name_and_each_node_trains_its_own_model(app, tmp_path, capsys):
    study = run_app(app, lambda n: {"model": str(tmp_path / f"{n}.joblib")})
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
        run_app(app)


def test_a_new_app_tunes_on_files_with_text_and_gaps_and_the_operators_comes_first(app, tmp_path):
    for number, length in enumerate((12, 60, 90)):
        rows = [f"{i % 7},{i % 2 or ''},{'east' if i % 3 else 'west'},{10 * (i % 7)}" for i in range(length)]
        (tmp_path / f"rows-{number}.csv").write_text("\n".join(["age,dose,ward,outcome", *rows]))
    files = json.dumps([str(tmp_path / f"rows-{number}.csv") for number in range(3)])
    own = {1: {"data": str(tmp_path / "rows-2.csv"), "agent": "clinic"}}
    client = importlib.import_module("clinic_tuning.client_app")

    class Node(SimpleNamespace):
        run_config: Any = {"data": files}  # noqa: RUF012

    read = [client.rows(Node(partition=n, node_config=own.get(n, {}))) for n in range(3)]
    assert [len(y) for _, y in read] == [12, 90, 90]
    study = run_app(app, lambda n: {"disclose": "trials", **own.get(n, {})}, data=files)
    assert set(study.best) == {"rows-0", "clinic", "rows-2"}
    assert not any(study.trials["failure"].tolist())
    assert min(best["value"] for best in study.best.values()) < 1, "the outcome follows the age"
    with pytest.raises(ConfigError, match="expected a JSON list with a file for partition 3"):
        client.rows(Node(partition=3, node_config={}))


def test_a_new_app_of_several_outputs_runs_and_a_node_has_bounds_of_its_own(app, capsys):
    shutil.rmtree(app)
    new_app(app, aims=Aims.of(False, "error min, kilobytes min", "kilobytes <= 11"))
    own = {1: {"limits": "kilobytes <= 0.1"}}
    study = run_app(app, lambda n: {"disclose": "trials", **own.get(n, {})})
    assert study.infeasible == ["1"]
    assert 0 < study.front("2").values[:, 1].max() <= 11
    assert "agent 2: [" in capsys.readouterr().out


def test_a_new_app_is_a_bundle_that_flower_builds(app):
    names = set(zipfile.ZipFile(io.BytesIO(build_fab_from_disk(app))).namelist())
    components = {"clinic_tuning/client_app.py", "clinic_tuning/server_app.py"}
    assert {*components, "pyproject.toml", "LICENSE"} <= names
    made = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert made["fab-format-version"] == 1


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


def test_the_command_lists_the_files_and_takes_a_new_directory_only(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["new", "x", "--name", "my-app", "--publisher", "ward"]) == 0
    out = capsys.readouterr().out
    assert "fbo-flower run x" in out
    assert str(tmp_path / "x" / "my_app/server_app.py") in out
    assert 'publisher = "ward"' in (tmp_path / "x" / "pyproject.toml").read_text()
    refused = {
        "x": "expected a new or an empty directory",
        "json": "expected a name that is no Python package",
    }
    for name, said in refused.items():
        assert run(["new", name]) == 2
        assert said in capsys.readouterr().err
