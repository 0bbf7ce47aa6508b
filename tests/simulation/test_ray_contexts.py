"""Contexts live at one worker and are copied at the grid: no answer is lost or counted twice."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict

from fbo_flower.simulation.grids import identify
from fbo_flower.simulation.ray_contexts import ContextsMissing, GridContexts, HeldContexts, WaitingMessages

identify()
NODES = list(range(1001, 1021))


def first_contexts() -> dict[int, Context]:
    return {node: Context(1, node, {}, RecordDict(), {}) for node in NODES}


def message(node: int) -> Message:
    return Message(RecordDict(), node, MessageType.TRAIN)


def count(context: Context) -> int:
    return int(context.state["count"]["n"]) if "count" in context.state else 0


class Workers:
    """Workers without processes: each message adds one to its node's count."""

    def __init__(self, number: int) -> None:
        self.held = [HeldContexts() for _ in range(number)]

    def work(self, worker: int, data: bytes) -> tuple[int, list[tuple[int, bytes]]]:
        parcel = pickle.loads(data)
        batch = self.held[worker].take(parcel)
        for _, context in batch:
            context.state["count"] = ConfigRecord({"n": count(context) + 1})
        contexts = [(message.metadata.dst_node_id, context) for message, context in batch]
        copies = [(node, pickle.dumps(context)) for node, context in contexts]
        self.held[worker].keep(parcel.number, contexts)
        return parcel.number, copies


@pytest.mark.parametrize("seed", range(20))
def test_every_answered_message_counts_once_whatever_happens_to_workers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    grid, workers = GridContexts(first_contexts()), Workers(3)
    answered = dict.fromkeys(NODES, 0)
    under_way: dict[int, list[tuple[list[int], bytes]]] = {0: [], 1: [], 2: []}  # batches in order
    free = set(NODES)
    for _ in range(300):
        worker = int(rng.integers(3))
        what = rng.choice(["send", "work", "die", "unpicklable"], p=[0.5, 0.4, 0.05, 0.05])
        if what == "send" and free:
            nodes = rng.choice(sorted(free), rng.integers(1, min(6, len(free)) + 1), replace=False).tolist()
            free -= set(nodes)
            under_way[worker].append((nodes, pickle.dumps(grid.pack(worker, map(message, nodes)))))
        elif what == "die":
            for nodes, _ in under_way[worker]:
                grid.failed(nodes)
                free |= set(nodes)
            grid.lost(worker)
            under_way[worker], workers.held[worker] = [], HeldContexts()
        elif under_way[worker]:
            nodes, data = under_way[worker].pop(0)
            free |= set(nodes)
            if what == "unpicklable":  # it has worked, but its answers never arrive
                workers.held[worker].take(pickle.loads(data))
                grid.failed(nodes)
                continue
            grid.answered(worker, *workers.work(worker, data))
            for node in nodes:
                answered[node] += 1
    assert {node: count(grid[node]) for node in NODES} == answered
    assert sum(answered.values()) > 100


def test_a_context_is_held_by_one_worker() -> None:
    grid, workers = GridContexts(first_contexts()), Workers(2)
    for worker in (0, 1, 1, 0):
        parcel = pickle.dumps(grid.pack(worker, map(message, NODES)))
        grid.answered(worker, *workers.work(worker, parcel))
    workers.work(1, pickle.dumps(grid.pack(1, [])))  # which tells it what to forget
    assert [len(held) for held in workers.held] == [len(NODES), 0]


def test_two_messages_to_a_node_under_way_do_not_mix_their_contexts() -> None:
    grid, workers = GridContexts(first_contexts()), Workers(2)
    both = [pickle.dumps(grid.pack(worker, [message(1001)])) for worker in (0, 1)]
    results = [workers.work(worker, data) for worker, data in enumerate(both)]
    grid.answered(1, *results[1])
    grid.answered(0, *results[0])  # as before: the last to arrive counts
    for _ in range(2):
        grid.answered(0, *workers.work(0, pickle.dumps(grid.pack(0, [message(1001)]))))
    assert count(grid[1001]) == 3


def test_a_worker_that_does_not_hold_a_context_says_so_before_it_works() -> None:
    grid, workers = GridContexts(first_contexts()), Workers(1)
    grid.answered(0, *workers.work(0, pickle.dumps(grid.pack(0, [message(1001)]))))
    fresh = HeldContexts()
    with pytest.raises(ContextsMissing):
        fresh.take(grid.pack(0, [message(1001), message(1002)]))
    grid.failed([1001, 1002])
    assert [count(context) for _, context in fresh.take(grid.pack(0, [message(1001)]))] == [1]


def test_waiting_messages_go_to_their_holder_and_the_rest_to_whoever_has_nothing() -> None:
    grid, workers = GridContexts(first_contexts()), Workers(2)
    grid.answered(0, *workers.work(0, pickle.dumps(grid.pack(0, map(message, NODES[:15])))))
    waiting = WaitingMessages(2)
    waiting.add([(str(node), message(node)) for node in NODES], grid)
    assert [int(i) for i, _ in waiting.take(0, 8)] == NODES[:8]
    assert [int(i) for i, _ in waiting.take(1, 8)] == NODES[15:]
    assert [int(i) for i, _ in waiting.take(1, 2)] == [1015, 1014]
    waiting.release(0)
    assert [int(i) for i, _ in waiting.take(1, 2)] == NODES[8:10]
    assert len(waiting.drain()) == 3
    assert len(waiting) == 0
