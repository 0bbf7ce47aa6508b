"""`data_file`: the file that holds a node's data, on a device and in simulation."""

from __future__ import annotations

import json
from pathlib import Path

from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.errors import ConfigError

KEY = "data"


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
