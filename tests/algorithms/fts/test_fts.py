import numpy as np
import pytest
from contract import SQUARE, Run, same, step
from one_task import observed
from scipy import stats

from fbo_flower.algorithms import FTS, ThompsonSampling
from fbo_flower.algorithms.fts.fts import Adviser, Message
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import Federation, Phase, Report, Task
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import rff
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
