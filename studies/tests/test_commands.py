"""`python -m studies`: its own commands, and those of `fbo-flower` with the problems of the studies."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fbo_flower.algorithms import ALGORITHMS, AlgorithmRecord, register, registry
from fbo_flower.algorithms.registry import BUILT_IN, find
from fbo_flower.cli.main import run
from studies import commands  # noqa: F401  # adds its commands
from studies.attacks import ATTACKS
from studies.attacks import find as find_attack
from studies.experiments import EXPERIMENTS
from studies.peers.record import RECORDS

SMALL = ["simulate", "--agents", "2", "--rounds", "2", "--engine", "inline", "--algorithm", "random"]


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_help_lists_studies_beside_the_commands_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"], "python -m studies") == 0
    shown = capsys.readouterr().out
    assert "Usage: python -m studies" in shown
    for command in ("experiment", "attack", "tabulate", "data", "simulate", "report"):
        assert f" {command} " in shown


def test_comparators_and_problems_are_known_by_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert {record.name for record in RECORDS} <= set(ALGORITHMS)
    assert run(["problems"]) == 0
    assert "landmine-svm" in capsys.readouterr().out
    for record in (*BUILT_IN.values(), *RECORDS):
        assert record.attack is None or record.attack in ATTACKS
        assert ALGORITHMS[record.name].name == record.name


def test_an_attack_of_another_package_is_found_by_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_LOCAL", {})
    texts = dict.fromkeys(("summary", "server_sends", "agent_sends", "inference"), "")
    register(AlgorithmRecord(name="attacked", home="a:A", attack=f"{__name__}:attack", **texts))
    assert find("attacked").attack_name == "attacked"
    assert list(find_attack("attacked").run(3)) == ["attacked with seed 3"]


def attack(seed):
    yield f"attacked with seed {seed}"


def test_without_matplotlib_an_experiment_says_what_to_install_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(["experiment", "families", "--quick", "--out", "x"]) == 2
    assert "pip install 'fbo-flower[simulation]'" in capsys.readouterr().err
    assert not Path("x").exists()


def test_the_landmine_file_is_made_from_the_users_own_copy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from scipy.io import savemat

    rng = np.random.default_rng(0)
    feature, label = np.empty(29, dtype=object), np.empty(29, dtype=object)
    for k in range(29):
        feature[k], label[k] = rng.random((8, 9)), np.array([[0], [1]] * 4)
    savemat("own.mat", {"feature": feature, "label": label})
    monkeypatch.delenv("FBO_FLOWER_DATA", raising=False)
    assert run(["data", "landmine", "own.mat", "--out", "made"]) == 0
    assert "FBO_FLOWER_DATA=" in capsys.readouterr().out
    monkeypatch.setenv("FBO_FLOWER_DATA", "made")
    assert run([*SMALL, "--problem", "landmine-svm", "-q"]) == 0
    assert run(["data", "landmine", "nowhere.mat"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_experiments_are_listed_with_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["experiment"]) == 0
    shown = capsys.readouterr().out
    for name, experiment in EXPERIMENTS.items():
        assert f"{name}  {experiment.summary}" in shown
