"""The grid over Ray workers: a message that kills its worker costs its own reply, never the others'."""

import os
import socket
import time
from types import SimpleNamespace

import pytest
import ray
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from waiting import wait_until

from fbo_flower.errors import ConfigError, FBOError
from fbo_flower.simulation import RayEngine, ray_grid, ray_workers
from fbo_flower.simulation.ray_grid import RayGrid

pytestmark = pytest.mark.ray
HOUR = 3600.0


def app():
    app = ClientApp()

    @app.train()
    def train(message, context):
        asked = message.content["c"]
        if asked["do"] == "die":
            os._exit(1)
        if asked["do"] == "hang":
            time.sleep(10**6)
        count = context.state.get("count", ConfigRecord({"n": 0}))["n"] + 1
        context.state["count"] = ConfigRecord({"n": count})
        answer = {"partition": context.node_config["partition-id"], "count": count, "process": os.getpid()}
        answer["threads"] = os.environ.get("OPENBLAS_NUM_THREADS", "")
        return Message(RecordDict({"c": ConfigRecord(answer)}), reply_to=message)

    return app


@pytest.fixture(scope="module")
def grid(ray_cluster):
    with RayGrid(app(), 40, num_workers=2, timeout=HOUR) as grid:
        yield grid


def ask(grid, what=None, meanwhile=lambda: None):
    """Send one message to each node, and return partition -> reply; `meanwhile` is called between looks."""
    asked = [ConfigRecord({"do": (what or {}).get(i, "echo")}) for i in range(40)]
    ids = grid.push_messages(
        grid.create_message(RecordDict({"c": config}), MessageType.TRAIN, node, "1")
        for config, node in zip(asked, grid.contexts, strict=True)
    )
    replies = {}

    def all_there():
        replies.update({r.metadata.reply_to_message_id: r for r in grid.pull_messages({*ids} - {*replies})})
        meanwhile()
        return len(replies) == len(ids)

    wait_until(all_there, f"{len(ids)} replies")
    return {i: replies[message_id] for i, message_id in enumerate(ids)}


def counts(replies):
    return {i: r.content["c"]["count"] for i, r in replies.items() if not r.has_error()}


def test_every_node_answers_with_its_own_context_on_one_thread(grid):
    before = counts(ask(grid))
    replies = ask(grid)
    assert {i: r.content["c"]["partition"] for i, r in replies.items()} == {i: i for i in range(40)}
    assert counts(replies) == {i: n + 1 for i, n in before.items()}
    assert {r.content["c"]["threads"] for r in replies.values()} == {"1"}
    assert os.getpid() not in {r.content["c"]["process"] for r in replies.values()}


def test_a_message_that_kills_its_worker_is_answered_by_an_error_and_no_other_is_lost(grid):
    before = counts(ask(grid))
    replies = ask(grid, {7: "die", 23: "die"})
    assert {i for i, r in replies.items() if r.has_error()} == {7, 23}
    assert "died" in replies[7].error.reason
    assert counts(replies) == {i: n + 1 for i, n in before.items() if i not in {7, 23}}
    assert grid.context(1009).state["count"]["n"] == before[8] + 1
    after = counts(ask(grid))
    assert after[7] == before[7] + 1, "its memory is that of its last answer"
    assert after[8] == before[8] + 2


def test_a_message_that_never_ends_is_given_up_and_the_others_go_on(grid, monkeypatch):
    turned, hanging = [0.0], list(grid.contexts)[11]  # the hours by which the test turns the clock on
    glass = SimpleNamespace(monotonic=lambda: time.monotonic() + turned[0])
    monkeypatch.setattr(ray_grid, "time", glass)

    def turn_when_only_its_worker_is_busy():
        under_way = list(grid._in_flight.values())
        stuck = {b.worker for b in under_way if hanging in [m.metadata.dst_node_id for _, m in b.items]}
        waiting = grid._queue or grid._suspects
        if stuck and not waiting and {batch.worker for batch in under_way} == stuck:
            turned[0] += 100 * HOUR

    replies = ask(grid, {11: "hang"}, meanwhile=turn_when_only_its_worker_is_busy)
    assert {i for i, r in replies.items() if r.has_error()} == {11}
    assert "no answer within 3600 s" in replies[11].error.reason
    assert turned[0] > 0, "nothing was given up before its time"
    assert not any(r.has_error() for r in ask(grid).values())


def test_closing_ends_the_thread_and_may_be_repeated(grid):
    """The tests behind this one need the workers of the grid."""
    grid.close()
    assert not grid._thread.is_alive()
    grid.close()


def test_a_cluster_that_does_not_answer_or_start_is_one_line(monkeypatch):
    def init(**_):
        raise errors.pop(0)  # as Ray does

    errors, ended = [ConnectionError("no cluster"), Exception("timed out during startup.")], []
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray_workers, "_end_ray", ended.append)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.socket() as free:  # bound, but it does not listen
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        for scheme in ("", "ray://"):
            with pytest.raises(ConfigError, match=rf"'{scheme}127.0.0.1:{port}'.*refused"):
                RayGrid(app(), 2, address=f"{scheme}127.0.0.1:{port}")
    with pytest.raises(ConfigError, match=r"'auto'.*no cluster"):
        RayGrid(app(), 2, address="auto")
    assert not ended
    with pytest.raises(FBOError, match=r"^engine: Ray did not start: .*timed out during startup.*less busy"):
        RayGrid(app(), 2)
    assert ended == [ray]


def planted(starts):
    """Return a class of workers that is pickled as a whole: workers cannot import this file."""

    class Planted:
        def __init__(self, app):
            starts()

        def work(self, data): ...

    return Planted


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    ("starts", "settings", "said"),
    [
        (None, {"address": "127.0.0.1:1"}, "address: expected .*, the Ray cluster to which this process is"),
        (None, {"client_resources": {"num_gpus": 999}}, "client_resources: .* num_gpus=0, got num_cpus=1, n"),
        (
            lambda: os._exit(1),
            {"num_workers": 1},
            "engine: 1 Ray workers died one after the other before the",
        ),
        (lambda: {}["none such"], {"num_workers": 1}, "engine: a Ray worker could not load .*none such"),
    ],
)
def test_what_ray_cannot_do_is_an_error_before_the_first_task(starts, settings, said, monkeypatch):
    monkeypatch.setattr(ray_workers, "MAX_STARTS", 0)
    if starts is not None:
        monkeypatch.setattr(ray_workers, "_Worker", planted(starts))
    with pytest.raises(FBOError, match=f"^{said}"):
        RayGrid(app(), 2, **settings)


def test_workers_take_what_the_settings_say():
    cluster = {"CPU": 8.0, "GPU": 2.0, "memory": 1e9}
    room = {(4.0, 0.0): 2, (0.5, 0.25): 8, (1.0, 1.0): 2, (0.3, 0.0): 26}
    for (cpus, gpus), count in room.items():
        assert ray_workers._room(cluster, {"num_cpus": cpus, "num_gpus": gpus}) == count
    for wrong in ({"cpus": 1}, {"num_cpus": 0}, {"num_gpus": -1}, {"num_cpus": "2"}, [1]):
        with pytest.raises(ConfigError, match="client_resources: "):
            RayEngine(client_resources=wrong)
