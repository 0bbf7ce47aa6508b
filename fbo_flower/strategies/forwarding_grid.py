"""A grid that passes everything on to another one; subclasses change what they need."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run


class ForwardingGrid(Grid):
    """A grid in front of another grid.

    Parameters
    ----------
    grid : Flower's grid, which sends and receives the messages
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    @property
    def within(self) -> Grid:
        """The other grid."""
        return self._grid

    def set_run(self, run: Run) -> None:
        """Set the run of the other grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """Return the run of the other grid."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a new message of the message API."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the connected nodes."""
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return their replies."""
        return self._grid.send_and_receive(messages, timeout=timeout)
