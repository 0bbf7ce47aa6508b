"""dp-vote: votes by hand, sensitivity by enumeration, noise against its law, epsilon against a formula."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from contract import FINITE, MIXED, SQUARE, AlgorithmContract, Run
from peer_runs import finish, study_of
from scipy.optimize import brentq
from scipy.stats import kstest, norm

from fbo_flower.algorithms.messages import uses_observations
from fbo_flower.algorithms.records import AgentState, Phase, Task, Trials
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.secure import keys
from studies.peers.dp_vote import DPVote, Votes, first_places, listed_points, votes

SMALL = {"num_configs": 8, "max_evaluations_per_round": 2, "num_votes": 2, "secure_sums": 0}


class TestContract(AlgorithmContract):
    num_rounds = 3

    def make(self):
        return DPVote(**SMALL)


def history(values, places=None):
    points = listed_points(SQUARE, 8, 0)
    trials = np.arange(len(values)) if places is None else np.array(places)
    return Trials(points[trials % 8], np.array(values, dtype=float), trials)


def test_an_agent_votes_for_its_best_configurations():
    points = listed_points(SQUARE, 8, 0)
    found = votes(history([3, 9, np.nan, 9, 1, 8, 2, 0]), points, 3)
    assert found.tolist() == [0, 1, 0, 1, 0, 1, 0, 0]
    assert votes(history([np.nan] * 8), points, 3).sum() == 0
    assert votes(history([np.nan, 4.0]), points, 3).tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
    assert votes(history([5.0, 4.0, 3.0], [-3, -2, 0]), points, 1).tolist() == [1, 0, 0, 0, 0, 0, 0, 0]


def test_a_configuration_that_stands_twice_has_the_mean_of_its_values_and_one_place():
    points = listed_points(FINITE, 8, 0)
    places, values = first_places(points), np.arange(8.0)
    means = {p: values[places == p].mean() for p in set(places.tolist())}
    assert len(means) <= 4
    found = votes(Trials(points, values, np.arange(8)), points, 1)
    assert found.nonzero()[0].tolist() == [max(means, key=means.get)]


def test_replacing_one_agents_votes_changes_a_sum_by_at_most_the_sensitivity():
    chosen = [c for size in range(4) for c in combinations(range(7), size)]
    ballots = [np.isin(np.arange(7), c).astype(float) for c in chosen]
    changes = [np.linalg.norm(a - b) for a in ballots for b in ballots]
    assert max(changes) == pytest.approx(DPVote(num_configs=7, num_votes=3).sensitivity)


def test_epsilon_is_that_of_one_gaussian_mechanism_and_does_not_depend_on_the_list():
    for z in (0.7, 1.0, 4.0):

        def excess(epsilon, z=z):  # delta of a Gaussian mechanism [Balle and Wang 2018] minus ours
            return norm.cdf(0.5 / z - epsilon * z) - np.exp(epsilon) * norm.cdf(-0.5 / z - epsilon * z) - 1e-3

        exact = brentq(excess, 0, 60)
        few, many = (DPVote(num_configs=p, noise_multiplier=z).epsilon(1) for p in (5, 4000))
        assert few == many
        assert exact <= few <= 1.01 * exact + 1e-3
    assert DPVote(noise_multiplier=0.0).epsilon(1) == np.inf


def part_of_noise(algorithm, group, seed):
    """The votes of an agent without a success after `protect`: its noise alone."""
    arrays = {"secure.members": np.zeros((group - 1, 4), dtype=np.uint8)} if group > 1 else {}
    task = Task(Phase.TRAIN, 1, 0, 0, arrays, {"seed": 1, "vote": True})
    state = AgentState(SQUARE, Trials.empty(2))
    uniform = uniform_from(np.random.default_rng(seed))
    content = Votes(votes=np.zeros(algorithm.num_configs))
    return algorithm.protect(task, state, content, uniform).votes


@pytest.mark.parametrize("least", [2, 3, 8])
def test_noise_of_the_fewest_members_of_a_sum_has_the_law_that_epsilon_counts(least):
    algorithm = DPVote(num_configs=400, num_votes=2, noise_multiplier=1.5, secure_sums=least)
    for group in (least, 4 * least - 1):
        fewest = keys.threshold(group, least)
        total = sum(part_of_noise(algorithm, group, seed) for seed in range(fewest))
        stddev = 1.5 * algorithm.sensitivity
        assert kstest(total / stddev, norm.cdf).pvalue > 1e-3
        assert kstest(1.5 * total / stddev, norm.cdf).pvalue < 1e-3  # control: more noise is seen


def test_an_operators_account_counts_the_agents_own_noise_alone():
    algorithm = DPVote(noise_multiplier=3.0, secure_sums=3)
    assert algorithm.message_noise() == 3.0 / np.sqrt(keys.threshold(12, 3))
    assert all(algorithm.message_noise() <= algorithm.own_noise(n) for n in range(3, 13))
    task = Task(Phase.TRAIN, 1, 0, 2, {}, {"seed": 1})
    assert not uses_observations(algorithm, SQUARE, task)


def voted(run):
    finish(run).half(Phase.FINISH)
    return run


@pytest.mark.parametrize("space", [SQUARE, MIXED, FINITE], ids=["square", "mixed", "finite"])
def test_without_noise_the_configuration_with_most_votes_wins_and_all_agents_know_it(space):
    run = voted(Run.begin(DPVote(**(SMALL | {"noise_multiplier": 0.0})), space=space, num_agents=5))
    points = listed_points(space, 8, run.state.seed)
    ballots = [votes(agent.agent_state.history, points, 2) for agent in run.agents.values()]
    np.testing.assert_array_equal(run.state.tally, np.sum(ballots, axis=0))
    assert run.state.winner == int(np.argmax(run.state.tally))
    for agent in run.agents.values():
        np.testing.assert_array_equal(run.algorithm.best(agent.agent_state).point, points[run.state.winner])
        assert len(agent.log) == 8


def test_secure_sums_elect_the_same_winner_and_the_study_says_what_privacy_was_spent():
    clear, secure, noisy = (
        study_of("dp-vote", 4, num_configs=6, noise_multiplier=z, secure_sums=k).settings["runs"][0]
        for z, k in ((0.0, 0), (0.0, 3), (1.0, 3))
    )
    assert clear["found"]["shared"] == secure["found"]["shared"]
    np.testing.assert_allclose(clear["found"]["votes"], secure["found"]["votes"], atol=1e-9)
    privacy = noisy["privacy"]
    assert privacy["epsilon"] == DPVote().epsilon(1)
    assert (privacy["noise"], privacy["messages"], privacy["sums_made"]) == ("distributed", 1, 1)


def test_the_vote_does_not_wait_for_a_silent_agent():
    run = Run.begin(DPVote(**SMALL), num_agents=4).step().steps(4, lost=["3"]).step()
    assert run.state.winner is not None
    assert set(run.state.told) == {"0", "1", "2"}
