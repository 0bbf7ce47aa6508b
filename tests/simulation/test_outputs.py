"""Objectives that return a dict: directions, limits of each agent, and what the study shows of them."""

import numpy as np
import pytest

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import ALGORITHMS
from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.reports.page import html_page
from fbo_flower.reports.summary import agent_curves
from fbo_flower.simulation import Agents, Keep, Start, simulate
from fbo_flower.study import Study

SPACE = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
SITES = {"north": 0.2, "south": 0.9}
ONE = {"objectives": {"accuracy": "max"}, "limits": {"latency_ms": 20.0}}
TWO = {
    "objectives": {"kilobytes": "min", "accuracy": "max"},
    "limits": {"recall": ">= 0.3", "kilobytes": 80},
}


def score(config, centre):
    return {"accuracy": 1 - (config["x"] - centre) ** 2, "latency_ms": 40 * config["x"] + 10 * config["y"]}


def sizes(config, centre):
    accuracy = 1 - (config["x"] - centre) ** 2 - 0.1 * (1 - config["y"])
    return {"accuracy": accuracy, "recall": config["x"] * config["y"], "kilobytes": 100 * config["y"]}


def tune(objective, **settings):
    given = {"algorithm": "random", "num_rounds": 10, "engine": "inline", "agents": SITES}
    return simulate(objective, SPACE, **(given | settings))


@pytest.fixture(scope="module")
def one():
    """A study of one objective; a limit of the agent north is its own."""
    return tune(score, **ONE, agents=Agents(SITES, limits={"north": {"latency_ms": 12.0}}), num_rounds=20)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A study of two objectives, as it comes back from its directory."""
    study = tune(sizes, **TWO, num_rounds=20, keep=Keep(out=(out := tmp_path_factory.mktemp("two"))))
    assert Study.load(out) == study
    return study


def test_rows_hold_what_the_function_returned_and_whether_it_holds_the_limits(two):
    for row in two.trials:
        expected = sizes(row["config"], SITES[row["agent"]])
        assert row["outputs"] == expected
        assert row["value"] == expected["kilobytes"]
        assert row["feasible"] == (expected["recall"] >= 0.3 and expected["kilobytes"] <= 80)
    assert 0 < two.trials["feasible"].sum() < len(two.trials)
    (run,) = two.settings["runs"]
    assert run["objectives"] == [["kilobytes", "min"], ["accuracy", "max"]]
    assert run["limits"] == {"recall": ">=", "kilobytes": "<="}
    frame = two.to_dataframe()
    assert list(frame["outputs.recall"]) == [row["outputs"]["recall"] for row in two.trials]
    assert frame["feasible"].dtype == bool


def test_the_best_configuration_holds_the_limits_of_its_own_agent(one):
    for name, bound in {"north": 12.0, "south": 20.0}.items():
        rows = [row for row in one.trials if row["agent"] == name]
        fitting = [row for row in rows if row["outputs"]["latency_ms"] <= bound]
        assert 0 < len(fitting) < len(rows)
        assert one.best[name]["value"] == max(row["value"] for row in fitting)
        assert one.best[name]["outputs"]["latency_ms"] <= bound


def test_an_agent_without_a_feasible_trial_has_no_best_an_empty_front_and_is_named():
    study = tune(score, **ONE, agents=Agents(SITES, limits={"north": {"latency_ms": -1.0}}))
    assert list(study.best) == ["south"]
    assert study.infeasible == ["north"]
    page = html_page(study)
    assert "No configuration holds the limits of north." in page
    assert f"{study.best['south']['outputs']['latency_ms']:.4g}" in page
    front = tune(sizes, **{**TWO, "limits": {"recall": ">= 2"}}, num_rounds=2).front("north")
    assert (front.configs, front.values.shape, front.hypervolume) == ([], (0, 2), 0.0)


def test_an_algorithm_that_models_one_number_says_which_take_several():
    able = ", ".join(sorted(name for name, kind in ALGORITHMS.items() if kind.takes_outputs))
    for name in [name for name, kind in ALGORITHMS.items() if not kind.takes_outputs and not kind.roles]:
        with pytest.raises(ConfigError, match=rf"because {name} models one, .*outputs: {able}$"):
            tune(score, **ONE, algorithm=name)


def test_wrong_outputs_end_the_study_and_the_error_says_what_to_return():
    for returned, reason in (
        (0.5, "expected a dict of accuracy, latency_ms, got a float, 0.5; return these numbers by name"),
        ({"accuracy": 1.0, "latency_ms": "9"}, "got a str for latency_ms, '9'; return"),
    ):
        with pytest.raises(ObjectiveError, match=reason):
            tune(lambda config, data, found=returned: found, **ONE)


def test_agents_begin_with_outputs_from_before():
    x = np.linspace(0, 1, 12)
    outputs = {"accuracy": 1 - (x - 0.2) ** 2, "latency_ms": 40 * x, "watts": x}
    before = {"north": (np.column_stack([x, x]), outputs)}
    known = tune(score, **ONE, algorithm="ei", num_rounds=2, start=Start(observations=before))
    without = tune(score, **ONE, algorithm="ei", num_rounds=2)
    last = {agent: [s.trials.where(agent=agent)["config"][-1] for s in (known, without)] for agent in SITES}
    assert last["south"][0] == last["south"][1]
    assert last["north"][0] != last["north"][1]


def test_the_front_holds_the_feasible_trials_that_no_other_dominates_and_its_volume(two):
    for agent in SITES:
        rows = [row["outputs"] for row in two.trials if row["agent"] == agent and row["feasible"]]
        points = np.array([[row["kilobytes"], row["accuracy"]] for row in rows])
        dominated = [any(q[0] <= p[0] and q[1] >= p[1] and (q != p).any() for q in points) for p in points]
        kept, front = points[~np.array(dominated)], two.front(agent)
        assert 1 < len(kept) < len(points)
        np.testing.assert_array_equal(front.values, sorted(kept, key=lambda p: -p[0]))
        np.testing.assert_array_equal(front.reference, [points[:, 0].max(), points[:, 1].min()])
        assert [sizes(c, SITES[agent])["kilobytes"] for c in front.configs] == front.values[:, 0].tolist()
        # a rectangle from each size to the next larger one, as high as its accuracy
        right = [front.reference[0], *front.values[:-1, 0]]
        area = (right - front.values[:, 0]) @ (front.values[:, 1] - front.reference[1])
        assert front.hypervolume == pytest.approx(area)
    with pytest.raises(ConfigError, match="best: expected one objective, got kilobytes and accuracy; use st"):
        two.best  # noqa: B018


def test_curves_and_pages_of_several_objectives_show_the_volume_so_far(two):
    agents, curves = agent_curves(two, "random")
    for agent, curve in zip(agents, curves, strict=True):
        assert curve[-1] == two.front(agent).hypervolume
        assert (np.diff(curve[np.isfinite(curve)]) >= 0).all()
    page = html_page(two)
    assert "hypervolume" in page
    for agent in SITES:
        assert all(f"{value:.6g}" in page for value in two.front(agent).values.ravel())


def test_a_front_that_is_not_there_is_an_error(two):
    for arguments, error in (
        (("east",), "agent: expected one of north, south, got 'east'"),
        (("north", "fts"), "algorithm: expected one of random, got 'fts'"),
        (("north", None, {"accuracy": 1.0}), "reference: expected a number for each of kilobytes, accuracy"),
    ):
        with pytest.raises(ConfigError, match=error):
            two.front(*arguments)
    assert two.front("north", None, {"kilobytes": 50.0, "accuracy": 0.5}).reference.tolist() == [50.0, 0.5]
