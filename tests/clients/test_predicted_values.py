"""The predicted values of trials that stopped early: what they are, who learns them, and who never does."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agents import SPACE, node, packed, task

from fbo_flower import wire
from fbo_flower.algorithms import ALGORITHMS
from fbo_flower.algorithms.aims import Aims
from fbo_flower.algorithms.fed_ei import Pool
from fbo_flower.algorithms.records import AgentState, History, Outcome, Phase
from fbo_flower.clients import Pruning, TuningAgent
from fbo_flower.clients.memory import agent_state_from_bytes, agent_state_to_bytes
from fbo_flower.clients.own_answer import own_answer
from fbo_flower.numerics.curves import forecast
from fbo_flower.numerics.surrogates.trend import level_sums
from fbo_flower.storage.agent_journal import STOPPED_AT, AgentJournal, curve_from_bytes

NUM_STEPS, NUM_TRIALS = 6, 24


class Curved:
    """A rising curve; what it returns in the end is more than it has reported last."""

    def __init__(self, die_at: int = -1, sign: float = 1.0) -> None:
        self.die_at, self.sign = die_at, sign

    def __call__(self, config: Any, context: Any) -> float:
        best = 1 - (config["x"] - 0.3) ** 2 - (config["y"] - 0.6) ** 2
        for step in range(NUM_STEPS):
            context.report(step, self.sign * best * (1 - 0.6 ** (step + 1)))
            if context.should_stop():
                return 99.0
        if context.trial == self.die_at:
            raise KeyboardInterrupt
        return float(self.sign * best)


def agent(objective: Any = None, journal: Path | None = None, **given: Any) -> TuningAgent:
    given = {"disclose": "trials", "pruning": Pruning(), **given}
    return TuningAgent(objective or Curved(), SPACE, node(journal), seed=4, **given)


def answer(
    tuned: TuningAgent, num_trials: int = NUM_TRIALS, algorithm: str = "ei", **given: Any
) -> wire.Packed:
    asked = given.pop("task", None) or task(0, num_trials)
    return tuned.answer(packed(ALGORITHMS[algorithm](**given), asked, study="s1"))


def state_of(tuned: TuningAgent) -> AgentState:
    stored = tuned._open_memory().study("s1")
    assert stored is not None
    return agent_state_from_bytes(stored[1], SPACE)


def best_of(history: History, trial: int) -> float:
    """Return the best value of the trials that had completed before a trial."""
    completed = (history.trials < trial) & ~np.isin(history.trials, list(history.stopped))
    return float(history.values[completed].max())


def same(one: AgentState, other: AgentState) -> bool:
    return bytes(agent_state_to_bytes(one)) == bytes(agent_state_to_bytes(other))


# -- what is predicted -----------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("at_once", [1, 4])
def test_predictions_are_forecasts_from_the_trials_that_completed_before(
    tmp_path: Path, at_once: int, sign: float
) -> None:
    tuned = agent(Curved(sign=sign), tmp_path / "agent.db", num_parallel=at_once, aims=Aims.of(sign < 0))
    answer(tuned)
    history = state_of(tuned).history
    assert history.stopped
    assert list(history.predicted) == list(history.stopped)
    with AgentJournal(tmp_path / "agent.db", "3") as journal:
        evaluations = {e.trial: e for e in journal.evaluations("s1")}
    for trial, predicted in history.predicted.items():
        step = int(evaluations[trial].measures[STOPPED_AT])
        before = [e for t, e in sorted(evaluations.items()) if t < trial and STOPPED_AT not in e.measures]
        curves = [dict(zip(*curve_from_bytes(e.artifact or b""), strict=True)) for e in before]
        values, finals = np.array([c[step] for c in curves]), np.array([e.value for e in before])
        assert predicted == forecast(values, finals, evaluations[trial].value)
        gains = [end - at for at, end in zip(values.tolist(), finals.tolist(), strict=True)]
        expected = min(evaluations[trial].value + statistics.fmean(gains), statistics.median(finals.tolist()))
        assert predicted == pytest.approx(expected, rel=1e-12)
        assert evaluations[trial].value < predicted < best_of(history, trial)


def test_models_learn_predicted_values_and_failures_the_worst_of_these() -> None:
    history = History(
        np.zeros((4, 1)), np.array([0.5, 0.1, np.nan, 0.7]), np.arange(4), {2: "died"}, {1: 0}, {1: 0.4}
    )
    np.testing.assert_array_equal(history.observed()[1], [0.5, 0.4, 0.4, 0.7])
    np.testing.assert_array_equal(replace(history, predicted={}).observed()[1], [0.5, 0.1, 0.1, 0.7])
    np.testing.assert_array_equal(history.values, [0.5, 0.1, np.nan, 0.7])


def test_the_last_value_can_be_learnt_instead(tmp_path: Path) -> None:
    tuned = agent(pruning=Pruning(learns="last"))
    answer(tuned)
    assert state_of(tuned).history.stopped
    assert not state_of(tuned).history.predicted


def test_a_prediction_stays_the_same_when_more_trials_are_known() -> None:
    tuned = agent()
    answer(tuned, 10)
    early = state_of(tuned).history
    later = agent()
    answer(later)
    again = History.empty(2).extend(state_of(later).history.select(0, 10))
    assert early.predicted == again.predicted != {}
    np.testing.assert_array_equal(early.observed()[0], again.observed()[0])
    np.testing.assert_array_equal(early.observed()[1], again.observed()[1])


# -- what a prediction never is --------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["ei", "ts", "random", "fed-ei"])
def test_a_stopped_trial_is_never_the_best_whatever_is_predicted(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fbo_flower.clients.pruning.forecast", lambda *_: 1e6)
    tuned = agent()
    options = {"trials_per_round": NUM_TRIALS} if algorithm == "fed-ei" else {}
    reply = answer(tuned, algorithm=algorithm, **options)
    made, state = ALGORITHMS[algorithm](), state_of(tuned)
    history = state.history
    assert set(history.predicted.values()) == {1e6}
    completed = ~np.isin(history.trials, list(history.stopped))
    best = float(history.values[completed].max())
    assert made.incumbent(state) == own_answer("3", "s1", made, state).value == best < 1.0
    recommended = made.recommend(state)
    assert recommended is not None
    assert any((recommended == point).all() for point in history.points[completed])
    values = np.asarray(reply.arrays["disclosed.values"])
    np.testing.assert_array_equal(values, history.values)


def test_a_stopped_trial_is_no_row_of_the_pool_of_fed_ei() -> None:
    level = level_sums(np.array([0.2, 0.9])) + level_sums(np.array([0.4, 0.5]))
    asked = Pool(slots=1024, level=level).task(Phase.TRAIN, 1, 0, NUM_TRIALS)
    tuned = agent()
    reply = answer(tuned, algorithm="fed-ei", task=asked, secure_sums=0, trials_per_round=NUM_TRIALS)
    history = state_of(tuned).history
    completed = ~np.isin(history.trials, list(history.stopped))
    assert 0 < completed.sum() < NUM_TRIALS
    rows = np.asarray(reply.arrays["rows"])
    np.testing.assert_allclose(rows[:, :-1], history.points[completed], rtol=0, atol=1e-11)
    order, expected = np.argsort(rows[:, -1]), np.argsort(history.values[completed])
    np.testing.assert_array_equal(order, expected)


# -- memory ----------------------------------------------------------------------------------------


def test_predictions_survive_the_way_through_the_agents_memory() -> None:
    outcome = Outcome(
        np.full((2, 2), 0.5), np.array([0.1, 0.2]), np.arange(2), stopped={1: 3}, predicted={1: 0.1 + 0.2}
    )
    state = AgentState(SPACE, History.empty(2)).learn(outcome)
    read = agent_state_from_bytes(agent_state_to_bytes(state), SPACE).history
    assert read.predicted == {1: 0.1 + 0.2}
    assert read.select(1, 2).predicted == {1: 0.1 + 0.2}
    assert not read.select(0, 1).predicted


def test_an_agent_that_died_predicts_the_same_and_goes_the_same_way(tmp_path: Path) -> None:
    whole = agent(Curved(), tmp_path / "whole.db")
    reply = answer(whole)
    history = state_of(whole).history
    first = min(history.stopped)
    dies = next(t for t in range(NUM_TRIALS) if t > first + 3 and t not in history.stopped)
    with pytest.raises(KeyboardInterrupt):
        answer(agent(Curved(die_at=dies), tmp_path / "agent.db"))
    resumed = agent(Curved(), tmp_path / "agent.db")
    again = answer(resumed)
    for name in ("disclosed.values", "disclosed.stopped", "disclosed.points"):
        np.testing.assert_array_equal(again.arrays[name], reply.arrays[name])
    assert same(state_of(resumed), state_of(whole))
