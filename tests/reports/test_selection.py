"""What a selection of models came to, by hand and against moocore."""

import moocore
import numpy as np
import pytest
from figure_text import clipped
from made_study import made_study

from fbo_flower.cli.main import run
from fbo_flower.errors import ConfigError
from fbo_flower.reports.figures import draw, figure
from fbo_flower.reports.selection import selection_cells, selections, volume, volume_matrix, win_matrix
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


def test_volume_is_that_of_moocore_and_single_models_have_one_by_hand():
    rows = study(("fmo", "fmo", FRONT + LOST)).models
    expected = moocore.hypervolume(np.array(POINTS), ref=[1, 1, 1])
    assert volume(rows.take(rows["on_front"])) == pytest.approx(expected, rel=1e-12)
    assert volume(rows.take(rows["shipped"])) == pytest.approx(0.5 * 0.8 * 0.5)


def test_volume_counts_equal_models_once_and_leaves_out_what_is_missing():
    point = (0.5, 0.5, 0.5)
    rows = study(("a", "fmo", [model((0.1, 0.1), point, True)] * 2)).models
    assert volume(rows) == pytest.approx(0.125)
    flat = study(("a", "fmo", [model((0.1, 0.1), (0.5, 0.5, np.nan), True)])).models
    assert volume(flat) == pytest.approx(0.25), "no lockbox: an area"
    assert np.isnan(volume(flat.take(np.zeros(1, dtype=bool))))
    mixed = study(
        ("a", "fmo", [model((0.1, 0.1), point, True), model((0.1, 0.1), (0.0, 0.0, np.nan), True)])
    ).models
    assert volume(mixed) == pytest.approx(0.125)


def test_protocols_differ_for_methods_that_return_one_configuration_only():
    rows = selections(study(("lso", "lso", FRONT), ("fmo", "fmo", FRONT)))
    lso, fmo = (row.volumes for row in rows)
    assert lso["paper"] == pytest.approx(0.2)
    assert lso["fair"] == fmo["fair"] == fmo["paper"] > 0.3


def test_selection_counts_and_names_its_run():
    (row,) = selections(study(("mine", "fmo", FRONT + LOST)))
    assert (row.label, row.contestant) == ("mine", "fmo")
    assert (row.num_trials, row.num_failed, row.num_front) == (5, 1, 3)
    assert row.shipped["lockbox"] == 0.5
    cells = selection_cells([row])
    assert cells["shipped: openbox"] == ["0.500"]
    assert selections(made_study([])) == []


def test_wins_are_shares_of_common_replications():
    volumes = np.array([[0.5, 0.4, np.nan], [0.5, 0.5, 0.6], [0.1, 0.3, 0.2]])
    expected = [[np.nan, 0.5, 0.0], [0.5, np.nan, 0.5], [1.0, 0.5, np.nan]]
    np.testing.assert_allclose(win_matrix(volumes), expected)
    rng = np.random.default_rng(0)
    wins = win_matrix(rng.random((50, 4)))
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose((wins + wins.T)[off], 1.0)
    assert np.isnan(win_matrix(np.full((3, 2), np.nan))).all()


def test_runs_of_one_problem_and_seed_are_one_replication():
    both = Study.merge([
        study(("lso 0", "lso", FRONT), ("fmo 0", "fmo", FRONT), seed=0),
        study(("lso 1", "lso", FRONT), ("fmo 1", "fmo", FRONT), seed=1),
    ])  # fmt: skip
    names, volumes = volume_matrix(selections(both), "paper")
    assert names == ["lso", "fmo"]
    assert volumes.shape == (2, 2)
    assert win_matrix(volumes)[1, 0] == 1.0


def test_figure_has_a_front_the_kept_back_losses_and_win_matrices_for_several(tmp_path):
    assert len(figure(study(("fmo", "fmo", FRONT + LOST))).axes) == 2
    several = study(("fmo", "fmo", FRONT + LOST), ("lso $", "lso", FRONT))
    drawn = figure(several)
    assert len(drawn.axes) == 4
    assert [t.get_text() for t in drawn.axes[2].texts] == ["1.00", "0.00"]
    assert clipped(drawn) == []
    assert draw(several, tmp_path / "front.png") == ""
    assert (tmp_path / "front.png").stat().st_size > 10_000


def test_figure_without_a_judged_model_says_so(tmp_path):
    with pytest.raises(ConfigError, match="judged"):
        figure(study(("fmo", "fmo", LOST[1:])))


def test_tables_survive_saving_and_the_report_shows_them(tmp_path, capsys):
    made = study(("fmo", "fmo", FRONT + LOST), ("lso", "lso", FRONT))
    made.save(tmp_path)
    assert Study.load(tmp_path) == made
    assert run(["report", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "volume (fair)" in said
    assert (tmp_path / "report.png").exists()
    assert run(["report", str(tmp_path), "--markdown"]) == 0
    assert "| shipped: lockbox |" in capsys.readouterr().out
    assert made.only("lso").models["algorithm"].tolist() == ["lso"] * 3
    assert made.relabel("lso", "own").models.where(algorithm="own")["trial"].tolist() == [0, 1, 2]
    made_study([]).save(tmp_path)
    assert not (tmp_path / "models.csv").exists(), "of an earlier study"
