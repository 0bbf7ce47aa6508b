"""consensus, fmtbo and sharing: what travels, what is made of it, consent; and what all peers refuse."""

from __future__ import annotations

from collections import Counter

import golden_trials
import numpy as np
import pytest
from contract import MIXED, SQUARE, AlgorithmContract, Run, hills, same
from peer_runs import CUBE, assert_leave_with_trials_only, assert_slopes, same_trials
from scipy.integrate import quad
from scipy.stats import norm, spearmanr

from fbo_flower.algorithms import ExpectedImprovement, make_algorithm
from fbo_flower.algorithms.ei.local import KERNEL
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Report, Task, Trials
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.clients.guards import consented
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.surrogates import gp
from fbo_flower.space import Categorical
from studies.peers.consensus import Consensus, Designs
from studies.peers.dp_vote import DPVote
from studies.peers.flora import FLoRA
from studies.peers.fmtbo import FMTBO, LogMixtureImprovement, public_points
from studies.peers.sharing import ShareBest, ShareRandom

SMALL = {"num_candidates": 64}


class TestConsensus(AlgorithmContract):
    reports_values = True  # the next design

    def make(self):
        return Consensus(transition=3, **SMALL)


def consensus_matrix(count, t, horizon):
    """`W(t)` as the paper says it: linear from 1/K to the identity."""
    return (1 - t / horizon) * np.full((count, count), 1 / count) + t / horizon * np.eye(count)


@pytest.mark.parametrize("t", [0, 3, 10])
def test_the_average_is_the_row_of_the_consensus_matrix_times_the_designs(t):
    points = np.random.default_rng(t).random((5, 2))
    designs = Designs.of(SQUARE, points)
    found = np.array([designs.mixed(k, t / 10) for k in range(5)])
    np.testing.assert_allclose(found, consensus_matrix(5, t, 10) @ points, atol=1e-12)


@pytest.mark.parametrize(("seed", "t"), [(0, 0), (1, 3), (2, 6)])
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


def test_a_single_agent_and_agents_without_a_transition_do_what_ei_does():
    for count, transition in ((1, 20), (3, 0)):
        same_trials(Consensus(transition=transition, **SMALL), ExpectedImprovement(**SMALL), count)


def test_every_agent_evaluates_the_average_of_the_designs_of_the_last_round():
    run = Run.begin(Consensus(transition=8, **SMALL), num_agents=4).steps(4).step(lost=["3"]).step()
    told = {r: {e.agent: e for e in run.exchanges if e.server_round == r} for r in range(1, 7)}
    for server_round in (2, 3, 4):
        designs = np.array([told[server_round - 1][a].report.arrays["design"] for a in "0123"])
        expected = consensus_matrix(4, server_round - 2, 8) @ designs
        for agent, point in zip("0123", expected, strict=True):
            np.testing.assert_allclose(run.agents[agent].log.points[server_round + 1], point, atol=1e-12)
    # agent 3 is asked again, with the design of the lost task; the others average their own three
    assert same(dict(told[6]["3"].task.arrays), dict(told[5]["3"].task.arrays))
    designs = np.array([told[5][a].report.arrays["design"] for a in "012"])
    expected = consensus_matrix(3, 4, 8)[0] @ designs
    np.testing.assert_allclose(told[6]["0"].task.arrays["design"], expected, atol=1e-12)


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


# -- fmtbo ----------------------------------------------------------------------------------------

FEW = {"num_candidates": 64, "num_points": 30}


class TestFMTBO(AlgorithmContract):
    def make(self):
        return FMTBO(**FEW)


def test_a_single_agent_and_agents_that_ignore_the_others_do_what_ei_does():
    for count, weight in ((1, 0.5), (3, 0.0)):
        same_trials(FMTBO(global_weight=weight, **FEW), ExpectedImprovement(num_candidates=64), count)


@pytest.mark.parametrize("space", [SQUARE, MIXED], ids=["square", "mixed"])
def test_an_agent_sends_its_fit_and_the_ranks_of_public_points_under_it(space):
    run = Run.begin(FMTBO(**FEW), space=space, objective=hills(space, 0.0)).steps(3)
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
    run = Run.begin(FMTBO(**FEW), num_agents=4, seed=3).steps(2)
    sent = {e.agent: e.report.arrays for e in run.exchanges[-4:]}
    _, tasks = run.algorithm.ask(run.state, Phase.TRAIN, 3, list("0123"), np.random.default_rng(0))
    for own in "0123":
        weights = [max(0.0, spearmanr(sent[a]["ranks"], sent[own]["ranks"]).statistic) for a in "0123"]
        expected = sum(w * sent[a]["theta"] for w, a in zip(weights, "0123", strict=True)) / sum(weights)
        np.testing.assert_allclose(tasks[own].arrays["theta"], expected, atol=1e-12)


# -- log ei of a mixture -------------------------------------------------------------------------


RNG = np.random.default_rng(0)
X, Y = RNG.random((8, 3)), RNG.standard_normal(8)
Z = RNG.random((5, 3))


def posterior(scale: float) -> gp.Posterior:
    return gp.posterior(X, Y, gp.Hyperparameters("matern52", np.array([scale, 2 * scale, 0.5]), 1.3, 0.01))


BOTH = [posterior(0.3), posterior(0.9)]


def test_mean_and_variance_are_those_of_draws_from_the_mixture():
    draws, size = np.random.default_rng(1), 400_000
    mean, variance = LogMixtureImprovement(BOTH, [0.3, 0.7], 0.0).predict(Z[:2])
    for place, z in enumerate(Z[:2, None]):
        (first, one), (second, two) = (np.ravel(p.predict(z)) for p in BOTH)
        kinds = draws.random(size) < 0.3
        drawn = np.where(kinds, first, second) + np.sqrt(np.where(kinds, one, two)) * draws.standard_normal(
            size
        )
        assert mean[place] == pytest.approx(drawn.mean(), abs=0.01)
        assert variance[place] == pytest.approx(drawn.var(), rel=0.02)


def test_it_is_the_logarithm_of_the_expected_improvement_under_these_moments():
    found = LogMixtureImprovement(BOTH, [0.5, 0.5], 0.4)
    for z, value in zip(Z, found(Z), strict=True):
        (m,), (v,) = found.predict(z[None, :])
        law = norm(m, np.sqrt(v))
        expected = quad(lambda f, law=law: (f - 0.4) * law.pdf(f), 0.4, m + 12 * np.sqrt(v))[0]
        assert value == pytest.approx(np.log(expected), abs=1e-6)


def test_the_gradient_is_that_of_the_value():
    found = LogMixtureImprovement(BOTH, [0.25, 0.75], 0.4)
    values, _ = found.value_and_gradient(Z)
    np.testing.assert_allclose(values, found(Z), rtol=1e-9)
    assert_slopes(found, Z, 1e-4)


# -- share-best and share-random ------------------------------------------------------------------


class TestShareBest(AlgorithmContract):
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
    assert_leave_with_trials_only(run.algorithm, run.exchanges[0].report, {"point", "value"})
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


# -- refusals -------------------------------------------------------------------------------------

FEATURES = {"frequencies": np.ones((5, 2)), "phases": np.ones(5)}
CASES = [
    (FLoRA(num_features=5, secure_sums=0), {}, {"share": True}),
    (FLoRA(num_features=5, secure_sums=0), {"phases": FEATURES["phases"]}, {"share": True}),
    (DPVote(), {}, {}),
    (DPVote(), {}, {"seed": -1}),
    (DPVote(), {}, {"seed": 2**40, "vote": True}),
    (DPVote(num_configs=4, num_votes=1), {}, {"seed": 1}),  # beyond the end of the list
    (FMTBO(), {}, {"seed": -1}),
]


@pytest.mark.parametrize(("algorithm", "arrays", "values"), CASES)
def test_a_task_that_cannot_be_answered_is_refused_before_anything_is_evaluated(algorithm, arrays, values):
    def evaluate(query, first):
        raise AssertionError("it was evaluated")

    task = Task(Phase.TRAIN, 1, 0, 5, arrays, values)
    state = AgentState(SQUARE, Trials.empty(2))
    with pytest.raises(WireError):
        run_task(algorithm, task, state, evaluate, lambda *keys: np.random.default_rng(0))


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        (Consensus, {"transition": -1}, "transition"),
        (DPVote, {"num_configs": 1}, "num_configs"),
        (DPVote, {"num_votes": 20}, "num_votes"),
        (DPVote, {"noise_multiplier": -1}, "noise_multiplier"),
        (DPVote, {"secure_sums": 1}, "secure_sums"),
        (DPVote, {"delta": 0}, "delta"),
        (FLoRA, {"budget": 1}, "budget"),
        (FLoRA, {"combine": "median"}, "combine"),
        (FLoRA, {"combine": "average"}, "secure_sums=0"),
        (FLoRA, {"ridge": 0}, "ridge"),
        (FMTBO, {"num_points": 1}, "num_points"),
        (FMTBO, {"global_weight": 1.5}, "global_weight"),
        (ShareBest, {"every": 0}, "every"),
    ],
)
def test_an_option_that_cannot_be_is_named(kind, options, text):
    with pytest.raises(ConfigError, match=text):
        kind(**options)


# -- the peers' trials are the stored ones -------------------------------------------------------


@pytest.mark.parametrize("seed", golden_trials.BY_SEED)
@pytest.mark.parametrize("name", golden_trials.PEERS)
def test_the_trials_of_a_peer_are_the_stored_ones(name: str, seed: int) -> None:
    golden_trials.check(name, seed)
