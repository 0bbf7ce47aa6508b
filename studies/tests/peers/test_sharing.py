"""share-best and share-random: who repeats what and when, consent, and a gain where agents are alike."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from contract import AlgorithmContract, Run
from peer_runs import CUBE, assert_leave_with_trials_only, best_values
from scipy.stats import ttest_rel

from fbo_flower.algorithms import ExpectedImprovement, make_algorithm
from studies.peers.sharing import ShareBest, ShareRandom

SMALL = {"num_candidates": 64}


class TestContract(AlgorithmContract):
    reports_values = True
    largest = 1e11

    def make(self):
        return ShareBest(**SMALL)


def bowl(config, context):
    """The same for all agents."""
    return -float(((CUBE.encode(config) - [0.3, 0.7, 0.2, 0.6]) ** 2).sum())


@pytest.mark.parametrize("name", ["share-best", "share-random"])
def test_every_fourth_evaluation_repeats_the_best_point_of_another_agent(name):
    run = Run.begin(make_algorithm(name, SMALL), num_agents=4, space=CUBE, objective=bowl).steps(10)
    repeated = Counter(e.task.trial for e in run.exchanges if "point" in e.task.arrays)
    assert repeated == {3: 4, 7: 4, 11: 4}
    first = [agent.log.points[:3][int(np.argmax(agent.log.values[:3]))] for agent in run.agents.values()]
    values = [agent.log.values[:3].max() for agent in run.agents.values()]
    for place, agent in enumerate(run.agents.values()):
        sources = [n for n in range(4) if (first[n] == agent.log.points[3]).all()]
        assert sources
        assert place not in sources
        if name == "share-best":
            others = [v for n, v in enumerate(values) if n != place]
            assert values[sources[0]] == max(others)


def test_a_random_source_is_each_of_the_others_alike():
    rng, others = np.random.default_rng(0), [(np.full(2, n / 4), float(n)) for n in range(4)]
    drawn = Counter(float(ShareRandom().chosen(others, rng)[0]) for _ in range(4000))
    assert all(abs(number - 1000) < 4 * np.sqrt(750) for number in drawn.values())
    assert len(drawn) == 4


def test_a_point_that_the_agent_knows_is_not_evaluated_again():
    run = Run.begin(ShareBest(every=1, **SMALL), num_agents=2, space=CUBE, objective=bowl).steps(9)
    for agent in run.agents.values():
        assert len(np.unique(agent.log.points, axis=0)) == len(agent.log.points)


def test_points_and_values_leave_with_disclosed_trials_only():
    run = Run.begin(ShareBest(**SMALL), num_agents=2).step()
    assert_leave_with_trials_only(ShareBest(), run.exchanges[0].report, {"point", "value"})


def test_agents_with_one_objective_are_ahead_of_agents_alone():
    together, alone = (
        [np.mean(best_values(a, 4, num_agents=5, seed=s, space=CUBE, objective=bowl)) for s in range(8)]
        for a in (ShareBest(**SMALL), ExpectedImprovement(**SMALL))
    )
    assert ttest_rel(together, alone, alternative="greater").statistic > 3
