"""Summaries of curves are checked at both ends, and nothing travels unless the server pools curves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fbo_flower.errors import WireError
from fbo_flower.wire.codec import MAX_STEPS, POOLED, checked_summary, split_pooled

GOOD = np.array([[0.0, 3.0, 0.5], [4.0, 5.0, -0.25]])
BAD: dict[str, Any] = {
    "integers": GOOD.astype(np.int64),
    "two columns": GOOD[:, :2],
    "too many rows": np.tile(GOOD[:1], (MAX_STEPS + 1, 1)),
    "NaN": np.where(GOOD == 0.5, np.nan, GOOD),
    "infinity": np.where(GOOD == 0.5, np.inf, GOOD),
    "huge": np.where(GOOD == 0.5, 1e305, GOOD),
    "half a step": GOOD + np.array([0.5, 0.0, 0.0]),
    "a negative step": GOOD - np.array([1.0, 0.0, 0.0]),
    "descending steps": GOOD[::-1].copy(),
    "a step twice": GOOD[[0, 0]],
    "two curves": GOOD - np.array([0.0, 1.0, 0.0]),
    "half a curve": GOOD + np.array([0.0, 0.5, 0.0]),
    "more curves than trials": GOOD + np.array([0.0, 90.0, 0.0]),
}


@pytest.mark.parametrize("case", BAD)
def test_a_malformed_summary_is_refused(case: str) -> None:
    with pytest.raises(WireError):
        checked_summary("disclosed.curves", BAD[case], 9.0)


def test_a_summary_is_taken_out_of_a_task() -> None:
    np.testing.assert_array_equal(checked_summary("disclosed.curves", GOOD, 9.0), GOOD)
    arrays, summary = split_pooled({"weights": np.zeros(3), POOLED: GOOD})
    assert list(arrays) == ["weights"]
    assert summary is not None
    np.testing.assert_array_equal(summary, GOOD)
    assert split_pooled({"weights": np.zeros(3)})[1] is None
    assert len(split_pooled({POOLED: np.empty((0, 3))})[1]) == 0  # type: ignore[arg-type]  # it is there
