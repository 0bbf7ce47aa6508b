"""Racing PF-PNE over Flower: the plain driver's regrets, and whoever drops out, comes late or fails."""

import copy

import numpy as np
import pytest
from contract import SQUARE, Run, same

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.pne.racing import RacingPNE, _packed, unpacked
from fbo_flower.algorithms.records import AgentState, History, Phase, Task
from fbo_flower.errors import WireError
from fbo_flower.simulation import make_problem, simulate

RACING = {"variant": "racing"}


def cusp(config, context):
    """One objective for all agents: they share cells for several rounds."""
    return (
        1.0 - abs(config["x"] - 0.3) ** 0.5 - abs(config["y"] - 0.7) + 0.001 * context.rng.standard_normal()
    )


def cumulative(study, num_agents):
    return np.array([study.regret.where(agent=str(m))["cumulative"][-1] for m in range(num_agents)])


def test_stage_two_sends_nothing_but_the_number_of_evaluations():
    run = Run.begin(RacingPNE(budget=200, max_evaluations_per_round=20)).steps(25)
    assert run.algorithm.finished(run.state)
    second = [e for e in run.exchanges if "cells_depth" not in e.task.arrays]
    assert len(second) > 10
    assert all(e.report.arrays == {} and e.report.values == {} for e in second)
    synced = [e.agent for e in second if e.task.arrays]
    assert sorted(synced) == ["0", "1", "2"]  # once each


def test_given_smoothness_is_used():
    values = []
    for options in ({}, {"nu": 5.0, "rho": 0.9}):
        problem = make_problem("garland", 2, 2, {"noise": 0.0})
        one = simulate(
            problem,
            algorithm=make_algorithm("pf-pne", {**RACING, "budget": 500, **options}),
            seed=2,
            engine="inline",
        )
        values.append(cumulative(one, 2))
    assert values[1].min() > values[0].max()


def test_one_who_is_away_for_the_whole_of_stage_one_is_told_of_it_and_pulls_all_its_cells():
    run = Run.begin(RacingPNE(budget=300), num_agents=4)
    while run.state.shared is None:
        run.step(present=["0", "1", "2"])
    run.steps(4)
    shared = run.state.shared
    log = run.histories()["3"]
    assert len(log) == 300
    pulled = {tuple(point) for point in log.points.tolist()}
    assert len(pulled) >= shared.cells.size
    first = next(e for e in run.exchanges if e.agent == "3").task
    assert not first.arrays["shared_pulled"].any()
    other = next(e for e in run.exchanges if e.agent == "0" and "shared_pulled" in e.task.arrays).task
    assert other.arrays["shared_pulled"].all()


def test_the_merged_means_do_not_contain_an_agent_whose_reports_were_lost():
    run = Run.begin(RacingPNE(budget=300), num_agents=3)
    run.step(lost=["2"])
    while run.state.shared is None:
        run.step(present=["0", "1"])
    _, tasks = run.algorithm.ask(run.state, Phase.TRAIN, 99, ["2"], np.random.default_rng(0))
    assert not tasks["2"].arrays["shared_pulled"].any()
    assert run.agents["2"].num_evaluations > 0


def test_a_late_joiner_takes_part_in_the_batch_that_is_open():
    run = Run.begin(RacingPNE(budget=4000), num_agents=4, late=["3"], objective=cusp)
    run.step(present=["0", "1", "2"]).step(present=["0", "1", "2"]).step()
    assert "cells_depth" in run.exchanges[-1].task.arrays
    assert run.exchanges[-1].agent == "3"
    run.step()
    assert run.state.rows == ("0", "1", "2", "3")
    assert (run.state.gathering.counts[3] == 0).any()
    assert (run.state.gathering.counts[3] > 0).any()


def test_the_tree_grows_again_from_its_cells_and_means():
    run = Run.begin(RacingPNE(budget=4000), objective=cusp)
    while run.state.shared is None:
        run.step()
    shared, state = run.state.shared, run.state
    got, heard = unpacked(_packed(shared, state.gathering, state.rows, "1").arrays, shared.cells.options)
    size = shared.cells.size
    assert got.cells.size == size > 31
    for name in ("depth", "index", "parent", "first_child", "anchor"):
        np.testing.assert_array_equal(getattr(got.cells, name)[:size], getattr(shared.cells, name)[:size])
    assert heard.all()


def test_stage_two_without_what_stage_one_found_is_refused():
    agent_state = AgentState(SQUARE, History.empty(2))
    with pytest.raises(WireError, match="shared"):
        next(RacingPNE(budget=100).session(Task(Phase.TRAIN, 1, 0, 5), agent_state, lambda *keys: None))


def test_a_report_of_other_cells_is_no_evidence():
    run = Run.begin(RacingPNE(budget=100))
    _, tasks = run.algorithm.ask(run.state, Phase.TRAIN, 1, ["0", "1"], np.random.default_rng(0))
    report = run.agents["0"].answer(run.algorithm, tasks["0"])
    cut = {name: array[:3] for name, array in report.arrays.items()}
    wrong = type(report)(report.trial, report.num_trials, 0, cut)
    before = copy.deepcopy(run.state)
    state = run.algorithm.tell(run.state, Phase.TRAIN, {"0": wrong})
    assert state.heard == {}
    assert same(before, run.state)
