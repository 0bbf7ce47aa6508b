"""Co-KG against theory: consistency, exact pooling, its limits, and what crosses the wire."""

from dataclasses import replace

import numpy as np
import pytest
from contract import SQUARE, Run, over_grid, same
from threadpoolctl import threadpool_limits

from fbo_flower.algorithms import CoKG
from fbo_flower.algorithms.co_kg import central
from fbo_flower.algorithms.co_kg.central import central_barycenter, central_product, frame
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import Phase
from fbo_flower.errors import WireError
from fbo_flower.numerics.acquisition.knowledge_gradient import knowledge_gradient_from_factor
from fbo_flower.numerics.surrogates import gp
from fbo_flower.simulation import make_problem, simulate
from fbo_flower.space import Int, SearchSpace

BOARD = SearchSpace({"a": Int(0, 9), "b": Int(0, 9)})  # every configuration is in the point set
EXACT = {"num_points": 100, "num_draws": 16, "rank_cut": 1e-8}
FEW = {"num_points": 49, "num_draws": 16}


def bowl(config, context):
    """One smooth objective for all agents, with noise from the trial's own generator."""
    a, b = (config[name] / 9 for name in ("a", "b"))
    return 3.0 - (a - 0.7) ** 2 - 2 * (b - 0.3) ** 2 + 0.1 * context.rng.standard_normal()


def exact(agent, setting):
    """An agent's posterior by the textbook."""
    y = (agent.log.values - setting.shift) / setting.scale
    return gp.posterior(agent.space.features(agent.log.points), y, setting.hyperparameters)


# -- the posterior of each agent ---------------------------------------------------------------


def test_variance_at_visited_points_goes_to_0_and_everywhere_in_the_end():
    """[Zhan2025, Theorem 2]: infinitely many rounds leave no agent uncertain anywhere."""
    algorithm = CoKG(mesh=3, num_draws=16, num_starts=1, rank_cut=1e-10)
    run = Run.begin(algorithm, num_agents=2)
    points = algorithm.points(SQUARE)
    largest = []
    for _ in range(3):
        run.steps(30)  # how many it takes differs between processors: rounding decides between equal gains
        variances = []
        for agent in run.agents.values():
            setting = run.state.setting
            posterior = exact(agent, setting)
            visits = (agent.log.points[:, np.newaxis] == points).all(axis=2).sum(axis=0)
            variance = posterior.predict(points)[1]
            noise = setting.hyperparameters.noise_variance
            assert (variance[visits > 0] <= noise / visits[visits > 0]).all()
            variances.append(variance.max())
        largest.append(max(variances))
    assert largest[0] > largest[1] >= largest[2]
    assert largest[2] < 0.05 * run.state.setting.hyperparameters.outputscale


@pytest.mark.parametrize("central", ["barycenter", "product"])
def test_the_server_holds_each_agents_posterior_on_the_whole_point_set(central):
    algorithm = CoKG(central=central, **EXACT)
    run = Run.begin(algorithm, space=BOARD, objective=bowl).steps(6)
    setting = run.state.setting
    grid = frame(algorithm, BOARD, setting, None)
    for name, agent in run.agents.items():
        belief, posterior = run.state.posteriors[name], exact(agent, setting)
        features = BOARD.features(grid.points)
        np.testing.assert_allclose(grid.basis @ belief.mean, posterior.predict(features)[0], atol=1e-6)
        covariance = grid.basis @ belief.covariance @ grid.basis.T
        np.testing.assert_allclose(covariance, posterior.covariance(features), atol=1e-6)
        alone = central_barycenter(algorithm, grid, [belief], np.ones(1), None)  # one agent is its own
        np.testing.assert_allclose(alone.mean, grid.basis @ belief.mean, atol=1e-9)
        np.testing.assert_allclose(alone.factor @ alone.factor.T, covariance, atol=1e-6)
    if central == "product":  # it is the posterior of all trials together
        logs = run.histories().values()
        y = (np.concatenate([log.values for log in logs]) - setting.shift) / setting.scale
        x = BOARD.features(np.concatenate([log.points for log in logs]))
        pooled = gp.posterior(x, y, setting.hyperparameters)
        found = central_product(grid, [belief.increment for belief in run.state.posteriors.values()])
        np.testing.assert_allclose(found.mean, pooled.predict(features)[0], atol=1e-6)
        np.testing.assert_allclose(found.factor @ found.factor.T, pooled.covariance(features), atol=1e-6)


def test_limits_of_co_kg_are_its_comparators():
    def points(**options):
        run = Run.begin(CoKG(**EXACT, **options), space=BOARD, objective=bowl).steps(6)
        return [log.points.tobytes() for log in run.histories().values()]

    comparators = [points(framework=f) for f in ("data-communication", "no-collaboration", "barycenter-qkg")]
    assert points(central="product", beta=0) == comparators[0]
    assert points(beta=1e6) == comparators[1]
    assert points(beta=0) == comparators[2]
    assert len({*map(tuple, comparators), tuple(points(beta=1))}) == 4


def test_the_agents_own_gain_counts_however_small_its_weight(monkeypatch):
    seen, original = [], central.joint_design

    def noting(kind, mean, factor, own, beta, *args, **options):
        seen.append((beta, bool(own.any(axis=1).all())))
        return original(kind, mean, factor, own, beta, *args, **options)

    monkeypatch.setattr(central, "joint_design", noting)
    Run.begin(CoKG(beta=0.25, **EXACT), space=BOARD, objective=bowl).steps(6)
    assert set(seen) == {(0.25, True)}


# -- the comparators ---------------------------------------------------------------------------


def test_without_collaboration_every_agent_follows_its_own_exact_knowledge_gradient():
    algorithm = CoKG(framework="no-collaboration", num_points=100, rank_cut=1e-8)
    run = Run.begin(algorithm, space=BOARD, objective=bowl).steps(2)
    for _ in range(4):
        expected = {}
        setting = run.state.setting
        points = algorithm.points(BOARD)
        for name, agent in run.agents.items():
            posterior, features = exact(agent, setting), BOARD.features(points)
            variances, axes = np.linalg.eigh(posterior.covariance(features))
            belief = posterior.predict(features)[0], axes * np.sqrt(variances.clip(0))
            gain = knowledge_gradient_from_factor(*belief, setting.hyperparameters.noise_variance)
            expected[name] = points[np.argmax(gain)]
        run.step()
        for name, point in expected.items():
            np.testing.assert_array_equal(run.agents[name].log.points[-1], point)
        assert not any("point" in e.task.arrays for e in run.exchanges)
        assert not any({"mean", "covariance"} & set(e.report.arrays) for e in run.exchanges)


# -- what crosses the wire ---------------------------------------------------------------------


@pytest.mark.parametrize("central", ["barycenter", "product"])
def test_a_report_is_mean_and_triangle_at_the_pivots_and_nothing_else(central):
    problem = make_problem("f1", 4, 0, {})
    study = over_grid("co-kg", problem, problem.space, 4, 5, disclose="none", central=central, **FEW)
    r = study.settings["runs"][0]["found"]["num_pivots"]
    assert len(study.trials) == 0
    assert study.rounds["floats_up"][1:4].tolist() == [4 * (r + r * (r + 1) / 2)] * 3
    # hyperparameters, units and pivots, and from the third round on a point
    assert study.rounds["floats_down"][1:4].tolist() == [4 * (4 + 2 + 2 * r), *[4 * (4 + 2 + 2 * r + 2)] * 2]
    numbers = 8 * study.rounds["floats_up"]
    headers = study.rounds["bytes_up"][1:4] - numbers[1:4]
    assert (headers > 0).all()
    assert (headers < 4 * 1000).all()


def test_a_report_that_is_no_posterior_is_refused_by_the_server():
    run = Run.begin(CoKG(**FEW)).steps(3)
    last = run.exchanges[-1]
    covariance = last.report.arrays["covariance"].copy()
    covariance[1] = 3.0 * np.sqrt(covariance[0] * covariance[2])  # a correlation of 3
    lie = replace(last.report, arrays={**last.report.arrays, "covariance": covariance})
    run.server.check_report(last.task, last.report)
    with pytest.raises(WireError, match="positive semi-definite"):
        run.server.check_report(last.task, lie)


# -- who is there ------------------------------------------------------------------------------


@pytest.mark.parametrize("stale", ["keep", "drop"])
def test_an_agent_that_did_not_answer_counts_with_its_last_posterior_or_not_at_all(stale):
    run = Run.begin(CoKG(stale=stale, **FEW), num_agents=3).steps(3).step(lost=["1"])
    assert set(run.state.known(stale)) == ({"0", "1", "2"} if stale == "keep" else {"0", "2"})
    run.step()
    tasks = {e.agent: e.task for e in run.exchanges[-3:]}
    gone = {"1"} if stale == "drop" else set()
    assert {a for a, t in tasks.items() if "point" in t.arrays} == set(run.state.posteriors) - gone


def test_a_late_joiner_warms_up_and_is_designed_for_two_rounds_later():
    run = Run.begin(CoKG(**FEW), num_agents=3, late=["2"])
    run.steps(3, present=["0", "1"]).step()
    assert run.exchanges[-1].task.num_trials == 5
    assert "covariance" in run.exchanges[-1].report.arrays  # it knows the setting from its first task on
    run.step()
    assert "point" in run.exchanges[-1].task.arrays


# -- decisions do not depend on the machine's threads --------------------------------------------


def test_runs_are_the_same_whatever_the_number_of_threads():
    values = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            values.append(simulate("f1", None, 3, CoKG(num_draws=16), 4, engine="inline").trials["value"])
    assert same(*values)


def test_an_agent_with_more_threads_leads_to_the_same_central_model_and_design():
    algorithm = CoKG(num_points=400, num_draws=16, num_starts=1)
    run = Run.begin(algorithm, num_agents=2).steps(4)
    asked = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            told = {e.agent: run.agents[e.agent].answer(algorithm, e.task) for e in run.exchanges[-2:]}
        state = algorithm.tell(run.state, Phase.TRAIN, Replies(told))
        asked.append(algorithm.ask(state, Phase.TRAIN, 5, ["0", "1"], np.random.default_rng(1)))
    for agent in ("0", "1"):
        np.testing.assert_array_equal(*(tasks[agent].arrays["point"] for _, tasks in asked))
    np.testing.assert_allclose(asked[0][0].start, asked[1][0].start, atol=1e-6)


# -- the user's view -----------------------------------------------------------------------------


def test_a_study_says_what_was_recommended_and_which_agent_has_another_objective():
    def objective(config, context):
        bend = 1.0 if context.agent != "2" else -1.0
        return bend * bowl(config, context)

    study = over_grid("co-kg", objective, BOARD, 4, 8, central="product", num_points=100, num_draws=16)
    found = study.settings["runs"][0]["found"]
    assert [row["round"] for row in found["recommended"]] == [2, 3, 4, 5, 6, 7, 8]
    assert [row["round"] for row in found["agreement"]] == [2, 4, 8]
    p_values = found["agreement"][-1]["p_values"]
    assert set(p_values) == set("0123")
    assert min(p_values, key=p_values.get) == "2"
    assert p_values["2"] < 1e-4
    configs = [row["config"] for row in study.recommendations]
    assert configs == [found["recommended"][-1]["config"]] * 4


def test_the_paper_returns_the_best_of_the_agents_maximisers():
    study = simulate("f1", None, 4, CoKG(**FEW), 4, engine="inline")
    best = max(study.best.values(), key=lambda row: row["mean"])
    last = study.settings["runs"][0]["found"]["recommended"][-1]
    assert best["config"] == last["config"]
    assert best["mean"] == pytest.approx(last["value"], abs=1e-4)
    assert study.best[last["agent"]] == best


def test_hyperparameters_are_estimated_again_on_schedule():
    run = Run.begin(CoKG(**FEW, refit=2), num_agents=2)
    versions, asked = [], []
    for _ in range(8):
        run.step()
        versions.append(0 if run.state.setting is None else run.state.setting.version)
        asked.append("fit" in run.exchanges[-1].task.values)
    assert asked == [True, False, False, True, False, True, False, True]
    assert versions == [0, 1, 1, 1, 2, 2, 3, 3]
    assert all(belief.version == 3 for belief in run.state.posteriors.values())
