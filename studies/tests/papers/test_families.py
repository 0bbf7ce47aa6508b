"""The experiments that compare many algorithms, in a size that takes seconds: jobs, tables, pictures."""

import numpy as np
import pytest
from real_data import needs_data

from fbo_flower.algorithms import ALGORITHMS, make_algorithm
from fbo_flower.simulation import make_problem, simulate
from studies.jobs import open_directory, run_jobs
from studies.papers import EXPERIMENTS, families, families_report, families_runs, optuna_peers
from studies.papers.fts import landmine as fts_landmine
from studies.papers.fts import messages as fts_messages
from studies.papers.fts import messages_report as fts_messages_report
from studies.papers.fts import related as fts_related
from studies.papers.fts import related_report as fts_related_report


def check_files(files, names):
    text = files[0].read_text(encoding="utf-8")
    assert all(f"| {name} |" in text for name in names)
    assert [file.read_bytes()[:4] for file in files[1:]] == [b"\x89PNG"] * (len(files) - 1)
    return text


def test_families_give_every_algorithm_the_same_budget(tmp_path):
    directory = open_directory(tmp_path, {})
    run_jobs(families.jobs({"f1": 2}, {}, 0, 6), directory, 1)
    for label in families.ALGORITHMS:
        with np.load(directory / "jobs" / f"{families_report.job_name('f1', label, 0)}.npz") as cell:
            assert cell["values"].shape == (2, 6)
            np.testing.assert_array_equal(cell["best"], np.maximum.accumulate(cell["values"], axis=1))
            assert (cell["best"] <= cell["optimum"][:, None] + 1e-12).all()
            assert np.isfinite(cell["costs"]).all()
    files = families_report.report(directory, {"f1": tuple(families.ALGORITHMS)}, 1, 6)
    check_files(files, families.ALGORITHMS)


def test_in_more_dimensions_values_have_no_units_and_a_picture_of_their_own(tmp_path, monkeypatch):
    few = ("random", "ei", "fed-ei")
    monkeypatch.setattr(families, "BROAD", few)
    directory = open_directory(tmp_path, {})
    for seed in range(2):
        run_jobs(families.jobs({"hartmann-6": 2}, {}, seed, 6), directory, 1)
    files = families_report.report(directory, {"hartmann-6": few}, 2, 6)
    text = check_files(files, few)
    assert [file.name for file in files[1:]] == ["families-broad.png"]
    assert "mean of the optima" not in text
    assert "agents worse than with ei at 5" in text
    with np.load(directory / "jobs" / f"{families_report.job_name('hartmann-6', 'ei', 0)}.npz") as job:
        assert (job["values"] >= 0).all()
        assert (job["values"] <= 3.33).all()  # the common function's range


def test_optunas_samplers_begin_with_the_starting_points_of_ei(tmp_path):
    pytest.importorskip("optuna")
    pytest.importorskip("torch")
    own = families_runs.run_algorithm("f1", 2, "ei", 0, 6)
    for sampler in ("tpe", "gpsampler"):
        peer = families_runs.run_peer("f1", 2, sampler, 0, 6)
        np.testing.assert_allclose(peer["values"][:, :3], own["values"][:, :3], rtol=1e-9)
        np.testing.assert_array_equal(peer["best"], np.maximum.accumulate(peer["values"], axis=1))


def test_what_the_server_learns_is_said_of_every_algorithm():
    known = {name for name, _ in families.ALGORITHMS.values()} | {families_runs.RFMS[0]}
    assert known <= set(ALGORITHMS)
    assert set(families_report.LEARNS) == {*families.ALGORITHMS, *optuna_peers.SAMPLERS, "rfms"}
    assert len({families_report.style(label) for label in families.ALGORITHMS}) == len(families.ALGORITHMS)


def test_noiseless_values_repeat_a_row_for_each_of_its_pulls():
    problem = make_problem("himmelblau", 2, 0, {})
    study = simulate(problem, algorithm=make_algorithm("hct", {"budget": 30}), engine="inline")
    optimum = problem.optimum(1)
    values = families_runs.noiseless(study, "1", optimum, 30)
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
    found = families_runs.run_rfms(f"table:{path}", 0, 6)
    assert found["best"].shape == (4, 1)
    assert ((found["best"] > 0) & (found["best"] <= 2)).all()
    assert found["shipped"][0] >= 1


@needs_data
def test_messages_compare_all_variants_from_the_same_starting_points(tmp_path, monkeypatch):
    monkeypatch.setattr(fts_messages, "NUM_FEATURES", (50, 100))
    monkeypatch.setattr(fts_messages_report, "NUM_FEATURES", (50, 100))
    monkeypatch.setattr(fts_landmine, "PRIOR_OBSERVATIONS", 6)
    monkeypatch.setattr(fts_messages_report, "TIMED", (*fts_messages.GENERAL, "rgpe"))
    few = {name: fts_messages.VARIANTS[name] for name in fts_messages_report.TIMED}
    monkeypatch.setattr(fts_messages, "VARIANTS", few)
    directory = open_directory(tmp_path, {})
    size = fts_messages_report.Size(5, 4, 1)
    for work in fts_messages.jobs(directory, size, 0).values():
        run_jobs(work, directory, 1)
    run_jobs(fts_messages.all_targets(directory, size, 0), directory, 1)
    kinds = (tuple(fts_messages.VARIANTS), fts_messages.GENERAL, fts_messages.counts(4))
    files = fts_messages_report.report(directory, size, 1, 1, *kinds)
    text = check_files(files, fts_messages.VARIANTS)
    assert "| 50 | rgpe |" in text
    assert "| 1325 |" in text  # 50 * 53 / 2
    assert "All 4 fields as targets" in text
    with np.load(directory / "jobs" / "ts-0.npz") as alone:
        for variant in fts_messages.VARIANTS:
            with np.load(directory / "jobs" / f"{fts_messages_report.job_name(variant, 100, 0)}.npz") as cell:
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
    files = fts_related_report.report(directory, 1, 1, 5, tuple(fts_related.VARIANTS), ("ts", "fts learned"))
    text = check_files(files, fts_related.VARIANTS)
    assert text.count("the related agents") == text.count("the unrelated agents") == 2
    with np.load(directory / "jobs" / "nothing-fts_learned-0.npz") as cell:
        learned = cell["preferences"]
    assert learned.shape == (12, 12)
    np.testing.assert_allclose(learned.sum(axis=1), 1.0)
    assert (np.diag(learned) == 0).all()


def test_half_of_the_agents_are_unrelated():
    problem = make_problem("gp-samples", fts_related_report.NUM_AGENTS, 0, fts_related.GP)
    related = [problem.is_related(agent) for agent in range(fts_related_report.NUM_AGENTS)]
    assert related == [True] * 6 + [False] * 6


def test_floats_of_a_posterior_are_a_triangle_and_a_mean():
    assert fts_messages_report.floats_sent("fts", 100) == 100
    assert fts_messages_report.floats_sent("rgpe", 3) == 6 + 3
    assert fts_messages_report.floats_sent("taf", 3) == 10
    assert fts_messages_report.floats_sent("taf seen", 3) == 9


def test_the_experiments_can_be_found():
    assert {"families", "fts-messages", "fts-related"} <= set(EXPERIMENTS)
