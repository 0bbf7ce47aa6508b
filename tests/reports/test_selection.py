"""What a selection of models came to, by hand and against moocore; pictures of several outputs."""

import moocore
import numpy as np
import pytest
from figure_text import unreadable
from made_study import made_study

from fbo_flower import Float, SearchSpace
from fbo_flower.errors import ConfigError
from fbo_flower.reports.figures import figure
from fbo_flower.reports.fronts import draw_outputs
from fbo_flower.reports.page import html_page
from fbo_flower.reports.pictures import new_figure, study_styles
from fbo_flower.reports.selection import selection_cells, selections, volume, volume_matrix, win_matrix
from fbo_flower.simulation import Agents, simulate
from fbo_flower.study import Study


def study(*runs, seed=0):
    settings = [
        {"algorithm": "rfms", "label": name, "options": {"method": method}, "problem": "heart", "seed": seed}
        for name, method, _ in runs
    ]
    columns = ("local_loss", "remote_loss", "openbox_outbag", "curators_outbag", "lockbox")
    rows = [
        {"algorithm": name, "trial": trial, "round": trial + 1, "config": {"x": 0.1 * trial}}
        | dict(zip(columns, (*losses, *outbag), strict=True))
        | {"on_front": on_front, "shipped": shipped, "failure": failure}
        for name, _, models in runs
        for trial, (losses, outbag, on_front, shipped, failure) in enumerate(models)
    ]
    return made_study(settings, models=rows)


def model(losses, outbag=(np.nan,) * 3, on_front=False, shipped=False, failure=""):
    return losses, outbag, on_front, shipped, failure


POINTS = [(0.2, 0.5, 0.5), (0.5, 0.2, 0.5), (0.4, 0.4, 0.4)]
FRONT = [model((0.1 * k, 0.5 - 0.1 * k), p, True, k == 1) for k, p in enumerate(POINTS)]
LOST = [model((0.9, 0.9)), model((np.nan, np.nan), failure="failed")]


def judged(*outbags):
    return study(("a", "fmo", [model((0.1, 0.1), outbag, True) for outbag in outbags])).models


def test_volume_is_that_of_moocore_and_single_models_have_one_by_hand():
    rows = study(("fmo", "fmo", FRONT + LOST)).models
    expected = moocore.hypervolume(np.array(POINTS), ref=[1, 1, 1])
    assert volume(rows.take(rows["on_front"])) == pytest.approx(expected, rel=1e-12)
    assert volume(rows.take(rows["shipped"])) == pytest.approx(0.5 * 0.8 * 0.5)
    point = (0.5, 0.5, 0.5)
    assert volume(judged(point, point)) == pytest.approx(0.125), "equal models count once"
    assert volume(judged((0.5, 0.5, np.nan))) == pytest.approx(0.25), "no lockbox: an area"
    assert volume(judged(point, (0.0, 0.0, np.nan))) == pytest.approx(0.125), "one that lacks a loss"
    assert np.isnan(volume(judged(point).take(np.zeros(1, dtype=bool))))


def test_a_selection_counts_and_protocols_differ_for_methods_that_return_one_configuration_only():
    rows = selections(study(("lso", "lso", FRONT), ("mine", "fmo", FRONT + LOST)))
    lso, fmo = (row.volumes for row in rows)
    assert lso["paper"] == pytest.approx(0.2)
    assert lso["fair"] == fmo["fair"] == fmo["paper"] > 0.3
    row = rows[1]
    assert (row.label, row.contestant, row.num_trials, row.num_failed, row.num_front) == (
        "mine",
        "fmo",
        5,
        1,
        3,
    )
    assert selection_cells(rows)["shipped: openbox"] == ["0.500", "0.500"]
    assert selections(made_study([])) == []


def test_wins_are_shares_of_common_replications_and_runs_of_one_problem_and_seed_are_one():
    volumes = np.array([[0.5, 0.4, np.nan], [0.5, 0.5, 0.6], [0.1, 0.3, 0.2]])
    expected = [[np.nan, 0.5, 0.0], [0.5, np.nan, 0.5], [1.0, 0.5, np.nan]]
    np.testing.assert_allclose(win_matrix(volumes), expected)
    pairs = [study(*((f"{m} {seed}", m, FRONT) for m in ("lso", "fmo")), seed=seed) for seed in (0, 1)]
    names, volumes = volume_matrix(selections(Study.merge(pairs)), "paper")
    assert (names, volumes.shape) == (["lso", "fmo"], (2, 2))


def test_figure_has_a_front_the_kept_back_losses_and_win_matrices_for_several():
    several = study(("fmo", "fmo", FRONT + LOST), ("lso $", "lso", FRONT))
    drawn = figure(several)
    assert len(drawn.axes) == 4
    assert [t.get_text() for t in drawn.axes[2].texts] == ["1.00", "0.00"]
    assert unreadable(drawn, covered=False) == []
    with pytest.raises(ConfigError, match="judged"):
        figure(study(("fmo", "fmo", LOST[1:])))


pytestmark = pytest.mark.usefixtures("few_trees")
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


def test_dots_hold_the_limits_crosses_do_not_and_the_front_is_ringed():
    study = tuned(["north", "south"], TWO)
    ax = new_figure(4, 3).subplots()
    draw_outputs(ax, study, "north", study_styles(study), {})
    drawn = [np.asarray(marks.get_offsets()).tolist() for marks in ax.collections]
    rows = list(study.trials.where(agent="north"))
    places = [[row["outputs"]["kilobytes"], row["outputs"]["accuracy"]] for row in rows]
    for marks, held in zip(drawn, (False, True), strict=False):
        assert marks == [p for p, row in zip(places, rows, strict=True) if row["feasible"] == held] != []
    assert sorted(drawn[2]) == sorted(study.front("north").values[:, ::-1].tolist())


def test_a_picture_of_many_agents_shows_some_of_them_and_how_many_hold_no_limits():
    study = tuned(names := [f"a site with a long name {n}" for n in range(12)], TWO, hard=names[-1])
    drawing = figure(study)
    titles = [ax.get_title("left") for part in drawing.subfigs for ax in part.axes if ax.get_visible()]
    assert sum("hold its limits" in title for title in titles) == 5
    assert f"all 12 agents; {len(study.infeasible)} without any" in titles
    assert unreadable(drawing) == []


def test_the_page_shows_the_outputs_of_each_agent_and_of_each_dot():
    study = tuned(["north", "<south>"], TWO, hard="north")
    page = html_page(study)
    assert "north: none of 12 hold its limits" in page
    assert "&lt;south&gt;: " in page
    row = study.trials.where(agent="<south>")["outputs"][0]
    assert f"accuracy {row['accuracy']:.6g}, kilobytes {row['kilobytes']:.6g}" in page
