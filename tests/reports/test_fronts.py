"""Pictures of several outputs: which trials hold their agent's limits, and each agent's Pareto front."""

import numpy as np
import pytest
from figure_text import unreadable

from fbo_flower import Float, SearchSpace
from fbo_flower.reports.figures import figure
from fbo_flower.reports.fronts import agents_shown, draw_outputs
from fbo_flower.reports.page import html_page
from fbo_flower.reports.pictures import new_figure, study_styles
from fbo_flower.simulation import Agents, simulate

SPACE = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
TWO = {"accuracy": "max", "kilobytes": "min"}


def tuned(names, objectives, hard=""):
    def outputs(config, centre):
        accuracy = 1 - (config["x"] - centre) ** 2 - 0.1 * config["y"]
        return {"accuracy": accuracy, "kilobytes": 1 + 100 * (1 - config["y"])}

    data = {name: k / len(names) for k, name in enumerate(names)}
    bounds = {name: {"kilobytes": 100.0 * (4 + k) / (3 + len(names))} for k, name in enumerate(names)}
    agents = Agents(data, limits=bounds | ({hard: {"kilobytes": 0.5}} if hard else {}))
    return simulate(
        outputs, SPACE, agents, "random", 10,
        engine="inline", objectives=objectives, limits={"kilobytes": 100.0},
    )  # fmt: skip


@pytest.mark.parametrize("objectives", [TWO, {"accuracy": "max"}])
def test_dots_hold_the_limits_crosses_do_not_and_the_front_or_the_best_is_ringed(objectives):
    study = tuned(["north", "south"], objectives)
    ax = new_figure(4, 3).subplots()
    draw_outputs(ax, study, "north", study_styles(study), {})
    drawn = [np.asarray(marks.get_offsets()).tolist() for marks in ax.collections]
    rows = list(study.trials.where(agent="north"))
    places = [[row["outputs"]["kilobytes"], row["outputs"]["accuracy"]] for row in rows]
    for marks, held in zip(drawn, (False, True), strict=False):
        assert marks == [p for p, row in zip(places, rows, strict=True) if row["feasible"] == held] != []
    if len(objectives) > 1:
        assert sorted(drawn[2]) == sorted(study.front("north").values[:, ::-1].tolist())
    else:
        best = study.best["north"]["outputs"]
        assert drawn[2] == [[best["kilobytes"], best["accuracy"]]]


@pytest.mark.parametrize("number", [1, 12])
def test_the_picture_has_few_or_many_agents_and_no_text_is_clipped(number):
    names = [f"{'a site with a long name in a far away town' * (n % 2)} {n}" for n in range(number)]
    study = tuned(names, TWO, hard=names[-1])
    drawing = figure(study)
    titles = [ax.get_title("left") for part in drawing.subfigs for ax in part.axes if ax.get_visible()]
    assert sum("hold its limits" in title for title in titles) == min(number, 5 if number > 6 else number)
    none = study.infeasible
    assert any("none of 12 hold its limits" in title for title in titles)
    assert (f"all 12 agents; {len(none)} without any" in titles) == (number == 12)
    shown, which = agents_shown(study)
    assert (none[0] in shown, bool(which)) == (True, number > 6)
    assert unreadable(drawing) == []


def test_the_page_shows_the_outputs_of_each_agent_and_of_each_dot():
    study = tuned(["north", "<south>"], TWO, hard="north")
    page = html_page(study)
    assert "north: none of 12 hold its limits" in page
    assert "&lt;south&gt;: " in page
    row = study.trials.where(agent="<south>")["outputs"][0]
    assert f"accuracy {row['accuracy']:.6g}, kilobytes {row['kilobytes']:.6g}" in page
