"""The PF-PNE experiment: its regret, what is exchanged, and the functions of its limits."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from real_data import needs_data

from fbo_flower.numerics.bandits import partition
from fbo_flower.simulation import simulate
from fbo_flower.simulation.problems import PROBLEMS, Garland, XArmed
from studies.experiment import open_directory, run_jobs
from studies.papers.pne import experiment as pne
from studies.papers.pne import reference
from studies.papers.pne.client import Shifted, thinned
from studies.papers.pne.guarantees import APART, APART_GAP, MOVED, Moved
from studies.problems.synthetic import Ackley


@pytest.mark.parametrize("name", [n for n, p in PROBLEMS.items() if issubclass(p, XArmed)])
def test_regret_of_the_functions_is_known(name):
    study = simulate(name, agents=2, algorithm="ts", num_rounds=3, engine="inline")
    regret = study.trials["regret"]
    assert len(regret) >= 6
    assert (regret >= 0).all()
    cumulative = study.regret["cumulative"][study.regret["agent"] == "0"]
    assert cumulative[-1] == pytest.approx(regret[study.trials["agent"] == "0"].sum())


@needs_data
def test_landmine_regret_is_to_the_best_value_that_any_run_saw(tmp_path):
    directory = open_directory(tmp_path, {})
    fields = {"directory": str(directory), "num_fields": 2, "depth": 3}
    small = [
        replace(
            part, seeds=range(200, 201), common={**fields, "budget": budget}, places=thinned(budget).tolist()
        )
        for part, budget in zip([p for p in pne.parts(True, directory) if p.correct], (40, 40), strict=False)
    ]
    pne.prepare(directory, small, 1, None)
    run_jobs([each for part in small for each in part.jobs(0)], directory, 1)
    for part in small:
        (problem,) = part.problems
        for name in pne.ALGORITHMS:
            found = replace(part, correct=partial(pne.with_optima, 40)).results(directory, problem, name)
            assert (found["cumulative regret"][200] >= -1e-9).all()
            assert (found["simple regret"][200] >= -1e-9).all()


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
