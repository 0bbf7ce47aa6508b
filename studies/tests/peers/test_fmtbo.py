"""fmtbo: what travels, whose hyperparameters count, and the paper's claim in small."""

from __future__ import annotations

import numpy as np
import pytest
from contract import MIXED, SQUARE, AlgorithmContract, Run, hills, same
from scipy.stats import spearmanr

from fbo_flower.algorithms import ExpectedImprovement
from fbo_flower.algorithms.ei.local import KERNEL
from fbo_flower.algorithms.records import Phase
from fbo_flower.numerics.surrogates import gp
from fbo_flower.space import Float, SearchSpace
from studies.peers.fmtbo import FMTBO, public_points

SMALL = {"num_candidates": 64, "num_points": 30}


class TestContract(AlgorithmContract):
    def make(self):
        return FMTBO(**SMALL)


def test_a_single_agent_and_agents_that_ignore_the_others_do_what_ei_does():
    for count, weight in ((1, 0.5), (3, 0.0)):
        runs = [
            Run.begin(algorithm, num_agents=count).steps(6)
            for algorithm in (FMTBO(global_weight=weight, **SMALL), ExpectedImprovement(num_candidates=64))
        ]
        one, two = (run.histories() for run in runs)
        for agent in one:
            np.testing.assert_array_equal(one[agent].points, two[agent].points)


@pytest.mark.parametrize("space", [SQUARE, MIXED], ids=["square", "mixed"])
def test_an_agent_sends_its_fit_and_the_ranks_of_public_points_under_it(space):
    run = Run.begin(FMTBO(**SMALL), space=space, objective=hills(space, 0.0)).steps(3)
    algorithm = run.algorithm
    points = public_points(space, algorithm.num_points, run.state.seed)
    for exchange in run.exchanges[-3:]:
        agent = run.agents[exchange.agent].agent_state
        x, y = algorithm.observations(agent)
        theta = exchange.report.arrays["theta"]
        np.testing.assert_array_equal(theta, agent.arrays["hyperparameters"])
        model = gp.posterior(x, y, gp.Hyperparameters.from_array(KERNEL, theta))
        predicted = model.predict(space.features(points))[0]
        assert (np.diff(predicted[np.argsort(exchange.report.arrays["ranks"])]) >= 0).all()


def test_each_agent_receives_the_mean_over_agents_that_rank_alike():
    run = Run.begin(FMTBO(**SMALL), num_agents=4, seed=3).steps(2)
    sent = {e.agent: e.report.arrays for e in run.exchanges[-4:]}
    _, tasks = run.algorithm.ask(run.state, Phase.TRAIN, 3, list("0123"), np.random.default_rng(0))
    for own in "0123":
        weights = [max(0.0, spearmanr(sent[a]["ranks"], sent[own]["ranks"]).statistic) for a in "0123"]
        expected = sum(w * sent[a]["theta"] for w, a in zip(weights, "0123", strict=True)) / sum(weights)
        np.testing.assert_allclose(tasks[own].arrays["theta"], expected, atol=1e-12)


def test_nothing_but_hyperparameters_and_ranks_travels():
    algorithm = FMTBO(**SMALL)
    assert set(algorithm.report_schema(SQUARE).arrays) == {"theta", "ranks"}
    assert set(algorithm.task_schema(SQUARE).arrays) == {"theta"}
    task = Run.begin(algorithm).steps(3).exchanges[-1].task
    assert task.arrays["theta"].nbytes == 8 * 4


def test_a_lost_task_comes_again_unchanged_although_others_have_sent_new_messages():
    run = Run.begin(FMTBO(**SMALL)).steps(2).step(lost=["1"]).step()
    one, two = [e.task for e in run.exchanges if e.agent == "1"][-2:]
    assert one.trial == two.trial
    assert same(dict(one.arrays), dict(two.arrays))


LINES = SearchSpace({f"x{i}": Float(0, 1) for i in range(5)})


def active_axes(seed):
    """Bowls that depend on two of five axes, the same ones for all agents, with other centres."""

    def objective(config, context):
        centre = np.random.default_rng([seed, int(context.agent)]).random(5)
        u = LINES.encode(config)
        return -float(((u - centre)[:2] ** 2).sum())

    return objective


def test_the_global_hyperparameters_do_no_harm_to_related_agents():
    # the paper's claim is a gain; in a few seeds of this size we require only that nothing is lost
    def best(algorithm, seed):
        run = Run.begin(algorithm, num_agents=6, seed=seed, space=LINES, objective=active_axes(seed))
        values = [-history.values.max() for history in run.steps(7).histories().values()]
        return np.mean(np.log(values))

    shared = np.array([best(FMTBO(**SMALL), seed) for seed in range(3)])
    alone = np.array([best(ExpectedImprovement(num_candidates=64), seed) for seed in range(3)])
    assert shared.mean() < alone.mean() + 0.5
