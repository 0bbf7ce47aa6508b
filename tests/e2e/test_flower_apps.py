"""Flower apps of all shapes are tuned with few changed lines: `tests/apps/flower`."""

import importlib.util

import pytest
from processes import ROOT, python
from waiting import LIMIT

pytestmark = [pytest.mark.e2e, pytest.mark.deployment]
MEASURE = ROOT / "tests" / "apps" / "flower" / "measure.py"


def test_apps_of_all_shapes_are_tuned_with_ten_changed_lines():
    """The runner raises if a parameter has no effect, or if an app fails before, in or after its tuning."""
    given, single = ("--seeds", "1", "--budget", "96"), {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = python("-W", "ignore", MEASURE, *given, seconds=20 * LIMIT, **single)
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| `")]
    missing = [not importlib.util.find_spec(name) for name in ("torch", "xgboost", "xgboost")]
    assert len(rows) == 13 - sum(missing)
    for name, _, _, changed, own, tuned, _, client_rounds in rows:
        assert int(changed) <= 10, name
        assert own != tuned, name
        assert 96 <= int(client_rounds) < 96 + 6, name
