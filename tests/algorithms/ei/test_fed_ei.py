"""fed-ei: what the pool brings, what leaves an agent, and that unrelated agents do not pay."""

from dataclasses import replace

import numpy as np
import one_task
import pytest
from contract import SQUARE, Run, hills

from fbo_flower.algorithms import ExpectedImprovement, FedEI, make_algorithm
from fbo_flower.algorithms.ei.pool import Part, check_task
from fbo_flower.algorithms.messages import Replies, report_schema, summands_of, uses_observations
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Report, Task, Trials
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics import slots
from fbo_flower.numerics.surrogates import trend
from fbo_flower.simulation import simulate
from fbo_flower.space import Float, SearchSpace
from fbo_flower.space.held import HeldSpace

SMALL = {"num_candidates": 64}
ROW = ["rows", "slots"]  # what a report holds that brings a row
CUBE = SearchSpace({f"x{i}": Float(0, 1) for i in range(4)})


def begin(num_agents, space=CUBE, **options):
    return Run.begin(FedEI(secure_sums=0, **SMALL), space=space, num_agents=num_agents, **options)


def played(num_agents, num_rounds, **options):
    """Return a study of some rounds."""
    algorithm = make_algorithm("fed-ei", {**SMALL, **options})
    return simulate("himmelblau", None, num_agents, algorithm, num_rounds, seed=1, engine="inline")


def test_two_random_trials_one_exchange_without_a_trial_then_an_advised_one():
    run = begin(3).steps(5)
    for name, agent in run.agents.items():
        mine = [e for e in run.exchanges if e.agent == name]
        assert [e.task.num_trials for e in mine] == [2, 0, 1, 1, 1]
        assert ["rows" in e.task.arrays for e in mine] == [False, False, True, True, True]
        assert [e.task.values.get("slots", 0) > 0 for e in mine] == [False, True, False, True, True]
        assert [sorted(e.report.arrays) for e in mine] == [["level"], ROW, [], ROW, ROW]
        pool, point = mine[2].task.arrays["rows"][:, :-1], agent.log.points[2]  # of somebody else
        assert np.abs(pool - point).max(axis=1).min() < 1e-9
        assert np.abs(agent.log.points[:2] - point).max(axis=1).min() > 1e-3


def test_one_agent_and_two_that_cannot_sum_do_what_they_do_alone():
    one = Run.begin(FedEI(secure_sums=0), num_agents=1).steps(6)
    two = Run.begin(ExpectedImprovement(num_initial=2), num_agents=1).steps(6)
    np.testing.assert_array_equal(one.histories()["0"].points, two.histories()["0"].points)
    assert len(played(2, 5).trials["value"]) == 2 * 6


def test_each_row_is_an_observation_of_one_agent_and_comes_once():
    run = begin(6).steps(8)
    rows = run.state.rows
    written = np.concatenate([run.algorithm._own_rows(agent.agent_state) for agent in run.agents.values()])
    assert len(written) == 6 * (1 + 8 - 3), "the better of the initial ones, and none of the advised trial"
    matches = (np.abs(rows[:, None, :] - written[None, :, :]).max(axis=2) < 1e-12).sum(axis=1)
    assert (matches == 1).all()
    assert len(rows) + 2 * run.state.num_lost <= len(written)
    assert run.state.num_read + run.state.num_lost <= len(written)


def test_another_study_begins_with_the_pool_of_an_earlier_one():
    run = begin(4).steps(8)
    exported = run.algorithm.export_messages(run.state)
    algorithm = FedEI(secure_sums=0, **SMALL)
    fresh = algorithm.init(Federation(CUBE, ("0", "1")), np.random.default_rng(0))
    state = algorithm.warm_start(fresh, exported)
    _, tasks = algorithm.ask(state, Phase.TRAIN, 1, ["0", "1"], np.random.default_rng(0))
    assert all(t.num_trials == 1 and "rows" in t.arrays for t in tasks.values())
    for broken in ({}, *({**exported, "rows": r} for r in (exported["rows"][:, 1:], exported["rows"] + 9))):
        with pytest.raises(ConfigError, match="warm_start: expected rows"):
            algorithm.warm_start(fresh, broken)


def test_an_agent_with_fixed_parameters_uses_the_pool_and_writes_no_rows():
    run = begin(4).steps(3)
    held, agent, before = HeldSpace(CUBE, {"x0": 0.25}), run.agents["3"], run.state.num_read
    agent.space, agent.agent_state, agent.log = held, AgentState(held, Trials.empty(4)), Trials.empty(4)
    run.state = replace(run.state, progress=type(run.state.progress)({}))  # as an agent that comes anew
    run.steps(4, present=["3"])
    assert [sorted(e.report.arrays) for e in run.exchanges[-4:]] == [[]] * 4
    assert (agent.log.points[:, 0] == 0.25).all()
    assert run.state.num_read == before


def test_failed_trials_are_no_rows():
    run = begin(3, objective=lambda c, x: None if x.trial % 3 == 1 else hills(CUBE)(c, x)).steps(8)
    for agent in run.agents.values():
        good = agent.log.points[np.isfinite(agent.log.values)]
        written = run.algorithm._own_rows(agent.agent_state)
        assert 0 < len(written) < len(good)
        assert (np.abs(written[:, None, :-1] - good).max(axis=2).min(axis=1) < 1e-11).all()


# -- secure sums -----------------------------------------------------------------------------------------


def test_secure_sums_give_the_same_trials_bit_for_bit():
    clear, secure = (played(6, 5, secure_sums=least, trials_per_round=3) for least in (0, 3))
    assert clear.trials["value"].tolist() == secure.trials["value"].tolist()
    assert clear.trials["config"].tolist() == secure.trials["config"].tolist()
    assert secure.settings["runs"][0]["privacy"]["sums_made"] == 4, "none for advice"


def test_with_secure_sums_nothing_else_is_in_a_report():
    assert set(report_schema(FedEI(secure_sums=0), SQUARE).arrays) == {"level", "rows", "slots"}
    assert not report_schema(FedEI(), SQUARE).arrays
    task = Task(Phase.TRAIN, 1, 0, 2, {}, {"slots": 64})
    shapes = {name: s.shape for name, s in summands_of(FedEI(), SQUARE, task).items()}
    assert shapes == {"level": (trend.NUM_SUMS,), "table": (64, 3)}
    assert uses_observations(FedEI(), SQUARE, task)


def test_each_group_has_a_table_of_its_own_and_sums_that_no_members_can_have_are_left_out():
    algorithm = FedEI()
    state = algorithm.init(Federation(SQUARE, ("0", "1")), np.random.default_rng(0))

    def told(*sums):
        groups = [([str(i)], {"level": level, "table": table}) for i, (level, table) in enumerate(sums)]
        return algorithm.tell(state, Phase.TRAIN, Replies({}, Part, groups))

    none, row, place = np.zeros(trend.NUM_SUMS), np.array([[0.25, 0.5, 1.0]]), np.array([7])
    after = told((none, slots.write(row, place, 64)), (none, slots.write(row + 0.125, place, 64)))
    np.testing.assert_array_equal(after.rows, np.concatenate([row, row + 0.125]))
    assert after.num_lost == 0
    for number in (9.0, -1.0):
        assert not told((np.array([number, 0, 0, 0, 0]), np.zeros((64, 3)))).level.any()
    full = slots.write(np.full((64, 3), 0.5), np.arange(64), 64)
    after = told((none, full + full))
    assert len(after.rows) == 0
    (line,) = algorithm.progress_lines(after, state)
    assert line.startswith("fed-ei: 64 slots of a sum hold several rows")


# -- hostile tasks and reports ---------------------------------------------------------------------------

ROWS = {"rows": np.full((5, 3), 0.5), "lengthscales": np.ones(2), "level": np.ones(trend.NUM_SUMS)}


@pytest.mark.parametrize(
    ("arrays", "values"),
    [
        ({n: a for n, a in ROWS.items() if n != "lengthscales"}, {}),
        ({n: a for n, a in ROWS.items() if n != "level"}, {}),
        ({**ROWS, "rows": np.full((5, 3), 1.5)}, {}),
        ({**ROWS, "rows": np.full((5, 3), np.nan)}, {}),
        ({**ROWS, "rows": np.tile([0.5, 0.5, 3.9], (5, 1))}, {}),
        (ROWS, {"slots": 65}),
        (ROWS, {"slots": 32}),
        (ROWS, {"slots": -64}),
        ({}, {"slots": 64}),
        ({**ROWS, "secure.members": np.zeros((11, 4))}, {"slots": 64}),
    ],
)
def test_a_task_that_does_not_fit_is_refused_before_anything_is_evaluated(arrays, values):
    task, agent_state = Task(Phase.TRAIN, 1, 0, 1, arrays, values), AgentState(SQUARE, Trials.empty(2))
    with pytest.raises(WireError):
        check_task(task)
    with pytest.raises(WireError):
        FedEI().accept(task, agent_state)
    with pytest.raises(WireError):
        FedEI().session(task, agent_state, lambda *_: np.random.default_rng(0), None)


def test_what_one_agent_alone_is_told_changes_the_content_that_all_members_sign():
    content = Part.sum_content(Task(Phase.TRAIN, 1, 0, 1, ROWS, {"slots": 64}))
    assert set(content) == {*ROWS, "numbers"}
    for num_trials, number in ((2, 64), (1, 128)):
        other = Task(Phase.TRAIN, 1, 0, num_trials, ROWS, {"slots": number})
        assert (Part.sum_content(other)["numbers"] != content["numbers"]).any()


@pytest.mark.parametrize(
    ("done", "trial", "num_trials", "rows"),
    [
        (2, 0, 0, 1),  # the opening, with the better of the initial rows
        (4, 0, 0, 0),  # again, or late: they stay
        (4, 4, 1, 1),
        (4, 3, 2, 1),  # the first of the two was asked for by another task
        (4, 2, 2, 0),
        (0, 0, 1, 0),  # a random trial looks different
    ],
)
def test_a_table_holds_rows_of_trials_that_its_task_asked_for(done, trial, num_trials, rows):
    rng = np.random.default_rng(4)
    task = Task(Phase.TRAIN, 3, trial, num_trials, ROWS, {"slots": 64})
    algorithm = FedEI(secure_sums=0, trials_per_round=2, **SMALL)

    def answer(task, state):
        result, _ = one_task.done(algorithm, task, algorithm.accept(task, state), lambda x: np.zeros(len(x)))
        return result

    result = answer(task, one_task.observed(rng.random((done, 2)), rng.standard_normal(done)))
    assert len(result.report.arrays.get("rows", ())) == rows
    assert len(algorithm._own_rows(result.agent_state)) == rows
    repeated = answer(replace(task, trial=0, num_trials=0), result.agent_state)
    if (done, num_trials) == (2, 0):  # the same task again gets the same answer
        np.testing.assert_array_equal(repeated.report.arrays["rows"], result.report.arrays["rows"])
    else:
        assert "rows" not in repeated.report.arrays


SLOTS = "slots: expected one below 64 for each row"


@pytest.mark.parametrize(
    ("error", "arrays"),
    [
        *((SLOTS, {"rows": np.full((rows, 3), 0.5), "slots": np.array(places)})
          for rows, places in ((2, [1]), (1, [64]), (0, [3]))),
        ("level: expected none", {"level": np.ones(trend.NUM_SUMS)}),
        ("rows: expected one for each trial", {"rows": np.full((2, 3), 0.5), "slots": np.arange(2)}),
    ],
)  # fmt: skip
def test_a_report_that_does_not_fit_its_task_is_refused(error, arrays):
    told = Task(Phase.TRAIN, 1, 2, 1, {"level": np.zeros(trend.NUM_SUMS)}, {"slots": 64})
    with pytest.raises(WireError, match=error):
        FedEI(secure_sums=0).check_report(told, Report(2, 1, 0, arrays))
