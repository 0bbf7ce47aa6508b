"""fed-ei with several outputs: what a row holds, what an agent makes of it, what stays with an operator."""

from dataclasses import replace

import numpy as np
import pytest
from contract import SQUARE

from fbo_flower.algorithms import FedEI, make_algorithm
from fbo_flower.algorithms.aims import Aims
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Task, Trials
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import trend
from fbo_flower.simulation import Agents, simulate

NAMES = ("gain", "cost")
AIMS = Aims.of(False, {"gain": "max"}, {"cost": 0.9})
ALGORITHM = make_algorithm("fed-ei", {"num_candidates": 64, "secure_sums": 0}).for_outputs(NAMES)


def outputs_at(points, moved=0.0):
    """Gain and minus the cost at points, `(n, 2)`."""
    return np.column_stack([points.sum(axis=1), -np.square(points - moved).sum(axis=1)])


def agent_of(points, outputs, aims=AIMS):
    history = Trials(points, outputs[:, 0], np.arange(len(points)), outputs=outputs)
    return AgentState(SQUARE, history, aims=aims)


def answered(task, state, algorithm=ALGORITHM):
    def evaluate(query, trial):
        found = outputs_at(query.points)
        trials = np.arange(trial, trial + len(found))
        return Trials(query.points, found[:, 0], trials, outputs=found)

    def draws(purpose, *keys):
        return generator(7, purpose, *keys)

    result = run_task(algorithm, task, state, evaluate, draws)
    return result.agent_state, result.report


START = generator(0, "points").random((2, 2))
OTHERS = generator(1, "points").random((24, 2))
GROUPS = outputs_at(OTHERS).reshape(4, 6, 2)  # of four other agents
NOISE = generator(2, "level")
LEVEL = np.concatenate(
    [np.sum([trend.level_sums(group[:, place], NOISE) for group in GROUPS], axis=0) for place in range(2)]
)
UNITS = [trend.Level.of(part, 6) for part in LEVEL.reshape(2, -1)]
SCORES = np.column_stack(
    [(y - u.mean) / np.sqrt(u.variance) for y, u in zip(outputs_at(OTHERS).T, UNITS, strict=True)]
)


def pool_of(z, trial=2):
    """A task of a server that has rows at OTHERS."""
    state = ALGORITHM.init(Federation(SQUARE, ("0", "1"), outputs=NAMES), np.random.default_rng(0))
    state = replace(state, rows=np.column_stack([OTHERS, z]), level=LEVEL)
    _, tasks = ALGORITHM.ask(state, Phase.TRAIN, 3, ["0", "1"], np.random.default_rng(0))
    return replace(tasks["0"], trial=trial, num_trials=1)


def test_the_model_of_each_output_has_its_own_column_of_the_rows():
    state = agent_of(START, outputs_at(START))
    model = ALGORITHM.model(pool_of(SCORES), state)
    for place, process in enumerate(model.improvement.processes):
        np.testing.assert_array_equal(process.shared.rows.z, SCORES[:, place])
    scales = [process.shared.rows.lengthscales for process in model.improvement.processes]
    assert np.abs(scales[0] - scales[1]).max() > 0.01
    # a column that says nothing is shared less than one that agrees with own values
    noise = SCORES.copy()
    noise[:, 1] = np.random.default_rng(2).standard_normal(len(OTHERS))
    many = generator(3, "points").random((9, 2))
    task = replace(pool_of(noise, 9), values={"slots": 64})
    state = agent_of(many, outputs_at(many))
    model = ALGORITHM.model(task, state)
    shares = [process.shared.share for process in model.improvement.processes]
    assert shares[0] > shares[1] + 0.2


@pytest.mark.parametrize("bound", [0.3, 0.9])
def test_the_first_advised_trial_is_a_good_row_that_holds_the_limit_of_this_agent(bound):
    aims = Aims.of(False, {"gain": "max"}, {"cost": bound})
    state, _ = answered(pool_of(SCORES), agent_of(START, outputs_at(START), aims))
    gain, cost = outputs_at(OTHERS).T
    (row,) = np.flatnonzero(np.abs(OTHERS - state.history.points[-1]).max(axis=1) < 1e-9)
    assert -cost[row] <= bound
    assert gain[row] > gain[-cost <= bound].max() - 0.15 > gain.mean() - 0.5


def test_rows_hold_each_output_in_common_units_and_do_not_depend_on_the_limit():
    """Its units are those of its values: a bound beyond all of them changes no number that leaves."""
    outputs = outputs_at(START)
    sent = []
    for bound in (0.9, 0.3, 1e-6):
        state = agent_of(START, outputs, Aims.of(False, {"gain": "max"}, {"cost": bound}))
        first, begun = answered(Task(Phase.TRAIN, 1, 0, 2), state)
        level = trend.Level.of(4 * begun.arrays["level"][trend.NUM_SUMS :], 2)
        told = {"level": 4 * begun.arrays["level"]}
        _, report = answered(Task(Phase.TRAIN, 2, 2, 0, told, {"slots": 64}), first)
        sent.append((begun.arrays["level"], report.arrays["rows"]))
        better = [int(outputs[:, 0].argmax())]
        np.testing.assert_allclose(report.arrays["rows"][:, :2], START[better], atol=1e-11)
        costs = level.standardise(START, outputs[:, 1], None)[0]
        np.testing.assert_allclose(report.arrays["rows"][:, 3], costs[better], atol=1e-11)
    for level, rows in sent[1:]:
        np.testing.assert_array_equal(level, sent[0][0])
        np.testing.assert_array_equal(rows, sent[0][1])


def score(config, moved):
    point = np.array([list(config.values())])
    gain, cost = outputs_at(point, moved)[0]
    return {"gain": float(gain), "cost": float(-cost)}


@pytest.mark.parametrize("limits", [{"cost": 0.9}, None], ids=["a limit", "two objectives"])
def test_secure_sums_give_the_same_trials_bit_for_bit(limits):
    objectives = {"gain": "max"} if limits else {"gain": "max", "cost": "min"}
    agents = [0.02 * number for number in range(6)]
    clear, secure = (
        simulate(
            score, SQUARE, agents, make_algorithm("fed-ei", {"secure_sums": least, "num_candidates": 64}),
            4, seed=1, engine="inline", objectives=objectives, limits=limits,
        )
        for least in (0, 3)
    )  # fmt: skip
    assert clear.trials["outputs"].tolist() == secure.trials["outputs"].tolist()
    assert clear.trials["config"].tolist() == secure.trials["config"].tolist()
    (run,) = secure.settings["runs"]
    assert run["privacy"]["sums_made"] == 3, "none for advice"
    assert run["options"]["shared_outputs"] == ["gain", "cost"]


def test_a_late_agent_knows_of_its_limit_before_its_first_trial():
    state = AgentState(SQUARE, Trials.empty(2), aims=AIMS)
    after, report = answered(pool_of(SCORES, 0), state)
    assert after.history.outputs is not None
    assert after.history.outputs.shape == (1, 2)
    assert report.num_trials == 1
    assert after.history.outputs[0, 0] > outputs_at(OTHERS)[:, 0].mean()


def test_an_agent_without_the_shared_outputs_refuses_the_task():
    state = AgentState(SQUARE, Trials.empty(2), aims=Aims.of(False, {"gain": "max"}, {"heat": 0.9}))
    with pytest.raises(WireError, match="shared_outputs: expected some of gain, heat, got gain, cost"):
        answered(Task(Phase.TRAIN, 1, 0, 2), state)
    with pytest.raises(ConfigError, match="shared_outputs: expected some of gain, which all agents share"):
        ALGORITHM.for_outputs(("gain",))
    assert FedEI(shared_outputs=("cost",)).for_outputs(NAMES).shared_outputs == ("cost",)


def test_an_earlier_study_with_other_outputs_is_refused():
    state = ALGORITHM.init(Federation(SQUARE, ("0", "1"), outputs=NAMES), np.random.default_rng(0))
    rows, level = np.full((5, 4), 0.5), np.ones(2 * trend.NUM_SUMS)
    earlier = ALGORITHM.export_messages(replace(state, rows=rows, level=level))
    np.testing.assert_array_equal(ALGORITHM.warm_start(state, earlier).rows, rows)
    turned = FedEI().for_outputs(NAMES[::-1]).export_messages(replace(state, rows=rows, level=level))
    short = {"rows": np.full((5, 3), 0.5), "level": np.ones(trend.NUM_SUMS)}
    for messages in (short, turned):
        with pytest.raises(ConfigError, match=r"warm_start: expected rows \(m, 4\) and level \(10,\)"):
            ALGORITHM.warm_start(state, messages)


def test_own_rows_are_known_again_in_all_columns():
    state, _ = answered(pool_of(SCORES), agent_of(START, outputs_at(START)))
    assert ALGORITHM._own_rows(state).shape[1] == 4


# -- what an operator keeps ------------------------------------------------------------------------------

SECRETS = np.random.default_rng(5).standard_normal((2, 6))  # two worlds of a private output


def told_by(secrets, aims, algorithm):
    """All numbers that leave an agent that has evaluated six points, whatever it is asked."""
    points = generator(0, "points").random((6, 2))
    outputs = np.column_stack([points.sum(axis=1), secrets])
    told, sent = {}, []
    state, algorithm = agent_of(points, outputs, aims), replace(algorithm, num_initial=6)
    for values in ({}, {"slots": 64}, {"slots": 128}):
        num_trials = 0 if values else 6
        state, report = answered(Task(Phase.TRAIN, 2, 0, num_trials, told, values), state, algorithm)
        sent += report.arrays.values()
        level = report.arrays.get("level", np.zeros(algorithm.num_values * trend.NUM_SUMS))
        told = told or {"level": 4 * level}
    return sent


def test_an_attack_on_a_private_output_finds_nothing_in_what_the_agent_sends():
    """Who knows both worlds cannot tell which of them the agent lives in; without `private` one row can."""
    for private, names in (((), NAMES), (("cost",), ("gain",))):
        aims = AIMS.keeping(private)
        algorithm = FedEI(secure_sums=0, num_candidates=64).for_outputs(names)
        one, other = (told_by(secrets, aims, algorithm) for secrets in SECRETS)
        assert len(one) > 1
        tell = [not np.array_equal(*pair) for pair in zip(one, other, strict=True)]
        assert any(tell) == (not private)


def test_an_agent_sends_nothing_to_a_server_that_asks_for_an_output_it_keeps():
    """Neither from the start, nor if its operator keeps the output only now."""
    assert told_by(SECRETS[0], AIMS.keeping(["cost"]), ALGORITHM) == []
    state = agent_of(START, outputs_at(START))
    task = Task(Phase.TRAIN, 2, 2, 0, {"level": LEVEL}, {"slots": 64})
    assert len(answered(task, state)[1].arrays["rows"]) == 1
    assert not answered(task, replace(state, aims=AIMS.keeping(["cost"])))[1].arrays


def test_one_operator_keeps_an_output_and_all_share_the_others():
    study = simulate(
        score, SQUARE, Agents({"a": 0.0, "b": 0.02, "c": 0.04}, private={"b": ["cost"]}),
        make_algorithm("fed-ei", {"num_candidates": 64}), 4, engine="inline",
        objectives={"gain": "max"}, limits={"cost": 0.9},
    )  # fmt: skip
    (run,) = study.settings["runs"]
    assert run["options"]["shared_outputs"] == ["gain"]
    assert study.best["b"]["outputs"]["cost"] <= 0.9


def test_operators_who_keep_all_outputs_are_told_that_each_agent_tunes_alone(caplog):
    sites = {"a": 0.0, "b": 0.02, "c": 0.04}
    one, all_three = (
        simulate(
            score, SQUARE, Agents(agents, private={name: [*NAMES] for name in agents}),
            make_algorithm("fed-ei", {"num_candidates": 64}), 4, engine="inline",
            objectives={"gain": "max"}, limits={"cost": 0.9},
        )
        for agents in ({"a": 0.0}, sites)
    )  # fmt: skip
    assert "each agent tunes alone" in caplog.text
    values = [list(study.trials.where(agent="a")["value"]) for study in (one, all_three)]
    assert len(values[0]) == 5
    assert values[0] == values[1]
