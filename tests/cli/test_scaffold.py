"""`fbo-flower new`: an app that runs at once, and names that Flower takes."""

from __future__ import annotations

import csv
import importlib
import io
import json
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.supercore.utils import is_valid_name

from fbo_flower.cli.main import run
from fbo_flower.cli.scaffold import new_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.study import Study

TRIALS = {"disclose": "trials"}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    directory = tmp_path / "clinic-tuning"
    new_app(directory)
    for module in ("clients.agent", "strategies.base"):  # an app of one's own draws its seeds; tests repeat
        monkeypatch.setattr(f"fbo_flower.{module}.fresh_entropy", lambda: 5)
    monkeypatch.syspath_prepend(str(directory))
    yield directory
    for name in [name for name in sys.modules if name.startswith("clinic_tuning")]:
        del sys.modules[name]


def run_app(
    directory: Path,
    node_configs: dict[int, dict[str, Any]] | None = None,
    disclosed: dict[str, Any] | None = TRIALS,
    **changes: Any,
) -> None:
    client, server = (importlib.import_module(f"clinic_tuning.{side}_app") for side in ("client", "server"))
    pyproject = tomllib.loads((directory / "pyproject.toml").read_text())
    config = {**pyproject["tool"]["flwr"]["app"]["config"], "num-agents": 3, "num-rounds": 2, **changes}
    own = {node: {**(disclosed or {}), **(node_configs or {}).get(node, {})} for node in range(3)}
    grid = InProcessGrid(client.app, 3, run_config=config, node_configs=own)
    server.app(grid, Context(1, 0, {}, RecordDict(), config))


def test_a_new_app_tunes_at_once(app: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_app(app, out=str(tmp_path / "study"))
    assert len(Study.load(tmp_path / "study").trials) == 3 * 4
    assert "agent 2: " in capsys.readouterr().out


def test_a_new_app_discloses_nothing_and_each_node_trains_its_own_model(
    app: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {
        node: {"journal": str(tmp_path / f"agent-{node}.db"), "model": str(tmp_path / f"{node}.joblib")}
        for node in range(3)
    }
    run_app(app, own, None, out=str(tmp_path / "study"))
    assert "agent 2: " not in capsys.readouterr().out
    assert Study.load(tmp_path / "study").best == {}
    assert run(["ledger", own[1]["journal"]]) == 0
    ledger = capsys.readouterr().out
    assert "Discloses beyond the algorithm's messages: none (chosen by: default)." in ledger
    assert "Values: not sent by design" in ledger
    assert run(["best", own[1]["journal"], "--json"]) == 0
    (best,) = json.loads(capsys.readouterr().out)
    assert (best["evaluations"], set(best["config"])) == (4, {"C", "gamma"})
    model = joblib.load(own[1]["model"])
    assert best["config"]["C"] == model.steps[-1][1].C
    assert best["value"] < 65  # a constant is 66 off


def test_a_new_app_says_in_its_ledger_that_the_operator_chose(
    app: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {node: {"journal": str(tmp_path / f"agent-{node}.db")} for node in range(3)}
    run_app(app, own)
    capsys.readouterr()
    assert run(["ledger", own[1]["journal"]]) == 0
    ledger = capsys.readouterr().out
    assert "trials (chosen by: operator)" in ledger
    assert ledger.count("      chosen by: operator") == 5  # points, values, times, failures, incumbent


def test_a_new_app_tunes_on_the_csv_file_of_each_node_with_text_gaps_and_twelve_rows(
    app: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    node_configs = {}
    for node in range(3):
        path = tmp_path / f"rows-{node}.csv"
        x = rng.normal(size=(12 if node == 0 else 60, 2))
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["age", "dose", "ward", "outcome"])
            wards, gaps = rng.choice(["east", "west", ""], len(x)), rng.random(len(x)) < 0.2
            writer.writerows(
                [age, "" if gap else dose, ward, 100 * age + (ward == "east")]
                for (age, dose), ward, gap in zip(x.tolist(), wards, gaps, strict=True)
            )
        node_configs[node] = {"data": str(path), "agent": f"clinic-{node}"}
    run_app(app, node_configs, out=str(tmp_path / "study"))
    study = Study.load(tmp_path / "study")
    assert set(study.best) == {"clinic-0", "clinic-1", "clinic-2"}
    assert not any(study.trials["failure"].tolist())
    assert all(study.best[f"clinic-{node}"]["value"] < 60 for node in (1, 2)), "the outcome follows the age"


def test_a_new_app_gives_each_simulated_node_its_file_and_the_operators_file_comes_first(
    app: Path, tmp_path: Path
) -> None:
    lengths = (30, 60, 90)
    for node, length in enumerate(lengths):
        rows = [f"{i % 7},{i % 2},{i % 3}" for i in range(length)]
        (tmp_path / f"rows-{node}.csv").write_text("\n".join(["age,dose,outcome", *rows]))
    files = json.dumps([str(tmp_path / f"rows-{node}.csv") for node in range(3)])
    own = {1: {"data": str(tmp_path / "rows-2.csv")}}
    client = importlib.import_module("clinic_tuning.client_app")

    class Node(SimpleNamespace):
        run_config: Any = {"data": files}  # noqa: RUF012

    read = [client.rows(Node(partition=n, node_config=own.get(n, {}))) for n in range(3)]
    assert [len(y) for _, y in read] == [30, 90, 90]
    run_app(app, out=str(tmp_path / "study"), data=files)
    assert not any(Study.load(tmp_path / "study").trials["failure"].tolist())
    with pytest.raises(ConfigError, match="expected a JSON list with a file for partition 3"):
        client.rows(Node(partition=3, node_config={}))


def test_a_new_app_refuses_a_directory_that_holds_a_study(app: Path, tmp_path: Path) -> None:
    run_app(app, out=str(tmp_path / "study"))
    with pytest.raises(ConfigError, match="out: expected a directory without a study"):
        run_app(app, out=str(tmp_path / "study"))


def test_a_new_app_resumes_what_was_cut_off(app: Path, tmp_path: Path) -> None:
    files = {"out": str(tmp_path / "study"), "journal": str(tmp_path / "study.db")}
    own = {node: {"journal": str(tmp_path / f"agent-{node}.db")} for node in range(3)}
    run_app(app, own, **files)
    run_app(app, own, **files, **{"num-rounds": 4})
    study = Study.load(tmp_path / "study")
    assert study.trials["trial"][study.trials["agent"] == "1"].tolist() == list(range(6))


def test_a_new_app_is_a_bundle_that_flower_builds(app: Path) -> None:
    names = set(zipfile.ZipFile(io.BytesIO(build_fab_from_disk(app))).namelist())
    assert {"clinic_tuning/client_app.py", "clinic_tuning/server_app.py", "pyproject.toml"} <= names


def test_every_setting_of_a_new_app_has_a_comment_and_is_used(app: Path) -> None:
    text = (app / "pyproject.toml").read_text()
    server = (app / "clinic_tuning" / "server_app.py").read_text()
    for line in filter(None, text.split("[tool.flwr.app.config]\n")[1].splitlines()):
        assert "  # " in line
        key = line.split(" = ")[0]
        assert f'config["{key}"]' in server or key == "data"  # `data_file` reads it


def test_new_writes_nothing_into_a_directory_with_files(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ConfigError, match="directory: expected a new or an empty directory"):
        new_app(tmp_path, "my-app")
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
    with pytest.raises(ConfigError, match="directory: expected a new or an empty directory"):
        new_app(tmp_path / "notes", "my-app")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("my_app", "'my-app'"),
        ("My App", "'my-app'"),
        ("9lives", "'lives'"),
        ("a" * 33, f"'{'a' * 32}'"),
        ("é", ""),
    ],
)
def test_a_name_that_flower_refuses_is_refused_with_one_that_works(
    name: str, instead: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="try") as raised:
        new_app(tmp_path / name)
    suggestion = str(raised.value).split("try ")[1].strip("'")
    assert instead in str(raised.value)
    assert is_valid_name(suggestion)[0]
    assert not (tmp_path / name).exists()
    new_app(tmp_path / suggestion)


@pytest.mark.parametrize("name", ["json", "numpy", "fbo-flower", "class"])
def test_a_name_that_a_package_has_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a name that is no Python package or keyword"):
        new_app(tmp_path / name)


def test_the_command_lists_the_files_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["new", "x", "--name", "my-app", "--publisher", "ward"]) == 0
    out = capsys.readouterr().out
    assert "fbo-flower run x" in out
    for name in ("pyproject.toml", "README.md", "my_app/client_app.py", "my_app/server_app.py"):
        assert str(tmp_path / "x" / name) in out
    assert 'publisher = "ward"' in (tmp_path / "x" / "pyproject.toml").read_text()
    assert run(["new", "x"]) == 2
    assert "expected a new or an empty directory" in capsys.readouterr().err
