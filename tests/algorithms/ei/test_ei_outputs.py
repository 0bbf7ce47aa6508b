"""ei and fed-ei with limits and with several objectives: units, failures, batches, noise, rows, secrets."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contract import SQUARE
from one_task import done, observed

from fbo_flower.algorithms import ExpectedImprovement, FedEI, Task, make_algorithm
from fbo_flower.algorithms.aims import Aims
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Trials
from fbo_flower.clients.own_answer import own_answer
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import trend
from fbo_flower.simulation import Agents, simulate

NAMES = ("gain", "cost")
AIMS = Aims.of(False, {"gain": "max"}, {"cost": 0.9})
START = generator(0, "points").random((6, 2))


def outputs_at(points, moved=0.0):
    """Gain and minus the cost at points, `(n, 2)`: the best point with a cost of .9 is on the diagonal."""
    return np.column_stack([points.sum(axis=1), -np.square(points - moved).sum(axis=1)])


def agent(points, outputs, aims=AIMS):
    return observed(points, outputs, aims)


def proposed(state, number=1, at_once=1, algorithm=None):
    """Points of the next trials, `(number, 2)`, and the state after them."""
    task = Task(Phase.TRAIN, 2, state.next_trial, number)
    algorithm = algorithm or ExpectedImprovement(trials_per_round=number)
    result, batches = done(algorithm, task, state, outputs_at, at_once)
    return np.concatenate(batches), result.agent_state


def test_proposals_do_not_depend_on_the_units_of_objectives_and_limits():
    outputs, scale = outputs_at(START), np.array([1e3, 1e-2])
    expected, _ = proposed(agent(START, outputs))
    moved = Aims.of(False, {"gain": "max"}, {"cost": 0.9 * scale[1] - 5.0})
    found, _ = proposed(agent(START, outputs * scale + np.array([-70.0, 5.0]), moved))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    elsewhere = Aims.of(False, {"gain": "max"}, {"cost": 0.3})
    assert np.abs(proposed(agent(START, outputs, elsewhere))[0] - expected).max() > 0.05


def test_a_failed_trial_counts_as_the_worst_in_every_output():
    outputs = outputs_at(START)
    broken, worst = outputs.copy(), outputs.copy()
    broken[2] = np.nan
    worst[2] = np.delete(outputs, 2, axis=0).min(axis=0)
    np.testing.assert_array_equal(proposed(agent(START, broken))[0], proposed(agent(START, worst))[0])
    nothing = agent(START, np.full((6, 2), np.nan))
    assert proposed(nothing, algorithm=ExpectedImprovement(num_initial=2))[0].shape == (1, 2)


def test_a_batch_holds_different_points_and_begins_as_a_single_step_does():
    one, _ = proposed(agent(START, outputs_at(START)))
    batch, after = proposed(agent(START, outputs_at(START)), 3, 3)
    np.testing.assert_array_equal(batch[:1], one)
    assert np.linalg.norm(batch[:, None] - batch[None], axis=2)[np.triu_indices(3, 1)].min() > 1e-3
    assert after.history.outputs is not None
    np.testing.assert_array_equal(after.history.outputs[6:], outputs_at(batch))  # no fantasy is left


def test_with_noise_the_answer_is_the_best_by_its_means_and_not_by_luck():
    points = generator(1, "points").random((60, 2))
    noisy = outputs_at(points) + 0.25 * np.random.default_rng(3).standard_normal((60, 2))
    algorithm = make_algorithm("ei", {"num_initial": 2})
    _, state = proposed(agent(points, noisy), algorithm=algorithm)
    answer = own_answer("1", "s", algorithm, state)
    assert np.isfinite(answer.mean)
    usable = state.usable_values()
    lucky = points[int(np.nanargmax(usable))]
    true = [outputs_at(state.space.encode(answer.config)[None])[0], outputs_at(lucky[None])[0]]
    assert -true[0][1] < 1.0
    assert true[0][0] > true[1][0] + 0.05, "the luckiest trial is worse"


def test_the_answer_without_a_feasible_trial_names_the_nearest():
    state = agent(START, outputs_at(START), Aims.of(False, {"gain": "max"}, {"cost": 0.001}))
    answer = own_answer("1", "s", make_algorithm("ei", {}), state)
    nearest = START[np.argmin(np.square(START).sum(axis=1))]
    assert answer.config is None
    np.testing.assert_allclose(state.space.encode(answer.nearest), nearest)
    assert str(answer).startswith("no configuration holds cost <= 0.001 after 6 evaluations; the nearest has")


@pytest.mark.parametrize("number", [2, 3])
def test_several_objectives_are_searched_along_their_front(number):
    """Distances from corners: every point of the triangle between them is on the front."""
    corners = np.array([[0.2, 0.2], [0.8, 0.2], [0.5, 0.8]])[:number]
    names = [f"loss {k}" for k in range(number)]

    def distances(config, data):
        point = np.array(list(config.values()))
        return dict(zip(names, np.square(corners - point).sum(axis=1).tolist(), strict=True))

    def front(name):
        goals = {"objectives": dict.fromkeys(names, "min"), "engine": "inline"}
        return simulate(distances, SQUARE, 1, name, 16, **goals).front(
            "0", reference=dict.fromkeys(names, 0.5)
        )

    ei, random = front("ei"), front("random")
    assert ei.hypervolume > 1.05 * random.hypervolume
    assert len(ei.values) > len(random.values)


@pytest.mark.parametrize("y_transform", ["winsorise", "standardise"])
def test_the_reference_stands_in_the_units_of_the_models(y_transform):
    aims = Aims.of(False, {"gain": "max", "cost": "min"}, {"cost": 3.0}, {"cost": 1.5})
    outputs = np.vstack([outputs_at(START), [[-1e6, -2.0]]])  # a diverged gain
    state = agent(np.vstack([START, [[0.9, 0.9]]]), outputs, aims)
    _, ys, least, start = ExpectedImprovement(y_transform=y_transform).outputs(state)
    slope = (ys[1, 0] - ys[1, 1]) / (outputs[0, 1] - outputs[1, 1])
    assert start[1] == pytest.approx(ys[1, 0] + slope * (-1.5 - outputs[0, 1]))
    assert least[1] == pytest.approx(ys[1, 0] + slope * (-3.0 - outputs[0, 1]))
    assert np.isnan(start[0])
    equal = np.column_stack([np.ones(6), outputs_at(START)[:, 1]])
    flat = agent(START, equal, Aims.of(False, {"gain": "max", "cost": "min"}, None, {"gain": 0.5}))
    assert np.isnan(ExpectedImprovement().outputs(flat)[3]).all()


def test_what_is_worse_than_the_reference_is_not_searched():
    """Of a bent front only the middle counts: with the reference the search stays there."""

    def bent(config, data):
        angle, away = np.pi / 2 * config["x"], 1 + (config["y"] - 0.5) ** 2
        return {"a": float(away * np.cos(angle)), "b": float(away * np.sin(angle))}

    goals: dict[str, Any] = {"objectives": {"a": "min", "b": "min"}, "engine": "inline"}
    inside = []
    for reference in (None, {"a": 0.9, "b": 0.9}):
        study = simulate(bent, SQUARE, 2, "ei", 12, reference=reference, **goals)
        rows = [row["outputs"] for row in study.trials if row["trial"] >= 3]
        inside.append(sum(max(row["a"], row["b"]) < 0.9 for row in rows) / len(rows))
        if reference is not None:
            assert study.front("0").reference.tolist() == [0.9, 0.9]
    assert inside[1] > inside[0] + 0.2


# -- fed-ei: what a row holds, what an agent makes of it, what stays with an operator -------------------


ALGORITHM = make_algorithm("fed-ei", {"num_candidates": 64, "secure_sums": 0}).for_outputs(NAMES)


def answered(task, state, algorithm=ALGORITHM):
    result, _ = done(algorithm, task, state, outputs_at)
    return result.agent_state, result.report


FIRST = START[:2]
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
    state = agent(FIRST, outputs_at(FIRST))
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
    state = agent(many, outputs_at(many))
    model = ALGORITHM.model(task, state)
    shares = [process.shared.share for process in model.improvement.processes]
    assert shares[0] > shares[1] + 0.2


def test_rows_hold_each_output_in_common_units_and_do_not_depend_on_the_limit():
    """Its units are those of its values: a bound beyond all of them changes no number that leaves."""
    outputs = outputs_at(FIRST)
    sent = []
    for bound in (0.9, 0.3, 1e-6):
        state = agent(FIRST, outputs, Aims.of(False, {"gain": "max"}, {"cost": bound}))
        first, begun = answered(Task(Phase.TRAIN, 1, 0, 2), state)
        level = trend.Level.of(4 * begun.arrays["level"][trend.NUM_SUMS :], 2)
        told = {"level": 4 * begun.arrays["level"]}
        _, report = answered(Task(Phase.TRAIN, 2, 2, 0, told, {"slots": 64}), first)
        sent.append((begun.arrays["level"], report.arrays["rows"]))
        better = [int(outputs[:, 0].argmax())]
        np.testing.assert_allclose(report.arrays["rows"][:, :2], FIRST[better], atol=1e-11)
        costs = level.standardise(FIRST, outputs[:, 1], None)[0]
        np.testing.assert_allclose(report.arrays["rows"][:, 3], costs[better], atol=1e-11)
    for level, rows in sent[1:]:
        np.testing.assert_array_equal(level, sent[0][0])
        np.testing.assert_array_equal(rows, sent[0][1])


def score(config, moved):
    point = np.array([list(config.values())])
    gain, cost = outputs_at(point, moved)[0]
    return {"gain": float(gain), "cost": float(-cost)}


LIMIT: dict[str, Any] = {"objectives": {"gain": "max"}, "limits": {"cost": 0.9}}


def played(agents, goals=LIMIT, **options):
    """Return a study of four rounds."""
    algorithm = make_algorithm("fed-ei", {"num_candidates": 64, **options})
    return simulate(score, SQUARE, agents, algorithm, 4, seed=1, engine="inline", **goals)


@pytest.mark.parametrize(
    "goals", [LIMIT, {"objectives": {"gain": "max", "cost": "min"}}], ids=["limit", "two"]
)
def test_secure_sums_give_the_same_trials_bit_for_bit(goals):
    agents = [0.02 * number for number in range(6)]
    clear, secure = (played(agents, goals, secure_sums=least) for least in (0, 3))
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


# -- what an operator keeps ------------------------------------------------------------------------------

SECRETS = np.random.default_rng(5).standard_normal((2, 6))  # two worlds of a private output


def told_by(secrets, aims, algorithm):
    """All numbers that leave an agent that has evaluated six points, whatever it is asked."""
    outputs = np.column_stack([START.sum(axis=1), secrets])
    told, sent = {}, []
    state, algorithm = agent(START, outputs, aims), replace(algorithm, num_initial=6)
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
    state = agent(FIRST, outputs_at(FIRST))
    task = Task(Phase.TRAIN, 2, 2, 0, {"level": LEVEL}, {"slots": 64})
    assert len(answered(task, state)[1].arrays["rows"]) == 1
    assert not answered(task, replace(state, aims=AIMS.keeping(["cost"])))[1].arrays


SITES = {"a": 0.0, "b": 0.02, "c": 0.04}


def test_one_operator_keeps_an_output_and_all_share_the_others():
    study = played(Agents(SITES, private={"b": ["cost"]}))
    (run,) = study.settings["runs"]
    assert run["options"]["shared_outputs"] == ["gain"]
    assert study.best["b"]["outputs"]["cost"] <= 0.9


def test_operators_who_keep_all_outputs_are_told_that_each_agent_tunes_alone(caplog):
    one, all_three = (
        played(Agents(agents, private={name: [*NAMES] for name in agents})) for agents in ({"a": 0.0}, SITES)
    )
    assert "each agent tunes alone" in caplog.text
    values = [list(study.trials.where(agent="a")["value"]) for study in (one, all_three)]
    assert len(values[0]) == 5
    assert values[0] == values[1]
