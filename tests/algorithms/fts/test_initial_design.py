"""`initial_design = "advised"`: advice from the first trial on, for those that find messages."""

import numpy as np
import pytest
from contract import SQUARE, Run
from test_fts import AGENTS, SMALL, sender_of, told

from fbo_flower.algorithms import FTS
from fbo_flower.algorithms.fts.mixture import Messages, mean_message
from fbo_flower.algorithms.records import Federation, Phase, Report
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import rff

ADVISED = {"initial_design": "advised", **SMALL}


def joining(algorithm, seed=0):
    """The first task of an agent that joins eight others, and the server's state."""
    state, tasks = algorithm.ask(told(algorithm), Phase.TRAIN, 2, [*AGENTS, "late"], generator(seed))
    return state, tasks["late"]


@pytest.mark.parametrize("advice", ["single", "portfolio", "mixture"])
def test_a_late_joiner_gets_advice_for_each_trial_of_its_initial_design(advice):
    algorithm = FTS(advice=advice, **ADVISED)
    state = told(algorithm)
    for trial in range(algorithm.num_initial):
        state, tasks = algorithm.ask(state, Phase.TRAIN, 2 + trial, [*AGENTS, "late"], generator(trial))
        task = tasks["late"]
        assert (task.trial, task.num_trials) == (trial, 1)
        assert {"weights", "point", "messages"} & task.arrays.keys(), "no coin is tossed"
        state = algorithm.tell(state, Phase.TRAIN, {"late": Report(trial, 1)})


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


def test_the_mean_message_is_the_mean_of_the_standardised_messages():
    draws = np.random.default_rng(0)
    features = rff.draw_features(60, 0.5, 2, draws)
    weights = np.vstack([draws.standard_normal((3, 60)), np.zeros(60)])  # the last one is constant
    cube = draws.random((200, 2))
    values = features(cube) @ weights.T
    z = (values - values.mean(axis=0)) / np.where(values.std(axis=0) > 0, values.std(axis=0), np.inf)
    mean = mean_message(Messages(features, weights), cube)
    np.testing.assert_allclose(mean(cube), z.mean(axis=1), atol=1e-10)


def test_a_late_joiner_does_better_with_advice_than_at_random():
    # hills that all agents share, 8 seeds: best of one advised trial against the best of three random ones
    def hill(config, context):
        return -((config["x"] - 0.3) ** 2) - (config["y"] - 0.8) ** 2

    def best(design, seed):
        options = {"advice": "portfolio", "initial_design": design, **SMALL}
        run = Run.begin(FTS(**options), num_agents=4, seed=seed, objective=hill, late=("3",))
        run.steps(6, present=["0", "1", "2"]).steps(1)
        return run.agents["3"].log.values.max()

    gains = [best("advised", seed) - best("random", seed) for seed in range(8)]
    assert np.mean(gains) > 0
