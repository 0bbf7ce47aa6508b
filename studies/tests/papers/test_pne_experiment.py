"""The PF-PNE experiment: it runs, goes on where it stopped, and its tables say what the jobs computed."""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from real_data import needs_data

from fbo_flower.numerics.bandits import partition
from fbo_flower.simulation import simulate
from fbo_flower.simulation.problems import PROBLEMS, Garland, XArmed
from studies.jobs import run_jobs
from studies.papers.pne import experiment as pne
from studies.papers.pne import reference
from studies.papers.pne.client import Shifted
from studies.papers.pne.guarantees import APART, APART_GAP, MOVED, Moved
from studies.problems.data import DATA_VARIABLE
from studies.problems.synthetic import Ackley


@pytest.mark.parametrize("name", [n for n, p in PROBLEMS.items() if issubclass(p, XArmed)])
def test_regret_of_the_functions_is_known(name):
    study = simulate(name, agents=2, algorithm="ts", num_rounds=3, engine="inline")
    regret = study.trials["regret"]
    assert len(regret) >= 6
    assert (regret >= 0).all()
    cumulative = study.regret["cumulative"][study.regret["agent"] == "0"]
    assert cumulative[-1] == pytest.approx(regret[study.trials["agent"] == "0"].sum())


@pytest.mark.slow
def test_a_quick_run_writes_its_report_and_finds_its_results_again(tmp_path, monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    small = replace(pne.QUICK, budget=100, long_budget=200, num_long_seeds=1, neural_budget=8)
    monkeypatch.setattr(pne, "QUICK", small)
    seen = {}
    files = pne.run(tmp_path, True, 2, lambda stage, done, of: seen.__setitem__(stage, (done, of)))
    assert [file.name for file in files] == ["results.md", "regret.png", "communication.png"]
    assert all(done == of for done, of in seen.values())
    text = files[0].read_text()
    assert "landmine data are missing" in text
    for name in (*pne.FUNCTIONS, *pne.ALGORITHMS, "fn-ucb", "peaks at .1, .12, .88"):
        assert name in text
    assert "nan" not in text

    def function_run(*_: object, **__: object) -> None:
        raise AssertionError("nothing is left to compute")

    monkeypatch.setattr(pne, "function_run", function_run)
    assert pne.run(tmp_path, True, 2, lambda *_: None) == files
    assert files[0].read_text() == text


@needs_data
def test_landmine_regret_is_to_the_best_value_that_any_run_saw(tmp_path, monkeypatch):
    monkeypatch.setattr(pne, "LANDMINE_NOISE", (0.1,))
    size = pne.Size(40, 80, num_fields=2, table_depth=3, num_field_seeds=1)
    (tmp_path / "jobs").mkdir()
    for name, work in pne.stages(tmp_path, size).items():
        if "land" in name:
            run_jobs(work, tmp_path, 1)
    found = [s for t in (40, 80) for s in pne.settings(tmp_path, size, t, 0) if s.problem == "landmine-svm"]
    assert len(found) == 2
    for setting in found:
        for name in pne.ALGORITHMS:
            assert (setting.values(name, "final") >= 0).all()
            assert (setting.values(name, "simple") >= 0).all()


def test_differences_are_paired_by_seed():
    base = np.array([100.0, 300.0, 200.0])
    assert pne.paired(base - 5, base) == "-5 ± 0"
    assert pne.paired(base[:1] - 5, base[:1]) == "-5"
    assert pne.paired(base + np.arange(1.0, 4.0), base) == "+2 ± 1"  # 1 / sqrt(3) = .6
    assert pne.spread(base) == "200 ± 100"


def test_short_curves_stay_at_their_last_value():
    rows = pne.padded([np.array([1.0, 5.0]), np.array([2.0]), np.empty(0)])
    assert rows.tolist() == [[1.0, 5.0], [2.0, 2.0], [0.0, 0.0]]


def test_what_is_exchanged_is_recorded_by_round():
    surface = Shifted(Garland(3, 2))
    pf = reference.algorithms()["pf-pne"](surface, 3000, 4)
    assert pf.rounds == 7
    assert pf.exchanged[0].tolist() == [3, 6]  # one cell up from each of 3; mean and radius down
    racing = reference.racing_pne(surface, 3000, 4)
    assert (racing.exchanged[:-1, 1] == 0).all()
    assert racing.exchanged[-1, 1] > 0
    assert reference.local_hct(surface, 3000, 4).rounds == 0
    neural = reference.fn_ucb(surface, 5, 4)
    assert neural.exchanged.shape == (5, 2)


def test_moving_leaves_the_optimum_reachable():
    surface = Moved(Ackley(4, 200))
    index = np.arange(2**16)
    values = [surface.values(partition.centre(16, index, 2), m) for m in range(4)]
    assert [v.max() for v in values] == pytest.approx([surface.optimum(m) for m in range(4)], abs=0.01)
    point = np.full((1, 2), 0.5 + MOVED)
    assert Moved(Ackley(1, 0, shift_stddev=0.0)).values(point, 0)[0] == pytest.approx(1.0)


def test_the_gap_of_the_separate_peaks_is_measured():
    x = np.linspace(0, 1, 10_001)[:, np.newaxis]
    mean = np.mean([APART.values(x, m) for m in range(3)], axis=0)
    assert max(APART.optimum(m) - mean.max() for m in range(3)) == pytest.approx(APART_GAP)


def test_the_benchmark_runs_without_its_peer(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "PyXAB", None)
    found = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "bandits.py"))
    found["main"].__globals__.update(BUDGET=200, PEER_BUDGET=50, PROBLEMS=found["PROBLEMS"][:1])
    found["main"]()
    shown = capsys.readouterr().out
    assert "PyXAB is not installed" in shown
    assert "garland" in shown
