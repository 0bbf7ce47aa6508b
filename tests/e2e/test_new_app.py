"""An app of `fbo-flower new` on Flower's simulation runtime, by `fbo-flower run`, without an index."""

from __future__ import annotations

from pathlib import Path

import pytest
from deployment import Deployment

from fbo_flower.cli.scaffold import new_app

pytestmark = [pytest.mark.e2e, pytest.mark.ray]


def test_a_new_app_runs_in_simulation_and_a_run_that_fails_is_a_failure(tmp_path: Path) -> None:
    new_app(tmp_path / "my-app")
    with Deployment(tmp_path / "flower") as deployment:
        deployment.environment |= {"UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}
        deployment.start_superlink("--simulation")
        words = ["python", "-m", "fbo_flower.cli", "run", str(tmp_path / "my-app"), "tests"]
        done = deployment.command(*words, "-c", "num-agents=2 num-rounds=2")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "agent 1: 0." in done.stdout
        done = deployment.command(*words, "-c", "num-rounds=0")
        assert done.returncode == 2, done.stdout + done.stderr
        assert "num_rounds: expected" in done.stdout + done.stderr
        assert "finished:failed" in done.stderr
