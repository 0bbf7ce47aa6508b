"""`examples/own-algorithm`: once installed, its algorithm works by name wherever a built-in one does."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from flower_runtime import ROOT

EXAMPLE = ROOT / "examples" / "own-algorithm"
HELPERS = ROOT / "tests" / "helpers"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the example into a directory of its own, without network."""
    target = tmp_path_factory.mktemp("installed")
    if importlib.util.find_spec("hatchling") is None:
        lay_out(target)
        return target
    source = target.with_name("own-algorithm")  # a build leaves files beside its source
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return target


def lay_out(target: Path) -> None:
    """Write what an installer writes: the package, and its entry points beside it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    shutil.copytree(EXAMPLE / "own_algorithm", target / "own_algorithm")
    metadata = target / f"own_algorithm-{project['version']}.dist-info"
    metadata.mkdir()
    head = {"Metadata-Version": "2.1", "Name": project["name"], "Version": project["version"]}
    (metadata / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in head.items()))
    ((group, entries),) = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")


def run(*paths: Path, code: str = "", arguments: tuple[str, ...] = (), cwd: Path = ROOT) -> str:
    """Run Python with these directories on its path; return what it prints."""
    path = os.pathsep.join(map(str, (*paths, ROOT)))
    command = [sys.executable, *(arguments or ("-c", code))]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_it_is_listed_and_explained(installed: Path) -> None:
    out = run(installed, arguments=("-m", "fbo_flower.cli", "algorithms"))
    assert "gossip  epsilon-greedy search" in out
    assert "    epsilon = 0.2" in out
    out = run(installed, arguments=("-m", "fbo_flower.cli", "algorithms", "gossip"))
    assert "An agent sends: its best point, without the value." in out
    assert "step : standard deviation of a step" in out


def test_it_is_not_listed_without_being_installed() -> None:
    assert "gossip" not in run(arguments=("-m", "fbo_flower.cli", "algorithms"))


def test_it_tunes_and_its_report_explains_its_messages(installed: Path, tmp_path: Path) -> None:
    arguments = [
        "simulate",
        "--problem",
        "himmelblau",
        "--agents",
        "3",
        "--rounds",
        "4",
        "--engine",
        "inline",
    ]
    arguments += ["--algorithm", "gossip", "--compare", "random", "--out", "study", "--journal", "-q"]
    arguments += ["--engine", "inline"]
    run(installed, arguments=("-m", "fbo_flower.cli", *arguments), cwd=tmp_path)
    out = run(installed, arguments=("-m", "fbo_flower.cli", "ledger", "study"), cwd=tmp_path)
    assert "what: the agent's best point so far" in out
    assert "Points: sent by design, in incumbent" in out
    run(installed, arguments=("-m", "fbo_flower.cli", "report", "study", "-q"), cwd=tmp_path)
    assert "`incumbent`: the agent's best point so far" in (tmp_path / "study" / "privacy.md").read_text()


def test_it_is_a_strategy_by_name_with_its_options(installed: Path) -> None:
    code = (
        "import inspect\n"
        "from fbo_flower import algorithms, simulate\n"
        "from fbo_flower.strategies import STRATEGIES\n"
        "from fbo_flower.reports.styles import algorithm_style\n"
        "gossip = algorithms.make_algorithm('gossip', {'epsilon': 0.5})\n"
        "study = simulate('himmelblau', None, 3, gossip, 4, engine='inline')\n"
        "print(len(study.trials))\n"
        "print([*inspect.signature(STRATEGIES['gossip']).parameters][-3:])\n"
        "print(algorithm_style('gossip'))"
    )
    out = run(installed, code=code)
    assert f"{3 * 6}\n['num_initial', 'epsilon', 'step']\nPlotStyle(color='#8C564B', line='-')" in out


def test_its_own_tests_and_the_contract_hold(installed: Path) -> None:
    arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    out = run(installed, HELPERS, arguments=arguments, cwd=EXAMPLE)
    assert " passed" in out


def test_the_files_are_as_short_as_promised() -> None:
    package = EXAMPLE / "own_algorithm"
    assert len((package / "gossip.py").read_text().splitlines()) <= 110
    assert len((package / "record.py").read_text().splitlines()) <= 25
