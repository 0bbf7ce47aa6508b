"""The bundled app over SuperLink and SuperNodes gives the trials of the in-process run with the same seed."""

import json
import socket
import ssl

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


def check_run(deployment, algorithm, tmp_path):
    problem, num_rounds = CASES[algorithm]
    config = {"problem": problem, "algorithm": algorithm, "num-agents": 3, "num-rounds": num_rounds}
    config |= {"seed": 5, "out": str(tmp_path / "deployed")}
    run = deployment.run(ROOT, " ".join(f"{key}={json.dumps(value)}" for key, value in config.items()))
    assert run.status == "finished:completed", run.log + deployment.log("superlink")
    keep = Keep(out=tmp_path / "inline")
    expected = simulate(problem, None, 3, algorithm, num_rounds, seed=5, engine="inline", keep=keep)
    study = Study.load(tmp_path / "deployed")
    for name in ("trials", "recommendations", "models", "judgements"):
        assert getattr(study, name) == getattr(expected, name)
    assert study.rounds["failures"].sum() == study.rounds["refused"].sum() == 0


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
    config = {"problem": "digits-trees", "algorithm": "ei", "num-agents": 3, "num-rounds": 2, "seed": 5}
    config |= {**aims, "out": str(tmp_path / "deployed")}
    with Deployment(tmp_path / "flower") as deployment:
        deployment.start_superlink()
        for number, node in enumerate(nodes(3)):
            limits = {"limits": own[str(number)]} if str(number) in own else {}
            deployment.start_supernode(number, node | limits)
        run = deployment.run(ROOT, " ".join(f"{key}={json.dumps(value)}" for key, value in config.items()))
        assert run.status == "finished:completed", run.log + deployment.log("superlink")
        assert "12.5" not in deployment.log("superlink") + (tmp_path / "deployed" / "study.json").read_text()
    study = Study.load(tmp_path / "deployed")
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
    check_run(secure, algorithm, tmp_path)


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
        run = deployment.run(example, f'num-clients=4 rounds=2 budget=8 out="{out}"')
        assert run.status == "finished:completed", run.log + deployment.log("superlink")
        result = TunedFederation.load(out)
        assert 8 <= result.client_rounds < 12
        assert result.trials["rounds"].sum() == 2 * 2  # two trials side by side, two clients each
        assert (result.curves["trained"] == 2).all()
