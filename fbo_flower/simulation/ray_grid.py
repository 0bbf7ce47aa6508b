"""A Flower `Grid` over Ray workers that take messages in batches.

The strategy and the ClientApp run unchanged. Every worker holds the ClientApp and the contexts of the nodes
that it has served; the grid has copies (`ray_contexts`). So any worker can serve any node, and if a worker
dies, no answer is lost.

Flower's own engine searches all pending messages for every node, so that a round takes time quadratic in the
number of messages; here it is linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fbo_flower.simulation.grids import LocalGrid, Scalar
from fbo_flower.simulation.ray_actors import RayActors, ray_running
from fbo_flower.simulation.ray_batches import Dispatcher
from fbo_flower.simulation.ray_contexts import GridContexts, Item

__all__ = ["RayGrid", "ray_running"]


class RayGrid(LocalGrid):
    """Nodes of one ClientApp on the workers of a Ray cluster.

    Use it as a context manager: leaving it ends the workers, and Ray itself if it was started here.

    Parameters
    ----------
    app : the ClientApp; cloudpickle must be able to pickle it, as in Flower's engine
    num_nodes : number of nodes; node `i` gets `partition-id` i and `num-partitions` in its `node_config`
    num_workers : number of workers; None: one per CPU of the cluster
    address : address of a Ray cluster to join, "auto" for the one that this machine belongs to; None: start
        a cluster here, or use the one that this process has started
    timeout : seconds that one message may take before its worker is ended and replaced; None: no limit
    run_config, node_configs : see `LocalGrid`

    Raises
    ------
    ConfigError
        If Ray is not installed or the cluster cannot be reached.
    """

    def __init__(
        self,
        app: ClientApp,
        num_nodes: int,
        *,
        num_workers: int | None = None,
        address: str | None = None,
        timeout: float | None = None,
        run_config: Mapping[str, Scalar] | None = None,
        node_configs: Mapping[int, Mapping[str, Scalar]] | None = None,
    ) -> None:
        super().__init__(num_nodes, run_config, node_configs)
        self._actors = RayActors(app, num_workers, address)
        self._latest = GridContexts(self.contexts)
        self._dispatcher = Dispatcher(self._actors, self._latest, timeout)
        self._num_messages = 0
        self._closed = False

    def __enter__(self) -> RayGrid:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers at once; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._dispatcher.close()
        self._actors.end()

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return len(self._actors)

    @property
    def busy_seconds(self) -> float:
        """Total seconds that all workers have worked so far."""
        return self._dispatcher.busy_seconds

    @property
    def is_running(self) -> bool:
        """Whether messages are still sent to workers."""
        return self._dispatcher.is_running

    def context(self, node: int) -> Context:
        """Return a copy of a node's context after its last answer; `contexts` holds those of the start."""
        return self._latest[node]

    # -- Flower's interface --------------------------------------------------------------------

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Queue messages for the workers; return their ids."""
        items: list[Item] = []
        for message in messages:
            if message.metadata.dst_node_id not in self.contexts:
                raise KeyError(message.metadata.dst_node_id)
            self._num_messages += 1
            message_id = str(self._num_messages)
            message.metadata.__dict__["_message_id"] = message_id
            items.append((message_id, message))
        self._dispatcher.push(items)
        return [message_id for message_id, _ in items]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have arrived; each reply is returned once."""
        return self._dispatcher.pull(message_ids)

    def awaits(self, message_ids: Iterable[str]) -> bool:
        """Return whether a reply to one of these messages may still arrive."""
        return self._dispatcher.awaits(message_ids)
