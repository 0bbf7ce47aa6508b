"""`central = "auto"`: which model the server uses, and points between those of the mesh."""

from __future__ import annotations

import numpy as np
import pytest
from contract import SQUARE, Run

from fbo_flower.algorithms import CoKG
from fbo_flower.algorithms.co_kg.central import AGAINST, ENOUGH, central_product, disagree, frame, pools
from fbo_flower.algorithms.co_kg.state import CoKGState, SharedPrior
from fbo_flower.numerics.surrogates import gp

SMALL = {"central": "auto", "num_points": 100, "num_draws": 16, "num_starts": 1}
CENTRES = ((0.21, 0.83), (0.77, 0.34), (0.32, 0.18), (0.9, 0.9))


def hills(differ, noise=0.05):
    """One hill for all agents at (.21, .83), or each agent's own."""

    def objective(config, context):
        x, y = CENTRES[int(context.agent) if differ else 0]
        distance = (config["x"] - x) ** 2 + (config["y"] - y) ** 2
        return float(np.exp(-6.0 * distance)) + noise * context.rng.standard_normal()

    return objective


def state_with(*evidence):
    return CoKGState(SQUARE, evidence=tuple(enumerate(evidence)))


def test_it_begins_with_the_barycenter_and_follows_the_evidence_both_ways():
    auto = CoKG(central="auto")
    assert not pools(auto, state_with())
    assert not disagree(auto, state_with())
    assert pools(auto, state_with(-9.0, ENOUGH + 0.1))
    assert not pools(auto, state_with(9.0, ENOUGH - 0.1))
    assert disagree(auto, state_with(9.0, AGAINST - 0.1))
    assert not disagree(auto, state_with(-9.0, AGAINST + 0.1))
    for other in (CoKG(), CoKG(central="product")):
        assert not disagree(other, state_with(-99.0))
        assert pools(other, state_with(-99.0, 99.0)) == (other.central == "product")


def test_agents_with_one_objective_are_pooled_and_the_evidence_is_reported():
    run = Run.begin(CoKG(**SMALL), num_agents=4, objective=hills(False)).steps(10)
    assert run.state.evidence[-1][1] > ENOUGH
    assert run.state.recommended[-1].agent == ""
    assert {e.agent for e in run.exchanges if e.task.round == 10 and "point" in e.task.arrays} == set("0123")
    assert run.algorithm.results(run.state) is not None
    np.testing.assert_allclose(run.state.recommended[-1].point, CENTRES[0], atol=0.1)
    found = run.algorithm.description(run.state)["evidence"]
    assert [row["round"] for row in found] == list(range(2, 11))
    lines = run.algorithm.progress_lines(run.state, CoKGState(SQUARE))
    assert any("central model: product" in line for line in lines)
    assert run.algorithm.progress_lines(run.state, run.state) == []


def test_agents_with_their_own_objectives_choose_for_themselves():
    run = Run.begin(CoKG(**SMALL), num_agents=4, objective=hills(True)).steps(10)
    alone = Run.begin(
        CoKG(**{**SMALL, "central": "barycenter"}, framework="no-collaboration"),
        num_agents=4, objective=hills(True),
    ).steps(2)  # fmt: skip
    for agent, history in alone.histories().items():
        np.testing.assert_array_equal(run.histories()[agent].points[: len(history)], history.points)
    assert run.state.evidence[-1][1] < AGAINST
    assert run.state.recommended[-1].agent != ""
    assert not [e for e in run.exchanges if e.task.round == 10 and "point" in e.task.arrays]


@pytest.mark.parametrize("central", ["product", "auto"])
def test_added_points_are_among_the_pivots_and_the_product_stays_the_pooled_posterior(central):
    options = {**SMALL, "central": central, "num_refined": 16, "refine_every": 2, "rank_cut": 1e-8}
    run = Run.begin(CoKG(**options), num_agents=2, objective=hills(False)).steps(8)
    setting = run.state.setting
    assert setting.version == 1 + run.state.renewals
    assert run.state.renewals == 3
    mesh = run.algorithm.points(SQUARE)
    assert any(not (mesh == pivot).all(axis=1).any() for pivot in setting.pivots)
    grid = frame(run.algorithm, SQUARE, setting, run.state.refined)
    assert len(grid.points) == len(mesh) + 16
    found = central_product(grid, [p.increment for p in run.state.posteriors.values()])
    logs = [agent.log for agent in run.agents.values()]
    y = (np.concatenate([log.values for log in logs]) - setting.shift) / setting.scale
    pooled = gp.posterior(np.concatenate([log.points for log in logs]), y, setting.hyperparameters)
    deviation = np.abs(found.mean - pooled.predict(grid.points)[0]) / np.sqrt(
        setting.hyperparameters.outputscale
    )
    assert deviation.max() < 0.02  # the warm-up lies between the points of the set


def test_only_auto_adds_points_by_default():
    made = CoKG(), CoKG(central="auto"), CoKG(central="auto", num_refined=0), CoKG(num_refined=7)
    assert [algorithm.refinement for algorithm in made] == [0, 32, 0, 7]


def test_a_task_is_complete_for_an_agent_that_lost_its_memory():
    run = Run.begin(CoKG(**SMALL, refine_every=2), num_agents=3, objective=hills(False)).steps(7)
    setting = SharedPrior.read(run.exchanges[-1].task.arrays, "rbf")
    np.testing.assert_array_equal(setting.pivots, run.state.setting.pivots)
