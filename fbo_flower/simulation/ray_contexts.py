"""Where the contexts of nodes are: alive at the worker that served them last, and as bytes at the grid.

A worker keeps the context of every node that it has served, and sends a copy as bytes with each reply. The
grid does not read the copies. It sends one only if another worker serves the node next, because the former
one died or had too much to do. So whatever was answered survives the death of a worker.

A batch has a number. A worker remembers a context with the number of the batch after which it had it, and the
grid names that number. If they differ, the grid sends the copy, whatever the reason.
"""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import Context, Message

Item = tuple[str, Message]  # a message and its id
Sent = Context | bytes | int  # a first context, a copy, or the number of the batch after which it is held


class ContextsMissing(Exception):  # noqa: N818  # an event that the caller answers
    """The worker does not hold a context that the grid believes it to hold."""


@dataclass(frozen=True)
class Parcel:
    """A batch of messages on the way to a worker.

    Parameters
    ----------
    number : of the batch, unique in a grid
    messages : each with what the worker needs to know its node's context
    forget : nodes that another worker has served since
    """

    number: int
    messages: Sequence[tuple[Message, Sent]]
    forget: Sequence[int] = ()


class HeldContexts:
    """The contexts that live at one worker."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, Context]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, parcel: Parcel) -> list[tuple[Message, Context]]:
        """Return the messages with the contexts of their nodes, which are not held until `keep`.

        Raises
        ------
        ContextsMissing
            If the worker does not hold a context; then it holds none of this parcel.
        """
        for node in parcel.forget:
            self._held.pop(node, None)
        contexts: dict[int, Context | None] = {}
        for message, sent in parcel.messages:
            node = message.metadata.dst_node_id
            if node in contexts:
                continue  # a second message to the same node
            number, context = self._held.pop(node, (0, None))
            if isinstance(sent, int):
                contexts[node] = context if number == sent else None
            else:
                contexts[node] = pickle.loads(sent) if isinstance(sent, bytes) else sent
        batch = []
        for message, _ in parcel.messages:
            known = contexts[message.metadata.dst_node_id]
            if known is None:
                raise ContextsMissing
            batch.append((message, known))
        return batch

    def keep(self, number: int, contexts: Iterable[tuple[int, Context]]) -> None:
        """Hold the contexts of nodes after a batch."""
        self._held.update((node, (number, context)) for node, context in contexts)


class GridContexts:
    """What the grid knows about the contexts of nodes.

    Parameters
    ----------
    first : node -> its context before its first message
    """

    def __init__(self, first: Mapping[int, Context]) -> None:
        self._first = first
        self._copies: dict[int, bytes] = {}  # after the last answer
        self._holders: dict[int, tuple[int, int]] = {}  # node -> worker and number of the batch
        self._under_way: Counter[int] = Counter()  # messages of a node
        self._forget: defaultdict[int, list[int]] = defaultdict(list)  # worker -> nodes
        self._number = 0

    def __getitem__(self, node: int) -> Context:
        """Return a copy of the context of a node after its last answer."""
        copy = self._copies.get(node)
        return self._first[node] if copy is None else pickle.loads(copy)

    def __len__(self) -> int:
        return len(self._first)

    def holder(self, node: int) -> int | None:
        """Return the worker that holds the context of a node."""
        holder = self._holders.get(node)
        return None if holder is None else holder[0]

    def pack(self, worker: int, messages: Iterable[Message]) -> Parcel:
        """Return messages with what the worker needs to know."""
        self._number += 1
        sent = [(message, self._sent(worker, message.metadata.dst_node_id)) for message in messages]
        return Parcel(self._number, sent, self._forget.pop(worker, ()))

    def _sent(self, worker: int, node: int) -> Sent:
        holder = self._holders.get(node)
        self._under_way[node] += 1
        if holder is not None and holder[0] == worker and self._under_way[node] == 1:
            return holder[1]
        if holder is not None and holder[0] != worker:
            self._forget[holder[0]].append(node)
            del self._holders[node]
        return self._copies.get(node, self._first[node])

    def answered(self, worker: int, number: int, copies: Iterable[tuple[int, bytes]]) -> None:
        """Note the contexts of nodes after a batch that a worker has answered."""
        for node, copy in copies:
            self._copies[node] = copy
            self._holders[node] = worker, number
            self._leave(node)

    def failed(self, nodes: Iterable[int]) -> None:
        """Note that a batch was not answered: its worker holds none of these contexts."""
        for node in nodes:
            self._holders.pop(node, None)
            self._leave(node)

    def lost(self, worker: int) -> None:
        """Note that a worker, and all that it held, is gone."""
        self._holders = {node: holder for node, holder in self._holders.items() if holder[0] != worker}
        self._forget.pop(worker, None)

    def _leave(self, node: int) -> None:
        self._under_way[node] -= 1
        if self._under_way[node] <= 0:
            del self._under_way[node]


class WaitingMessages:
    """Messages that wait for a worker: for the one that holds their node's context, or for any."""

    def __init__(self, num_workers: int) -> None:
        self._own: list[deque[Item]] = [deque() for _ in range(num_workers)]
        self._any: deque[Item] = deque()

    def __len__(self) -> int:
        return len(self._any) + sum(map(len, self._own))

    def add(self, items: Iterable[Item], contexts: GridContexts) -> None:
        """Add messages behind those that wait already."""
        for item in items:
            worker = contexts.holder(item[1].metadata.dst_node_id)
            (self._any if worker is None else self._own[worker]).append(item)

    def take(self, worker: int, number: int) -> list[Item]:
        """Remove and return messages for a worker: its own first, and what others have too much of last."""
        taken: list[Item] = []
        for queue in (self._own[worker], self._any):
            taken += [queue.popleft() for _ in range(min(number - len(taken), len(queue)))]
        if not taken:
            longest = max(self._own, key=len)
            taken = [longest.pop() for _ in range(min(number, len(longest)))]
        return taken

    def release(self, worker: int) -> None:
        """Let any worker take the messages of a worker that is gone."""
        self._any.extend(self._own[worker])
        self._own[worker].clear()

    def drain(self) -> list[Item]:
        """Remove and return all messages."""
        items = [item for queue in (*self._own, self._any) for item in queue]
        for queue in (*self._own, self._any):
            queue.clear()
        return items
