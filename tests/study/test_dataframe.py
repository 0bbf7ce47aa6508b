"""A study as a pandas DataFrame."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from made_study import changed, made_study

from fbo_flower.errors import ConfigError
from fbo_flower.study import Study


def a_study(*configs: dict[str, Any]) -> Study:
    """Return a study with one trial per configuration; the last trial failed."""
    rows = [
        {"algorithm": "ts", "agent": "007", "trial": number, "config": config, "value": 0.5}
        for number, config in enumerate(configs)
    ]
    rows[-1] |= {"value": math.nan, "failure": "diverged"}
    return made_study([{"algorithm": "ts"}], trials=rows)


def test_a_missing_pandas_names_the_extra_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise ImportError

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'fbo-flower\[pandas\]'") as caught:
        a_study({"C": 1.0}).to_dataframe()
    assert "\n" not in str(caught.value)


def test_a_trial_is_a_row_and_a_parameter_is_a_column() -> None:
    pytest.importorskip("pandas")
    frame = a_study({"C": 1.0, "value": 3}, {"C": 10.0, "value": 4}).to_dataframe()
    assert list(frame.columns) == [
        *("algorithm", "agent", "round", "trial", "value", "state", "started", "ended"),
        *("config.C", "config.value"),
        *("pulls", "regret", "failure"),
    ]
    assert frame["agent"].tolist() == ["007", "007"]
    assert frame["config.C"].tolist() == [1.0, 10.0]
    assert frame["config.value"].dtype == np.int64
    assert frame["state"].tolist() == ["succeeded", "failed"]
    assert frame["failure"].tolist() == ["", "diverged"]


def test_an_inactive_parameter_is_missing() -> None:
    pandas = pytest.importorskip("pandas")
    frame = a_study({"kernel": "rbf", "gamma": 0.1}, {"kernel": "poly", "degree": 3}).to_dataframe()
    assert frame["config.gamma"].dtype == frame["config.degree"].dtype == np.float64
    assert frame["config.gamma"].isna().tolist() == [False, True]
    assert frame["config.kernel"].tolist() == ["rbf", "poly"]
    assert pandas.isna(frame.loc[0, "config.degree"])


def test_mixed_choices_keep_their_types() -> None:
    pytest.importorskip("pandas")
    frame = a_study({"depth": 1, "fit": True}, {"depth": "deep", "fit": False}).to_dataframe()
    assert [type(value) for value in frame["config.depth"]] == [int, str]
    assert frame["config.fit"].dtype == np.bool_


def test_a_frame_is_a_copy_and_a_study_without_trials_an_empty_frame() -> None:
    pytest.importorskip("pandas")
    study = a_study({"C": 1.0}, {"C": 2.0})
    frame = study.to_dataframe()
    frame.loc[0, "value"] = 7.0
    assert study.trials["value"][0] == 0.5
    nothing = changed(study, trials=[]).to_dataframe()
    assert len(nothing) == 0
    assert "state" in nothing.columns


def test_a_trial_has_the_times_of_its_agent_and_unknown_ones_are_missing() -> None:
    pandas = pytest.importorskip("pandas")
    study = a_study({"C": 1.0}, {"C": 2.0}, {"C": 3.0})
    rows = [
        {"algorithm": "ts", "agent": "007", "trial": 2, "started": 1.8e9, "ended": 1.8e9 + 90.5},
        {"algorithm": "ts", "agent": "007", "trial": 0, "started": 1.7e9, "ended": 1.7e9 + 0.25},
        {"algorithm": "ts", "agent": "7", "trial": 1, "started": 1.6e9, "ended": 1.6e9},
    ]
    frame = changed(study, times=rows).to_dataframe()
    assert frame["started"][0] == pandas.Timestamp(1.7e9, unit="s", tz="UTC")
    assert frame["started"].isna().tolist() == [False, True, False]
    seconds = (frame["ended"] - frame["started"]).dt.total_seconds()
    assert seconds.dropna().tolist() == [0.25, 90.5]
