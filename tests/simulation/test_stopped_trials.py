"""Early stopping in whole studies: what tables, frames and messages hold, and the pooled medians."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grouped import grouped

from fbo_flower.algorithms.registry import meaning
from fbo_flower.clients import Pruning
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Agents, Keep, simulate
from fbo_flower.space import Float, SearchSpace
from fbo_flower.study import Study
from fbo_flower.study.schema import with_columns
from fbo_flower.wire.codec import OWN

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})


def curved(config: Any, centre: float, context: Any) -> float:
    best = 1 - (config["x"] - centre) ** 2 - (config["y"] - 0.5) ** 2
    for epoch in range(8):
        context.report(epoch, best * (1 - 0.6 ** (epoch + 1)))
        if context.should_stop():
            break
    return float(best)


def plain(config: Any, centre: float) -> float:
    return float(1 - (config["x"] - centre) ** 2 - (config["y"] - 0.5) ** 2)


def run(objective: Any = curved, rule: str = "median", **given: Any) -> Study:
    given = {"num_rounds": 12, "engine": "inline", "algorithm": "random", **given}
    pruning = Pruning(rule, min_trials=given.pop("min_trials", 5), margin=given.pop("margin", 2.5))
    return simulate(objective, SPACE, **grouped(agents=[0.2, 0.3, 0.4, 0.5], pruning=pruning, **given))


def test_tables_and_frames_name_the_trials_that_stopped_early(tmp_path: Path) -> None:
    study = run(out=tmp_path / "study")
    stopped = np.isfinite(study.trials["stopped_at"])
    assert 4 < stopped.sum() < len(study.trials) / 2
    assert (study.trials["stopped_at"][stopped] < 8).all()
    assert Study.load(tmp_path / "study") == study
    for agent, best in study.best.items():
        rows = (study.trials["agent"] == agent) & ~stopped
        assert best["value"] == study.trials["value"][rows].max()
    pytest.importorskip("pandas")
    states = study.to_dataframe()["state"].to_numpy()
    assert (states == np.where(stopped, "stopped early", "succeeded")).all()


def test_a_study_with_stopped_trials_merges_with_one_without(tmp_path: Path) -> None:
    merged = Study.merge([run(label="with"), run(rule="off", label="without")])
    assert np.isnan(merged.trials.where(algorithm="without")["stopped_at"]).all()
    assert "stopped_at" not in run(rule="off").trials.columns
    merged.save(tmp_path)
    assert Study.load(tmp_path) == merged


def test_an_objective_that_reports_nothing_has_the_same_messages_under_every_rule() -> None:
    studies = [run(plain, rule) for rule in ("off", "median")]
    for name in ("bytes_up", "bytes_down", "floats_up"):
        np.testing.assert_array_equal(studies[0].rounds[name], studies[1].rounds[name])
    assert studies[0].trials == studies[1].trials == run(plain, "federated").trials


def test_medians_of_curves_travel_only_with_the_federated_rule() -> None:
    local, federated = run(), run(rule="federated")
    assert (federated.rounds["bytes_up"] > local.rounds["bytes_up"]).all()
    assert (federated.rounds["bytes_down"] > local.rounds["bytes_down"]).all()
    np.testing.assert_array_equal(local.rounds["bytes_down"], run(rule="off").rounds["bytes_down"])
    assert meaning("random", OWN).discloses == "values"
    assert federated.settings["runs"][0]["pool_curves"]
    assert "pool_curves" not in local.settings["runs"][0]


def test_an_agent_that_is_behind_the_others_stops_by_their_medians() -> None:
    shares = [1.0, 1.0, 1.0, 0.25]
    given = {"participation": shares, "num_rounds": 40, "min_trials": 10, "margin": None}
    local, pooled = run(**given), run(rule="federated", **given)
    trials = [with_columns(study.trials, ["stopped_at"]).where(agent="3") for study in (local, pooled)]
    early = [np.isfinite(rows["stopped_at"][:10]) for rows in trials]
    assert early[0].sum() == 0
    assert early[1].sum() > 0


def test_a_resumed_study_is_the_same(tmp_path: Path) -> None:
    whole = run(rule="federated")
    run(rule="federated", num_rounds=5, keep=Keep(journals=tmp_path / "journals"))
    resumed = run(rule="federated", keep=Keep(journals=tmp_path / "journals", resume=True))
    assert resumed.trials == whole.trials
    np.testing.assert_array_equal(resumed.rounds["bytes_down"], whole.rounds["bytes_down"])


def test_the_name_of_a_rule_stands_for_pruning_with_its_defaults() -> None:
    common: dict[str, Any] = {"num_rounds": 8, "engine": "inline", "algorithm": "random", "space": SPACE}
    never, named, made = (
        simulate(curved, agents=Agents([0.2, 0.3], pruning=pruning), **common)
        for pruning in ("off", "median", Pruning())
    )
    assert "stopped_at" not in never.trials.columns
    assert np.isfinite(named.trials["stopped_at"]).any()
    assert named.trials == made.trials


def test_pruning_must_be_a_pruning() -> None:
    with pytest.raises(ConfigError, match="pruning: expected Pruning"):
        simulate(plain, space=SPACE, agents=Agents([0.2], pruning=0.5))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pruning: expected one of off, median, federated, got 'hyperband'"):
        simulate(plain, space=SPACE, agents=Agents([0.2], pruning="hyperband"))
