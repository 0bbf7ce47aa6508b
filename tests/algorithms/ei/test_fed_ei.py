"""fed-ei: what the pool brings, what leaves an agent, and that unrelated agents do not pay."""

from dataclasses import replace

import numpy as np
import one_task
import pytest
from contract import MIXED, SQUARE, Run, hills
from scipy.stats import ttest_rel

from fbo_flower.algorithms import ExpectedImprovement, FedEI, make_algorithm
from fbo_flower.algorithms.ei.pool import MOST_ROWS, Part, check_task
from fbo_flower.algorithms.messages import Replies, report_schema, summands_of, uses_observations
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Report, Task, Trials
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics import slots
from fbo_flower.numerics.surrogates import gp, trend
from fbo_flower.numerics.surrogates.rff import draw_features
from fbo_flower.simulation import simulate
from fbo_flower.space import Float, SearchSpace
from fbo_flower.space.held import HeldSpace

SMALL = {"num_candidates": 64}
ROW = ["rows", "slots"]  # what a report holds that brings a row
CUBE = SearchSpace({f"x{i}": Float(0, 1) for i in range(4)})


def begin(seed=0, **options):
    given = {"num_agents": 5, "seed": seed, "space": CUBE, **options}
    return Run.begin(FedEI(secure_sums=0, **SMALL), **given)


def played(num_agents, num_rounds, **options):
    """Return a study of some rounds."""
    algorithm = make_algorithm("fed-ei", {**SMALL, **options})
    return simulate("himmelblau", None, num_agents, algorithm, num_rounds, seed=1, engine="inline")


def related(seed, spread=0.05):
    """One bowl per agent in units of its own; the centres are `spread` apart."""
    common = np.random.default_rng([seed, 99]).random(4)

    def objective(config, context):
        moved = np.random.default_rng([seed, int(context.agent)]).standard_normal(4)
        centre = np.clip(common + spread * moved, 0, 1)
        bowl = float(((CUBE.encode(config) - centre) ** 2).sum())
        return 5.0 * int(context.agent) - np.exp(moved[0]) * bowl

    return objective


def unrelated(seed):
    """A smooth function of its own for each agent."""

    def objective(config, context):
        features = draw_features(200, 0.4, 4, np.random.default_rng([seed, 7, int(context.agent)]))
        weights = np.random.default_rng([seed, 8, int(context.agent)]).standard_normal(200)
        return float(features(CUBE.encode(config)[None, :])[0] @ weights)

    return objective


def best(algorithm, objective, seed, trials, num_agents=5):
    """Return the mean best value after a number of trials of each agent, relative to its first two."""
    run = Run.begin(algorithm, num_agents=num_agents, seed=seed, space=CUBE, objective=objective)
    run.steps(trials if isinstance(algorithm, FedEI) else trials - algorithm.num_initial + 1)
    gains = []
    for history in run.histories().values():
        values = history.values[:trials]
        assert len(values) == trials
        gains.append((values.max() - values[:2].max()) / values[:2].std())
    return np.mean(gains)


# -- the schedule ----------------------------------------------------------------------------------------


def test_two_random_trials_one_exchange_without_a_trial_then_an_advised_one():
    run = begin(num_agents=3).steps(5)
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


def test_a_late_agent_is_advised_at_its_first_trial_and_begins_close_to_the_optimum():
    values, random = [], []
    for seed in range(6):
        run = begin(seed, objective=related(seed), late=["4"])
        run.steps(8, present=["0", "1", "2", "3"]).steps(2)
        first = [e for e in run.exchanges if e.agent == "4"]
        assert [e.task.num_trials for e in first] == [1, 1]
        assert [sorted(e.report.arrays) for e in first] == [[], ROW]
        late, others = run.histories()["4"].values, run.histories()["3"].values
        values.append((late[0] - 20.0) / np.exp(np.random.default_rng([seed, 4]).standard_normal()))
        random.append((max(others[:2]) - 15.0) / np.exp(np.random.default_rng([seed, 3]).standard_normal()))
    assert np.mean(values) > np.mean(random)


# -- what it gains ---------------------------------------------------------------------------------------


def test_related_agents_are_ahead_of_agents_alone():
    alone_, pooled = (
        np.array([best(a, related(seed), seed, 6) for seed in range(9)])
        for a in (ExpectedImprovement(num_initial=2), FedEI(secure_sums=0))
    )
    assert ttest_rel(np.log(pooled), np.log(alone_), alternative="greater").statistic > 2.5


def test_unrelated_agents_do_not_pay_for_the_federation():
    alone_, pooled = (
        np.array([best(a, unrelated(seed), seed, 7, num_agents=6) for seed in range(6)])
        for a in (ExpectedImprovement(num_initial=2), FedEI(secure_sums=0))
    )
    assert ttest_rel(pooled, alone_).statistic > -1.5


# -- the pool --------------------------------------------------------------------------------------------


def test_each_row_is_an_observation_of_one_agent_and_comes_once():
    run = begin(num_agents=6).steps(8)
    rows = run.state.rows
    written = np.concatenate([run.algorithm._own_rows(agent.agent_state) for agent in run.agents.values()])
    assert len(written) == 6 * (1 + 8 - 3), "the better of the initial ones, and none of the advised trial"
    matches = (np.abs(rows[:, None, :] - written[None, :, :]).max(axis=2) < 1e-12).sum(axis=1)
    assert (matches == 1).all()
    assert len(rows) + 2 * run.state.num_lost <= len(written)
    assert run.state.num_read + run.state.num_lost <= len(written)


def test_the_trend_is_of_others_alone():
    run = begin(num_agents=4, space=MIXED).steps(6)
    _, tasks = run.algorithm.ask(run.state, Phase.TRAIN, 9, list(run.agents), np.random.default_rng(0))
    for name, agent in run.agents.items():
        rows = run.algorithm._others(tasks[name], agent.agent_state)
        others = [a.agent_state.history.points for n, a in run.agents.items() if n != name]
        theirs = MIXED.features(np.concatenate(others))
        assert len(rows.z) < len(run.state.rows)
        assert (np.abs(rows.x[:, None] - theirs[None]).max(axis=2).min(axis=1) < 1e-9).all()
        mine = run.algorithm._own_rows(agent.agent_state)
        both = np.column_stack([MIXED.features(mine[:, :-1]), mine[:, -1]])
        assert np.abs(np.column_stack([rows.x, rows.z])[:, None] - both[None]).max(axis=2).min() > 1e-12


def test_the_model_of_an_agent_is_gaussian_conditioning_on_rows_and_own_values():
    run = begin(num_agents=4).steps(7)
    algorithm, agent = run.algorithm, run.agents["1"]
    _, tasks = algorithm.ask(run.state, Phase.TRAIN, 9, list(run.agents), np.random.default_rng(0))
    model = algorithm.model(tasks["1"], agent.agent_state)
    shared, h = model.improvement.shared, model.improvement.process.hyperparameters
    rows, x, y = shared.rows, CUBE.features(agent.agent_state.history.points), model.values[0]

    def common(a, b):
        return shared.share * gp.kernel("matern52", a, b, rows.lengthscales)

    def own(a, b):
        return h.outputscale * gp.kernel("matern52", a, b, h.lengthscales) + shared.tau

    z = np.random.default_rng(1).random((5, 4))
    white = (1 - shared.share + trend.LEAST_NOISE) * np.eye(len(rows.z))
    noise = h.noise_variance * np.eye(len(y))
    places, size = np.concatenate([rows.x, x]), len(rows.x)
    joint = common(places, places)
    joint[:size, :size] += white
    joint[size:, size:] += own(x, x) + noise
    cross = np.hstack([common(z, rows.x), common(z, x) + own(z, x)])
    expected = cross @ np.linalg.solve(joint, np.concatenate([rows.z, y]))
    np.testing.assert_allclose(model.improvement.mean(z), expected, atol=1e-8)
    assert 0 < shared.share < 1


def test_the_pool_keeps_what_models_use(server):
    algorithm, state = server
    rng = np.random.default_rng(2)
    for _ in range(30):
        rows = np.column_stack([rng.random((10, 2)), rng.uniform(-3, 3, 10)])
        state = algorithm._with_rows(state, rows, 0)
    assert state.rows.shape == (MOST_ROWS, 3)
    assert state.num_read == 300


def test_another_study_begins_with_the_pool_of_an_earlier_one():
    run = begin(num_agents=4, objective=related(1)).steps(8)
    exported = run.algorithm.export_messages(run.state)
    algorithm = FedEI(secure_sums=0, **SMALL)
    fresh = algorithm.init(Federation(CUBE, ("0", "1")), np.random.default_rng(0))
    state = algorithm.warm_start(fresh, exported)
    _, tasks = algorithm.ask(state, Phase.TRAIN, 1, ["0", "1"], np.random.default_rng(0))
    assert all(t.num_trials == 1 and "rows" in t.arrays for t in tasks.values())
    for rows in (None, exported["rows"][:, 1:], exported["rows"] + 9.0):
        broken = {} if rows is None else {**exported, "rows": rows}
        with pytest.raises(ConfigError, match="warm_start: expected rows"):
            algorithm.warm_start(fresh, broken)


def test_an_agent_with_fixed_parameters_uses_the_pool_and_writes_no_rows():
    run = begin(num_agents=4).steps(3)
    held = HeldSpace(CUBE, {"x0": 0.25})
    agent = run.agents["3"]
    agent.space, agent.agent_state = held, AgentState(held, Trials.empty(4))
    agent.log = agent.agent_state.history
    before = run.state.num_read
    run.state = replace(run.state, progress=type(run.state.progress)({}))  # as an agent that comes anew
    for name in ("0", "1", "2"):
        del run.agents[name]
    run.steps(4)
    assert [sorted(e.report.arrays) for e in run.exchanges if e.agent == "3"][-4:] == [[]] * 4
    assert (agent.log.points[:, 0] == 0.25).all()
    assert run.state.num_read == before


def test_failed_trials_are_no_rows():
    def objective(config, context):
        return None if context.trial % 3 == 1 else hills(SQUARE)(config, context)

    run = Run.begin(FedEI(secure_sums=0, **SMALL), num_agents=3, objective=objective).steps(8)
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


@pytest.fixture
def server():
    algorithm = FedEI()
    return algorithm, algorithm.init(Federation(SQUARE, ("0", "1")), np.random.default_rng(0))


def test_groups_have_tables_of_their_own(server):
    algorithm, state = server
    row, place = np.array([[0.25, 0.5, 1.0]]), np.array([7])
    sums = {"level": np.zeros(trend.NUM_SUMS), "table": slots.write(row, place, 64)}
    other = {**sums, "table": slots.write(row + 0.125, place, 64)}
    state = algorithm.tell(state, Phase.TRAIN, Replies({}, Part, [(["0"], sums), (["1"], other)]))
    np.testing.assert_array_equal(state.rows, np.concatenate([row, row + 0.125]))
    assert state.num_lost == 0


def test_moments_that_no_members_can_have_are_left_out(server):
    algorithm, state = server
    table = np.zeros((64, 3))
    for level in ([9.0, 0, 0, 0, 0], [-1.0, 0, 0, 0, 0]):
        sums = {"level": np.array(level), "table": table}
        assert not algorithm.tell(state, Phase.TRAIN, Replies({}, Part, [(["0", "1"], sums)])).level.any()


@pytest.mark.parametrize("num_rows", [2, 3])
def test_agents_read_a_pool_once_three_rows_can_be_modelled(server, num_rows):
    algorithm, state = server
    rows = np.linspace(0.1, 0.9, 3 * num_rows).reshape(num_rows, 3)
    state = algorithm.warm_start(state, {**algorithm.export_messages(replace(state, rows=rows))})
    _, tasks = algorithm.ask(state, Phase.TRAIN, 1, ["0", "1", "2"], np.random.default_rng(0))
    assert {"rows" in task.arrays for task in tasks.values()} == {num_rows == 3}


def test_a_log_line_names_a_sum_whose_slots_are_spoilt(server):
    algorithm, state = server
    full = slots.write(np.full((64, 3), 0.5), np.arange(64), 64)
    sums = {"level": np.zeros(trend.NUM_SUMS), "table": full + full}
    after = algorithm.tell(state, Phase.TRAIN, Replies({}, Part, [(["0"], sums)]))
    assert len(after.rows) == 0
    (line,) = algorithm.progress_lines(after, state)
    assert line.startswith("fed-ei: 64 slots of a sum hold several rows")
    assert algorithm.progress_lines(after, after) == []


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
    ids=["scales", "level", "outside", "nan", "far", "odd", "small", "negative", "units", "too small"],
)  # fmt: skip
def test_a_task_that_does_not_fit_is_refused_before_anything_is_evaluated(arrays, values):
    task, agent_state = Task(Phase.TRAIN, 1, 0, 1, arrays, values), AgentState(SQUARE, Trials.empty(2))
    for refuse in (
        lambda: check_task(task),
        lambda: FedEI().accept(task, agent_state),
        lambda: FedEI().session(task, agent_state, lambda *_: np.random.default_rng(0), None),
    ):
        with pytest.raises(WireError):
            refuse()


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
    ids=["few slots", "beyond", "no rows", "level again", "too many rows"],
)  # fmt: skip
def test_a_report_that_does_not_fit_its_task_is_refused(error, arrays):
    told = Task(Phase.TRAIN, 1, 2, 1, {"level": np.zeros(trend.NUM_SUMS)}, {"slots": 64})
    with pytest.raises(WireError, match=error):
        FedEI(secure_sums=0).check_report(told, Report(2, 1, 0, arrays))
