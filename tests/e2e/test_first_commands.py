"""Commands of the README's first screen and of the examples' pages, typed as they stand in an empty home."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import ROOT

from fbo_flower.study import Study

pytestmark = [pytest.mark.deployment, pytest.mark.ray]
COMMANDS = [
    pytest.param(page.parent, command, id=f"{page.parent.name}: {command[:40]}")
    for page in sorted((ROOT / "examples").glob("*/README.md"))
    for command in re.findall(r"(?:^|`)(fbo-flower run \.[^`\n]*)", page.read_text(), re.MULTILINE)
]


def typed(home, place, command, **kept):
    """Run a command with this home and no more of the environment than `kept`; return its output."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=place, env={**kept, "HOME": str(home)},
        capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_make_demo_installs_and_shows_the_gain_after_equal_evaluations(tmp_path):
    """In a copy of the files that git tracks, with this machine's settings of package indexes."""
    if not shutil.which("git") or not (ROOT / ".git").exists() or not shutil.which("make"):
        pytest.skip("needs git, make and a checkout")
    subprocess.run(["git", "checkout-index", "-a", f"--prefix={tmp_path}/fbo-flower/"], cwd=ROOT, check=True)
    kept = {name: text for name, text in os.environ.items() if name == "PATH" or name.startswith("PIP_")}
    shown = typed(tmp_path, tmp_path / "fbo-flower", "make demo", **kept)
    study = Study.load(tmp_path / "fbo-flower" / "runs" / "demo")
    assert study.algorithms == ["fed-ei", "ei", "random"]
    for name in study.algorithms:
        assert len(study.trials.where(algorithm=name)) == 20 * 6
    assert len(COMMANDS) >= 2, "of the examples, below"
    table, _, after = shown.partition("After 6 evaluations of each agent, fed-ei is at ")
    assert "a gain of +" in after
    assert len(re.findall(r"^ [a-z].*\d", table, re.MULTILINE)) <= 8, "rows below the heading"
    picture = re.search(r"^Picture: (.*)$", after, re.MULTILINE).group(1)
    assert (tmp_path / "fbo-flower" / picture).read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def home(tmp_path):
    """An empty home; the SuperLink that Flower starts there ends with the test."""
    yield tmp_path
    for status in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"HOME={tmp_path}".encode() in status.read_bytes().split(b"\0"):
                os.kill(int(status.parent.name), signal.SIGTERM)
        except OSError:
            continue  # it has ended, or belongs to somebody else


@pytest.mark.parametrize(("example", "command"), COMMANDS)
def test_a_command_of_an_example_runs_as_it_is_typed(example, command, home):
    if example.name == "torch-cifar":
        pytest.importorskip("torch", reason="the example needs it")
    shutil.copytree(example, home / example.name)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    offline = {"UV_OFFLINE": "1", "PIP_NO_INDEX": "1", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    typed(home, home / example.name, command, PATH=path, **offline)
