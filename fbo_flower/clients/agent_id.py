"""Who an agent is: its id and its partition, from the settings of its node."""

from __future__ import annotations

from flwr.app import Context

from fbo_flower.clients.data_file import name_of_file
from fbo_flower.errors import ConfigError


def agent_id(context: Context) -> str:
    """Return the agent's id: `agent` in `node_config`, else the name of its file, else `partition-id`."""
    if "agent" not in context.node_config and (name := name_of_file(context.node_config, context.run_config)):
        return name
    for key in ("agent", "partition-id"):
        if key in context.node_config:
            name = str(context.node_config[key])
            if 0 < len(name) <= 100 and name.isprintable() and "," not in name:
                return name
            raise ConfigError(f"{key}: expected 1 to 100 printable characters without a comma, got {name!r}")
    raise ConfigError(
        "node_config: expected 'agent' or 'partition-id', got neither; start the SuperNode with "
        "--node-config 'agent=\"NAME\"'"
    )


def partition_of(context: Context) -> int:
    """Return the partition of a simulated data set that belongs to the node, -1 without one."""
    partition = context.node_config.get("partition-id")
    return int(partition) if partition is not None else -1
