"""FTS: identities, who is sent what, what agents do, and the mixture of an agent and its senders."""

from dataclasses import replace

import numpy as np
import pytest
from acquisition_cases import slopes
from contract import SQUARE, Run, hills, same, step
from one_task import observed
from scipy import stats
from scipy.stats import spearmanr

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import FTS, ThompsonSampling
from fbo_flower.algorithms.fts.fts import Adviser, Message
from fbo_flower.algorithms.fts.fts import State as FTSState
from fbo_flower.algorithms.fts.mixture import Messages, draw_model, mean_message, trend_of
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import Federation, Phase, Report, Task
from fbo_flower.algorithms.senders import GAPS, RoundsPresent
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import fitting, gp, rff
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


# -- identities --------------------------------------------------------------------------------


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


# -- who is sent what ---------------------------------------------------------------------------


def draws_of_senders(algorithm, state, target, count):
    asked = (algorithm.ask(state, Phase.TRAIN, 9, [target], generator(2, "sender", i)) for i in range(count))
    return [sender_of(state, tasks[target]) for _, tasks in asked]


@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ({}, {1, 2, 3, 4, 5}),
        ({"refresh_every": 4}, {1, 5}),
        ({"communication": "once"}, {1}),
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


def test_unknown_targets_are_named():
    with pytest.raises(ConfigError, match="'7'"):
        FTS(targets=("7",)).init(Federation(SQUARE, ("0", "1")), generator(0))


# -- learned preferences -----------------------------------------------------------------------


def test_learned_preferences_favour_who_agrees():
    algorithm = FTS(preferences="learned", schedule=0.0, learning_rate=1.0, **SMALL)
    state = told(algorithm, trial=8)
    messages = {**state.messages, "1": state.messages["0"] * 1.01, "2": -state.messages["0"]}
    state = type(state)(SQUARE, state.progress, state.features, messages, AGENTS)
    senders = draws_of_senders(algorithm, state, "0", 40)
    assert senders.count("1") > 22
    assert senders.count("2") == 0
    flat = FTS(preferences="learned", schedule=0.0, learning_rate=0.0, **SMALL)
    names, counts = np.unique(draws_of_senders(flat, state, "0", 140), return_counts=True)
    assert len(names) == 7
    assert stats.chisquare(counts).pvalue > 1e-3


# -- what agents do ----------------------------------------------------------------------------


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


# -- portfolio ---------------------------------------------------------------------------------


def test_portfolio_is_the_greedy_one():
    algorithm = FTS(advice="portfolio", schedule=0.0, targets=("0",), **SMALL)
    state = told(algorithm, agents=AGENTS[1:])
    state = algorithm.tell(state, Phase.TRAIN, Replies({"0": Report(0, 3)}, Message))
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), axis=-1).reshape(-1, 2)
    weights = np.array([state.messages[a] for a in AGENTS[1:]])
    raw = state.features(grid) @ weights.T
    mean, stddev = raw.mean(axis=0), raw.std(axis=0)

    def z(points):
        return (state.features(points) @ weights.T - mean) / stddev

    taken = []
    for k in range(4):
        state, tasks = algorithm.ask(state, Phase.TRAIN, 2 + k, ["0"], generator(k))
        point = tasks["0"].arrays["point"][None]
        if not taken:
            gain, best = z(point).mean(), z(grid).mean(axis=1).max()
        else:
            floor = np.max(taken, axis=0)
            gain = np.maximum(z(point)[0] - floor, 0).mean()
            best = np.maximum(z(grid) - floor, 0).mean(axis=1).max()
        assert gain > 0.93 * best - 0.02, k  # the server looks at 1024 points only
        taken.append(z(point)[0])
        state = algorithm.tell(state, Phase.TRAIN, Replies({"0": Report(3 + k, 1)}, Message))


# -- lengthscale -------------------------------------------------------------------------------


def test_lengthscale_per_feature_is_used_per_feature():
    run = Run.begin(FTS(lengthscale=(0.1, 2.0), num_features=400))
    np.testing.assert_allclose(run.state.features.frequencies.std(axis=0), [10.0, 0.5], rtol=0.15)


# -- what messages reveal ----------------------------------------------------------------------


def test_own_rounds_and_the_random_control_send_no_message_of_others():
    run = Run.begin(FTS(advice="random", schedule=0.0, **SMALL)).steps(4)
    assert not any("weights" in e.task.arrays or e.report.arrays for e in run.exchanges)
    assert all("point" in e.task.arrays for e in run.exchanges if e.server_round > 1)


def test_a_portfolio_looks_at_a_sample_of_very_many_messages(monkeypatch):
    monkeypatch.setattr("fbo_flower.algorithms.fts.fts.MAX_POOL", 3)
    algorithm = FTS(advice="portfolio", schedule=0.0, **SMALL)
    state = told(algorithm)
    assert len(Adviser(algorithm, state, generator(0)).senders) == 3
    _, tasks = algorithm.ask(state, Phase.TRAIN, 2, AGENTS, generator(0))
    assert all("point" in task.arrays for task in tasks.values())


# -- advice from the first trial on ------------------------------------------------------------------


ADVISED = {"initial_design": "advised", **SMALL}


def test_an_agents_own_message_is_no_advice():
    algorithm = FTS(**ADVISED)
    state = told(algorithm, agents=["0"])
    _, tasks = algorithm.ask(state, Phase.TRAIN, 2, ["0", "late"], generator(0))
    assert sender_of(state, tasks["late"]) == "0"
    state = algorithm.init(Federation(SQUARE, AGENTS), generator(0))
    _, tasks = algorithm.ask(state, Phase.TRAIN, 1, AGENTS, generator(0))
    assert {task.num_trials for task in tasks.values()} == {3}


def test_a_warm_start_advises_everybody_from_the_first_trial_on():
    algorithm = FTS(advice="portfolio", **ADVISED)
    earlier = algorithm.export_messages(told(algorithm))
    state = algorithm.warm_start(algorithm.init(Federation(SQUARE, AGENTS), generator(0)), earlier)
    _, tasks = algorithm.ask(state, Phase.TRAIN, 1, AGENTS, generator(1))
    points = np.array([task.arrays["point"] for task in tasks.values()])
    assert {task.num_trials for task in tasks.values()} == {1}
    np.testing.assert_array_equal(points, np.repeat(points[:1], len(AGENTS), axis=0))


def test_an_agent_sends_no_message_before_its_initial_design_is_complete():
    # a surrogate of one value is little but its prior
    run = Run.begin(FTS(advice="portfolio", **ADVISED), num_agents=4, late=("3",))
    run.steps(3, present=["0", "1", "2"]).steps(5)
    numbers = [(e.task.end, "weights" in e.report.arrays) for e in run.exchanges if e.agent == "3"]
    assert numbers == [(1, False), (2, False), (3, True), (4, True), (5, True)]


# -- who has left --------------------------------------------------------------------------------------


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
