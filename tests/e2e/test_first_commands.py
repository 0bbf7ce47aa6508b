"""The two commands of the README's first screen, typed in a copy of the checkout and an empty home.

`make demo` runs whole: it installs into an environment of its own and tunes. `make test` would run this suite
within itself, so what it would run is taken from make and only collected, by the environment of this process.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from processes import ROOT

from fbo_flower.study import Study

pytestmark = [pytest.mark.deployment, pytest.mark.ray]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The files that git tracks, and nothing else."""
    if not shutil.which("git") or not (ROOT / ".git").exists() or not shutil.which("make"):
        pytest.skip("needs git, make and a checkout")
    place = tmp_path_factory.mktemp("first") / "fbo-flower"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    return place


def typed(checkout, *command):
    """Run a command in an empty home, with this machine's settings of package indexes; return its output."""
    home = checkout.parent / "home"
    home.mkdir(exist_ok=True)
    kept = {name: text for name, text in os.environ.items() if name == "PATH" or name.startswith("PIP_")}
    done = subprocess.run(
        command, cwd=checkout, env={**kept, "HOME": str(home)},
        capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_make_demo_installs_and_shows_the_gain_after_equal_evaluations(checkout):
    shown = typed(checkout, "make", "demo")
    study = Study.load(checkout / "runs" / "demo")
    assert study.algorithms == ["fed-ei", "ei", "random"]
    for name in study.algorithms:
        assert len(study.trials.where(algorithm=name)) == 20 * 6
    table, _, after = shown.partition("After 6 evaluations of each agent, fed-ei is at ")
    assert "a gain of +" in after
    assert len(re.findall(r"^ [a-z].*\d", table, re.MULTILINE)) <= 8, "rows below the heading"
    picture = re.search(r"^Picture: (.*)$", after, re.MULTILINE).group(1)
    assert (checkout / picture).read_bytes().startswith(b"\x89PNG")


def test_make_test_installs_and_runs_every_test_of_the_package_and_of_studies(checkout):
    planned = typed(checkout, "make", "-n", "-B", "test")
    assert "pip" in planned
    assert "'.[dev]'" in planned
    loop = re.search(r"for tests in (.*?); do.*?pytest (.*?) \$tests", planned, re.DOTALL)
    folders, words = shlex.split(loop.group(1)), shlex.split(loop.group(2))
    assert folders == ["studies/tests", "tests fbo_flower"]
    mark = words[words.index("-m") + 1]
    for tests in folders:
        pytest_ = [sys.executable, "-m", "pytest", "--collect-only", "-m", mark, *tests.split()]
        found = typed(checkout, *pytest_)
        assert int(re.search(r"(\d+)(/\d+)? tests collected", found).group(1)) > 300
