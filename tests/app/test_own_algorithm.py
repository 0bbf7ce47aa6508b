"""`examples/own-algorithm`: once installed, its algorithm works by name wherever a built-in one does."""

import os
import shutil
import subprocess
import sys

import pytest
from flower_runtime import ROOT

EXAMPLE = ROOT / "examples" / "own-algorithm"
# commands and Python in one process, in which the example is installed
SESSION = """
import inspect
from fbo_flower import algorithms, simulate
from fbo_flower.cli.main import run
from fbo_flower.reports.pictures import algorithm_style
from fbo_flower.strategies import STRATEGIES
simulation = "simulate --problem himmelblau --agents 3 --rounds 4 --engine inline --algorithm gossip"
for command in ("algorithms", "algorithms gossip", f"{simulation} --compare random --out study --journal -q",
                "ledger study", "report study -q"):
    assert run(command.split()) == 0, command
gossip = algorithms.make_algorithm("gossip", {"epsilon": 0.5})
print(len(simulate("himmelblau", None, 3, gossip, 4, engine="inline").trials))
print([*inspect.signature(STRATEGIES["gossip"]).parameters][-3:])
print(algorithm_style("gossip"))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the example into a directory of its own, without network."""
    target = tmp_path_factory.mktemp("installed")
    source = target.with_name("own-algorithm")  # a build leaves files beside its source
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return target


def python(*words, paths=(), cwd=ROOT):
    """Run Python with these directories on its path; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT)))}
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, cwd=cwd, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_it_is_listed_explained_run_and_reported_by_its_name(installed, tmp_path):
    out = python("-c", SESSION, paths=(installed,), cwd=tmp_path)
    for text in (
        "gossip  epsilon-greedy search",
        "    epsilon = 0.2",
        "An agent sends: its best point, without the value.",
        "step : standard deviation of a step",
        "what: the agent's best point so far",
        "Points: sent by design, in incumbent",
        f"{3 * 6}\n['num_initial', 'epsilon', 'step']\nPlotStyle(color='#8C564B', line='-')",
    ):
        assert text in out
    assert "`incumbent`: the agent's best point so far" in (tmp_path / "study" / "privacy.md").read_text()
    assert "gossip" not in python("-m", "fbo_flower.cli", "algorithms"), "without being installed"


def test_its_own_tests_and_the_contract_hold(installed):
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert " passed" in python(*words, paths=(installed, ROOT / "tests" / "helpers"), cwd=EXAMPLE)


def test_the_files_are_as_short_as_promised():
    package = EXAMPLE / "own_algorithm"
    assert len((package / "gossip.py").read_text().splitlines()) <= 110
    assert len((package / "record.py").read_text().splitlines()) <= 25
