"""Trials that stop early: what objectives report, when they stop, and what is kept of them."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agents import node, packed, task
from typer.testing import CliRunner

from fbo_flower import wire
from fbo_flower.algorithms import RandomSearch
from fbo_flower.algorithms.aims import Aims
from fbo_flower.algorithms.records import History
from fbo_flower.cli.main import app
from fbo_flower.clients import ObjectiveContext, Pruning, TuningAgent, client_app
from fbo_flower.clients.pruning import Curve, CurveBook, StopRule, curve_to_bytes
from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.space import Float, SearchSpace
from fbo_flower.storage.agent_journal import STOPPED_AT, AgentJournal, Evaluation

SPACE = SearchSpace({"x": Float(0.0, 1.0)})
NUM_STEPS = 6


class Curved:
    """Reports `x` times a rising curve; counts the steps."""

    def __init__(self, sign: float = 1.0, die_at: int = -1) -> None:
        self.steps, self.sign, self.die_at = 0, sign, die_at

    def __call__(self, config: Any, context: Any) -> Any:
        for step in range(NUM_STEPS):
            self.steps += 1
            value = self.sign * config["x"] * (1 - 0.5 ** (step + 1))
            context.report(step, value)
            if context.should_stop():
                return None
        if context.trial == self.die_at:
            raise KeyboardInterrupt
        return value


class Raising(Curved):
    def __call__(self, config: Any, context: Any) -> Any:
        value = super().__call__(config, context)
        if value is None:
            raise RuntimeError("pruned")
        return value


def agent(objective: Any = None, journal: Path | None = None, **given: Any) -> TuningAgent:
    context = node(journal, **given.pop("node_config", {}))
    return TuningAgent(objective or Curved(), SPACE, context, seed=4, disclose="trials", **given)


def asked(trial: int, num_trials: int = 10) -> wire.Packed:
    return packed(RandomSearch(), task(trial, num_trials), study="s1", space=SPACE.digest)


def steps_of(reply: wire.Packed) -> list[int]:
    return np.asarray(reply.arrays["disclosed.stopped"]).tolist()


def curve(*values: float, steps: Any = None, rule: StopRule | None = None) -> Curve:
    made = Curve(rule or StopRule())
    for step, value in zip(steps or range(len(values)), values, strict=True):
        made.report(step, value)
    return made


def completed(trial: int, *values: float) -> Evaluation:
    return Evaluation(trial, np.zeros(1), values[-1], artifact=curve_to_bytes(curve(*values)))


# -- the rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("seed", range(3))
def test_trials_stop_where_optunas_median_pruner_stops_them(seed: int, direction: str) -> None:
    optuna = pytest.importorskip("optuna", reason="the oracle is Optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rng = np.random.default_rng(seed)
    min_trials, warmup = int(rng.integers(1, 6)), int(rng.integers(0, 4))
    pruner = optuna.pruners.MedianPruner(n_startup_trials=min_trials, n_warmup_steps=warmup)
    study = optuna.create_study(direction=direction, pruner=pruner)
    book = CurveBook(Pruning(min_trials=min_trials, warmup_steps=warmup, margin=None))
    num_stopped = 0
    for trial in range(40):
        theirs = study.ask()
        ours = Curve(book.rule(), is_loss=direction == "minimize")
        for step in range(0, 12, int(rng.integers(1, 3))):
            value = float(rng.integers(0, 64)) / 8  # with ties, and medians that are exact
            theirs.report(value, step)
            ours.report(step, value)
            assert ours.should_stop() == theirs.should_prune()
            if ours.stopped:
                break
        num_stopped += ours.stopped
        state = optuna.trial.TrialState.PRUNED if ours.stopped else optuna.trial.TrialState.COMPLETE
        study.tell(theirs, None if ours.stopped else value, state)
        measures = {STOPPED_AT: float(ours.steps[-1])} if ours.stopped else {}
        book.add(
            Evaluation(trial, np.zeros(1), ours.values[-1], measures=measures, artifact=curve_to_bytes(ours))
        )
    assert 0 < num_stopped < 40


def test_a_trial_stops_after_its_warm_up_and_stays_stopped() -> None:
    rule = StopRule({0: 5.0, 1: 5.0, 2: 5.0}, warmup_steps=1)
    trial = curve(1.0, rule=rule)
    assert not trial.should_stop()
    trial.report(1, 2.0)
    assert trial.should_stop()
    trial.report(2, 9.0)
    assert trial.should_stop()
    assert not Curve(rule).should_stop()  # nothing is reported yet


def test_pooled_medians_wait_for_a_completed_curve_that_reaches_them() -> None:
    others = np.array([[0.0, 9.0, 0.5], [1.0, 9.0, 0.9]])
    book = CurveBook(Pruning("federated", margin=None), others)
    assert not book.rule().medians
    book.add(completed(0, 0.6, 0.7))
    assert book.rule() == StopRule({0: 0.5}, from_others=True)
    careful = CurveBook.read(book.arrays(), Pruning("federated"), others)
    assert not careful.rule().medians
    careful.add(completed(1, 0.2, 0.5))  # it gains .3, the first one .1
    limit = careful.rule().medians[0]
    assert limit == pytest.approx(0.7 - 0.2 - 2.5 * 0.2 / 2**0.5)
    assert limit < 0.5
    local = CurveBook(Pruning(), others, book.by_step, book.finals, num_curves=1, num_trials=1)
    assert not local.rule().medians  # it uses its own only


def test_own_curves_take_precedence_over_pooled_medians() -> None:
    book = CurveBook(Pruning("federated", min_trials=2, margin=None), np.array([[0.0, 9.0, 0.5]]))
    for trial in range(2):
        book.add(completed(trial, 0.75 + trial))
    assert book.rule() == StopRule({0: 1.25})


@pytest.mark.parametrize("margin", [0.5, 1.0, 2.5])
def test_a_trial_stops_only_if_it_is_predicted_below_the_best_end_with_a_margin(margin: float) -> None:
    rng = np.random.default_rng(3)
    book = CurveBook(Pruning(margin=margin))
    curves = rng.random((7, 4)).cumsum(axis=1)
    for trial, values in enumerate(curves):
        book.add(completed(trial, *values))
    finals, num_both = curves[:, -1], [0, 0]
    for step in range(4):
        gains = finals - curves[:, step]
        for value in np.linspace(-5, 5, 101):
            predicted = value + gains.mean() + margin * gains.std(ddof=1)
            expected = bool(value < np.median(curves[:, step]) and predicted < finals.max())
            assert book.rule().stops(step, value) == expected
            num_both[expected] += 1
    assert min(num_both) > 50


def test_a_margin_needs_two_completed_curves() -> None:
    book = CurveBook(Pruning(min_trials=1))
    book.add(completed(0, 0.5, 0.75))
    assert not book.rule().medians
    book.add(completed(1, 0.75, 1.0))
    assert book.rule().medians == {0: 0.625, 1: 0.875}
    assert CurveBook.read(book.arrays(), Pruning(min_trials=1, margin=None)).rule().medians[0] == 0.625


def test_the_book_is_the_same_after_a_round_trip_through_the_agents_state() -> None:
    book = CurveBook(Pruning())
    for trial in range(4):
        book.add(completed(trial, *np.arange(trial, 2.0 * trial + 1)))
    assert CurveBook.read(book.arrays(), Pruning()) == book
    assert CurveBook(Pruning()).arrays() == {}


# -- what objectives may report --------------------------------------------------------------------


@pytest.mark.parametrize("step", [-1, 0, 1.0, "2", True, None])
def test_a_step_must_be_a_larger_integer(step: Any) -> None:
    with pytest.raises(ObjectiveError, match="report: step: expected an integer"):
        curve(0.5).report(step, 0.5)


@pytest.mark.parametrize("value", [math.nan, math.inf, "high", None, True, 1j])
def test_a_reported_value_must_be_finite(value: Any) -> None:
    with pytest.raises(ObjectiveError, match="report: value: expected a finite number"):
        Curve().report(0, value)


def test_a_context_of_ones_own_can_report_without_an_agent() -> None:
    context = ObjectiveContext("a", 0, 0, 1, np.random.default_rng(0))
    context.report(0, 0.5)
    assert not context.should_stop()


@pytest.mark.parametrize(
    "setting",
    [{"rule": "best"}, {"min_trials": 0}, {"max_stopped": 1.5}, {"learns": "all"}, {"margin": -1}],
)
def test_settings_out_of_bounds_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Pruning(**setting)


def test_the_operator_names_the_rule() -> None:
    assert Pruning.read({"pruning": "off"}, Pruning(min_trials=3)) == Pruning("off", 3)
    with pytest.raises(ConfigError, match="pruning: expected one of off"):
        Pruning.read({"pruning": "hard"}, None)
    with pytest.raises(ConfigError, match="pruning: expected Pruning"):
        client_app(Curved(), SPACE, pruning=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="disclose_curves: expected False together with max_epsilon"):
        agent(node_config={"disclose": "none", "max_epsilon": 1.0, "disclose_curves": True})


# -- what is kept of a stopped trial ---------------------------------------------------------------


@pytest.mark.parametrize("objective", [Curved, Raising])
def test_a_stopped_trial_has_the_last_value_that_it_reported(objective: Any) -> None:
    reply = agent(objective()).answer(asked(0, 30))
    stopped = np.array(steps_of(reply))
    points = np.asarray(reply.arrays["disclosed.points"])[:, 0]
    values = np.asarray(reply.arrays["disclosed.values"])
    assert (stopped[:5] == -1).all()
    assert 5 < (stopped >= 0).sum() < 25
    last = np.where(stopped >= 0, stopped, NUM_STEPS - 1)
    np.testing.assert_allclose(values, points * (1 - 0.5 ** (last + 1.0)), rtol=1e-12)


def test_a_loss_stops_where_its_negative_stops() -> None:
    gain, loss = Curved(), Curved(-1.0)
    replies = [agent(gain).answer(asked(0, 30)), agent(loss, aims=Aims.of(True)).answer(asked(0, 30))]
    assert gain.steps == loss.steps < 30 * NUM_STEPS
    assert steps_of(replies[0]) == steps_of(replies[1])
    np.testing.assert_array_equal(*(reply.arrays["disclosed.values"] for reply in replies))


def test_a_recommendation_is_a_completed_trial_if_there_is_one() -> None:
    values, trials = np.array([0.5, 0.9, 0.7, np.nan]), np.arange(4)
    history = History(np.zeros((4, 1)), values, trials, {}, {1: 3})
    np.testing.assert_array_equal(history.final_values(), [0.5, np.nan, 0.7, np.nan])
    only = History(np.zeros((2, 1)), np.array([0.5, np.nan]), np.arange(2), {}, {0: 3})
    np.testing.assert_array_equal(only.final_values(), [0.5, np.nan])
    before = History(np.zeros((2, 1)), np.array([0.5, 0.25]), np.array([-1, 0]), {}, {0: 3})
    np.testing.assert_array_equal(before.final_values(own=True), [np.nan, 0.25])


def test_repeated_evaluations_of_a_point_do_not_stop_early() -> None:
    from test_workers import evaluate

    from fbo_flower.algorithms.records import Query
    from fbo_flower.clients.evaluator import Parallel

    query = Query(np.full((1, 2), 0.5), np.array([20]))
    outcome = evaluate(query, 0, Curved(), Parallel())
    assert outcome.counts is not None
    assert outcome.counts.tolist() == [20]
    assert not outcome.stopped


# -- journals --------------------------------------------------------------------------------------


def test_journals_hold_every_curve_and_a_command_writes_them_as_csv(tmp_path: Path) -> None:
    journal, out = tmp_path / "agent-3.db", tmp_path / "curves.csv"
    reply = agent(Curved(-1.0), journal, aims=Aims.of(True)).answer(asked(0))
    answer = CliRunner().invoke(app, ["export", str(journal), "--curves", str(out)])
    assert answer.exit_code == 0
    assert answer.output.startswith("10 curves: ")
    rows = list(csv.DictReader(out.open()))
    for trial, step in enumerate(steps_of(reply)):
        mine = [row for row in rows if row["trial"] == str(trial)]
        assert [int(row["step"]) for row in mine] == list(range((NUM_STEPS - 1 if step < 0 else step) + 1))
        assert {row["state"] for row in mine} == {"completed" if step < 0 else "stopped early"}
        assert all(float(row["value"]) <= 0 for row in mine)  # losses, as the objective measured them


def test_later_tasks_know_the_curves_of_earlier_ones() -> None:
    one = agent()
    first, second = one.answer(asked(0, 8)), one.answer(asked(8, 22))
    whole = agent().answer(asked(0, 30))
    assert steps_of(first) + steps_of(second) == steps_of(whole)


def test_workers_stop_trials_by_what_had_ended_before_their_query(tmp_path: Path) -> None:
    mine = agent(Curved(), tmp_path / "agent.db", num_parallel=2, pruning=Pruning(margin=None))
    before, after = mine.answer(asked(0, 10)), mine.answer(asked(10, 10))
    assert "disclosed.stopped" not in before.arrays  # random search asks for all of them in one query
    medians = np.median(before.arrays["disclosed.points"]) * (1 - 0.5 ** np.arange(1.0, NUM_STEPS + 1))
    points = np.asarray(after.arrays["disclosed.points"])[:, 0]
    stopped = [0 if x * 0.5 < medians[0] else -1 for x in points]  # below it at step 0
    assert steps_of(after) == stopped
    assert 0 in stopped
    with AgentJournal(tmp_path / "agent.db", "3") as journal:
        assert all(evaluation.artifact is not None for evaluation in journal.evaluations("s1"))
