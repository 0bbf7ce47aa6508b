"""Flower's own runtime for tests: a SuperLink of the tests' own, on a free port, in a home of its own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from waiting import LIMIT, wait_until

from fbo_flower.simulation.ray_workers import ray_running

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class FlowerRun:
    """What `flwr run` left: its log, and what the SuperLink says of the run."""

    log: str
    status: str
    details: str


FlwrRun = Callable[[Path, int, str], FlowerRun]


@pytest.fixture(scope="session")
def flwr_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlwrRun]:
    """Run an app on a SuperLink of the tests' own: `flwr_run(directory, num_nodes, run_config)`."""
    scripts = Path(sys.executable).parent
    if shutil.which("flwr", path=str(scripts)) is None:
        pytest.skip("flwr's command line is not beside this Python")
    home = tmp_path_factory.mktemp("flower")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "tests"\n[superlink.tests]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    environment = {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "XDG_DATA_HOME": str(home / "data"),
        "PYTHONPATH": str(ROOT),
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "NO_COLOR": "1",
    }

    def flwr(*arguments: str, cwd: Path = home) -> str:
        command = [str(scripts / "flwr"), *arguments]
        done = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=2 * LIMIT, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(directory: Path, num_nodes: int, run_config: str) -> FlowerRun:
        nodes = f"num-supernodes={num_nodes} client-resources-num-cpus=1"
        arguments = ["--federation-config", nodes, "--run-config", run_config]
        output = flwr("run", str(directory), "tests", "--stream", *arguments)
        newest = json.loads(flwr("list", "tests", "--format", "json"))["runs"][0]
        return FlowerRun(output, newest["status"], newest["status-details"])

    superlink = subprocess.Popen(
        [str(scripts / "flower-superlink"), "--insecure", "--simulation", "--port", str(port)],
        cwd=home,
        env=environment,
        stdout=(home / "superlink.log").open("w"),
        stderr=subprocess.STDOUT,
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", superlink)
        yield run
    finally:
        superlink.terminate()
        try:
            superlink.wait(60)
        except subprocess.TimeoutExpired:
            superlink.kill()


@pytest.fixture(scope="session")
def _ray_stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def ray_cluster(_ray_stack: ExitStack) -> None:
    """Keep Ray up for all tests of this process; some, of Flower's own engine, end it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENBLAS_NUM_THREADS", raising=False)  # workers get their limit from the engine
        _ray_stack.enter_context(ray_running())


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    def answers() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"the SuperLink ended with status {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=LIMIT):
                return True
        except OSError:
            return False

    wait_until(answers, f"the SuperLink to answer at {url}")
