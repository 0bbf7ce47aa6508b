"""consensus: the average against the plain sum, the exchange, consent, and the paper's claim in small."""

from __future__ import annotations

import numpy as np
import pytest
from contract import FINITE, MIXED, SQUARE, AlgorithmContract, Run, same
from peer_runs import CUBE, assert_leave_with_trials_only, best_values, same_trials

from fbo_flower.algorithms import ExpectedImprovement
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import Federation, Phase, Report
from fbo_flower.clients.guards import consented
from fbo_flower.space import Categorical
from studies.peers.consensus import Consensus, Designs

SMALL = {"num_candidates": 64}


class TestContract(AlgorithmContract):
    reports_values = True  # the next design

    def make(self):
        return Consensus(transition=3, **SMALL)


def consensus_matrix(count, t, horizon):
    """`W(t)` as the paper says it: linear from 1/K to the identity."""
    return (1 - t / horizon) * np.full((count, count), 1 / count) + t / horizon * np.eye(count)


@pytest.mark.parametrize("t", [0, 1, 7, 10])
def test_the_average_is_the_row_of_the_consensus_matrix_times_the_designs(t):
    points = np.random.default_rng(t).random((5, 2))
    designs = Designs.of(SQUARE, points)
    found = np.array([designs.mixed(k, t / 10) for k in range(5)])
    np.testing.assert_allclose(found, consensus_matrix(5, t, 10) @ points, atol=1e-12)


@pytest.mark.parametrize("t", [0, 3, 6])
@pytest.mark.parametrize("seed", range(3))
def test_in_a_mixed_space_categories_vote_and_conditional_axes_average_where_they_are_active(seed, t):
    points = MIXED.snap(np.random.default_rng(seed).random((7, 5)))
    active, weights = MIXED.active(points), consensus_matrix(7, t, 6)
    for k in range(7):
        expected = np.full(5, 0.5)
        for axis, parameter in enumerate(MIXED.parameters.values()):
            w = weights[k] * active[:, axis]
            if isinstance(parameter, Categorical):
                bins = np.round(points[:, axis] * 3 - 0.5).astype(int)
                tally = [w[bins == choice].sum() for choice in range(3)]
                winners = [c for c in range(3) if tally[c] > max(tally) - 1e-9]
                choice = bins[k] if bins[k] in winners else winners[0]
                expected[axis] = (choice + 0.5) / 3
            elif w.sum() > 0:
                expected[axis] = w @ points[:, axis] / w.sum()
        found = Designs.of(MIXED, points).mixed(k, t / 6)
        # an average on the edge of two bins may fall into either
        nudged = MIXED.snap(np.clip([expected - 1e-9, expected + 1e-9], 0, 1))
        assert np.abs(nudged - found).min(axis=0).max() < 1e-8


def test_after_the_transition_each_keeps_its_own_design():
    for space in (SQUARE, MIXED, FINITE):
        points = space.snap(np.random.default_rng(2).random((6, space.dimension)))
        found = [Designs.of(space, points).mixed(k, 1.0) for k in range(6)]
        np.testing.assert_allclose(found, points, atol=1e-12)


def test_a_single_agent_and_agents_without_a_transition_do_what_ei_does():
    for count, transition in ((1, 20), (3, 0)):
        same_trials(Consensus(transition=transition, **SMALL), ExpectedImprovement(**SMALL), count)


def test_every_agent_evaluates_the_average_of_the_designs_of_the_last_round():
    run = Run.begin(Consensus(transition=8, **SMALL), num_agents=4).steps(5)
    for server_round in (2, 3, 4, 5):
        before = {e.agent: e.report for e in run.exchanges if e.server_round == server_round - 1}
        designs = np.array([before[a].arrays["design"] for a in "0123"])
        expected = consensus_matrix(4, server_round - 2, 8) @ designs
        for agent, point in zip("0123", expected, strict=True):
            trial = server_round + 1
            np.testing.assert_allclose(run.agents[agent].log.points[trial], point, atol=1e-12)


def test_only_designs_of_the_last_round_are_averaged():
    run = Run.begin(Consensus(**SMALL), num_agents=4).steps(2).step(lost=["3"])
    run.step()
    tasks = {e.agent: e.task for e in run.exchanges[-4:]}
    assert tasks["3"].trial == 4  # asked again, with the design of the lost task
    assert same(dict(tasks["3"].arrays), dict(run.exchanges[-5].task.arrays))
    designs = [run.exchanges[8 + i].report.arrays["design"] for i in range(3)]
    row = consensus_matrix(3, 2, 20)[0]
    np.testing.assert_allclose(tasks["0"].arrays["design"], row @ np.array(designs), atol=1e-12)


def test_without_consent_a_design_stays_and_the_agent_evaluates_its_own():
    algorithm = Consensus(**SMALL)
    report = Report(0, 3, 0, {"design": np.array([0.1, 0.2])})
    assert_leave_with_trials_only(algorithm, report, {"design"})
    run = Run.begin(algorithm, num_agents=4).step()
    silent = {e.agent: e.report for e in run.exchanges}
    silent["1"] = consented(algorithm, silent["1"], "none")
    begun = algorithm.init(Federation(SQUARE, tuple("0123")), np.random.default_rng(0))
    state = algorithm.tell(begun, Phase.TRAIN, Replies(silent))
    _, tasks = algorithm.ask(state, Phase.TRAIN, 2, list("0123"), np.random.default_rng(0))
    assert [a for a, task in tasks.items() if "design" in task.arrays] == ["0", "2", "3"]


def test_agents_with_one_objective_are_ahead_early_by_averaging():
    # the paper's claim: at first relying on each other speeds up; the same objective is its best case
    def best(algorithm, seed):
        def bowl(config, context):
            return -float(((CUBE.encode(config) - np.random.default_rng([seed, 99]).random(4)) ** 2).sum())

        return np.mean(best_values(algorithm, 4, num_agents=6, seed=seed, space=CUBE, objective=bowl))

    alone, together = (
        np.array([best(a, seed) for seed in range(8)])
        for a in (ExpectedImprovement(**SMALL), Consensus(**SMALL))
    )
    assert (together > alone).mean() > 0.6
