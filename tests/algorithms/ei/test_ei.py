"""ei: kept results, noisy values, plateaus, and searches that end."""

import gc
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from contract import SQUARE
from matplotlib.axes import Axes
from one_task import observed
from scipy.stats import ttest_1samp, ttest_rel
from typer.testing import CliRunner

from fbo_flower import Categorical, Float, Int, SearchSpace
from fbo_flower.algorithms import ExpectedImprovement, FedEI, make_algorithm
from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.ei import local
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.algorithms.search import farthest
from fbo_flower.cli.main import app
from fbo_flower.clients.own_answer import own_answer
from fbo_flower.numerics.surrogates import fitting, gp
from fbo_flower.numerics.surrogates.transforms import all_equal, standardise
from fbo_flower.reports.curves import best_by_time
from fbo_flower.reports.page import html_page
from fbo_flower.reports.summary import agent_curves
from fbo_flower.simulation import Keep, simulate
from fbo_flower.space.held import held_space
from fbo_flower.study import Study

# -- results that are kept with an array ---------------------------------------------------------------


def test_results_go_with_their_array():
    gc.collect()
    before = len(local._KEPT)
    arrays = [np.full(3, float(i)) for i in range(10)]
    for array in arrays:
        local.kept_with(array)["x"] = array.sum()
    assert len(local._KEPT) == before + 10
    del array, arrays
    gc.collect()
    assert len(local._KEPT) == before


# -- noisy values ------------------------------------------------------------------------------------


NOISE = 0.3  # standard deviation; values range over 1.5


def truth(config):
    return float(-1.5 * ((config["x"] - 0.4) ** 2 + (config["y"] - 0.7) ** 2))


def noisy(config, data):
    rng = np.random.default_rng([data, int(config["x"] * 2**50)])
    return truth(config) + NOISE * float(rng.standard_normal())


def exact(config, data):
    return truth(config)


def run(objective=noisy, algorithm="ei", seed=0, **given):
    pooled = algorithm == "fed-ei"
    agents = {name: 100 * seed + place for place, name in enumerate("abcdef")}
    algorithm = make_algorithm(algorithm, {"secure_sums": 0} if pooled else {})
    settings = {"num_rounds": 20 if pooled else 18, "engine": "inline", **given}  # both: 20 evaluations
    return simulate(objective, SQUARE, agents, algorithm, seed=seed, **settings)


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
    start = before.theta
    for begin in (None, start):
        plain = fitting.fit(x, smooth, local.KERNEL, begin, local.PRIORS)
        np.testing.assert_array_equal(modes(x, smooth, begin).theta, plain.theta)
    alone = np.concatenate([modes(x[b : b + 1], rough[b : b + 1]).theta for b in range(8)])
    np.testing.assert_array_equal(found.theta, alone)


@pytest.mark.parametrize("algorithm", ["ei", "fed-ei"])
def test_trials_and_best_of_an_exact_objective_are_those_without_priors_for_noise(algorithm, monkeypatch):
    study = run(exact, algorithm, num_rounds=10)
    assert all("mean" not in best for best in study.best.values())
    monkeypatch.setattr(local, "NOISY_PRIORS", None)
    assert run(exact, algorithm, num_rounds=10).trials == study.trials


@pytest.mark.parametrize("algorithm", ["ei", "fed-ei"])
def test_the_recommended_value_does_not_overstate_and_is_no_worse(algorithm):
    means, largest, chosen, lucky = [], [], [], []
    for seed in range(4):
        study = run(algorithm=algorithm, seed=seed)
        for agent, best in study.best.items():
            mine = study.trials.where(agent=agent)
            top = int(np.argmax(mine["value"]))
            means.append(best.get("mean", best["value"]) - truth(best["config"]))
            largest.append(mine["value"][top] - truth(mine["config"][top]))
            chosen.append(truth(best["config"]))
            lucky.append(truth(mine["config"][top]))
    assert ttest_1samp(largest, 0.0).statistic > 10  # control: the largest value overstates
    # a pool concentrates the points, so an agent's own values show their noise later
    assert np.mean(means) < (0.4 if algorithm == "ei" else 0.5) * np.mean(largest)
    assert ttest_rel(chosen, lucky).statistic > -3  # level .003


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
        times, _, by_time = best_by_time(study, "ei")
        assert by_time[times.index(agent), -1] == best["value"]
    values = sorted(best["value"] for best in study.best.values())
    ringed = [
        sorted(marks.get_offsets()[0, 1] for marks in ax.collections if (marks.get_gid() or "")[:4] == "best")
        for ax in figure.findobj(Axes)
    ]
    assert [found for found in ringed if found] == [values] * 2, "rings of both parameters are at the values"
    assert study.rounds["best"][-1] == study.best_value
    assert study.rounds["mean_incumbent"][-1] == pytest.approx(np.mean(values))
    page = html_page(study)
    assert all(f"{number:.6g}" in page for best in study.best.values() for number in numbers(best))
    study.save(tmp_path)
    assert Study.load(tmp_path).best == study.best
    shown = CliRunner().invoke(app, ["best", str(tmp_path), "--json"]).stdout
    for entry in json.loads(shown):
        best = study.best[entry["agent"]]
        assert (entry["value"], entry["mean"]) == (best["value"], best.get("mean"))


def numbers(best):
    return [best[name] for name in ("value", "mean") if name in best]


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


CUBE = SearchSpace({name: Float(0.0, 1.0) for name in "abc"})
MIXED = SearchSpace(
    {
        "kind": Categorical(["u", "v", "w"]),
        "rate": Float(1e-4, 1.0, log=True),
        "depth": Int(1, 40),
        "drop": Float(0.0, 1.0, active_when={"kind": "w"}),
    }
)
SPACES = {"cube": CUBE, "mixed": MIXED, "fixed": held_space(CUBE, {"b": 0.0})}
TWO = Aims.of(False, {"gain": "max", "speed": "max"}, {})


def agent(space, values, aims=NUMBER):
    points = space.snap(np.random.default_rng(1).random((len(values), space.dimension)))
    return observed(points, values, aims, space)


def next_point(state, algorithm):
    task = Task(Phase.TRAIN, 1, state.next_trial, 1, {}, {})
    return algorithm.step(task, state, np.random.default_rng(2))[0].points


@pytest.mark.parametrize("algorithm", [ExpectedImprovement(), FedEI()], ids=["ei", "fed-ei without a pool"])
@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("aims", [NUMBER, TWO], ids=["value", "two objectives"])
def test_equal_values_send_an_agent_to_the_farthest_point(algorithm, name, aims):
    space = SPACES[name]
    values = np.full(4, 0.1) if aims is NUMBER else np.tile([0.1, 7.0], (4, 1))
    state = agent(space, values, aims)
    expected = farthest(space, state.history.points, np.random.default_rng(2))
    np.testing.assert_array_equal(next_point(state, algorithm), expected)
    values = values.copy()
    values[2] += 0.01
    assert not np.array_equal(next_point(agent(space, values, aims), algorithm), expected)


@pytest.mark.parametrize("name", SPACES)
def test_the_farthest_points_spread_inside_the_cube(name):
    """Random points come closer to each other, and to the surface."""
    space, rng = SPACES[name], np.random.default_rng(3)
    seen = np.empty((0, space.dimension))
    for _ in range(8):
        seen = np.concatenate([seen, farthest(space, seen, rng)])
    free = [axis for axis in range(space.dimension) if np.ptp(seen[:, axis]) > 0.0]
    free = [axis for axis in free if axis not in space.categorical]
    assert len(free) == space.dimension - 1 if name != "cube" else len(free) == 3
    assert np.minimum(seen, 1.0 - seen)[:, free].min() > 0.05
    distances = [np.linalg.norm(seen[:i, free] - seen[i, free], axis=1).min() for i in range(1, 8)]
    assert name == "mixed" or min(distances) > 0.2
    if name == "mixed":
        assert {space.decode(point)["kind"] for point in seen} == {"u", "v", "w"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1, 0.1, 0.1], True),
        ([0.0, -0.0], True),
        ([0.3, 0.1 + 0.2], True),
        ([1e6, 1e6 + 1e-7], True),
        ([1e6, 1e6 + 0.5, 1e6 + 0.25 + 1e-9], False),
        (np.float32([2.3025851, 2.3025853]).astype(float), True),
        ([0.1, 0.1 + 1e-9], False),
        ([1e308, -1e308], False),
        ([0.1], True),
        ([], True),
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
    return {name: [row["value"] for row in study.trials if row["agent"] == name] for name in STEEP}


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
