"""Flower apps of all shapes are tuned with few changed lines: `tests/apps/flower`."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import LIMIT

pytestmark = [pytest.mark.e2e, pytest.mark.deployment]
MEASURE = Path(__file__).parents[1] / "apps" / "flower" / "measure.py"


def test_apps_of_all_shapes_are_tuned_with_ten_changed_lines():
    """The runner raises if a parameter has no effect, or if an app fails before, in or after its tuning."""
    command = [sys.executable, "-W", "ignore", str(MEASURE), "--seeds", "1", "--budget", "96"]
    single = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=20 * LIMIT, check=False, env=single
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| `")]
    missing = [not importlib.util.find_spec(name) for name in ("torch", "xgboost", "xgboost")]
    assert len(rows) == 13 - sum(missing)
    for name, _, _, changed, own, tuned, _, client_rounds in rows:
        assert int(changed) <= 10, name
        assert own != tuned, name
        assert 96 <= int(client_rounds) < 96 + 6, name
