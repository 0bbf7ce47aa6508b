"""The part of a federation that one trial's strategy sees in a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fbo_flower.errors import ConfigError

PATIENCE = 10  # times that a strategy may look for more nodes while it configures one half-round


class TrialGrid(Grid):
    """A grid with some of another grid's nodes.

    Strategies such as FedAvg wait until a minimum of nodes is there. In a share of fixed nodes that would
    never end, so the grid raises ConfigError when it has been asked `PATIENCE` times.

    Parameters
    ----------
    grid : the whole federation
    nodes : the nodes of this share
    """

    def __init__(self, grid: Grid, nodes: Sequence[int]) -> None:
        self._grid, self._nodes = grid, list(nodes)
        self._looks = 0

    def get_node_ids(self) -> list[int]:
        """Return the nodes of the share."""
        self._looks += 1
        if self._looks > PATIENCE:
            raise ConfigError(
                f"strategy: expected one that is content with the {len(self._nodes)} clients of a trial's "
                "share, got one that waits for more; lower its min_available_nodes, min_train_nodes and "
                "min_evaluate_nodes, or num_parallel"
            )
        return list(self._nodes)

    def set_run(self, run: Run) -> None:
        """Do nothing, because the grid has its run already."""

    @property
    def run(self) -> Run:
        """Return the run of the whole grid."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a new message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages, as the whole grid does."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return replies, as the whole grid does."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return their replies, as the whole grid does."""
        return self._grid.send_and_receive(messages, timeout=timeout)


def least_clients(strategy: object) -> int:
    """Return how many clients a strategy waits for, as far as its attributes say; at least 1."""
    names = ("min_available_nodes", "min_train_nodes", "min_evaluate_nodes")
    found = [getattr(strategy, name, 1) for name in names]
    inner = getattr(strategy, "strategy", None)
    if inner is not None and inner is not strategy:
        found.append(least_clients(inner))
    return max(1, *(value for value in found if isinstance(value, int)))
