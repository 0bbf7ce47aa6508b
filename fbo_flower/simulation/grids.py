"""A Flower `Grid` inside this process: the ClientApp is called directly, one node after the other.

The strategy and the ClientApp run unchanged. Faults can be planted: nodes that are down, stay
silent, raise, answer nonsense or answer late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

RUN_ID = 1
FIRST_NODE = 1001  # node ids are not partition ids: nobody may confuse them
Scalar = bool | int | float | str


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong at one node.

    Parameters
    ----------
    kind : "down": not connected, and a message that is under way comes back as an error; "silent":
        never answers; "raising": the ClientApp fails; "malformed": its reply is passed through
        `change`; "slow": its reply comes `seconds` later
    rounds : in which rounds; None: in all. Round 0 is the first roll-call; a later one belongs to the round
        that it opens. The grid sees a round pass when a message of it is sent
    seconds : delay of "slow"
    change : makes the reply malformed, in place or by returning other content
    """

    kind: Literal["down", "silent", "raising", "malformed", "slow"]
    rounds: Sequence[int] | None = None
    seconds: float = 0.0
    change: Callable[[RecordDict], RecordDict] | None = None

    def strikes(self, server_round: int) -> bool:
        """Return whether the fault is there in this round."""
        return self.rounds is None or server_round in self.rounds


class LocalGrid(Grid):
    """The nodes of one ClientApp on this machine, and what is the same wherever they run.

    Parameters
    ----------
    num_nodes : node `i` has the `node_config` of a simulated node: `partition-id` i, `num-partitions`
    run_config : of every node's context
    node_configs : partition -> further entries of its `node_config`
    """

    def __init__(
        self,
        num_nodes: int,
        run_config: Mapping[str, Scalar] | None = None,
        node_configs: Mapping[int, Mapping[str, Scalar]] | None = None,
    ) -> None:
        self.contexts: dict[int, Context] = {}
        for partition in range(num_nodes):
            own = (node_configs or {}).get(partition, {})
            config = {"partition-id": partition, "num-partitions": num_nodes, **own}
            node = FIRST_NODE + partition
            self.contexts[node] = Context(RUN_ID, node, config, RecordDict(), dict(run_config or {}))
        identify()

    def set_run(self, run: Run) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Run:
        """Return the one run."""
        return Run.create_empty(RUN_ID)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Return the ids of all nodes."""
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Push messages and return the replies that are there at once or within `timeout`."""
        waiting = set(self.push_messages(messages))
        deadline = time.monotonic() + (60.0 if timeout is None else timeout)
        replies: list[Message] = []
        while waiting and time.monotonic() < deadline:
            new = list(self.pull_messages(waiting))
            replies += new
            waiting -= {reply.metadata.reply_to_message_id for reply in new}
            if not self.awaits(waiting):
                break  # nothing more will come
            time.sleep(0.001)
        return replies

    def awaits(self, message_ids: Iterable[str]) -> bool:
        """Return whether a reply to one of these messages may still come."""
        return True


def identify() -> None:
    """Tell Flower who this process is: the one internal that it takes to build a Message outside a run."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN_ID, 0, 0


def answer(app: ClientApp, message: Message, context: Context) -> Message:
    """Return the ClientApp's reply; as in Flower, one that fails answers with an error."""
    try:
        return app(message, context)
    except Exception as error:
        return Message(Error(code=2, reason=f"{type(error).__name__}: {error}"), reply_to=message)


class InProcessGrid(LocalGrid):
    """Nodes of one ClientApp in this process.

    Parameters
    ----------
    app : the ClientApp
    num_nodes : node `i` has the `node_config` of a simulated node: `partition-id` i, `num-partitions`
    run_config : of every node's context
    faults : partition -> fault
    node_configs : partition -> further entries of its `node_config`
    """

    def __init__(
        self,
        app: ClientApp,
        num_nodes: int,
        *,
        run_config: Mapping[str, Scalar] | None = None,
        faults: Mapping[int, Fault] | None = None,
        node_configs: Mapping[int, Mapping[str, Scalar]] | None = None,
    ) -> None:
        super().__init__(num_nodes, run_config, node_configs)
        self._app = app
        self._faults = faults or {}
        self._next_round = 0  # 0: the roll-call
        self._replies: dict[str, tuple[float, Message]] = {}
        self._num_messages = 0

    # -- Flower's interface --------------------------------------------------------------------

    def get_node_ids(self) -> list[int]:
        """Return the ids of the nodes that are connected now, before the next round."""
        return [node for node in self.contexts if not self._strikes(node, "down", self._next_round)]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Deliver messages: every node works at once, in order."""
        ids, upcoming = [], self._next_round
        for message in messages:
            self._num_messages += 1
            message_id = str(self._num_messages)
            message.metadata.__dict__["_message_id"] = message_id
            group = int(message.metadata.group_id or 0)
            server_round = group or upcoming
            self._next_round = max(self._next_round, group + 1)
            ids.append(message_id)
            self._deliver(message_id, message, server_round)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that are there by now, each once."""
        now = time.monotonic()
        wanted = set(message_ids)
        ready = [i for i, (due, _) in self._replies.items() if i in wanted and due <= now]
        return [self._replies.pop(i)[1] for i in ready]

    def awaits(self, message_ids: Iterable[str]) -> bool:
        """Return whether a reply to one of these messages is under way."""
        return any(message_id in self._replies for message_id in message_ids)

    # -- one node ------------------------------------------------------------------------------

    def _strikes(self, node: int, kind: str, server_round: int) -> bool:
        fault = self._faults.get(node - FIRST_NODE)
        return fault is not None and fault.kind == kind and fault.strikes(server_round)

    def _deliver(self, message_id: str, message: Message, server_round: int) -> None:
        node = message.metadata.dst_node_id
        if self._strikes(node, "silent", server_round):
            return
        if self._strikes(node, "down", server_round):
            gone = Message(Error(code=ErrorCode.NODE_UNAVAILABLE, reason="planted fault"), reply_to=message)
            self._replies[message_id] = (0.0, gone)
            return
        if self._strikes(node, "raising", server_round):
            reply = Message(Error(code=2, reason="RuntimeError: planted fault"), reply_to=message)
        else:
            reply = answer(self._app, message, self.contexts[node])
        fault = self._faults.get(node - FIRST_NODE)
        if fault is not None and fault.change is not None and self._strikes(node, "malformed", server_round):
            reply = Message(fault.change(reply.content), reply_to=message)
        slow = fault is not None and self._strikes(node, "slow", server_round)
        self._replies[message_id] = (time.monotonic() + (fault.seconds if fault and slow else 0.0), reply)
