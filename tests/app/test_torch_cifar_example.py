"""`examples/torch-cifar` on a few digits: a PyTorch network, trained before and after tuning."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest
from flower_runtime import ROOT
from flwr.app import Context, RecordDict

from fbo_flower.federated import TunedFederation
from fbo_flower.simulation.grids import InProcessGrid

EXAMPLE = ROOT / "examples" / "torch-cifar"
DEFAULTS = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


def test_the_app_trains_before_and_after_tuning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="the example's own dependency PyTorch is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    try:
        client = importlib.import_module("torch_cifar.client_app")
        server = importlib.import_module("torch_cifar.server_app")
        small = {"dataset": "digits", "max-rows": 40, "rounds": 2, "budget": 16, "num-clients": 4}
        config = {**DEFAULTS, **small, "out": str(tmp_path)}
        grid = InProcessGrid(client.app, 4, run_config=config)
        server.app(grid, Context(1, 0, {}, RecordDict(), config))
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "torch_cifar"]:
            del sys.modules[name]
    lines = re.findall(r"(before|after) tuning, round (\d): test accuracy [01]\.", capsys.readouterr().out)
    assert sorted(lines) == [("after", "1"), ("after", "2"), ("before", "1"), ("before", "2")]
    tuned = TunedFederation.load(tmp_path)
    assert set(tuned.best_config) == {"learning-rate", "momentum", "local-epochs", "batch-size"}
    assert tuned.client_rounds >= 16


def test_the_client_app_does_not_know_of_tuning() -> None:
    assert "fbo_flower" not in (EXAMPLE / "torch_cifar" / "client_app.py").read_text()
