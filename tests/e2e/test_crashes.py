"""Processes that are killed: no observation is lost, and none is made twice, also without a barrier."""

import json
from collections import Counter
from pathlib import Path

import pytest
from flower_runtime import Deployment, nodes
from processes import python
from waiting import LIMIT

from fbo_flower.study import Study

pytestmark = [pytest.mark.e2e, pytest.mark.deployment]
APP = Path(__file__).parent / "slow_app"
SECONDS = 3  # of an evaluation, long enough to be killed in
CONNECTED = "SuperNode ID"  # in the log of a SuperNode that was admitted


@pytest.fixture
def deployment(tmp_path):
    with Deployment(tmp_path / "flower", secure=True) as deployment:
        deployment.start_superlink()
        yield deployment


def start_node(deployment, number, seconds=SECONDS, **more):
    files = {name: str(deployment.home / f"{name}-{number}") for name in ("journal", "traces")}
    deployment.start_supernode(number, nodes(3)[number] | files | {"seconds": seconds} | more)


def start_nodes(deployment, *seconds):
    for number, evaluation in enumerate(seconds):
        deployment.register(number)
        start_node(deployment, number, evaluation)


def restart_node(deployment, number, seconds=SECONDS):
    """Start a node as systemd does: again and again until the SuperLink has missed the first."""
    name = f"node-{number}"
    before = deployment.log(name).count(CONNECTED)

    def stays():
        start_node(deployment, number, seconds)
        process = deployment.processes[name]
        deployment.wait_until(
            lambda: process.poll() is not None or deployment.log(name).count(CONNECTED) > before,
            f"{name} to connect or to be refused",
        )
        return process.poll() is None

    deployment.wait_until(stays, f"{name} to be admitted again")


def submit(deployment, **changes):
    config = " ".join(f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in changes.items())
    out = deployment.flwr("run", str(APP), "tests", "-c", config, "--format", "json")
    return str(json.loads(out)["run-id"])


def status(deployment, run_id):
    out = deployment.flwr("list", "tests", "--run-id", run_id, "--format", "json")
    return str(json.loads(out)["runs"][0]["status"])


def finished(deployment, run_id):
    deployment.wait_until(
        lambda: status(deployment, run_id).startswith("finished"), "the run to end", 2 * LIMIT
    )
    log = deployment.flwr("log", run_id, "tests", "--show")
    assert status(deployment, run_id) == "finished:completed", log


def traces(deployment, number):
    path = deployment.home / f"traces-{number}"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def ended(deployment, number):
    """Trial -> value of an agent's evaluations; each has ended once."""
    lines = [words for words in traces(deployment, number) if words[0] == "end"]
    assert max(Counter(words[1] for words in lines).values(), default=1) == 1
    return {int(words[1]): float(words[2]) for words in lines}


def in_process(out):
    """The same app with the same seeds, undisturbed."""
    code = (
        "from slow_app import client_app, server_app; from flwr.app import Context, RecordDict; "
        "from fbo_flower.simulation.grids import InProcessGrid; import tomllib; "
        "config = tomllib.load(open('pyproject.toml', 'rb'))['tool']['flwr']['app']['config']; "
        f"config |= {{'out': {str(out)!r}, 'num-rounds': 4}}; "
        "grid = InProcessGrid(client_app.app, 3, run_config=config); "
        "server_app.app(grid, Context(1, 0, {}, RecordDict(), config))"
    )
    python("-c", code, cwd=APP)
    return Study.load(out)


def values_of(trials):
    """Trial -> value of trials that were told."""
    return dict(zip(trials["trial"].tolist(), trials["value"].tolist(), strict=True))


def test_a_superlink_that_is_killed_is_resumed_from_the_journal_of_its_study(deployment, tmp_path):
    start_nodes(deployment, SECONDS, SECONDS, SECONDS)
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
    for number in range(3):
        own = study.trials.where(agent=str(number))
        assert own["trial"].tolist() == list(range(len(own))), "none is missing, none told twice"
        assert values_of(own) == ended(deployment, number)
    assert study.trials == in_process(tmp_path / "expected").trials


def test_fast_devices_go_on_while_others_are_slow_or_dead_and_the_study_is_resumed(deployment, tmp_path):
    """Three devices of different speed: one is killed, and so is the server."""
    start_nodes(deployment, 0, 1, 25)
    settings = {
        "journal": str(tmp_path / "study.db"), "out": str(tmp_path / "out"),
        "algorithm": "fts", "num_rounds": 4, "mode": "async", "num_initial": 1,
    }  # fmt: skip
    submit(deployment, **settings)
    deployment.wait_until(lambda: len(traces(deployment, 1)) >= 3, "the second evaluation of node 1")
    deployment.kill("node-1")
    before = len(ended(deployment, 0))
    deployment.wait_until(lambda: len(ended(deployment, 0)) > before, "node 0 to go on without node 1")
    deployment.kill("superlink")
    deployment.start_superlink()
    restart_node(deployment, 1, 1)
    finished(deployment, submit(deployment, **settings))

    study = Study.load(tmp_path / "out")
    assert study.run("fts")["mode"] == "async"
    told = Counter(study.trials["agent"].tolist())
    made = {str(number): len(ended(deployment, number)) for number in range(3)}
    for agent, number in told.items():
        assert made[agent] - number in (0, 1), "at most the evaluation at hand is not told at the end"
        mine = study.trials.where(agent=agent)
        assert mine["trial"].tolist() == list(range(number)), "none is missing, none told twice"
        assert values_of(mine).items() <= ended(deployment, int(agent)).items()
    assert told["0"] > told["2"]
    assert told["1"] > 1, "it goes on where it was"
    assert len(study.replies) == sum(told.values())
