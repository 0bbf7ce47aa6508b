"""`examples/own-objective`: as short as its README says, and it runs."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from flower_runtime import ROOT, FlwrRun
from flwr.app import Context, RecordDict

from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.study import Study

EXAMPLE = ROOT / "examples" / "own-objective"
PYPROJECT = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())


@pytest.fixture
def apps(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType]]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from own_objective import client_app, server_app  # type: ignore[import-not-found]  # not installed

    yield client_app, server_app
    for name in [name for name in sys.modules if name.startswith("own_objective")]:
        del sys.modules[name]


def run_in_process(
    apps: tuple[ModuleType, ModuleType], num_nodes: int, disclose: str = "trials", **changes: Any
) -> None:
    client, server = apps
    config = {**PYPROJECT["tool"]["flwr"]["app"]["config"], **changes}
    own = {node: {"disclose": disclose} for node in range(num_nodes)} if disclose else {}
    grid = InProcessGrid(client.app, num_nodes, run_config=config, node_configs=own)
    server.app(grid, Context(1, 0, {}, RecordDict(), config))


def test_the_files_are_as_short_as_promised() -> None:
    for name in ("client_app.py", "server_app.py"):
        assert len((EXAMPLE / "own_objective" / name).read_text().splitlines()) <= 20
    assert len((EXAMPLE / "README.md").read_text().split()) < 120


def test_the_app_tunes_and_saves_a_study(
    apps: tuple[ModuleType, ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_in_process(apps, 3, **{"num-agents": 3, "num-rounds": 5, "out": str(tmp_path)})
    study = Study.load(tmp_path)
    assert len(study.trials) == 3 * 7
    assert not any(study.trials["failure"].tolist())
    out = capsys.readouterr().out
    for agent, best in study.best.items():
        assert set(best["config"]) == {"max_depth", "min_samples_leaf"}
        assert f"agent {agent}: {best['value']:.3f}" in out


def test_nothing_is_disclosed_unless_the_operator_says_so(
    apps: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    run_in_process(apps, 2, "", **{"num-rounds": 2, "out": str(tmp_path)})
    study = Study.load(tmp_path)
    assert len(study.trials) == 0
    assert study.best == {}
    assert study.settings["runs"][0]["disclosures"] == {"none, default": 2}


def test_the_objective_scores_each_nodes_own_data(
    apps: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    run_in_process(apps, 2, **{"num-rounds": 1, "out": str(tmp_path)})
    values = {agent: best["value"] for agent, best in Study.load(tmp_path).best.items()}
    assert 0.5 < values["0"] < 1
    assert 0.5 < values["1"] < 1
    assert values["0"] != values["1"]


@pytest.mark.slow  # its functions are run in this process above, other apps on Flower's runtime
@pytest.mark.e2e
@pytest.mark.ray
def test_the_app_runs_on_flowers_runtime(flwr_run: FlwrRun, tmp_path: Path) -> None:
    run = flwr_run(EXAMPLE, 2, f"num-rounds=3 out='{tmp_path}'")
    assert run.status == "finished:completed", run.log
    assert "values not disclosed" in run.log
    assert Study.load(tmp_path).rounds["replies"].tolist() == [2, 2, 2]
