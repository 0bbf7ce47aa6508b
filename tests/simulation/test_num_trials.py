"""`num_trials`: each agent makes exactly this number of evaluations, whatever the algorithm's rounds are."""

import contextlib

import numpy as np
import pytest
from federation import log_lines

from fbo_flower.algorithms import FTS, ExpectedImprovement, FedEI, make_algorithm
from fbo_flower.algorithms.protocol import DEFAULT_TRIALS
from fbo_flower.algorithms.registry import records
from fbo_flower.clients.agent import TuningAgent
from fbo_flower.reports.summary import evaluations_of
from fbo_flower.simulation import Agents, Async, Clock, Keep, Start, Sync, simulate
from fbo_flower.space import Float, SearchSpace

SPACE = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
SLOW = Clock("lognormal:60,1")
NAMES = [name for name in records() if not make_algorithm(name, {}).roles]


def bowl(config, agent):
    return -((config["x"] - 0.3 - 0.1 * agent) ** 2) - (config["y"] - 0.5) ** 2


def made(agents=4, algorithm="fed-ei", num_trials=None, *, objective=bowl, engine="inline", **given):
    """Return how many evaluations each agent has made."""
    study = simulate(objective, SPACE, agents, algorithm, num_trials=num_trials, engine=engine, **given)
    return list(evaluations_of(study, study.algorithms[0]).values())


@pytest.mark.parametrize("name", NAMES)
def test_agents_of_every_algorithm_make_exactly_this_number(name):
    number = 1 if name in ("random", "ei", "fn-ucb") else 7
    assert made(2, name, number) == [number] * 2


@pytest.mark.parametrize(
    ("agents", "algorithm", "given", "expected"),
    [
        (4, "fts", {"rounds": Async()}, [6] * 4),
        (8, "random", {"rounds": Sync(fraction=0.1)}, [6] * 8),
        (4, "fed-ei", {"rounds": Sync(quorum=0.5, clock=SLOW)}, [6] * 4),
        (Agents(4, max_trials=[2, 1, 5, 9], participation=0.5), "random", {}, [2, 1, 5, 6]),
        (3, FTS(targets=("0", "1")), {"start": Start(prior_rounds=2)}, [6] * 2),
        (3, FTS(trials_per_round=5), {}, [6] * 3),
        (Agents(2, num_parallel=2), ExpectedImprovement(trials_per_round=4), {}, [6] * 2),
        (3, "fed-ei", {"start": Start(initial=[{"x": 0.1, "y": y} for y in (0.1, 0.2, 0.3)])}, [6] * 3),
    ],
)  # fmt: skip
def test_so_they_do_however_the_study_runs(agents, algorithm, given, expected):
    assert made(agents, algorithm, 6, **given) == expected


def test_failed_evaluations_count_and_without_a_number_there_are_some():
    def fails(config, agent):
        return np.nan if agent == 1 else bowl(config, agent)

    assert made(3, "random", objective=fails) == [DEFAULT_TRIALS] * 3
    assert made(3, "random", rounds=Async()) == [DEFAULT_TRIALS] * 3


def test_a_study_stops_waiting_for_an_agent_that_never_answers(monkeypatch):
    answering = TuningAgent.answer_in_turn

    def broken(agent, message):
        if agent._agent == "2":
            raise RuntimeError("broken")
        return answering(agent, message)

    monkeypatch.setattr(TuningAgent, "answer_in_turn", broken)
    for given in ({}, {"rounds": Async()}):
        with log_lines() as lines:
            assert made(3, "random", 4, **given) == [4, 4]
        assert "agent 2: expected 4 evaluations, got 0 and no further one in 10 rounds" in "\n".join(lines)


@pytest.mark.parametrize(
    ("algorithm", "before", "stop"),
    [(FedEI(trials_per_round=3), 7, 99), ("hct", 8, 1)],
)
def test_a_resumed_study_makes_what_is_left_or_more(algorithm, before, stop, tmp_path):
    def interrupt(progress):
        if progress.server_round == stop:
            raise KeyboardInterrupt

    def run(num_trials, callbacks=(), **keep):
        given = {"keep": Keep(**keep), "callbacks": callbacks, "engine": "inline"}
        return simulate(bowl, SPACE, 3, algorithm, num_trials=num_trials, **given)

    with contextlib.suppress(KeyboardInterrupt):
        run(before, [interrupt], journals=tmp_path)
    number = max(before, 8)
    study, again = (run(number, journals=tmp_path, resume=True) for _ in range(2))
    assert set(evaluations_of(study, study.algorithms[0]).values()) == {number}
    assert repr([*study.trials]) == repr([*again.trials]), "its journal repeats the parts of tasks"
    if before == number:
        assert repr([*run(number).trials]) == repr([*study.trials])
