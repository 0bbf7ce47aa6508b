"""The part of a federation that one trial's strategy sees in a round."""

from __future__ import annotations

from collections.abc import Sequence

from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fbo_flower.errors import ConfigError
from fbo_flower.strategies.forwarding_grid import ForwardingGrid

PATIENCE = 10  # times that a strategy may look for more nodes while it configures one half-round


class TrialGrid(ForwardingGrid):
    """A grid with some of another grid's nodes.

    Strategies such as FedAvg wait until a minimum of nodes is there. In a share of fixed nodes that would
    never end, so the grid raises ConfigError when it has been asked `PATIENCE` times.

    Parameters
    ----------
    grid : the whole federation
    nodes : the nodes of this share
    """

    def __init__(self, grid: Grid, nodes: Sequence[int]) -> None:
        super().__init__(grid)
        self._nodes = list(nodes)
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


def least_clients(strategy: object) -> int:
    """Return how many clients a strategy waits for, as far as its attributes say; at least 1."""
    names = ("min_available_nodes", "min_train_nodes", "min_evaluate_nodes")
    found = [getattr(strategy, name, 1) for name in names]
    inner = getattr(strategy, "strategy", None)
    if inner is not None and inner is not strategy:
        found.append(least_clients(inner))
    return max(1, *(value for value in found if isinstance(value, int)))
