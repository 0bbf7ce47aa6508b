"""Engine `ray` on a cluster of two machines: two Ray node processes, in a process of their own."""

import tempfile

import pytest
from processes import python

pytestmark = [pytest.mark.ray, pytest.mark.deployment]  # workers that die: test_ray_batches, test_ray_grid
STUDY = """
import os, sys
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
import ray
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from ray.cluster_utils import Cluster
from fbo_flower.simulation import RayEngine, simulate
from fbo_flower.simulation.problems import make_problem
from fbo_flower.simulation.ray_grid import RayGrid
from fbo_flower.strategies.exchange import send_and_receive

app = ClientApp()

@app.train()
def train(message: Message, context: Context) -> Message:
    n = context.state.get("count", {"n": 0})["n"] + 1
    context.state["count"] = ConfigRecord({"n": n})
    answer = {"machine": ray.get_runtime_context().get_node_id(), "n": n}
    return Message(RecordDict({"c": ConfigRecord(answer)}), reply_to=message)

def ask(grid):
    message = lambda node: grid.create_message(RecordDict(), MessageType.TRAIN, node, "1")
    replies = grid.send_and_receive(map(message, grid.contexts), timeout=300.0)
    return [reply.content["c"] for reply in replies]

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)
try:
    problem = make_problem("gp-samples", 6, 0, {"dimension": 2, "lengthscale": 0.2})
    same = [simulate(problem, algorithm="fts", num_rounds=4, engine=engine).trials["value"].tolist()
            for engine in ("inline", RayEngine(address=cluster.address))]
    assert same[0] == same[1], same
    with RayGrid(app, 40, address=cluster.address) as grid:
        assert grid.num_workers == 2
        assert len({answer["machine"] for answer in ask(grid)}) == 2
        cluster.remove_node(second)
        answers = ask(grid)
        assert [answer["n"] for answer in answers] == [2] * 40, answers
        assert len({answer["machine"] for answer in ask(grid)}) == 1
finally:
    cluster.shutdown()
print("both machines worked")
"""


def test_two_machines_work_and_one_that_is_lost_costs_its_batches_a_second_try():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # others do not find the cluster
        assert "both machines worked" in python("-c", STUDY, RAY_TMPDIR=folder).stdout
