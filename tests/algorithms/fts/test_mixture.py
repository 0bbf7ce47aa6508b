import numpy as np
import pytest
from contract import SQUARE, Run, hills, same
from scipy.stats import spearmanr

from fbo_flower.algorithms import FTS
from fbo_flower.algorithms.fts.mixture import Messages, drawing, trend_of
from fbo_flower.algorithms.records import AgentState, History, Phase
from fbo_flower.algorithms.requests import alone
from fbo_flower.numerics.surrogates import fitting, gp, rff
from fbo_flower.numerics.surrogates.transforms import standardise

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
    step = 1e-6 * np.eye(2)
    numeric = np.stack([(trend(x + h) - trend(x - h)) / 2e-6 for h in step], axis=1)
    np.testing.assert_allclose(gradient, numeric, atol=2e-4)


def test_messages_that_disagree_make_no_trend():
    x, y, messages = world(1)
    opposite = Messages(messages.features, -messages.weights)
    np.testing.assert_array_equal(trend_of(x, y, opposite, CUBE)(CUBE), np.zeros(len(CUBE)))


def test_constant_messages_and_equal_values_do_no_harm():
    x, y, messages = world(2)
    flat = Messages(messages.features, np.zeros((2, 60)))
    for values, told in ((y, flat), (np.zeros_like(y), messages), (y[:1] * 0, messages)):
        _, residual, fitted = alone(drawing(x[: len(values)], values, OWN, told, CUBE, rng()))
        assert np.isfinite([*residual, *fitted.to_array()]).all()


def test_trend_is_chosen_for_related_agents_and_own_surrogate_for_unrelated_ones():
    # share of draws that follow the messages, 30 worlds each
    def share(related):
        taken = []
        for seed in range(30):
            x, y, messages = world(seed, related=related, n=10)
            own = fitting.fit_one(x, y, "rbf")
            taken.append(alone(drawing(x, y, own, messages, CUBE, rng(seed)))[0] is not None)
        return np.mean(taken)

    related, unrelated = share(True), share(False)
    assert related > 0.8
    assert unrelated < related - 0.25


def test_the_trend_and_the_values_that_it_leaves_are_the_observations():
    x, y, messages = world(3)
    for seed in range(4):
        trend, values, _ = alone(drawing(x, y, OWN, messages, CUBE, rng(seed)))
        np.testing.assert_allclose(values + (0.0 if trend is None else trend(x)), y, atol=1e-12)


def test_notebook_keeps_messages_and_the_task_comes_first():
    _, _, messages = world(0)
    arrays = {
        "frequencies": messages.features.frequencies,
        "phases": messages.features.phases,
        "messages": messages.weights,
    }
    empty = AgentState(SQUARE, History.empty(2))
    assert Messages.of({}, empty.arrays) is None
    assert same(Messages.of({}, empty.write(**arrays).arrays).weights, messages.weights)
    newer = {**arrays, "messages": messages.weights[:1]}
    assert len(Messages.of(newer, empty.write(**arrays).arrays).weights) == 1


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
