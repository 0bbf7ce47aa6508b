"""Processes that are killed: no observation is lost, and none is made twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import Deployment, nodes
from waiting import LIMIT

from fbo_flower.study import Study

pytestmark = [pytest.mark.e2e, pytest.mark.deployment]
APP = Path(__file__).parent / "slow_app"
SECONDS = 3  # of an evaluation, long enough to be killed in
CONNECTED = "SuperNode ID"  # in the log of a SuperNode that was admitted


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path / "flower", secure=True) as deployment:
        deployment.start_superlink()
        for number in range(3):
            deployment.register(number)
            start_node(deployment, number)
        yield deployment


def start_node(deployment: Deployment, number: int, seconds: int = SECONDS) -> None:
    own = {
        "journal": str(deployment.home / f"agent-{number}.db"),
        "traces": str(deployment.home / f"traces-{number}"),
        "seconds": seconds,
    }
    deployment.start_supernode(number, nodes(3)[number] | own)


def restart_node(deployment: Deployment, number: int, seconds: int = SECONDS) -> None:
    """Start a node as systemd does: again and again until the SuperLink has missed the first."""

    name = f"node-{number}"
    before = deployment.log(name).count(CONNECTED)

    def stays() -> bool:
        start_node(deployment, number, seconds)
        process = deployment.processes[name]
        deployment.wait_until(
            lambda: process.poll() is not None or deployment.log(name).count(CONNECTED) > before,
            f"{name} to connect or to be refused",
        )
        return process.poll() is None

    deployment.wait_until(stays, f"{name} to be admitted again")


def submit(deployment: Deployment, **changes: object) -> str:
    config = " ".join(f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in changes.items())
    out = deployment.flwr("run", str(APP), "tests", "-c", config, "--format", "json")
    return str(json.loads(out)["run-id"])


def status(deployment: Deployment, run_id: str) -> str:
    out = deployment.flwr("list", "tests", "--run-id", run_id, "--format", "json")
    return str(json.loads(out)["runs"][0]["status"])


def finished(deployment: Deployment, run_id: str) -> None:
    deployment.wait_until(
        lambda: status(deployment, run_id).startswith("finished"), "the run to end", 2 * LIMIT
    )
    log = deployment.flwr("log", run_id, "tests", "--show")
    assert status(deployment, run_id) == "finished:completed", log


def traces(deployment: Deployment, number: int) -> list[list[str]]:
    path = deployment.home / f"traces-{number}"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def ended(deployment: Deployment, number: int) -> dict[int, float]:
    """Trial -> value of an agent's evaluations; each has ended once."""
    lines = [words for words in traces(deployment, number) if words[0] == "end"]
    assert max(Counter(words[1] for words in lines).values(), default=1) == 1
    return {int(words[1]): float(words[2]) for words in lines}


def in_process(out: Path, num_rounds: int) -> Study:
    """The same app with the same seeds, undisturbed."""
    code = (
        "import sys; from slow_app import client_app, server_app; from flwr.app import Context, RecordDict; "
        "from fbo_flower.simulation.grids import InProcessGrid; import tomllib; "
        "config = tomllib.load(open('pyproject.toml', 'rb'))['tool']['flwr']['app']['config']; "
        f"config |= {{'out': {str(out)!r}, 'num-rounds': {num_rounds}}}; "
        "grid = InProcessGrid(client_app.app, 3, run_config=config); "
        "server_app.app(grid, Context(1, 0, {}, RecordDict(), config))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=APP, check=True)
    return Study.load(out)


def check_against_traces(deployment: Deployment, study: Study) -> None:
    for number in range(3):
        own = study.trials["agent"] == str(number)
        disclosed = dict(
            zip(study.trials["trial"][own].tolist(), study.trials["value"][own].tolist(), strict=True)
        )
        assert len(disclosed) == own.sum(), "a trial was told twice"
        assert disclosed == ended(deployment, number)
        assert sorted(disclosed) == list(range(len(disclosed)))


def test_a_supernode_that_is_killed_in_mid_evaluation_goes_on_where_it_was(
    deployment: Deployment, tmp_path: Path
) -> None:
    run_id = submit(deployment, num_rounds=5, out=str(tmp_path / "out"))
    deployment.wait_until(lambda: len(traces(deployment, 1)) == 3, "the second evaluation to begin")
    deployment.kill("node-1")
    assert [words[0] for words in traces(deployment, 1)] == ["begin", "end", "begin"]
    restart_node(deployment, 1)
    finished(deployment, run_id)
    study = Study.load(tmp_path / "out")
    check_against_traces(deployment, study)
    began = Counter(int(words[1]) for words in traces(deployment, 1) if words[0] == "begin")
    assert began == {**dict.fromkeys(ended(deployment, 1), 1), 1: 2}
    assert len(began) >= 3
    assert set(study.trials["agent"].tolist()) == {"0", "1", "2"}, "it takes part under its own name"


def test_a_superlink_that_is_killed_is_resumed_from_the_journal_of_its_study(
    deployment: Deployment, tmp_path: Path
) -> None:
    journal = {"journal": str(tmp_path / "study.db"), "out": str(tmp_path / "out"), "num_rounds": 4}
    submit(deployment, **journal)
    deployment.wait_until(
        lambda: any(words[:2] == ["begin", "2"] for words in traces(deployment, 2)), "the third evaluation"
    )
    deployment.kill("superlink")
    deployment.start_superlink()
    run_id = submit(deployment, **journal)
    finished(deployment, run_id)
    study = Study.load(tmp_path / "out")
    check_against_traces(deployment, study)
    assert study.trials == in_process(tmp_path / "expected", 4).trials
