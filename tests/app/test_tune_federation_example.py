"""`examples/tune-federation`: the app tunes its own training, and its clients know nothing of it."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flower_runtime import ROOT, FlwrRun
from flwr.app import Context, RecordDict

from fbo_flower.federated import TunedFederation
from fbo_flower.simulation.grids import InProcessGrid

EXAMPLE = ROOT / "examples" / "tune-federation"
DEFAULTS = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
Run = Callable[..., list[float]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    client = importlib.import_module("tune_federation.client_app")
    server = importlib.import_module("tune_federation.server_app")

    def running(num_clients: int, **changes: Any) -> list[float]:
        config = {**DEFAULTS, "num-clients": num_clients, **changes}
        grid = InProcessGrid(client.app, num_clients, run_config=config)
        server.app(grid, Context(1, 0, {}, RecordDict(), config))
        found = re.findall(r"round \d+: accuracy ([\d.]+)", capsys.readouterr().out)
        return [float(value) for value in found]

    yield running
    for name in [name for name in sys.modules if name.split(".")[0] == "tune_federation"]:
        del sys.modules[name]


def test_tuning_raises_the_accuracy_of_the_same_training(run: Run, tmp_path: Path) -> None:
    before = run(4, budget=0, rounds=5)
    after = run(4, budget=160, rounds=5, out=str(tmp_path))
    assert len(before) == len(after) == 5
    assert after[-1] > before[-1] + 0.05
    result = TunedFederation.load(tmp_path)
    assert set(result.best_config) == {"learning-rate", "local-epochs", "batch-size", "server-learning-rate"}
    assert 160 <= result.client_rounds < 164


def test_the_client_app_does_not_know_of_tuning() -> None:
    text = (EXAMPLE / "tune_federation" / "client_app.py").read_text()
    assert "fbo_flower" not in text


def test_a_killed_app_goes_on_with_its_journal(run: Run, tmp_path: Path) -> None:
    changes = {"rounds": 3, "journals": str(tmp_path / "journals"), "out": str(tmp_path / "out")}
    run(4, budget=60, **changes)
    first = TunedFederation.load(tmp_path / "out")
    run(4, budget=120, **changes)
    more = TunedFederation.load(tmp_path / "out")
    assert more.client_rounds >= 120 > first.client_rounds
    assert first.curve(0) == more.curve(0)


@pytest.mark.slow  # what it shows of Flower's runtime, other apps show quicker
@pytest.mark.e2e
@pytest.mark.ray
def test_the_app_runs_on_flowers_runtime(flwr_run: FlwrRun, tmp_path: Path) -> None:
    run = flwr_run(EXAMPLE, 4, f"rounds=2 budget=24 num-clients=4 out='{tmp_path}'")
    assert run.status == "finished:completed", run.log
    assert "tuned: accuracy" in run.log
    assert len(TunedFederation.load(tmp_path).trials) >= 2
