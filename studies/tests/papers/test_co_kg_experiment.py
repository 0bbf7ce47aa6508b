"""The Co-KG experiment end to end, in a size that takes seconds: every job, every table, every picture."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from fbo_flower.algorithms import CoKG, make_algorithm
from fbo_flower.simulation import make_problem, simulate
from studies.jobs import load, open_directory, run_jobs
from studies.papers.co_kg import experiment as cokg
from studies.papers.co_kg import report as tables
from studies.papers.co_kg import special
from studies.papers.co_kg.special import differences

pytestmark = pytest.mark.xdist_group("co-kg experiment")  # one process computes the directory
SMALL = replace(cokg.QUICK, num_rounds=2, num_network_rounds=1)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = open_directory(tmp_path_factory.mktemp("co-kg"), cokg.settings(SMALL))
    with pytest.MonkeyPatch.context() as patch:
        for module in (cokg, special):
            patch.setattr(module, "MESH", 8)
        patch.setattr(cokg, "SWEPT", ("f1",))
        drawn = ("f1", "rosenbrock, log")
        few = {name: cokg.FUNCTIONS[name] for name in (*drawn, "rosenbrock")}
        patch.setattr(cokg, "FUNCTIONS", few)
        patch.setattr(cokg, "DRAWN", drawn)
        patch.setattr(cokg, "NETWORKS", cokg.NETWORKS[:1])
        patch.setattr(cokg, "NETWORK_FRAMEWORKS", ("co-kg", "no-collaboration", "product"))
        patch.setattr(cokg, "FEWER", [name for name in cokg.FUNCTIONS if name != "f1"])
        for stage in cokg.stages(SMALL).values():
            run_jobs(stage, path, 1)
        yield path


def test_all_frameworks_and_all_parts_are_reported(directory):
    files = cokg.report(directory, SMALL)
    text = files[0].read_text(encoding="utf-8")
    assert all(f"| {name} |" in text for name in (*cokg.FRAMEWORKS, *special.KINDS))
    for part in (*cokg.FUNCTIONS, *cokg.networks()):
        assert f"### {part}, " in text
    assert all(f"| {noise:g} |" in text for noise in special.NOISE)
    assert [file.read_bytes()[:4] for file in files[1:]] == [b"\x89PNG"] * 2


def test_a_run_that_was_stopped_is_reported_as_far_as_it_got(directory, tmp_path):
    partial = open_directory(tmp_path, cokg.settings(SMALL))
    for cell in (directory / "jobs").iterdir():
        if not cell.name.startswith(("privacy", "odd_agents-1", "run_function-rosenbrock-1", "run_swept")):
            shutil.copy(cell, partial / "jobs")
    text = cokg.report(partial, SMALL)[0].read_text(encoding="utf-8")
    assert "### f1, 2 seeds" in text
    assert "### rosenbrock, 2 seeds" not in text
    assert "mean_noise_stddev" not in text  # the head of a table of its own


def test_frameworks_of_one_cell_start_from_the_same_points(directory):
    cell = load(directory, cokg.run_function, "f1", 0)
    best = {name: cell[f"{name}/best"] for name in cokg.FRAMEWORKS}
    assert len({curve[0] for name, curve in best.items() if name != "random"}) == 1
    for curve in best.values():
        assert (np.diff(curve) <= 0).all()
        assert (curve >= 0).all()
    assert len({curve.tobytes() for curve in best.values()}) > 3


def test_random_search_has_as_many_evaluations():
    assert {name: evaluations(name) for name in ("random", "co-kg")} == {"random": 14, "co-kg": 14}


def evaluations(algorithm: str) -> int:
    options = {"num_initial": 5} | ({} if algorithm == "random" else {"mesh": 4, "num_draws": 8})
    return len(
        simulate(
            "f1", agents=2, algorithm=make_algorithm(algorithm, options), num_rounds=3, engine="inline"
        ).trials
    )


def test_a_difference_is_that_of_the_value_without_noise_to_the_optimum():
    options = {"mesh": 6, "num_draws": 8}
    problem = make_problem("f1", 2, 0, {"noise_variance": 1.0})
    study = simulate(problem, algorithm=make_algorithm("co-kg", options), num_rounds=4, engine="inline")
    recommended, best = differences(study, problem, 4)
    told = study.settings["runs"][0]["found"]["recommended"]
    assert np.isnan(recommended[0])
    assert recommended[3] == problem.optimum(0) - problem.true_value(told[-1]["config"], 0)
    values = [problem.true_value(config, 0) for config in study.trials["config"]]
    assert best[3] == problem.optimum(0) - max(values)
    own = [problem.true_value(c, 0) for c in study.trials.where(agent="1")["config"]]
    assert differences(study, problem, 4, ["1"])[1][3] == problem.optimum(0) - max(own)


def test_an_odd_agent_changes_what_it_is_meant_to_change(directory):
    cell = load(directory, special.odd_agents, 0)
    plain = cell["none, uniform/best"]
    # a bad start and a lie in the warm-up leave the sound agents' first points alone
    for kind in special.KINDS:
        assert cell[f"{kind}, uniform/best"][0] == plain[0]
    curves = {cell[f"{kind}, uniform/recommended"].tobytes() for kind in special.KINDS}
    assert len(curves) > 2


def test_the_attack_is_exact_without_noise_and_fails_with_much(directory):
    cell = load(directory, special.privacy, 0)
    assert cell["0.0/one"].max() < 0.01
    assert cell["1.0/one"].mean() > 10 * cell["0.0/one"].mean()


def test_the_server_is_timed_under_a_prior_of_lengthscale_a_fifth():
    server = special.Timed(num_agents=2, seed=0, mesh=6, num_draws=8)
    assert isinstance(server.algorithm, CoKG)
    found = special.server_time(6, 2, 8)
    assert found["ask"].shape == found["tell"].shape == (2,)
    assert (found["ask"] > 0).all()
    assert found["pivots"] > 0


def test_acceptance_compares_what_is_returned_at_the_end():
    def runs(finals):
        return [
            {f"{n}/{m}": np.array([np.nan, v]) for n, v in finals.items() for m in ("recommended", "best")}
        ] * 3

    names = dict.fromkeys(cokg.FRAMEWORKS, 0.01)
    good = {s: runs(names | {"barycenter-qkg": 0.5}) for s in cokg.FUNCTIONS}
    assert "| no" not in tables.acceptance(good)
    bad = good | {"f1": runs(names | {"co-kg": 0.03, "data-communication": 0.05, "product": 0.04})}
    rows = [line for line in tables.acceptance(bad).splitlines() if "| no" in line]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| f1, 3 seeds", "co-kg <= 0.02"],
        ["| f1", "data-communication <= co-kg"],
        ["| f1", "product within 2 s.e. of data-communication"],
        ["| f1", "product, beta 0 within 2 s.e. of data-communication"],
    ]


@pytest.mark.skipif("FBO_FLOWER_DATA" in os.environ, reason="the data are there")
def test_without_the_california_data_the_other_network_is_left():
    assert cokg.networks() == ("breast-cancer-mlp",)
