"""An app of `fbo-flower new` on Flower's simulation runtime, by `fbo-flower run`, without an index."""

import re
from pathlib import Path

import pytest
from flower_runtime import Deployment

from fbo_flower.cli.new import new_app
from fbo_flower.study import Study

pytestmark = [pytest.mark.e2e, pytest.mark.ray]


def test_a_new_app_runs_in_simulation_and_overwrites_no_results(tmp_path):
    new_app(tmp_path / "my-app")
    with Deployment(tmp_path / "flower") as deployment:
        deployment.environment |= {"UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}
        deployment.start_superlink("--simulation")
        words = ["python", "-m", "fbo_flower.cli", "run", str(tmp_path / "my-app"), "tests"]
        data = deployment.home / "data"
        data.mkdir(exist_ok=True)
        for name in ("site-10", "site-9", "site-8"):
            rows = [f"{i},{i % 2},{i % 3}" for i in range(30)]
            (data / f"{name}.csv").write_text("\n".join(["age,dose,outcome", *rows]))
        given = ("--data", str(data / "*.csv"), "-c", "num-agents=3 num-rounds=2 out='runs/first'")
        done = deployment.command(*words, *given)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "values not disclosed" not in done.stdout + done.stderr, "a simulation shows its bests"
        assert f"Agent site-8: {data / 'site-8.csv'}" in done.stderr
        (results,) = re.findall(r"Results: (.*)", done.stderr)
        study = Study.load(results)
        assert Path(results).is_absolute()
        assert study.rounds["replies"].sum() == 18, "three exchanges a round"
        done = deployment.command(*words, *given)
        assert done.returncode == 2, "the same directory is refused before the run"
        assert "out: expected a directory without a study" in done.stderr
