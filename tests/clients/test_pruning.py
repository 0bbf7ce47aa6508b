"""Trials that stop early: what objectives report, when they stop, and what is kept and learnt of them."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from agents import SPACE, node, packed, task
from typer.testing import CliRunner

from fbo_flower.algorithms import ALGORITHMS
from fbo_flower.algorithms.aims import Aims
from fbo_flower.algorithms.records import Trials
from fbo_flower.cli.main import app
from fbo_flower.clients import Pruning, TuningAgent, client_app
from fbo_flower.clients.memory import agent_state_from_bytes, open_memory
from fbo_flower.clients.own_answer import own_answer
from fbo_flower.clients.pruning import BY_OTHERS, Curve, CurveBook, columns_of
from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.numerics.curves import forecast
from fbo_flower.storage.agent_journal import AgentJournal

NUM_STEPS, NUM_TRIALS = 6, 24


class Curved:
    """Reports a rising curve; returns more than it has reported last."""

    def __init__(self, sign=1.0, raises=False):
        self.sign, self.raises = sign, raises

    def __call__(self, config, context):
        best = self.sign * height(config["x"], config["y"])
        for step in range(NUM_STEPS):
            context.report(step, best * risen(step))
            if context.should_stop():
                if self.raises:
                    raise RuntimeError("pruned")
                return None
        return float(best)


def height(x, y):
    return 1 - (x - 0.3) ** 2 - (y - 0.6) ** 2


def risen(step):
    return 1 - 0.6 ** (step + 1.0)


def agent(objective=None, journal=None, **given):
    context = node(journal, **given.pop("node_config", {}))
    return TuningAgent(objective or Curved(), SPACE, context, **{"seed": 4, "disclose": "trials", **given})


def answer(tuned, trial=0, num_trials=30, name="random", **given):
    asked = given.pop("task", None) or task(trial, num_trials)
    return tuned.answer(packed(ALGORITHMS[name](**given), asked))


def told(reply, name):
    return np.asarray(reply.arrays[f"disclosed.{name}"])


def state_of(tuned):
    stored = open_memory(tuned._context, "3", tuned._journal).study("s")
    return agent_state_from_bytes(stored[1], SPACE)


def completed(history):
    return np.full(len(history), True) if history.stopped is None else history.stopped < 0


def curve(*values, **limits):
    made = Curve(**{"limits": {}, **limits})
    for step, value in enumerate(values):
        made.report(step, value)
    return made


def ended(trial, *values):
    return row(trial, values[-1], **columns_of(curve(*values)))


def row(trial, value, **columns):
    return Trials(np.zeros((1, 1)), np.array([value]), np.array([trial]), **columns)


# -- the rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "direction"), [(0, "maximize"), (1, "minimize")])
def test_trials_stop_where_optunas_median_pruner_stops_them(seed, direction):
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
        ours = Curve(*book.rule(trial), is_loss=direction == "minimize")
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
        book.add(row(trial, ours.values[-1], **columns_of(ours)))
    assert 0 < num_stopped < 40


def test_pooled_medians_wait_for_a_completed_curve_that_reaches_them_and_own_curves_take_precedence():
    others = np.array([[0.0, 9.0, 0.5], [1.0, 9.0, 0.9]])
    book = CurveBook(Pruning("federated", min_trials=3, margin=None), others)
    assert not book.rule(0)[0]
    book.add(ended(0, 0.6, 0.7))
    assert book.rule(1) == ({0: 0.5}, True)
    assert not book.rule(2, pending=1)[0], "with the one under way it would be too large a share"
    local = CurveBook(Pruning(), others, book.by_step, book.finals, num_curves=1)
    assert not local.rule(1)[0]  # it uses its own only
    careful = CurveBook.read(book.arrays(), Pruning("federated"), others)
    assert not careful.rule(1)[0]
    careful.add(ended(1, 0.2, 0.5))  # it gains .3, the first one .1
    limit = careful.rule(2)[0][0]
    assert limit == pytest.approx(0.7 - 0.2 - 2.5 * 0.2 / 2**0.5)
    assert limit < 0.5
    for trial in (1, 2):
        book.add(ended(trial, 0.8, 0.9))
    assert book.rule(3) == ({0: 0.8, 1: 0.9}, False)


@pytest.mark.parametrize("by_others", [True, False])
def test_other_agents_stop_no_larger_share_of_an_agents_trials_than_its_operator_allows(by_others):
    book = CurveBook(Pruning("federated", margin=None), np.array([[0.0, 9.0, 0.5]]))
    book.add(ended(0, 0.6, 0.7))
    assert book.rule(1)[1]
    for trial in (1, 2):
        measures = {BY_OTHERS: np.ones(1)} if by_others else {}
        book.add(replace(ended(trial, 0.1), stopped=np.zeros(1, dtype=np.int64), measures=measures))
    assert book.rule(3)[1] is not by_others  # another one would be three of four


@pytest.mark.parametrize("margin", [0.5, 2.5])
def test_a_trial_stops_only_if_it_is_predicted_below_the_best_end_with_a_margin(margin):
    rng = np.random.default_rng(3)
    book = CurveBook(Pruning(margin=margin))
    curves = rng.random((7, 4)).cumsum(axis=1)
    for trial, values in enumerate(curves):
        book.add(ended(trial, *values))
    finals, num_both = curves[:, -1], [0, 0]
    for step in range(4):
        gains = finals - curves[:, step]
        for value in np.linspace(-5, 5, 101):
            predicted = value + gains.mean() + margin * gains.std(ddof=1)
            expected = bool(value < np.median(curves[:, step]) and predicted < finals.max())
            assert (value < book.rule(7)[0].get(step, -math.inf)) == expected
            num_both[expected] += 1
    assert min(num_both) > 50


# -- what objectives may report, and what settings may be ------------------------------------------------


@pytest.mark.parametrize(
    ("step", "value", "match"),
    [
        *((step, 0.5, "step: expected an integer") for step in (-1, 0, 1.0, True, None)),
        *((1, v, "value: expected a finite number") for v in (math.nan, "high", True)),
    ],
)
def test_a_step_is_a_larger_integer_and_a_value_finite(step, value, match):
    with pytest.raises(ObjectiveError, match=f"report: {match}"):
        curve(0.5).report(step, value)


def test_the_operator_names_the_rule_and_wrong_settings_are_refused():
    assert Pruning.read({"pruning": "off"}, Pruning(min_trials=3)) == Pruning("off", 3)
    with pytest.raises(ConfigError, match="pruning: expected one of off"):
        Pruning.read({"pruning": "hard"}, None)
    with pytest.raises(ConfigError, match="pruning: expected Pruning"):
        client_app(Curved(), SPACE, pruning=3)


# -- what is kept of a stopped trial ---------------------------------------------------------------


@pytest.mark.parametrize("raises", [False, True])
def test_a_stopped_trial_has_the_last_value_that_it_reported(raises):
    reply = answer(agent(Curved(raises=raises)))
    stopped = told(reply, "stopped")
    assert (stopped[:5] == -1).all()
    assert 5 < (stopped >= 0).sum() < 25
    shares = np.where(stopped >= 0, risen(np.maximum(stopped, 0)), 1.0)
    np.testing.assert_allclose(told(reply, "values"), height(*told(reply, "points").T) * shares, rtol=1e-12)


def test_journals_hold_every_curve_and_a_command_writes_them_as_csv(tmp_path):
    journal, out = tmp_path / "agent-3.db", tmp_path / "curves.csv"
    stopped = told(answer(agent(Curved(-1.0), journal, aims=Aims.of(True)), 0, 10), "stopped")
    done = CliRunner().invoke(app, ["export", str(journal), "--curves", str(out)])
    assert done.exit_code == 0
    assert done.output.startswith("10 curves: ")
    rows = list(csv.DictReader(out.open()))
    for trial, step in enumerate(stopped.tolist()):
        mine = [row for row in rows if row["trial"] == str(trial)]
        assert [int(row["step"]) for row in mine] == list(range((NUM_STEPS - 1 if step < 0 else step) + 1))
        assert {row["state"] for row in mine} == {"completed" if step < 0 else "stopped early"}
        assert all(float(row["value"]) <= 0 for row in mine)  # losses, as the objective measured them


# -- what is learnt of it -----------------------------------------------------------------------------


@pytest.mark.parametrize(("at_once", "sign"), [(1, 1.0), (2, -1.0)])
def test_predictions_are_forecasts_from_the_trials_that_completed_before(tmp_path, at_once, sign):
    tuned = agent(Curved(sign), tmp_path / "agent.db", num_parallel=at_once, aims=Aims.of(sign < 0))
    answer(tuned, 0, NUM_TRIALS, "ei")
    history = state_of(tuned).history
    early = history.stopped >= 0
    assert early.any()
    np.testing.assert_array_equal(np.isfinite(history.predicted), early)
    with AgentJournal(tmp_path / "agent.db", "3") as journal:
        evaluations = {int(e.trials[0]): e for e in journal.evaluations("s")}
    for trial, predicted in zip(np.flatnonzero(early), history.predicted[early].tolist(), strict=True):
        stopped = evaluations[trial]
        before = [e for t, e in sorted(evaluations.items()) if t < trial and e.stopped is None]
        curves = [dict(e.curve.T.tolist()) for e in before]
        values = np.array([c[stopped.stopped[0]] for c in curves])
        finals = np.array([e.values[0] for e in before])
        assert predicted == forecast(values, finals, float(stopped.values[0]))


@pytest.mark.parametrize("name", ["ei", "ts", "random", "fed-ei"])
def test_a_stopped_trial_is_never_the_best_whatever_is_predicted(name, monkeypatch):
    monkeypatch.setattr("fbo_flower.clients.pruning.forecast", lambda *_: 1e6)
    tuned = agent()
    options = {"trials_per_round": NUM_TRIALS} if name == "fed-ei" else {}
    reply = answer(tuned, 0, NUM_TRIALS, name, **options)
    made, state = ALGORITHMS[name](), state_of(tuned)
    history = state.history
    assert set(history.predicted[history.stopped >= 0]) == {1e6}
    best = float(history.values[completed(history)].max())
    found = made.best(state)
    assert found is not None
    assert found.value == own_answer("3", "s", made, state).value == best < 1.0
    assert any((found.point == point).all() for point in history.points[completed(history)])
    np.testing.assert_array_equal(told(reply, "values"), history.values)
