"""Every command of the examples' pages, typed as it stands there, in an empty home directory."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import ROOT

pytestmark = [pytest.mark.deployment, pytest.mark.ray]
COMMANDS = [
    pytest.param(page.parent, command, id=f"{page.parent.name}: {command[:40]}")
    for page in sorted((ROOT / "examples").glob("*/README.md"))
    for command in re.findall(r"(?:^|`)(fbo-flower run \.[^`\n]*)", page.read_text(), re.MULTILINE)
]
NEEDS = {"torch-cifar": "torch"}


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


def test_commands_are_found():
    assert {parameter.values[0].name for parameter in COMMANDS} >= {"tune-federation", "tune-then-train"}


@pytest.mark.parametrize(("example", "command"), COMMANDS)
def test_a_command_of_an_example_runs_as_it_is_typed(example, command, home):
    if needed := NEEDS.get(example.name):
        pytest.importorskip(needed, reason=f"{example.name} needs {needed}")
    app = home / example.name
    shutil.copytree(example, app)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    offline = {"UV_OFFLINE": "1", "PIP_NO_INDEX": "1", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=app, env={"HOME": str(home), "PATH": path, **offline},
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
