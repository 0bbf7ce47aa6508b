"""The page on what a server learned: its figures are those of the study's tables."""

from functools import cache

import numpy as np
import pytest

from fbo_flower.algorithms import make_algorithm
from fbo_flower.cli import main as cli
from fbo_flower.clients import client_app
from fbo_flower.numerics.privacy import Account
from fbo_flower.reports.traffic import PAGE, privacy_page
from fbo_flower.simulation import Keep, simulate
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import DPFTS
from fbo_flower.study import Study

SMALL = {"num_features": 10, "num_candidates": 16, "num_path_features": 8}
SIMULATED = "Simulated: the noise is drawn from the study's seed and protects nobody."


@cache
def run(algorithm, problem="gp-samples", label=None, **options):
    made = make_algorithm(algorithm, options)
    rounds = None if "budget" in options else 4
    return simulate(problem, None, 3, made, rounds, engine="inline", keep=Keep(label=label))


def test_amounts_are_per_agent_and_round():
    study = run("fts", **SMALL)
    up = int(np.sum(study.rounds["bytes_up"])) / 12
    text = privacy_page(study)
    assert "Per agent and round: 10 numbers and " in text
    assert f"{up:.0f} B up" in text or f"{up / 1000:.1f} kB up" in text
    assert "no epsilon bounds what is learned" in text
    assert "18 rows of points and values" in text
    assert "and who chose it: trials (simulation)." in text


def test_epsilon_is_what_the_releases_cost_and_its_limits_are_said():
    text = privacy_page(run("dp-fts", noise_multiplier=2.0, sampling_rate=1.0, **SMALL))
    epsilon = Account({2.0: 3}).epsilon(1e-3)
    assert f"epsilon {epsilon:.3g} at delta 0.001 after 3 releases" in text
    assert "it does not cover trials that agents disclose beside it" in text
    text = privacy_page(run("dp-fts", noise="local", noise_multiplier=2.0, sampling_rate=1.0, **SMALL))
    assert "local noise" in text
    assert "after 4 messages of one agent" in text
    assert "none was added" in privacy_page(run("dp-fts", noise_multiplier=0.0, **SMALL))


@pytest.mark.parametrize(("noise", "source"), [("central", "system"), ("local", "agents")])
def test_noise_of_a_simulation_protects_nobody_and_the_page_says_so(noise, source, tmp_path):
    problem = make_problem("gp-samples", 2, 0, {})
    journals = {node: {"journal": str(tmp_path / f"agent-{node}.db")} for node in range(2)}
    grid = InProcessGrid(client_app(problem, problem.space), 2, node_configs=journals)
    strategies = [DPFTS(num_agents=2, noise=noise, seed=seed, **SMALL) for seed in (None, 0)]
    studies = [run("dp-fts", noise=noise, **SMALL)]
    studies += [strategy.start(grid, num_rounds=3).study for strategy in strategies]
    simulated, deployed, with_seed = (privacy_page(study) for study in studies)
    sources = [study.settings["runs"][0]["privacy"]["noise_from"] for study in studies[:2]]
    assert sources == ["seed", source]
    assert SIMULATED in simulated
    assert SIMULATED not in deployed, "neither side has a seed"
    assert (SIMULATED in with_seed) == (noise == "central")


def test_a_study_without_counts_or_of_an_unknown_algorithm_is_described_without_promises(tmp_path):
    study = run("random")
    (settings,) = study.settings["runs"]
    unknown = {**study.settings, "runs": [{**settings, "algorithm": "of-another-house", "num_agents": 0}]}
    Study(unknown, study.trials, study.rounds).save(tmp_path)
    assert cli.run(["report", str(tmp_path), "--markdown"]) == 0
    text = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert "Not examined." in text
    assert "not described by what is installed here" in text
    assert "- numbers and - up" in text


def test_secure_sums_are_said_in_place_of_what_they_hide():
    text = privacy_page(run("fed-pne", "garland", budget=12, secure_sums=2))
    assert "Secure sums of at least 2 agents: " in text
    assert "| `secure.words`: " in text
    assert "`means`" not in text
