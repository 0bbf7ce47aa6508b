"""Federations over SuperLink and SuperNodes: trials of the run in process, known nodes, killed processes."""

import json
import socket
import ssl
from collections import Counter
from pathlib import Path

import pytest
from flower_runtime import ROOT, Deployment, nodes
from waiting import LIMIT

from fbo_flower.federated import TunedFederation
from fbo_flower.simulation import Agents, Keep, simulate
from fbo_flower.simulation.problems import DigitsTrees
from fbo_flower.study import Study

pytestmark = [pytest.mark.e2e, pytest.mark.deployment]

# the first exchange of a run, and every further one, takes Flower 3 to 9 seconds
CASES = {"fts": ("gp-samples", 3), "rfms": ("breast-cancer-5sites", 2)}


def run(deployment, out, **config):
    """Run the bundled app with a seed and return its study."""
    config = {"num-agents": 3, "seed": 5, "out": str(out), **config}
    done = deployment.run(ROOT, " ".join(f"{key}={json.dumps(value)}" for key, value in config.items()))
    assert done.status == "finished:completed", done.log + deployment.log("superlink")
    return Study.load(out)


def federation(home, number, secure=False):
    with Deployment(home, secure=secure) as deployment:
        deployment.start_superlink()
        for node, config in enumerate(nodes(number)):
            if secure:
                deployment.register(node)
            deployment.start_supernode(node, config)
        yield deployment


def test_devices_hold_limits_of_their_own_which_do_not_leave_them(tmp_path):
    own = {"1": "comparisons <= 12.5", "2": "comparisons <= 0"}
    aims = {"objectives": "accuracy max, kilobytes min", "limits": "comparisons <= 99"}
    config = {"problem": "digits-trees", "algorithm": "ei", "num-rounds": 2, **aims}
    with Deployment(tmp_path / "flower") as deployment:
        deployment.start_superlink()
        for number, node in enumerate(nodes(3)):
            limits = {"limits": own[str(number)]} if str(number) in own else {}
            deployment.start_supernode(number, node | limits)
        study = run(deployment, tmp_path / "deployed", **config)
        assert "12.5" not in deployment.log("superlink") + (tmp_path / "deployed" / "study.json").read_text()
    problem = DigitsTrees(3, 5, **aims)
    expected = simulate(problem, None, Agents(limits=own), "ei", 2, seed=5, engine="inline")
    assert study.trials == expected.trials
    assert study.infeasible == ["2"]
    assert study.front("1").values.tolist() == expected.front("1").values.tolist() != []


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    yield from federation(tmp_path_factory.mktemp("secure"), 3, secure=True)


@pytest.mark.parametrize("algorithm", CASES)
def test_a_federation_with_tls_and_known_nodes_gives_the_trials_of_the_run_in_process(
    secure, algorithm, tmp_path
):
    problem, num_rounds = CASES[algorithm]
    more = {"problem": problem, "algorithm": algorithm, "num-rounds": num_rounds}
    study = run(secure, tmp_path / "deployed", **more)
    keep = Keep(out=tmp_path / "inline")
    expected = simulate(problem, None, 3, algorithm, num_rounds, seed=5, engine="inline", keep=keep)
    for name in ("trials", "recommendations", "models", "judgements"):
        assert getattr(study, name) == getattr(expected, name)
    assert study.rounds["failures"].sum() == study.rounds["refused"].sum() == 0


def test_a_node_without_a_key_or_with_one_that_nobody_registered_is_refused(secure):
    secure.make_key("stranger")
    process = secure.start_supernode(3, nodes(4)[3], key="stranger", name="stranger")
    assert process.wait(LIMIT) == 1
    assert "Failed to activate SuperNode" in secure.log("stranger")
    command = ["flower-supernode", "--root-certificates", "ca.crt", "--superlink", f"127.0.0.1:{secure.port}"]
    process = secure.start("keyless", *command, "--port", str(secure.node_ports[4]))
    assert process.wait(LIMIT) == 1


def test_plain_text_and_a_certificate_of_another_authority_are_refused(secure, tmp_path):
    (tmp_path / "config.toml").write_text(
        f'[superlink.tests]\naddress = "127.0.0.1:{secure.port}"\ninsecure = true\n'
    )
    assert secure.command("flwr", "list", "tests", FLWR_HOME=str(tmp_path)).returncode != 0

    def connected(context):
        with (
            socket.create_connection(("127.0.0.1", secure.port), timeout=LIMIT) as connection,
            context.wrap_socket(connection, server_hostname="127.0.0.1") as wrapped,
        ):
            return wrapped.version()

    assert connected(ssl.create_default_context(cafile=secure.home / "ca.crt")) in {"TLSv1.2", "TLSv1.3"}
    with pytest.raises(ssl.SSLCertVerificationError):
        connected(ssl.create_default_context())


def test_the_example_that_tunes_a_federation_runs_over_supernodes(tmp_path):
    for deployment in federation(tmp_path / "federation", 4):
        example, out = ROOT / "examples" / "tune-federation", tmp_path / "out"
        done = deployment.run(example, f'num-clients=4 rounds=2 budget=8 out="{out}"')
        assert done.status == "finished:completed", done.log + deployment.log("superlink")
        result = TunedFederation.load(out)
        assert 8 <= result.client_rounds < 12
        assert result.trials["rounds"].sum() == 2 * 2  # two trials side by side, two clients each
        assert (result.curves["trained"] == 2).all()


APP = Path(__file__).parent / "slow_app"
CONNECTED = "SuperNode ID"  # in the log of a SuperNode that was admitted


def start_node(deployment, number, seconds):
    files = {name: str(deployment.home / f"{name}-{number}") for name in ("journal", "traces")}
    deployment.start_supernode(number, nodes(3)[number] | files | {"seconds": seconds})


def restart_node(deployment, number, seconds):
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


def traces(deployment, number):
    path = deployment.home / f"traces-{number}"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def ended(deployment, number):
    """Trial -> value of an agent's evaluations; each has ended once."""
    lines = [words for words in traces(deployment, number) if words[0] == "end"]
    assert max(Counter(words[1] for words in lines).values(), default=1) == 1
    return {int(words[1]): float(words[2]) for words in lines}


def test_fast_devices_go_on_while_others_are_slow_or_dead_and_the_study_is_resumed(tmp_path):
    """Three devices of different speed: one is killed, and so is the server."""
    settings = {
        "journal": str(tmp_path / "study.db"), "out": str(tmp_path / "out"),
        "algorithm": "fts", "num-rounds": 4, "mode": "async", "num-initial": 1,
    }  # fmt: skip
    config = " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
    with Deployment(tmp_path / "flower", secure=True) as deployment:
        deployment.start_superlink()
        for number, seconds in enumerate((0, 1, 25)):
            deployment.register(number)
            start_node(deployment, number, seconds)
        deployment.flwr("run", str(APP), "tests", "-c", config)
        deployment.wait_until(lambda: len(traces(deployment, 1)) >= 3, "the second evaluation of node 1")
        deployment.kill("node-1")
        before = len(ended(deployment, 0))
        deployment.wait_until(lambda: len(ended(deployment, 0)) > before, "node 0 to go on without node 1")
        deployment.kill("superlink")
        deployment.start_superlink()
        restart_node(deployment, 1, 1)
        done = deployment.run(APP, config)
        assert done.status == "finished:completed", done.log
        made = {str(number): ended(deployment, number) for number in range(3)}

    study = Study.load(tmp_path / "out")
    assert study.run("fts")["mode"] == "async"
    told = Counter(study.trials["agent"].tolist())
    for agent, number in told.items():
        assert len(made[agent]) - number in (0, 1), "at most the evaluation at hand is not told at the end"
        mine = study.trials.where(agent=agent)
        assert mine["trial"].tolist() == list(range(number)), "none is missing, none told twice"
        values = dict(zip(mine["trial"].tolist(), mine["value"].tolist(), strict=True))
        assert values.items() <= made[agent].items()
    assert told["0"] > told["2"]
    assert told["1"] > 1, "it goes on where it was"
    assert len(study.replies) == sum(told.values())
