"""ei: noisy values, plateaus, searches that end; ei and fed-ei with limits and several objectives."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from contract import MIXED, SQUARE
from matplotlib.axes import Axes
from one_task import done, observed
from typer.testing import CliRunner

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import ExpectedImprovement, FedEI, make_algorithm
from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.ei import local
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Task, Trials
from fbo_flower.algorithms.search import farthest
from fbo_flower.cli.main import app
from fbo_flower.clients.own_answer import own_answer
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import fitting, gp, trend
from fbo_flower.numerics.surrogates.transforms import all_equal, standardise
from fbo_flower.reports.page import html_page
from fbo_flower.reports.summary import agent_curves
from fbo_flower.simulation import Agents, Keep, simulate
from fbo_flower.space.held import held_space
from fbo_flower.study import Study

# -- noisy values ------------------------------------------------------------------------------------


NOISE = 0.3  # standard deviation; values range over 1.5


def truth(config):
    return float(-1.5 * ((config["x"] - 0.4) ** 2 + (config["y"] - 0.7) ** 2))


def noisy(config, data):
    rng = np.random.default_rng([data, int(config["x"] * 2**50)])
    return truth(config) + NOISE * float(rng.standard_normal())


def run(objective, num_rounds=18, algorithm="ei", **given):
    agents = {name: place for place, name in enumerate("abcdef")}
    return simulate(objective, SQUARE, agents, algorithm, num_rounds, engine="inline", **given)


def modes(x, y, start=None):
    return fitting.fit(x, y, local.KERNEL, start, local.PRIORS, noisy=local.NOISY_PRIORS)


def test_the_fit_finds_the_noise_and_keeps_the_fit_of_exact_values():
    rng = np.random.default_rng(0)
    x = rng.random((8, 25, 2))
    smooth = np.array([standardise(np.sin(4 * a[:, 0]) + a[:, 1]) for a in x])
    rough = np.array([standardise(y + 0.5 * rng.standard_normal(25)) for y in smooth])
    share = 0.25 / 1.25  # of the noise in the variance
    before = fitting.fit(x, rough, local.KERNEL, None, local.PRIORS)
    found = modes(x, rough)
    assert np.median(np.exp(found.theta[:, -1])) == pytest.approx(share, rel=0.5)
    assert (found.values >= before.values).all()
    for begin in (None, before.theta):
        plain = fitting.fit(x, smooth, local.KERNEL, begin, local.PRIORS)
        np.testing.assert_array_equal(modes(x, smooth, begin).theta, plain.theta)
    alone = np.concatenate([modes(x[b : b + 1], rough[b : b + 1]).theta for b in range(8)])
    np.testing.assert_array_equal(found.theta, alone)


def test_with_a_pool_too_the_recommended_value_does_not_overstate():
    study = run(noisy, 15, make_algorithm("fed-ei", {"secure_sums": 0}))
    found = [best.get("mean", best["value"]) - truth(best["config"]) for best in study.best.values()]
    largest = [study.trials.where(agent=agent) for agent in study.best]
    lucky = [mine["value"].max() - truth(mine["config"][int(np.argmax(mine["value"]))]) for mine in largest]
    assert np.mean(found) < 0.7 * np.mean(lucky)


def test_there_is_one_best_in_every_file_and_picture(tmp_path):
    study = run(lambda config, data: 7.0 - noisy(config, data), minimize=True)
    assert any("mean" in best for best in study.best.values())
    figure = study.plot()
    for agent, best in study.best.items():
        mine = study.trials.where(agent=agent)
        assert mine["value"][mine["config"].tolist().index(best["config"])] == best["value"], "not measured"
        assert "mean" in best or best["value"] == mine["value"].min()
        names, curves = agent_curves(study, "ei")
        assert curves[names.index(agent), -1] == best["value"], "the curve ends elsewhere"
    values = sorted(best["value"] for best in study.best.values())
    ringed = [
        sorted(marks.get_offsets()[0, 1] for marks in ax.collections if (marks.get_gid() or "")[:4] == "best")
        for ax in figure.findobj(Axes)
    ]
    assert [found for found in ringed if found] == [values] * 2, "rings of both parameters are at the values"
    assert study.rounds["best"][-1] == study.best_value
    assert study.rounds["mean_incumbent"][-1] == pytest.approx(np.mean(values))
    assert all(f"{best[name]:.6g}" in html_page(study) for name in ("value", "mean") if name in best)
    study.save(tmp_path)
    assert Study.load(tmp_path).best == study.best
    shown = CliRunner().invoke(app, ["best", str(tmp_path), "--json"]).stdout
    for entry in json.loads(shown):
        best = study.best[entry["agent"]]
        assert (entry["value"], entry["mean"]) == (best["value"], best.get("mean"))


def test_the_agents_own_answer_has_both():
    points = np.random.default_rng(1).random((40, 2))
    values = np.array([noisy(SQUARE.decode(p), 1) for p in points])
    state = observed(points, values)
    algorithm = make_algorithm("ei", {})
    answer = own_answer("1", "s", algorithm, state)
    assert np.isnan(answer.mean)
    assert answer.value == values.max()
    theta = gp.Hyperparameters(local.KERNEL, np.array([0.5, 0.5]), 1.0, 0.3).to_array()
    answer = own_answer("1", "s", algorithm, state.write(hyperparameters=theta))
    assert values.max() > answer.mean
    assert answer.value == values[(points == SQUARE.encode(answer.config)).all(axis=1)][0]
    assert f"best value {answer.value:.6g}, mean {answer.mean:.6g} of noisy values" in str(answer)
    as_loss = own_answer("1", "s", algorithm, replace(state, aims=Aims.of(True)))
    assert as_loss.value == -values.max()


# -- while all values are equal it goes where it learns most; once two differ, it improves ---------------


SPACES = {"square": SQUARE, "mixed": MIXED, "fixed": held_space(SQUARE, {"y": 0.0})}
TWO = Aims.of(False, {"gain": "max", "speed": "max"}, {})


@pytest.mark.parametrize("algorithm", [ExpectedImprovement(), FedEI()], ids=["ei", "fed-ei without a pool"])
@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("aims", [NUMBER, TWO], ids=["value", "two objectives"])
def test_equal_values_send_an_agent_to_the_farthest_point(algorithm, name, aims):
    space, values = SPACES[name], np.full(4, 0.1) if aims is NUMBER else np.tile([0.1, 7.0], (4, 1))
    points = space.snap(np.random.default_rng(1).random((4, space.dimension)))

    def next_point(values):
        state = observed(points, values, aims, space)
        return algorithm.step(Task(Phase.TRAIN, 1, 4, 1), state, np.random.default_rng(2))[0].points

    expected = farthest(space, points, np.random.default_rng(2))
    np.testing.assert_array_equal(next_point(values), expected)
    values = values.copy()
    values[2] += 0.01
    assert not np.array_equal(next_point(values), expected)


def test_the_farthest_points_spread_inside_the_square():
    """Random points come closer to each other, and to the border."""
    seen = np.empty((0, 2))
    for _ in range(6):
        seen = np.concatenate([seen, farthest(SQUARE, seen, np.random.default_rng(3))])
    assert np.minimum(seen, 1.0 - seen).min() > 0.05
    assert min(np.linalg.norm(seen[:i] - seen[i], axis=1).min() for i in range(1, 6)) > 0.2


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, -0.0], True),
        ([0.3, 0.1 + 0.2], True),
        ([1e6, 1e6 + 1e-7], True),
        ([1e6, 1e6 + 0.5, 1e6 + 0.25 + 1e-9], False),
        (np.float32([2.3025851, 2.3025853]).astype(float), True),
        ([0.1, 0.1 + 1e-9], False),
        ([1e308, -1e308], False),
        ([[0.1, 1.0], [0.1, 2.0]], False),
        ([[0.1, 1.0], [0.1, 1.0]], True),
    ],
)
def test_values_are_equal_up_to_rounding_in_their_precision(values, expected):
    assert all_equal(np.array(values, dtype=np.float64)) is expected


# -- agents end their search when nothing is left to gain, and the study goes on without them -------------


LINE = SearchSpace({"x": Float(0, 1)})
STEEP = {"easy": 0.0, "hard": 40.0, "easier": 0.0}


def wave(config, steep):
    """A bowl, or one with many waves."""
    return -((config["x"] - 0.3) ** 2) + 0.3 * math.sin(steep * config["x"])


def tuned(name, stop_when="no gain", **given):
    algorithm = make_algorithm(name, {"stop_when": stop_when, "num_candidates": 32})
    settings = {"num_rounds": 12, "engine": "inline", "seed": 2, **given}
    return simulate(wave, LINE, STEEP, algorithm, **settings)


def values(study):
    return {name: study.trials.where(agent=name)["value"].tolist() for name in STEEP}


@pytest.mark.parametrize("name", ["ei", "fed-ei"])
def test_an_agent_ends_its_search_and_the_others_go_on_as_if_it_had_not(name):
    ends, goes_on = (values(tuned(name, when, num_rounds=16)) for when in ("no gain", ""))
    assert 10 <= len(ends["easy"]) < len(goes_on["easy"]) == len(ends["hard"]) == len(goes_on["hard"])
    assert max(goes_on["easy"]) - max(ends["easy"]) < 1e-4
    for agent in STEEP if name == "ei" else ["easy"]:  # the pool of `fed-ei` lacks the later rows
        assert ends[agent] == goes_on[agent][: len(ends[agent])]


def test_the_study_ends_with_the_last_search_and_is_resumed_to_the_same_trials(tmp_path):
    whole = tuned("ei")
    tuned("ei", num_rounds=10, keep=Keep(journals=tmp_path))
    resumed = tuned("ei", keep=Keep(journals=tmp_path, resume=True))
    assert resumed.trials == whole.trials


# -- limits and several objectives -----------------------------------------------------------------------

NAMES = ("gain", "cost")
AIMS = Aims.of(False, {"gain": "max"}, {"cost": 0.9})
START = generator(0, "points").random((6, 2))


def outputs_at(points, moved=0.0):
    """Gain and minus the cost at points, `(n, 2)`: the best point with a cost of .9 is on the diagonal."""
    return np.column_stack([points.sum(axis=1), -np.square(points - moved).sum(axis=1)])


def agent(points, outputs, aims=AIMS):
    return observed(points, outputs, aims)


def proposed(state, **options):
    """The point of the next trial, `(1, 2)`."""
    algorithm = ExpectedImprovement(**options)
    _, (point,) = done(algorithm, Task(Phase.TRAIN, 2, state.next_trial, 1), state, outputs_at)
    return point


def test_proposals_do_not_depend_on_the_units_of_objectives_and_limits():
    outputs, scale = outputs_at(START), np.array([1e3, 1e-2])
    expected = proposed(agent(START, outputs))
    moved = Aims.of(False, {"gain": "max"}, {"cost": 0.9 * scale[1] - 5.0})
    found = proposed(agent(START, outputs * scale + np.array([-70.0, 5.0]), moved))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    elsewhere = Aims.of(False, {"gain": "max"}, {"cost": 0.3})
    assert np.abs(proposed(agent(START, outputs, elsewhere)) - expected).max() > 0.05


def test_a_failed_trial_counts_as_the_worst_in_every_output():
    outputs = outputs_at(START)
    broken, worst = outputs.copy(), outputs.copy()
    broken[2] = np.nan
    worst[2] = np.delete(outputs, 2, axis=0).min(axis=0)
    np.testing.assert_array_equal(proposed(agent(START, broken)), proposed(agent(START, worst)))
    nothing = agent(START, np.full((6, 2), np.nan))
    assert proposed(nothing, num_initial=2).shape == (1, 2)


def test_the_answer_without_a_feasible_trial_names_the_nearest():
    state = agent(START, outputs_at(START), Aims.of(False, {"gain": "max"}, {"cost": 0.001}))
    answer = own_answer("1", "s", make_algorithm("ei", {}), state)
    nearest = START[np.argmin(np.square(START).sum(axis=1))]
    assert answer.config is None
    np.testing.assert_allclose(state.space.encode(answer.nearest), nearest)
    assert str(answer).startswith("no configuration holds cost <= 0.001 after 6 evaluations; the nearest has")


def test_the_reference_stands_in_the_units_of_the_models():
    aims = Aims.of(False, {"gain": "max", "cost": "min"}, {"cost": 3.0}, {"cost": 1.5})
    outputs = np.vstack([outputs_at(START), [[-1e6, -2.0]]])  # a diverged gain
    state = agent(np.vstack([START, [[0.9, 0.9]]]), outputs, aims)
    _, ys, least, start = ExpectedImprovement().outputs(state)
    slope = (ys[1, 0] - ys[1, 1]) / (outputs[0, 1] - outputs[1, 1])
    assert start[1] == pytest.approx(ys[1, 0] + slope * (-1.5 - outputs[0, 1]))
    assert least[1] == pytest.approx(ys[1, 0] + slope * (-3.0 - outputs[0, 1]))
    assert np.isnan(start[0])
    equal = np.column_stack([np.ones(6), outputs_at(START)[:, 1]])
    flat = agent(START, equal, Aims.of(False, {"gain": "max", "cost": "min"}, None, {"gain": 0.5}))
    assert np.isnan(ExpectedImprovement().outputs(flat)[3]).all()


# -- fed-ei: what a row holds, what an agent makes of it, what stays with an operator -------------------


ALGORITHM = make_algorithm("fed-ei", {"num_candidates": 64, "secure_sums": 0}).for_outputs(NAMES)


def answered(task, state, algorithm=ALGORITHM):
    result, _ = done(algorithm, task, state, outputs_at)
    return result.agent_state, result.report


FIRST = START[:2]
LEVEL = np.tile(trend.level_sums(outputs_at(START)[:, 0], generator(2, "level")), 2)


def test_the_model_of_each_output_has_its_own_column_of_the_rows():
    points, scores = generator(1, "points").random((24, 2)), generator(3, "scores").standard_normal((24, 2))
    state = ALGORITHM.init(Federation(SQUARE, ("0", "1"), outputs=NAMES), generator(0))
    state = replace(state, rows=np.column_stack([points, scores]), level=LEVEL)
    _, tasks = ALGORITHM.ask(state, Phase.TRAIN, 3, ["0", "1"], generator(0))
    task = replace(tasks["0"], trial=2, num_trials=1)
    model = ALGORITHM.model(task, agent(FIRST, outputs_at(FIRST)))
    for place, process in enumerate(model.improvement.processes):
        np.testing.assert_array_equal(process.shared.rows.z, scores[:, place])


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


def played(agents, **options):
    """Return a study of four rounds."""
    algorithm = make_algorithm("fed-ei", {"num_candidates": 64, **options})
    goals = {"objectives": {"gain": "max"}, "limits": {"cost": 0.9}}
    return simulate(score, SQUARE, agents, algorithm, 4, seed=1, engine="inline", **goals)


def test_secure_sums_give_the_same_trials_bit_for_bit():
    agents = [0.02 * number for number in range(6)]
    clear, secure = (played(agents, secure_sums=least) for least in (0, 3))
    assert clear.trials["outputs"].tolist() == secure.trials["outputs"].tolist()
    assert clear.trials["config"].tolist() == secure.trials["config"].tolist()
    (run,) = secure.settings["runs"]
    assert run["privacy"]["sums_made"] == 3, "none for advice"
    assert run["options"]["shared_outputs"] == ["gain", "cost"]


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


def test_one_operator_keeps_an_output_and_all_share_the_others():
    study = played(Agents(SITES, private={"b": ["cost"]}))
    (run,) = study.settings["runs"]
    assert run["options"]["shared_outputs"] == ["gain"]
    assert study.best["b"]["outputs"]["cost"] <= 0.9


SITES = {"a": 0.0, "b": 0.02, "c": 0.04}


def test_operators_who_keep_all_outputs_are_told_that_each_agent_tunes_alone(caplog):
    one, all_three = (
        played(Agents(agents, private={name: [*NAMES] for name in agents})) for agents in ({"a": 0.0}, SITES)
    )
    assert "each agent tunes alone" in caplog.text
    values = [list(study.trials.where(agent="a")["value"]) for study in (one, all_three)]
    assert len(values[0]) == 5
    assert values[0] == values[1]
