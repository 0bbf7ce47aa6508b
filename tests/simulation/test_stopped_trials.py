"""Early stopping in whole studies: what tables, frames and messages hold, and the pooled medians."""

import numpy as np
import pytest
from grouped import grouped

from fbo_flower.algorithms.registry import meaning
from fbo_flower.clients import Pruning
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Agents, simulate
from fbo_flower.space import Float, SearchSpace
from fbo_flower.study import Study
from fbo_flower.study.schema import with_columns
from fbo_flower.wire.codec import OWN

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
RULES = ("off", "median", "federated")


def curved(config, centre, context):
    best = 1 - (config["x"] - centre) ** 2 - (config["y"] - 0.5) ** 2
    for epoch in range(8):
        context.report(epoch, best * (1 - 0.6 ** (epoch + 1)))
        if context.should_stop():
            break
    return float(best)


def run(rule="median", **given):
    given = {"num_rounds": 12, "engine": "inline", "algorithm": "random", **given}
    pruning = Pruning(rule, min_trials=given.pop("min_trials", 5), margin=given.pop("margin", 2.5))
    return simulate(curved, SPACE, **grouped(agents=[0.2, 0.3, 0.4, 0.5], pruning=pruning, **given))


@pytest.fixture(scope="module")
def studies():
    return {rule: run(rule=rule, label=rule) for rule in RULES}


def test_tables_frames_and_merged_studies_name_the_trials_that_stopped_early(studies, tmp_path):
    study = studies["median"]
    stopped = np.isfinite(study.trials["stopped_at"])
    assert 4 < stopped.sum() < len(study.trials) / 2
    assert (study.trials["stopped_at"][stopped] < 8).all()
    for agent, best in study.best.items():
        rows = (study.trials["agent"] == agent) & ~stopped
        assert best["value"] == study.trials["value"][rows].max()
    assert "stopped_at" not in studies["off"].trials.columns
    merged = Study.merge([study, studies["off"]])
    assert np.isnan(merged.trials.where(algorithm="off")["stopped_at"]).all()
    merged.save(tmp_path)
    assert Study.load(tmp_path) == merged
    pytest.importorskip("pandas")
    states = study.to_dataframe()["state"].to_numpy()
    assert (states == np.where(stopped, "stopped early", "succeeded")).all()


def test_medians_of_curves_travel_only_with_the_federated_rule(studies):
    off, local, federated = (studies[rule] for rule in RULES)
    assert (federated.rounds["bytes_up"] > local.rounds["bytes_up"]).all()
    assert (federated.rounds["bytes_down"] > local.rounds["bytes_down"]).all()
    np.testing.assert_array_equal(local.rounds["bytes_down"], off.rounds["bytes_down"])
    assert meaning("random", OWN).discloses == "values"
    assert federated.settings["runs"][0]["pool_curves"]
    assert "pool_curves" not in local.settings["runs"][0]


def test_an_agent_that_is_behind_the_others_stops_by_their_medians():
    shares = [1.0, 1.0, 1.0, 0.25]
    given = {"participation": shares, "num_rounds": 40, "min_trials": 10, "margin": None}
    local, pooled = run(**given), run(rule="federated", **given)
    trials = [with_columns(study.trials, ["stopped_at"]).where(agent="3") for study in (local, pooled)]
    early = [np.isfinite(rows["stopped_at"][:10]) for rows in trials]
    assert early[0].sum() == 0
    assert early[1].sum() > 0


def test_a_resumed_study_is_the_same(studies, tmp_path):
    whole, given = studies["federated"], {"rule": "federated", "label": "federated", "journals": tmp_path}
    run(num_rounds=5, **given)
    resumed = run(resume=True, **given)
    assert resumed.trials == whole.trials
    np.testing.assert_array_equal(resumed.rounds["bytes_down"], whole.rounds["bytes_down"])


def test_something_else_than_a_rule_is_refused():
    for wrong, said in ((0.5, "Pruning"), ("hyperband", "one of off, median, federated, got")):
        with pytest.raises(ConfigError, match=f"pruning: expected {said}"):
            simulate(curved, SPACE, Agents([0.2], pruning=wrong))
