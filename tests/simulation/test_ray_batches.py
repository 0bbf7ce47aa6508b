"""Batches handed out to actors that are planted here: sizes, bounds and failures, without Ray."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from waiting import wait_until

from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.simulation.ray_actors import ActorDied, Answers, BatchFailed
from fbo_flower.simulation.ray_batches import (
    BATCH_BYTES,
    BATCH_SECONDS,
    IN_FLIGHT,
    LEAST_SECONDS,
    MAX_BATCH,
    UNCLAIMED,
    Dispatcher,
    batch_size,
)
from fbo_flower.simulation.ray_contexts import GridContexts, Parcel


class PlantedActors:
    """Actors that answer in the order in which they are asked, and say that each message took `seconds`."""

    def __init__(self, count: int, seconds: float = 1e-4, num_bytes: int = 100) -> None:
        self.count, self.seconds, self.num_bytes = count, seconds, num_bytes
        self.sent: list[tuple[int, list[int]]] = []  # actor, nodes
        self.parcels: list[tuple[int, Parcel]] = []
        self.under_way: dict[int, Sequence[tuple[Message, Any]]] = {}
        self.most_under_way = 0  # messages
        self.deadly: set[int] = set()  # nodes
        self.broken: set[int] = set()
        self.replaced: list[int] = []
        self.gone = False

    def __len__(self) -> int:
        return self.count

    def send(self, actor: int, parcel: Parcel) -> tuple[int, int]:
        if self.gone:
            raise RuntimeError("no cluster")
        batch = parcel.messages
        self.parcels.append((actor, parcel))
        self.sent.append((actor, [message.metadata.dst_node_id for message, _ in batch]))
        self.under_way[len(self.sent)] = batch
        self.most_under_way = max(self.most_under_way, sum(map(len, self.under_way.values())))
        return len(self.sent), self.num_bytes * len(batch)

    def done(self, references: Sequence[Any], seconds: float) -> list[Any]:
        return [min(references)]

    def collect(self, reference: Any) -> Answers:
        batch = self.under_way.pop(reference)
        nodes = {message.metadata.dst_node_id for message, _ in batch}
        if nodes & self.deadly:
            raise ActorDied("planted")
        if nodes & self.broken:
            raise BatchFailed("planted")
        replies = [(Message(message.content, reply_to=message), pickle.dumps("")) for message, _ in batch]
        return Answers(replies, self.seconds * len(batch), self.num_bytes * len(batch))

    def replace(self, actor: int) -> None:
        self.replaced.append(actor)

    def is_there(self, actor: int) -> bool:
        return True


@contextmanager
def dispatching(actors: PlantedActors, num_nodes: int) -> Iterator[tuple[Dispatcher, list[Any]]]:
    grid = InProcessGrid(ClientApp(), num_nodes)
    dispatcher = Dispatcher(actors, GridContexts(grid.contexts), None)
    items = [
        (str(node), Message(RecordDict({"c": ConfigRecord({"a": 1})}), node, MessageType.TRAIN))
        for node in grid.contexts
    ]
    for message_id, message in items:
        message.metadata.__dict__["_message_id"] = message_id
    try:
        yield dispatcher, items
    finally:
        dispatcher.close()


def answers(dispatcher: Dispatcher, items: list[Any]) -> dict[str, Message]:
    waiting, found = {i for i, _ in items}, {}

    def all_there() -> bool:
        for reply in dispatcher.pull(waiting - found.keys()):
            found[reply.metadata.reply_to_message_id] = reply
        return waiting == found.keys()

    wait_until(all_there, "all answers")
    return found


@pytest.mark.parametrize(
    ("waiting", "workers", "seconds", "num_bytes", "expected"),
    [
        (1000, 2, None, 0, 8),
        (1000, 2, 1e-4, 0, 250),
        (10_000, 2, 1e-9, 0, MAX_BATCH),
        (1000, 2, BATCH_SECONDS / 10, 0, 10),
        (1000, 2, 3.0, 0, 1),
        (3, 2, 1e-4, 0, 2),  # .3 ms of work, but every worker has some
        (100, 2, 1e-3, 0, 25),
        (30, 2, 1e-3, 0, 15),
        (3, 2, 0.02, 0, 1),
        (1, 8, None, 0, 1),
        (1000, 2, 1e-4, BATCH_BYTES / 20, 20),
        (1000, 2, 1e-4, 10 * BATCH_BYTES, 1),
    ],
)
def test_batches_are_as_large_as_their_duration_and_size_allow(
    waiting, workers, seconds, num_bytes, expected
) -> None:
    assert batch_size(waiting, workers, seconds, num_bytes) == expected


@pytest.mark.parametrize(("seconds", "largest"), [(1e-6, MAX_BATCH), (0.01, 25), (2.0, 1)])
def test_batches_follow_the_seconds_that_messages_take(seconds: float, largest: int) -> None:
    actors = PlantedActors(2, seconds)
    with dispatching(actors, 4000) as (dispatcher, items):
        dispatcher.push(items)
        answers(dispatcher, items)
    sizes = [len(nodes) for _, nodes in actors.sent]
    assert sizes[: 2 * IN_FLIGHT] == [8] * 2 * IN_FLIGHT, "nothing is known yet"
    assert max(sizes[2 * IN_FLIGHT :]) == largest
    assert sizes[-1] <= max(1, LEAST_SECONDS / seconds), "the last batches shrink"


def test_what_is_under_way_is_bounded_whatever_waits() -> None:
    actors = PlantedActors(2, 1e-6)
    with dispatching(actors, 6000) as (dispatcher, items):
        dispatcher.push(items)
        answers(dispatcher, items)
    assert actors.most_under_way <= 2 * IN_FLIGHT * MAX_BATCH
    large = PlantedActors(2, 1e-6, BATCH_BYTES // 10)
    with dispatching(large, 400) as (dispatcher, items):
        dispatcher.push(items)
        answers(dispatcher, items)
    assert large.most_under_way <= 2 * IN_FLIGHT * 10


def test_replies_that_nobody_asks_for_are_dropped_from_the_oldest_on() -> None:
    actors = PlantedActors(1)
    with dispatching(actors, 3) as (dispatcher, items):
        for turn in range(30):
            for message_id, message in items:
                message.metadata.__dict__["_message_id"] = f"{turn}.{message_id}"
            dispatcher.push([(f"{turn}.{i}", message) for i, message in items])
            wait_until(lambda: not dispatcher._owed, "all answers")
        assert len(dispatcher._replies) <= UNCLAIMED * 3 + 3
        assert len(dispatcher.pull([f"29.{i}" for i, _ in items])) == 3


class AskedOnly(Set[str]):
    """Ids of which somebody may only ask whether one is among them."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids, self.asked = frozenset(ids), 0

    def __contains__(self, message_id: object) -> bool:
        self.asked += 1
        return message_id in self.ids

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a look goes through all ids that wait")

    def __len__(self) -> int:
        return len(self.ids)


def test_a_look_for_replies_costs_as_much_as_has_arrived_and_not_as_much_as_waits() -> None:
    with dispatching(PlantedActors(1), 3) as (dispatcher, items):
        dispatcher.push(items)
        wait_until(lambda: not dispatcher._owed, "all answers")
        waiting = AskedOnly([*(i for i, _ in items), *(f"other {k}" for k in range(1000))])
        assert len(dispatcher.pull(waiting)) == 3
        assert waiting.asked == 3
        assert dispatcher.pull(waiting) == []


def test_one_of_a_batch_that_fails_costs_its_own_reply_alone() -> None:
    actors = PlantedActors(2)
    with dispatching(actors, 100) as (dispatcher, items):
        nodes = [message.metadata.dst_node_id for _, message in items]
        actors.deadly, actors.broken = {nodes[7]}, {nodes[40], nodes[41]}
        dispatcher.push(items)
        found = answers(dispatcher, items)
        assert {int(i) for i, reply in found.items() if reply.has_error()} == {nodes[i] for i in (7, 40, 41)}
        assert "died" in found[str(nodes[7])].error.reason
        assert len(actors.replaced) == 2, "once in company, once alone"
        dispatcher.push(items[:5])
        assert len(answers(dispatcher, items[:5])) == 5


def test_a_cluster_that_is_gone_answers_with_errors_now_and_later() -> None:
    actors = PlantedActors(2)
    with dispatching(actors, 20) as (dispatcher, items):
        actors.gone = True
        dispatcher.push(items)
        assert all(reply.has_error() for reply in answers(dispatcher, items).values())
        dispatcher.push(items)
        assert all("Ray failed" in reply.error.reason for reply in answers(dispatcher, items).values())


def test_the_seconds_of_work_add_up() -> None:
    actors = PlantedActors(2, seconds=0.5)
    with dispatching(actors, 10) as (dispatcher, items):
        dispatcher.push(items)
        answers(dispatcher, items)
        assert dispatcher.busy_seconds == pytest.approx(5.0)


def test_messages_go_to_the_worker_that_holds_their_context_and_carry_none() -> None:
    actors = PlantedActors(2)
    with dispatching(actors, 300) as (dispatcher, items):
        dispatcher.push(items)
        answers(dispatcher, items)
        served = {
            message.metadata.dst_node_id: a for a, parcel in actors.parcels for message, _ in parcel.messages
        }
        actors.parcels.clear()
        dispatcher.push(items)
        answers(dispatcher, items)
    kept = [
        isinstance(sent, int)
        for actor, parcel in actors.parcels
        for message, sent in parcel.messages
        if served[message.metadata.dst_node_id] == actor
    ]
    moved = sum(len(parcel.messages) for _, parcel in actors.parcels) - len(kept)
    assert all(kept)
    assert len(kept) > 150, f"{moved} moved"
    assert sum(len(parcel.forget) for _, parcel in actors.parcels) <= moved
