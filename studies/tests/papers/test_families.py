"""The experiments that compare many algorithms, in a size that takes seconds: jobs, tables, pictures."""

import numpy as np
import pytest
from real_data import needs_data

from fbo_flower.algorithms import ALGORITHMS, make_algorithm
from fbo_flower.simulation import make_problem, simulate
from studies.jobs import load, open_directory, run_jobs
from studies.papers import families, families_report, optuna_peers
from studies.papers.fts import landmine as fts_landmine
from studies.papers.fts import messages as fts_messages
from studies.papers.fts import related as fts_related


def check_files(files, names):
    text = files[0].read_text(encoding="utf-8")
    assert all(f"| {name} |" in text for name in names)
    assert [file.read_bytes()[:4] for file in files[1:]] == [b"\x89PNG"] * (len(files) - 1)
    return text


def test_families_give_every_algorithm_the_same_budget(tmp_path):
    directory = open_directory(tmp_path, {})
    run_jobs(families.jobs({"f1": 2}, {}, 0, 6), directory, 1)
    for label in families.ALGORITHMS:
        cell = load(directory, families.run_one, "f1", label, 0)
        assert cell["values"].shape == (2, 6)
        np.testing.assert_array_equal(cell["best"], np.maximum.accumulate(cell["values"], axis=1))
        assert (cell["best"] <= cell["optimum"][:, None] + 1e-12).all()
        assert np.isfinite(cell["costs"]).all()
    files = families_report.report(directory, {"f1": families.loaded(directory, "f1", 1)}, 6)
    check_files(files, families.ALGORITHMS)


def test_in_more_dimensions_values_have_no_units_and_a_picture_of_their_own(tmp_path, monkeypatch):
    few = ("random", "ei", "fed-ei")
    monkeypatch.setattr(families, "BROAD", few)
    directory = open_directory(tmp_path, {})
    for seed in range(2):
        run_jobs(families.jobs({"hartmann-6": 2}, {}, seed, 6), directory, 1)
    found = {"hartmann-6": families.loaded(directory, "hartmann-6", 2)}
    files = families_report.report(directory, found, 6)
    text = check_files(files, few)
    assert [file.name for file in files[1:]] == ["families-broad.png"]
    assert "mean of the optima" not in text
    assert "agents worse than with ei at 5" in text
    values = found["hartmann-6"]["ei"]["values"]
    assert ((values >= 0) & (values <= 3.33)).all()  # the common function's range


def test_optunas_samplers_begin_with_the_starting_points_of_ei(tmp_path):
    pytest.importorskip("optuna")
    pytest.importorskip("torch")
    own = families.run_one("f1", "ei", 0, 2, 6)
    for sampler in ("tpe", "gpsampler"):
        peer = families.run_one("f1", sampler, 0, 2, 6)
        np.testing.assert_allclose(peer["values"][:, :3], own["values"][:, :3], rtol=1e-9)
        np.testing.assert_array_equal(peer["best"], np.maximum.accumulate(peer["values"], axis=1))


def test_what_the_server_learns_is_said_of_every_algorithm():
    known = {name for name, _ in families.ALGORITHMS.values()} | {families.RFMS[0]}
    assert known <= set(ALGORITHMS)
    assert set(families_report.LEARNS) == {*families.ALGORITHMS, *optuna_peers.SAMPLERS, "rfms"}
    assert len({families_report.style(label) for label in families.ALGORITHMS}) == len(families.ALGORITHMS)


def test_noiseless_values_repeat_a_row_for_each_of_its_pulls():
    problem = make_problem("himmelblau", 2, 0, {})
    study = simulate(problem, algorithm=make_algorithm("hct", {"budget": 30}), engine="inline")
    optimum = problem.optimum(1)
    values = families.noiseless(study, "1", optimum, 30)
    rows = sorted(
        (row["trial"], row["pulls"], problem.true_value(row["config"], 1))
        for row in study.trials
        if row["agent"] == "1"
    )
    expected = [value for _, pulls, value in rows for _ in range(pulls)]
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert max(pulls for _, pulls, _ in rows) > 1


@needs_data
def test_rfms_is_measured_by_what_it_ships(tmp_path, monkeypatch):
    from studies.problems import tabulate as tabulating

    class Plain:  # cross-validation takes long; the table's values are not looked at here
        def __call__(self, problem, agent, points):
            return points.sum(axis=1)

    monkeypatch.setattr(tabulating, "evaluate", Plain())
    path = tabulating.tabulate(make_problem("heart-4sites", None, 0, {}), tmp_path / "h.npz", 16, 4)
    found = families.run_one("heart-4sites", "rfms", 0, 4, 6, f"table:{path}")
    assert found["best"].shape == (4, 1)
    assert ((found["best"] > 0) & (found["best"] <= 2)).all()
    assert found["shipped"][0] >= 1


@needs_data
def test_messages_compare_all_variants_from_the_same_starting_points(tmp_path, monkeypatch):
    monkeypatch.setattr(fts_messages, "NUM_FEATURES", (50, 100))
    monkeypatch.setattr(fts_landmine, "PRIOR_OBSERVATIONS", 6)
    monkeypatch.setattr(fts_messages, "TIMED", (*fts_messages.GENERAL, "rgpe"))
    few = {name: fts_messages.VARIANTS[name] for name in fts_messages.TIMED}
    monkeypatch.setattr(fts_messages, "VARIANTS", few)
    directory = open_directory(tmp_path, {})
    size = fts_messages.Size(5, 4, 1)
    for work in fts_messages.jobs(directory, size, 0).values():
        run_jobs(work, directory, 1)
    run_jobs(fts_messages.all_targets(directory, size, 0), directory, 1)
    files = fts_messages.report(directory, size, 1, 1)
    text = check_files(files, fts_messages.VARIANTS)
    assert "| 50 | rgpe |" in text
    assert "| 1325 |" in text  # 50 * 53 / 2
    assert "All 4 fields as targets" in text
    alone = load(directory, fts_messages.run_alone, 0)
    for variant in fts_messages.VARIANTS:
        cell = load(directory, fts_messages.run_targets, variant, 100, 0)
        np.testing.assert_array_equal(cell["curves"][:, 0], alone["curves"][:1, 0])
        assert (np.diff(cell["seconds"], axis=1) > 0).all()


@needs_data
def test_related_and_unrelated_agents_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(fts_related, "PRIOR_ROUNDS", 2)
    few = {name: fts_related.VARIANTS[name] for name in ("ts", "fts learned", "taf")}
    monkeypatch.setattr(fts_related, "VARIANTS", few)
    monkeypatch.setattr(fts_related, "ON_LANDMINE", ("ts", "fts learned"))
    directory = open_directory(tmp_path, {})
    run_jobs(fts_related.jobs(0, 5, 2, True), directory, 1)
    files = fts_related.report(directory, 1, 1, 5)
    text = check_files(files, fts_related.VARIANTS)
    assert text.count("the related agents") == text.count("the unrelated agents") == 2
    learned = load(directory, fts_related.run_function, "nothing", "fts learned", 0)["preferences"]
    assert learned.shape == (12, 12)
    np.testing.assert_allclose(learned.sum(axis=1), 1.0)
    assert (np.diag(learned) == 0).all()


def test_half_of_the_agents_are_unrelated():
    problem = make_problem("gp-samples", fts_related.NUM_AGENTS, 0, fts_related.GP)
    related = [problem.is_related(agent) for agent in range(fts_related.NUM_AGENTS)]
    assert related == [True] * 6 + [False] * 6


def test_floats_of_a_posterior_are_a_triangle_and_a_mean():
    assert fts_messages.floats_sent("fts", 100) == 100
    assert fts_messages.floats_sent("rgpe", 3) == 6 + 3
    assert fts_messages.floats_sent("taf", 3) == 10
    assert fts_messages.floats_sent("taf seen", 3) == 9
