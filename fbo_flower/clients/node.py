"""Who an agent is: its id, its partition and the file of its data, and what it reports of its machine.

In simulation the run config lists the files of all nodes, and a simulated agent is named after its file.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from flwr.app import Context

from fbo_flower import __version__
from fbo_flower.clients.objective import ObjectiveContext
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


def in_simulation() -> bool:
    """Return whether this is a worker of Flower's simulation, whose nodes all end with their run.

    `node_config` does not tell: an operator may set `partition-id` on a device. No SuperNode imports that.
    """
    return "flwr.simulation.ray_transport.ray_actor" in sys.modules


KEY = "data"
_MAX_NAME = 100  # characters of an agent's id


def data_file(context: ObjectiveContext) -> Path | None:
    """Return the path of this node's data file; None if it has none.

    On a device it is `data` in `node_config`, which the operator sets. A simulated node takes the file of its
    partition in the run config's `data`, which `fbo-flower run --data 'dir/*.csv'` sets. The run config never
    overrides the operator's choice.

    Parameters
    ----------
    context : the second argument of an objective

    Raises
    ------
    ConfigError
        If the run config lists files, but none for this partition.
    """
    own = str(context.node_config.get(KEY, ""))
    if own:
        return Path(own)
    text = str(context.run_config.get(KEY, ""))
    if not text:
        return None
    try:
        return Path({place: file for place, file in enumerate(json.loads(text))}[context.partition])
    except (ValueError, TypeError, LookupError) as error:
        raise ConfigError(
            f"data: expected a JSON list with a file for partition {context.partition}, got {text[:80]!r}; "
            "set it with fbo-flower run --data 'dir/*.csv'"
        ) from error


def name_of_file(node_config: Mapping[str, Any], run_config: Mapping[str, Any]) -> str | None:
    """Return a simulated agent's name, that of its file; None if the run config lists no file for it."""
    if not run_config.get(KEY):
        return None
    try:
        files = json.loads(str(run_config[KEY]))
        is_list = isinstance(files, list)  # otherwise the app has a key `data` of its own
        return dict(enumerate(names_of_files(files)))[int(node_config["partition-id"])] if is_list else None
    except (ValueError, TypeError, LookupError):
        return None


def names_of_files(files: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return a different name for each file: the file's name, and as much more of its path as is needed.

    If no part of the paths makes the names different, they are the files' numbers.

    >>> names_of_files(["data/north.csv", "data/south.csv"]), names_of_files(["a/x.csv", "b/x.csv"])
    (['north', 'south'], ['a/x', 'b/x'])
    """
    paths = [Path(file) for file in files]
    for depth in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        for last in ([path.stem for path in paths], [path.name for path in paths]):
            names = [
                _allowed("/".join([*path.parts[-depth:-1], name]))
                for path, name in zip(paths, last, strict=True)
            ]
            if len(set(names)) == len(names):
                return names
    return [str(number) for number in range(len(paths))]


def _allowed(text: str) -> str:
    """Return a text with only those characters that an agent's id may have."""
    return "".join("_" if c == "," or not c.isprintable() else c for c in text)[-_MAX_NAME:]


def node_info(context: Context) -> dict[str, str | float]:
    """Return versions, the clock in seconds since 1970, and whether there is a journal, without its path."""
    return {
        "version": __version__,
        "flwr": _flower_version(),
        "python": platform.python_version(),
        "time": time.time(),
        "journal": "kept" if context.node_config.get("journal") else "none",
    }


_flower_version = cache(partial(metadata.version, "flwr"))  # it reads a file, once for all simulated agents
