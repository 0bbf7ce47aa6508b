"""Who sends, and the mixture of an agent and its senders."""

from dataclasses import replace

import numpy as np
import pytest
from acquisition_cases import slopes
from contract import SQUARE, Run, hills, same
from scipy.stats import spearmanr

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import FTS
from fbo_flower.algorithms.fts.fts import Adviser
from fbo_flower.algorithms.fts.fts import State as FTSState
from fbo_flower.algorithms.fts.mixture import Messages, draw_model, mean_message, trend_of
from fbo_flower.algorithms.records import Phase
from fbo_flower.algorithms.senders import GAPS, RoundsPresent
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import fitting, gp, rff
from fbo_flower.numerics.surrogates.transforms import standardise


def after(rounds):
    """The record after these rounds, each a text with a letter per agent."""
    record = RoundsPresent()
    for number, agents in enumerate(rounds, 1):
        record = record.enter(agents, number)
    return record


def test_an_agent_that_is_away_for_longer_than_five_mean_gaps_has_left():
    record = after(["ab"] * 4 + ["a"] * GAPS)
    assert (record.mean_gap(), record.have_left()) == (1.0, frozenset())
    assert after(["ab"] * 4 + ["a"] * (GAPS + 1)).have_left() == {"b"}
    assert after(["ab"] * 4 + ["a"] * 20 + ["ab"]).have_left() == frozenset(), "it is back"
    unknown = after(["a", "b", "c"])
    assert (unknown.mean_gap(), unknown.have_left()) == (float("inf"), frozenset()), "nobody came twice"
    assert record.enter("a", 4 + GAPS) == record, "a round that is asked twice counts once"


@pytest.mark.parametrize("fraction", [0.1, 1.0])
def test_a_fraction_of_the_agents_in_each_round_is_no_departure(fraction):
    # 50 agents that stay, 200 rounds: at most 2 % of agents and rounds are taken for departures
    draws = np.random.default_rng(0)
    names = [str(i) for i in range(50)]
    record, wrong = RoundsPresent(), []
    for number in range(1, 201):
        record = record.enter(draws.choice(names, round(fraction * 50), replace=False).tolist(), number)
        wrong.append(len(record.have_left()))
    assert np.mean(wrong) < 0.02 * 50


# -- the sender, written down plainly ------------------------------------------------------------------

SPACE = SearchSpace({"x": Float(0.0, 1.0)})


def plain_sender(selector, left, agent, draw):
    """The sender that a uniform number chooses, from the list of all that may be drawn."""
    own = {agent, *selector.used.get(agent, ())}
    others = [sender for sender in selector.senders if sender not in own]
    there = [sender for sender in others if sender not in left] or others
    return there[min(int(draw * len(there)), len(there) - 1)] if there else None


@pytest.mark.parametrize("preferences", ["uniform", "learned"])
@pytest.mark.parametrize("seed", range(6))
def test_a_sender_is_drawn_from_those_that_are_there(seed, preferences):
    rng = np.random.default_rng(seed)
    names = [str(i) for i in range(rng.integers(1, 7))]
    algorithm = FTS(
        num_features=4, schedule=0.0, communication="once", preferences=preferences, learning_rate=0.0
    )
    left = {name for name in names if rng.random() < 0.4}
    present = {name: (1, 1 if name in left else 20, 20) for name in [*names, "guest"]}
    features = rff.draw_features(4, 0.5, 1, rng)
    messages = {name: rng.standard_normal(4) for name in names if rng.random() < 0.8}
    known = FTSState(SPACE, features=features, messages=messages)
    state = replace(known, attendance=RoundsPresent(present, 20))
    assert state.attendance.have_left() == left
    selector = Adviser(algorithm, state, generator(seed))
    for agent in [*names, "guest"] * 3:
        draw = float(np.random.default_rng(seed).random())
        expected = plain_sender(selector, left, agent, draw)
        assert selector.is_ready(agent) == bool(set(messages) - {agent})
        advice = selector.advise_step(agent, 0, np.random.default_rng(seed))
        assert advice.get("weights") is (None if expected is None else messages[expected])


# -- the mixture -------------------------------------------------------------------------------------


OWN = gp.Hyperparameters("rbf", np.array([0.4, 0.4]), 1.0, 1e-3)
CUBE = np.random.default_rng(0).random((400, 2))


def rng(seed=0):
    return np.random.default_rng(seed)


def world(seed, num_messages=3, n=12, related=True):
    """Observations of one function and messages about it (or about others)."""
    draws = rng(seed)
    features = rff.draw_features(60, 0.5, 2, draws)
    weights = draws.standard_normal((num_messages + 1, 60))
    x = draws.random((n, 2))
    own = weights[0]
    y = standardise(features(x) @ own)
    others = own + 0.3 * weights[1:] if related else weights[1:]
    return x, y, Messages(features, others)


def trend_by_the_book(x, y, messages, cube):
    """`a m(.)`, one formula after the other, from the docstring."""
    over_cube = messages.features(cube) @ messages.weights.T
    z = (messages.features(x) @ messages.weights.T - over_cube.mean(axis=0)) / over_cube.std(axis=0)
    rho = np.array([spearmanr(column, y).statistic for column in z.T])
    w = np.exp(len(y) * rho / 2)
    m = z @ (w / w.sum())
    return m, max(0.0, (m @ y) / (m @ m + 1.0))


@pytest.mark.parametrize("seed", range(2))
def test_trend_is_the_weighted_mean_of_standardised_messages(seed):
    x, y, messages = world(seed)
    m, coefficient = trend_by_the_book(x, y, messages, CUBE)
    trend = trend_of(x, y, messages, CUBE)
    np.testing.assert_allclose(trend(x), coefficient * m, atol=1e-10)
    value, gradient = trend.value_and_gradient(x)
    np.testing.assert_allclose(value, trend(x), atol=2e-5)  # single precision
    np.testing.assert_allclose(gradient, slopes(trend, x), atol=2e-4)
    opposite = Messages(messages.features, -messages.weights)
    np.testing.assert_array_equal(trend_of(x, y, opposite, CUBE)(CUBE), np.zeros(len(CUBE)))


def test_the_mean_message_is_the_mean_of_the_standardised_messages():
    _, _, messages = world(0)
    weights = np.vstack([messages.weights, np.zeros(60)])  # the last one is constant
    values = messages.features(CUBE) @ weights.T
    z = (values - values.mean(axis=0)) / np.where(values.std(axis=0) > 0, values.std(axis=0), np.inf)
    mean = mean_message(Messages(messages.features, weights), CUBE)
    np.testing.assert_allclose(mean(CUBE), z.mean(axis=1), atol=1e-10)


def test_constant_messages_and_equal_values_do_no_harm():
    x, y, messages = world(2)
    flat = Messages(messages.features, np.zeros((2, 60)))
    for values, told in ((y, flat), (np.zeros_like(y), messages), (y[:1] * 0, messages)):
        _, residual, fitted = draw_model(x[: len(values)], values, OWN, told, CUBE, rng())
        assert np.isfinite([*residual, *fitted.to_array()]).all()


def test_trend_is_chosen_for_related_agents_and_own_surrogate_for_unrelated_ones():
    def share(related):  # of draws that follow the messages, 20 worlds each
        taken = []
        for seed in range(20):
            x, y, messages = world(seed, related=related, n=10)
            own = fitting.fit_one(x, y, "rbf")
            taken.append(draw_model(x, y, own, messages, CUBE, rng(seed))[0] is not None)
        return np.mean(taken)

    related, unrelated = share(True), share(False)
    assert related > 0.8
    assert unrelated < related - 0.25


def test_the_trend_and_the_values_that_it_leaves_are_the_observations():
    x, y, messages = world(3)
    for seed in range(4):
        trend, values, _ = draw_model(x, y, OWN, messages, CUBE, rng(seed))
        np.testing.assert_allclose(values + (0.0 if trend is None else trend(x)), y, atol=1e-12)


def test_messages_are_sent_once_but_again_to_who_did_not_get_them():
    algorithm = FTS(advice="mixture", communication="once", num_candidates=64, num_path_features=32)
    run = Run.begin(algorithm, objective=hills(SQUARE)).step()
    names = list(run.agents)
    run.state, lost = algorithm.ask(run.state, Phase.TRAIN, 2, names, rng(1))
    assert all("messages" in task.arrays for task in lost.values())
    # nobody answers: it is not known whether the task arrived, so it is sent again as it was
    run.state, again = algorithm.ask(run.state, Phase.TRAIN, 3, names, rng(2))
    assert same({a: t.arrays for a, t in lost.items()}, {a: t.arrays for a, t in again.items()})
    run.server_round = 3
    run.step()
    run.step()
    assert not any("messages" in e.task.arrays for e in run.exchanges[-3:])
    assert all("messages" in a.agent_state.arrays for a in run.agents.values())


def test_no_more_messages_are_sent_than_asked_for():
    algorithm = FTS(advice="mixture", mixture_messages=2, num_candidates=64, num_path_features=32)
    run = Run.begin(algorithm, num_agents=6).steps(2)
    sent = [e.task.arrays["messages"] for e in run.exchanges[-6:]]
    assert [len(m) for m in sent] == [2] * 6
    assert len({m.tobytes() for m in sent}) > 1
