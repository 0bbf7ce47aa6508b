"""RGPE and TAF: posteriors that travel once, and what a target makes of them."""

import functools

import numpy as np
import pytest
from contract import SQUARE, Run, step

from fbo_flower.algorithms import RGPE, TAF
from fbo_flower.algorithms.records import AgentState, Phase, Task, Trials
from fbo_flower.algorithms.transfer.base import Members, Outgoing, WeightPosterior
from fbo_flower.numerics.acquisition.expected_improvement import expected_improvement
from fbo_flower.numerics.acquisition.feature_models import unpack_symmetric
from fbo_flower.numerics.surrogates import gp, rff
from fbo_flower.numerics.surrogates.transforms import standardise

SMALL = {"num_candidates": 64, "num_features": 12}


def test_posteriors_are_sent_once_and_kept_and_again_to_who_lost_them():
    run = Run.begin(TAF(communication="once", **SMALL), num_agents=4).steps(6)
    for name, agent in run.agents.items():
        mine = [e for e in run.exchanges if e.agent == name]
        assert ["mean" in e.report.arrays for e in mine] == [True] + [False] * 5
        assert [len(e.task.arrays.get("means", ())) for e in mine] == [0, 3, 0, 0, 0, 0]
        assert ["frequencies" in e.task.arrays for e in mine] == [True] + [False] * 5
        listed = [set(e.task.arrays["members"].tolist()) for e in mine[1:]]
        assert all(digests == listed[0] for digests in listed)
        theirs = [run.state.posteriors[a].mean for a in sorted(run.agents) if a != name]
        np.testing.assert_array_equal(agent.agent_state.arrays["means"], theirs)
    agent = run.agents["1"]
    agent.agent_state = AgentState(SQUARE, agent.agent_state.history)  # only its observations are left
    mine = [e for e in run.steps(3).exchanges if e.agent == "1"][6:]
    assert [bool(e.report.values.get("missing")) for e in mine] == [True, False, False]
    assert [len(e.task.arrays.get("means", ())) for e in mine] == [0, 3, 0]
    assert len(agent.agent_state.arrays["means"]) == 3
    assert "frequencies" in mine[1].task.arrays


def test_others_answer_once_and_over_what_the_target_has_seen_no_value_travels():
    prior = {"2": Trials.prior(np.random.default_rng(0).random((5, 2)), np.arange(5.0))}
    algorithm = TAF(targets=("1",), improvement_over="seen", **SMALL)
    run = Run.begin(algorithm, num_agents=4, prior=prior).steps(4)
    assert {n: a.num_evaluations for n, a in run.agents.items()} == {"0": 0, "1": 6, "2": 0, "3": 0}
    assert set(run.state.posteriors) == {"2"}, "a target gives nothing that nobody would use"
    assert any("means" in e.task.arrays for e in run.exchanges)
    assert not any("incumbent" in e.report.arrays or "incumbents" in e.task.arrays for e in run.exchanges)


def posteriors_of(count):
    rng = np.random.default_rng(0)
    return {str(i): WeightPosterior(*map(rng.random, (12, 78, 1))) for i in range(count)}


def stored(target, arrays, before=None):
    """The target's state after a task with these arrays."""
    return target.absorbed(Task(Phase.TRAIN, 1, 0, 1, arrays), before or AgentState(SQUARE, Trials.empty(2)))


def test_targets_of_a_group_share_the_arrays_of_their_tasks_and_keep_one_copy():
    posteriors = posteriors_of(60)
    outgoing = Outgoing(posteriors, 20, True)
    tasks = {agent: outgoing.arrays(agent, {}) for agent in posteriors}
    for agent, arrays in tasks.items():
        assert len({*arrays["members"].tolist()} - {posteriors[agent].digest}) == 20
        rows = zip(arrays["means"], arrays["inverses"], arrays["incumbents"][:, None], strict=True)
        assert {*arrays["members"].tolist()} <= {WeightPosterior(*row).digest for row in rows}
    assert len({id(arrays["inverses"]) for arrays in tasks.values()}) == 3
    states = [stored(TAF(max_members=20, **SMALL), arrays).arrays for arrays in tasks.values()]
    assert len({id(state["inverses"]) for state in states}) == 3
    assert not any(state["inverses"].flags.writeable for state in states)


def test_new_posteriors_are_merged_with_those_that_a_target_stores():
    posteriors, target = posteriors_of(5), TAF(**SMALL)
    first = Outgoing(posteriors, 64, True).arrays("0", {})
    posteriors["3"] = posteriors_of(6)["5"]
    second = Outgoing(posteriors, 64, True).arrays("0", {"0": frozenset(first["members"].tolist())})
    assert len(second["means"]) == 1
    kept = stored(target, second, stored(target, first)).arrays
    assert kept["digests"].tolist() == [posteriors[a].digest for a in "1234"]
    np.testing.assert_array_equal(kept["inverses"], [posteriors[a].inverse for a in "1234"])
    np.testing.assert_array_equal(kept["incumbents"], [posteriors[a].incumbent[0] for a in "1234"])


def test_message_is_the_posterior_of_the_paper():
    algorithm = RGPE(**SMALL)
    features = rff.draw_features(12, 0.5, 2, np.random.default_rng(1))
    points = np.random.default_rng(0).random((7, 2))
    values = np.sin(5 * points.sum(axis=1))
    arrays = {"frequencies": features.frequencies, "phases": features.phases}
    task = Task(Phase.TRAIN, 1, 0, 0, arrays, {"message": True})
    agent_state = algorithm.absorbed(task, AgentState(SQUARE, Trials.prior(points, values)))
    sent = step(algorithm.summarise, task, agent_state, np.random.default_rng(0)).arrays
    phi, y = features(points), standardise(values)
    inverse = np.linalg.inv(phi.T @ phi + 0.01 * np.eye(12))
    np.testing.assert_allclose(sent["mean"], inverse @ phi.T @ y, rtol=1e-6)
    np.testing.assert_allclose(unpack_symmetric(sent["inverse"], 12), inverse, rtol=1e-6, atol=1e-8)
    assert set(sent) == {"mean", "inverse"}
    of_taf = step(TAF(**SMALL).summarise, task, agent_state, np.random.default_rng(0)).arrays
    assert of_taf["incumbent"] == y.max()


# -- what a target makes of them -------------------------------------------------------------------


def wave(shift, points):
    return np.sin(4 * (points[:, 0] + shift)) + np.cos(3 * points[:, 1])


@functools.cache
def setting(m=80):
    """A target with 6 observations; an agent like it, one that is its opposite, one that is noise."""
    rng = np.random.default_rng(0)
    features = rff.draw_features(m, 0.5, 2, rng)
    x = rng.random((6, 2))
    hyper = gp.Hyperparameters("rbf", np.array([0.4, 0.4]), 1.0, 1e-3)
    posterior = gp.posterior(x, standardise(wave(0.0, x)), hyper)
    theirs = rng.random((40, 2))
    y = [standardise(v) for v in (wave(0.05, theirs), -wave(0.0, theirs), rng.standard_normal(40))]
    pairs = [rff.weight_posterior(features(theirs), v, 1e-2) for v in y]
    means, inverses = (np.array(part) for part in zip(*pairs, strict=True))
    lower = inverses[:, *np.tril_indices(m)]
    return posterior, Members(features, means, lower, np.array([v.max() for v in y]))


@pytest.mark.parametrize("draws", ["posterior", "bootstrap"])
def test_rgpe_trusts_who_agrees_and_its_acquisition_uses_the_weights(draws):
    posterior, members = setting()
    algorithm = RGPE(num_features=80, draws=draws)
    weights = algorithm.weights(posterior, members, np.random.default_rng(1))
    assert weights.sum() == pytest.approx(1.0)
    assert weights[0] > max(0.3, 2 * weights[2])
    assert weights[1] == 0.0
    acquisition, z = (
        algorithm.acquisition(posterior, members, np.random.default_rng(1)),
        members.means[:5, :2],
    )
    theirs = members.features(z) @ (weights[:-1] @ members.means)
    np.testing.assert_allclose(acquisition.predict(z)[0], weights[-1] * posterior.predict(z)[0] + theirs)
    assert acquisition.best == pytest.approx(acquisition.predict(posterior.x)[0].max())


@pytest.mark.parametrize("algorithm", [RGPE(num_features=80), TAF(num_features=80)])
def test_a_posterior_that_is_none_stops_nobody(algorithm):
    posterior, members = setting()
    lies = np.random.default_rng(3).uniform(-1e9, 1e9, members.inverses.shape)
    liars = Members(members.features, 1e6 * members.means, lies, members.incumbents)
    acquisition = algorithm.acquisition(posterior, liars, np.random.default_rng(0))
    for part in acquisition.value_and_gradient(np.random.default_rng(4).random((9, 2))):
        assert np.isfinite(part).all()


@pytest.mark.parametrize("over", ["incumbent", "seen"])
def test_taf_trusts_who_agrees_and_asks_for_improvement(over):
    posterior, members = setting()
    algorithm = TAF(num_features=80, improvement_over=over)
    acquisition = algorithm.acquisition(posterior, members, np.random.default_rng(0))
    assert acquisition.weights[0] > 0.65
    assert acquisition.weights[1] == 0.0
    seen = (members.features(posterior.x) @ members.means.T).max(axis=0)
    np.testing.assert_allclose(acquisition.bests, members.incumbents if over == "incumbent" else seen)


@pytest.mark.parametrize("algorithm", [RGPE(**SMALL), TAF(**SMALL), TAF(improvement_over="seen", **SMALL)])
def test_one_agent_and_equal_values_mean_plain_expected_improvement(algorithm):
    x = np.random.default_rng(0).random((4, 2))
    posterior = gp.posterior(x, np.zeros(4), gp.Hyperparameters("rbf", np.full(2, 0.4), 1.0, 1e-2))
    features = rff.draw_features(12, 0.5, 2, np.random.default_rng(1))
    others = Members(features, np.ones((2, 12)), np.ones((2, 78)), np.zeros(2))
    nobody = Members(features, np.empty((0, 12)), np.empty((0, 78)), np.empty(0))
    z = np.random.default_rng(2).random((6, 2))
    expected = expected_improvement(*posterior.predict(z), posterior.predict(x)[0].max())
    for members in (others, nobody):
        value = algorithm.acquisition(posterior, members, np.random.default_rng(0))(z)
        np.testing.assert_allclose(np.exp(value), expected, rtol=1e-6)
