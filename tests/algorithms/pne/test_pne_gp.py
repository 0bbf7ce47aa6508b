"""The Gaussian-process variant of PF-PNE: exchanges, agents that drop out, and what agents report."""

import numpy as np
import pytest
from contract import SQUARE, Run, over_grid

from fbo_flower.algorithms.pne.gp import GPPNE, Observations, Scale
from fbo_flower.algorithms.records import AgentState, History, Outcome, Phase, Task
from fbo_flower.errors import WireError
from fbo_flower.numerics.bandits import gp_search

GP = {"variant": "gp"}


def hill(config, context):
    return 1.0 - (config["x"] - 0.3) ** 2 - (config["y"] - 0.7) ** 2


def test_agents_find_the_top_of_a_hill_in_twenty_pulls():
    study = over_grid("pf-pne", hill, SQUARE, 4, budget=20, **GP)
    assert study.trials["pulls"].sum() == 80
    for best in study.best.values():
        assert best["value"] > 0.995


def test_an_agent_receives_the_sums_of_the_others_only():
    run = Run.begin(GPPNE(budget=12), num_agents=3, objective=hill).steps(4)
    sent = {
        e.agent: e.report for e in run.exchanges if "precision" in e.report.arrays and e.task.num_trials == 0
    }
    got = {e.agent: e.task for e in run.exchanges if "others_precision" in e.task.arrays}
    place = int(got["0"].arrays["chosen"][2])
    expected = sent["1"].arrays["precision"][place] + sent["2"].arrays["precision"][place]
    np.testing.assert_allclose(got["0"].arrays["others_precision"], expected)


def test_a_late_joiner_starts_from_what_the_others_know():
    run = Run.begin(GPPNE(budget=14), num_agents=3, late=["2"], objective=hill)
    while run.state.chosen is None:
        run.step(present=["0", "1"])
    run.steps(12)
    log = run.histories()["2"]
    assert len(log) == 14
    assert log.values[0] > 0.9  # its first point is not a point of the design


def test_an_agent_whose_objective_fails_at_first_makes_the_design_longer():
    def objective(config, context):
        if context.agent == "0" and context.trial < 7:
            raise RuntimeError("no luck")
        return hill(config, context)

    study = over_grid("pf-pne", objective, SQUARE, 2, budget=20, **GP)
    assert study.trials["pulls"].sum() == 40
    assert study.rounds["failed_trials"].sum() == 7
    assert all(best["value"] > 0.85 for best in study.best.values())


def test_failed_pulls_are_missing_once_a_point_has_a_success():
    seen = Observations.read(AgentState(SQUARE, History.empty(2)))
    points = np.array([[0.1, 0.1], [0.2, 0.2], [0.1, 0.1]])
    whole = [np.array(a, dtype=np.int64) for a in ([0, 1, 2], [0, 1, 1], [1, 1, 1])]
    outcome = Outcome(points, np.array([np.nan, 3.0, 5.0]), whole[0], {}, whole[1], whole[2], np.zeros(3))
    seen = seen.add(outcome)
    _, y, counts = seen.modelled(Scale(0.0, 1.0))
    assert y.tolist() == [5.0, 3.0]
    assert counts.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(seen.moments(), [2, 4, 1])


def test_after_many_points_the_best_are_repeated(monkeypatch):
    monkeypatch.setattr(gp_search, "MAX_POINTS", 8)
    run = Run.begin(GPPNE(budget=20), num_agents=2, objective=hill).steps(20)
    for log in run.histories().values():
        assert len(log) == 20
        assert len(np.unique(log.points, axis=0)) == 8


def test_a_place_outside_the_federation_is_refused():
    task = Task(Phase.TRAIN, 1, 0, 2, {}, {"exchange": 0, "agents": 2, "design_seed": 1, "place": 2})
    with pytest.raises(WireError, match="place"):
        next(GPPNE().session(task, AgentState(SQUARE, History.empty(2)), lambda purpose, *keys: None))
