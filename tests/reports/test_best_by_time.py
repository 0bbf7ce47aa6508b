"""Best values against time: the curves against a plain loop, and what is drawn of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_study import made_study

from fbo_flower.cli.main import run
from fbo_flower.errors import ConfigError
from fbo_flower.reports.figures import best_by_time, figure
from fbo_flower.study import Study

pytest.importorskip("matplotlib")

BEGIN = 1.75e9  # real clocks count from 1970


def a_study(*algorithms: str, minimize: bool = False, with_times: bool = True, **described: Any) -> Study:
    """Return a study of three agents whose trials overlap; a fifth of them failed, and one has no time."""
    rng = np.random.default_rng(1)
    trials, times = [], []
    for algorithm in algorithms:
        for agent, speed in (("0", 1.0), ("1", 4.0), ("2", 40.0)):
            now = BEGIN
            for trial in range(9):
                row: dict[str, Any] = {"algorithm": algorithm, "agent": agent, "trial": trial}
                failed = rng.random() < 0.2
                value = {"value": math.nan if failed else rng.normal(), "failure": "no" if failed else ""}
                trials.append(row | value | {"round": trial + 1})
                ended = now + speed * float(rng.lognormal())
                if (agent, trial) != ("1", 4):
                    times.append(row | {"started": now, "ended": ended})
                now = ended
    runs = [
        {"algorithm": a, "num_agents": 3, "num_initial": 2, "minimize": minimize, **described}
        for a in algorithms
    ]
    return made_study(runs, trials=trials, times=times if with_times else [])


@pytest.mark.parametrize("minimize", [False, True])
def test_an_agents_value_is_the_best_of_its_trials_that_have_ended(minimize: bool) -> None:
    study = a_study("ts", minimize=minimize)
    _, grid, curves = best_by_time(study, "ts")
    ended = {(row["agent"], row["trial"]): row["ended"] - BEGIN for row in study.times}
    assert grid.tolist() == sorted(ended.values())
    assert curves.shape == (3, 26)
    for agent, curve in enumerate(curves):
        for now, shown in zip(grid, curve, strict=True):
            known = [
                row["value"]
                for row in study.trials
                if row["agent"] == str(agent)
                and ended.get((row["agent"], row["trial"]), math.inf) <= now
                and not math.isnan(row["value"])
            ]
            best = (min(known) if minimize else max(known)) if known else math.nan
            assert shown == pytest.approx(best, nan_ok=True)


def test_only_target_agents_have_curves_but_time_counts_from_the_first_of_all() -> None:
    study = a_study("ts", target_agents=["2"])
    _, grid, curves = best_by_time(study, "ts")
    own = study.times.where(agent="2")["ended"]
    assert curves.shape == (1, 9)
    np.testing.assert_array_equal(grid, np.sort(own) - BEGIN)


def test_the_drawn_line_is_the_mean_over_agents_that_have_a_value_as_steps() -> None:
    study = a_study("ts", "fts")
    ax = figure(study, x="time").axes[0]
    assert "Seconds" in ax.get_xlabel()
    assert ax.get_xlim()[0] == 0.0
    for name, line in zip(("ts", "fts"), ax.lines, strict=False):
        _, grid, curves = best_by_time(study, name)
        known = [[value for value in column if not math.isnan(value)] for column in curves.T]
        means = [sum(column) / len(column) if column else math.nan for column in known]
        assert (line.get_label(), line.get_drawstyle()) == (name, "steps-post")
        np.testing.assert_array_equal(line.get_xdata(), grid)
        np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), means)
    assert len(figure(a_study("ts"), x="time").axes[0].lines) == 4, "the mean and an agent each"


def test_without_times_it_says_whose_are_missing_and_what_to_do() -> None:
    both = Study.merge([a_study("ts"), a_study("fts", with_times=False)])
    with pytest.raises(ConfigError, match=r'of fts; .*disclose = "trials"'):
        figure(both, x="time")
    with pytest.raises(ConfigError, match="evaluations or time, got 'rounds'"):
        figure(both, x="rounds")
    assert figure(both).axes[0].get_xlabel() == "Evaluations per agent"


def test_the_report_draws_against_time_and_keeps_the_picture_if_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_study("ts").save(tmp_path / "with")
    a_study("ts", with_times=False).save(tmp_path / "without")
    assert run(["report", str(tmp_path / "with"), "--x", "time", "-q"]) == 0
    assert (tmp_path / "with" / "report.png").stat().st_size > 10_000
    assert run(["report", str(tmp_path / "without"), "-q"]) == 0
    assert run(["report", str(tmp_path / "without"), "--x", "time", "-q"]) == 2
    assert "error: --x time: expected times of trials, got none of ts" in capsys.readouterr().err
    assert (tmp_path / "without" / "report.png").exists()
