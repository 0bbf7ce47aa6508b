"""Flower's own runtime for tests: a SuperLink of the tests' own and SuperNodes, on 127.0.0.1.

Every process has a session of its own, so that a kill takes its children along, as a power cut does.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from processes import ROOT
from waiting import LIMIT, wait_until

from fbo_flower.simulation.ray_workers import ray_running

SCRIPTS = Path(sys.executable).parent


@dataclass(frozen=True)
class FlowerRun:
    """What `flwr run` left: its log, and what the SuperLink says of the run."""

    log: str
    status: str
    details: str


def free_ports(number):
    """Return ports on which nobody listens now."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(number)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


def _die_with_parent():
    """Let Linux kill this process when the tests are killed themselves."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def make_certificates(directory):
    """Write ca.crt, server.crt and server.key for 127.0.0.1, as `docs/deploy.md` does."""
    for arguments in (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=tests -keyout ca.key -out ca.crt",
        "req -newkey rsa:2048 -nodes -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 "
        "-keyout server.key -out server.csr",
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy "
        "-out server.crt",
    ):
        subprocess.run(["openssl", *arguments.split()], cwd=directory, check=True, capture_output=True)


@dataclass
class Deployment:
    """A SuperLink and its SuperNodes.

    Parameters
    ----------
    home : directory of everything: configuration, keys, logs, the SuperLink's database
    secure : TLS and node authentication, or neither
    """

    home: Path
    secure: bool = False
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self):
        self.port, *self.node_ports = free_ports(9)
        self.home.mkdir(parents=True, exist_ok=True)
        connection = f'address = "127.0.0.1:{self.port}"\n'
        if self.secure:
            make_certificates(self.home)
            connection += f'root-certificates = "{self.home / "ca.crt"}"\n'
        else:
            connection += "insecure = true\n"
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "tests"\n[superlink.tests]\n{connection}'
        )
        self.environment = {
            **os.environ,
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "HOME": str(self.home),
            "XDG_DATA_HOME": str(self.home / "data"),
            "PYTHONPATH": str(ROOT),
            "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for name in list(self.processes):
            self.kill(name)

    # -- processes -----------------------------------------------------------------------------

    def start(self, name, *command):
        """Start a program that keeps running; its output goes to `NAME.log`."""
        process = subprocess.Popen(
            [str(SCRIPTS / command[0]), *command[1:]],
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=(self.home / f"{name}.log").open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  # it makes one system call
        )
        self.processes[name] = process
        return process

    def start_superlink(self, *extra):
        """Start the SuperLink and wait until it listens."""
        security = ["--insecure"]
        if self.secure:
            files = ("ca-certfile", "ca.crt"), ("certfile", "server.crt"), ("keyfile", "server.key")
            security = [word for option, file in files for word in (f"--ssl-{option}", file)]
            security.append("--enable-supernode-auth")
        process = self.start(
            "superlink", "flower-superlink", *security, "--host", "127.0.0.1", "--port", str(self.port),
            "--disable-runtime-dependency-installation", "--database", "superlink.db", *extra,
        )  # fmt: skip
        self.wait_for_port(self.port, process)

    def start_supernode(self, number, node_config, key=None, name=None):
        """Start SuperNode `number`; with a key of its own where nodes are authenticated."""
        security = ["--insecure"]
        if self.secure:
            security = ["--root-certificates", "ca.crt"]
            security += ["--auth-supernode-private-key", key or f"node-{number}"]
        text = " ".join(f"{k}={json.dumps(v)}" for k, v in node_config.items())
        return self.start(
            name or f"node-{number}", "flower-supernode", *security, "--superlink", f"127.0.0.1:{self.port}",
            "--port", str(self.node_ports[number]), "--node-config", text, "--max-retries", "200",
        )  # fmt: skip

    def kill(self, name):
        """Kill a process and its children, as a power cut would."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT)

    def make_key(self, name):
        """Make a key pair for a SuperNode and return its public half."""
        command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", name, "-C", ""]
        subprocess.run(command, cwd=self.home, check=True, capture_output=True)
        return self.home / f"{name}.pub"

    def log(self, name):
        """Return what a process has written."""
        return (self.home / f"{name}.log").read_text(errors="replace")

    def wait_for_port(self, port, process):
        """Wait until somebody listens."""

        def listens():
            if process.poll() is not None:
                raise RuntimeError(f"nobody listens on port {port}; exit status {process.returncode}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=LIMIT):
                return True
            return False

        wait_until(listens, f"somebody to listen on port {port}")

    # -- Flower's command line -----------------------------------------------------------------

    def command(self, *words, **extra):
        """Run a program beside this Python, with more in its environment; return what it did."""
        return subprocess.run(
            [str(SCRIPTS / words[0]), *words[1:]],
            cwd=self.home, env={**self.environment, **extra},
            capture_output=True, text=True, timeout=2 * LIMIT, check=False,
        )  # fmt: skip

    def flwr(self, *words):
        """Run `flwr` and return its output; it has to succeed."""
        done = self.command("flwr", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def register(self, number):
        """Make a key for a node and register it."""
        self.flwr("supernode", "register", str(self.make_key(f"node-{number}")), "tests")

    def run(self, directory, run_config, federation=""):
        """Run an app to its end."""
        words = ["--federation-config", federation] if federation else []
        output = self.flwr("run", str(directory), "tests", "--stream", "-c", run_config, *words)
        newest = json.loads(self.flwr("list", "tests", "--format", "json"))["runs"][0]
        return FlowerRun(output, newest["status"], newest["status-details"])

    def wait_until(self, condition, what, seconds=LIMIT):
        """Wait for something to become true."""
        wait_until(condition, f"{what} (logs in {self.home})", seconds)


def nodes(number):
    """Return the `node_config` of each of `number` nodes."""
    return [{"partition-id": i, "num-partitions": number} for i in range(number)]


@pytest.fixture(scope="session")
def flwr_run(tmp_path_factory):
    """Run an app on a SuperLink that simulates its nodes: `flwr_run(directory, num_nodes, run_config)`."""
    if not (SCRIPTS / "flwr").exists():
        pytest.skip("flwr's command line is not beside this Python")
    with Deployment(tmp_path_factory.mktemp("flower")) as deployment:
        deployment.start_superlink("--simulation")

        def run(directory, num_nodes, run_config):
            nodes = f"num-supernodes={num_nodes} client-resources-num-cpus=1"
            return deployment.run(directory, run_config, nodes)

        yield run


@pytest.fixture(scope="session")
def _ray_stack():
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def ray_cluster(_ray_stack):
    """Keep Ray up for all tests of this process; some, of Flower's own engine, end it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENBLAS_NUM_THREADS", raising=False)  # workers get their limit from the engine
        _ray_stack.enter_context(ray_running())
