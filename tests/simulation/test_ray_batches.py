"""The grid over workers that are planted here: batches, memories and failures, without Ray."""

import pickle
from contextlib import contextmanager

import pytest
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from waiting import wait_until

from fbo_flower.simulation import ray_grid
from fbo_flower.simulation.ray_grid import RayGrid
from fbo_flower.simulation.ray_workers import BatchFailed, BatchReply, WorkerDied


class PlantedWorkers:
    """Workers that answer in order and say that each message took `seconds`; a memory counts its messages."""

    def __init__(self, count, seconds=1e-4, num_bytes=100):
        self.count, self.seconds, self.num_bytes = count, seconds, num_bytes
        self.sent, self.under_way = [], {}  # worker and messages; reference -> messages and memories
        self.most_under_way = self.num_replaced = 0  # messages, workers
        self.deadly, self.broken = set(), set()  # nodes
        self.gone = self.stillborn = False

    def __len__(self):
        return self.count

    def send(self, worker, messages, memories):
        if self.gone:
            raise RuntimeError("no cluster")
        self.sent.append((worker, messages))
        self.under_way[len(self.sent)] = messages, memories
        self.most_under_way = max(self.most_under_way, sum(len(m) for m, _ in self.under_way.values()))
        return len(self.sent), self.num_bytes * len(messages)

    def wait(self, references, seconds):
        return min(references)

    def collect(self, reference):
        messages, memories = self.under_way.pop(reference)
        if memories.keys() & self.deadly or (self.stillborn and not messages):
            raise WorkerDied("planted")
        if memories.keys() & self.broken:
            raise BatchFailed("planted")
        contexts = {node: pickle.loads(memory) for node, memory in memories.items()}
        for message in messages:
            state = contexts[message.metadata.dst_node_id].state
            state["count"] = ConfigRecord({"n": state.get("count", {"n": 0})["n"] + 1})
        replies = [Message(message.content, reply_to=message) for message in messages]
        memories = {node: pickle.dumps(context) for node, context in contexts.items()}
        return BatchReply(replies, memories, self.seconds * len(messages), self.num_bytes * len(messages))

    def replace(self, worker):
        self.num_replaced += 1

    def end(self):
        return

    @property
    def sizes(self):
        """Messages of each batch."""
        return [len(messages) for _, messages in self.sent if messages]


@contextmanager
def grid_over(workers, num_nodes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_grid, "RayWorkers", lambda *_: workers)
        with RayGrid(ClientApp(), num_nodes) as grid:
            yield grid


def push(grid, nodes=None):
    return grid.push_messages(
        grid.create_message(RecordDict({"c": ConfigRecord({"a": 1})}), MessageType.TRAIN, node, "1")
        for node in (list(grid.contexts) if nodes is None else nodes)
    )


def ask(grid, nodes=None):
    """Send a message to each node, and return node -> reply."""
    waiting, found = set(push(grid, nodes)), {}

    def all_there():
        for reply in grid.pull_messages(waiting):
            waiting.remove(reply.metadata.reply_to_message_id)
            found[reply.metadata.src_node_id] = reply
        return not waiting

    wait_until(all_there, "all answers")
    return found


def failed(replies):
    return {node for node, reply in replies.items() if reply.has_error()}


@pytest.mark.parametrize(
    ("seconds", "num_bytes", "num_nodes", "largest"),
    [
        (1e-6, 100, 1500, ray_grid.MAX_BATCH),
        (0.01, 100, 300, 25),
        (1e-6, ray_grid.BATCH_BYTES // 10, 90, 10),
    ],
)
def test_batches_follow_what_messages_take_and_what_is_under_way_is_bounded(
    seconds, num_bytes, num_nodes, largest
):
    workers = PlantedWorkers(2, seconds, num_bytes)
    with grid_over(workers, num_nodes) as grid:
        ask(grid)
        assert grid.busy_seconds == pytest.approx(seconds * num_nodes)
    sizes = workers.sizes
    assert sizes[: 2 * ray_grid.IN_FLIGHT] == [8] * 2 * ray_grid.IN_FLIGHT, "nothing is known yet"
    assert max(sizes[2 * ray_grid.IN_FLIGHT :]) == largest
    assert sizes[-1] <= max(1, ray_grid.LEAST_SECONDS / seconds), "the last batches shrink"
    assert workers.most_under_way <= 2 * ray_grid.IN_FLIGHT * max(8, largest)


def test_one_of_a_batch_that_fails_costs_its_own_reply_alone():
    workers = PlantedWorkers(2)
    with grid_over(workers, 100) as grid:
        nodes = list(grid.contexts)
        workers.deadly, workers.broken = {nodes[7]}, {nodes[40], nodes[41]}
        found = ask(grid)
        assert failed(found) == {nodes[i] for i in (7, 40, 41)}
        assert "died" in found[nodes[7]].error.reason
        assert workers.num_replaced == 2, "once in company, once alone"
        assert failed(ask(grid, nodes[:5])) == set()
        assert [grid.context(n).state["count"]["n"] for n in nodes[3:9] if n != nodes[7]] == [2, 2, 1, 1, 1]


@pytest.mark.parametrize("ending", ["gone", "stillborn"])
def test_a_cluster_that_is_gone_or_starts_no_worker_answers_with_errors_now_and_later(ending):
    workers = PlantedWorkers(2)
    with grid_over(workers, 20) as grid:
        setattr(workers, ending, True)
        workers.deadly = set(list(grid.contexts)[:1])
        assert failed(ask(grid)) >= (workers.deadly if workers.stillborn else set(grid.contexts))
        wait_until(lambda: not grid._thread.is_alive(), "the end of the thread")
        assert all("Ray failed" in reply.error.reason for reply in ask(grid).values())
    if workers.stillborn:
        assert workers.num_replaced - 2 * ray_grid.MAX_STARTS in {1, 2}, "a message killed some"
