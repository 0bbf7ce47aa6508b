"""Runs of the experiments, in a size that takes seconds: same starts, same budgets, known values."""

from __future__ import annotations

import numpy as np
import pytest
from real_data import needs_data

from fbo_flower.algorithms import make_algorithm
from fbo_flower.simulation import make_problem, simulate
from studies.experiment import job, open_directory, run_jobs
from studies.papers import co_kg as cokg
from studies.papers import families, outputs
from studies.papers.fts import landmine, private
from studies.problems.outputs import PROBLEMS, hartmann, shift, zdt1

# -- families ------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["random", "co-kg", "hct", "fed-ei", "gpsampler"])
def test_every_row_of_families_has_the_same_budget_and_the_starting_points_of_ei(row):
    if row == "gpsampler":
        pytest.importorskip("optuna")
        pytest.importorskip("torch")
    own, found = (families.run_one("f1", name, 0, {"f1": 2}, 6, "") for name in ("ei", row))
    assert found["best"].shape == (2, 6)
    assert (np.diff(found["best"], axis=1) >= 0).all()
    if families.ALGORITHMS.get(row, ("peer",))[0] not in {*families.BANDITS, "co-kg"}:
        np.testing.assert_allclose(found["best"][:, :3], own["best"][:, :3], rtol=1e-9)


def test_the_best_without_noise_repeats_a_row_for_each_of_its_pulls():
    problem = make_problem("himmelblau", 2, 0, {})
    study = simulate(problem, algorithm=make_algorithm("hct", {"budget": 30}), engine="inline")
    mine = study.trials.where(agent="1")
    values = np.repeat([problem.true_value(config, 1) for config in mine["config"]], mine["pulls"])
    found = families.best_without_noise(study, "1", problem.optimum(1), 30)
    np.testing.assert_allclose(found, np.maximum.accumulate(values), rtol=1e-12)
    assert mine["pulls"].max() > 1


# -- several outputs -----------------------------------------------------------------------------


def test_shifted_functions_have_the_papers_values_where_they_are_known():
    site = PROBLEMS["Hartmann-6"].sites(3)["2"]
    best = np.array([0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573])
    found = hartmann(dict(enumerate(best - shift(site, 6))), site)
    assert found["value"] == pytest.approx(-3.32237, abs=1e-5)
    assert found["norm"] == pytest.approx(np.linalg.norm(best))
    on_front = zdt1({0: 0.25, **dict(enumerate(0.1 + shift(site, 4), start=1))}, site)
    assert (on_front["first"], on_front["second"]) == (0.25, pytest.approx(0.5))


def test_a_score_is_the_worst_until_the_limits_hold_and_then_never_falls():
    problem = PROBLEMS["Branin"]
    values = np.array([[-1.0, -60.0], [-70.0, -40.0], [-2.0, -50.0], [-30.0, -10.0]])
    found = outputs.score(problem, problem.sites(0)["0"], values)
    assert found.tolist() == [-40.0, -40.0, -2.0, -2.0]  # the second holds the limits and is worse
    problem = PROBLEMS["C2-DTLZ2"]  # a front outside the limits has no volume
    values = np.array([[-0.5, -0.5, -0.1], [-1.0, -1.0, 0.1]])
    assert outputs.score(problem, problem.sites(0)["0"], values) == pytest.approx([0.0, 0.25])


# -- fts -----------------------------------------------------------------------------------------


@needs_data
def test_landmine_variants_have_the_same_starting_points_and_the_others_fifty_observations(tmp_path):
    directory = open_directory(tmp_path, {})
    run_jobs([job(landmine.observe, "log", 0, num_fields=2)], directory, 1)
    held = landmine.held(str(directory), "log", 0, 2)
    assert [len(values) for _, values in held.values()] == [50] * 2
    names = ("ts", "fts single", "control portfolio")
    found = [landmine.run_targets("log", v, 0, str(directory), 3, 2)["best"] for v in names]
    for curves in found:
        assert curves.shape == (2, 4)
        np.testing.assert_array_equal(curves[:, 0], found[0][:, 0])
        assert (np.diff(curves, axis=1) >= 0).all()


@needs_data
def test_noise_of_differential_privacy_has_its_epsilon():
    names = [f"dp-fts z={z}" for z in (0, 2, 8)]
    epsilons = [float(private.run_private("linear", name, 0, 2, 2)["epsilon"]) for name in names]
    assert np.isnan(epsilons[0])
    assert epsilons[1:] == sorted(epsilons[1:], reverse=True)


# -- co-kg ---------------------------------------------------------------------------------------


def test_frameworks_start_from_the_same_points():
    names = ("co-kg", "no-collaboration", "product", "random")
    found = {name: cokg.run_one("f1", name, 0, 2, 8, 8)["best tried"][0] for name in names}
    assert len({found[name][0] for name in names[:3]}) == 1
    for curve in found.values():
        assert (np.diff(curve) <= 0).all()
        assert (curve >= 0).all()


def test_a_difference_is_that_of_the_value_without_noise_to_the_optimum():
    problem = make_problem("f1", 2, 0, {"noise_variance": 1.0})
    algorithm = make_algorithm("co-kg", {"mesh": 6, "num_draws": 8})
    study = simulate(problem, algorithm=algorithm, num_rounds=4, engine="inline")
    returned, best = cokg.differences(study, problem, 4)
    told = study.settings["runs"][0]["found"]["recommended"]
    assert np.isnan(returned[0])
    assert returned[3] == problem.optimum(0) - problem.true_value(told[-1]["config"], 0)
    values = [problem.true_value(config, 0) for config in study.trials["config"]]
    assert best[3] == problem.optimum(0) - max(values)
