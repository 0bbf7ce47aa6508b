"""fed-ei: what the sums bring, what leaves an agent, and that unrelated agents do not pay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contract import MIXED, SQUARE, AlgorithmContract, Run, hills, same
from scipy.stats import ttest_rel

from fbo_flower.algorithms import ExpectedImprovement, FedEI, make_algorithm
from fbo_flower.algorithms.ei.trend import (
    before,
    federation_weight_of,
    others_centres,
    tilt_to,
    tilt_weight_of,
    with_means,
)
from fbo_flower.algorithms.records import AgentState, Federation, History, Phase
from fbo_flower.algorithms.requests import alone
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.surrogates.innovations import foresight
from fbo_flower.numerics.surrogates.rff import draw_features
from fbo_flower.numerics.surrogates.trend import ridge_weights, statistics
from fbo_flower.simulation import simulate
from fbo_flower.space import Float, SearchSpace

SMALL = {"num_candidates": 64, "num_features": 20}
CUBE = SearchSpace({f"x{i}": Float(0, 1) for i in range(4)})


class TestContract(AlgorithmContract):
    """With the default secure sums, `make_algorithm` wraps the class; here sums travel in the clear."""

    reports_values = True  # the best point

    def make(self):
        return FedEI(secure_sums=0, **SMALL)


class TestContractWithoutConsent(AlgorithmContract):
    def make(self):
        return FedEI(secure_sums=0, tilt=0.0, **SMALL)


class TestContractInTwos(AlgorithmContract):
    reports_values = True

    def make(self):
        return FedEI(secure_sums=0, trials_per_round=2, **SMALL)


def related(seed, spread):
    """One bowl per agent; the centres are `spread` apart."""
    common = np.random.default_rng([seed, 99]).random(4)

    def objective(config, context):
        moved = np.random.default_rng([seed, int(context.agent)]).standard_normal(4)
        centre = np.clip(common + spread * moved, 0, 1)
        return -float(((CUBE.encode(config) - centre) ** 2).sum())

    return objective


def best(algorithm, objective, seed, steps, num_agents=5):
    run = Run.begin(algorithm, num_agents=num_agents, seed=seed, space=CUBE, objective=objective)
    return np.mean([history.values.max() for history in run.steps(steps).histories().values()])


def test_related_agents_are_ahead_of_agents_alone_and_a_tilt_adds_to_it():
    alone, trend, both = (
        np.array([best(a, related(seed, 0.05), seed, 4) for seed in range(8)])
        for a in (ExpectedImprovement(), FedEI(secure_sums=0, tilt=0.0), FedEI(secure_sums=0))
    )
    assert ttest_rel(trend, alone, alternative="greater").statistic > 3
    assert both.mean() > alone.mean()


def unrelated(seed):
    """A smooth function of its own for each agent."""

    def objective(config, context):
        features = draw_features(200, 0.4, 4, np.random.default_rng([seed, 7, int(context.agent)]))
        weights = np.random.default_rng([seed, 8, int(context.agent)]).standard_normal(200)
        return float(features(CUBE.encode(config)[None, :])[0] @ weights)

    return objective


def test_unrelated_agents_do_not_pay_for_the_federation():
    alone, both = (
        np.array([best(a, unrelated(seed), seed, 3, num_agents=8) for seed in range(12)])
        for a in (ExpectedImprovement(), FedEI(secure_sums=0))
    )
    assert ttest_rel(both, alone).statistic > -1.5


def test_weights_follow_the_evidence_of_the_whole_federation():
    found = {}
    for name, objective in (("related", related(0, 0.05)), ("unrelated", unrelated(0))):
        run = Run.begin(
            FedEI(secure_sums=0, **SMALL), num_agents=8, seed=0, space=CUBE, objective=objective
        ).steps(6)
        task = run.exchanges[-1].task
        federation = federation_weight_of(task, CUBE)
        found[name] = federation, tilt_weight_of(task, federation)
    assert min(found["related"]) > 0.5
    assert max(found["unrelated"]) < 0.3


def test_agents_do_exactly_what_they_do_alone_while_nothing_has_earned_any_weight():
    related_to_others = []
    for seed in range(4, 8):
        clear, alone = (
            Run.begin(a, num_agents=6, seed=seed, space=CUBE, objective=unrelated(seed)).steps(2)
            for a in (FedEI(secure_sums=0), ExpectedImprovement())
        )
        tasks = [e.task for e in clear.exchanges if "moment" in e.task.arrays]
        related_to_others.append(max(federation_weight_of(task, CUBE) for task in tasks) > 0.0)
        same_points = all(
            (clear.histories()[a].points == h.points).all() for a, h in alone.histories().items()
        )
        assert same_points != related_to_others[-1]
    assert {True, False} == set(related_to_others)


def test_evidence_about_the_tilt_adds_up_over_rounds_and_each_value_counts_once():
    run = Run.begin(FedEI(secure_sums=0, **SMALL), num_agents=3, space=CUBE, objective=unrelated(0)).steps(4)
    sent = [e.report.arrays["closeness"] for e in run.exchanges if e.agent == "1"]
    np.testing.assert_allclose(run.state.parts["1"].sums["closeness"], np.sum(sent, axis=0))
    assert [part[1] > 0 for part in sent] == [False, True, True, True]
    last = run.exchanges[-1]
    algorithm, state = run.algorithm, run.agents[last.agent].agent_state
    x, y = algorithm.observations(state)
    m = tilt_to(others_centres(last.task, CUBE), CUBE)(x)
    np.testing.assert_array_equal(last.report.arrays["closeness"], foresight(x, y, m, first=len(y) - 1))


def test_evidence_of_secure_sums_adds_up_over_rounds():
    algorithm = FedEI(**SMALL)
    state = algorithm.init(Federation(CUBE, ("0", "1", "2")), np.random.default_rng(0))
    for _ in range(2):
        state = algorithm.aggregate_sum(state, ["0", "1", "2"], {"closeness": np.array([1.0, 2.0])})
    np.testing.assert_array_equal(state.pool.sums["closeness"], [2.0, 4.0])


def gap_to_the_trends_maximum(run, exchange):
    """Return how far the trend at an exchange's point is below its maximum on a grid."""
    history = run.agents[exchange.agent].agent_state.history
    trend = alone(run.algorithm.others_trend(exchange.task, run.agents[exchange.agent].agent_state))
    axis = np.linspace(0, 1, 101)
    grid = np.array(np.meshgrid(axis, axis)).reshape(2, -1).T
    seen = history.points[history.trials < exchange.task.trial]
    grid = grid[np.linalg.norm(grid[:, None] - seen, axis=2).min(axis=1) > 0.02 * 2**0.5]
    return float(trend(grid).max() - trend(history.points[history.trials == exchange.task.trial])[0])


def test_agents_in_doubt_probe_the_trends_maximum_once():
    doubts = []
    for seed in range(4):
        run = Run.begin(FedEI(secure_sums=0), num_agents=4, seed=seed, objective=rough(seed)).steps(3)
        first, second = ([e for e in run.exchanges if e.task.trial == trial] for trial in (3, 4))
        for exchange in first:
            doubts.append(federation_weight_of(exchange.task, SQUARE) <= 0.25)
            assert (gap_to_the_trends_maximum(run, exchange) < 1e-3) == doubts[-1]
        assert max(gap_to_the_trends_maximum(run, exchange) for exchange in second) > 0.01
    assert {True, False} == set(doubts)


def rough(seed):
    """A function of its own for each agent, on the unit square."""

    def objective(config, context):
        features = draw_features(200, 0.2, 2, np.random.default_rng([seed, 7, int(context.agent)]))
        return float(features(SQUARE.encode(config)[None, :])[0].sum())

    return objective


@pytest.mark.parametrize(("space", "probes"), [(SQUARE, True), (CUBE, False)])
def test_large_spaces_are_not_probed(space, probes):
    run = Run.begin(FedEI(secure_sums=0, **SMALL), num_agents=3, space=space).steps(2)
    exchange = run.exchanges[-1]
    sums = {**exchange.task.arrays, "energy": np.array([1e9])}  # agents' values do not agree at all
    task = replace(exchange.task, arrays=sums)
    state = run.agents[exchange.agent].agent_state
    assert run.algorithm.is_probe(task, before(state, task.trial)) == probes
    assert not run.algorithm.is_probe(task, state)
    tested = replace(task, arrays={**sums, "agreement": np.array([0.0, 1.0])})
    assert not run.algorithm.is_probe(tested, before(state, task.trial))


def test_a_single_agent_does_what_it_does_alone():
    one = Run.begin(FedEI(secure_sums=0), num_agents=1).steps(6)
    two = Run.begin(ExpectedImprovement(), num_agents=1).steps(6)
    np.testing.assert_array_equal(one.histories()["0"].points, two.histories()["0"].points)
    assert all(not e.report.arrays for e in one.exchanges)


def test_a_late_joiner_begins_without_random_points_and_close_to_the_optimum():
    values, random = [], []
    for seed in range(6):
        run = Run.begin(
            FedEI(secure_sums=0),
            num_agents=5,
            seed=seed,
            space=CUBE,
            objective=related(seed, 0.05),
            late=["4"],
        )
        run.steps(10, present=["0", "1", "2", "3"]).step()
        first = [e for e in run.exchanges if e.agent == "4"]
        assert [e.task.num_trials for e in first] == [1]
        values.append(run.histories()["4"].values[0])
        random.append(max(run.histories()["0"].values[:3]))
    assert np.mean(values) > np.mean(random)


def test_an_agent_subtracts_its_own_part_and_sees_the_trend_of_the_others():
    run = Run.begin(FedEI(secure_sums=0, **SMALL), num_agents=3, space=MIXED).steps(4)
    algorithm, state = run.algorithm, run.state
    _, tasks = algorithm.ask(state, Phase.TRAIN, 9, ["0", "1", "2"], np.random.default_rng(0))
    trend = alone(algorithm.others_trend(tasks["1"], run.agents["1"].agent_state))
    parts = []
    for name in ("0", "2"):
        x, y = algorithm.observations(run.agents[name].agent_state)
        parts.append(statistics(state.features(x), y))
    expected = ridge_weights(*(np.sum(p, axis=0) for p in zip(*parts, strict=True)), algorithm.ridge)
    np.testing.assert_allclose(trend.weights, expected, rtol=1e-6)


def test_sums_that_are_older_than_the_history_are_subtracted_as_they_were():
    run = Run.begin(FedEI(secure_sums=0, **SMALL), num_agents=2).steps(3)
    algorithm, agent = run.algorithm, run.agents["1"]
    old = run.exchanges[-1].task
    assert agent.agent_state.next_trial > int(old.values["counted"]) > 0
    again = alone(algorithm.others_trend(old, agent.agent_state))
    rows = agent.agent_state.history.trials < old.trial
    h = agent.agent_state.history
    before = AgentState(SQUARE, History(h.points[rows], h.values[rows], h.trials[rows]))
    np.testing.assert_array_equal(again.weights, alone(algorithm.others_trend(old, before)).weights)


def test_secure_sums_give_the_same_study_as_sums_in_the_clear():
    options = {"num_features": 20, "num_candidates": 64}
    clear, secure = (
        simulate(
            "himmelblau",
            agents=4,
            algorithm=make_algorithm("fed-ei", {**options, "secure_sums": k}),
            num_rounds=5,
            seed=1,
            engine="inline",
        )
        for k in (0, 3)
    )
    assert secure.settings is not None
    np.testing.assert_allclose(clear.trials["value"], secure.trials["value"], rtol=1e-4)


def test_two_agents_cannot_sum_and_tune_with_each_others_points_alone():
    study = simulate(
        "himmelblau",
        agents=2,
        algorithm=make_algorithm("fed-ei", {"num_features": 20, "num_candidates": 64}),
        num_rounds=9,
        seed=1,
        engine="inline",
    )
    assert len(study.trials["value"]) == 2 * 11


def test_nothing_but_sums_and_consented_points_is_in_a_report():
    clear = FedEI(secure_sums=0).report_schema(SQUARE).arrays
    assert set(clear) == {"gram", "moment", "energy", "agreement", "closeness", "point"}
    assert set(FedEI().report_schema(SQUARE).arrays) == {"point"}
    assert not FedEI(tilt=0.0).report_schema(SQUARE).arrays


def test_at_most_num_centres_points_of_others_arrive_and_never_the_agents_own():
    run = Run.begin(FedEI(secure_sums=0, num_centres=3, **SMALL), num_agents=6).steps(3)
    for exchange in run.exchanges[-6:]:
        points = exchange.task.arrays["points"]
        assert points.shape == (3, 2)
        own = run.state.points[exchange.agent]
        assert not (points == own).all(axis=1).any()


def test_lost_tasks_come_again_unchanged_although_the_sums_have_moved_on():
    run = Run.begin(FedEI(secure_sums=0, **SMALL), num_agents=3).steps(2)
    run.step(lost=["1"]).step()
    one, two = [e.task for e in run.exchanges if e.agent == "1"][-2:]
    assert one.trial == two.trial
    assert same(dict(one.arrays), dict(two.arrays))


def test_means_of_neighbours_keep_categories_and_the_commonest_one_overall():
    kernels = ["rbf", "rbf", "linear"]
    configs = [
        {"C": 1.0, "kernel": k, "size": "small", **({"gamma": 0.1} if k == "rbf" else {})} for k in kernels
    ]
    points = np.array([MIXED.encode(c) for c in configs])
    found = [MIXED.decode(p)["kernel"] for p in with_means(MIXED, points)]
    assert found == [*kernels, *kernels, "rbf"]
    assert len(with_means(MIXED, points[:1])) == 1


def test_noise_and_failures_do_not_stop_the_exchange():
    def objective(config, context):
        return None if context.trial % 4 == 1 else hills(SQUARE, noise=1.0)(config, context)

    run = Run.begin(FedEI(secure_sums=0, **SMALL), num_agents=3, objective=objective).steps(8)
    assert "gram" in run.exchanges[-1].task.arrays


@pytest.mark.parametrize(
    "options", [{"secure_sums": 1}, {"ridge": 0.0}, {"num_features": 0}, {"tilt": -1.0}, {"num_centres": 0}]
)
def test_options_are_checked(options):
    with pytest.raises(ConfigError):
        FedEI(**options)
