"""Wait until the nodes of a study are connected."""

from __future__ import annotations

import threading
import time

from flwr.serverapp import Grid

from fbo_flower.strategies.forwarding_grid import ForwardingGrid
from fbo_flower.strategies.send_and_receive import Stopped

_STEADY_SECONDS = 2.0  # the number of connected nodes must not change for this time
_STEADY_SECONDS_SIMULATED = 1.0  # the same in a simulation, whose nodes all connect when it starts


def is_simulated(grid: Grid) -> bool:
    """Return whether a grid is that of Flower's simulation, whose nodes are all there from the start."""
    while isinstance(grid, ForwardingGrid):
        grid = grid.within
    return type(grid).__name__ == "InMemoryGrid"  # its module differs between versions of Flower


def wait_for_nodes(grid: Grid, num_agents: int | None, deadline: float, stop: threading.Event) -> list[int]:
    """Return the connected nodes: once `num_agents` are connected, or at the deadline.

    Without `num_agents`, or in a simulation: once the number of nodes has stopped changing.
    """
    nodes = sorted(grid.get_node_ids())
    steady_since = time.monotonic()
    while time.monotonic() < deadline:
        if num_agents is not None and len(nodes) >= num_agents:
            return nodes
        is_complete = num_agents is None or is_simulated(grid)
        enough = _STEADY_SECONDS if num_agents is None else _STEADY_SECONDS_SIMULATED
        if is_complete and nodes and time.monotonic() - steady_since >= enough:
            return nodes
        if stop.wait(0.05):
            raise Stopped
        now = sorted(grid.get_node_ids())
        if now != nodes:
            nodes, steady_since = now, time.monotonic()
    return nodes
