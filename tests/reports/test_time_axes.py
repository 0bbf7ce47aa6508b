"""Best values against time, compared with a plain loop over trials."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fbo_flower.errors import ConfigError
from fbo_flower.reports.plots import figure, plot_study
from fbo_flower.reports.time_axes import best_by_time
from fbo_flower.simulation import simulate
from fbo_flower.study.study import Study


@pytest.fixture(scope="module")
def study() -> Study:
    settings = {"engine": "inline", "durations": "lognormal:60,1", "mode": "async"}
    return simulate("gp-samples", "ts", 3, 8, **settings)


def best_at(study: Study, agent: str, seconds: float, origin: float) -> float:
    """Return an agent's best value among the trials that had ended, NaN if there was none."""
    ends = {row["trial"]: row["ended"] for row in study.times if row["agent"] == agent}
    values = [
        row["value"]
        for row in study.trials
        if row["agent"] == agent and ends[row["trial"]] - origin <= seconds and not math.isnan(row["value"])
    ]
    return max(values, default=math.nan)


def test_curves_are_those_of_a_plain_loop(study: Study) -> None:
    seconds, curves = best_by_time(study, "ts")
    origin = min(row["started"] for row in study.times)
    agents = list(dict.fromkeys(row["agent"] for row in study.trials))
    expected = [[best_at(study, agent, time, origin) for time in seconds] for agent in agents]
    np.testing.assert_array_equal(curves, expected)
    assert len(seconds) == len(study.trials)
    assert (np.diff(seconds) > 0).all()
    assert np.isnan(curves).any()  # agents have their first value at different times


def test_the_picture_has_seconds_on_its_axis(study: Study, tmp_path: Path) -> None:
    axes = figure(study, x="time").axes[0]
    assert axes.get_xlabel().startswith("Seconds since the first evaluation")
    assert axes.get_xlim()[1] == pytest.approx(best_by_time(study, "ts")[0][-1])
    plot_study(study, tmp_path / "time.png", x="time")
    assert (tmp_path / "time.png").stat().st_size > 10_000


def test_undisclosed_times_and_unknown_axes_are_refused(study: Study) -> None:
    secret = study.with_times(study.times.take(np.zeros(len(study.times), dtype=bool)))
    with pytest.raises(ConfigError, match="expected times of trials, got none of ts"):
        figure(secret, x="time")
    with pytest.raises(ConfigError, match="expected evaluations or time, got 'rounds'"):
        figure(study, x="rounds")
