"""`docs/deploy.md` is right: its commands, in their order, make the federation that it describes."""

import json
import re
import subprocess

import pytest
from blocks import blocks
from flower_runtime import SCRIPTS, Deployment, free_ports
from waiting import LIMIT

from fbo_flower.clients.own_answer import read_answers
from fbo_flower.study import Study

PAGE = "docs/deploy.md"
BLOCKS = blocks(PAGE)
PORTS = ("8000", "9094", "9095", "9096", "9097")


def services():
    return {b.tag.removeprefix("service="): b.text.strip() for b in BLOCKS if b.tag.startswith("service=")}


def test_every_block_is_one_that_is_run_or_compared():
    assert {block.language for block in BLOCKS} == {"bash", "ini", "text"}
    assert {block.tag.split("=")[0] for block in BLOCKS} == {"", "service", "stop"}
    assert list(services()) == ["superlink", "north", "south", "east", "west"]
    other = "".join(block.text for block in BLOCKS if block.language == "text").splitlines()
    not_run = ("pip install ", "fbo-flower doctor --superlink superlink.example.org:8000 ")
    assert all(line.startswith(not_run) for line in other), "needs an index or a host: not run here"


def test_the_units_start_what_the_terminal_starts():
    units = [
        block.text.replace("/home/federation/venv/bin/", "") for block in BLOCKS if block.language == "ini"
    ]
    for name, unit in zip(("superlink", "north"), units, strict=True):
        assert f"ExecStart={services()[name]}\n" in unit
        assert "Restart=always" in unit


@pytest.fixture
def deployment(tmp_path):
    with Deployment(tmp_path / "home") as deployment:
        del deployment.environment["FLWR_HOME"]  # the document writes ~/.flwr/config.toml
        (deployment.home / "config.toml").unlink()
        scripts = deployment.home / "bin"
        scripts.mkdir()
        (scripts / "fbo-flower").write_text(f'#!/bin/sh\nexec "{SCRIPTS}/python" -m fbo_flower.cli "$@"\n')
        (scripts / "fbo-flower").chmod(0o755)
        deployment.environment["PATH"] = f"{scripts}:{deployment.environment['PATH']}"
        deployment.environment["FLWR_LOG_LEVEL"] = "DEBUG"
        yield deployment


@pytest.mark.e2e
@pytest.mark.deployment
def test_the_commands_make_the_federation(deployment):
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    root = deployment.home / "federation"
    outputs = ""

    def on_free_ports(text):
        return re.sub(r"\b(8000|909[4-7])\b", lambda found: str(ports[found[0]]), text)

    def shell(text):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", on_free_ports(text)],
            cwd=root if root.exists() else deployment.home, env=deployment.environment,
            capture_output=True, text=True, timeout=2 * LIMIT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}\n{deployment.home}"
        return done.stdout + done.stderr

    def service(name, text):
        process = subprocess.Popen(
            ["bash", "-c", f"exec {on_free_ports(text)}"],
            cwd=root, env=deployment.environment, stdin=subprocess.DEVNULL, start_new_session=True,
            stdout=(deployment.home / f"{name}.log").open("ab"), stderr=subprocess.STDOUT,
        )  # fmt: skip
        deployment.processes[name] = process
        if name == "superlink":
            deployment.wait_for_port(ports["8000"], process)
        else:
            deployment.wait_until(lambda: "SuperNode ID" in deployment.log(name), f"{name} to connect")

    for block in BLOCKS:
        kind, _, name = block.tag.partition("=")
        if block.language != "bash":
            continue
        if kind == "service":
            service(name, block.text)
            continue
        if kind == "stop":
            deployment.processes[name].terminate()
            deployment.processes.pop(name).wait(LIMIT)
        outputs += shell(block.text)

    study = Study.load(root / "study")
    assert study.best == {}, "the operators disclose nothing"
    assert study.settings["runs"][0]["disclosures"] == {"none, default": 3}
    assert "values not disclosed" in outputs
    assert "best value: " in outputs, "the operator of north reads it from the journal"
    for agent in ("north", "south", "east"):
        (stored,) = read_answers(root / f"{agent}.db")
        assert stored.answer.num_evaluations == 4, "two at first, an exchange, one in each of two rounds"
        assert f"agent {agent}, round 2: sends secure.words " in deployment.log(agent)
        ends = deployment.log(agent).count(
            f"agent {agent}: study {stored.answer.study} has ended: best value"
        )
        assert ends == 2, "after three rounds, and after one more"
    assert outputs.count("nothing is wrong") == 2
    assert "finished:completed" in outputs
    assert (root / "north-backup.db").exists()
    nodes = json.loads(shell("flwr supernode list deploy --format json 2> /dev/null"))["nodes"]
    assert [node["status"] for node in nodes].count("online") == 3
