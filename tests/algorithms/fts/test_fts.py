"""FTS: identities, who is sent what, what agents do, and the mixture of an agent and its senders."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from acquisition_cases import slopes
from contract import SQUARE, Run, same, step
from one_task import observed
from scipy.stats import spearmanr

from fbo_flower.algorithms import FTS, ThompsonSampling
from fbo_flower.algorithms.fts.fts import Adviser, Message
from fbo_flower.algorithms.fts.fts import State as FTSState
from fbo_flower.algorithms.fts.mixture import Messages, draw_model, mean_message, trend_of
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import Federation, Phase, Report, Task
from fbo_flower.algorithms.senders import GAPS, RoundsPresent
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import gp, rff
from fbo_flower.numerics.surrogates.transforms import standardise

PATHS = {"num_candidates": 64, "num_path_features": 32}
SMALL = {**PATHS, "num_features": 24}
AGENTS = tuple(str(i) for i in range(8))


def told(algorithm, agents=AGENTS, seed=0, trial=3):
    """A server's state in which all agents have done `trial` trials and `agents` have sent a message."""
    draws = np.random.default_rng(seed)
    state = algorithm.init(Federation(SQUARE, AGENTS), draws)
    reports = {agent: Report(0, trial) for agent in AGENTS}
    for agent in agents:
        reports[agent] = Report(0, trial, arrays={"weights": draws.standard_normal(algorithm.num_features)})
    return algorithm.tell(state, Phase.TRAIN, Replies(reports, Message))


def sender_of(state, task):
    """The agent whose message is in the task."""
    (name,) = (a for a, m in state.messages.items() if same(m, task.arrays["weights"]))
    return name


def test_fts_that_always_follows_itself_or_is_alone_is_thompson_sampling():
    ts = Run.begin(ThompsonSampling(**PATHS)).steps(6)
    for options in ({}, {"advice": "portfolio"}, {"communication": "once"}):
        fts = Run.begin(FTS(schedule=1.0, **PATHS, **options)).steps(6)
        assert same(fts.histories(), ts.histories())
        assert not any(e.report.arrays or e.task.arrays for e in fts.exchanges), "nothing needs to travel"
        other = Run.begin(FTS(schedule=0.5, **PATHS, **options)).steps(6)
        assert not same(other.histories(), ts.histories())
    one = Run.begin(FTS(advice="mixture", **PATHS), num_agents=1).steps(6)
    assert same(one.histories(), Run.begin(ThompsonSampling(**PATHS), num_agents=1).steps(6).histories())


@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ({}, {1, 2, 3, 4, 5}),
        ({"refresh_every": 4}, {1, 5}),
        ({"communication": "once", "trials_per_round": 3}, {1}),
    ],
)
def test_messages_are_drawn_anew_as_often_as_the_options_say_and_once_each_is_used_once(options, rounds):
    run = Run.begin(FTS(schedule=0.0, **options, **SMALL), num_agents=5).steps(5)
    sent = [e for e in run.exchanges if "weights" in e.report.arrays]
    assert {e.server_round for e in sent} == rounds
    assert len({e.report.arrays["weights"].tobytes() for e in sent}) == len(sent)
    for name in run.agents if "communication" in options else ():
        mine = [e.task.arrays for e in run.exchanges if e.agent == name and "weights" in e.task.arrays]
        rows = np.concatenate([arrays["weights"].reshape(-1, 24) for arrays in mine])
        others = [message for agent, message in run.state.messages.items() if agent != name]
        assert same(rows[np.lexsort(rows.T)], np.array(others)[np.lexsort(np.transpose(others))])


def test_an_absent_agent_does_not_shift_the_others_draws():
    algorithm = FTS(schedule=0.5, **SMALL)
    state = told(algorithm)
    _, whole = algorithm.ask(state, Phase.TRAIN, 2, AGENTS, generator(5))
    _, part = algorithm.ask(state, Phase.TRAIN, 2, AGENTS[3:], generator(5))
    assert all(same(whole[a], part[a]) for a in AGENTS[3:])


def test_learned_preferences_favour_who_agrees():
    algorithm = FTS(preferences="learned", schedule=0.0, learning_rate=1.0, **SMALL)
    state = told(algorithm, trial=8)
    messages = {**state.messages, "1": state.messages["0"] * 1.01, "2": -state.messages["0"]}
    state = replace(state, messages=messages)
    asked = (algorithm.ask(state, Phase.TRAIN, 9, ["0"], generator(2, "sender", i)) for i in range(20))
    senders = [sender_of(state, tasks["0"]) for _, tasks in asked]
    assert senders.count("1") > 10
    assert senders.count("2") == 0


POINTS = np.random.default_rng(0).random((15, 2))
VALUES = np.sin(4 * POINTS[:, 0]) + POINTS[:, 1] ** 2
AGENT = observed(POINTS, VALUES)
FEATURES = rff.draw_features(12, 0.5, 2, np.random.default_rng(1))
SHARED = {"frequencies": FEATURES.frequencies, "phases": FEATURES.phases}


def test_message_is_a_draw_of_the_weights_given_the_agents_standardised_values():
    task = Task(Phase.TRAIN, 1, 15, 0, SHARED, {"message": True})
    algorithm = FTS(num_features=12, message_noise_variance=0.05)
    sent = step(algorithm.summarise, task, AGENT, generator(3)).arrays["weights"]
    expected = rff.sample_weights([FEATURES], POINTS[None], standardise(VALUES)[None], 0.05, [generator(3)])
    np.testing.assert_array_equal(sent, expected[0])


def test_advised_point_is_taken_unless_the_agent_has_been_there():
    def proposed(point):
        task = Task(Phase.TRAIN, 2, 15, 1, {"point": point})
        return step(FTS(advice="portfolio", **SMALL).propose, task, AGENT, generator(0)).points

    free = np.array([0.123, 0.987])
    assert np.linalg.norm(POINTS - free, axis=1).min() > 0.025
    np.testing.assert_array_equal(proposed(free), [free])
    assert np.linalg.norm(POINTS - proposed(POINTS[3] + 1e-3), axis=1).min() >= 0.025


def test_an_agent_without_a_success_and_one_that_is_not_asked_tell_nothing():
    nothing = observed(np.eye(2), np.full(2, np.nan))
    for agent_state, values in ((nothing, {"message": True}), (AGENT, {})):
        task = Task(Phase.TRAIN, 1, 0, 2, SHARED, values)
        assert step(FTS().summarise, task, agent_state, generator(0)) == Message()


def test_the_random_control_sends_no_message_of_others():
    run = Run.begin(FTS(advice="random", schedule=0.0, **SMALL)).steps(4)
    assert not any("weights" in e.task.arrays or e.report.arrays for e in run.exchanges)
    assert all("point" in e.task.arrays for e in run.exchanges if e.server_round > 1)


def test_an_advised_design_follows_others_or_an_earlier_study_and_sends_no_message_before_it_is_complete():
    algorithm = FTS(initial_design="advised", **SMALL)
    state, empty = told(algorithm, agents=["0"]), algorithm.init(Federation(SQUARE, AGENTS), generator(0))
    _, tasks = algorithm.ask(state, Phase.TRAIN, 2, ["0", "late"], generator(0))
    assert sender_of(state, tasks["late"]) == "0"
    _, tasks = algorithm.ask(empty, Phase.TRAIN, 1, AGENTS, generator(0))
    assert {task.num_trials for task in tasks.values()} == {3}
    begun = algorithm.warm_start(empty, algorithm.export_messages(state))
    _, tasks = algorithm.ask(begun, Phase.TRAIN, 1, AGENTS, generator(1))
    assert {task.num_trials for task in tasks.values()} == {1}
    assert all(same(task.arrays["weights"], state.messages["0"]) for task in tasks.values())
    # a surrogate of one value is little but its prior
    run = Run.begin(algorithm, num_agents=4, late=("3",)).steps(3, present=["0", "1", "2"]).steps(5)
    numbers = [(e.task.end, "weights" in e.report.arrays) for e in run.exchanges if e.agent == "3"]
    assert numbers == [(1, False), (2, False), (3, True), (4, True), (5, True)]


def after(rounds):
    """The record after these rounds, each a text with a letter per agent."""
    numbered = enumerate(rounds, 1)
    return reduce(lambda record, step: record.enter(step[1], step[0]), numbered, RoundsPresent())


def test_an_agent_that_is_away_for_longer_than_five_mean_gaps_has_left():
    record = after(["ab"] * 4 + ["a"] * GAPS)
    assert (record.mean_gap(), record.have_left()) == (1.0, frozenset())
    assert after(["ab"] * 4 + ["a"] * (GAPS + 1)).have_left() == {"b"}
    assert after(["ab"] * 4 + ["a"] * 20 + ["ab"]).have_left() == frozenset(), "it is back"
    unknown = after(["a", "b", "c"])
    assert (unknown.mean_gap(), unknown.have_left()) == (float("inf"), frozenset()), "nobody came twice"
    assert record.enter("a", 4 + GAPS) == record, "a round that is asked twice counts once"


def plain_sender(selector, left, agent, draw):
    """The sender that a uniform number chooses, from the list of all that may be drawn."""
    own = {agent, *selector.used.get(agent, ())}
    others = [sender for sender in selector.senders if sender not in own]
    there = [sender for sender in others if sender not in left] or others
    return there[min(int(draw * len(there)), len(there) - 1)] if there else None


@pytest.mark.parametrize("preferences", ["uniform", "learned"])
@pytest.mark.parametrize("seed", range(2))
def test_a_sender_is_drawn_from_those_that_are_there(seed, preferences):
    rng = np.random.default_rng(seed)
    names = [str(i) for i in range(rng.integers(1, 7))]
    algorithm = FTS(
        num_features=4, schedule=0.0, communication="once", preferences=preferences, learning_rate=0.0
    )
    left = {name for name in names if rng.random() < 0.4}
    present = {name: (1, 1 if name in left else 20, 20) for name in [*names, "guest"]}
    features = rff.draw_features(4, 0.5, 2, rng)
    messages = {name: rng.standard_normal(4) for name in names if rng.random() < 0.8}
    attendance = RoundsPresent(present, 20)
    state = FTSState(SQUARE, features=features, messages=messages, attendance=attendance)
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


def world(seed):
    """Observations of one function and messages about it."""
    draws = rng(seed)
    features = rff.draw_features(60, 0.5, 2, draws)
    own, *others = draws.standard_normal((4, 60))
    x = draws.random((12, 2))
    return x, standardise(features(x) @ own), Messages(features, own + 0.3 * np.array(others))


def test_trend_is_the_weighted_mean_of_standardised_messages():
    x, y, messages = world(0)
    over_cube = messages.features(CUBE) @ messages.weights.T
    z = (messages.features(x) @ messages.weights.T - over_cube.mean(axis=0)) / over_cube.std(axis=0)
    w = np.exp(len(y) * np.array([spearmanr(column, y).statistic for column in z.T]) / 2)
    m = z @ (w / w.sum())
    trend = trend_of(x, y, messages, CUBE)
    np.testing.assert_allclose(trend(x), max(0.0, (m @ y) / (m @ m + 1.0)) * m, atol=1e-10)
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


def test_messages_are_sent_once_but_again_to_who_did_not_get_them():
    run = Run.begin(FTS(advice="mixture", communication="once", **PATHS)).step()
    run.state, lost = run.algorithm.ask(run.state, Phase.TRAIN, 2, list(run.agents), rng(1))
    assert all("messages" in task.arrays for task in lost.values())
    # nobody answers: it is not known whether the task arrived, so it is sent again as it was
    run.state, again = run.algorithm.ask(run.state, Phase.TRAIN, 3, list(run.agents), rng(2))
    assert same({a: t.arrays for a, t in lost.items()}, {a: t.arrays for a, t in again.items()})
    run.server_round = 3
    assert not any("messages" in e.task.arrays for e in run.steps(2).exchanges[-3:])
    assert all("messages" in a.agent_state.arrays for a in run.agents.values())
